"""Validation of pods and their templates (upstream: apis/core/validation): names, ports, mounts, updates."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from apiext.catalog.builtin.core import config_key
from apiext.catalog.builtin.workloads import quality_of
from apiext.documents.document import Document, View
from apiext.documents.equality import same
from apiext.meta import syntax
from apiext.meta.fields import (
    Errors,
    FieldError,
    child,
    duplicate,
    forbidden,
    invalid,
    item,
    not_supported,
    required,
)

MAX_INT32 = 2**31 - 1
_PORT_RANGE = "must be between 1 and 65535, inclusive"
_RESTARTS = ("Always", "Never", "OnFailure")
_PROTOCOLS = ("SCTP", "TCP", "UDP")
_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc", "sleep")
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_COUNTS = ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold")
_INITIAL = "may not be set for init containers without restartPolicy=Always"
_CHANGEABLE = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def not_found(path: str, value: Any) -> FieldError:
    """Return the error of a reference to a missing value."""
    return FieldError("FieldValueNotFound", path, f'Not found: "{value}"')


def at_least_zero(value: Any, path: str) -> Iterator[FieldError]:
    """Yield the error of a negative number."""
    if value is not None and value < 0:
        yield invalid(path, value, "must be greater than or equal to 0")


def _label(value: str, path: str) -> Iterator[FieldError]:
    yield from (invalid(path, value, fault) for fault in syntax.dns1123_label(value))


# --- volumes ---


def _volumes(spec: View, path: str, errors: list[FieldError]) -> dict[str, View]:
    """Return the valid volumes of a pod by their names."""
    found: dict[str, View] = {}
    for index, volume in enumerate(spec.get("volumes") or ()):
        at, name = item(path, index), volume.get("name") or ""
        sources = [field for field, value in volume.items() if field != "name" and value is not None]
        wrong = [forbidden(child(at, field), "may not specify more than 1 volume type") for field in sources[1:]]
        wrong += _label(name, child(at, "name")) if name else [required(child(at, "name"))]
        if name in found:
            wrong.append(duplicate(child(at, "name"), name))
        if wrong:
            errors += wrong
        else:
            found[name] = volume
    return found


def _mounts(container: View, volumes: Mapping[str, View], path: str) -> Iterator[FieldError]:
    seen: set[str] = set()
    devices = container.get("volumeDevices") or ()
    device_names, device_paths = {one.get("name") for one in devices}, {one.get("devicePath") for one in devices}
    for index, mount in enumerate(container.get("volumeMounts") or ()):
        at, name, place = item(path, index), mount.get("name") or "", mount.get("mountPath") or ""
        if not name:
            yield required(child(at, "name"))
        if name not in volumes:
            yield not_found(child(at, "name"), name)
        if not place:
            yield required(child(at, "mountPath"))
        if place in seen:
            yield invalid(child(at, "mountPath"), place, "must be unique")
        seen.add(place)
        if name in device_names:
            yield invalid(child(at, "name"), name, "must not already exist in volumeDevices")
        if place in device_paths:
            text = "must not already exist as a path in volumeDevices"
            yield invalid(child(at, "mountPath"), place, text)


# --- containers ---


def _ports(ports: Sequence[View], path: str) -> Iterator[FieldError]:
    names: set[str] = set()
    for index, port in enumerate(ports):
        at, name = item(path, index), port.get("name") or ""
        faults = syntax.port_name(name) if name else []
        yield from (invalid(child(at, "name"), name, fault) for fault in faults)
        if name and not faults:
            if name in names:
                yield duplicate(child(at, "name"), name)
            names.add(name)
        number = port.get("containerPort") or 0
        if not number:
            yield required(child(at, "containerPort"))
        elif not 1 <= number <= 65535:
            yield invalid(child(at, "containerPort"), number, _PORT_RANGE)
        host = port.get("hostPort") or 0
        if host and not 1 <= host <= 65535:
            yield invalid(child(at, "hostPort"), host, _PORT_RANGE)
        if port.get("protocol") not in _PROTOCOLS:
            yield not_supported(child(at, "protocol"), port.get("protocol") or "", _PROTOCOLS)


def _env(variables: Sequence[View], path: str) -> Iterator[FieldError]:
    for index, variable in enumerate(variables):
        at = item(path, index)
        if not variable.get("name"):
            yield required(child(at, "name"))
        source = variable.get("valueFrom")
        if source is None:
            continue
        at = child(at, "valueFrom")
        given = [name for name, value in source.items() if value is not None]
        if not given:
            yield invalid(
                at, "", "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`"
            )
        elif len(given) > 1:
            yield invalid(at, "", "may not have more than one field specified at a time")
        elif variable.get("value"):
            yield invalid(at, "", "may not be specified when `value` is not empty")
        for name in ("configMapKeyRef", "secretKeyRef"):
            reference = source.get(name)
            if reference is None:
                continue
            if not reference.get("name"):
                yield required(child(child(at, name), "name"))
            key = reference.get("key") or ""
            if not key:
                yield required(child(child(at, name), "key"))
            else:
                yield from (invalid(child(child(at, name), "key"), key, fault) for fault in config_key(key))


def _env_from(sources: Sequence[View], path: str) -> Iterator[FieldError]:
    for index, source in enumerate(sources):
        at = item(path, index)
        given = [name for name in ("configMapRef", "secretRef") if source.get(name) is not None]
        for name in given:
            if not source[name].get("name"):
                yield required(child(child(at, name), "name"))
        if not given:
            yield invalid(path, "", "must specify one of: `configMapRef` or `secretRef`")
        elif len(given) > 1:
            yield invalid(path, "", "may not have more than one field specified at a time")


def _probe(probe: View | None, path: str) -> Iterator[FieldError]:
    if probe is None:
        return
    yield from _handler(probe, path)
    for name in _COUNTS:
        yield from at_least_zero(probe.get(name), child(path, name))
    grace = probe.get("terminationGracePeriodSeconds")
    if grace is not None and grace <= 0:
        yield invalid(child(path, "terminationGracePeriodSeconds"), grace, "must be greater than 0")


def _handler(handler: View, path: str) -> Iterator[FieldError]:
    given = [name for name in _HANDLERS if handler.get(name) is not None]
    if not given:
        yield required(path, "must specify a handler type")
    for name in given[:1]:
        yield from _ACTIONS[name](handler[name], child(path, name))
    for name in given[1:]:
        yield forbidden(child(path, name), "may not specify more than 1 handler type")


def _exec(action: View, path: str) -> Iterator[FieldError]:
    if not action.get("command"):
        yield required(child(path, "command"))


def _http(action: View, path: str) -> Iterator[FieldError]:
    if not action.get("path"):
        yield required(child(path, "path"))
    yield from _port_of(action, path)
    if action.get("scheme") not in ("HTTP", "HTTPS"):
        yield not_supported(child(path, "scheme"), action.get("scheme") or "", ("HTTP", "HTTPS"))


def _port_of(action: View, path: str) -> Iterator[FieldError]:
    port, at = action.get("port", 0), child(path, "port")
    if isinstance(port, str):
        yield from (invalid(at, port, fault) for fault in syntax.port_name(port))
    elif not 1 <= port <= 65535:
        yield invalid(at, port, _PORT_RANGE)


def _grpc(action: View, path: str) -> Iterator[FieldError]:
    port = action.get("port") or 0
    if not 1 <= port <= 65535:
        yield invalid(child(path, "port"), port, _PORT_RANGE)


_ACTIONS: Mapping[str, Any] = {
    "exec": _exec,
    "httpGet": _http,
    "tcpSocket": _port_of,
    "grpc": _grpc,
    "sleep": lambda action, path: (),
}


def _container(container: View, volumes: Mapping[str, View], path: str) -> Iterator[FieldError]:
    """Yield the validation errors of fields that all containers have."""
    name = container.get("name") or ""
    yield from _label(name, child(path, "name")) if name else (required(child(path, "name")),)
    if not container.get("image"):
        yield required(child(path, "image"))
    policy = container.get("terminationMessagePolicy")
    if policy not in ("File", "FallbackToLogsOnError"):
        yield not_supported(child(path, "terminationMessagePolicy"), policy, ("File", "FallbackToLogsOnError"))
    yield from _ports(container.get("ports") or (), child(path, "ports"))
    yield from _env(container.get("env") or (), child(path, "env"))
    yield from _env_from(container.get("envFrom") or (), child(path, "envFrom"))
    yield from _mounts(container, volumes, child(path, "volumeMounts"))
    pull = container.get("imagePullPolicy")
    if pull not in ("Always", "IfNotPresent", "Never"):
        yield not_supported(child(path, "imagePullPolicy"), pull, ("Always", "IfNotPresent", "Never"))


def _containers(spec: View, volumes: Mapping[str, View], path: str) -> Iterator[FieldError]:
    containers: Sequence[View] = spec.get("containers") or ()
    at_all = child(path, "containers")
    if not containers:
        yield required(at_all)
    names: set[str] = set()
    for index, one in enumerate(containers):
        at, name = item(at_all, index), one.get("name") or ""
        yield from _container(one, volumes, at)
        if name in names:
            yield duplicate(child(at, "name"), name)
        names.add(name)
        yield from _running(one, at)
        policy = one.get("restartPolicy")
        if policy is None and one.get("restartPolicyRules"):
            yield required(child(at, "restartPolicy"), "must specify restartPolicy when restart rules are used")
        elif policy is not None and policy not in _RESTARTS:
            yield not_supported(child(at, "restartPolicy"), policy, _RESTARTS)
    if containers:
        yield from _host_ports(containers, at_all)
    at_all = child(path, "initContainers")
    for index, one in enumerate(spec.get("initContainers") or ()):
        at, name = item(at_all, index), one.get("name") or ""
        yield from _container(one, volumes, at)
        if name in names:
            yield duplicate(child(at, "name"), name)
        elif name:
            names.add(name)
        if one.get("restartPolicy") == "Always":
            yield from _running(one, at)
        else:
            for field in ("lifecycle", *_PROBES):
                if one.get(field) is not None:
                    yield forbidden(child(at, field), _INITIAL)


def _running(container: View, path: str) -> Iterator[FieldError]:
    """Yield the validation errors of the hooks and probes of a container that keeps running."""
    yield from _lifecycle(container.get("lifecycle"), child(path, "lifecycle"))
    for name in _PROBES:
        probe, at = container.get(name), child(path, name)
        yield from _probe(probe, at)
        if probe is not None and name != "readinessProbe" and probe.get("successThreshold") != 1:
            yield invalid(child(at, "successThreshold"), probe.get("successThreshold") or 0, "must be 1")


def _lifecycle(lifecycle: View | None, path: str) -> Iterator[FieldError]:
    for name in ("postStart", "preStop"):
        if lifecycle is not None and lifecycle.get(name) is not None:
            yield from _handler(lifecycle[name], child(path, name))


def _host_ports(containers: Sequence[View], path: str) -> Iterator[FieldError]:
    seen: set[tuple[Any, ...]] = set()
    for index, one in enumerate(containers):
        for place, port in enumerate(one.get("ports") or ()):
            host = port.get("hostPort") or 0
            if not host:
                continue
            key = (port.get("protocol"), port.get("hostIP") or "", host)
            if key in seen:
                at = child(item(child(item(path, index), "ports"), place), "hostPort")
                yield duplicate(at, f"{host}/{port.get('protocol')}" if not key[1] else f"{key[1]}:{host}/{key[0]}")
            seen.add(key)


# --- pods ---


def spec_errors(spec: View, path: str) -> list[FieldError]:
    """Return the validation errors of the spec of a pod."""
    errors: list[FieldError] = []
    volumes = _volumes(spec, child(path, "volumes"), errors)
    errors += _containers(spec, volumes, path)
    errors += _ephemeral(spec, volumes, child(path, "ephemeralContainers"))
    errors += _settings(spec, path)
    return errors


def _settings(spec: View, path: str) -> Iterator[FieldError]:
    restart = spec.get("restartPolicy")
    if restart not in ("Always", "OnFailure", "Never"):
        yield not_supported(child(path, "restartPolicy"), restart, ("Always", "Never", "OnFailure"))
    dns, known = spec.get("dnsPolicy"), ("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None")
    if dns not in known:
        yield not_supported(child(path, "dnsPolicy"), dns, known)
    for key, value in sorted((spec.get("nodeSelector") or {}).items()):
        at = child(path, "nodeSelector")
        yield from (invalid(at, key, fault) for fault in syntax.qualified_name(key))
        yield from (invalid(at, value, fault) for fault in syntax.label_value(value))
    for name in ("serviceAccountName", "nodeName"):
        value = spec.get(name) or ""
        if value:
            yield from (invalid(child(path, name), value, fault) for fault in syntax.dns1123_subdomain(value))
    yield from toleration_errors(spec.get("tolerations") or (), child(path, "tolerations"))
    if dns == "None" and spec.get("dnsConfig") is None:
        yield required(child(path, "dnsConfig"), "must provide `dnsConfig` when `dnsPolicy` is None")
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= MAX_INT32:
        text = f"must be between 1 and {MAX_INT32}, inclusive"
        yield invalid(child(path, "activeDeadlineSeconds"), deadline, text)
    for name in ("hostname", "subdomain"):
        if spec.get(name):
            yield from _label(spec[name], child(path, name))
    for name in ("priorityClassName", "runtimeClassName"):
        if spec.get(name):
            faults = syntax.dns1123_subdomain(spec[name])
            yield from (invalid(child(path, name), spec[name], fault) for fault in faults)


_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def toleration_errors(tolerations: Sequence[View], path: str) -> Iterator[FieldError]:
    """Yield the validation errors of tolerations."""
    for index, one in enumerate(tolerations):
        at, key, value = item(path, index), one.get("key") or "", one.get("value") or ""
        operator, effect = one.get("operator") or "", one.get("effect") or ""
        if key:
            yield from (invalid(child(at, "key"), key, fault) for fault in syntax.qualified_name(key))
        elif operator != "Exists":
            text = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
            yield invalid(child(at, "operator"), operator, text)
        if one.get("tolerationSeconds") is not None and effect != "NoExecute":
            text = "effect must be 'NoExecute' when `tolerationSeconds` is set"
            yield invalid(child(at, "effect"), effect, text)
        if operator in ("Equal", ""):
            faults = syntax.label_value(value)
            if faults:
                yield invalid(child(at, "operator"), value, ";".join(faults))
        elif operator == "Exists" and value:
            yield invalid(child(at, "operator"), value, "value must be empty when `operator` is 'Exists'")
        elif operator not in ("Exists", "Gt", "Lt"):
            yield not_supported(child(at, "operator"), operator, ("Equal", "Exists"))
        if effect and effect not in _EFFECTS:
            yield not_supported(child(at, "effect"), effect, _EFFECTS)


def template_errors(template: View, path: str) -> list[FieldError]:
    """Return the validation errors of the template of a pod."""
    errors: list[FieldError] = []
    labels = (template.get("metadata") or {}).get("labels") or {}
    for key, value in sorted(labels.items()):
        at = child(path, "labels")
        errors += (invalid(at, key, fault) for fault in syntax.qualified_name(key))
        errors += (invalid(at, value, fault) for fault in syntax.label_value(value))
    for key in sorted((template.get("metadata") or {}).get("annotations") or {}):
        at = child(path, "annotations")
        errors += (invalid(at, key, fault) for fault in syntax.qualified_name(key.lower()))
    spec = template.get("spec") or {}
    errors += spec_errors(spec, child(path, "spec"))
    if spec.get("ephemeralContainers"):
        text = "ephemeral containers not allowed in pod template"
        errors.append(forbidden(child(child(path, "spec"), "ephemeralContainers"), text))
    return errors


def validate_pod(new: View, old: View | None) -> list[FieldError]:
    """Return the validation errors of a pod; an update that does not change the spec does not validate it."""
    spec = new.get("spec") or {}
    if old is not None and new.get("spec") == old.get("spec"):
        return []
    errors = Errors(spec_errors(spec, "spec"))
    if old is None:
        if spec.get("ephemeralContainers"):
            errors.append(forbidden("spec.ephemeralContainers", "cannot be set on create"))
        return errors
    errors += _changes(spec, old.get("spec") or {})
    return errors


def validate_ephemeral(new: View, old: View | None) -> list[FieldError]:
    """Return the validation errors of new ephemeral containers of a pod."""
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


def _ephemeral(spec: View, volumes: Mapping[str, View], path: str) -> Iterator[FieldError]:
    others = {one.get("name") for field in ("containers", "initContainers") for one in spec.get(field) or ()}
    names = set(others)
    for index, one in enumerate(spec.get("ephemeralContainers") or ()):
        at, name, target = item(path, index), one.get("name") or "", one.get("targetContainerName")
        yield from _container(one, volumes, at)
        if name in names:
            yield duplicate(child(at, "name"), name)
        names.add(name)
        if target and target not in others:
            yield not_found(child(at, "targetContainerName"), target)
        for field in _NOT_EPHEMERAL:
            if one.get(field):
                yield forbidden(child(at, field), _FOR_EPHEMERAL)
        for place, mount in enumerate(one.get("volumeMounts") or ()):
            for field in ("subPath", "subPathExpr"):
                if mount.get(field):
                    yield forbidden(child(item(child(at, "volumeMounts"), place), field), _FOR_EPHEMERAL)


_NOT_EPHEMERAL = ("ports", "resources", "livenessProbe", "readinessProbe", "startupProbe", "lifecycle")
_FOR_EPHEMERAL = "cannot be set for an Ephemeral Container"


def validate_resize(new: View, old: View | None) -> list[FieldError]:
    """Return the validation errors of new resources of a pod's containers."""
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
    """Return a pod's spec without the CPU and memory of its containers."""
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
    """Yield the validation errors of an update of a pod's spec; the node affinity of a gated pod may change freely."""
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
    """Return the part of a pod's spec that no update may change."""
    found = _without(spec, "activeDeadlineSeconds", "tolerations", "schedulingGates")
    for name in ("containers", "initContainers"):
        found[name] = [_without(one, "image") for one in spec.get(name) or ()]
    if gated:
        found = {**_without(found, "nodeSelector"), "affinity": _without(spec.get("affinity") or {}, "nodeAffinity")}
    return found


def _without(document: View, *names: str) -> Document:
    return {name: value for name, value in document.items() if name not in names}


def supported(value: Any, path: str, known: Iterable[str]) -> Iterator[FieldError]:
    """Yield the error of a value outside an enumeration."""
    if value not in tuple(known):
        yield not_supported(path, value, known)
