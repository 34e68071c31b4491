"""Objects that kube-apiserver creates: priority classes, a service and a configmap.

The configmap contains the CAs of clients (authentication_trust.py). The service ``default/kubernetes`` has Endpoints
and an EndpointSlice. Upstream: storage_scheduling.go and controlplane/controller/kubernetesservice. The documents in
this module have the stored form, so that the start of the server need not import the types of their kinds.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any
from uuid import uuid4

import orjson

from apiext.catalog.builtin.scheduling_rules import SYSTEM_CLASSES
from apiext.controllers import authentication_trust
from apiext.controllers.loop import Loop
from apiext.documents.document import Document
from apiext.documents.encoding import encode
from apiext.meta.names import GroupResource
from apiext.storage.cached_store import CachedStore
from apiext.storage.history import Change
from apiext.storage.store import KeyExists, RevisionChanged, StoreError
from apiext.verbs.commit import Put, attempt

PRIORITY_CLASSES = GroupResource("scheduling.k8s.io", "priorityclasses")
SERVICES, ENDPOINTS = GroupResource("", "services"), GroupResource("", "endpoints")
CONFIG_MAPS = GroupResource("", "configmaps")
SLICES = GroupResource("discovery.k8s.io", "endpointslices")
NAME = "kubernetes"
_TRUST = (authentication_trust.NAMESPACE, authentication_trust.NAME)
_CLASSES = {
    "system-cluster-critical": (
        "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary."
    ),
    "system-node-critical": "Used for system critical pods that must not be moved from their current node.",
}
"""Name of a priority class → its description."""

# Seconds after a deletion until the object is created again (upstream: at most 10).
RECREATE_AFTER = 1.0

log = logging.getLogger(__name__)


class FirstObjects:
    """Creates missing objects at the start; updates existing ones except the priority classes.

    If the service, its endpoints or the configmap are deleted later, the controller creates the deleted object again.
    After any other change of the configmap, it adds missing data of this server.

    ``clock()`` returns the current time in the format of metadata.

    ``address()`` returns a free service address, preferably the first address of the range. ``port`` is the port of the
    server. ``endpoint`` is the IP address of the server for other machines; if it is "", the service gets no endpoints.
    ``trust()`` returns the data of the configmap for this server; if it is empty, this server writes no configmap.
    """

    def __init__(
        self, store: CachedStore, clock: Callable[[], str], manager: str, address: Callable[[], str], port: int,
        endpoint: str, trust: Callable[[], Mapping[str, str]],
    ) -> None:  # fmt: skip
        self._store = store
        self._clock = clock
        self._manager = manager
        self._address = address
        self._port = port
        self._endpoint = endpoint
        self._trust = trust
        self._loop = Loop("kubernetes-service", self._reconcile)

    async def create(self) -> None:
        """Create the missing objects, and update the service, its endpoints and the configmap.

        Log an error of the store; the next start of the server retries.
        """
        try:
            await asyncio.gather(*(self._create_class(name) for name in _CLASSES), self._reconcile(NAME))
        except (StoreError, OSError) as error:
            log.warning("an object that the server creates at its start could not be written: %s", error)

    def start(self, group: asyncio.TaskGroup) -> None:
        """Subscribe to changes; create the service, endpoints and configmap again after a deletion."""
        self._loop.start(group)
        for resource in (SERVICES, ENDPOINTS, SLICES, CONFIG_MAPS):
            collection = self._store.collection(resource)
            if collection is not None:
                collection.feed.subscribe(self._changed)

    async def stop(self) -> None:
        """Stop the controller. The next start of the server creates missing objects."""
        await self._loop.stop()

    def _changed(self, change: Change) -> None:
        key = (change.entry.namespace, change.entry.name)
        if key == _TRUST or (key == ("default", NAME) and change.kind == "DELETED"):
            self._loop.add_after(NAME, RECREATE_AFTER)

    def renew(self) -> None:
        """Queue an update of the configmap after the data that ``trust`` returns has changed."""
        self._loop.add(NAME)

    async def _reconcile(self, _: str) -> None:
        """Create the service, its endpoints and the configmap, or update them."""
        await asyncio.gather(
            self._put(SERVICES, "default", self._service, self._moved),
            self._put(ENDPOINTS, "default", self._endpoints, _renewed(self._endpoints, "subsets")),
            self._put(SLICES, "default", self._slice, _renewed(self._slice, "endpoints", "ports")),
            self._put(CONFIG_MAPS, _TRUST[0], self._new_trust, self._merged_trust, name=_TRUST[1]),
        )

    async def _create_class(self, name: str) -> None:
        value, description = SYSTEM_CLASSES[name], _CLASSES[name]
        fields = {"value": value, "description": description, "preemptionPolicy": "PreemptLowerPriority"}
        owned: Document = {f"f:{field}": {} for field in sorted(fields)}
        found = self._object("scheduling.k8s.io/v1", "PriorityClass", {"name": name, "generation": 1}, owned)
        await self._put(PRIORITY_CLASSES, "", lambda: {**found, **fields}, name=name)

    async def _put(
        self,
        resource: GroupResource,
        namespace: str,
        make: Callable[[], Document | None],
        change: Callable[[Document], Document | None] = lambda _: None,
        name: str = NAME,
    ) -> None:
        """Store the result of ``make`` if the object is missing, else the result of ``change``.

        If the result is None, store nothing.
        """
        collection = self._store.collection(resource)
        if collection is None:
            return
        await collection.wait_ready()
        entry = collection.state.cached(namespace, name)
        try:
            wanted = make() if entry is None else change(orjson.loads(entry.raw))
            if wanted is not None:
                revision = entry.revision if entry is not None else 0
                await attempt(self._store, collection, Put((namespace, name), revision, encode(wanted)))
        except (KeyExists, RevisionChanged):
            return  # another server has written the object first
        # the stored object is invalid; reads report the error
        except (AttributeError, KeyError, TypeError, ValueError):
            return

    def _object(self, api_version: str, kind: str, metadata: Document, owned: Document) -> Document:
        now = self._clock()
        entry = {
            "manager": self._manager, "operation": "Update", "apiVersion": api_version, "time": now,
            "fieldsType": "FieldsV1", "fieldsV1": owned,
        }  # fmt: skip
        own = {"uid": str(uuid4()), "creationTimestamp": now, "managedFields": [entry]}
        return {"apiVersion": api_version, "kind": kind, "metadata": {**metadata, **own}}

    def _ports(self) -> list[Any]:
        return [{"name": "https", "protocol": "TCP", "port": 443, "targetPort": self._port}]

    def _service(self) -> Document:
        address = self._address()
        port: Document = {".": {}, "f:name": {}, "f:port": {}, "f:protocol": {}, "f:targetPort": {}}
        fields = ("clusterIP", "internalTrafficPolicy", "ipFamilyPolicy", "sessionAffinity", "type")
        owned: Document = {
            "f:metadata": {"f:labels": {".": {}, "f:component": {}, "f:provider": {}}},
            "f:spec": {
                **{f"f:{field}": {} for field in fields},
                "f:ports": {".": {}, 'k:{"port":443,"protocol":"TCP"}': port},
            },
        }
        labels = {"component": "apiserver", "provider": "kubernetes"}
        found = self._object("v1", "Service", {"name": NAME, "namespace": "default", "labels": labels}, owned)
        spec = {
            "ports": self._ports(),
            "clusterIP": address,
            "clusterIPs": [address],
            "type": "ClusterIP",
            "sessionAffinity": "None",
            "ipFamilies": ["IPv6" if ":" in address else "IPv4"],
            "ipFamilyPolicy": "SingleStack",
            "internalTrafficPolicy": "Cluster",
        }
        return {**found, "spec": spec, "status": {"loadBalancer": {}}}

    def _moved(self, service: Document) -> Document | None:
        """Return the service with the port of this server; None if it already has this port."""
        if service["spec"]["ports"] == self._ports():
            return None
        return {**service, "spec": {**service["spec"], "ports": self._ports()}}

    def _endpoints(self) -> Document | None:
        if not self._endpoint:
            return None
        labels = {"endpointslice.kubernetes.io/skip-mirror": "true"}
        owned: Document = {
            "f:metadata": {"f:labels": {".": {}, **{f"f:{name}": {} for name in labels}}},
            "f:subsets": {},
        }
        found = self._object("v1", "Endpoints", {"name": NAME, "namespace": "default", "labels": labels}, owned)
        ports = [{"name": "https", "port": self._port, "protocol": "TCP"}]
        return {**found, "subsets": [{"addresses": [{"ip": self._endpoint}], "ports": ports}]}

    def _slice(self) -> Document | None:
        if not self._endpoint:
            return None
        labels = {"kubernetes.io/service-name": NAME}
        owned: Document = {
            "f:addressType": {},
            "f:endpoints": {},
            "f:metadata": {"f:labels": {".": {}, **{f"f:{name}": {} for name in labels}}},
            "f:ports": {},
        }
        metadata = {"name": NAME, "namespace": "default", "generation": 1, "labels": labels}
        found = self._object("discovery.k8s.io/v1", "EndpointSlice", metadata, owned)
        ports = [{"name": "https", "protocol": "TCP", "port": self._port}]
        endpoints = [{"addresses": [self._endpoint], "conditions": {"ready": True}}]
        kind = "IPv6" if ":" in self._endpoint else "IPv4"
        return {**found, "addressType": kind, "endpoints": endpoints, "ports": ports}

    def _new_trust(self) -> Document | None:
        data = authentication_trust.merged({}, self._trust())
        if not data:
            return None
        owned: Document = {"f:data": {".": {}, **{f"f:{key}": {} for key in sorted(data)}}}
        namespace, name = _TRUST
        return {**self._object("v1", "ConfigMap", {"name": name, "namespace": namespace}, owned), "data": data}

    def _merged_trust(self, stored: Document) -> Document | None:
        """Return the stored configmap with the data of this server, None if nothing changes."""
        own = self._trust()
        data = authentication_trust.merged(stored.get("data") or {}, own) if own else stored.get("data")
        return None if data == stored.get("data") else {**stored, "data": data}


def _renewed(make: Callable[[], Document | None], *fields: str) -> Callable[[Document], Document | None]:
    """Return a function that copies ``fields`` of a new object into a stored object.

    The function returns None if the stored fields are equal to the new fields, or if ``make`` returns None.
    """

    def change(stored: Document) -> Document | None:
        wanted = make()
        if wanted is None or all(stored.get(field) == wanted[field] for field in fields):
            return None
        return {**stored, **{field: wanted[field] for field in fields}}

    return change
