"""Validation of pods, pod templates, and updates of pods (upstream: apis/core/validation)."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from apiext.catalog.builtin import ips
from apiext.catalog.builtin.annotation_rules import changed_annotation_errors, pod_annotation_errors, profile_errors
from apiext.catalog.builtin.containers import Pod, container_errors, image_errors
from apiext.catalog.builtin.node_selectors import affinity_errors, spread_errors, toleration_errors
from apiext.catalog.builtin.quantity_rules import requirement_errors, sum_of
from apiext.catalog.builtin.rules import type_errors
from apiext.catalog.builtin.security_contexts import (
    every_container,
    host_process_errors,
    pod_context_errors,
    system_errors,
)
from apiext.catalog.builtin.volume_sources import pod_source_errors
from apiext.catalog.builtin.workloads import quality_of
from apiext.documents.document import Document, View
from apiext.documents.equality import same
from apiext.go_types.quantities import value_of
from apiext.meta import objectmeta, syntax
from apiext.meta.fields import (
    Errors,
    FieldError,
    child,
    duplicate,
    forbidden,
    invalid,
    item,
    not_found,
    not_supported,
    required,
    too_long,
)

MAX_INT32 = 2**31 - 1
_RESTARTS = ("Always", "OnFailure", "Never")
_DNS_POLICIES = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
_PREEMPTIONS = ("PreemptLowerPriority", "Never")
_MAX_SERVERS, _MAX_SEARCHES, _MAX_SEARCH_TEXT = 3, 32, 2048
_MAX_HOSTNAME = 64
_CHANGEABLE = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def at_least_zero(value: Any, path: str) -> Iterator[FieldError]:
    """Yield the error of a negative number."""
    if value is not None and value < 0:
        yield invalid(path, value, "must be greater than or equal to 0")


def _subdomain(value: str, path: str) -> Iterator[FieldError]:
    yield from (invalid(path, value, fault) for fault in syntax.dns1123_subdomain(value))


def _label(value: str, path: str) -> Iterator[FieldError]:
    yield from (invalid(path, value, fault) for fault in syntax.dns1123_label(value))


# --- volumes and claims ---


def _volumes(spec: View, path: str, errors: list[FieldError], pod: str) -> dict[str, View]:
    """Return the valid volumes of a pod by name; append the errors of all volumes to ``errors``.

    A volume also counts as valid if its only error is that it uses the claim of an ephemeral volume of the pod.
    """
    volumes: Sequence[View] = spec.get("volumes") or ()
    created = {f"{pod}-{one.get('name') or ''}" for one in volumes if pod and one.get("ephemeral") is not None}
    found: dict[str, View] = {}
    for index, volume in enumerate(volumes):
        at, name = item(path, index), volume.get("name") or ""
        wrong = list(pod_source_errors(volume, at, pod))
        wrong += _label(name, child(at, "name")) if name else [required(child(at, "name"))]
        if name in found:
            wrong.append(duplicate(child(at, "name"), name))
        if wrong:
            errors += wrong
        else:
            found[name] = volume
        claim = (volume.get("persistentVolumeClaim") or {}).get("claimName")
        if claim in created:
            text = "must not reference a PVC that gets created for an ephemeral volume"
            errors.append(invalid(child(at, "persistentVolumeClaim.claimName"), claim, text))
    return found


def _claims(claims: Sequence[View], path: str) -> Iterator[FieldError]:
    names: set[str] = set()
    for index, one in enumerate(claims):
        at, name = item(path, index), one.get("name") or ""
        if not name:
            yield required(child(at, "name"))
        elif name in names:
            yield duplicate(child(at, "name"), name)
        else:
            yield from _label(name, child(at, "name"))
            names.add(name)
        given = [field for field in ("resourceClaimName", "resourceClaimTemplateName") if one.get(field) is not None]
        if len(given) > 1:
            text = "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
            yield invalid(at, one, text)
        elif not given:
            text = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
            yield invalid(at, one, text)
        for field in given:
            yield from _subdomain(one[field], child(at, field))


# --- pods ---


def spec_errors(spec: View, path: str, pod: str = "") -> list[FieldError]:
    """Return the validation errors of the spec of a pod or of a pod template.

    ``pod`` is the name of a pod. It is empty for a template, a resize, and an update of ephemeral containers.
    """
    errors: list[FieldError] = []
    volumes = _volumes(spec, child(path, "volumes"), errors, pod)
    claims = spec.get("resourceClaims") or ()
    errors += _claims(claims, child(path, "resourceClaims"))
    found = Pod(volumes, {one["name"] for one in claims if one.get("name")}, spec)
    errors += container_errors(found, path)
    errors += _resources(found, path)
    errors += _settings(spec, path)
    return errors


def _settings(spec: View, path: str) -> Iterator[FieldError]:
    yield from _host_network(spec, path)
    yield from _one_of(spec.get("restartPolicy"), child(path, "restartPolicy"), _RESTARTS)
    yield from _one_of(spec.get("dnsPolicy"), child(path, "dnsPolicy"), _DNS_POLICIES)
    yield from objectmeta.label_errors(spec.get("nodeSelector") or {}, child(path, "nodeSelector"))
    yield from pod_context_errors(spec, path)
    if spec.get("shareProcessNamespace") and spec.get("hostPID"):
        text = "ShareProcessNamespace and HostPID cannot both be enabled"
        yield invalid(child(path, "shareProcessNamespace"), True, text)
    yield from affinity_errors(spec.get("affinity"), child(path, "affinity"))
    yield from _dns(spec, child(path, "dnsConfig"))
    for index, gate in enumerate(spec.get("readinessGates") or ()):
        yield from type_errors("PodReadinessGate", gate, item(child(path, "readinessGates"), index))
    yield from _scheduling_gates(spec.get("schedulingGates") or (), child(path, "schedulingGates"))
    yield from spread_errors(spec.get("topologySpreadConstraints") or (), child(path, "topologySpreadConstraints"))
    yield from host_process_errors(spec, path)
    if spec.get("hostUsers") is False:
        for field, shown in (("hostPID", "HostPID"), ("hostIPC", "HostIPC")):
            if spec.get(field):
                yield forbidden(child(path, shown), "when `hostUsers` is false")
        for container, at in every_container(spec, path):
            if container.get("volumeDevices"):
                yield forbidden(child(at, "volumeDevices"), "when `hostUsers` is false")
    yield from _hostname_override(spec, path)
    yield from _names(spec, path)
    if spec.get("overhead") is not None:
        yield from requirement_errors({"limits": spec["overhead"]}, child(path, "overhead"))
    yield from system_errors(spec, path)
    yield from _files(spec, path)


def _names(spec: View, path: str) -> Iterator[FieldError]:
    """Yield the errors of names, deadline, tolerations, host aliases and preemption policy."""
    for name in ("serviceAccountName", "nodeName"):
        if spec.get(name):
            yield from _subdomain(spec[name], child(path, name))
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= MAX_INT32:
        text = f"must be between 1 and {MAX_INT32}, inclusive"
        yield invalid(child(path, "activeDeadlineSeconds"), deadline, text)
    for name in ("hostname", "subdomain"):
        if spec.get(name):
            yield from _label(spec[name], child(path, name))
    yield from toleration_errors(spec.get("tolerations") or (), child(path, "tolerations"))
    for index, alias in enumerate(spec.get("hostAliases") or ()):
        at = item(child(path, "hostAliases"), index)
        yield from ips.address_errors(child(at, "ip"), alias.get("ip") or "", ())
        for place, name in enumerate(alias.get("hostnames") or ()):
            yield from _subdomain(name, item(child(at, "hostnames"), place))
    if spec.get("priorityClassName"):
        yield from _subdomain(spec["priorityClassName"], child(path, "priorityClassName"))
    if spec.get("runtimeClassName") is not None:
        yield from _subdomain(spec["runtimeClassName"], child(path, "runtimeClassName"))
    if spec.get("preemptionPolicy") is not None:
        yield from _one_of(spec["preemptionPolicy"], child(path, "preemptionPolicy"), _PREEMPTIONS)


def _one_of(value: Any, path: str, known: Sequence[str]) -> Iterator[FieldError]:
    if not value:
        yield required(path)
    elif value not in known:
        yield not_supported(path, value, known)


def _host_network(spec: View, path: str) -> Iterator[FieldError]:
    if not spec.get("hostNetwork"):
        return
    for index, container in enumerate(spec.get("containers") or ()):
        for place, port in enumerate(container.get("ports") or ()):
            host = port.get("hostPort") or 0
            if host and host != (port.get("containerPort") or 0):
                at = child(item(child(item(child(path, "containers"), index), "ports"), place), "hostPort")
                yield invalid(at, host, "must match `containerPort` when `hostNetwork` is true")


def _dns(spec: View, path: str) -> Iterator[FieldError]:
    config = spec.get("dnsConfig")
    servers = (config or {}).get("nameservers") or ()
    if spec.get("dnsPolicy") == "None":
        if config is None:
            yield required(path, "must provide `dnsConfig` when `dnsPolicy` is None")
            return
        if not servers:
            text = "must provide at least one DNS nameserver when `dnsPolicy` is None"
            yield required(child(path, "nameservers"), text)
            return
    if config is None:
        return
    at = child(path, "nameservers")
    if len(servers) > _MAX_SERVERS:
        yield invalid(at, list(servers), f"must not have more than {_MAX_SERVERS} nameservers")
    for index, server in enumerate(servers):
        yield from ips.address_errors(item(at, index), server, ())
    searches, at = config.get("searches") or (), child(path, "searches")
    if len(searches) > _MAX_SEARCHES:
        yield invalid(at, list(searches), f"must not have more than {_MAX_SEARCHES} search paths")
    if len(" ".join(searches).encode()) > _MAX_SEARCH_TEXT:
        text = f"must not have more than {_MAX_SEARCH_TEXT} characters (including spaces) in the search list"
        yield invalid(at, list(searches), text)
    for index, search in enumerate(searches):
        domain = search.removesuffix(".")
        if search != ".":
            yield from (invalid(item(at, index), domain, fault) for fault in syntax.subdomain_with_underscores(domain))
    for index, option in enumerate(config.get("options") or ()):
        if not option.get("name"):
            yield required(item(child(path, "options"), index), "must not be empty")


def _scheduling_gates(gates: Sequence[View], path: str) -> Iterator[FieldError]:
    seen: set[str] = set()
    for index, gate in enumerate(gates):
        name = gate.get("name") or ""
        yield from (invalid(item(path, index), name, fault) for fault in syntax.qualified_name(name))
        if name in seen:
            yield duplicate(item(path, index), name)
        seen.add(name)


def _hostname_override(spec: View, path: str) -> Iterator[FieldError]:
    name, path_of_name = spec.get("hostnameOverride"), child(path, "hostnameOverride")
    if name is None:
        return
    for field in ("setHostnameAsFQDN", "hostNetwork"):
        if spec.get(field):
            yield forbidden(path_of_name, f"may not be specified when {field} is true")
    if len(name.encode()) > _MAX_HOSTNAME:
        yield too_long(path_of_name, _MAX_HOSTNAME)
    yield from _subdomain(name, path_of_name)


def _files(spec: View, path: str) -> Iterator[FieldError]:
    """Yield the validation errors of environment variables that a container reads from files.

    The volume of such a file must be an emptyDir.
    """
    volumes = {one.get("name") or "": one for one in spec.get("volumes") or ()}
    for container, at in every_container(spec, path):
        for index, variable in enumerate(container.get("env") or ()):
            source = (variable.get("valueFrom") or {}).get("fileKeyRef")
            if source is None:
                continue
            name, here = source.get("volumeName") or "", item(child(at, "env"), index)
            here = child(here, "valueFrom.fileKeyRef.volumeName")
            if name not in volumes:
                yield not_found(here, name)
            elif volumes[name].get("emptyDir") is None:
                yield invalid(here, name, "referenced volume must be of type emptyDir")


def _resources(pod: Pod, path: str) -> Iterator[FieldError]:
    """Yield the validation errors of ``spec.resources``, the resources of the whole pod."""
    resources, at = pod.spec.get("resources"), child(path, "resources")
    if resources is None:
        return
    if (pod.spec.get("os") or {}).get("name") == "windows":
        yield forbidden(at, "may not be set for a windows pod")
        return
    if resources.get("claims") is not None:
        yield forbidden(child(at, "claims"), "claims may not be set for Resources at pod-level")
    yield from requirement_errors(resources, at, pod.claims, of_pod=True)
    requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
    for name, wanted in _wanted(pod.spec).items():
        if name in requests and value_of(wanted) > value_of(requests[name]):
            text = f"must be greater than or equal to aggregate container requests of {wanted}"
            yield invalid(item(child(at, "requests"), name), requests[name], text)
    for index, container in enumerate(pod.spec.get("containers") or ()):
        for name, limit in ((container.get("resources") or {}).get("limits") or {}).items():
            if name in limits and value_of(limit) > value_of(limits[name]):
                here = child(item(item(child(at, "containers"), index), name), "limits")
                yield invalid(here, limit, f"must be less than or equal to pod limits of {limits[name]}")


def _wanted(spec: View) -> dict[str, str]:
    """Return resource → the sum of the requests of a pod's containers and sidecars."""
    found: dict[str, list[str]] = {}
    beside = (one for one in spec.get("initContainers") or () if one.get("restartPolicy") == "Always")
    for container in (*(spec.get("containers") or ()), *beside):
        for name, quantity in ((container.get("resources") or {}).get("requests") or {}).items():
            found.setdefault(name, []).append(quantity)
    return {name: sum_of(quantities) for name, quantities in found.items()}


def template_errors(template: View, path: str) -> list[FieldError]:
    """Return the validation errors of a pod template."""
    metadata: View = template.get("metadata") or {}
    annotations: Mapping[str, str] = metadata.get("annotations") or {}
    spec: View = template.get("spec") or {}
    errors: list[FieldError] = list(objectmeta.label_errors(metadata.get("labels") or {}, child(path, "labels")))
    errors += objectmeta.annotation_errors(annotations, child(path, "annotations"))
    errors += pod_annotation_errors(annotations, spec, child(path, "annotations"))
    errors += spec_errors(spec, child(path, "spec"))
    errors += profile_errors(annotations, spec, child(path, "spec"))
    if spec.get("ephemeralContainers"):
        text = "ephemeral containers not allowed in pod template"
        errors.append(forbidden(child(child(path, "spec"), "ephemeralContainers"), text))
    return errors


def _pod(new: View) -> Iterator[FieldError]:
    """Yield the validation errors of a pod, in upstream's order."""
    spec, metadata = new.get("spec") or {}, new.get("metadata") or {}
    yield from pod_annotation_errors(metadata.get("annotations") or {}, spec, "metadata.annotations")
    yield from spec_errors(spec, "spec", metadata.get("name") or "")
    if not spec.get("serviceAccountName"):
        for index, volume in enumerate(spec.get("volumes") or ()):
            for place, source in enumerate((volume.get("projected") or {}).get("sources") or ()):
                if source.get("serviceAccountToken") is not None:
                    at = f"spec.volumes[{index}].projected.sources[{place}].serviceAccountToken"
                    yield forbidden(at, "must not be specified when serviceAccountName is not set")
    yield from at_least_zero(spec.get("terminationGracePeriodSeconds"), "spec.terminationGracePeriodSeconds")
    for field in ("containers", "initContainers"):
        for index, container in enumerate(spec.get(field) or ()):
            yield from image_errors(container, f"spec.{field}[{index}]")


def _annotations(pod: View) -> Mapping[str, str]:
    return (pod.get("metadata") or {}).get("annotations") or {}


def validate_pod(new: View, old: View | None) -> list[FieldError]:
    """Return the validation errors of a pod.

    An update that changes neither spec nor annotations has no errors.
    """
    spec, annotations = new.get("spec") or {}, _annotations(new)
    if old is not None and new.get("spec") == old.get("spec"):
        before = _annotations(old)
        if annotations == before:
            return []
        errors = Errors(pod_annotation_errors(annotations, spec, "metadata.annotations"))
        errors += changed_annotation_errors(annotations, before, "metadata.annotations")
        return errors
    errors = Errors(_pod(new))
    if old is None:
        if spec.get("ephemeralContainers"):
            errors.append(forbidden("spec.ephemeralContainers", "cannot be set on create"))
        if spec.get("nodeName") and spec.get("schedulingGates"):
            errors.append(forbidden("spec.nodeName", "cannot be set until all schedulingGates have been cleared"))
        errors += profile_errors(annotations, spec, "spec")
        return errors
    errors += changed_annotation_errors(annotations, _annotations(old), "metadata.annotations")
    errors += _changes(spec, old.get("spec") or {})
    return errors


def validate_ephemeral(new: View, old: View | None) -> list[FieldError]:
    """Return the validation errors of an update of the ephemeral containers of a pod."""
    spec, before = new.get("spec") or {}, (old or {}).get("spec") or {}
    errors = Errors(spec_errors(spec, "spec"))
    path = "spec.ephemeralContainers"
    now = {one.get("name"): one for one in spec.get("ephemeralContainers") or ()}
    for one in before.get("ephemeralContainers") or ():
        name = one.get("name")
        if name not in now:
            errors.append(forbidden(path, f'existing ephemeral containers "{name}" may not be removed\n'))
        elif not same(one, now[name]):
            errors.append(forbidden(path, f'existing ephemeral containers "{name}" may not be changed\n'))
    return errors


def validate_resize(new: View, old: View | None) -> list[FieldError]:
    """Return the validation errors of a resize, a change of the resources of a pod's containers."""
    spec, before = new.get("spec") or {}, (old or {}).get("spec") or {}
    errors = Errors(spec_errors(spec, "spec"))
    quality = (new.get("status") or {}).get("qosClass") or quality_of(before)
    if quality != quality_of(spec):
        errors.append(invalid("spec", quality, "Pod QOS Class may not change as a result of resizing"))
    moved = [*_reordered(spec, before, "containers"), *_reordered(spec, before, "initContainers")]
    if moved:
        return [*errors, *moved]
    for field in ("initContainers", "containers"):
        for index, (one, was) in enumerate(zip(spec.get(field) or (), before.get(field) or (), strict=True)):
            errors += _removed(one, was, child(item(f"spec.{field}", index), "resources"))
    if not same(_unsized(spec), _unsized(before)):
        errors.append(forbidden("spec", "only cpu and memory resources are mutable"))
    return errors


def _reordered(spec: View, before: View, field: str) -> Iterator[FieldError]:
    now, was = spec.get(field) or (), before.get(field) or ()
    if len(now) != len(was):
        yield forbidden(f"spec.{field}", f"{field} may not be added or removed on resize")
        return
    for index, (one, other) in enumerate(zip(now, was, strict=True)):
        if one.get("name") != other.get("name"):
            yield forbidden(f"spec.{field}[{index}].name", f"{field} may not be renamed or reordered on resize")


def _removed(container: View, was: View, path: str) -> Iterator[FieldError]:
    for part in ("requests", "limits"):
        now = (container.get("resources") or {}).get(part) or {}
        if any(name not in now for name in (was.get("resources") or {}).get(part) or {}):
            yield forbidden(child(path, part), f"resource {part} cannot be removed")


def _unsized(spec: View) -> Document:
    """Return a pod's spec without the resources that a resize may change.

    These are the pod-level resources, and the CPU and memory of its containers.
    """
    found = _without(spec, "resources")
    for field in ("containers", "initContainers"):
        found[field] = [
            {**one, "resources": {part: _others(value) for part, value in (one.get("resources") or {}).items()}}
            for one in spec.get(field) or ()
        ]
    return found


def _others(resources: Any) -> Any:
    return _without(resources, "cpu", "memory") if isinstance(resources, Mapping) else resources


def _changes(spec: View, before: View) -> Iterator[FieldError]:
    """Yield the validation errors of an update of a pod's spec.

    If the stored pod has scheduling gates, an update may add keys to its node selector, and change its node affinity.
    """
    for name in ("containers", "initContainers"):
        if len(spec.get(name) or ()) != len(before.get(name) or ()):
            yield forbidden(f"spec.{name}", "pod updates may not add or remove containers")
            return
    for name in ("containers", "initContainers"):
        for index, one in enumerate(spec.get(name) or ()):
            if not (one.get("image") or "").strip():
                yield required(f"spec.{name}[{index}].image")
    deadline, was = spec.get("activeDeadlineSeconds"), before.get("activeDeadlineSeconds")
    if was is not None and deadline is None:
        yield invalid("spec.activeDeadlineSeconds", None, "must not update from a positive integer to nil value")
    elif was is not None and deadline > was:
        yield invalid("spec.activeDeadlineSeconds", deadline, "must be less than or equal to previous value")
    tolerated = [_without(one, "tolerationSeconds") for one in spec.get("tolerations") or ()]
    if any(_without(one, "tolerationSeconds") not in tolerated for one in before.get("tolerations") or ()):
        yield forbidden("spec.tolerations", "existing toleration can not be modified except its tolerationSeconds")
    gates = {one.get("name") for one in before.get("schedulingGates") or ()}
    for index, gate in enumerate(spec.get("schedulingGates") or ()):
        if gate.get("name") not in gates:
            text = f"only deletion is allowed, but found new scheduling gate '{gate.get('name')}'"
            yield forbidden(f"spec.schedulingGates[{index}].name", text)
    selector = spec.get("nodeSelector") or {}
    if gates and any(selector.get(key) != value for key, value in (before.get("nodeSelector") or {}).items()):
        text = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
        yield invalid("spec.nodeSelector", selector or None, text)
    if not same(_fixed(spec, gated=bool(gates)), _fixed(before, gated=bool(gates))):
        yield forbidden("spec", _CHANGEABLE)


def _fixed(spec: View, *, gated: bool) -> View:
    """Return the part of a pod's spec that an update must not change.

    ``gated`` is true if the stored pod has scheduling gates.
    """
    found = _without(spec, "activeDeadlineSeconds", "tolerations", "schedulingGates")
    for name in ("containers", "initContainers"):
        found[name] = [_without(one, "image") for one in spec.get(name) or ()]
    if gated:
        found = {**_without(found, "nodeSelector"), "affinity": _without(spec.get("affinity") or {}, "nodeAffinity")}
    return found


def _without(document: View, *names: str) -> Document:
    return {name: value for name, value in document.items() if name not in names}


def supported(value: Any, path: str, known: Iterable[str]) -> Iterator[FieldError]:
    """Yield the error of a value that is not in ``known``."""
    if value not in tuple(known):
        yield not_supported(path, value, known)
