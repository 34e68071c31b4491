"""The pool of addresses and ports that services are given."""

from __future__ import annotations

import json
from typing import Any

import pytest

from apiext import limits
from apiext.catalog.builtin import address_pool
from apiext.catalog.builtin.address_pool import Addresses
from apiext.meta.status import StatusError

pytestmark = pytest.mark.rows("DEC-002")


class Clock:
    """A time that tests set."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have four addresses of a family, and three ports."""
    monkeypatch.setattr(address_pool, "_NUMBERS", range(1, 5))
    monkeypatch.setattr(address_pool, "_PORTS", range(30_000, 30_003))


def service(**spec: Any) -> bytes:
    return json.dumps({"spec": spec}).encode()


def test_each_is_given_once(clock: Clock) -> None:
    free = Addresses(clock)
    given = [free.address("IPv4", "s") for _ in range(4)]
    assert sorted(given) == ["10.96.0.1", "10.96.0.2", "10.96.0.3", "10.96.0.4"]
    assert sorted(free.address("IPv6", "s") for _ in range(4))[0] == "fd00:10:96::1"
    assert sorted(free.port() for _ in range(3)) == [30_000, 30_001, 30_002]


def test_what_stored_services_have_is_not_given(clock: Clock) -> None:
    free = Addresses(clock)
    free.put("a/b", service(clusterIP="10.96.0.1", clusterIPs=["10.96.0.1", "fd00:10:96::2"]))
    free.put("a/c", service(clusterIP="10.96.0.2", ports=[{"port": 1, "nodePort": 30_000}], healthCheckNodePort=30_001))
    free.put("a/d", service(clusterIP="None"))
    free.put("a/e", service(ports=[{"port": 1}]))
    for _ in range(20):
        clock.now += 2 * limits.ADDRESS_GIVEN
        assert free.address("IPv4", "s") in ("10.96.0.3", "10.96.0.4")
        assert free.address("IPv6", "s") != "fd00:10:96::2"
        assert free.port() == 30_002
    free.put("a/c", service(clusterIP="10.96.0.3"))
    free.drop("a/b")
    free.drop("a/nothing")
    clock.now += 2 * limits.ADDRESS_GIVEN
    assert sorted(free.address("IPv4", "s") for _ in range(3)) == ["10.96.0.1", "10.96.0.2", "10.96.0.4"]
    assert sorted(free.port() for _ in range(3)) == [30_000, 30_001, 30_002]


def test_one_that_two_services_have_is_free_when_both_are_gone(clock: Clock) -> None:
    free = Addresses(clock)
    for key in ("a/b", "a/c"):
        free.put(key, service(clusterIP="10.96.0.1"))
    free.drop("a/b")
    assert "10.96.0.1" not in [free.address("IPv4", "s") for _ in range(3)]
    free.drop("a/c")
    assert free.address("IPv4", "s") == "10.96.0.1"


def test_what_nobody_came_to_have_is_free_again(clock: Clock) -> None:
    free = Addresses(clock)
    first = {free.address("IPv4", "s") for _ in range(4)}
    assert {free.address("IPv4", "s") for _ in range(1)} <= first, "rather one that was given a moment ago than none"
    clock.now += 2 * limits.ADDRESS_GIVEN
    assert {free.address("IPv4", "s") for _ in range(4)} == first


def test_nothing_is_left(clock: Clock) -> None:
    free = Addresses(clock)
    for number in range(1, 5):
        free.put(f"a/{number}", service(clusterIP=f"10.96.0.{number}", ports=[{"nodePort": 29_999 + number}]))
    with pytest.raises(StatusError, match='failed to allocate a serviceIP for Service "s": range is full') as full:
        free.address("IPv4", "s")
    assert full.value.code == 500
    with pytest.raises(StatusError, match="failed to allocate a nodePort: range is full"):
        free.port()


@pytest.mark.parametrize(
    "raw", [b"[]", b"{", b'{"spec":null}', b'{"spec":{"ports":[1]}}', b'{"spec":{"clusterIPs":5}}']
)
def test_services_that_others_have_broken_have_nothing(clock: Clock, raw: bytes) -> None:
    free = Addresses(clock)
    free.put("a/b", service(clusterIP="10.96.0.1"))
    free.put("a/b", raw)
    assert sorted(free.address("IPv4", "s") for _ in range(4))[0] == "10.96.0.1"
    free.drop("a/b")
