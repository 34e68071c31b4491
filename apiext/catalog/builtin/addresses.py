"""Addresses of services and their ports of nodes: given out where a service has none (core/service/storage/alloc.go).

Nothing routes to them. Clients wait for them all the same: ``helm --wait`` for an address, operators for ports.
"""

from collections.abc import Sequence
from typing import Any

from apiext.catalog.builtin import services
from apiext.catalog.builtin.address_pool import Addresses
from apiext.documents.document import Document, View


def give(new: Document, old: View | None, free: Addresses) -> Document:
    """Give a service what it lacks, in place: addresses by its families, and ports; 500 when nothing is free."""
    spec, before = new["spec"], (old or {}).get("spec") or {}
    if not services.has_address(spec):
        return new
    if not services.is_headless(spec):
        _give_addresses(spec, before, (new.get("metadata") or {}).get("name", ""), free)
    if services.has_node_ports(spec):
        _give_ports(spec.get("ports") or (), free)
    if services.is_checked(spec) and not spec.get("healthCheckNodePort"):
        spec["healthCheckNodePort"] = free.port()
    return new


def _give_addresses(spec: Document, before: View, name: str, free: Addresses) -> None:
    errors, given, families, policy = services.settled_addresses(spec, before)
    if errors:
        return
    families += [services.family_of(address) for address in given[len(families) :]]
    families = families or ["IPv4"]
    if policy != services.SINGLE and len(families) == 1:
        families.append(services.FAMILIES[families[0]])
    given += [free.address(family, name) for family in families[len(given) :]]
    spec |= {"clusterIP": given[0], "clusterIPs": given, "ipFamilies": families, "ipFamilyPolicy": policy}


def _give_ports(ports: Sequence[Document], free: Addresses) -> None:
    """Give each port one of the nodes; ports of one number share it, for UDP and TCP."""
    shared: dict[Any, int] = {}
    for port in ports:
        if port.get("nodePort"):
            shared.setdefault(port.get("port"), port["nodePort"])
    for port in ports:
        if not port.get("nodePort"):
            port["nodePort"] = shared.get(port.get("port")) or free.port()
            shared.setdefault(port.get("port"), port["nodePort"])
