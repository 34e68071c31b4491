"""The server's own writes to stored objects: one attempt under an optimistic lock, generation kept."""

import asyncio
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from apiext import limits as server_limits
from apiext.catalog.served import LiveCatalog, ServedVersion
from apiext.crd.conditions import with_condition, with_status
from apiext.documents.document import Document, View
from apiext.managedfields.manager import Writer
from apiext.meta import time
from apiext.meta.names import GroupResource
from apiext.storage.cached_store import CachedStore
from apiext.storage.collection import Collection
from apiext.storage.store import Entry, RevisionChanged
from apiext.verbs import ownership
from apiext.verbs.commit import Put, Remove, attempt

P = ParamSpec("P")
T = TypeVar("T")
Amendment = Callable[[Document], Document | None]
"""The object (yours to change) → the object to store, or None when nothing is to be done."""


def say(document: View, told: View, now: str) -> Document:
    """Return the object with a condition set; its transition time is ``now`` if its status is new (CND-010)."""
    conditions = (document.get("status") or {}).get("conditions")
    return with_status(document, conditions=with_condition(conditions, told, now))


async def _run(entry: Entry, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call ``work`` with an object, in a thread if the object is large, and return its result."""
    if len(entry.raw) < server_limits.WORK_INLINE:
        return work(*args, **kwargs)
    return await asyncio.to_thread(work, *args, **kwargs)


def _recorded(who: Writer, served: ServedVersion, entry: Entry, document: Document) -> bytes:
    """Return what to store of a document: with its owners, without its revision."""
    ownership.record(who, served.codec.decode(entry.raw, entry.revision), document)
    document["metadata"].pop("resourceVersion", None)
    return served.codec.encode(document)


class Statuses:
    """Writes conditions and finalizers of one built-in resource.

    A conflict is no error: the other change queues the controllers again (CND-011). ``manager`` owns the written
    fields.
    """

    def __init__(
        self, store: CachedStore, live: LiveCatalog, collection: Collection, version: str, manager: str
    ) -> None:
        self._store = store
        self._live = live
        self._collection = collection
        self._version = version
        self._manager = manager

    def decode(self, entry: Entry) -> Document:
        """Return the object in the version that controllers work in."""
        resource = self._resource
        found = self._live.current.resource(resource.group, resource.resource)
        assert found is not None
        served = found.all_versions[self._version]
        return served.codec.decode(entry.raw, entry.revision)

    async def amend(self, entry: Entry, amendment: Amendment) -> Entry | None:
        """Store the amended form of exactly this state; return None without an amendment or after a conflict.

        Raises store errors.
        """
        resource = self._resource
        found = self._live.current.resource(resource.group, resource.resource)
        assert found is not None
        served = found.all_versions[self._version]
        document = amendment(await _run(entry, served.codec.decode, entry.raw, entry.revision))
        if document is None:
            return None
        who = ownership.writer(found, served, "status", self._manager, time.now())
        raw = await _run(entry, _recorded, who, served, entry, document)
        if raw == entry.raw:
            return entry
        return await self._attempt(Put((entry.namespace, entry.name), entry.revision, raw))

    async def remove(self, entry: Entry) -> bool:
        """Delete this very state; False after a conflict. Raises store errors."""
        return await self._attempt(Remove((entry.namespace, entry.name), entry.revision)) is not None

    async def _attempt(self, decision: Put | Remove) -> Entry | None:
        """Store a decision once; None after a conflict."""
        try:
            return await attempt(self._store, self._collection, decision)
        except RevisionChanged:
            return None

    @property
    def _resource(self) -> GroupResource:
        return self._collection.resource
