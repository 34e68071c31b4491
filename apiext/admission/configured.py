"""Resources of configured webhooks and policies, and their compiled objects (ADM-002)."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from apiext import limits as server_limits
from apiext.documents.document import View
from apiext.meta.names import GroupResource
from apiext.storage.collection import Collection
from apiext.storage.history import Change
from apiext.storage.store import Entry

GROUP = "admissionregistration.k8s.io"
MUTATING = GroupResource(GROUP, "mutatingwebhookconfigurations")
VALIDATING = GroupResource(GROUP, "validatingwebhookconfigurations")
POLICIES = GroupResource(GROUP, "validatingadmissionpolicies")
BINDINGS = GroupResource(GROUP, "validatingadmissionpolicybindings")
MUTATING_POLICIES = GroupResource(GROUP, "mutatingadmissionpolicies")
MUTATING_BINDINGS = GroupResource(GROUP, "mutatingadmissionpolicybindings")

T = TypeVar("T")


class Live(Generic[T]):
    """Compiled values of the objects of a collection, in the order of the objects' names.

    ``empty`` is true only if it is certain that the collection has no values.
    """

    __slots__ = (
        "_change",
        "_collection",
        "_compile",
        "_compiled_by_name",
        "_compiled_change",
        "_decode",
        "_followers",
        "_items",
        "_rebuilding",
        "empty"
    )  # fmt: skip

    def __init__(
        self,
        collection: Collection | None,
        decode: Callable[[bytes, int], View],
        compile: Callable[[View], Sequence[T]],
    ) -> None:
        self._collection = collection
        self._decode = decode
        self._compile = compile
        self._compiled_by_name: dict[str, tuple[Entry, Sequence[T]]] = {}
        self._items: tuple[T, ...] = ()
        self._change = 1 if collection is not None else 0  # the number of the last change
        self._compiled_change = 0  # the number of the change up to which all objects are compiled
        self._rebuilding = asyncio.Lock()
        self._followers: list[Callable[[], None]] = []
        self.empty = collection is None
        if collection is not None:
            collection.feed.subscribe(self._changed)

    @property
    def compiled(self) -> tuple[T, ...]:
        """The values that the last call of ``current`` returned."""
        return self._items

    def follow(self, changed: Callable[[], None]) -> None:
        """Make this object call ``changed`` whenever ``empty`` changes."""
        self._followers.append(changed)

    def _changed(self, _: Change) -> None:
        self._change += 1
        self._set_empty(False)

    def _set_empty(self, empty: bool) -> None:
        if empty is not self.empty:
            self.empty = empty
            for changed in self._followers:
                changed()

    async def configured(self) -> bool:
        """Wait until the cache is filled; report whether the collection may have values.

        This method compiles no object, so it also returns True if the values of changed objects are unknown.
        """
        collection = self._collection
        if self._change != self._compiled_change and collection is not None:
            await collection.wait_ready()
            if not collection.state.count():
                await self.current()  # this call sets ``self.empty``
        return not self.empty

    async def current(self) -> tuple[T, ...]:
        """Compile changed objects, and return the values of all objects.

        Waits until the cache is filled. Raises Malformed if an object cannot be decoded: if this method skipped the
        object, writes would skip its webhooks or policies (RV-020).
        """
        while self._change != self._compiled_change:
            async with self._rebuilding:
                if self._change != self._compiled_change and self._collection is not None:
                    await self._collection.wait_ready()
                    await self._rebuild(self._collection)
        return self._items

    async def _rebuild(self, collection: Collection) -> None:
        change = self._change
        known: dict[str, tuple[Entry, Sequence[T]]] = {}
        for entry in sorted(collection.state.entries(), key=lambda entry: entry.name):
            found = self._compiled_by_name.get(entry.name)
            # entries are compared, not revisions: after a restore, another object may have the same revision
            if found is None or found[0] is not entry:
                found = (entry, await self._compiled(entry))
            known[entry.name] = found
        self._compiled_by_name, self._compiled_change = known, change
        self._items = tuple(item for _, items in known.values() for item in items)
        self._set_empty(not self._items and self._change == change)

    async def _compiled(self, entry: Entry) -> Sequence[T]:
        """Compile an object, in a thread if it is large or has CEL expressions."""

        def work() -> Sequence[T]:
            return self._compile(self._decode(entry.raw, entry.revision))

        slow = len(entry.raw) > server_limits.WORK_INLINE or b"xpression" in entry.raw
        return await asyncio.to_thread(work) if slow else work()
