"""Measure reads of converted objects.

The cases are versions with equal schemas, and a conversion webhook in another process.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

from apiext.conformance.support.conversion_webhook import conversion, in_another_process
from apiext.conformance.support.definitions import establish
from tests.bench import wire
from tests.bench.rig import GROUP, Rig, definition, thing

LISTED, LISTS = 1_000, 8
READ = 3_000

Row = tuple[str, float, str, float]
"""Workload, figure, unit, goal."""


def define(bench: Rig, plural: str, client_config: dict[str, Any] | None = None) -> None:
    """Establish the measured definition under another name, with a second version v2."""
    wanted = definition()
    spec = wanted["spec"]
    wanted["metadata"]["name"] = f"{plural}.{GROUP}"
    spec["names"]["plural"], spec["names"]["kind"] = plural, plural.capitalize()
    spec["versions"].append({**spec["versions"][0], "name": "v2", "storage": False})
    if client_config is not None:
        spec["conversion"] = conversion(client_config, ("v1",))
    establish(bench.api, wanted)


def path(plural: str, version: str, namespace: str, name: str = "", query: str = "") -> str:
    """Return the path of a collection or an object."""
    return f"/apis/{GROUP}/{version}/namespaces/{namespace}/{plural}" + (f"/{name}" if name else "") + query


def fill(bench: Rig, plural: str, namespace: str, count: int) -> None:
    """Create ``count`` objects in v1."""
    kind = b'"kind":"%b"' % plural.capitalize().encode()
    names = (f"o{number:05}" for number in range(count))
    bodies = (thing(name).replace(b'"kind":"Bench"', kind) for name in names)
    wire.run(bench.address, (wire.request("POST", path(plural, "v1", namespace), body) for body in bodies), 16)


def measured(bench: Rig, requests: Iterator[bytes], clients: int = 16) -> float:
    """Return the microseconds of server CPU of a request."""
    before = bench.cpu()
    run = wire.run(bench.address, requests, clients)
    return (bench.cpu() - before) / run.count * 1e6


def reads(plural: str, version: str, rounds: int) -> Iterator[bytes]:
    """Yield GETs from the cache, of all names in turn."""
    names = [path(plural, version, "default", f"o{number:05}", "?resourceVersion=0") for number in range(READ)]
    return itertools.islice(itertools.cycle([wire.request("GET", name) for name in names]), rounds)


def by_name(bench: Rig) -> Iterator[Row]:
    """Measure GETs in a version that differs only by its name."""
    define(bench, "plains")
    fill(bench, "plains", "default", READ)
    measured(bench, reads("plains", "v1", READ))
    plain = measured(bench, reads("plains", "v1", 3 * READ))
    first = measured(bench, reads("plains", "v2", READ))
    again = measured(bench, reads("plains", "v2", 3 * READ))
    yield "GET through None conversion, first, over a GET", first - plain, "µs CPU", 60.0
    yield "GET through None conversion, remembered, over a GET", again - plain, "µs CPU", 5.0


def by_webhook(bench: Rig) -> Iterator[Row]:
    """Measure GETs and LISTs in a version to which a webhook converts."""
    with in_another_process() as (config, count):
        define(bench, "hooked", config)
        fill(bench, "hooked", "default", READ)
        first = measured(bench, reads("hooked", "v2", READ))
        yield "GET through a webhook, first", first, "µs CPU", 500.0
        yield "GET through a webhook, remembered", measured(bench, reads("hooked", "v2", 3 * READ)), "µs CPU", 30.0
        for size, goal in ((100, 3.0), (LISTED, 20.0)):
            spaces = [f"n{size}-{number}" for number in range(LISTS * LISTED // size)]
            for space in spaces:
                bench.api.post("/api/v1/namespaces", {"metadata": {"name": space}}).expect(201)
                fill(bench, "hooked", space, size)
            yield from _lists(bench, spaces, size, goal, count)


def _lists(bench: Rig, spaces: list[str], size: int, goal: float, count: Callable[[], int]) -> Iterator[Row]:
    asks = [wire.request("GET", path("hooked", "v2", space)) for space in spaces]
    warm = [wire.request("GET", path("hooked", "v1", space)) for space in spaces]
    measured(bench, iter(warm), 1)
    before = count()
    first = measured(bench, iter(asks), 1)
    calls = (count() - before) / len(spaces)
    yield f"LIST {size:,} through a webhook, first", first / 1e3, "ms CPU", goal
    yield f"LIST {size:,} through a webhook, reviews", calls, "reviews", size / 100
    before = count()
    yield f"LIST {size:,} through a webhook, second", measured(bench, iter(asks), 1) / 1e3, "ms CPU", 0.0
    yield f"LIST {size:,} through a webhook, second, reviews", float(count() - before), "reviews", 0.0
