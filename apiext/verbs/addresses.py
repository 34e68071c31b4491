"""Validate the addresses and node ports of services, and allocate missing ones.

This server does not route traffic to them, but clients wait for them: ``helm --wait`` for an address, operators for
ports. As upstream (core/service/storage/alloc.go), this validation precedes any other validation of a service.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from apiext.catalog.builtin import services
from apiext.catalog.builtin.ips import address_errors, address_of
from apiext.documents.document import Document, View
from apiext.meta import status
from apiext.meta.fields import Errors, FieldError, duplicate, invalid, item, not_supported
from apiext.meta.names import GroupKind
from apiext.verbs.address_pool import TAKEN_PORT, Addresses

_SINGLE, _PREFER, _REQUIRE = "SingleStack", "PreferDualStack", "RequireDualStack"
_OTHER = {"IPv4": "IPv6", "IPv6": "IPv4"}
_ADDRESS, _FAMILY = ("cluster IPs", "cluster IP"), ("IP families", "IP family")
_SEVERAL = "must be 'RequireDualStack' or 'PreferDualStack' when multiple %s are specified"
_POLICY = "spec.ipFamilyPolicy"


class _Request(NamedTuple):
    """The requested addresses of a service, their families, and the family policy."""

    given: list[str]
    families: list[str]
    policy: str


def allocate(new: Document, old: View | None, free: Addresses, *, dry_run: bool = False) -> Document:
    """Allocate the missing addresses and ports of a service, in place; return the service.

    ``old`` is None on create. Raise a 422 for an address or port that the service cannot have, and a 500 if none is
    free. A dry run does not report ports outside the range: in a dry run, upstream's portallocator checks only whether
    a port is in use.
    """
    free = free.preview if dry_run else free
    spec, before = new["spec"], (old or {}).get("spec") or {}
    if not services.has_address(spec):
        return new
    name = (new.get("metadata") or {}).get("name", "")
    had = before if services.has_address(before) else {}
    if not _is_unchanged(spec, had):
        request = _families(spec, _requested(spec, had, free.families, name), free.families, name)
        spec |= {"ipFamilies": request.families, "ipFamilyPolicy": request.policy}
        if services.is_headless(spec):
            spec.setdefault("clusterIPs", ["None"])
        else:
            _set_addresses(spec, request, had, name, free)
    faults = _set_ports(spec, None if old is None else before, free)
    faults += _set_health_check_port(spec, before, free)
    _refuse(name, faults[:1])
    return new


def _refuse(name: str, faults: Sequence[FieldError]) -> None:
    if faults:
        raise status.invalid(GroupKind("", "Service"), name, faults)


def _is_unchanged(spec: View, had: View) -> bool:
    """Return whether a write with the policy PreferDualStack leaves the addresses unchanged.

    Such a write changes no type, policy, address or family.
    """
    compared = ("type", "ipFamilyPolicy", "clusterIPs", "ipFamilies")
    return spec.get("ipFamilyPolicy") == _PREFER and all(spec.get(name) == had.get(name) for name in compared)


def _requested(spec: View, had: View, available: Sequence[str], name: str) -> _Request:
    """Return the addresses that a service requests, with their families.

    A service that changes to a single family loses its second address, unless the same write changes the addresses.
    """
    usual = _REQUIRE if services.is_headless(spec) and not spec.get("selector") else _SINGLE
    policy = spec.get("ipFamilyPolicy")
    if policy is None:
        policy = had.get("ipFamilyPolicy") or usual
    given, families = _addresses(spec), list(spec.get("ipFamilies") or ())
    errors = Errors(_unmatched(spec, given))
    errors += _family_errors(families, policy)
    errors += _address_errors(given, families, _addresses(had))
    _refuse(name, errors)
    last, last_families = _addresses(had), list(had.get("ipFamilies") or ())
    faults = Errors()
    if policy == _SINGLE and had:
        given = given[:1] if given == last else given
        families = families[:1] if families == last_families else families
    elif had:
        for which, new, old in ((_ADDRESS, given, last), (_FAMILY, families, last_families)):
            if new and len(new) < len(old):
                text = f"must be 'SingleStack' to release the secondary {which[1]}"
                faults.append(invalid(_POLICY, policy, text))
    if policy == _SINGLE:
        for which, new in ((_ADDRESS, given), (_FAMILY, families)):
            if len(new) > 1:
                faults.append(invalid(_POLICY, policy, _SEVERAL % which[0]))
    named = [] if services.is_headless(spec) else given[len(families) :]
    for index, family in enumerate(map(_family_of, named), len(families)):
        if family not in available:
            faults.append(invalid(item("spec.clusterIPs", index), given, f"{family} is not configured on this cluster"))
        families = [*families, family]
    _refuse(name, faults)
    return _Request(given, families, policy)


def _families(spec: View, request: _Request, available: Sequence[str], name: str) -> _Request:
    """Return the request with all families that the service gets.

    ``available`` are the families of the cluster.
    """
    given, families, policy = request
    faults = Errors()
    # A client sets the endpoints of a headless service without a selector, and they may have any family.
    unbound = services.is_headless(spec) and not spec.get("selector")
    if not unbound:
        if policy == _REQUIRE and len(available) < 2:
            faults.append(invalid(_POLICY, policy, "this cluster is not configured for dual-stack services"))
        for index, family in enumerate(families):
            if family not in available:
                faults.append(invalid(item("spec.ipFamilies", index), family, "not configured on this cluster"))
        _refuse(name, faults)
    families = families or [available[0]]
    if policy != _SINGLE and len(families) == 1 and (unbound or len(available) > 1):
        families = [*families, _OTHER[families[0]]]
    return _Request(given, families, policy)


def _set_addresses(spec: Document, request: _Request, had: View, name: str, free: Addresses) -> None:
    given = list(request.given)
    kept = 2 if had and services.is_headless(had) else len(had.get("ipFamilies") or ())
    for index, family in enumerate(request.families):
        if index >= len(given):
            given.append(free.address(family, name))
        elif index >= kept:
            why = free.address_error(family, given[index])
            fault = invalid("spec.clusterIPs", request.given, f"failed to allocate IP {given[index]}: {why}")
            _refuse(name, [fault] if why else [])
    spec |= {"clusterIP": given[0], "clusterIPs": given}


def _set_ports(spec: View, before: View | None, free: Addresses) -> list[FieldError]:
    """Set the missing node ports; return the errors of requested node ports.

    In a new service, ports with the same number share a node port, such as a UDP port and a TCP port. As upstream, this
    does not apply to an update.
    """
    if not services.is_outside(spec):
        return []
    ports: Sequence[Document] = spec.get("ports") or ()
    had = {port.get("nodePort") for port in (before or {}).get("ports") or ()}
    named: dict[int, int] = {}  # number of a port → the first node port that the service requests for it
    for port in ports if before is None else ():
        if port.get("nodePort"):
            named.setdefault(port.get("port", 0), port["nodePort"])
    got: dict[int, int] = {}  # number of a port → its node port
    taken: set[int] = set()
    faults = Errors()
    for index, port in enumerate(ports):
        number, wanted = port.get("port", 0), port.get("nodePort", 0)
        wanted = wanted or (got.get(number) or named.get(number, 0) if before is None else 0)
        if not wanted and not services.has_node_ports(spec):
            continue
        if wanted and wanted not in had and got.get(number) != wanted:
            why = TAKEN_PORT if wanted in taken and before is None else free.port_error(wanted)
            if why:
                faults.append(invalid(f"{item('spec.ports', index)}.nodePort", wanted, why))
        port["nodePort"] = wanted or free.port(taken)
        got.setdefault(number, port["nodePort"])
        taken.add(port["nodePort"])
    return faults


def _set_health_check_port(spec: Document, before: View, free: Addresses) -> list[FieldError]:
    """Set the missing health-check port of a service; return the errors of a requested port."""
    if not services.is_checked(spec):
        return []
    wanted = spec.get("healthCheckNodePort")
    if not wanted:
        spec["healthCheckNodePort"] = free.port()
    elif not services.is_checked(before):
        why = free.port_error(wanted)
        if any(port.get("nodePort") == wanted for port in spec.get("ports") or ()):
            why = why or TAKEN_PORT
        return [invalid("spec.healthCheckNodePort", wanted, why)] if why else []
    return []


def _addresses(spec: View) -> list[str]:
    return list(spec.get("clusterIPs") or ([spec["clusterIP"]] if spec.get("clusterIP") else []))


def _family_of(address: str) -> str:
    return "IPv6" if ":" in address else "IPv4"


def _unmatched(spec: View, given: list[str]) -> Iterator[FieldError]:
    first, path = spec.get("clusterIP") or "", "spec.clusterIPs"
    if first and given[0] != first:
        yield invalid(path, given, "first value must match `clusterIP`")
    if given and not first:
        yield invalid(path, given, "must be empty when `clusterIP` is not specified")


def _address_errors(given: list[str], families: list[str], had: list[str]) -> list[FieldError]:
    path, errors = "spec.clusterIPs", Errors()
    if given[:1] == ["None"] and len(given) > 1:
        errors.append(invalid(path, given, "'None' must be the first and only value"))
    for index, address in enumerate(given):
        if not (address == "None" and not index):
            errors += address_errors(item(path, index), address, had)
    unreadable = bool(errors)
    if len(given) > 2:
        errors.append(invalid(path, given, "may only hold up to 2 values"))
    if not unreadable and len(given) > 1 and len(set(map(_family_of, given))) < 2:
        errors.append(invalid(path, given, "may specify no more than one IP for each IP family"))
    if not unreadable:
        errors += _misplaced(given, families)
    return errors


def _family_errors(families: list[str], policy: str) -> Iterator[FieldError]:
    seen = set[str]()
    for index, family in enumerate(families):
        if family not in _OTHER:
            yield not_supported(item("spec.ipFamilies", index), family, tuple(_OTHER))
        if family in seen:
            yield duplicate(item("spec.ipFamilies", index), family)
        seen.add(family)
    if policy not in (_PREFER, _REQUIRE, _SINGLE):
        yield not_supported(_POLICY, policy, (_PREFER, _REQUIRE, _SINGLE))


def _misplaced(given: list[str], families: list[str]) -> Iterator[FieldError]:
    """Yield an error for each address that is not of its requested family."""
    for index, (address, family) in enumerate(zip(given, families, strict=False)):
        if address_of(address) is not None and family in _OTHER and _family_of(address) != family:
            text = f"expected an {family} value as indicated by `ipFamilies[{index}]`"
            yield invalid(item("spec.clusterIPs", index), address, text)
