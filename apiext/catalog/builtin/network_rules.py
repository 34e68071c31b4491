"""Validation of ingresses and network policies (upstream: apis/networking/validation)."""

from collections.abc import Iterator
from ipaddress import ip_address

from apiext.catalog.builtin.requirements import selector_errors
from apiext.documents.document import View
from apiext.meta import syntax
from apiext.meta.fields import Errors, FieldError, invalid, not_supported, required

_PORT_RANGE = "must be between 1 and 65535, inclusive"
_FORBIDDEN_PARTS = ("//", "/./", "/../", "%2f", "%2F")
_FORBIDDEN_ENDS = ("/..", "/.")
_PATH_TYPES = ("Exact", "ImplementationSpecific", "Prefix")


def validate_ingress(new: View, old: View | None) -> list[FieldError]:
    """Return the validation errors of an ingress."""
    spec: View = new.get("spec") or {}
    errors = Errors()
    if not spec.get("rules") and spec.get("defaultBackend") is None:
        text = "either `defaultBackend` or `rules` must be specified"
        errors.append(invalid("spec", spec.get("rules"), text))
    if spec.get("defaultBackend") is not None:
        errors += _backend(spec["defaultBackend"], "spec.defaultBackend")
    for index, rule in enumerate(spec.get("rules") or ()):
        errors += _rule(rule, f"spec.rules[{index}]")
    name = spec.get("ingressClassName")
    if name is not None:
        errors += (invalid("spec.ingressClassName", name, fault) for fault in syntax.dns1123_subdomain(name))
    return errors


def _rule(rule: View, path: str) -> Iterator[FieldError]:
    host = rule.get("host") or ""
    if host:
        if _is_address(host):
            yield invalid(f"{path}.host", host, "must be a DNS name, not an IP address")
        plain = host.removeprefix("*.") if "*" in host else host
        if "*" not in plain:
            yield from (invalid(f"{path}.host", host, fault) for fault in syntax.dns1123_subdomain(plain))
        else:
            text = "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain"
            yield invalid(f"{path}.host", host, text)
    http = rule.get("http")
    if http is None:
        return
    if not http.get("paths"):
        yield required(f"{path}.http.paths")
    for index, one in enumerate(http.get("paths") or ()):
        yield from _path(one, f"{path}.http.paths[{index}]")


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _path(one: View, path: str) -> Iterator[FieldError]:
    kind, place = one.get("pathType"), one.get("path") or ""
    if kind is None:
        yield required(f"{path}.pathType", "pathType must be specified")
        return
    absolute = place.startswith("/")
    if kind in ("Exact", "Prefix"):
        if not absolute:
            yield invalid(f"{path}.path", place, "must be an absolute path")
        for part in _FORBIDDEN_PARTS:
            if part in place:
                yield invalid(f"{path}.path", place, f"must not contain '{part}'")
        for end in _FORBIDDEN_ENDS:
            if place.endswith(end):
                yield invalid(f"{path}.path", place, f"cannot end with '{end}'")
    elif kind == "ImplementationSpecific":
        if place and not absolute:
            yield invalid(f"{path}.path", place, "must be an absolute path")
    else:
        yield not_supported(f"{path}.pathType", kind, _PATH_TYPES)
    yield from _backend(one.get("backend") or {}, f"{path}.backend")


def _backend(backend: View, path: str) -> Iterator[FieldError]:
    service, resource = backend.get("service"), backend.get("resource")
    if service is not None and resource is not None:
        yield invalid(path, "", "cannot set both resource and service backends")
    elif resource is not None:
        yield from (required(f"{path}.resource.{name}") for name in ("kind", "name") if not resource.get(name))
    elif service is not None:
        yield from _service(service, path)
    else:
        yield invalid(path, "", "resource or service backend is required")


def _service(service: View, path: str) -> Iterator[FieldError]:
    name = service.get("name") or ""
    if not name:
        yield required(f"{path}.service.name")
    else:
        yield from (invalid(f"{path}.service.name", name, fault) for fault in syntax.dns1123_label(name))
    port: View = service.get("port") or {}
    number, called = port.get("number") or 0, port.get("name") or ""
    if called and number:
        yield invalid(path, "", "cannot set both port name & port number")
    elif called:
        yield from (invalid(f"{path}.service.port.name", called, fault) for fault in syntax.port_name(called))
    elif not number:
        yield required(path, "port name or number is required")
    elif not 1 <= number <= 65535:
        yield invalid(f"{path}.service.port.number", number, _PORT_RANGE)


def validate_network_policy(new: View, old: View | None) -> list[FieldError]:
    """Return the validation errors of a network policy."""
    spec: View = new.get("spec") or {}
    errors = Errors(selector_errors(spec.get("podSelector"), "spec.podSelector"))
    for direction, peers in (("ingress", "from"), ("egress", "to")):
        for index, rule in enumerate(spec.get(direction) or ()):
            path = f"spec.{direction}[{index}]"
            for place, port in enumerate(rule.get("ports") or ()):
                errors += _policy_port(port, f"{path}.ports[{place}]")
            for place, peer in enumerate(rule.get(peers) or ()):
                errors += _peer(peer, f"{path}.{peers}[{place}]")
    for index, kind in enumerate(spec.get("policyTypes") or ()):
        if kind not in ("Ingress", "Egress"):
            errors.append(not_supported(f"spec.policyTypes[{index}]", kind, ("Egress", "Ingress")))
    return errors


def _policy_port(port: View, path: str) -> Iterator[FieldError]:
    protocols = ("SCTP", "TCP", "UDP")
    if port.get("protocol") not in (None, *protocols):
        yield not_supported(f"{path}.protocol", port["protocol"], protocols)
    number = port.get("port")
    if isinstance(number, str):
        yield from (invalid(f"{path}.port", number, fault) for fault in syntax.port_name(number))
    elif number is not None and not 1 <= number <= 65535:
        yield invalid(f"{path}.port", number, _PORT_RANGE)


def _peer(peer: View, path: str) -> Iterator[FieldError]:
    given = [name for name in ("podSelector", "namespaceSelector", "ipBlock") if peer.get(name) is not None]
    for name in given:
        if name != "ipBlock":
            yield from selector_errors(peer[name], f"{path}.{name}")
    if not given:
        yield required(path, "must specify a peer")
