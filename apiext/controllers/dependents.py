"""The graph of owners and dependents for the garbage collector.

Each change of an object updates the graph. The graph contains objects with owners, objects in foreground or orphaning
deletion, and deleted owners that have dependents.
"""

import re
from collections.abc import Callable, Container, Iterator

import orjson
from msgspec import Struct

from apiext.controllers.references import Reference, metadata_of, references_of
from apiext.meta.names import GroupResource
from apiext.storage.collection import Collection
from apiext.storage.history import Change
from apiext.storage.store import Entry
from apiext.verbs.metadata import FOREGROUND, ORPHAN

_WAITING = tuple(f'"{name}"'.encode() for name in (FOREGROUND, ORPHAN))
_UID = re.compile(rb'"uid"\s*:\s*"([^"\\]+)"')


def key_of(resource: GroupResource, namespace: str, name: str) -> str:
    """Return the key of an object: ``group/resource/namespace/name``, without the uid."""
    return f"{resource.group}/{resource.resource}/{namespace}/{name}"


def split(key: str) -> tuple[GroupResource, str, str]:
    """Return the resource, the namespace ("" for cluster scope) and the name of a key."""
    group, resource, namespace, name = key.split("/")
    return GroupResource(group, resource), namespace, name


class _Deleting(Struct):
    """An object that is being deleted and has a finalizer of the garbage collector.

    ``holders`` is the number of dependents that block its deletion.
    """

    key: str
    holders: int


class Dependents:
    """The graph of owners and dependents in all followed collections.

    ``wake(key)`` queues an object that the collector may have to change. Causes are: its owners have changed, an owner
    was deleted, the object itself is being deleted, or no dependent blocks its deletion any more.
    """

    def __init__(self, wake: Callable[[str], None]) -> None:
        self._wake = wake
        self._followed: dict[GroupResource, tuple[Collection, Callable[[], None]]] = {}
        self._owners: dict[GroupResource, dict[str, tuple[Reference, ...]]] = {}
        # uid of the owner → key of the dependent → True if the dependent blocks the deletion of the owner
        self._by_owner: dict[str, dict[str, bool]] = {}
        self._deleting: dict[str, _Deleting] = {}  # uid → object
        # uid of a deleted owner to which dependents refer → (group, kind, namespace, name)
        self._deleted_owners: dict[str, tuple[str, str, str, str]] = {}

    # -- lookups

    def of(self, uid: str) -> list[str]:
        """Return the keys of the dependents of an owner."""
        return list(self._by_owner.get(uid, ()))

    def was_deleted(self, reference: Reference, namespace: str) -> bool:
        """Report whether this server has received the deletion of the owner.

        The owner's kind need not be served now. The deleted owner must have the group, kind, name and uid of the
        reference, and this namespace or none. Only owners that had dependents when they were deleted are recorded.
        """
        known, group = self._deleted_owners.get(reference.uid), reference.api_version.rpartition("/")[0]
        return known in [(group, reference.kind, place, reference.name) for place in ("", namespace)]

    def holders(self, uid: str, owner: str) -> Iterator[str]:
        """Yield the keys of the dependents that block the deletion of an owner.

        The owner has the uid ``uid`` and the key ``owner``.
        """
        for key, blocking in self._by_owner.get(uid, {}).items():
            if blocking and _may_block(key, owner):
                yield key

    def with_owners_of(self, kinds: Container[tuple[str, str]]) -> list[str]:
        """Return the keys of the dependents that have an owner of these kinds (apiVersion, kind)."""
        return [
            key
            for owners in self._owners.values()
            for key, references in owners.items()
            if any((one.api_version, one.kind) in kinds for one in references)
        ]

    def everything(self) -> list[str]:
        """Return the keys of all objects to reconcile.

        These are dependents, and objects in foreground or orphaning deletion.
        """
        return [
            *(key for owners in self._owners.values() for key in owners),
            *(one.key for one in self._deleting.values()),
        ]

    def collections(self) -> list[Collection]:
        """Return the followed collections."""
        return [collection for collection, _ in self._followed.values()]

    def __len__(self) -> int:
        return sum(map(len, self._owners.values()))

    # -- followed resources

    def follow(self, collection: Collection) -> None:
        """Subscribe to a collection, in place of an earlier collection of the same resource."""
        resource = collection.resource
        known = self._followed.get(resource)
        if known is not None and known[0] is collection:
            return
        self.unfollow(resource)
        owners = self._owners.setdefault(resource, {})
        end = collection.follow(lambda change: self._changed(resource, owners, change))
        self._followed[resource] = (collection, end)

    def unfollow(self, resource: GroupResource) -> None:
        """End the subscription to a resource, and drop its dependents."""
        known = self._followed.pop(resource, None)
        if known is not None:
            known[1]()
        owners = self._owners.pop(resource, {})
        for key in list(owners):
            self._set(owners, key, ())
        for uid in [uid for uid, one in self._deleting.items() if split(one.key)[0] == resource]:
            del self._deleting[uid]

    def close(self) -> None:
        """End all subscriptions."""
        for resource in list(self._followed):
            self.unfollow(resource)

    def _changed(self, resource: GroupResource, owners: dict[str, tuple[Reference, ...]], change: Change) -> None:
        if change.kind != "DELETED":
            self._record(resource, owners, change.entry)
            return
        entry = change.entry
        key = key_of(resource, entry.namespace, entry.name)
        self._set(owners, key, ())
        if self._by_owner or self._deleting:
            self._wake_dependents_of(entry)

    def _record(self, resource: GroupResource, owners: dict[str, tuple[Reference, ...]], entry: Entry) -> None:
        raw = entry.raw
        # find() is faster than ``in``, which for bytes first tries an integer and raises an exception internally
        owned = raw.find(b'"ownerReferences"') >= 0
        ending = raw.find(b'"deletionTimestamp"') >= 0 and any(raw.find(name) >= 0 for name in _WAITING)
        if not owned and not ending and not owners:
            return
        key = key_of(resource, entry.namespace, entry.name)
        metadata = metadata_of(entry) if owned or ending else {}
        if self._set(owners, key, references_of(metadata)) and key in owners:
            self._wake(key)
        if ending and metadata.get("deletionTimestamp") and isinstance(metadata.get("uid"), str):
            uid = metadata["uid"]
            self._deleting[uid] = _Deleting(key, sum(1 for _ in self.holders(uid, key)))
            self._wake(key)

    def _set(self, owners: dict[str, tuple[Reference, ...]], key: str, wanted: tuple[Reference, ...]) -> bool:
        """Record the owners of an object. Return whether they have changed."""
        before = owners.get(key, ())
        if before == wanted:
            return False
        for one in before:
            dependents = self._by_owner.get(one.uid, {})
            if dependents.pop(key, False):
                self._count_holder(one.uid, key, -1)
            if not dependents:
                self._by_owner.pop(one.uid, None)
                self._deleted_owners.pop(one.uid, None)
        for one in wanted:
            dependents = self._by_owner.setdefault(one.uid, {})
            if one.blocking and not dependents.get(key):
                self._count_holder(one.uid, key, 1)
            dependents[key] = dependents.get(key, False) or one.blocking
        if wanted:
            owners[key] = wanted
        else:
            owners.pop(key, None)
        return True

    def _count_holder(self, uid: str, key: str, more: int) -> None:
        """Add ``more`` to an owner's count of blocking dependents, if this dependent may block it.

        ``key`` is the key of the dependent. At zero, wake the owner.
        """
        owner = self._deleting.get(uid)
        if owner is not None and _may_block(key, owner.key):
            owner.holders += more
            if owner.holders <= 0:
                self._wake(owner.key)

    def _wake_dependents_of(self, entry: Entry) -> None:
        """Wake the dependents of a deleted object.

        Parse the object only if its bytes contain a recorded uid.
        """
        named = (found.decode("utf-8", "replace") for found in _UID.findall(entry.raw))
        if any(uid in self._by_owner or uid in self._deleting for uid in named):
            uid = str(metadata_of(entry).get("uid", ""))
            self._deleting.pop(uid, None)
            if uid in self._by_owner:
                document = orjson.loads(entry.raw)
                group = str(document.get("apiVersion")).rpartition("/")[0]
                self._deleted_owners[uid] = (group, str(document.get("kind")), entry.namespace, entry.name)
            for dependent in self.of(uid):
                self._wake(dependent)


def _may_block(key: str, owner: str) -> bool:
    """Report whether a dependent may block an owner.

    An object cannot block itself. If the owner has a namespace, the dependent must have the same namespace.
    """
    namespace = split(owner)[1]
    return key != owner and namespace in ("", split(key)[1])
