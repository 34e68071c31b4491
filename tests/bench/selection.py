"""Knows what selective lists of a large collection cost: by label and by field, remembered and first."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from tests.bench import wire
from tests.bench.rig import GROUP, Rig, thing
from tests.support.http_client import DEFINITIONS
from tests.support.waiting import until

Row = tuple[str, float, str, float]
"""Workload, figure, unit, goal (0: none)."""

OBJECTS = 10_000
ROUNDS = 300
GROUPS = 1_000  # ten objects in each
PER_ROW = 4.0  # µs of a row on its way out


def _thing(number: int) -> bytes:
    document: dict[str, Any] = json.loads(thing(f"o{number:05}", labels={"part": f"g{number % GROUPS}"}))
    document["spec"]["p30"] = f"f{number % GROUPS}"
    document["spec"]["p31"] = "even" if number % 2 else "odd"
    return json.dumps(document, separators=(",", ":")).encode()


def _select_fields(bench: Rig) -> None:
    """Let p30 and p31 be selected by."""
    path = f"{DEFINITIONS}/benches.{GROUP}"
    fields = [{"jsonPath": ".spec.p30"}, {"jsonPath": ".spec.p31"}]
    patch = [{"op": "add", "path": "/spec/versions/0/selectableFields", "value": fields}]
    bench.api.patch(path, patch, "application/json-patch+json").expect(200)
    until(lambda: bench.api.get(bench.path(), fieldSelector="spec.p30=x").status == 200, "p30 can be selected by")


def _per_list(bench: Rig, query: Callable[[int], str], rounds: int) -> float:
    """Return seconds of server CPU for each list; one object is written before every tenth, at its own cost."""
    turn = iter(range(10**9))

    def write() -> bytes:
        patch = json.dumps({"spec": {"p59": f"turn {next(turn)}"}}).encode()
        return wire.request("PATCH", bench.path("o00007"), patch)

    def lists(number: int) -> Iterator[bytes]:
        yield write()
        for at in range(10 * number, 10 * number + 10):
            yield wire.request("GET", f"{bench.path()}?{query(at)}")

    before = bench.cpu()
    wire.run(bench.address, (write() for _ in range(rounds)), 1)
    alone = bench.cpu() - before
    before = bench.cpu()
    wire.run(bench.address, (it for number in range(rounds) for it in lists(number)), 1)
    return max(0.0, bench.cpu() - before - alone) / (10 * rounds)


def rows(bench: Rig) -> Iterator[Row]:
    """Yield the figures; ten of 10,000 objects match, others for each list."""
    _select_fields(bench)
    wire.run(bench.address, (wire.request("POST", bench.path(), _thing(it)) for it in range(OBJECTS)), 16)
    for name, text in (("label", "labelSelector=part%3Dg{}"), ("field", "fieldSelector=spec.p30%3Df{}")):
        before = bench.cpu()
        bench.api.get(f"{bench.path()}?resourceVersion=0&{text.format(1)}").expect(200)
        yield (f"first LIST of 10 of {OBJECTS:,} by {name}", (bench.cpu() - before) * 1e3, "ms CPU", 0.0)
        took = _per_list(bench, lambda it, text=text: f"resourceVersion=0&{text.format(it % GROUPS)}", ROUNDS)
        yield (f"LIST 10 of {OBJECTS:,} by {name}", took * 1e6, "µs CPU", 100.0 + 10 * PER_ROW)
    took = _per_list(bench, lambda _: "fieldSelector=spec.p31%3Deven&limit=500", ROUNDS // 10)
    yield (
        f"LIST 500 of {OBJECTS // 2:,} that match by field",
        took * 1e6,
        "µs CPU",
        170.0 + 500 * PER_ROW,
    )  # the newest: etcd is asked
