"""Controllers that protect claims, volumes and classes in use.

Each adds a finalizer to the objects of a resource. When a deleted object is no longer in use, the controller removes
the finalizer. Upstream: pkg/controller/volume/pvcprotection, pvprotection and vacprotection. Each row of ``ROWS``
describes a controller.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import orjson

from apiext.admission.object_lookup import ATTRIBUTES_CLASSES, CLAIMS, PODS, VOLUMES
from apiext.auth.user import service_account
from apiext.config import CLAIM_PROTECTION, CLASS_PROTECTION, VOLUME_PROTECTION
from apiext.controllers.loop import Loop, retried_conflicts
from apiext.documents.document import View
from apiext.meta.names import GroupResource
from apiext.scheduling.loop_budget import LoopBudget
from apiext.storage.collection import Collection
from apiext.storage.history import Change
from apiext.storage.store import Entry
from apiext.verbs import api
from apiext.verbs.call import Call, Verbs

MERGE = "application/merge-patch+json"

Uses = Callable[[View, View], bool]
"""(another object, the protected object) → True if the other object uses the protected object."""


class Row(NamedTuple):
    """A controller: its protected resource, its finalizer, and its service account.

    ``consumers`` has the resources whose objects may use a protected object, with the test for each. ``is_kept``
    reports whether the state of the protected object itself shows that it is in use.
    """

    resource: GroupResource
    finalizer: str
    account: str
    consumers: Mapping[GroupResource, Uses] = {}
    is_kept: Callable[[View], bool] = lambda _: False


class Protection:
    """The controller of a row.

    The controller reads objects of the resources in ``consumers`` only while a protected object waits for deletion.
    """

    def __init__(self, verbs: Verbs, collection: Collection, name: str) -> None:
        """``name`` is the name of the controller in ``--controllers``."""
        row = ROWS[name]
        self._verbs = verbs
        self._row = row
        self._collection = collection
        self._finalizer = f'"{row.finalizer}"'.encode()
        self._waiting: set[str] = set()  # keys of objects that wait for deletion and are in use
        self._unsubscribes: list[Callable[[], None]] = []
        self._loop = Loop(row.account, self._reconcile, width=2)

    def start(self, group: asyncio.TaskGroup) -> None:
        """Start the loop.

        The loop adds or removes the finalizer of stored objects, and later of changed objects.
        """
        self._loop.start(group, lambda: list(self._waiting))
        self._collection.follow(self._changed)

    async def stop(self) -> None:
        """Cancel running work; the next start completes it."""
        await self._loop.stop()
        self._unfollow_consumers()

    def _changed(self, change: Change) -> None:
        entry = change.entry
        if change.kind != "DELETED" and (self._finalizer in entry.raw) is (b'"deletionTimestamp"' in entry.raw):
            self._loop.add(_key(entry))

    def _user_changed(self, change: Change) -> None:
        """Check waiting objects again, since the changed object may have used them.

        A changed object with a namespace can only use objects of this namespace, or objects without a namespace.
        """
        namespace = change.entry.namespace
        for key in self._waiting:
            if not namespace or not key.partition("/")[0] or key.startswith(f"{namespace}/"):
                self._loop.add(key)

    async def _reconcile(self, key: str) -> None:
        with suppress(AttributeError, KeyError, TypeError, ValueError):  # another program stored an invalid object
            await self._update(key)

    async def _update(self, key: str) -> None:
        namespace, _, name = key.partition("/")
        entry = self._collection.state.cached(namespace, name)
        found = _parsed(entry) if entry is not None else {}
        metadata = found.get("metadata") or {}
        finalizers = metadata.get("finalizers") or []
        is_protected = self._row.finalizer in finalizers
        if entry is None or is_protected is not bool(metadata.get("deletionTimestamp")):
            self._waiting.discard(key)
            if not self._waiting:
                self._unfollow_consumers()
            return
        if is_protected and await self._is_used(namespace, found):
            self._waiting.add(key)
            self._follow_consumers()
            return
        wanted = [one for one in finalizers if one != self._row.finalizer] if is_protected else [
            *finalizers, self._row.finalizer,
        ]  # fmt: skip
        await self._write(namespace, name, {**metadata, "resourceVersion": str(entry.revision)}, wanted)
        self._waiting.discard(key)

    async def _is_used(self, namespace: str, protected: View) -> bool:
        if self._row.is_kept(protected):
            return True
        for resource, uses in self._row.consumers.items():
            collection = self._verbs.store.collection(resource)
            if collection is None:
                continue
            await collection.wait_ready()
            await self._verbs.store.fresh(collection)
            loop_budget = LoopBudget()
            for entry in collection.state.readable(namespace or None):
                with suppress(AttributeError, KeyError, TypeError):  # another program stored an invalid object
                    if uses(_parsed(entry), protected):
                        return True
                await loop_budget.pause()
        return False

    async def _write(self, namespace: str, name: str, metadata: View, finalizers: Sequence[str]) -> None:
        resource = self._verbs.catalog.current.resource(self._row.resource.group, self._row.resource.resource)
        assert resource is not None
        served = resource.versions["v1"]
        user = service_account("kube-system", self._row.account)
        query = {"fieldManager": ["kube-controller-manager"]}
        call = Call(
            "patch", served, resource, served.endpoints[""], namespace or None, name, query, user, self._row.account
        )
        kept = {field: metadata[field] for field in ("uid", "resourceVersion") if field in metadata}
        body = orjson.dumps({"metadata": {**kept, "finalizers": finalizers}})
        with retried_conflicts(404, 409):
            await api.patch(self._verbs, call, MERGE, body)

    def _follow_consumers(self) -> None:
        """Subscribe to the objects that may use the waiting objects."""
        if self._unsubscribes:
            return
        for resource in self._row.consumers:
            collection = self._verbs.store.collection(resource)
            if collection is not None:
                self._unsubscribes.append(collection.feed.subscribe(self._user_changed))

    def _unfollow_consumers(self) -> None:
        for unsubscribe in self._unsubscribes:
            unsubscribe()
        self._unsubscribes.clear()


def _key(entry: Entry) -> str:
    return f"{entry.namespace}/{entry.name}"


def _parsed(entry: Entry) -> dict[str, Any]:
    try:
        found = orjson.loads(entry.raw)
    except ValueError:  # another program stored an invalid object; reads report the error
        return {}
    return found if isinstance(found, dict) else {}


def _pod_uses(pod: View, claim: View) -> bool:
    """Report whether a pod names a claim, or owns it as the claim of an ephemeral volume.

    Return false for a pod that is not assigned to a node.
    """
    spec, metadata = pod.get("spec") or {}, pod.get("metadata") or {}
    if not spec.get("nodeName"):
        return False
    name, owners = claim["metadata"]["name"], claim["metadata"].get("ownerReferences") or ()
    is_shut_down = bool(metadata.get("deletionTimestamp")) and metadata.get("deletionGracePeriodSeconds") == 0
    is_owner = any(one.get("controller") and one.get("uid") == metadata.get("uid") for one in owners)
    for volume in spec.get("volumes") or ():
        if (volume.get("persistentVolumeClaim") or {}).get("claimName") == name:
            return True
        made = f"{metadata.get('name')}-{volume.get('name')}"
        if volume.get("ephemeral") is not None and not is_shut_down and is_owner and made == name:
            return True
    return False


def _is_bound(volume: View) -> bool:
    return bool((volume.get("status") or {}).get("phase") == "Bound")


def _has_class(found: View, attributes_class: View) -> bool:
    """Report whether a volume or a claim refers to a VolumeAttributesClass."""
    status = found.get("status") or {}
    names: Iterable[Any] = (
        (found.get("spec") or {}).get("volumeAttributesClassName"),
        status.get("currentVolumeAttributesClassName"),
        (status.get("modifyVolumeStatus") or {}).get("targetVolumeAttributesClassName"),
    )
    return attributes_class["metadata"]["name"] in names


ROWS: Mapping[str, Row] = {
    CLAIM_PROTECTION: Row(CLAIMS, "kubernetes.io/pvc-protection", "pvc-protection-controller", {PODS: _pod_uses}),
    VOLUME_PROTECTION: Row(VOLUMES, "kubernetes.io/pv-protection", "pv-protection-controller", is_kept=_is_bound),
    CLASS_PROTECTION: Row(
        ATTRIBUTES_CLASSES,
        "kubernetes.io/vac-protection",
        "volumeattributesclass-protection-controller",
        {VOLUMES: _has_class, CLAIMS: _has_class},
    ),
}
"""Name in ``--controllers`` → controller."""
