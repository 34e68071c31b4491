"""Warnings about valid objects of built-in kinds.

Upstream: WarningsOnCreate, WarningsOnUpdate of the registries. Each function receives the new object and the stored
object, which is None on create. It returns texts for Warning headers.
"""

import re
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from apiext.catalog.builtin import ips
from apiext.catalog.builtin.workloads import APP_ARMOR, app_armor_profile
from apiext.documents.document import View
from apiext.go_types.quantities import canonical, value_of
from apiext.meta import syntax
from apiext.meta.fields import child, item
from apiext.text.quotes import go_quote

_NODE_LABELS = {
    "beta.kubernetes.io/arch": 'deprecated since v1.14; use "kubernetes.io/arch" instead',
    "beta.kubernetes.io/os": 'deprecated since v1.14; use "kubernetes.io/os" instead',
    "failure-domain.beta.kubernetes.io/region": 'deprecated since v1.17; use "topology.kubernetes.io/region" instead',
    "failure-domain.beta.kubernetes.io/zone": 'deprecated since v1.17; use "topology.kubernetes.io/zone" instead',
    "beta.kubernetes.io/instance-type": 'deprecated since v1.17; use "node.kubernetes.io/instance-type" instead',
    "app.kubernetes.io/created-by": "deprecated since v1.9",
    "scheduler.alpha.kubernetes.io/preferAvoidPods": "deprecated since v1.22; use Taints and Tolerations instead",
    "node-role.kubernetes.io/master": 'use "node-role.kubernetes.io/control-plane" instead',
}
_POD_ANNOTATIONS = {
    "scheduler.alpha.kubernetes.io/critical-pod": 'non-functional in v1.16+; use the "priorityClassName" field instead',
    "security.alpha.kubernetes.io/sysctls": 'non-functional in v1.11+; use the "sysctls" field instead',
    "security.alpha.kubernetes.io/unsafe-sysctls": 'non-functional in v1.11+; use the "sysctls" field instead',
}
_SECCOMP = 'non-functional in v1.27+; use the "seccompProfile" field instead'
_SECCOMP_POD, _SECCOMP_CONTAINER = (
    "seccomp.security.alpha.kubernetes.io/pod",
    "container.seccomp.security.alpha.kubernetes.io/",
)
_APP_ARMOR_FIELD = 'deprecated since v1.30; use the "appArmorProfile" field instead'
_POD_VOLUMES = {
    "photonPersistentDisk": "deprecated in v1.11, non-functional in v1.16+",
    "gitRepo": "deprecated in v1.11, and disabled by default in v1.33+",
    "scaleIO": "deprecated in v1.16, non-functional in v1.22+",
    "flocker": "deprecated in v1.22, non-functional in v1.25+",
    "storageos": "deprecated in v1.22, non-functional in v1.25+",
    "quobyte": "deprecated in v1.22, non-functional in v1.25+",
    "glusterfs": "deprecated in v1.25, non-functional in v1.26+",
    "cephfs": "deprecated in v1.28, non-functional in v1.31+",
    "rbd": "deprecated in v1.28, non-functional in v1.31+",
}
_GO_NAMES = {"storageos": "storageOS"}  # as upstream, the path of the warning has the name of the Go field
_PERSISTENT_VOLUMES = ("cephfs", "photonPersistentDisk", "scaleIO", "storageos", "glusterfs", "rbd")
_STORAGE_CLASS = "volume.beta.kubernetes.io/storage-class"
_VOLUME_ANNOTATIONS = {
    _STORAGE_CLASS: 'deprecated since v1.8; use "storageClassName" attribute instead',
    "volume.beta.kubernetes.io/mount-options": 'deprecated since v1.31; use "mountOptions" attribute instead',
}
_RECYCLE = "The Recycle reclaim policy is deprecated. Instead, the recommended approach is to use dynamic provisioning."
_BYTES = ("memory", "ephemeral-storage")  # resources whose amounts are whole numbers of bytes
_NULL_SELECTOR = "a null labelSelector results in matching no pod"
_REQUIRED, _PREFERRED = (
    "requiredDuringSchedulingIgnoredDuringExecution",
    "preferredDuringSchedulingIgnoredDuringExecution",
)
_POD_NAME = (
    "metadata.name: this is used in the Pod's hostname, which can result in surprising behavior;"
    " a DNS label is recommended: [{}]"
)
_WORKLOAD_NAME = (
    "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior;"
    " a DNS label is recommended: [{}]"
)
_MANY_INDEXES = (
    "In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4,"
    " Kubernetes might not be able to track completedIndexes when a big number of indexes fail"
)
_TIME_ZONE = (
    "cannot use TZ or CRON_TZ in spec.spec.schedule, use timeZone instead, see"
    " https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/ for more details"
)
_HISTORY = "spec.revisionHistoryLimit: a negative value retains all historical revisions; a value >= 0 is recommended"
_TOKENS = (
    "spec.serviceAccountTokenInSecrets is unset; if supported by this CSI driver,"
    " set to true to prevent possible logging of tokens in volume attributes"
)


# --- pods and their templates ---


def pod_warnings(new: View, old: View | None) -> list[str]:
    """Return the warnings about a new pod; an update of a pod has no warnings."""
    if old is not None:
        return []
    return [*_synchronized(new), *_name(new, _POD_NAME), *_pod(_spec(new), new["metadata"], "")]


def _synchronized(pod: View) -> Iterator[str]:
    """Yield the warnings about AppArmor annotations of containers.

    ``workloads.prepare_pod`` has already copied valid annotations to fields.
    """
    spec, annotations = _spec(pod), pod["metadata"].get("annotations") or {}
    whole = (spec.get("securityContext") or {}).get("appArmorProfile")
    for container, _ in _containers(spec, ""):
        key = APP_ARMOR + (container.get("name") or "")
        if key not in annotations or (spec.get("os") or {}).get("name") == "windows":
            continue
        profile, given = (
            app_armor_profile(annotations[key]),
            (container.get("securityContext") or {}).get("appArmorProfile"),
        )
        if profile == given and (given is None or given != whole):
            yield f"{item('metadata.annotations', key)}: {_APP_ARMOR_FIELD}"


def pod_status_warnings(new: View, old: View | None) -> list[str]:
    """Return the warnings about addresses in the status of a pod."""
    status = new.get("status") or {}
    return [
        text
        for field in ("podIPs", "hostIPs")
        for index, one in enumerate(status.get(field) or ())
        for text in ips.address_warnings(child(item(f"status.{field}", index), "ip"), one.get("ip") or "")
    ]


def pod_template_warnings(new: View, old: View | None) -> list[str]:
    """Return the warnings about a PodTemplate."""
    return _template(new.get("template"), "template") if _changed(new, old) else []


def replication_controller_warnings(new: View, old: View | None) -> list[str]:
    """Return the warnings about a ReplicationController.

    As upstream, the warnings of an update are about the old template.
    """
    if old is None:
        return [*_name(new, _WORKLOAD_NAME), *_template(_spec(new).get("template"), "spec.template")]
    return _template(_spec(old).get("template"), "spec.template") if _changed(new, old) else []


def replicas_warnings(new: View, old: View | None) -> list[str]:
    """Return the warnings about a Deployment or ReplicaSet."""
    found = list(_name(new, _WORKLOAD_NAME)) if old is None else []
    return found + (_template(_spec(new).get("template"), "spec.template") if _changed(new, old) else [])


def stateful_set_warnings(new: View, old: View | None) -> list[str]:
    """Return the warnings about a StatefulSet.

    As upstream, the path of its volume claims differs between create and update.
    """
    spec = _spec(new)
    found = _template(spec.get("template"), "spec.template") if _changed(new, old) else []
    for index, claim in enumerate(spec.get("volumeClaimTemplates") or ()):
        at = item("spec.volumeClaimTemplates", index)
        found += _claim(_spec(claim), at if old is None else child(at, "Spec"))
    limit = spec.get("revisionHistoryLimit")
    return [*found, _HISTORY] if limit is not None and limit < 0 else found


def daemon_set_warnings(new: View, old: View | None) -> list[str]:
    """Return the warnings about a DaemonSet.

    An update gets warnings only if it changes the template.
    """
    if old is not None and _spec(new).get("template") == _spec(old).get("template"):
        return []
    return _template(_spec(new).get("template"), "spec.template")


def job_warnings(new: View, old: View | None) -> list[str]:
    """Return the warnings about a Job."""
    found = list(_name(new, _WORKLOAD_NAME)) if old is None else []
    return found + (_job(_spec(new), "spec") if _changed(new, old) else [])


def cron_job_warnings(new: View, old: View | None) -> list[str]:
    """Return the warnings about a CronJob."""
    spec = _spec(new)
    found = list(_name(new, _WORKLOAD_NAME)) if old is None else []
    if _changed(new, old):
        found += _job(_spec(spec.get("jobTemplate") or {}), "spec.jobTemplate.spec")
    if old is not None and "TZ" in (spec.get("schedule") or ""):
        found.append(_TIME_ZONE)
    return found


def _job(spec: View, path: str) -> list[str]:
    indexed = spec.get("completionMode") == "Indexed"
    many = (spec.get("completions") or 0) > 100_000 and (spec.get("parallelism") or 0) > 10_000
    found = [f"{path}: {_MANY_INDEXES}"] if indexed and many else []
    return found + _template(spec.get("template"), child(path, "template"))


def _spec(document: View) -> View:
    spec: View = document.get("spec") or {}
    return spec


def _changed(new: View, old: View | None) -> bool:
    return old is None or new["metadata"].get("generation") != old["metadata"].get("generation")


def _name(new: View, text: str) -> Iterator[str]:
    if faults := syntax.dns1123_label(new["metadata"].get("name") or ""):
        yield text.format(" ".join(faults))


def _template(template: View | None, path: str) -> list[str]:
    if template is None:
        return []
    return list(_pod(template.get("spec") or {}, template.get("metadata") or {}, path))


def _pod(spec: View, metadata: View, path: str) -> Iterator[str]:
    """Yield the warnings about the spec and metadata of a pod or pod template.

    The pod template is at ``path``; an empty path stands for a pod.
    """
    at, notes = child(path, "spec"), child(path, "metadata.annotations")
    annotations = metadata.get("annotations") or {}
    yield from _placement(spec, at)
    yield from (f"{item(notes, key)}: {text}" for key, text in _POD_ANNOTATIONS.items() if key in annotations)
    yield from _volumes(spec.get("volumes") or (), child(at, "volumes"))
    yield from _repeated(spec.get("hostAliases") or (), child(at, "hostAliases"), "ip")
    secrets = spec.get("imagePullSecrets") or ()
    yield from _repeated(secrets, child(at, "imagePullSecrets"), "name")
    for index, secret in enumerate(secrets):
        if not secret.get("name"):
            yield f'{child(item(child(at, "imagePullSecrets"), index), "name")}: invalid empty name ""'
    yield from _fractions(spec.get("overhead") or {}, child(at, "overhead"), _BYTES)
    security = spec.get("securityContext") or {}
    if security.get("seccompProfile") is None and _SECCOMP_POD in annotations:
        yield f"{item(notes, _SECCOMP_POD)}: {_SECCOMP}"
    containers = list(_containers(spec, at))
    for container, place in containers:
        yield from _container(container, place, annotations, notes, security, template=bool(path))
    yield from _ports(containers)
    seconds = spec.get("terminationGracePeriodSeconds")
    if seconds is not None and seconds < 0:
        yield f"{at}.terminationGracePeriodSeconds: must be >= 0; negative values are invalid and will be treated as 1"
    yield from _null_selectors(spec.get("affinity") or {}, child(at, "affinity"))
    for index, text in enumerate((spec.get("dnsConfig") or {}).get("nameservers") or ()):
        yield from ips.address_warnings(item(child(at, "dnsConfig.nameservers"), index), text)
    for index, alias in enumerate(spec.get("hostAliases") or ()):
        place = child(item(child(at, "hostAliases"), index), "ip")
        yield from ips.address_warnings(place, alias.get("ip") or "")


def _placement(spec: View, at: str) -> Iterator[str]:
    for key in sorted(spec.get("nodeSelector") or ()):
        if key in _NODE_LABELS:
            yield f"{item(child(at, 'nodeSelector'), key)}: {_NODE_LABELS[key]}"
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    place = child(at, "affinity.nodeAffinity")
    yield from _terms(
        (affinity.get(_REQUIRED) or {}).get("nodeSelectorTerms"), f"{place}.{_REQUIRED}.nodeSelectorTerms"
    )
    for index, term in enumerate(affinity.get(_PREFERRED) or ()):
        preference = child(item(child(place, _PREFERRED), index), "preference")
        yield from _expressions(term.get("preference") or {}, preference, values=True)
    for index, constraint in enumerate(spec.get("topologySpreadConstraints") or ()):
        place, key = item(child(at, "topologySpreadConstraints"), index), constraint.get("topologyKey") or ""
        if key in _NODE_LABELS:
            yield f"{place}.topologyKey: {key} is {_NODE_LABELS[key]}"
        if constraint.get("labelSelector") is None:
            yield f"{place}.labelSelector: {_NULL_SELECTOR}"


def _terms(terms: Iterable[View] | None, path: str) -> Iterator[str]:
    for index, term in enumerate(terms or ()):
        yield from _expressions(term, item(path, index), values=False)


def _expressions(selector: View, path: str, *, values: bool) -> Iterator[str]:
    """Yield warnings about deprecated node labels in matchExpressions.

    If ``values`` is true, also yield warnings about invalid label values.
    """
    for index, expression in enumerate(selector.get("matchExpressions") or ()):
        at, key = item(child(path, "matchExpressions"), index), expression.get("key") or ""
        if key in _NODE_LABELS:
            yield f"{at}.key: {key} is {_NODE_LABELS[key]}"
        for number, value in enumerate((expression.get("values") or ()) if values else ()):
            for fault in syntax.label_value(value):
                yield f"{item(child(at, 'values'), number)}: {value} is invalid, {fault}"


def _null_selectors(affinity: View, at: str) -> Iterator[str]:
    for name in ("podAffinity", "podAntiAffinity"):
        terms = affinity.get(name) or {}
        for index, term in enumerate(terms.get(_REQUIRED) or ()):
            if term.get("labelSelector") is None:
                yield f"{item(f'{at}.{name}.{_REQUIRED}', index)}.labelSelector: {_NULL_SELECTOR}"
        for index, weighted in enumerate(terms.get(_PREFERRED) or ()):
            if (weighted.get("podAffinityTerm") or {}).get("labelSelector") is None:
                yield f"{item(f'{at}.{name}.{_PREFERRED}', index)}.podAffinityTerm.labelSelector: {_NULL_SELECTOR}"


def _repeated(items: Iterable[View], path: str, field: str) -> Iterator[str]:
    seen: set[str] = set()
    for index, one in enumerate(items):
        value = one.get(field) or ""
        if value in seen:
            yield f"{child(item(path, index), field)}: duplicate {field} {go_quote(value)}"
        seen.add(value)


def _fractions(amounts: Mapping[str, str], path: str, names: Iterable[str]) -> Iterator[str]:
    for name in names:
        text = amounts.get(name)
        if text is not None and -(-value_of(text) * 1000 // 1) % 1000:
            value = go_quote(canonical(text))
            yield f"{item(path, name)}: fractional byte value {value} is invalid, must be an integer"


def _containers(spec: View, at: str) -> Iterator[tuple[View, str]]:
    for name in ("initContainers", "containers", "ephemeralContainers"):
        for index, container in enumerate(spec.get(name) or ()):
            yield container, item(child(at, name), index)


def _container(
    container: View, at: str, annotations: View, notes: str, pod_security: View, *, template: bool
) -> Iterator[str]:
    security, name = container.get("securityContext") or {}, container.get("name") or ""
    if security.get("seccompProfile") is None and _SECCOMP_CONTAINER + name in annotations:
        yield f"{item(notes, _SECCOMP_CONTAINER + name)}: {_SECCOMP}"
    if template and (key := APP_ARMOR + name) in annotations and security.get("appArmorProfile") is None:
        profile = pod_security.get("appArmorProfile")
        if profile is None or profile != app_armor_profile(annotations[key]):
            yield f"{item(notes, key)}: {_APP_ARMOR_FIELD}"
    resources = container.get("resources") or {}
    for resource in _BYTES:
        for kind in ("limits", "requests"):
            yield from _fractions(resources.get(kind) or {}, child(at, f"resources.{kind}"), (resource,))
    seen: set[str] = set()
    for index, variable in enumerate(container.get("env") or ()):
        name, value = variable.get("name") or "", variable.get("value") or ""
        reference = f"$({name})"
        replaced = variable.get("valueFrom") is not None or value == reference or reference not in value
        if name in seen and replaced:
            place = item(child(at, "env"), index)
            yield f"{place}: hides previous definition of {go_quote(name)}, which may be dropped when using apply"
        seen.add(name)


def _ports(containers: Iterable[tuple[View, str]]) -> Iterator[str]:
    """Yield the warnings about ports.

    Warnings about numbers and host addresses come first, then those about duplicate names.
    """
    ports = [
        (port, item(child(at, "ports"), index))
        for container, at in containers
        for index, port in enumerate(container.get("ports") or ())
    ]
    numbers: dict[tuple[int, str], list[tuple[str, int, str]]] = {}
    for port, path in ports:
        protocol, address = port.get("protocol") or "", port.get("hostIP") or ""
        number, host = port.get("containerPort") or 0, port.get("hostPort") or 0
        if address and not host:
            shown = f"Name:{port.get('name') or ''} HostPort:{host} ContainerPort:{number} Protocol:{protocol}"
            yield f"{path}: hostIP set without hostPort: {{{shown} HostIP:{address}}}"
        others = numbers.setdefault((number, protocol), [])
        for other, other_host, other_address in others:
            if (address, host) == (other_address, other_host):
                yield f"{path}: duplicate port definition with {other}"
            elif not host or not other_host:
                yield f"{path}: overlapping port definition with {other}"
            elif host == other_host and bool(address) != bool(other_address):
                yield f"{path}: dangerously ambiguous port definition with {other}"
        others.append((path, host, address))
    names: dict[str, str] = {}
    for port, path in ports:
        if name := port.get("name"):
            first = names.setdefault(name, path)
            if first != path:
                yield (
                    f"{path}: duplicate port name {go_quote(name)} with {first},"
                    f" services and probes that select ports by name will use {first}"
                )


# --- volumes ---


class _File(NamedTuple):
    """A file of a volume: its path and a description of its source, ``ConfigMap "name"``.

    The description is empty if the beginning of the warning already has it.
    """

    path: str
    source: str

    def __str__(self) -> str:
        return f"{go_quote(self.path)} ({self.source})" if self.source else go_quote(self.path)


def _volumes(volumes: Iterable[View], path: str) -> Iterator[str]:
    for index, volume in enumerate(volumes):
        at = item(path, index)
        for field, text in _POD_VOLUMES.items():
            if field == "cephfs":  # in upstream's order, warnings about the claim precede the warning about cephfs
                claim = (volume.get("ephemeral") or {}).get("volumeClaimTemplate")
                if claim is not None:
                    yield from _claim(_spec(claim), child(at, "ephemeral.volumeClaimTemplate.spec"))
            if volume.get(field) is not None:
                yield f"{child(at, _GO_NAMES.get(field, field))}: {text}"
    for volume in volumes:
        yield from _overlaps(volume)


def _overlaps(volume: View) -> Iterator[str]:
    """Yield the warnings about overlapping paths and empty sources of volumes.

    The paths are those of files in a volume; the sources are those of projected volumes. Paths overlap if they are
    equal, or if one is below the other.
    """
    start = f"volume {go_quote(volume.get('name') or '')}"
    config, secret, downward = (volume.get(field) or {} for field in ("configMap", "secret", "downwardAPI"))
    for source, described in (
        (config, f"ConfigMap {go_quote(config.get('name') or '')}"),
        (secret, f"Secret {go_quote(secret.get('secretName') or '')}"),
        (downward, "DownwardAPI"),
    ):
        for text in _collisions(_files(source, ""), []):
            yield f"{start} ({described}): overlapping paths: {text}"
    seen: list[_File] = []
    for source in (volume.get("projected") or {}).get("sources") or ():
        if not any(value is not None for value in source.values()):
            yield f"{start} (Projected) has no sources provided"
            continue
        for text in _collisions(_projected(source), seen):
            yield f"{start} (Projected): overlapping paths: {text}"


def _files(source: View, described: str) -> list[_File]:
    return [_File(one.get("path") or "", described) for one in source.get("items") or ()]


def _projected(source: View) -> list[_File]:
    """Return the files of one source of a projected volume."""
    config, secret, downward = source.get("configMap"), source.get("secret"), source.get("downwardAPI")
    if config is not None and config.get("items") is not None:
        return _files(config, f"ConfigMap {go_quote(config.get('name') or '')}")
    if secret is not None and secret.get("items") is not None:
        return _files(secret, f"Secret {go_quote(secret.get('name') or '')}")
    if downward is not None and downward.get("items") is not None:
        return _files(downward, "DownwardAPI")
    if (token := source.get("serviceAccountToken")) is not None:
        return [_File(token.get("path") or "", "ServiceAccountToken")]
    if (bundle := source.get("clusterTrustBundle")) is not None:
        name = bundle["name"] if bundle.get("name") is not None else bundle.get("signerName") or ""
        return [_File(bundle.get("path") or "", f"ClusterTrustBundle {go_quote(name)}")]
    certificate = source.get("podCertificate") or {}
    paths = {"certificateChainPath": "chain", "keyPath": "key", "credentialBundlePath": "credential bundle"}
    return [_File(certificate[name], f"PodCertificate {text}") for name, text in paths.items() if certificate.get(name)]


def _collisions(files: Iterable[_File], seen: list[_File]) -> Iterator[str]:
    """Yield a text for each pair of files with overlapping paths; append the files to ``seen``."""
    for one in files:
        file = one._replace(path=one.path.rstrip("/"))
        for other in seen if file.path else ():
            longer, shorter = f"{file.path}/", f"{other.path}/"
            if other.path and (longer.startswith(shorter) or shorter.startswith(longer)):
                yield f"{file} with {other}"
        seen.append(file)


def _claim(spec: View, path: str) -> list[str]:
    resources = spec.get("resources") or {}
    return [
        text
        for kind in ("requests", "limits")
        for text in _fractions(resources.get(kind) or {}, child(path, f"resources.{kind}"), ("storage",))
    ]


def claim_warnings(new: View, old: View | None) -> list[str]:
    """Return the warnings about a PersistentVolumeClaim."""
    annotations = new["metadata"].get("annotations") or {}
    found = []
    if _STORAGE_CLASS in annotations:
        found.append(f"{item('metadata.annotations', _STORAGE_CLASS)}: {_VOLUME_ANNOTATIONS[_STORAGE_CLASS]}")
    return found + _claim(_spec(new), "spec")


def volume_warnings(new: View, old: View | None) -> list[str]:
    """Return the warnings about a PersistentVolume."""
    annotations, spec = new["metadata"].get("annotations") or {}, _spec(new)
    found = [
        f"{item('metadata.annotations', key)}: {text}"
        for key, text in _VOLUME_ANNOTATIONS.items()
        if key in annotations
    ]
    if spec.get("persistentVolumeReclaimPolicy") == "Recycle":
        found.append(f"spec.persistentVolumeReclaimPolicy: {_RECYCLE}")
    required = (spec.get("nodeAffinity") or {}).get("required") or {}
    found += _terms(required.get("nodeSelectorTerms"), "spec.nodeAffinity.required.nodeSelectorTerms")
    found += [
        f"spec.{_GO_NAMES.get(field, field)}: {_POD_VOLUMES[field]}"
        for field in _PERSISTENT_VOLUMES
        if spec.get(field) is not None
    ]
    return found


def storage_class_warnings(new: View, old: View | None) -> list[str]:
    """Return the warnings about deprecated node labels in a StorageClass."""
    return [
        f"{item(child(item('allowedTopologies', index), 'matchLabelExpressions'), number)}.key: {_NODE_LABELS[key]}"
        for index, topology in enumerate(new.get("allowedTopologies") or ())
        for number, expression in enumerate(topology.get("matchLabelExpressions") or ())
        if (key := expression.get("key") or "") in _NODE_LABELS
    ]


def storage_capacity_warnings(new: View, old: View | None) -> list[str]:
    """Return the warnings about deprecated node labels in a CSIStorageCapacity."""
    topology = new.get("nodeTopology") or {}
    found = list(_expressions(topology, "nodeTopology", values=False))
    labels = sorted(set(topology.get("matchLabels") or ()) & _NODE_LABELS.keys())
    return found + [f"nodeTopology.matchLabels.{label}: {_NODE_LABELS[label]}" for label in labels]


def csi_driver_warnings(new: View, old: View | None) -> list[str]:
    """Return the warning about a CSIDriver without serviceAccountTokenInSecrets.

    Only a driver with tokenRequests gets the warning. An update gets it only if it changes tokenRequests.
    """
    spec = _spec(new)
    tokens = spec.get("tokenRequests") or []
    if not tokens or spec.get("serviceAccountTokenInSecrets") is not None:
        return []
    return [] if old is not None and (_spec(old).get("tokenRequests") or []) == tokens else [_TOKENS]


# --- other kinds ---


def node_warnings(new: View, old: View | None) -> list[str]:
    """Return the warnings about removed or deprecated fields of a Node, and about its pod CIDRs."""
    spec, found = _spec(new), []
    if spec.get("configSource") is not None:
        found.append("spec.configSource: the feature is removed")
    if spec.get("externalID"):
        found.append("spec.externalID: this field is deprecated, and is unused by Kubernetes")
    for index, text in enumerate(spec.get("podCIDRs") or ()):
        found += ips.network_warnings(item("spec.podCIDRs", index), text)
    return found


def endpoints_warnings(new: View, old: View | None) -> list[str]:
    """Return the warnings about addresses of Endpoints.

    There are none if the endpoints controller manages the Endpoints.
    """
    labels = new["metadata"].get("labels") or {}
    if labels.get("endpoints.kubernetes.io/managed-by") == "endpoint-controller":
        return []
    return [
        text
        for index, subset in enumerate(new.get("subsets") or ())
        for field in ("addresses", "notReadyAddresses")
        for number, address in enumerate(subset.get(field) or ())
        for text in ips.address_warnings(
            item(child(item("subsets", index), field), number) + ".ip", address.get("ip") or ""
        )
    ]


def endpoint_slice_warnings(new: View, old: View | None) -> list[str]:
    """Return the warnings about addresses of an EndpointSlice.

    There are none if a controller of Kubernetes manages the slice. A new EndpointSlice of the deprecated type FQDN
    always gets a warning.
    """
    found = []
    if old is None and new.get("addressType") == "FQDN":
        found.append("spec.addressType: FQDN endpoints are deprecated")
    labels = new["metadata"].get("labels") or {}
    if labels.get("endpointslice.kubernetes.io/managed-by") in _SLICE_WRITERS:
        return found
    for index, endpoint in enumerate(new.get("endpoints") or ()):
        for number, address in enumerate(endpoint.get("addresses") or ()):
            found += ips.address_warnings(item(child(item("endpoints", index), "addresses"), number), address)
    return found


_SLICE_WRITERS = ("endpointslice-controller.k8s.io", "endpointslicemirroring-controller.k8s.io")
_INGRESS_CLASS = "kubernetes.io/ingress.class"


def ingress_warnings(new: View, old: View | None) -> list[str]:
    """Return the warning about the annotation that names the class of a new Ingress."""
    annotations = new["metadata"].get("annotations") or {}
    if old is not None or _INGRESS_CLASS not in annotations or _spec(new).get("ingressClassName") is not None:
        return []
    return [f"annotation {go_quote(_INGRESS_CLASS)} is deprecated, please use 'spec.ingressClassName' instead"]


def ingress_status_warnings(new: View, old: View | None) -> list[str]:
    """Return the warnings about addresses in the status of an Ingress."""
    points = ((new.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
    return [
        text
        for index, point in enumerate(points)
        if point.get("ip")
        for text in ips.address_warnings(item("status.loadBalancer.ingress", index), point["ip"])
    ]


def network_policy_warnings(new: View, old: View | None) -> list[str]:
    """Return the warnings about CIDRs in a NetworkPolicy."""
    found: list[str] = []
    for rules, peers in (("ingress", "from"), ("egress", "to")):
        for index, rule in enumerate(_spec(new).get(rules) or ()):
            for number, peer in enumerate(rule.get(peers) or ()):
                block = peer.get("ipBlock")
                if block is None:
                    continue
                at = child(item(child(item(f"spec.{rules}", index), peers), number), "ipBlock")
                found += ips.network_warnings(child(at, "cidr"), block.get("cidr") or "")
                for place, text in enumerate(block.get("except") or ()):
                    found += ips.network_warnings(item(child(at, "except"), place), text)
    return found


def runtime_class_warnings(new: View, old: View | None) -> list[str]:
    """Return the warnings about deprecated node labels in a RuntimeClass."""
    labels = (new.get("scheduling") or {}).get("nodeSelector") or {}
    return [f"scheduling.nodeSelector: {_NODE_LABELS[key]}" for key in sorted(labels) if key in _NODE_LABELS]


def resource_quota_warnings(new: View, old: View | None) -> list[str]:
    """Return the warnings about a ResourceQuota whose requests exceed its limits."""
    hard, found = _spec(new).get("hard") or {}, []
    for name in ("cpu", "memory", "storage", "ephemeral-storage"):
        request, limit = f"requests.{name}", f"limits.{name}"
        if request not in hard and name in ("cpu", "memory"):
            request = name
        if request in hard and limit in hard and value_of(hard[request]) > value_of(hard[limit]):
            less, more = canonical(hard[request]), canonical(hard[limit])
            found.append(f"ResourceQuota {request} ({less}) should be less than {limit} ({more})")
    return found


_PEM = re.compile(rb"^-----BEGIN ([^\n]*?)-----[ \t\r]*\n(.*?)^-----END \1-----", re.MULTILINE | re.DOTALL)
_PEM_HEADERS = re.compile(rb"(?:[^\n:]+:[^\n]*\n)+[ \t\r]*\n")


def secret_warnings(new: View, old: View | None) -> list[str]:
    """Return the warning about a TLS secret without a certificate or private key in PEM form.

    Unlike upstream, the server neither parses the certificate and the key nor compares them (DIF-023).
    """
    if new.get("type") != "kubernetes.io/tls":
        return []
    data = new.get("data") or {}
    certificate = _pem_types(data.get("tls.crt") or "")
    if "CERTIFICATE" not in certificate:
        if len(certificate) == 1 and certificate[0].endswith("PRIVATE KEY"):
            return [f"tls: failed to find certificate PEM data in certificate input, {_SWITCHED}"]
        return [_no_pem(certificate, "certificate", '"CERTIFICATE" PEM block')]
    key = _pem_types(data.get("tls.key") or "")
    if any(one == "PRIVATE KEY" or one.endswith(" PRIVATE KEY") for one in key):
        return []
    if key == ["CERTIFICATE"]:
        return ["tls: found a certificate rather than a key in the PEM for the private key"]
    return [_no_pem(key, "key", 'PEM block with type ending in "PRIVATE KEY"')]


_SWITCHED = "but did find a private key; PEM inputs may have been switched"


def _no_pem(types: list[str], subject: str, block: str) -> str:
    if not types:
        return f"tls: failed to find any PEM data in {subject} input"
    skipped = " ".join(types)
    return (
        f"tls: failed to find {block} in {subject} input after skipping PEM blocks of the following types: [{skipped}]"
    )


def _pem_types(encoded: str) -> list[str]:
    """Return the types of the PEM blocks in base64 data, such as CERTIFICATE."""
    found = []
    for block in _PEM.finditer(b64decode(encoded)):
        try:
            b64decode(_PEM_HEADERS.sub(b"", block[2], count=1).translate(None, b" \t\r\n"), validate=True)
        except Base64Error:
            continue
        found.append(block[1].decode("utf-8", "replace"))
    return found


def resource_slice_warnings(new: View, old: View | None) -> list[str]:
    """Return the warning about upper-case letters in the driver name of a ResourceSlice."""
    driver = _spec(new).get("driver") or ""
    if driver == driver.lower():
        return []
    return [f"spec.driver: driver names should be lowercase; {go_quote(driver)} contains uppercase characters"]
