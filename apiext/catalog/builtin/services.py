"""What services say besides their types (named by the rows of kinds.yaml)."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from ipaddress import ip_address
from typing import Any

from apiext.documents.document import Document, View
from apiext.documents.go_json import go_json
from apiext.meta import syntax
from apiext.meta.fields import DUPLICATE, FieldError, duplicate, forbidden, invalid, item, not_supported, required

_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_OUTSIDE = ("LoadBalancer", "NodePort")
_PROTOCOLS = ("SCTP", "TCP", "UDP")
_AFFINITIES = ("ClientIP", "None")
_POLICIES = ("Cluster", "Local")
_MODES = ("Proxy", "VIP")
_DISTRIBUTIONS = ("PreferClose", "PreferSameZone", "PreferSameNode")
FAMILIES = {"IPv4": "IPv6", "IPv6": "IPv4"}  # each with the other
_FAMILY_POLICIES = ("PreferDualStack", "RequireDualStack", "SingleStack")
_PORT = "must be between 1 and 65535, inclusive"
_SEVERAL = "must be 'RequireDualStack' or 'PreferDualStack' when multiple %s are specified"
_NO_ADDRESS = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
SINGLE = "SingleStack"
_STICKY_SECONDS, _MOST_STICKY = 10_800, 86_400
_CHECKED_ONLY = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
_LOAD_BALANCER_ONLY = "may only be used when `type` is 'LoadBalancer'"


def default_service(document: Document) -> None:
    """Fill in what depends on other fields: targets of ports, affinity, how traffic goes."""
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
    """Tell whether a service wants no address."""
    return spec.get("clusterIP") == "None"


def prepare_service(new: Document, old: View | None) -> Document:
    """Settle the families of a service that needs no address; one that is a name only loses what it had of them."""
    spec, before = new["spec"], (old or {}).get("spec") or {}
    _keep_given(spec, before)
    if spec.get("type") == "ExternalName":
        if spec.get("internalTrafficPolicy") in _POLICIES:
            del spec["internalTrafficPolicy"]
    elif is_headless(spec) and spec.get("type") == "ClusterIP":
        spec.setdefault("clusterIPs", ["None"])
        usual = "SingleStack" if spec.get("selector") else "RequireDualStack"
        spec.setdefault("ipFamilyPolicy", before.get("ipFamilyPolicy") or usual)
        spec["ipFamilies"] = _families(spec, before)
    if old is not None:
        _drop_unused(spec, before)
        if not _is_balanced(spec):
            new["status"] = {**(new.get("status") or {}), "loadBalancer": {}}
    return new


def _keep_given(spec: Document, before: View) -> None:
    """Keep the address and the ports of a service that a change leaves out."""
    if has_address(spec) and has_address(before) and before.get("clusterIP"):
        spec["clusterIP"] = spec.get("clusterIP") or before["clusterIP"]
        if spec["clusterIP"] != before["clusterIP"] and spec.get("clusterIPs") == before.get("clusterIPs"):
            spec["clusterIPs"] = [spec["clusterIP"]]  # of both fields one was changed
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
    """Drop what a service of the old type had and this one cannot have, unless the change is about it."""
    for name, has in _OF_TYPE.items():
        if has(before) and not has(spec) and spec.get(name) == before.get(name):
            spec.pop(name, None)
    ports: Sequence[Document] = spec.get("ports") or ()
    numbers = [port.get("nodePort", 0) for port in before.get("ports") or ()]
    if before.get("type") in _OUTSIDE and spec.get("type") not in _OUTSIDE:
        for port in ports if numbers == [port.get("nodePort", 0) for port in ports] else ():
            port.pop("nodePort", None)


def has_address(spec: View) -> bool:
    """Tell whether a service is of a type that has one, or says that it has none."""
    return spec.get("type", "") in _TYPES and spec["type"] != "ExternalName"


def has_node_ports(spec: View) -> bool:
    """Tell whether the ports of a service are ports of the nodes, too."""
    return spec.get("type") in _OUTSIDE and spec.get("allocateLoadBalancerNodePorts") is not False


def _is_balanced(spec: View) -> bool:
    return spec.get("type") == "LoadBalancer"


def is_checked(spec: View) -> bool:
    """Tell whether there is a port of the nodes for checks of their health."""
    return _is_balanced(spec) and spec.get("externalTrafficPolicy") == "Local"


_OF_TYPE: Mapping[str, Callable[[View], bool]] = {
    **dict.fromkeys(("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"), has_address),
    **dict.fromkeys(("allocateLoadBalancerNodePorts", "loadBalancerClass"), _is_balanced),
    "healthCheckNodePort": is_checked,
    "externalTrafficPolicy": _is_reached_from_outside,
}
"""Field → which services have it."""


def _families(spec: View, before: View) -> list[str]:
    """Return the families of a service without an address, as where both are there and IPv4 is the first."""
    given: list[str] = spec.get("ipFamilies") or ["IPv4"]
    if spec["ipFamilyPolicy"] == "SingleStack":
        return given[:1] if given == before.get("ipFamilies") else given
    return [given[0], FAMILIES[given[0]]] if len(given) == 1 and given[0] in FAMILIES else given


def service_warnings(new: View, old: View | None) -> list[str]:
    """Return warnings about what has no effect."""
    spec = new.get("spec") or {}
    kind, found = spec.get("type"), []
    headless = kind == "ClusterIP" and is_headless(spec)
    if headless:
        found += [f"spec.{name} is ignored for headless services" for name in _USELESS if spec.get(name)]
        if spec.get("sessionAffinity") != "None":
            found.append("spec.SessionAffinity is ignored for headless services")
    if spec.get("externalIPs") and kind == "ExternalName":
        found.append('spec.externalIPs is ignored when spec.type is "ExternalName"')
    elif spec.get("externalIPs") and not headless:
        found.append("spec.externalIPs is deprecated and may no longer be implemented in some clusters")
    if spec.get("externalName") and kind != "ExternalName":
        found.append('spec.externalName is ignored when spec.type is not "ExternalName"')
    if spec.get("trafficDistribution") == "PreferClose":
        found.append('spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone"')
    return found


_USELESS = ("loadBalancerIP", "externalIPs")


def validate_service(new: View, old: View | None) -> list[FieldError]:
    """Return the faults of a service; old is None on create."""
    spec = new.get("spec") or {}
    errors = settled_addresses(spec, (old or {}).get("spec") or {})[0]
    if errors:  # upstream: addresses are given out before anything else is looked at
        return errors
    ports = spec.get("ports") or []
    taken = _taken_twice(ports) if old is None else None
    if taken is not None:  # upstream: ports of nodes are given out before anything else is looked at
        return [taken]
    errors += _changed_addresses(spec, (old or {}).get("spec") or {})
    errors += _type_errors(spec)
    names: set[str] = set()
    for index, port in enumerate(ports):
        errors += _port(port, item("spec.ports", index), names, named=len(ports) > 1)
    for key, value in sorted((spec.get("selector") or {}).items()):
        errors += [invalid("spec.selector", key, fault) for fault in syntax.qualified_name(key)]
        errors += [invalid("spec.selector", value, fault) for fault in syntax.label_value(value)]
    errors += _affinity_errors(spec)
    if spec.get("type") not in _TYPES:
        errors.append(not_supported("spec.type", spec.get("type", ""), _TYPES))
    errors += _repeated(ports, node_ports=spec.get("type") != "ClusterIP")
    return [*errors, *_traffic_errors(spec)]


def validate_service_status(new: View, old: View | None) -> list[FieldError]:
    """Return the faults of a service's status: who has addresses, and how they are written."""
    points = ((new.get("status") or {}).get("loadBalancer") or {}).get("ingress") or []
    path = "status.loadBalancer.ingress"
    if points and (new.get("spec") or {}).get("type") != "LoadBalancer":
        return [forbidden(path, "may only be used when `spec.type` is 'LoadBalancer'")]
    return [fault for index, point in enumerate(points) for fault in _point_errors(point, item(path, index))]


def _point_errors(point: View, path: str) -> Iterator[FieldError]:
    mode, name = point.get("ipMode"), point.get("hostname", "")
    if mode is not None and not point.get("ip"):
        yield forbidden(f"{path}.ipMode", "may not be specified when `ip` is not set")
    elif mode is not None and mode not in _MODES:
        yield not_supported(f"{path}.ipMode", mode, _MODES)
    if name:
        yield from (invalid(f"{path}.hostname", name, fault) for fault in syntax.dns1123_subdomain(name))
        if _is_address(name):
            yield invalid(f"{path}.hostname", name, "must be a DNS name, not an IP address")


def _is_address(text: str) -> bool:
    """Tell whether a text is an address; upstream: zeros may lead its numbers."""
    with suppress(ValueError):
        ip_address(".".join(part.lstrip("0") or "0" for part in text.split(".")) if ":" not in text else text)
        return "%" not in text
    return False


def settled_addresses(spec: View, before: View) -> tuple[list[FieldError], list[str], list[str], str]:
    """Return what is wrong with the addresses that a service names; those, their families, and the policy of these.

    A service that is to have one family only loses the other one, unless the change is about it (initIPFamilyFields).
    """
    if not has_address(spec):
        return [], [], [], ""
    had = before if has_address(before) else {}
    policy = spec.get("ipFamilyPolicy") or had.get("ipFamilyPolicy") or SINGLE
    given, families = _addresses(spec), list(spec.get("ipFamilies") or ())
    errors = [*_unmatched(spec, given), *_family_errors(families, policy), *_address_errors(given, families)]
    if errors:
        return errors, given, families, policy
    last, last_families = _addresses(had), list(had.get("ipFamilies") or ())
    if policy == SINGLE and had:
        given = given[:1] if given == last else given
        families = families[:1] if families == last_families else families
    elif had:
        for which, new, old in ((_ADDRESS, given, last), (_FAMILY, families, last_families)):
            if new and len(new) < len(old):
                text = f"must be 'SingleStack' to release the secondary {which[1]}"
                errors.append(invalid("spec.ipFamilyPolicy", policy, text))
    if policy == SINGLE:
        for which, new in ((_ADDRESS, given), (_FAMILY, families)):
            if len(new) > 1:
                errors.append(invalid("spec.ipFamilyPolicy", policy, _SEVERAL % which[0]))
    return errors, given, families, policy


_ADDRESS, _FAMILY = ("cluster IPs", "cluster IP"), ("IP families", "IP family")


def family_of(address: str) -> str:
    """Return the family of an address."""
    return "IPv6" if ":" in address else "IPv4"


def _addresses(spec: View) -> list[str]:
    return list(spec.get("clusterIPs") or ([spec["clusterIP"]] if spec.get("clusterIP") else []))


def _unmatched(spec: View, given: list[str]) -> Iterator[FieldError]:
    first, path = spec.get("clusterIP") or "", "spec.clusterIPs"
    if first and given[0] != first:
        yield invalid(path, given, "first value must match `clusterIP`")
    if given and not first:
        yield invalid(path, given, "must be empty when `clusterIP` is not specified")


def _address_errors(given: list[str], families: list[str]) -> list[FieldError]:
    path, errors = "spec.clusterIPs", list[FieldError]()
    if given[:1] == ["None"] and len(given) > 1:
        errors.append(invalid(path, given, "'None' must be the first and only value"))
    for index, address in enumerate(given):
        if not (address == "None" and not index) and not _is_address(address):
            errors.append(invalid(item(path, index), address, _NO_ADDRESS))
    unreadable = bool(errors)
    if len(given) > 2:
        errors.append(invalid(path, given, "may only hold up to 2 values"))
    if not unreadable and len(given) > 1 and len(set(map(family_of, given))) < 2:
        errors.append(invalid(path, given, "may specify no more than one IP for each IP family"))
    return errors if unreadable else [*errors, *_misplaced(given, families)]


def _family_errors(families: list[str], policy: str) -> Iterator[FieldError]:
    seen = set[str]()
    for index, family in enumerate(families):
        if family not in FAMILIES:
            yield not_supported(item("spec.ipFamilies", index), family, tuple(FAMILIES))
        if family in seen:
            yield duplicate(item("spec.ipFamilies", index), family)
        seen.add(family)
    if policy not in _FAMILY_POLICIES:
        yield not_supported("spec.ipFamilyPolicy", policy, _FAMILY_POLICIES)


def _misplaced(given: list[str], families: list[str]) -> Iterator[FieldError]:
    """Yield the addresses that are not of the family that is named for them."""
    for index, (address, family) in enumerate(zip(given, families, strict=False)):
        if _is_address(address) and family in FAMILIES and family_of(address) != family:
            text = f"expected an {family} value as indicated by `ipFamilies[{index}]`"
            yield invalid(item("spec.clusterIPs", index), address, text)


def _changed_addresses(spec: View, before: View) -> Iterator[FieldError]:
    """Yield what is wrong where a service has other addresses than it had."""
    if not has_address(spec) or not has_address(before) or (is_headless(spec) and is_headless(before)):
        return
    new, old = spec.get("clusterIPs") or [], before.get("clusterIPs") or []
    for index, (address, last) in enumerate(zip(new, old, strict=False)):
        if address != last and (len(new) == len(old) or not index):
            yield invalid(item("spec.clusterIPs", index), new, "may not change once set")


def _type_errors(spec: View) -> Iterator[FieldError]:
    kind = spec.get("type", "")
    if not spec.get("ports") and not is_headless(spec) and kind != "ExternalName":
        yield required("spec.ports")
    if kind in _OUTSIDE and is_headless(spec):
        yield invalid("spec.clusterIPs[0]", "None", f"may not be set to 'None' for {kind} services")
    if kind != "ExternalName":
        return
    for name in ("clusterIPs", "ipFamilies", "ipFamilyPolicy"):
        if spec.get(name) or (name == "clusterIPs" and spec.get("clusterIP")):
            yield forbidden(f"spec.{name}", "may not be set for ExternalName services")
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
        yield from (invalid(f"{path}.targetPort", target, fault) for fault in _port_name(target))
    elif not 1 <= target <= 65535:
        yield invalid(f"{path}.targetPort", target, _PORT)
    if port.get("appProtocol") is not None:
        protocol = port["appProtocol"]
        yield from (invalid(f"{path}.appProtocol", protocol, fault) for fault in syntax.qualified_name(protocol))


def _port_name(name: str) -> Iterator[str]:
    if len(name) > 15:
        yield syntax.too_long(15, "characters")
    if not re.fullmatch("[-a-z0-9]+", name):
        yield "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)"
    if not re.search("[a-z]", name):
        yield "must contain at least one letter (a-z)"
    if "--" in name:
        yield "must not contain consecutive hyphens"
    if name.startswith("-") or name.endswith("-"):
        yield "must not begin or end with a hyphen"


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


def _taken_twice(ports: Sequence[View]) -> FieldError | None:
    """Return the fault of the first port that wants a port of the nodes which another one has got.

    Ports of one number may share one, for UDP and TCP.
    """
    got: dict[int, int] = {}
    taken: set[int] = set()
    for index, port in enumerate(ports):
        number, wanted = port.get("port", 0), port.get("nodePort", 0)
        if not wanted or got.get(number) == wanted:
            continue
        if wanted in taken:
            return invalid(f"{item('spec.ports', index)}.nodePort", wanted, "provided port is already allocated")
        if number not in got:
            got[number] = wanted
            taken.add(wanted)
    return None


def _repeated(ports: list[View], *, node_ports: bool) -> Iterator[FieldError]:
    """Yield what ports have that they may not have, or that another one has."""
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
    """Return a port as upstream's internal type prints it."""
    key = {"Name": "", "Protocol": protocol, "AppProtocol": None, "Port": port, "TargetPort": 0, "NodePort": 0}
    return go_json(key)


def _traffic_errors(spec: View) -> Iterator[FieldError]:
    balanced = spec.get("type") == "LoadBalancer"
    if spec.get("loadBalancerSourceRanges") and not balanced:
        yield forbidden("spec.LoadBalancerSourceRanges", _LOAD_BALANCER_ONLY)  # upstream: with a capital letter
    if spec.get("allocateLoadBalancerNodePorts") is not None and not balanced:
        yield forbidden("spec.allocateLoadBalancerNodePorts", _LOAD_BALANCER_ONLY)
    if spec.get("loadBalancerClass") is not None and not balanced:
        yield forbidden("spec.loadBalancerClass", _LOAD_BALANCER_ONLY)
    if spec.get("healthCheckNodePort") and not is_checked(spec):
        yield invalid("spec.healthCheckNodePort", spec["healthCheckNodePort"], _CHECKED_ONLY)
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
