"""Validation of ingresses, network policies, endpoints and API services.

Ingress classes and endpoint slices are validated here, too.
"""

import re
from collections.abc import Iterator
from ipaddress import ip_address

from apiext.catalog.builtin.ips import (
    address_errors,
    canonical_address_errors,
    is_strict_subset,
    network_errors,
    network_of,
    special_errors,
)
from apiext.catalog.builtin.requirements import selector_errors
from apiext.documents.document import View
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
    too_long,
    too_many,
)

_PORT_RANGE = "must be between 1 and 65535, inclusive"
_FORBIDDEN_PARTS = ("//", "/./", "/../", "%2f", "%2F")
_FORBIDDEN_ENDS = ("/..", "/.")
_MAX_CONTROLLER = 250
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
    for index, tls in enumerate(spec.get("tls") or ()):
        for place, host in enumerate(tls.get("hosts") or ()):
            errors += _host(host, f"spec.tls[{index}].hosts[{place}]")
        secret = tls.get("secretName") or ""
        if secret:
            at = f"spec.tls[{index}].secretName"
            errors += (invalid(at, secret, fault) for fault in syntax.dns1123_subdomain(secret))
    name = spec.get("ingressClassName")
    if name is not None:
        errors += (invalid("spec.ingressClassName", name, fault) for fault in syntax.dns1123_subdomain(name))
    return errors


def _rule(rule: View, path: str) -> Iterator[FieldError]:
    host = rule.get("host") or ""
    if host:
        if _is_address(host):
            yield invalid(f"{path}.host", host, "must be a DNS name, not an IP address")
        yield from _host(host, f"{path}.host")
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
        yield from _resource(resource, f"{path}.resource")
    elif service is not None:
        yield from _service(service, path)
    else:
        yield invalid(path, "", "resource or service backend is required")


def _resource(resource: View, path: str) -> Iterator[FieldError]:
    group = resource.get("apiGroup")
    if group is not None:
        yield from (invalid(f"{path}.apiGroup", group, fault) for fault in syntax.dns1123_subdomain(group))
    for name in ("kind", "name"):
        value = resource.get(name) or ""
        if not value:
            yield required(f"{path}.{name}")
        yield from (invalid(f"{path}.{name}", value, fault) for fault in syntax.path_segment(value))


def _host(host: str, path: str) -> Iterator[FieldError]:
    if "*" not in host:
        yield from (invalid(path, host, fault) for fault in syntax.dns1123_subdomain(host))
    elif not host.startswith("*.") or not syntax.dns_like(host.removeprefix("*.")):
        yield invalid(path, host, _WILDCARD)


_WILDCARD = (
    "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower"
    " case alphanumeric characters, '-' or '.' and end with an alphanumeric character (e.g. '*.example.com', regex used"
    r" for validation is '\*\.[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)


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
    kinds = spec.get("policyTypes") or ()
    if len(kinds) > 2:
        errors.append(invalid("spec.policyTypes", list(kinds), "may not specify more than two policyTypes"))
        return errors
    for index, kind in enumerate(kinds):
        if kind not in ("Ingress", "Egress"):
            errors.append(not_supported(f"spec.policyTypes[{index}]", kind, ("Ingress", "Egress")))
    return errors


def _policy_port(port: View, path: str) -> Iterator[FieldError]:
    protocols = ("TCP", "UDP", "SCTP")
    if port.get("protocol") not in (None, *protocols):
        yield not_supported(f"{path}.protocol", port["protocol"], protocols)
    number = port.get("port")
    if isinstance(number, str):
        yield from _end_port(port, path)
        yield from (invalid(f"{path}.port", number, fault) for fault in syntax.port_name(number))
        return
    if number is not None and not 1 <= number <= 65535:
        yield invalid(f"{path}.port", number, _PORT_RANGE)
    yield from _end_port(port, path)


def _end_port(port: View, path: str) -> Iterator[FieldError]:
    number, end = port.get("port"), port.get("endPort")
    if end is None:
        return
    path = f"{path}.endPort"
    if isinstance(number, str):
        yield invalid(path, end, "may not be specified when `port` is non-numeric")
    elif number is None:
        yield invalid(path, end, "may not be specified when `port` is not specified")
    else:
        if end < number:
            yield invalid(path, end, "must be greater than or equal to `port`")
        if not 1 <= end <= 65535:
            yield invalid(path, end, _PORT_RANGE)


def _peer(peer: View, path: str) -> Iterator[FieldError]:
    given = [name for name in ("podSelector", "namespaceSelector", "ipBlock") if peer.get(name) is not None]
    for name in given:
        if name != "ipBlock":
            yield from selector_errors(peer[name], f"{path}.{name}")
    block = peer.get("ipBlock")
    if block is not None:
        yield from _block(block, f"{path}.ipBlock")
    if block is not None and len(given) > 1:
        yield forbidden(path, "may not specify both ipBlock and another peer")
    if not given:
        yield required(path, "must specify a peer")


def _block(block: View, path: str) -> Iterator[FieldError]:
    cidr = block.get("cidr") or ""
    if not cidr:
        return
    yield from network_errors(f"{path}.cidr", cidr, ())
    whole = network_of(cidr)
    if whole is None:
        return
    for index, one in enumerate(block.get("except") or ()):
        at, part = f"{path}.except[{index}]", network_of(one)
        yield from network_errors(at, one, ())
        if part is not None and not is_strict_subset(part, whole):
            yield invalid(at, one, "must be a strict subset of `cidr`")


# --- classes ---

_HTTP_PATH = re.compile(r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+")


def path_errors(path: str, value: str) -> Iterator[FieldError]:
    """Yield the validation errors of a path that begins with a domain.

    Example of a valid path: ``example.com/controller``.
    """
    if not value:
        yield required(path)
        return
    domain, slash, rest = value.partition("/")
    if not domain or not slash or not rest:
        yield invalid(path, value, 'must be a domain-prefixed path (such as "acme.io/foo")')
        return
    yield from (invalid(path, domain, fault) for fault in syntax.dns1123_subdomain(domain))
    if not _HTTP_PATH.fullmatch(rest):
        text = "Invalid path (regex used for validation is '[A-Za-z0-9/\\-._~%!$&'()*+,;=:]+')"
        yield invalid(path, rest, text)


def validate_ingress_class(new: View, old: View | None) -> list[FieldError]:
    """Return the validation errors of an ingress class.

    A rule in networking.yaml makes the controller immutable.
    """
    spec = new.get("spec") or {}
    controller = spec.get("controller") or ""
    errors = Errors()
    if len(controller.encode()) > _MAX_CONTROLLER:
        errors.append(too_long("spec.controller", _MAX_CONTROLLER))
    errors += path_errors("spec.controller", controller)
    parameters, path = spec.get("parameters"), "spec.parameters"
    if parameters is None:
        return errors
    group = parameters.get("apiGroup")
    if group is not None:
        errors += (invalid(child(path, "apiGroup"), group, fault) for fault in syntax.dns1123_subdomain(group))
    for name in ("kind", "name"):
        value = parameters.get(name) or ""
        errors += (invalid(child(path, name), value, fault) for fault in syntax.path_segment(value) if value)
    scope, namespace = parameters.get("scope"), parameters.get("namespace")
    if scope is None:
        errors.append(required(child(path, "scope")))
    elif scope not in ("Cluster", "Namespace"):
        errors.append(not_supported(child(path, "scope"), scope, ("Cluster", "Namespace")))
    elif scope == "Cluster" and namespace is not None:
        errors.append(forbidden(child(path, "namespace"), "`parameters.scope` is set to 'Cluster'"))
    elif scope == "Namespace" and namespace is None:
        errors.append(required(child(path, "namespace"), "`parameters.scope` is set to 'Namespace'"))
    elif scope == "Namespace":
        errors += (invalid(child(path, "namespace"), namespace, fault) for fault in syntax.dns1123_label(namespace))
    errors += (required(child(path, name)) for name in ("kind", "name") if not parameters.get(name))
    return errors


# --- endpoints ---

_PROTOCOLS = ("SCTP", "TCP", "UDP")
_MAX_HINTS = 8
_MAX_ENDPOINTS = 1000


def validate_endpoints(new: View, old: View | None) -> list[FieldError]:
    """Return the validation errors of endpoints.

    An update that does not change the subsets is valid.
    """
    errors = Errors()
    if old is not None and same(new.get("subsets"), old.get("subsets")):
        return errors
    for index, subset in enumerate(new.get("subsets") or ()):
        path, ports = item("subsets", index), subset.get("ports") or ()
        if not subset.get("addresses") and not subset.get("notReadyAddresses"):
            errors.append(required(path, "must specify `addresses` or `notReadyAddresses`"))
        for part in ("addresses", "notReadyAddresses"):
            for place, one in enumerate(subset.get(part) or ()):
                errors += _address(one, item(child(path, part), place))
        for place, port in enumerate(ports):
            errors += _endpoint_port(port, item(child(path, "ports"), place), named=len(ports) > 1)
    return errors


def _address(one: View, path: str) -> Iterator[FieldError]:
    address, hostname, node = one.get("ip") or "", one.get("hostname"), one.get("nodeName")
    yield from address_errors(child(path, "ip"), address, ())
    if hostname:
        yield from (invalid(child(path, "hostname"), hostname, fault) for fault in syntax.dns1123_label(hostname))
    if node is not None:
        yield from (invalid(child(path, "nodeName"), node, fault) for fault in syntax.dns1123_subdomain(node))
    yield from special_errors(child(path, "ip"), address)


def _endpoint_port(port: View, path: str, *, named: bool) -> Iterator[FieldError]:
    name, number = port.get("name") or "", port.get("port") or 0
    if name:
        yield from (invalid(child(path, "name"), name, fault) for fault in syntax.dns1123_label(name))
    elif named:
        yield required(child(path, "name"))
    if not 1 <= number <= 65535:
        yield invalid(child(path, "port"), number, _PORT_RANGE)
    yield from _protocol(port.get("protocol") or None, port, path)


def _protocol(protocol: str | None, port: View, path: str) -> Iterator[FieldError]:
    application = port.get("appProtocol")
    if protocol is None:
        yield required(child(path, "protocol"))
    elif protocol not in _PROTOCOLS:
        yield not_supported(child(path, "protocol"), protocol, _PROTOCOLS)
    if application is not None:
        at = child(path, "appProtocol")
        yield from (invalid(at, application, fault) for fault in syntax.qualified_name(application))


def validate_endpoint_slice(new: View, old: View | None) -> list[FieldError]:
    """Return the validation errors of a slice.

    An update validates endpoints only if their list has changed.
    """
    errors = Errors()
    names: set[str] = set()
    for index, port in enumerate(new.get("ports") or ()):
        path, name = item("ports", index), port.get("name") or ""
        if name:
            errors += (invalid(child(path, "name"), name, fault) for fault in syntax.dns1123_label(name))
        if name in names:
            errors.append(duplicate(child(path, "name"), name))
        names.add(name)
        errors += _protocol(port.get("protocol"), port, path)
    if old is not None and same(new.get("endpoints"), old.get("endpoints")):
        return errors
    endpoints = new.get("endpoints") or ()
    if len(endpoints) > _MAX_ENDPOINTS:
        errors.append(too_many("endpoints", len(endpoints), _MAX_ENDPOINTS))
        return errors
    for index, one in enumerate(endpoints):
        errors += _endpoint(one, new.get("addressType") or "", item("endpoints", index))
    return errors


def _endpoint(one: View, kind: str, path: str) -> Iterator[FieldError]:
    at_all = child(path, "addresses")
    for index, address in enumerate(one.get("addresses") or ()):
        yield from _typed_address(address, kind, at_all, item(at_all, index))
    node, hostname = one.get("nodeName"), one.get("hostname")
    if node is not None:
        yield from (invalid(child(path, "nodeName"), node, fault) for fault in syntax.dns1123_subdomain(node))
    if hostname is not None:
        yield from (invalid(child(path, "hostname"), hostname, fault) for fault in syntax.dns1123_label(hostname))
    yield from _hints(one.get("hints") or {}, child(path, "hints"))


def _hints(hints: View, path: str) -> Iterator[FieldError]:
    for part, faults in (("forZones", syntax.label_value), ("forNodes", syntax.dns1123_subdomain)):
        at_all, names = child(path, part), [hint.get("name") or "" for hint in hints.get(part) or ()]
        if len(names) > _MAX_HINTS:
            yield too_many(at_all, len(names), _MAX_HINTS)
            return
        for index, name in enumerate(names):
            at = child(item(at_all, index), "name")
            if name in names[:index]:
                yield duplicate(at, name)
            yield from (invalid(at, name, fault) for fault in faults(name))


def _typed_address(address: str, kind: str, at_all: str, path: str) -> Iterator[FieldError]:
    if kind == "FQDN":
        yield from _domain(address, path)
    if kind not in ("IPv4", "IPv6"):
        return
    faults = list(address_errors(path, address, ()) if kind == "IPv4" else canonical_address_errors(path, address))
    if faults:
        yield from faults
        return
    if (":" in address) is (kind == "IPv4"):
        yield invalid(at_all, address, f"must be an {kind} address")
    yield from special_errors(path, address)


def _domain(name: str, path: str) -> Iterator[FieldError]:
    """Yield the error of a domain name, which may end with a dot."""
    shown = name.removesuffix(".")
    if not name:
        yield required(path)
    elif faults := syntax.dns1123_subdomain(shown):
        yield invalid(path, shown, ",".join(faults))
    elif "." not in shown:
        yield invalid(path, shown, "should be a domain with at least two segments separated by dots")
    else:
        for label in shown.split("."):
            if faults := syntax.dns1123_label(label):
                yield invalid(path, label, ",".join(faults))
                return


# --- API services ---


def validate_api_service(new: View, old: View | None) -> list[FieldError]:
    """Return the validation errors of an APIService, whose name must be ``<version>.<group>``."""
    errors = Errors()
    spec, metadata = new.get("spec") or {}, new.get("metadata") or {}
    group, version, service = spec.get("group") or "", spec.get("version") or "", spec.get("service")
    wanted = f"{version}.{group}"
    for field in ("generateName", "name"):
        name = metadata.get(field) or ""
        if name and name != wanted and not syntax.path_segment(name):  # metadata reports the other errors
            errors.append(invalid(f"metadata.{field}", name, f'must be `spec.version+"."+spec.group`: "{wanted}"'))
    if not group and version != "v1":
        errors.append(required("spec.group", "only v1 may have an empty group and it better be legacy kube"))
    if group:
        errors += (invalid("spec.group", group, fault) for fault in syntax.dns1123_subdomain(group))
    errors += (invalid("spec.version", version, fault) for fault in syntax.dns1035_label(version))
    for field, maximum in (("groupPriorityMinimum", 20000), ("versionPriority", 1000)):
        value = spec.get(field) or 0
        if not 0 < value <= maximum:
            errors.append(invalid(f"spec.{field}", value, f"must be positive and less than {maximum}"))
    insecure, bundle = spec.get("insecureSkipTLSVerify"), spec.get("caBundle")
    if service is None:
        if bundle:
            errors.append(invalid("spec.caBundle", bundle, "local APIServices may not have a caBundle"))
        if insecure:
            text = "local APIServices may not have insecureSkipTLSVerify"
            errors.append(invalid("spec.insecureSkipTLSVerify", True, text))
        return errors
    errors += (required(f"spec.service.{field}") for field in ("namespace", "name") if not service.get(field))
    port = service.get("port")
    if port is None or not 1 <= port <= 65535:
        errors.append(invalid("spec.service.port", port or 0, f"port is not valid: {_PORT_RANGE}"))
    if insecure and bundle:
        errors.append(invalid("spec.insecureSkipTLSVerify", True, "may not be true if caBundle is present"))
    return errors
