"""Delete all objects of one resource: at once, or by a deletionTimestamp if they have finalizers."""

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
    """A namespace or definition that is being emptied: callbacks of its controller.

    ``due()`` reports whether it is still the same one: another server may have finished its deletion, and objects of a
    new one may have the same names. Puts of objects compare ``guard()``. ``wake()`` is called when another run would
    make progress: there is a new object to delete, or none is left. ``report()`` is called when only the report of the
    remaining objects changes.
    """

    due: Callable[[], bool]
    guard: Callable[[], Guard | None]
    wake: Callable[[], None]
    report: Callable[[], None] = lambda: None


class Sweep:
    """Empties a collection, or one namespace of it, and follows its changes meanwhile.

    Objects are neither converted nor validated, so that no webhook and no schema can block a deletion.
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
        # queued keys in order: a plain dict is slow at removing its first key
        self._queue: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._listed = False
        self._unsubscribe = collection.feed.subscribe(self._changed)

    def close(self) -> None:
        """Stop following changes."""
        self._unsubscribe()

    @property
    def remaining(self) -> int:
        """Return the number of objects; raise NotReady while the collection is loaded again."""
        if not (self.collection.state.ready or self.collection.dropped):
            raise NotReady(f"{self.collection.resource} is not in the cache")
        return self.collection.state.count(self._namespace)

    def unreadable(self) -> Malformed | None:
        """Return the error of an unreadable object, which the sweep cannot delete; None if there is none (RV-020)."""
        try:
            self.collection.state.page(self._namespace, "", 1)  # checks all objects, but lists only one
        except Malformed as error:
            return error
        return None

    async def finalizers(self) -> Counter[str]:
        """Return the number of remaining objects for each finalizer; yield to the event loop."""
        held: Counter[str] = Counter()
        loop_budget = LoopBudget()
        for entry in self.collection.state.readable(self._namespace):
            await loop_budget.pause()
            if b'"finalizers"' in entry.raw:
                held.update(metadata_of(entry).get("finalizers") or ())
        return held

    async def run(self) -> list[StoreError]:
        """Delete or mark all queued objects; return the errors. The next run retries them."""
        errors: list[StoreError] = []
        if not self._listed:
            self._listed, loop_budget = True, LoopBudget()
            for entry in self.collection.state.readable(self._namespace):
                self._queue[entry.namespace, entry.name] = None
                await loop_budget.pause()
        async with asyncio.TaskGroup() as group:
            for _ in range(min(limits.DELETES_IN_FLIGHT, len(self._queue))):
                group.create_task(self._drain(errors))
        return errors

    async def _drain(self, errors: list[StoreError]) -> None:
        while self._queue and len(errors) < limits.DELETES_IN_FLIGHT:
            key, _ = self._queue.popitem(last=False)
            try:
                entry = self.collection.state.get(*key)
                while entry is not None and self._emptied.due():
                    entry = await self._remove(entry)
            except StoreError as error:
                self._queue[key] = None
                errors.append(error)
            except BaseException:  # also a cancellation: the object stays queued
                self._queue[key] = None
                raise

    async def _remove(self, entry: Entry) -> Entry | None:
        """Delete or mark one object; return its newer state after a conflict, else None."""
        decision = self._decide(entry)
        if decision is None:
            return None
        try:
            await attempt(self._store, self.collection, decision)
        except RevisionChanged as conflict:
            if conflict.current is not None:
                await self._store.at_least(conflict.current.revision)  # then ``due`` is up to date, too
            return conflict.current
        return None

    def _decide(self, entry: Entry) -> Put | Remove | None:
        """Return the write for an object; None if it is marked already."""
        document = orjson.loads(entry.raw)
        metadata = document.get("metadata")
        metadata = metadata if isinstance(metadata, dict) else {}  # another program may have stored no metadata
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
            self._queue.pop(key, None)
            if self.remaining == 0:
                self._emptied.wake()
            else:
                self._emptied.report()
            return
        metadata = metadata_of(entry)
        if not metadata.get("finalizers") or not metadata.get("deletionTimestamp"):
            self._queue[key] = None
            self._emptied.wake()
        else:
            self._emptied.report()
