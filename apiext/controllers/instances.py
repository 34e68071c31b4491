"""Deletes the objects of one resource, as a client would: at once, or marked when finalizers hold them."""

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable

import orjson
from msgspec import Struct

from apiext.controllers import limits
from apiext.controllers.references import metadata_of
from apiext.documents.encoding import encode
from apiext.scheduling.loop_budget import LoopBudget
from apiext.storage.cached_store import CachedStore
from apiext.storage.collection import Collection
from apiext.storage.history import Change
from apiext.storage.store import Entry, Guard, Malformed, NotReady, RevisionChanged, StoreError
from apiext.verbs.commit import Put, Remove, attempt
from apiext.verbs.metadata import mark_as_deleting


class Emptied(Struct, frozen=True):
    """A namespace or definition that is being emptied, for its controller.

    ``due()`` reports whether it is still the one that is being deleted: another server may have finished, and objects
    of its successor may have the same names. ``guard()`` is compared by puts of the objects. ``wake()`` is called when
    another run of the sweep would make progress: something new to delete, or nothing left; ``moved()`` when only the
    report of the remaining objects changes.
    """

    due: Callable[[], bool]
    guard: Callable[[], Guard | None]
    wake: Callable[[], None]
    moved: Callable[[], None] = lambda: None


class Sweep:
    """Empties a collection, or one namespace of it, and notices what changes meanwhile.

    Objects are neither converted nor validated, so no webhook and no schema can hold up a deletion.
    """

    def __init__(
        self,
        store: CachedStore,
        collection: Collection,
        namespace: str | None,
        emptied: Emptied,
        clock: Callable[[], str],
    ) -> None:
        self.collection = collection
        self._store = store
        self._namespace = namespace
        self._emptied = emptied
        self._clock = clock
        # queued keys in order; a plain dict needs longer for its first key after each removal
        self._todo: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._listed = False
        self._unsubscribe = collection.following.subscribe(self._changed)

    def close(self) -> None:
        """Stop noticing."""
        self._unsubscribe()

    @property
    def remaining(self) -> int:
        """Return the number of objects; raise NotReady while they are loaded again."""
        if not (self.collection.state.ready or self.collection.dropped):
            raise NotReady(f"{self.collection.resource} is not in the cache")
        return self.collection.state.count(self._namespace)

    def unreadable(self) -> Malformed | None:
        """Return why an object cannot be read, and so cannot be deleted through its finalizers (RV-020)."""
        try:
            self.collection.state.page(self._namespace, "", 1)  # looks at all, and makes no list of them
        except Malformed as error:
            return error
        return None

    async def finalizers(self) -> Counter[str]:
        """Return how many of the remaining objects each finalizer holds; of many objects, in turns."""
        held: Counter[str] = Counter()
        loop_budget = LoopBudget()
        for entry in self.collection.state.readable(self._namespace):
            await loop_budget.pause()
            if b'"finalizers"' in entry.raw:
                held.update(metadata_of(entry).get("finalizers") or ())
        return held

    async def run(self) -> list[StoreError]:
        """Delete or mark whatever is not done yet; return what went wrong, to be tried again by the next run."""
        errors: list[StoreError] = []
        if not self._listed:
            self._listed, loop_budget = True, LoopBudget()
            for entry in self.collection.state.readable(self._namespace):
                self._todo[entry.namespace, entry.name] = None
                await loop_budget.pause()
        async with asyncio.TaskGroup() as group:
            for _ in range(min(limits.DELETES_IN_FLIGHT, len(self._todo))):
                group.create_task(self._drain(errors))
        return errors

    async def _drain(self, errors: list[StoreError]) -> None:
        while self._todo and len(errors) < limits.DELETES_IN_FLIGHT:
            key, _ = self._todo.popitem(last=False)
            try:
                entry = self.collection.state.get(*key)
                while entry is not None and self._emptied.due():
                    entry = await self._remove(entry)
            except StoreError as error:
                self._todo[key] = None
                errors.append(error)
            except BaseException:  # whatever it was, the object is still to be deleted
                self._todo[key] = None
                raise

    async def _remove(self, entry: Entry) -> Entry | None:
        """Delete or mark one object; return its newer state after a conflict."""
        decision = self._decide(entry)
        if decision is None:
            return None
        try:
            await attempt(self._store, self.collection, decision)
        except RevisionChanged as race:
            if race.current is not None:
                await self._store.at_least(race.current.revision)  # its owner in the cache is as new then
            return race.current
        return None

    def _decide(self, entry: Entry) -> Put | Remove | None:
        """Return the decision about an object, None if nothing is due yet."""
        document = orjson.loads(entry.raw)
        metadata = document.get("metadata")
        metadata = metadata if isinstance(metadata, dict) else {}  # another program may have stored one without any
        key = entry.namespace, entry.name
        if not metadata.get("finalizers"):
            return Remove(key, entry.revision)
        if metadata.get("deletionTimestamp"):
            return None
        mark_as_deleting(document, self._clock())
        guard = self._emptied.guard()
        raw = encode(document) + (b"\n" if entry.raw.endswith(b"\n") else b"")
        return Put(key, entry.revision, raw, (guard,) if guard is not None else ())

    def _changed(self, change: Change) -> None:
        entry = change.entry
        if self._namespace is not None and entry.namespace != self._namespace:
            return
        key = (entry.namespace, entry.name)
        if change.kind == "DELETED":
            self._todo.pop(key, None)
            if self.remaining == 0:
                self._emptied.wake()
            else:
                self._emptied.moved()
            return
        metadata = metadata_of(entry)
        if not metadata.get("finalizers") or not metadata.get("deletionTimestamp"):
            self._todo[key] = None
            self._emptied.wake()
        else:
            self._emptied.moved()
