"""Drop fields of features that kube-apiserver 1.37 disables by default.

Upstream: dropDisabledFields. A field is not dropped if the stored object already uses a field of this feature.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from apiext.documents.document import Document, View

_CONTAINERS = ("containers", "initContainers", "ephemeralContainers")
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_FILES = ("secret", "configMap", "downwardAPI", "projected")
_SOURCES = ("serviceAccountToken", "clusterTrustBundle", "podCertificate")


def _in_containers(*paths: str) -> list[str]:
    return [f"{name}.{path}" for name in _CONTAINERS for path in paths]


_PODS: Mapping[str, Sequence[str]] = {
    "AtomicWriteVolumeUserFields": [
        *(f"volumes.{name}.defaultUser" for name in _FILES),
        *(f"volumes.{name}.items.user" for name in _FILES if name != "projected"),
        *(f"volumes.projected.sources.{name}.items.user" for name in _FILES if name != "projected"),
        *(f"volumes.projected.sources.{name}.user" for name in _SOURCES),
    ],
    "ContainerStopSignals": _in_containers("lifecycle.stopSignal"),
    "EmptyDirVolumeMode": ["volumes.emptyDir.mode"],
    "EvictionRequestAPI": ["evictionResponders"],
    "GRPCContainerProbeTLS": _in_containers(*(f"{probe}.grpc.mode" for probe in _PROBES)),
    "GenericWorkload": ["schedulingGroup"],
    "H2CContainerProbe": _in_containers(
        *(f"{one}.httpGet.protocol" for one in (*_PROBES, "lifecycle.postStart", "lifecycle.preStop"))
    ),
    "VolumeBindMountOptions": _in_containers("volumeMounts.bindMountOptions"),
}
_STATUSES = ("containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses")
_REQUESTS = ("requests.exactly", "requests.firstAvailable")
_VALUES = ("bools", "ints", "strings", "versions")
TABLES: Mapping[str, Mapping[str, Sequence[str]]] = {
    "pod": _PODS,
    "pod_status": {
        "CSIVolumeHealth": ["volumeHealth"],
        "DRANodeAllocatableResources": ["nodeAllocatableResourceClaimStatuses"],
        "ImageVolumeWithDigest": [f"{name}.volumeMounts.volumeStatus" for name in _STATUSES],
    },
    "job": {"WorkloadWithJob": ["scheduling"]},
    "node": {
        "DynamicKubeletConfig": ["configSource"],
        "InPlacePodVerticalScalingSchedulerPreemption": ["podPreemptionPolicy"],
    },
    "node_status": {"DynamicKubeletConfig": ["config"]},
    "claim_status": {"CSIVolumeHealth": ["healthStatus"]},
    "csi_node_status": {"CSIVolumeHealth": ["storageHealth"]},
    "lease": {"strategy": ["strategy"], "preferredHolder": ["preferredHolder"]},
    "device_claim": {"DRADerivedAttributes": [f"devices.{one}.derivedAttributes" for one in _REQUESTS]},
    "device_claim_status": {"DRAOptionalNodeOperations": ["allocation.devices.results.skipNodeOperations"]},
    "device_slice": {
        "DRADeviceCompatibilityGroups": ["devices.consumesCounters.compatibilityGroups"],
        "DRAListTypeAttributes": [f"devices.attributes.*.{name}" for name in _VALUES],
        "DRANodeAllocatableResources": ["devices.nodeAllocatableResources"],
        "DRAOptionalNodeOperations": ["skipNodeOperations"],
        "DRAPartitionableDevicesType": ["partitionTypeAttribute"],
    },
}
"""Table → feature → paths of its fields. The data of built-in kinds (go_types/types) refers to tables by name.

A path continues in the items of a list; ``*`` stands for each value of a map.
"""

_Found = tuple[str, Any, str]


def drop(tables: Mapping[str, str], new: Document, old: View | None) -> None:
    """Drop the fields of disabled features in place.

    ``tables`` is path of a part of the object → name of its table.
    """
    for path, table in tables.items():
        part = _part(new, path)
        if part is None:
            continue
        found = list(_fields(part, _tree(table)))
        if not found:
            continue
        before = None if old is None else _part(old, path)
        used = set() if before is None else {feature for feature, _, _ in _fields(before, _tree(table))}
        for feature, holder, name in found:
            if feature not in used:
                del holder[name]
        if table == "pod":
            _drop_empty_lifecycles(part)


def _drop_empty_lifecycles(spec: Document) -> None:
    """Drop each empty lifecycle, such as one whose stop signal was dropped, as upstream does."""
    for container in (one for name in _CONTAINERS for one in spec.get(name) or ()):
        if container.get("lifecycle") == {}:
            del container["lifecycle"]


def _part(document: View, path: str) -> Any:
    found: Any = document
    for name in path.split("."):
        found = found.get(name)
        if found is None:
            return None
    return found


@cache
def _tree(table: str) -> Mapping[str, Any]:
    """Return the paths of a table as a tree of field names.

    A field name leads to a subtree, or to the feature at the end of a path.
    """
    tree: dict[str, Any] = {}
    for feature, paths in TABLES[table].items():
        for path in paths:
            *holders, name = path.split(".")
            place = tree
            for holder in holders:
                place = place.setdefault(holder, {})
            place[name] = feature
    return tree


def _fields(value: Any, tree: Mapping[str, Any]) -> Iterator[_Found]:
    """Yield each field of the tree that is set, as (feature, object with the field, name)."""
    if not isinstance(value, Mapping):
        for one in value:
            yield from _fields(one, tree)
        return
    for name, below in tree.items():
        inner = value.values() if name == "*" else value.get(name)
        if inner is None or inner == []:
            continue
        if below.__class__ is str:
            yield below, value, name
        else:
            yield from _fields(inner, below)
