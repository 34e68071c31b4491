"""Which objects have which owners, by uid: kept from changes, and only for objects that have owners at all."""

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
    """Return the text by which an object is known here, whatever its uid."""
    return f"{resource.group}/{resource.resource}/{namespace}/{name}"


def split(key: str) -> tuple[GroupResource, str, str]:
    """Return resource, namespace ("": none) and name of a key."""
    group, resource, namespace, name = key.split("/")
    return GroupResource(group, resource), namespace, name


class _Leaving(Struct):
    """An object that is deleted with a finalizer of ours, and how many dependents hold it."""

    key: str
    held: int


class Dependents:
    """The objects with owners of all followed collections.

    ``wake(key)`` is called when there may be something to do about an object: it has new owners, an owner of it went
    or waits for it, or nothing that it waits for is left.
    """

    def __init__(self, wake: Callable[[str], None]) -> None:
        self._wake = wake
        self._followed: dict[GroupResource, tuple[Collection, Callable[[], None]]] = {}
        self._owners: dict[GroupResource, dict[str, tuple[Reference, ...]]] = {}
        self._of: dict[str, dict[str, bool]] = {}  # owner's uid → key of the dependent → whether it holds the owner
        self._leaving: dict[str, _Leaving] = {}  # by uid
        self._went: dict[str, tuple[str, str, str, str]] = {}  # deleted owners by uid, as long as dependents name them

    # -- lookups

    def of(self, uid: str) -> list[str]:
        """Return the keys of an owner's dependents."""
        return list(self._of.get(uid, ()))

    def went(self, reference: Reference, namespace: str) -> bool:
        """Report whether a deletion of the owner of an object was seen, even if its kind is not served any more."""
        known, group = self._went.get(reference.uid), reference.api_version.rpartition("/")[0]
        return known in [(group, reference.kind, place, reference.name) for place in ("", namespace)]

    def holders(self, uid: str, owner: str) -> Iterator[str]:
        """Yield the keys of the dependents that hold the deletion of an owner."""
        for key, blocking in self._of.get(uid, {}).items():
            if blocking and _may_hold(key, owner):
                yield key

    def naming(self, kinds: Container[tuple[str, str]]) -> list[str]:
        """Return the keys of the dependents that have owners of these kinds (apiVersion, kind)."""
        return [
            key
            for owners in self._owners.values()
            for key, references in owners.items()
            if any((one.api_version, one.kind) in kinds for one in references)
        ]

    def everything(self) -> list[str]:
        """Return the keys of all objects that may need something: dependents, and owners on their way."""
        return [
            *(key for owners in self._owners.values() for key in owners),
            *(one.key for one in self._leaving.values()),
        ]

    def collections(self) -> list[Collection]:
        """Return the followed resources."""
        return [collection for collection, _ in self._followed.values()]

    def __len__(self) -> int:
        return sum(map(len, self._owners.values()))

    # -- followed resources

    def follow(self, collection: Collection) -> None:
        """Keep up with a collection from now on, in place of an earlier one of that resource."""
        resource = collection.resource
        known = self._followed.get(resource)
        if known is not None and known[0] is collection:
            return
        self.forget(resource)
        owners = self._owners.setdefault(resource, {})
        end = collection.follow(lambda change: self._changed(resource, owners, change))
        self._followed[resource] = (collection, end)

    def forget(self, resource: GroupResource) -> None:
        """Stop following a resource, and drop its dependents."""
        known = self._followed.pop(resource, None)
        if known is not None:
            known[1]()
        owners = self._owners.pop(resource, {})
        for key in list(owners):
            self._set(owners, key, ())
        for uid in [uid for uid, one in self._leaving.items() if split(one.key)[0] == resource]:
            del self._leaving[uid]

    def close(self) -> None:
        """Stop following everything."""
        for resource in list(self._followed):
            self.forget(resource)

    def _changed(self, resource: GroupResource, owners: dict[str, tuple[Reference, ...]], change: Change) -> None:
        if change.kind != "DELETED":
            self._stored(resource, owners, change.entry)
            return
        entry = change.entry
        key = key_of(resource, entry.namespace, entry.name)
        self._set(owners, key, ())
        if self._of or self._leaving:
            self._gone(entry)

    def _stored(self, resource: GroupResource, owners: dict[str, tuple[Reference, ...]], entry: Entry) -> None:
        raw = entry.raw
        # by find: ``in`` first tries bytes as a number, which costs an exception
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
            self._leaving[uid] = _Leaving(key, sum(1 for _ in self.holders(uid, key)))
            self._wake(key)

    def _set(self, owners: dict[str, tuple[Reference, ...]], key: str, wanted: tuple[Reference, ...]) -> bool:
        """Remember an object's owners; return whether they changed."""
        before = owners.get(key, ())
        if before == wanted:
            return False
        for one in before:
            dependents = self._of.get(one.uid, {})
            if dependents.pop(key, False):
                self._holds(one.uid, key, -1)
            if not dependents:
                self._of.pop(one.uid, None)
                self._went.pop(one.uid, None)
        for one in wanted:
            dependents = self._of.setdefault(one.uid, {})
            if one.blocking and not dependents.get(key):
                self._holds(one.uid, key, 1)
            dependents[key] = dependents.get(key, False) or one.blocking
        if wanted:
            owners[key] = wanted
        else:
            owners.pop(key, None)
        return True

    def _holds(self, uid: str, key: str, more: int) -> None:
        """Count what holds an owner on its way; wake it when nothing does any more."""
        owner = self._leaving.get(uid)
        if owner is not None and _may_hold(key, owner.key):
            owner.held += more
            if owner.held <= 0:
                self._wake(owner.key)

    def _gone(self, entry: Entry) -> None:
        """Wake the dependents of what went; its bytes are parsed only if some uid in them is an owner's."""
        named = (found.decode("utf-8", "replace") for found in _UID.findall(entry.raw))
        if any(uid in self._of or uid in self._leaving for uid in named):
            uid = str(metadata_of(entry).get("uid", ""))
            self._leaving.pop(uid, None)
            if uid in self._of:
                document = orjson.loads(entry.raw)
                group = str(document.get("apiVersion")).rpartition("/")[0]
                self._went[uid] = (group, str(document.get("kind")), entry.namespace, entry.name)
            for dependent in self.of(uid):
                self._wake(dependent)


def _may_hold(key: str, owner: str) -> bool:
    """Report whether a dependent is another object, in a namespace where that owner can have dependents."""
    namespace = split(owner)[1]
    return key != owner and namespace in ("", split(key)[1])
