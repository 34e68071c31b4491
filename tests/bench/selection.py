"""Measure lists with label and field selectors in a large collection.

Each selector is measured first, and then with an index.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from apiext.conformance.support.http_client import DEFINITIONS
from apiext.conformance.support.waiting import until
from tests.bench import wire
from tests.bench.rig import GROUP, Rig, thing

Row = tuple[str, float, str, float]
"""Workload, figure, unit, goal (0: none)."""

OBJECTS = 10_000
GROUPS = 1_000  # ten objects in each
PER_ROW = 4.0  # µs to send an object of a list


def _thing(number: int) -> bytes:
    document: dict[str, Any] = json.loads(thing(f"o{number:05}", labels={"part": f"g{number % GROUPS}"}))
    document["spec"]["p30"] = f"f{number % GROUPS}"
    document["spec"]["p31"] = "even" if number % 2 else "odd"
    return json.dumps(document, separators=(",", ":")).encode()


def _select_fields(bench: Rig) -> None:
    """Make p30 and p31 selectable fields."""
    path = f"{DEFINITIONS}/benches.{GROUP}"
    fields = [{"jsonPath": ".spec.p30"}, {"jsonPath": ".spec.p31"}]
    patch = [{"op": "add", "path": "/spec/versions/0/selectableFields", "value": fields}]
    bench.api.patch(path, patch, "application/json-patch+json").expect(200)
    until(lambda: bench.api.get(bench.path(), fieldSelector="spec.p30=x").status == 200, "p30 can be selected by")


def _per_list(bench: Rig, query: Callable[[int], str], batches: int, size: int, clients: int) -> float:
    """Return the CPU seconds of a list.

    Lists are sent in batches; a tenth as many objects are written before each batch.
    """
    spent, turn = 0.0, iter(range(10**9))

    def write() -> bytes:
        number = next(turn)
        patch = json.dumps({"spec": {"p59": f"turn {number}"}}).encode()
        return wire.request("PATCH", bench.path(f"o{number * 7 % OBJECTS:05}"), patch)

    for _ in range(batches):
        wire.run(bench.address, (write() for _ in range(size // 10)), clients)
        before = bench.cpu()
        wire.run(bench.address, (wire.request("GET", f"{bench.path()}?{query(it)}") for it in range(size)), clients)
        spent += bench.cpu() - before
    return spent / (batches * size)


def rows(bench: Rig) -> Iterator[Row]:
    """Yield the figures of lists with selectors.

    Ten of 10,000 objects match each list, and the lists select different objects.
    """
    _select_fields(bench)
    wire.run(bench.address, (wire.request("POST", bench.path(), _thing(it)) for it in range(OBJECTS)), 16)
    for name, text in (("label", "labelSelector=part%3Dg{}"), ("field", "fieldSelector=spec.p30%3Df{}")):
        before = bench.cpu()
        bench.api.get(f"{bench.path()}?resourceVersion=0&{text.format(1)}").expect(200)
        yield (f"first LIST of 10 of {OBJECTS:,} by {name}", (bench.cpu() - before) * 1e3, "ms CPU", 0.0)
        for clients, goal in ((1, 0.0), (16, 100.0 + 10 * PER_ROW)):
            took = _per_list(bench, lambda it, text=text: f"resourceVersion=0&{text.format(it)}", 8, GROUPS, clients)
            by = f"{clients} client" + "s" * (clients > 1)
            yield (f"LIST 10 of {OBJECTS:,} by {name}, {by}", took * 1e6, "µs CPU", goal)
    took = _per_list(bench, lambda _: "fieldSelector=spec.p31%3Deven&limit=500", 30, 10, 1)
    yield (
        f"LIST 500 of {OBJECTS // 2:,} that match by field",
        took * 1e6,
        "µs CPU",
        170.0 + 500 * PER_ROW,
    )  # consistent: the server reads the newest revision from etcd
