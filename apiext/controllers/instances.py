"""The deletion of all objects of a resource, or of those in one namespace.

Objects with finalizers get a deletionTimestamp instead.
"""

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
from apiext.storage.keys import bounds
from apiext.storage.store import Entry, Guard, Malformed, NotReady, RevisionChanged, StoreError
from apiext.verbs.commit import Put, Remove, attempt
from apiext.verbs.metadata import mark_as_deleting


class Emptied(Struct, frozen=True):
    """The callbacks of a controller that deletes all objects of a namespace or definition.

    - ``due()`` reports whether the same namespace or definition is still being deleted. Another server may have
      completed the deletion, and objects of a new namespace or definition may have the same names.
    - ``guard()`` returns a guard: a key and its revision. The write of an object fails if the key has another revision
      (see guards.py). For built-in kinds, ``guard()`` returns None.
    - ``wake()`` is called when another run can make progress: there is a new object to delete, or no object is left.
    - ``report()`` is called after any other change of the objects, since the number of remaining objects or finalizers
      may have changed.
    """

    due: Callable[[], bool]
    guard: Callable[[], Guard | None]
    wake: Callable[[], None]
    report: Callable[[], None] = lambda: None


class Sweep:
    """Deletes all objects of a collection, or of one namespace in it, and follows its changes.

    It neither converts nor validates objects, so that no webhook and no schema can block a deletion.
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
        # queued keys in order; the removal of the first key of a plain dict is slow
        self._queue: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._listed = False
        self._unsubscribe = collection.feed.subscribe(self._changed)

    def close(self) -> None:
        """End the subscription to changes."""
        self._unsubscribe()

    @property
    def remaining(self) -> int:
        """The number of remaining objects.

        Raises NotReady while the cache of the collection is filled again.
        """
        if not (self.collection.state.ready or self.collection.dropped):
            raise NotReady(f"{self.collection.resource} is not in the cache")
        return self.collection.state.count(self._namespace)

    def unreadable(self) -> Malformed | None:
        """Return the error of an unreadable object, which a sweep cannot delete.

        Return None if all are readable. See RV-020.
        """
        try:
            self.collection.state.require_readable(*bounds(self._namespace))
        except Malformed as error:
            return error
        return None

    async def finalizers(self) -> Counter[str]:
        """Return finalizer → number of remaining objects that have it. Yield to the event loop."""
        held: Counter[str] = Counter()
        loop_budget = LoopBudget()
        for entry in self.collection.state.readable(self._namespace):
            await loop_budget.pause()
            if b'"finalizers"' in entry.raw:
                held.update(metadata_of(entry).get("finalizers") or ())
        return held

    async def run(self) -> list[StoreError]:
        """Delete all queued objects, or set their deletionTimestamp.

        The first run queues all objects. Return the errors. Objects with an error stay queued for the next run. The run
        ends early after limits.DELETES_IN_FLIGHT errors.
        """
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
            except BaseException:  # after a cancellation, too, the object must stay queued
                self._queue[key] = None
                raise

    async def _remove(self, entry: Entry) -> Entry | None:
        """Delete an object, or set its deletionTimestamp.

        Return its newer state after a conflict, else None.
        """
        decision = self._decide(entry)
        if decision is None:
            return None
        try:
            await attempt(self._store, self.collection, decision)
        except RevisionChanged as conflict:
            if conflict.current is not None:
                # after this, ``due`` knows whether the namespace or definition was deleted before the conflicting write
                await self._store.at_least(conflict.current.revision)
            return conflict.current
        return None

    def _decide(self, entry: Entry) -> Put | Remove | None:
        """Return the write for an object; None if it has finalizers and already a deletionTimestamp."""
        document = orjson.loads(entry.raw)
        metadata = document.get("metadata")
        # another program may have stored an object without metadata
        metadata = metadata if isinstance(metadata, dict) else {}
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
