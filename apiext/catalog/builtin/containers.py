"""Validation of the containers of a pod (upstream: apis/core/validation)."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from apiext.catalog.builtin.quantity_rules import requirement_errors
from apiext.catalog.builtin.rules import type_errors
from apiext.catalog.builtin.security_contexts import context_errors
from apiext.catalog.builtin.volume_sources import field_selector_errors, resource_selector_errors
from apiext.documents.document import View
from apiext.meta import syntax
from apiext.meta.fields import (
    FieldError,
    Named,
    child,
    duplicate,
    forbidden,
    invalid,
    item,
    not_found,
    not_supported,
    required,
    too_many,
)

_PORT_RANGE = "must be between 1 and 65535, inclusive"
_RESTARTS = ("Always", "Never", "OnFailure")
_PROTOCOLS = ("SCTP", "TCP", "UDP")
_PULLS = ("Always", "IfNotPresent", "Never")
_MESSAGES = ("File", "FallbackToLogsOnError")
_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc", "sleep")
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_INITIAL = "may not be set for init containers without restartPolicy=Always"
_FIELDS = (
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
)
_ENVIRONMENT = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef", "fileKeyRef")
_PROPAGATIONS = ("Bidirectional", "HostToContainer", "None")
_RECURSIVE = ("Disabled", "Enabled", "IfPossible")
_MAX_RULES, _MAX_CODES = 20, 255
_ACTIONS = ("Restart", "RestartAllContainers")
_NOT_EPHEMERAL = (
    "ports",
    "resources",
    "resizePolicy",
    "restartPolicy",
    "restartPolicyRules",
    "livenessProbe",
    "readinessProbe",
    "startupProbe",
    "lifecycle",
)
_FOR_EPHEMERAL = "cannot be set for an Ephemeral Container"


class Pod(NamedTuple):
    """The parts of a pod that its containers refer to: volumes, resource claims and the spec.

    ``volumes`` has the valid volumes by name; ``claims`` has the names of the resource claims.
    """

    volumes: Mapping[str, View]
    claims: Collection[str]
    spec: View

    @property
    def grace(self) -> int | None:
        """The pod's terminationGracePeriodSeconds, None if it is absent."""
        found: int | None = self.spec.get("terminationGracePeriodSeconds")
        return found

    @property
    def host_users(self) -> bool:
        """True unless the pod has its own user namespace."""
        return self.spec.get("hostUsers") is not False


def container_errors(pod: Pod, path: str) -> Iterator[FieldError]:
    """Yield the validation errors of all containers of a pod."""
    yield from _regular(pod, child(path, "containers"))
    yield from _initial(pod, child(path, "initContainers"))
    yield from _ephemeral(pod, child(path, "ephemeralContainers"))


def _regular(pod: Pod, path: str) -> Iterator[FieldError]:
    containers: Sequence[View] = pod.spec.get("containers") or ()
    if not containers:
        yield required(path)
        return
    names: set[str] = set()
    for index, one in enumerate(containers):
        at, name = item(path, index), one.get("name") or ""
        yield from _container(one, pod, at)
        if name in names:
            yield duplicate(child(at, "name"), name)
        names.add(name)
        yield from _running(one, pod, at)
        yield from _restart(one, at)
    yield from _host_ports(containers, path)


def _initial(pod: Pod, path: str) -> Iterator[FieldError]:
    names = {one.get("name") or "" for one in pod.spec.get("containers") or ()}
    for index, one in enumerate(pod.spec.get("initContainers") or ()):
        at, name, restart = item(path, index), one.get("name") or "", one.get("restartPolicy")
        yield from _container(one, pod, at)
        yield from _restart(one, at)
        if name in names:
            yield duplicate(child(at, "name"), name)
        elif name:
            names.add(name)
        yield from _host_ports((one,), path)
        if restart == "Always":
            yield from _running(one, pod, at)
            continue
        for field in ("lifecycle", *_PROBES):
            if one.get(field) is not None:
                yield forbidden(child(at, field), _INITIAL)
        for place, policy in enumerate(one.get("resizePolicy") or ()):
            if policy.get("restartPolicy") == "RestartContainer":
                text = "must not be set to 'RestartContainer' for non-sidecar initContainers"
                here = child(item(child(at, "resizePolicy"), place), "restartPolicy")
                yield invalid(here, Named("RestartContainer"), text)


def _ephemeral(pod: Pod, path: str) -> Iterator[FieldError]:
    others = {one.get("name") or "" for field in ("containers", "initContainers") for one in pod.spec.get(field) or ()}
    names = set(others)
    for index, one in enumerate(pod.spec.get("ephemeralContainers") or ()):
        at, name, target = item(path, index), one.get("name") or "", one.get("targetContainerName")
        yield from _container(one, pod, at)
        yield from image_errors(one, at)
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


def image_errors(container: View, path: str) -> Iterator[FieldError]:
    """Yield the error of an image with spaces around its name.

    As upstream, the server does not validate this in the regular and init containers of pod templates.
    """
    image = container.get("image") or ""
    if image.strip() != image:
        yield invalid(child(path, "image"), image, "must not have leading or trailing whitespace")


def _container(container: View, pod: Pod, path: str) -> Iterator[FieldError]:
    """Yield the validation errors of fields that are common to all containers."""
    name, at = container.get("name") or "", child(path, "name")
    yield from (invalid(at, name, fault) for fault in syntax.dns1123_label(name)) if name else (required(at),)
    if not container.get("image"):
        yield required(child(path, "image"))
    policy = container.get("terminationMessagePolicy") or ""
    if not policy:
        yield required(child(path, "terminationMessagePolicy"))
    elif policy not in _MESSAGES:
        yield not_supported(child(path, "terminationMessagePolicy"), policy, _MESSAGES)
    yield from _ports(container.get("ports") or (), child(path, "ports"))
    yield from _environment(container.get("env") or (), child(path, "env"))
    yield from _environment_sources(container.get("envFrom") or (), child(path, "envFrom"))
    yield from _mounts(container, pod.volumes, child(path, "volumeMounts"))
    yield from _devices(container, pod.volumes, child(path, "volumeDevices"))
    pull = container.get("imagePullPolicy") or ""
    if not pull:
        yield required(child(path, "imagePullPolicy"))
    elif pull not in _PULLS:
        yield not_supported(child(path, "imagePullPolicy"), pull, _PULLS)
    yield from requirement_errors(container.get("resources"), child(path, "resources"), pod.claims)
    yield from _resize(container.get("resizePolicy") or (), pod, child(path, "resizePolicy"))
    at = child(path, "securityContext")
    yield from context_errors(container.get("securityContext"), at, host_users=pod.host_users)


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
        number, host, protocol = port.get("containerPort") or 0, port.get("hostPort") or 0, port.get("protocol") or ""
        if not number:
            yield required(child(at, "containerPort"))
        elif not 1 <= number <= 65535:
            yield invalid(child(at, "containerPort"), number, _PORT_RANGE)
        if host and not 1 <= host <= 65535:
            yield invalid(child(at, "hostPort"), host, _PORT_RANGE)
        if not protocol:
            yield required(child(at, "protocol"))
        elif protocol not in _PROTOCOLS:
            yield not_supported(child(at, "protocol"), protocol, _PROTOCOLS)


def _host_ports(containers: Sequence[View], path: str) -> Iterator[FieldError]:
    seen: set[str] = set()
    for index, one in enumerate(containers):
        for place, port in enumerate(one.get("ports") or ()):
            host = port.get("hostPort") or 0
            key = f"{port.get('protocol') or ''}/{port.get('hostIP') or ''}/{host}"
            if host and key in seen:
                yield duplicate(child(item(child(item(path, index), "ports"), place), "hostPort"), key)
            if host:
                seen.add(key)


def _resize(policies: Sequence[View], pod: Pod, path: str) -> Iterator[FieldError]:
    seen: set[str] = set()
    for index, one in enumerate(policies):
        name, restart = one.get("resourceName") or "", one.get("restartPolicy") or ""
        if name in seen:
            yield duplicate(item(path, index), Named(name))
        seen.add(name)
        for value, supported_values in ((name, ("cpu", "memory")), (restart, ("NotRequired", "RestartContainer"))):
            if not value:
                yield required(path)
            elif value not in supported_values:
                yield not_supported(path, value, supported_values)
        if pod.spec.get("restartPolicy") == "Never" and restart != "NotRequired":
            yield invalid(path, Named(restart), "must be 'NotRequired' when pod `restartPolicy` is 'Never'")


def _restart(container: View, path: str) -> Iterator[FieldError]:
    policy, rules = container.get("restartPolicy"), container.get("restartPolicyRules") or ()
    at = child(path, "restartPolicy")
    if policy is None and rules:
        yield required(at, "must specify restartPolicy when restart rules are used")
    elif policy is not None and policy not in _RESTARTS:
        yield not_supported(at, policy, _RESTARTS)
    at = child(path, "restartPolicyRules")
    if len(rules) > _MAX_RULES:
        yield too_many(at, len(rules), _MAX_RULES)
    for index, rule in enumerate(rules):
        here, codes = item(at, index), rule.get("exitCodes")
        if rule.get("action") not in _ACTIONS:
            yield not_supported(child(here, "action"), rule.get("action") or "", _ACTIONS)
        if codes is None:
            yield required(child(here, "exitCodes"), "must be specified")
            continue
        if codes.get("operator") not in ("In", "NotIn"):
            yield not_supported(child(here, "exitCodes.operator"), codes.get("operator") or "", ("In", "NotIn"))
        if len(codes.get("values") or ()) > _MAX_CODES:
            yield too_many(child(here, "exitCodes.values"), len(codes["values"]), _MAX_CODES)


# --- environment ---


def _environment(variables: Sequence[View], path: str) -> Iterator[FieldError]:
    for index, variable in enumerate(variables):
        at, name, source = item(path, index), variable.get("name") or "", variable.get("valueFrom")
        if not name:
            yield required(child(at, "name"))
        else:
            yield from (invalid(child(at, "name"), name, fault) for fault in syntax.variable_name(name))
        if source is not None:
            yield from _variable_source(source, variable.get("value") or "", child(at, "valueFrom"))


def _variable_source(source: View, value: str, path: str) -> Iterator[FieldError]:
    given = [name for name in _ENVIRONMENT if source.get(name) is not None]
    for name in given:
        yield from _VARIABLE_SOURCES[name](source[name], child(path, name))
    if not given:
        listed = ", ".join(f"`{name}`" for name in _ENVIRONMENT[:-1])
        yield invalid(path, "", f"must specify one of: {listed} or `{_ENVIRONMENT[-1]}`")
    elif value:
        yield invalid(path, "", "may not be specified when `value` is not empty")
    elif len(given) > 1:
        yield invalid(path, "", "may not have more than one field specified at a time")


_VARIABLE_SOURCES: Mapping[str, Callable[[View, str], Iterator[FieldError]]] = {
    "fieldRef": lambda source, path: field_selector_errors(source, _FIELDS, path),
    "resourceFieldRef": lambda source, path: resource_selector_errors(source, path, of_volume=False),
    "configMapKeyRef": lambda source, path: type_errors("ConfigMapKeySelector", source, path),
    "secretKeyRef": lambda source, path: type_errors("SecretKeySelector", source, path),
    "fileKeyRef": lambda source, path: type_errors("FileKeySelector", source, path),
}


def _environment_sources(sources: Sequence[View], path: str) -> Iterator[FieldError]:
    for index, source in enumerate(sources):
        at, prefix = item(path, index), source.get("prefix")
        if prefix:
            yield from (invalid(child(at, "prefix"), prefix, fault) for fault in syntax.variable_name(prefix))
        given = [name for name in ("configMapRef", "secretRef") if source.get(name) is not None]
        for field in given:
            here, name = child(child(at, field), "name"), source[field].get("name") or ""
            faults = syntax.dns1123_subdomain(_masked(name))
            yield from (invalid(here, name, fault) for fault in faults) if name else (required(here),)
        if not given:
            yield invalid(path, "", "must specify one of: `configMapRef` or `secretRef`")
        elif len(given) > 1:
            yield invalid(path, "", "may not have more than one field specified at a time")


def _masked(name: str) -> str:
    """Return the text that is validated instead of a name.

    Upstream validates the name as a prefix of generated names: a dash at the end and the character before it become
    ``a``.
    """
    return f"{name[:-2]}a" if len(name) > 1 and name.endswith("-") else name


# --- volumes ---


def _mounts(container: View, volumes: Mapping[str, View], path: str) -> Iterator[FieldError]:
    seen: set[str] = set()
    devices = container.get("volumeDevices") or ()
    device_names = {one.get("name") or "" for one in devices}
    device_paths = {one.get("devicePath") or "" for one in devices}
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
        yield from _mount(mount, container, path, at)


def _mount(mount: View, container: View, path: str, at: str) -> Iterator[FieldError]:
    """Yield the validation errors of one mount.

    As upstream, most errors have the path of the list of mounts.
    """
    sub, expression = mount.get("subPath") or "", mount.get("subPathExpr") or ""
    yield from (invalid(child(path, "subPath"), sub, fault) for fault in syntax.descending_path(sub))
    if expression and sub:
        text = "subPathExpr and subPath are mutually exclusive"
        yield invalid(child(at, "subPathExpr"), expression, text)
    yield from (invalid(child(path, "subPathExpr"), expression, fault) for fault in syntax.descending_path(expression))
    propagation, here = mount.get("mountPropagation"), child(path, "mountPropagation")
    if propagation is not None and propagation not in _PROPAGATIONS:
        yield not_supported(here, propagation, _PROPAGATIONS)
    if propagation == "Bidirectional" and not (container.get("securityContext") or {}).get("privileged"):
        yield forbidden(here, "Bidirectional mount propagation is available only to privileged containers")
    recursive, here = mount.get("recursiveReadOnly"), child(path, "recursiveReadOnly")
    if recursive in ("Enabled", "IfPossible"):
        if not mount.get("readOnly"):
            yield forbidden(here, "may only be specified when readOnly is true")
        if propagation not in (None, "None"):
            yield forbidden(here, "may only be specified when mountPropagation is None or not specified")
    elif recursive not in (None, "Disabled"):
        yield not_supported(here, recursive, _RECURSIVE)


def _devices(container: View, volumes: Mapping[str, View], path: str) -> Iterator[FieldError]:
    names: set[str] = set()
    places: set[str] = set()
    mounts = container.get("volumeMounts") or ()
    mounted_names = {one.get("name") or "" for one in mounts}
    mounted_paths = {one.get("mountPath") or "" for one in mounts}
    for index, device in enumerate(container.get("volumeDevices") or ()):
        at, name, place = item(path, index), device.get("name") or "", device.get("devicePath") or ""
        volume = volumes.get(name)
        if not name:
            yield required(child(at, "name"))
        if name in names:
            yield invalid(child(at, "name"), name, "must be unique")
        if volume is None:
            yield not_found(child(at, "name"), name)
        elif volume.get("persistentVolumeClaim") is None and volume.get("ephemeral") is None:
            text = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"
            yield invalid(child(at, "name"), name, text)
        if not place:
            yield required(child(at, "devicePath"))
        if place in places:
            yield invalid(child(at, "devicePath"), place, "must be unique")
        if syntax.path_without_backsteps(place):
            yield invalid(child(at, "devicePath"), place, "can not contain backsteps ('..')")
        else:
            places.add(place)
        if name in mounted_names:
            yield invalid(child(at, "name"), name, "must not already exist in volumeMounts")
        if place in mounted_paths:
            yield invalid(child(at, "devicePath"), place, "must not already exist as a path in volumeMounts")
        if name:
            names.add(name)


# --- hooks and probes ---


def _running(container: View, pod: Pod, path: str) -> Iterator[FieldError]:
    """Yield the validation errors of hooks and probes.

    Only regular containers and sidecars may have hooks and probes.
    """
    lifecycle, at = container.get("lifecycle") or {}, child(path, "lifecycle")
    for name in ("postStart", "preStop"):
        if lifecycle.get(name) is not None:
            yield from _handler(lifecycle[name], pod, child(at, name))
    for name in _PROBES:
        probe, at = container.get(name), child(path, name)
        if probe is None:
            continue
        yield from _handler(probe, pod, at)
        yield from type_errors("Probe", probe, at)
        if name == "readinessProbe":
            grace = probe.get("terminationGracePeriodSeconds")
            if grace is not None:
                text = "must not be set for readinessProbes"
                yield invalid(child(at, "terminationGracePeriodSeconds"), grace, text)
        elif probe.get("successThreshold") != 1:
            yield invalid(child(at, "successThreshold"), probe.get("successThreshold") or 0, "must be 1")


def _handler(handler: View, pod: Pod, path: str) -> Iterator[FieldError]:
    given = [name for name in _HANDLERS if handler.get(name) is not None]
    if not given:
        yield required(path, "must specify a handler type")
    for name in given[:1]:
        yield from _HANDLER_ERRORS[name](handler[name], pod, child(path, name))
    for name in given[1:]:
        yield forbidden(child(path, name), "may not specify more than 1 handler type")


def _http(action: View, pod: Pod, path: str) -> Iterator[FieldError]:
    if not action.get("path"):
        yield required(child(path, "path"))
    yield from _socket(action, pod, path)
    scheme = action.get("scheme") or ""
    if scheme not in ("HTTP", "HTTPS"):
        yield not_supported(child(path, "scheme"), scheme, ("HTTP", "HTTPS"))
    for header in action.get("httpHeaders") or ():
        name = header.get("name") or ""
        yield from (invalid(child(path, "httpHeaders"), name, fault) for fault in syntax.header_name(name))


def _socket(action: View, pod: Pod, path: str) -> Iterator[FieldError]:
    port, at = action.get("port", 0), child(path, "port")
    if isinstance(port, str):
        yield from (invalid(at, port, fault) for fault in syntax.port_name(port))
    elif not 1 <= port <= 65535:
        yield invalid(at, port, _PORT_RANGE)


def _grpc(action: View, pod: Pod, path: str) -> Iterator[FieldError]:
    yield from type_errors("GRPCAction", action, path)


def _exec(action: View, pod: Pod, path: str) -> Iterator[FieldError]:
    yield from type_errors("ExecAction", action, path)


def _sleep(action: View, pod: Pod, path: str) -> Iterator[FieldError]:
    seconds, grace = action.get("seconds") or 0, pod.grace
    if grace is not None and not 0 <= seconds <= grace:
        text = f"must be non-negative and less than terminationGracePeriodSeconds ({grace})"
        yield invalid(path, seconds, text)


_HANDLER_ERRORS: Mapping[str, Callable[[Any, Pod, str], Iterator[FieldError]]] = {
    "exec": _exec,
    "httpGet": _http,
    "tcpSocket": _socket,
    "grpc": _grpc,
    "sleep": _sleep,
}
