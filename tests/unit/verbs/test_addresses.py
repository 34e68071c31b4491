"""The pool of addresses and ports of services."""

from __future__ import annotations

import json
import re
from ipaddress import IPv4Network, IPv6Address, IPv6Network
from typing import Any

import pytest

from apiext.catalog.builtin import service_flags
from apiext.config import ConfigError, ServiceRanges
from apiext.meta.status import StatusError
from apiext.verbs import limits
from apiext.verbs.address_pool import Addresses
from apiext.verbs.addresses import allocate

pytestmark = pytest.mark.rows("DEC-002")


class Clock:
    """A clock that tests set."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


SMALL = ServiceRanges((IPv4Network("10.96.0.0/29"), IPv6Network("fd00:10:96::/125")), range(30_000, 30_003))
ALL = [f"10.96.0.{number}" for number in range(1, 7)]


def service(**spec: Any) -> bytes:
    return json.dumps({"spec": spec}).encode()


def test_each_address_and_port_is_allocated_once(clock: Clock) -> None:
    free = Addresses(SMALL, clock)
    assert sorted(free.address("IPv4", "s") for _ in range(6)) == ALL
    assert sorted(free.address("IPv6", "s") for _ in range(7)) == [f"fd00:10:96::{number}" for number in range(1, 8)]
    assert sorted(free.port() for _ in range(3)) == [30_000, 30_001, 30_002]


def test_addresses_of_stored_services_are_not_allocated(clock: Clock) -> None:
    free = Addresses(SMALL, clock)
    free.put("a/b", service(clusterIP="10.96.0.1", clusterIPs=["10.96.0.1", "fd00:10:96::2"]))
    free.put("a/c", service(clusterIP="10.96.0.2", ports=[{"port": 1, "nodePort": 30_000}], healthCheckNodePort=30_001))
    free.put("a/d", service(clusterIP="None"))
    free.put("a/e", service(ports=[{"port": 1}]))
    for _ in range(20):
        clock.now += 2 * limits.ADDRESS_GIVEN
        assert free.address("IPv4", "s") in ALL[2:]
        assert free.address("IPv6", "s") != "fd00:10:96::2"
        assert free.port() == 30_002
    free.put("a/c", service(clusterIP="10.96.0.3"))
    free.drop("a/b")
    free.drop("a/nothing")
    clock.now += 2 * limits.ADDRESS_GIVEN
    assert sorted(free.address("IPv4", "s") for _ in range(5)) == [one for one in ALL if one != "10.96.0.3"]
    assert sorted(free.port() for _ in range(3)) == [30_000, 30_001, 30_002]


def test_address_of_two_services_is_freed_by_last_deletion(clock: Clock) -> None:
    free = Addresses(SMALL, clock)
    for key in ("a/b", "a/c"):
        free.put(key, service(clusterIP="10.96.0.1"))
    free.drop("a/b")
    assert "10.96.0.1" not in [free.address("IPv4", "s") for _ in range(5)]
    free.drop("a/c")
    assert free.address("IPv4", "s") == "10.96.0.1"


def test_unused_allocations_expire(clock: Clock) -> None:
    free = Addresses(SMALL, clock)
    first = {free.address("IPv4", "s") for _ in range(6)}
    assert {free.address("IPv4", "s") for _ in range(1)} <= first, "rather one that was given a moment ago than none"
    clock.now += 2 * limits.ADDRESS_GIVEN
    assert {free.address("IPv4", "s") for _ in range(6)} == first


def test_full_range_is_an_allocation_error(clock: Clock) -> None:
    free = Addresses(SMALL, clock)
    for number, address in enumerate(ALL):
        free.put(f"a/{number}", service(clusterIP=address, ports=[{"nodePort": 30_000 + number % 3}]))
    with pytest.raises(StatusError, match='failed to allocate a serviceIP for Service "s": range is full') as full:
        free.address("IPv4", "s")
    assert full.value.code == 500
    with pytest.raises(StatusError, match="failed to allocate a nodePort: range is full"):
        free.port()


@pytest.mark.parametrize(
    "raw", [b"[]", b"{", b'{"spec":null}', b'{"spec":{"ports":[1]}}', b'{"spec":{"clusterIPs":5}}']
)
def test_malformed_stored_service_holds_no_address(clock: Clock, raw: bytes) -> None:
    free = Addresses(SMALL, clock)
    free.put("a/b", service(clusterIP="10.96.0.1"))
    free.put("a/b", raw)
    assert sorted(free.address("IPv4", "s") for _ in range(6))[0] == "10.96.0.1"
    free.drop("a/b")


def test_requested_addresses_are_not_allocated_to_other_services(clock: Clock) -> None:
    free = Addresses(SMALL, clock)
    for address in ALL[:-1]:
        assert free.address_error("IPv4", address) == ""
    assert free.address_error("IPv4", "010.96.0.1") == "", "nobody has it yet"
    assert free.address("IPv4", "s") == ALL[-1]
    for port in (30_000, 30_002):
        assert free.port_error(port) == ""
    assert free.port() == 30_001


def test_service_gets_distinct_ports(clock: Clock) -> None:
    free = Addresses(SMALL, clock)
    assert sorted(free.port() for _ in range(3)) == [30_000, 30_001, 30_002]
    assert free.port({30_000, 30_002}) == 30_001, "rather one of a moment ago than none"
    with pytest.raises(StatusError, match="range is full"):
        free.port({30_000, 30_001, 30_002})


def test_excluded_ports_are_not_allocated(clock: Clock) -> None:
    free = Addresses(SMALL, clock)
    for _ in range(50):
        clock.now += 2 * limits.ADDRESS_GIVEN
        assert free.port({30_000, 30_002}) == 30_001


def test_prefer_dual_stack_keeps_single_family_on_update(clock: Clock) -> None:
    """A service that was created with one family keeps one until it requires two.

    It also keeps one family while it prefers two.
    """
    spec = {"type": "ClusterIP", "ipFamilyPolicy": "PreferDualStack", "ipFamilies": ["IPv4"]}
    old = {"metadata": {"name": "s"}, "spec": {**spec, "clusterIP": ALL[0], "clusterIPs": ALL[:1]}}
    free = Addresses(SMALL, clock)
    given = allocate({"metadata": {"name": "s"}, "spec": {**old["spec"], "selector": {"a": "b"}}}, old, free)
    assert (given["spec"]["clusterIPs"], given["spec"]["ipFamilies"]) == (ALL[:1], ["IPv4"])
    asked = {"metadata": {"name": "s"}, "spec": {**old["spec"], "ipFamilyPolicy": "RequireDualStack"}}
    assert allocate(asked, old, free)["spec"]["ipFamilies"] == ["IPv4", "IPv6"]


def test_unavailable_requested_address_is_an_error(clock: Clock) -> None:
    free = Addresses(SMALL, clock)
    free.put("a/b", service(clusterIPs=["010.96.0.1", "fd00:10:96:0::1"], ports=[{"nodePort": 30_001}]))
    other, taken = "the provided network does not match the current range", "provided IP is already allocated"
    why = {
        text: free.address_error("IPv6" if ":" in text else "IPv4", text)
        for text in ("10.96.0.0", "10.96.0.7", "10.96.0.8", "x", "fd00:10:96::", "fd00:10:96::8", "10.96.0.1",
                     "fd00:10:96::1", "fd00:10:96::7")
    }  # fmt: skip
    assert list(why.values()) == [other] * 6 + [taken] * 2 + [""]
    assert free.port_error(30_001) == "provided port is already allocated"
    assert [free.port_error(number) for number in (29_999, 30_003)] == [
        "provided port is not in the valid range. The range of valid ports is 30000-30002"
    ] * 2


def test_large_network_allocates_from_its_beginning(clock: Clock) -> None:
    free = Addresses(ServiceRanges((IPv6Network("fd00::/64"),)), clock)
    assert free.families == ("IPv6",)
    address = free.address("IPv6", "s")
    assert 0 < int(IPv6Address(address)) - int(IPv6Address("fd00::")) < limits.ADDRESSES_OF_A_FAMILY
    assert free.address_error("IPv6", "fd00::ffff:0:0:1") == "", "any may be named"


def test_network_of_one_address_is_full(clock: Clock) -> None:
    with pytest.raises(StatusError, match="range is full"):
        Addresses(ServiceRanges((IPv4Network("10.0.0.1/32"),)), clock).address("IPv4", "s")


@pytest.mark.rows("ERR-09")
def test_service_flags_are_parsed() -> None:
    def said(networks: str = "", ports: str = "") -> ServiceRanges:
        return service_flags.read({"service-cluster-ip-range": networks, "service-node-port-range": ports})

    defaults = {name: default for name, _, default, _ in service_flags.FLAGS}
    assert said() == service_flags.read(defaults) == ServiceRanges()
    assert [str(network) for network in said("10.0.0.9/24").networks] == ["10.0.0.0/24"]
    assert [network.version for network in said("fd00::/112,10.0.0.0/24").networks] == [6, 4]
    assert said(ports="31000").ports == range(31_000, 31_001)
    assert said(ports="31000-31001").ports == said(ports="31000+1").ports == range(31_000, 31_002)


@pytest.mark.parametrize(
    ("networks", "ports", "why"),
    [
        ("10.0.0.0", "", "service-cluster-ip-range[0] is not a valid cidr"),
        ("x/8", "", "service-cluster-ip-range[0] is not a valid cidr"),
        ("10.0.0.0/8,", "", "service-cluster-ip-range[1] is not an ip net"),
        ("10.0.0.0/24,10.0.1.0/24", "",
         "--service-cluster-ip-range[0] and --service-cluster-ip-range[1] must be of different IP family"),
        ("10.0.0.0/24,fd00::/112,10.0.1.0/24", "", "--service-cluster-ip-range must not contain more than two entries"),
        ("", "a", "--service-node-port-range a: expected ports such as 30000-32767"),
        ("", "1-", "--service-node-port-range 1-: expected ports such as 30000-32767"),
        ("", "2-1", "--service-node-port-range: end port cannot be less than start port: 2-1"),
        ("", "1-65536", "--service-node-port-range: the port range cannot be greater than 65535: 1-65536"),
    ],
)  # fmt: skip
def test_invalid_service_flags_are_errors(networks: str, ports: str, why: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(why)):
        service_flags.read({"service-cluster-ip-range": networks, "service-node-port-range": ports})
