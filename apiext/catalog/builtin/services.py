"""Defaults, preparation, validation and warnings of services.

Rows of go_types/types/core.yaml name these functions.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

from apiext.catalog.builtin import ips
from apiext.documents.document import Document, View
from apiext.documents.go_json import go_json
from apiext.meta import syntax
from apiext.meta.fields import (
    DUPLICATE,
    Errors,
    FieldError,
    duplicate,
    forbidden,
    invalid,
    item,
    not_supported,
    required,
)

_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_OUTSIDE = ("LoadBalancer", "NodePort")
_PROTOCOLS = ("SCTP", "TCP", "UDP")
_AFFINITIES = ("ClientIP", "None")
_POLICIES = ("Cluster", "Local")
_MODES = ("Proxy", "VIP")
_DISTRIBUTIONS = ("PreferClose", "PreferSameZone", "PreferSameNode")
_PORT = "must be between 1 and 65535, inclusive"
_STICKY_SECONDS, _MOST_STICKY = 10_800, 86_400
_CHECKED_ONLY = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
_FIXED = "may not change once set"
_MODE, _HINTS = "service.kubernetes.io/topology-mode", "service.kubernetes.io/topology-aware-hints"
_RANGES = "service.beta.kubernetes.io/load-balancer-source-ranges"
_LOAD_BALANCER_ONLY = "may only be used when `type` is 'LoadBalancer'"


def default_service(document: Document) -> None:
    """Set defaults that depend on other fields, such as target ports and traffic policies."""
    spec = document.setdefault("spec", {})
    for port in spec.get("ports") or ():
        if not port.get("targetPort"):
            port["targetPort"] = port.get("port", 0)
    _default_affinity(spec)
    kind = spec.get("type")
    if _is_reached_from_outside(spec) and not spec.get("externalTrafficPolicy"):
        spec["externalTrafficPolicy"] = "Cluster"
    if kind in _TYPES and kind != "ExternalName":
        spec.setdefault("internalTrafficPolicy", "Cluster")
    if kind == "LoadBalancer":
        spec.setdefault("allocateLoadBalancerNodePorts", True)
        for point in ((document.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ():
            if point.get("ip"):
                point.setdefault("ipMode", "VIP")


def _default_affinity(spec: Document) -> None:
    if spec.get("sessionAffinity") == "None":
        spec.pop("sessionAffinityConfig", None)
    elif spec.get("sessionAffinity") == "ClientIP":
        given = (spec.get("sessionAffinityConfig") or {}).get("clientIP") or {}
        if given.get("timeoutSeconds") is None:
            spec["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": _STICKY_SECONDS}}


def _is_reached_from_outside(spec: View) -> bool:
    return spec.get("type") in _OUTSIDE or (spec.get("type") == "ClusterIP" and bool(spec.get("externalIPs")))


def is_headless(spec: View) -> bool:
    """Report whether a service is headless: its cluster IP is ``None``."""
    return spec.get("clusterIP") == "None"


def prepare_service(new: Document, old: View | None) -> Document:
    """Restore stored fields that an update omits, and drop fields that the service may not have.

    A valid ``internalTrafficPolicy`` of an ExternalName service is always dropped. An update drops other fields only if
    their values are unchanged (see _drop_unused). An update of a service whose type is not LoadBalancer empties
    ``status.loadBalancer``.
    """
    spec, before = new["spec"], (old or {}).get("spec") or {}
    _keep_given(spec, before)
    if spec.get("type") == "ExternalName" and spec.get("internalTrafficPolicy") in _POLICIES:
        del spec["internalTrafficPolicy"]
    if old is not None:
        _drop_unused(spec, before)
        if not _is_balanced(spec):
            new["status"] = {**(new.get("status") or {}), "loadBalancer": {}}
    return new


def _keep_given(spec: Document, before: View) -> None:
    """Restore the stored cluster IPs, node ports and health check port that an update omits."""
    if has_address(spec) and has_address(before) and before.get("clusterIP"):
        spec["clusterIP"] = spec.get("clusterIP") or before["clusterIP"]
        if spec["clusterIP"] != before["clusterIP"] and spec.get("clusterIPs") == before.get("clusterIPs"):
            spec["clusterIPs"] = [spec["clusterIP"]]  # the update changed only clusterIP
        if spec["clusterIP"] == before["clusterIP"] and not spec.get("clusterIPs") and before.get("clusterIPs"):
            spec["clusterIPs"] = before["clusterIPs"]
    if is_checked(spec) and is_checked(before) and before.get("healthCheckNodePort"):
        spec["healthCheckNodePort"] = spec.get("healthCheckNodePort") or before["healthCheckNodePort"]
    if has_node_ports(spec) and has_node_ports(before):
        ports: Sequence[Document] = spec.get("ports") or ()
        taken = {port.get("nodePort", 0) for port in ports}
        named = {port.get("name", ""): port.get("nodePort", 0) for port in before.get("ports") or ()}
        for port in ports:
            number = named.get(port.get("name", ""), 0)
            if not port.get("nodePort") and number not in taken:
                port["nodePort"] = number


def _drop_unused(spec: Document, before: View) -> None:
    """Drop unchanged fields that the stored service may have, and the new service may not."""
    for name, has in _OF_TYPE.items():
        if has(before) and not has(spec) and spec.get(name) == before.get(name):
            spec.pop(name, None)
    ports: Sequence[Document] = spec.get("ports") or ()
    numbers = [port.get("nodePort", 0) for port in before.get("ports") or ()]
    if before.get("type") in _OUTSIDE and spec.get("type") not in _OUTSIDE:
        for port in ports if numbers == [port.get("nodePort", 0) for port in ports] else ():
            port.pop("nodePort", None)


def has_address(spec: View) -> bool:
    """Report whether services of this type have cluster IPs.

    The ``None`` of a headless service counts as one.
    """
    return spec.get("type", "") in _TYPES and spec["type"] != "ExternalName"


def is_outside(spec: View) -> bool:
    """Report whether services of this type may have node ports."""
    return spec.get("type") in _OUTSIDE


def has_node_ports(spec: View) -> bool:
    """Report whether the server allocates the missing node ports of a service."""
    return is_outside(spec) and spec.get("allocateLoadBalancerNodePorts") is not False


def _is_balanced(spec: View) -> bool:
    return spec.get("type") == "LoadBalancer"


def is_checked(spec: View) -> bool:
    """Report whether a service has a node port for health checks."""
    return _is_balanced(spec) and spec.get("externalTrafficPolicy") == "Local"


_OF_TYPE: Mapping[str, Callable[[View], bool]] = {
    **dict.fromkeys(("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"), has_address),
    **dict.fromkeys(("allocateLoadBalancerNodePorts", "loadBalancerClass"), _is_balanced),
    "healthCheckNodePort": is_checked,
    "externalTrafficPolicy": _is_reached_from_outside,
}
"""Field → the function that reports whether a service may have this field."""


def service_warnings(new: View, old: View | None) -> list[str]:
    """Return warnings about ignored or deprecated fields, annotations, and address formats."""
    spec = new.get("spec") or {}
    kind, found = spec.get("type"), []
    if _HINTS in ((new.get("metadata") or {}).get("annotations") or {}):
        found.append(f"annotation {_HINTS} is deprecated, please use {_MODE} instead")
    if kind != "ExternalName" and not is_headless(spec):
        found += _address_warnings(spec, "clusterIPs")
    headless = kind == "ClusterIP" and is_headless(spec)
    if headless:
        found += [f"spec.{name} is ignored for headless services" for name in _USELESS if spec.get(name)]
        if spec.get("sessionAffinity") != "None":
            found.append("spec.SessionAffinity is ignored for headless services")
    found += _address_warnings(spec, "externalIPs")
    if spec.get("externalIPs") and not headless and kind != "ExternalName":
        found.append("spec.externalIPs is deprecated and may no longer be implemented in some clusters")
    found += ips.address_warnings("spec.loadBalancerIP", spec.get("loadBalancerIP") or "")
    for index, text in enumerate(spec.get("loadBalancerSourceRanges") or ()):
        found += ips.network_warnings(item("spec.loadBalancerSourceRanges", index), text)
    if spec.get("externalIPs") and kind == "ExternalName":
        found.append('spec.externalIPs is ignored when spec.type is "ExternalName"')
    if spec.get("externalName") and kind != "ExternalName":
        found.append('spec.externalName is ignored when spec.type is not "ExternalName"')
    if spec.get("trafficDistribution") == "PreferClose":
        found.append('spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone"')
    return found


def _address_warnings(spec: View, name: str) -> Iterator[str]:
    for index, text in enumerate(spec.get(name) or ()):
        yield from ips.address_warnings(item(f"spec.{name}", index), text)


_USELESS = ("loadBalancerIP", "externalIPs")


def validate_service(new: View, old: View | None) -> list[FieldError]:
    """Return the validation errors of a service; ``old`` is None on create."""
    spec, before = new.get("spec") or {}, (old or {}).get("spec") or {}
    ports = spec.get("ports") or []
    errors = Errors(_changed_addresses(spec, before))
    errors += _changed_families(spec, before)
    errors += _changed_balancer(spec, before)
    errors += _topology_errors(new)
    errors += _type_errors(spec)
    names: set[str] = set()
    for index, port in enumerate(ports):
        errors += _port(port, item("spec.ports", index), names, named=len(ports) > 1)
    for key, value in sorted((spec.get("selector") or {}).items()):
        errors += (invalid("spec.selector", key, fault) for fault in syntax.qualified_name(key))
        errors += (invalid("spec.selector", value, fault) for fault in syntax.label_value(value))
    errors += _affinity_errors(spec)
    for index, address in enumerate(spec.get("externalIPs") or ()):
        path = item("spec.externalIPs", index)
        faults = list(ips.address_errors(path, address, before.get("externalIPs") or ()))
        errors += faults or ips.special_errors(path, address)
    if spec.get("type") not in _TYPES:
        errors.append(not_supported("spec.type", spec.get("type", ""), _TYPES))
    errors += _repeated(ports, node_ports=spec.get("type") != "ClusterIP")
    errors += _source_errors(new, old or {})
    errors += _balancer_errors(spec)
    errors += _traffic_errors(spec)
    return errors


def validate_service_status(new: View, old: View | None) -> list[FieldError]:
    """Return the validation errors of the load balancer's addresses in the status of a service."""
    points, kept = _points(new), [point.get("ip", "") for point in _points(old)]
    path = "status.loadBalancer.ingress"
    if points and (new.get("spec") or {}).get("type") != "LoadBalancer":
        return [forbidden(path, "may only be used when `spec.type` is 'LoadBalancer'")]
    return Errors(
        fault for index, point in enumerate(points) for fault in _point_errors(point, item(path, index), kept)
    )


def service_status_warnings(new: View, old: View | None) -> list[str]:
    """Return warnings about the format of addresses in a service's status."""
    points = [(item("status.loadBalancer.ingress", index), point) for index, point in enumerate(_points(new))]
    return [text for path, point in points for text in ips.address_warnings(path, point.get("ip") or "")]


def _points(document: View | None) -> Sequence[View]:
    return (((document or {}).get("status") or {}).get("loadBalancer") or {}).get("ingress") or []


def _point_errors(point: View, path: str, kept: Collection[str]) -> Iterator[FieldError]:
    mode, name = point.get("ipMode"), point.get("hostname", "")
    if point.get("ip"):
        yield from ips.address_errors(f"{path}.ip", point["ip"], kept)
    if mode is not None and not point.get("ip"):
        yield forbidden(f"{path}.ipMode", "may not be specified when `ip` is not set")
    elif mode is not None and mode not in _MODES:
        yield not_supported(f"{path}.ipMode", mode, _MODES)
    if name:
        yield from (invalid(f"{path}.hostname", name, fault) for fault in syntax.dns1123_subdomain(name))
        if ips.address_of(name) is not None:
            yield invalid(f"{path}.hostname", name, "must be a DNS name, not an IP address")


def _changed_addresses(spec: View, before: View) -> Iterator[FieldError]:
    """Yield the validation errors of an update that changes the cluster IPs of a service."""
    if not has_address(spec) or not has_address(before) or (is_headless(spec) and is_headless(before)):
        return
    new, old = spec.get("clusterIPs") or [], before.get("clusterIPs") or []
    for index, (address, last) in enumerate(zip(new, old, strict=False)):
        if address != last and (len(new) == len(old) or not index):
            yield invalid(item("spec.clusterIPs", index), new, _FIXED)


def _changed_families(spec: View, before: View) -> Iterator[FieldError]:
    """Yield the validation errors of an update that changes the IP families of a service."""
    if not has_address(spec) or not has_address(before) or is_headless(spec) or is_headless(before):
        return
    new, old, path = spec.get("ipFamilies") or [], before.get("ipFamilies") or [], "spec.ipFamilies[0]"
    if len(new) == len(old):
        yield from (invalid(path, new, _FIXED) for family, last in zip(new, old, strict=True) if family != last)
    elif new[:1] != old[:1] and new and old:
        # the path names ipFamilies, although the value in the error is clusterIPs
        yield invalid(path, spec.get("clusterIPs") or [], _FIXED)  # upstream: the error shows the addresses


def _changed_balancer(spec: View, before: View) -> Iterator[FieldError]:
    """Yield the validation errors of an update that changes the load balancer of a service."""
    changed = {name for name in ("loadBalancerClass", "healthCheckNodePort") if spec.get(name) != before.get(name)}
    if "loadBalancerClass" in changed and _is_balanced(spec) and _is_balanced(before):
        yield invalid("spec.loadBalancerClass", spec.get("loadBalancerClass"), _FIXED)
    if before:
        # upstream: an update reports errors of loadBalancerClass twice
        yield from _class_errors(spec)  # _balancer_errors yields the same errors
    if "healthCheckNodePort" in changed and is_checked(spec) and is_checked(before):
        yield forbidden("spec.healthCheckNodePort", "field is immutable")


def _topology_errors(document: View) -> Iterator[FieldError]:
    annotations = (document.get("metadata") or {}).get("annotations") or {}
    if _MODE in annotations and _HINTS in annotations and annotations[_MODE] != annotations[_HINTS]:
        text = f"must match annotations[{_HINTS}] when both are specified"
        yield invalid(f"metadata.annotations[{_MODE}]", annotations[_MODE], text)


def _type_errors(spec: View) -> Iterator[FieldError]:
    kind = spec.get("type", "")
    if not spec.get("ports") and not is_headless(spec) and kind != "ExternalName":
        yield required("spec.ports")
    if kind in _OUTSIDE and is_headless(spec):
        yield invalid("spec.clusterIPs[0]", "None", f"may not be set to 'None' for {kind} services")
    if kind != "ExternalName":
        return
    given = {
        "clusterIPs": spec.get("clusterIPs") or spec.get("clusterIP"),
        "ipFamilies": spec.get("ipFamilies"),
        "ipFamilyPolicy": spec.get("ipFamilyPolicy") is not None,
    }
    text = "may not be set for ExternalName services"
    yield from (forbidden(f"spec.{name}", text) for name, value in given.items() if value)
    target = spec.get("externalName", "").removesuffix(".")
    if not target:
        yield required("spec.externalName")
    else:
        yield from (invalid("spec.externalName", target, fault) for fault in syntax.dns1123_subdomain(target))


def _port(port: View, path: str, names: set[str], *, named: bool) -> Iterator[FieldError]:
    name, number, protocol = port.get("name", ""), port.get("port", 0), port.get("protocol", "")
    if named and not name:
        yield required(f"{path}.name")
    elif name:
        yield from (invalid(f"{path}.name", name, fault) for fault in syntax.dns1123_label(name))
        if name in names:
            yield duplicate(f"{path}.name", name)
        names.add(name)
    if not 1 <= number <= 65535:
        yield invalid(f"{path}.port", number, _PORT)
    if protocol not in _PROTOCOLS:
        yield not_supported(f"{path}.protocol", protocol, _PROTOCOLS)
    target: Any = port.get("targetPort")
    if isinstance(target, str):
        yield from (invalid(f"{path}.targetPort", target, fault) for fault in syntax.port_name(target))
    elif not 1 <= target <= 65535:
        yield invalid(f"{path}.targetPort", target, _PORT)
    if port.get("appProtocol") is not None:
        protocol = port["appProtocol"]
        yield from (invalid(f"{path}.appProtocol", protocol, fault) for fault in syntax.qualified_name(protocol))


def _affinity_errors(spec: View) -> Iterator[FieldError]:
    affinity = spec.get("sessionAffinity", "")
    if affinity not in _AFFINITIES:
        yield not_supported("spec.sessionAffinity", affinity, _AFFINITIES)
    if affinity != "ClientIP":
        return
    seconds = spec["sessionAffinityConfig"]["clientIP"]["timeoutSeconds"]
    if not 0 < seconds <= _MOST_STICKY:
        path = "spec.sessionAffinityConfig.clientIP.timeoutSeconds"
        yield invalid(path, seconds, f"must be greater than 0 and less than {_MOST_STICKY}")


def _repeated(ports: list[View], *, node_ports: bool) -> Iterator[FieldError]:
    """Yield the validation errors of node ports, and of duplicate ports."""
    on_nodes: set[tuple[str, int]] = set()
    for index, port in enumerate(ports):
        path, number = item("spec.ports", index), port.get("nodePort", 0)
        if number and not node_ports:
            yield forbidden(f"{path}.nodePort", "may not be used when `type` is 'ClusterIP'")
        if number and (port.get("protocol", ""), number) in on_nodes:
            yield duplicate(f"{path}.nodePort", number)
        on_nodes.add((port.get("protocol", ""), number))
    taken: set[tuple[str, int]] = set()
    for index, port in enumerate(ports):
        key = (port.get("protocol", ""), port.get("port", 0))
        if key in taken:
            yield FieldError(DUPLICATE, item("spec.ports", index), f"Duplicate value: {_shown(*key)}")
        taken.add(key)


def _shown(protocol: str, port: int) -> str:
    """Return a duplicate port as upstream prints it from its internal type."""
    key = {"Name": "", "Protocol": protocol, "AppProtocol": None, "Port": port, "TargetPort": 0, "NodePort": 0}
    return go_json(key)


def _source_errors(new: View, old: View) -> Iterator[FieldError]:
    """Yield the validation errors of a load balancer's source ranges.

    The ranges are those of the field or, if the field is empty, those of the annotation.
    """
    spec, ranges = new.get("spec") or {}, (new.get("spec") or {}).get("loadBalancerSourceRanges") or ()
    path, kept = "spec.LoadBalancerSourceRanges", list[str]()  # upstream: errors name this field with a capital letter
    if ranges:
        kept = [text.strip() for text in (old.get("spec") or {}).get("loadBalancerSourceRanges") or ()]
        places = [(item(path, index), text) for index, text in enumerate(ranges)]
    else:
        text, last = (((of.get("metadata") or {}).get("annotations") or {}).get(_RANGES) for of in (new, old))
        if text is None:
            return
        path = f"metadata.annotations[{_RANGES}]"
        places = [(path, part) for part in text.split(",") if text.strip()] if text != last else []
    if not _is_balanced(spec):
        yield forbidden(path, _LOAD_BALANCER_ONLY)
    for place, text in places:
        yield from ips.network_errors(place, text.strip(), kept)


def _balancer_errors(spec: View) -> Iterator[FieldError]:
    if spec.get("allocateLoadBalancerNodePorts") is not None and not _is_balanced(spec):
        yield forbidden("spec.allocateLoadBalancerNodePorts", _LOAD_BALANCER_ONLY)
    yield from _class_errors(spec)


def _class_errors(spec: View) -> Iterator[FieldError]:
    named = spec.get("loadBalancerClass")
    if named is not None and not _is_balanced(spec):
        yield forbidden("spec.loadBalancerClass", _LOAD_BALANCER_ONLY)
    elif named is not None:
        yield from (invalid("spec.loadBalancerClass", named, fault) for fault in syntax.qualified_name(named))


def _traffic_errors(spec: View) -> Iterator[FieldError]:
    health = spec.get("healthCheckNodePort") or 0
    if health and not is_checked(spec):
        yield invalid("spec.healthCheckNodePort", health, _CHECKED_ONLY)
    elif health and not 1 <= health <= 65535:
        yield invalid("spec.healthCheckNodePort", health, _PORT)
    outside = spec.get("externalTrafficPolicy", "")
    if outside and not _is_reached_from_outside(spec):
        yield invalid("spec.externalTrafficPolicy", outside, "may only be set for externally-accessible services")
    elif outside and outside not in _POLICIES:
        yield not_supported("spec.externalTrafficPolicy", outside, _POLICIES)
    inside, spread = spec.get("internalTrafficPolicy"), spec.get("trafficDistribution")
    if inside is not None and inside not in _POLICIES:
        yield not_supported("spec.internalTrafficPolicy", inside, _POLICIES)
    if spread is not None and spread not in _DISTRIBUTIONS:
        yield not_supported("spec.trafficDistribution", spread, _DISTRIBUTIONS)
