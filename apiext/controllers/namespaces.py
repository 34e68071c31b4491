"""The controller of namespaces.

It creates the initial namespaces, and empties deleted namespaces (NSP-003, NSP-005).
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from typing import Any
from uuid import uuid4

from apiext.catalog.served import LiveCatalog, ServedResource
from apiext.controllers import limits
from apiext.controllers.instances import Emptied, Sweep
from apiext.controllers.references import metadata_of
from apiext.controllers.statuses import Statuses, set_condition
from apiext.crd.conditions import condition
from apiext.documents.document import Document
from apiext.meta.names import GroupResource
from apiext.storage.cached_store import CachedStore
from apiext.storage.collection import Collection
from apiext.storage.store import Entry, Guard, KeyExists, StoreError
from apiext.storage.values import custom_object
from apiext.verbs.commit import Put, attempt

NAMESPACES = GroupResource("", "namespaces")
ALWAYS = ("default", "kube-system", "kube-public", "kube-node-lease")
FINALIZER = "kubernetes"

_DONE: Mapping[str, tuple[str, str, str]] = {
    "NamespaceDeletionDiscoveryFailure": ("False", "ResourcesDiscovered", "All resources successfully discovered"),
    "NamespaceDeletionGroupVersionParsingFailure": (
        "False",
        "ParsedGroupVersions",
        "All legacy kube types successfully parsed",
    ),
    "NamespaceDeletionContentFailure": (
        "False",
        "ContentDeleted",
        "All content successfully deleted, may be waiting on finalization",
    ),
    "NamespaceContentRemaining": ("False", "ContentRemoved", "All content successfully removed"),
    "NamespaceFinalizersRemaining": (
        "False",
        "ContentHasNoFinalizers",
        "All content-preserving finalizers finished",
    ),
}


class _Emptying:
    """The deletion of the namespace with this uid.

    Each sweep deletes the objects of one resource.
    """

    __slots__ = ("sweeps", "uid")

    def __init__(self, uid: str) -> None:
        self.uid = uid
        self.sweeps: dict[GroupResource, Sweep] = {}


class Namespaces:
    """The controller of namespaces.

    It deletes all objects of a terminating namespace, then the namespace. ``served()`` waits until the catalog has the
    resources of all stored definitions.
    """

    def __init__(
        self,
        store: CachedStore,
        live: LiveCatalog,
        collection: Collection,
        clock: Callable[[], str],
        manager: str,
        served: Callable[[], Awaitable[None]],
    ) -> None:
        self.collection = collection
        self._store = store
        self._live = live
        self._manager = manager
        self._statuses = Statuses(store, live, collection, "v1", manager)
        self._clock = clock
        self._served = served
        self._emptying: dict[str, _Emptying] = {}
        self.wake: Callable[[str], None] = lambda _: None
        self.wake_after: Callable[[str, float], None] = lambda _, __: None

    async def create_missing(self) -> None:
        """Create those of the initial namespaces that are missing; raise StoreErrors."""
        served = self._live.current.lookup("", "v1", "namespaces")
        assert served is not None
        for name in ALWAYS:
            if self.collection.state.get("", name) is not None:
                continue
            try:
                made = namespace(name, self._clock(), self._manager)
                await attempt(self._store, self.collection, Put(("", name), 0, served.codec.encode(made)))
            except KeyExists:
                continue  # another server has created the namespace first

    def wanted(self, name: str) -> bool:
        """Report whether a namespace may be terminating, or has sweeps that must be closed."""
        if name in self._emptying:
            return True
        entry = self.collection.state.get("", name)
        return entry is not None and b'"deletionTimestamp"' in entry.raw

    def terminating(self) -> list[str]:
        """Return the names of the namespaces that may be terminating."""
        return [entry.name for entry in self.collection.state.readable() if b'"deletionTimestamp"' in entry.raw]

    def emptying(self) -> list[str]:
        """Return the names of the namespaces that this server is emptying."""
        return list(self._emptying)

    async def reconcile(self, name: str) -> None:
        """Continue the deletion of a namespace as far as possible.

        Later changes of its objects start another run. Raise a StoreError if the deletion of objects failed.
        """
        entry = self.collection.state.get("", name)
        metadata = metadata_of(entry) if entry is not None else {}
        if not metadata.get("deletionTimestamp"):
            self._close(name)
            return
        uid = str(metadata.get("uid"))
        if name in self._emptying and self._emptying[name].uid != uid:
            self._close(name)
        sweeps = self._emptying.setdefault(name, _Emptying(uid)).sweeps
        await self._store.fresh()
        await self._served()
        await self._follow(name, uid, sweeps)
        failures = {resource: errors for resource, sweep in sweeps.items() if (errors := await sweep.run())}
        await self._store.fresh()
        for resource, sweep in sweeps.items():
            if resource not in failures and (unreadable := sweep.unreadable()) is not None:
                # this error makes the loop retry, since the deletion of an unreadable object may cause no event
                failures[resource] = [unreadable]
        if not failures and not any(sweep.remaining for sweep in sweeps.values()):
            await self._release(name, uid)
            return
        wanted_conditions = await conditions(sweeps, failures)
        entry = self._ending(name, uid)
        if entry is not None:
            await self._statuses.amend(entry, lambda current: self._with_conditions(current, wanted_conditions))
        for errors in failures.values():
            raise errors[0]

    def _ending(self, name: str, uid: str) -> Entry | None:
        """Return the namespace if it has this uid and is terminating, else None."""
        entry = self.collection.state.get("", name)
        metadata = metadata_of(entry) if entry is not None else {}
        return entry if metadata.get("deletionTimestamp") and str(metadata.get("uid")) == uid else None

    async def _follow(self, name: str, uid: str, sweeps: dict[GroupResource, Sweep]) -> None:
        """Create missing sweeps for served namespaced resources.

        Close the sweeps of resources that are not served.
        """
        wanted = {
            served.group_resource: served
            for served in self._live.current.resources.values()
            if served.namespaced and served.stores_objects
        }
        for resource in [resource for resource in sweeps if resource not in wanted]:
            sweeps.pop(resource).close()
        for resource, served in wanted.items():
            now = self._live.current.resource(resource.group, resource.resource)
            if now is None or not now.namespaced:
                continue  # the resource was deleted in the meantime, and perhaps created again in cluster scope
            collection = self._store.add(resource, namespaced=True, decoder=custom_object)
            await collection.wait_ready()
            if resource in sweeps and sweeps[resource].collection is collection:
                continue
            if resource in sweeps:
                sweeps.pop(resource).close()
            emptied = Emptied(
                due=lambda: self._ending(name, uid) is not None,
                guard=self._guard_of(served),
                wake=lambda: self.wake(name),
                report=lambda: self.wake_after(name, limits.REMAINING_AFTER),
            )
            sweeps[resource] = Sweep(self._store, collection, name, emptied, self._clock)

    def _guard_of(self, served: ServedResource) -> Callable[[], Guard | None]:
        group, resource = served.group, served.resource

        def guard() -> Guard | None:
            now = self._live.current.resource(group, resource) or served
            key = now.definition.guard_key
            return Guard(key, now.definition.guard_revision) if key else None

        return guard

    async def _release(self, name: str, uid: str) -> None:
        """Delete the empty namespace.

        If it has other finalizers, only remove the finalizer ``kubernetes``.
        """
        entry = self._ending(name, uid)
        if entry is None:
            self._close(name)
            return
        document = self._statuses.decode(entry)
        others = [one for one in (document.get("spec") or {}).get("finalizers") or () if one != FINALIZER]
        if others or document["metadata"].get("finalizers"):
            await self._statuses.amend(
                entry, lambda current: self._with_conditions(_without_finalizer(current, others), _DONE)
            )
        elif await self._statuses.remove(entry):
            self._close(name)

    def _with_conditions(self, document: Document, wanted_conditions: Mapping[str, tuple[str, str, str]]) -> Document:
        now = self._clock()
        for kind, texts in wanted_conditions.items():
            document = set_condition(document, condition(kind, *texts), now)
        return document

    def _close(self, name: str) -> None:
        known = self._emptying.pop(name, None)
        for sweep in known.sweeps.values() if known is not None else ():
            sweep.close()


def namespace(name: str, now: str, manager: str) -> Document:
    """Return a new namespace with its label and with managed fields (NSP-002)."""
    owner = {"apiVersion": "v1", "manager": manager, "operation": "Update", "time": now, "fieldsType": "FieldsV1"}
    labels: Document = {".": {}, "f:kubernetes.io/metadata.name": {}}
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {
            "name": name,
            "uid": str(uuid4()),
            "creationTimestamp": now,
            "labels": {"kubernetes.io/metadata.name": name},
            "managedFields": [{**owner, "fieldsV1": {"f:metadata": {"f:labels": labels}}}],
        },
        "spec": {"finalizers": [FINALIZER]},
        "status": {"phase": "Active"},
    }


async def conditions(
    sweeps: Mapping[GroupResource, Sweep], failures: Mapping[GroupResource, list[StoreError]]
) -> dict[str, tuple[str, str, str]]:
    """Return type → (status, reason, message) of the five conditions (NSP-005).

    The order and the texts are upstream's.
    """
    wanted_conditions = dict(_DONE)
    remaining = {resource: sweep.remaining for resource, sweep in sweeps.items() if sweep.remaining}
    held: Counter[str] = Counter()
    for resource in remaining:
        held.update(await sweeps[resource].finalizers())
    if failures:
        listed = ", ".join(f"{resource}: {errors[0]}" for resource, errors in sorted(failures.items()))
        text = f"Failed to delete all resource types, {len(failures)} remaining: {listed}"
        wanted_conditions["NamespaceDeletionContentFailure"] = ("True", "ContentDeletionFailed", text)
    if remaining:
        counts = sorted((f"{resource.resource}.{resource.group}", count) for resource, count in remaining.items())
        # as upstream, names of the core group end with a dot, such as "secrets."
        listed = ", ".join(f"{name} has {count} resource instances" for name, count in counts)
        text = f"Some resources are remaining: {listed}"
        wanted_conditions["NamespaceContentRemaining"] = ("True", "SomeResourcesRemain", text)
    if held:
        listed = ", ".join(f"{one} in {count} resource instances" for one, count in sorted(held.items()))
        text = f"Some content in the namespace has finalizers remaining: {listed}"
        wanted_conditions["NamespaceFinalizersRemaining"] = ("True", "SomeFinalizersRemain", text)
    return wanted_conditions


def _without_finalizer(document: Document, others: list[str]) -> Document:
    spec: dict[str, Any] = dict(document.get("spec") or {})
    spec.pop("finalizers", None)
    if others:
        spec["finalizers"] = others
    return {**document, "spec": spec}
