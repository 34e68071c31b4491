"""The garbage collector.

After the deletion of an owner, it deletes or orphans the dependents (WRI-018). An owner counts as absent only in three
cases: its kind is not served, and this server has received its deletion; its kind is served, and no object can have its
name; or its kind is served, and a linearizable read finds no object with its name and uid. The collector deletes like a
client, with admission, and with the checked uid and resourceVersion as preconditions. To edit metadata, it edits the
stored bytes, so that no schema and no conversion can block the edit.
"""

import asyncio
from collections.abc import Iterator, Sequence
from enum import Enum, auto
from typing import Any

import orjson
from msgspec import Struct

from apiext.auth.user import service_account
from apiext.catalog.served import Catalog, ServedResource, ServedVersion
from apiext.config import GARBAGE_COLLECTOR
from apiext.controllers import limits
from apiext.controllers import loop as loop_module
from apiext.controllers.dependents import Dependents, split
from apiext.controllers.events import Events
from apiext.controllers.loop import Loop, retried_conflicts
from apiext.controllers.references import (
    Edit,
    Reference,
    metadata_of,
    references_of,
    unblocked,
    without_finalizer,
    without_owners,
)
from apiext.controllers.serving import Serving
from apiext.documents.encoding import encode
from apiext.meta.names import GroupResource
from apiext.meta.options import DeleteOptions
from apiext.scheduling.loop_budget import LoopBudget
from apiext.storage.collection import Collection
from apiext.storage.keys import relative
from apiext.storage.store import Entry, RevisionChanged, StoreError, Unavailable
from apiext.storage.values import custom_object
from apiext.text.quotes import go_quote
from apiext.verbs.call import Call, Verbs
from apiext.verbs.commit import Put, Remove, attempt
from apiext.verbs.delete import delete
from apiext.verbs.guarded import guards_of
from apiext.verbs.metadata import FOREGROUND, ORPHAN

NAME = GARBAGE_COLLECTOR
USER = service_account("kube-system", "generic-garbage-collector")


class Owner(Enum):
    """The state of an owner for one of its dependents."""

    PRESENT = auto()  # the owner exists, and does not wait for the deletion of its dependents
    UNKNOWN = auto()  # the kind is not served, or the owner has a namespace and the dependent has none
    WAITING = auto()  # the owner is being deleted in the foreground, so it waits for its dependents
    ABSENT = auto()


class _Object(Struct, frozen=True):
    """An object in the state that the collector checks."""

    key: str
    served: ServedResource
    collection: Collection
    entry: Entry
    metadata: dict[str, Any]

    @property
    def uid(self) -> str:
        return str(self.metadata.get("uid", ""))

    @property
    def finalizers(self) -> list[str]:
        return list(self.metadata.get("finalizers") or ())


class Garbage:
    """The garbage collector.

    It deletes dependents, and completes foreground and orphaning deletions of owners.
    """

    def __init__(self, verbs: Verbs, serving: Serving) -> None:
        self.loop = Loop("garbage", self.reconcile, width=8)
        self.dependents = Dependents(self.loop.add)
        self._verbs = verbs
        self._serving = serving
        self._events = Events(verbs, NAME, USER)
        self._awaited: set[tuple[str, str]] = set()  # (apiVersion, kind) of owners whose kind is not served

    def start(self, group: asyncio.TaskGroup) -> None:
        """Follow all served resources, including resources that are served later."""
        self._serving.listen(self._served)
        for served in self._verbs.catalog.current.resources.values():
            if served.stores_objects:
                self._follow(served.group_resource)
        self._events.start(group)
        self.loop.start(group, self.dependents.everything)

    async def stop(self) -> None:
        """Cancel running work; the next start completes it."""
        await self.loop.stop()
        await self._events.stop()
        self.dependents.close()

    def _served(self, definition: str) -> None:
        """Follow the resource of a definition whose served versions may have changed.

        Queue the dependents of owners whose kind is served from now on.
        """
        resource, _, group = definition.partition(".")
        self._follow(GroupResource(group, resource))
        if self._awaited:
            kinds = _kinds_of(self._verbs.catalog.current.resource(group, resource))
            served_now = [kind for kind in kinds if kind in self._awaited]
            self._awaited.difference_update(served_now)
            for key in self.dependents.with_owners_of(served_now) if served_now else ():
                self.loop.add(key)

    def _follow(self, resource: GroupResource) -> None:
        served = self._verbs.catalog.current.resource(resource.group, resource.resource)
        if served is None:
            self.dependents.unfollow(resource)
        else:
            self.dependents.follow(self._verbs.store.add(resource, served.namespaced, custom_object))

    # -- one object

    async def reconcile(self, key: str) -> None:
        """Process one object. After an exception, the loop retries."""
        await self._serving.wait_synced()  # before this, the catalog may lack a served kind
        found = self._object(key)
        if found is None:
            return
        if not found.metadata.get("deletionTimestamp"):
            await self._collect(found)
        elif ORPHAN in found.finalizers:
            await self._orphan(found)
        elif FOREGROUND in found.finalizers:
            await self._foreground(found)

    def _object(self, key: str) -> _Object | None:
        resource, namespace, name = split(key)
        served = self._verbs.catalog.current.resource(resource.group, resource.resource)
        collection = self._verbs.store.collection(resource)
        if served is None or collection is None:
            return None
        entry = collection.state.by_key(f"{namespace}/{name}" if namespace else name)
        return _Object(key, served, collection, entry, metadata_of(entry)) if entry is not None else None

    async def _collect(self, found: _Object) -> None:
        """Delete an object with owners if all of them are ABSENT or WAITING.

        If only some of them are, remove the references to these owners.
        """
        references = references_of(found.metadata)
        owners = await self._owners(references, found.entry.namespace)
        loop_budget = LoopBudget()
        for one in references:
            await loop_budget.pause()
            if owners[one.uid] in (Owner.ABSENT, Owner.UNKNOWN) and self._is_elsewhere(one, found):
                self._record_event(found, one)
        states = set(owners.values())
        if states <= {Owner.PRESENT, Owner.UNKNOWN}:
            return
        if states & {Owner.PRESENT, Owner.UNKNOWN}:
            gone = {uid for uid, state in owners.items() if state in (Owner.ABSENT, Owner.WAITING)}
            await self._edit(found, without_owners(gone))
            return
        policy = next((name for name, mark in _POLICIES if mark in found.finalizers), "Background")
        if Owner.WAITING in states and (below := self.dependents.of(found.uid)):
            policy = "Foreground"
            if any(reference.blocking for reference in references) and any(map(self._is_waiting, below)):
                # breaks a cycle of objects that wait for each other; the edit queues this object again
                await self._edit(found, unblocked)
                return
        await self._delete(found, policy)

    async def _owners(self, references: Sequence[Reference], namespace: str) -> dict[str, Owner]:
        """Return uid → state of the owners of a dependent in this namespace ("": cluster scope).

        An owner that is PRESENT in the cache is not read again. ``_read_owners`` reads the other owners of served
        kinds, all owners of a kind together.
        """
        states: dict[Reference, Owner] = {}
        doubtful: dict[GroupResource, tuple[ServedResource, list[Reference]]] = {}
        loop_budget = LoopBudget()
        for one in references:
            await loop_budget.pause()
            served = self._kind(one)
            if served is None:
                if len(self._awaited) < limits.AWAITED_KINDS:
                    self._awaited.add((one.api_version, one.kind))
                states[one] = self._unserved_state(one, namespace)
            elif served.namespaced and not namespace:
                states[one] = Owner.UNKNOWN
            else:
                collection = self._verbs.store.add(served.stored_resource, served.namespaced)
                cached = collection.state.by_key(relative(namespace if served.namespaced else "", one.name))
                if cached is not None and _state(cached, one.uid) is Owner.PRESENT:
                    states[one] = Owner.PRESENT
                elif not one.name or "/" in one.name:
                    states[one] = Owner.ABSENT  # no object can have this name
                else:
                    doubtful.setdefault(served.group_resource, (served, []))[1].append(one)
        for served, ones in doubtful.values():
            states |= await self._read_owners(served, ones, namespace)
        return {one.uid: states[one] for one in references}

    async def _read_owners(
        self, served: ServedResource, references: list[Reference], namespace: str
    ) -> dict[Reference, Owner]:
        """Return the states of owners of one kind, by linearizable reads.

        Up to limits.OWNERS_READ owners are read from etcd, so that an error in the cache cannot delete a dependent. If
        there are more, all are read from the cache, after it has reached the head revision of etcd.
        """
        store, within = self._verbs.store, namespace if served.namespaced else ""
        collection = store.add(served.stored_resource, served.namespaced)
        many = len(references) > limits.OWNERS_READ
        if many:
            await store.fresh(collection)
        states: dict[Reference, Owner] = {}
        loop_budget = LoopBudget()
        for one in references:
            await loop_budget.pause()
            entry = (
                collection.state.get(within, one.name) if many else await store.current(collection, within, one.name)
            )
            states[one] = _state(entry, one.uid) if entry is not None else Owner.ABSENT
        missing = [one for one in references if states[one] is not Owner.PRESENT]
        if missing:
            # During the reads, the definition may have been deleted, or created again with another scope.
            await self._serving.refresh(served.group, served.resource)
        looked_up = served.stored_resource, served.definition.uid, served.namespaced
        for one in missing:
            await loop_budget.pause()
            now = self._kind(one)
            if now is None or (now.stored_resource, now.definition.uid, now.namespaced) != looked_up:
                states[one] = self._unserved_state(one, namespace)
        return states

    def _is_elsewhere(self, reference: Reference, found: _Object) -> bool:
        """Report whether an owner exists in another namespace than its dependent.

        Upstream finds the owner in its graph by uid. This server looks up the name in each namespace, so that the time
        does not depend on the number of objects. It does not look up owners whose deletion it has received.
        """
        served = self._kind(reference)
        namespaces = self._verbs.store.collection(_NAMESPACES)
        if served is None or not served.namespaced or namespaces is None:
            return False
        collection = self._verbs.store.collection(served.stored_resource)
        if collection is None or self.dependents.was_deleted(reference, found.entry.namespace):
            return False
        places = (entry.name for entry in namespaces.state.readable() if entry.name != found.entry.namespace)
        entries = (collection.state.by_key(f"{position}/{reference.name}") for position in places)
        return any(entry is not None and metadata_of(entry).get("uid") == reference.uid for entry in entries)

    def _record_event(self, found: _Object, reference: Reference) -> None:
        """Create the Event about an owner in another namespace, as upstream does (graph_builder.go)."""
        version, namespace = _version_of(found), found.entry.namespace
        about = {
            "apiVersion": version.names.api_version,
            "kind": version.names.kind,
            "namespace": namespace,
            "name": found.entry.name,
            "uid": found.uid,
        }
        owner = (
            f"[{reference.api_version}/{reference.kind}, namespace: {namespace}, name: {reference.name}, "
            f"uid: {reference.uid}]"
        )
        message = f"ownerRef {owner} does not exist in namespace {go_quote(namespace)}"
        self._events.warn(about, "OwnerRefInvalidNamespace", message)

    def _unserved_state(self, reference: Reference, namespace: str) -> Owner:
        """Return the state of an owner whose kind is not served.

        The state is ABSENT if this server received the deletion of the owner.
        """
        return Owner.ABSENT if self.dependents.was_deleted(reference, namespace) else Owner.UNKNOWN

    def _kind(self, reference: Reference) -> ServedResource | None:
        catalog = self._verbs.catalog.current
        kinds: dict[tuple[str, str], tuple[str, str]] = catalog.compute_once("owner kinds", _kinds)
        position = kinds.get((reference.api_version, reference.kind))
        return catalog.resource(*position) if position is not None else None

    def _is_waiting(self, key: str) -> bool:
        found = self._object(key)
        return found is not None and _is_waiting(found.metadata)

    # -- owners that wait for their deletion

    async def _foreground(self, owner: _Object) -> None:
        """If a dependent blocks the owner, queue the dependents; else remove the finalizer."""
        await self._wait_complete()
        if next(self.dependents.holders(owner.uid, owner.key), None) is None:
            await self._edit(owner, without_finalizer(FOREGROUND))
            return
        loop_budget = LoopBudget()
        for key in self.dependents.of(owner.uid):
            await loop_budget.pause()
            found = self._object(key)
            if found is not None and not found.metadata.get("deletionTimestamp"):
                self.loop.add(key)

    async def _orphan(self, owner: _Object) -> None:
        """Remove the references to the owner from all dependents, then the owner's finalizer."""
        await self._wait_complete()
        todo = iter(self.dependents.of(owner.uid))
        edit = without_owners({owner.uid})
        errors: list[StoreError] = []
        async with asyncio.TaskGroup() as group:
            for _ in range(limits.DELETES_IN_FLIGHT):
                group.create_task(self._release_each(todo, edit, errors))
        if errors:
            raise errors[0]
        await self._verbs.store.fresh()
        # If dependents remain, an edit met a conflict, a dependent is unreadable, or a client has created a new one.
        # Perhaps no later event queues the owner again, so the loop must retry this run.
        if self.dependents.of(owner.uid):
            raise Unavailable(f"dependents of {owner.key} still refer to it")
        await self._edit(owner, without_finalizer(ORPHAN))

    async def _release_each(self, todo: Iterator[str], edit: Edit, errors: list[StoreError]) -> None:
        for key in todo:
            found = self._object(key)
            try:
                if found is not None:
                    await self._edit(found, edit)
            except StoreError as error:
                errors.append(error)
                return

    async def _wait_complete(self) -> None:
        """Wait until ``dependents`` has all current dependents.

        These include objects of definitions that were not served yet at the call.
        """
        await self._verbs.store.fresh()
        await self._serving.complete()
        for collection in self.dependents.collections():
            await collection.wait_ready()
        await self._verbs.store.fresh()

    # -- writing

    async def _delete(self, found: _Object, policy: str) -> None:
        version = _version_of(found)
        # The preconditions permit the deletion only in the checked state.
        options = DeleteOptions(uid=found.uid, resource_version=str(found.entry.revision), propagation_policy=policy)
        namespace, name = found.entry.namespace, found.entry.name
        call = Call("delete", version, found.served, version.endpoints[""], namespace or None, name, {}, USER, NAME)
        with retried_conflicts(404, 409):  # the object or its definition has changed, so the loop retries
            await delete(self._verbs, call, options)

    async def _edit(self, found: _Object, edit: Edit) -> None:
        """Edit the metadata of an object in the checked state.

        After a conflict, queue the object again. If the object is being deleted and has no finalizers after the edit,
        delete it.
        """
        decision = self._edited(found, edit)
        if decision is None:
            return
        try:
            await attempt(self._verbs.store, found.collection, decision)
        except RevisionChanged:
            self.loop.add_after(found.key, loop_module.RETRY_FIRST)

    def _edited(self, found: _Object, edit: Edit) -> Put | Remove | None:
        """Return the write that stores the edited metadata or deletes the object.

        Return None if the edit changes nothing.
        """
        entry = found.entry
        document = orjson.loads(entry.raw)
        metadata = document["metadata"]
        edit(metadata)
        held = metadata.get("finalizers") or (
            found.collection.resource == _NAMESPACES and (document.get("spec") or {}).get("finalizers")
        )
        key = entry.namespace, entry.name
        if metadata.get("deletionTimestamp") and not held:
            return Remove(key, entry.revision)
        raw = encode(document) + (b"\n" if entry.raw.endswith(b"\n") else b"")
        return Put(key, entry.revision, raw, guards_of(self._verbs, found.served)) if raw != entry.raw else None


_POLICIES = (("Orphan", ORPHAN), ("Foreground", FOREGROUND))
_NAMESPACES = GroupResource("", "namespaces")


def _kinds(catalog: Catalog) -> dict[tuple[str, str], tuple[str, str]]:
    """Return (apiVersion, kind) → (group, resource) for all served kinds."""
    return {kind: position for position, served in catalog.resources.items() for kind in _kinds_of(served)}


def _kinds_of(served: ServedResource | None) -> list[tuple[str, str]]:
    """Return (apiVersion, kind) of each served version of an established resource."""
    if served is None or not served.definition.established:
        return []
    return [(version.names.api_version, version.names.kind) for version in served.versions.values()]


def _state(entry: Entry, uid: str) -> Owner:
    """Return the state of an owner for a dependent that names this uid."""
    metadata = metadata_of(entry)
    if metadata.get("uid") != uid:
        return Owner.ABSENT
    return Owner.WAITING if _is_waiting(metadata) else Owner.PRESENT


def _is_waiting(metadata: dict[str, Any]) -> bool:
    return bool(metadata.get("deletionTimestamp")) and FOREGROUND in (metadata.get("finalizers") or ())


def _version_of(found: _Object) -> ServedVersion:
    """Return the version in which the object is stored; a read in it needs no conversion."""
    version = str(orjson.loads(found.entry.raw).get("apiVersion", "")).rpartition("/")[2]
    served = found.served
    known = served.all_versions.get(version) or served.versions.get(version) or served.storage
    stored = known or next(iter(served.versions.values()))
    # A deletion changes only metadata, so no conversion webhook is necessary.
    return stored.as_is() if stored.codec.converts else stored
