"""Metrics of a resource are deleted some time after its definition."""

import asyncio
from collections.abc import Iterator

import pytest

from apiext.catalog.served import LiveCatalog
from apiext.http import metrics_expiry
from apiext.http.filters import Gate
from apiext.http.metrics_expiry import MetricsExpiry
from apiext.http.published import Conditional, Publisher
from apiext.telemetry import STRETCH, Family, IsDeleted, Telemetry
from tests.unit.http.support import COLLECTION, GROUP, PLURAL, Shelf, catalog, connected, on_uvloop, serving, until

ONE = f"{COLLECTION}/a?resourceVersion=0"


async def test_metrics_of_a_deleted_resource_expire() -> None:
    live, telemetry = LiveCatalog(catalog()), Telemetry()
    by_definition = Family("conversions", "counter", "", ("crd_name", "succeeded"))
    by_resource = Family("transformations", "counter", "", ("resource", "status"))
    by_name = Family("hooks", "counter", "", ("name", "group"))
    for family in (by_definition, by_resource, by_name):
        telemetry.add(family)
    for group, resource in ((GROUP, PLURAL), (".apiext", "guards"), ("", "namespaces"), ("", "pods")):
        telemetry.watch_events.slot(group, "v1", resource).value = 1
        telemetry.etcd_seconds.observe(0.1, group, "list", resource)
    by_definition.slot(f"{PLURAL}.{GROUP}", "true").value = 1
    for resource in (f"{PLURAL}.{GROUP}", "secrets"):
        by_resource.slot(resource, "OK").value = 1
    by_name.slot("a", GROUP).value = 1
    told = telemetry.text()
    expiry = MetricsExpiry(live, [telemetry.drop_deleted])
    for _ in range(3):
        list(expiry.check())
    live.current = live.current.without_resource(GROUP, PLURAL)
    list(expiry.check())
    assert _samples(telemetry.text()) == _samples(told), "somebody may not have read it yet"
    list(expiry.check())
    left = _samples(telemetry.text())
    assert left == {line for line in _samples(told) if PLURAL not in line}
    assert 'hooks{name="a",group="example.com"} 1' in left


def _samples(text: str) -> set[str]:
    return {line for line in text.splitlines() if not line.startswith(("#", "process_"))}


async def test_metrics_of_a_recreated_definition_continue() -> None:
    live, telemetry = LiveCatalog(catalog()), Telemetry()
    served = live.current.resource(GROUP, PLURAL)
    assert served is not None
    number = telemetry.watch_events.slot(GROUP, "v1", PLURAL)
    expiry = MetricsExpiry(live, [telemetry.drop_deleted])
    for _ in range(4):
        live.current = live.current.without_resource(GROUP, PLURAL)
        list(expiry.check())
        live.current = live.current.with_resource(served)
        list(expiry.check())
    assert telemetry.watch_events.slot(GROUP, "v1", PLURAL) is number


async def test_expiry_of_many_metrics_yields_to_the_event_loop() -> None:
    family = Family("many", "counter", "", ("group", "resource"))
    for number in range(3 * STRETCH):
        family.slot(f"g{number}", "things")
    assert sum(1 for _ in family.drop_deleted(lambda *_: True)) >= 3
    assert not list(family.lines())


async def test_published_documents_of_a_deleted_group_expire() -> None:
    live = LiveCatalog(catalog())
    publisher = Publisher("1.37", Telemetry())
    conditional, made = publisher._conditional, publisher._regenerations._made
    names = [f"openapi/v3/apis/{GROUP}/v1", "openapi/v3/api/v1", "openapi/v2", "apis"]
    for name in names:
        conditional.headers(name, '"1"')
    made[f"apis/{GROUP}/v1"] = made["v2"] = ('"1"', {})
    expiry = MetricsExpiry(live, [publisher.drop_deleted])
    list(expiry.check())
    list(expiry.check())
    assert [*_changes(conditional)] == names
    live.current = live.current.without_resource(GROUP, PLURAL)
    list(expiry.check())
    list(expiry.check())
    assert [*_changes(conditional)] == names[1:]
    assert [*made] == ["v2"]


def _changes(conditional: Conditional) -> dict[str, tuple[str, int, str]]:
    return conditional._changes


async def test_gate_drops_its_counters_before_the_telemetry(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []

    def drop_deleted(telemetry: Telemetry, gone: IsDeleted) -> Iterator[None]:
        seen.append(len(gate._counters))
        yield

    shelf = Shelf()
    shelf.put("a")
    async with serving(shelf) as server, connected(server) as client:
        gate: Gate = server._gate
        assert (await client.ask("GET", ONE)).code == 200
        assert len(gate._counters) == 1
        monkeypatch.setattr(Telemetry, "drop_deleted", drop_deleted)
        list(gate.drop_deleted(lambda *_: True))
    assert seen == [0]


@on_uvloop
async def test_server_expires_metrics_periodically(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_expiry, "EXPIRE_EVERY", 0.02)
    shelf = Shelf()
    shelf.put("a")
    async with serving(shelf) as server, connected(server) as client:
        for number in (1, 2):
            for _ in range(number):
                assert (await client.ask("GET", ONE)).code == 200
            counted = f'scope="resource",component="apiserver",code="200"}} {number}'.encode()
            assert counted in (await client.ask("GET", "/metrics")).body
            served = shelf.catalog.current.resource(GROUP, PLURAL)
            assert served is not None
            shelf.catalog.current = shelf.catalog.current.without_resource(GROUP, PLURAL)
            await until(lambda: not server._gate._counters)
            await until(lambda: PLURAL not in "".join(server.telemetry.requests.lines()))
            shelf.catalog.current = shelf.catalog.current.with_resource(served)


async def test_failed_expiry_check_is_followed_by_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics_expiry, "EXPIRE_EVERY", 0.001)
    looks = list[str]()

    def part(gone: IsDeleted) -> Iterator[None]:
        looks.append("begin")
        yield
        if len(looks) == 1:
            raise ValueError("nothing is there")
        looks.append("end")

    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    expiry = MetricsExpiry(LiveCatalog(catalog()), [part])
    expiry.start()
    await until(lambda: len(looks) >= 5)
    expiry.stop()
    assert looks[:5] == ["begin", "begin", "end", "begin", "end"]
