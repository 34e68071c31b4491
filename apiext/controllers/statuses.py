"""Writes of controllers to stored objects, with optimistic concurrency.

These writes do not change the generation of an object.
"""

from apiext.catalog.served import LiveCatalog
from apiext.crd.conditions import with_condition, with_status
from apiext.documents.document import Document, View
from apiext.meta.names import GroupResource
from apiext.storage.cached_store import CachedStore
from apiext.storage.collection import Collection
from apiext.storage.store import Entry, RevisionChanged
from apiext.verbs.amendments import Amendment, amend
from apiext.verbs.commit import Remove, attempt


def set_condition(document: View, wanted: View, now: str) -> Document:
    """Return the object with a condition.

    If the status of the condition changes, its transition time is ``now`` (CND-010).
    """
    conditions = (document.get("status") or {}).get("conditions")
    return with_status(document, conditions=with_condition(conditions, wanted, now))


class Statuses:
    """Writes status and finalizers of objects of one built-in resource, and deletes the objects.

    A conflict is not an error, since the conflicting change queues the object's key again (CND-011). ``manager`` is the
    field manager of the writes.
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
        """Return the object, decoded in the version that this instance writes."""
        resource = self._resource
        found = self._live.current.resource(resource.group, resource.resource)
        assert found is not None
        served = found.all_versions[self._version]
        return served.codec.decode(entry.raw, entry.revision)

    async def amend(self, entry: Entry, amendment: Amendment) -> Entry | None:
        """Store the amended object if ``entry`` is its current state; raise StoreErrors.

        Return the stored entry, which is ``entry`` if its bytes stay the same. Return None after a conflict, and if the
        amendment returns None.
        """
        resource = self._resource
        return await amend(self._store, self._live, resource, entry, amendment, self._manager, self._version)

    async def remove(self, entry: Entry) -> bool:
        """Delete the object if ``entry`` is its current state.

        Return False after a conflict; raise StoreErrors.
        """
        decision = Remove((entry.namespace, entry.name), entry.revision)
        try:
            await attempt(self._store, self._collection, decision)
        except RevisionChanged:
            return False
        return True

    @property
    def _resource(self) -> GroupResource:
        return self._collection.resource
