"""Measure Table and PartialObjectMetadata lists, and applies with several field managers.

Lists are measured first and cached.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from tests.bench import wire
from tests.bench.rig import Rig, thing

Row = tuple[str, float, str, float]
"""Workload, figure, unit, goal (0: none)."""

OBJECTS = 10_000
MANAGERS = 10
_AS = "Accept: application/json;as={};v=v1;g=meta.k8s.io\r\n"
_APPLY = "application/apply-patch+yaml"


def lists(bench: Rig) -> Iterator[Row]:
    """Measure a Table of 500 rows, and all objects as PartialObjectMetadata.

    Measure the first list and cached lists. The first list encodes all objects. One list is too short for the kernel's
    clock of hundredths of a second, so many first lists are added.
    """
    bench.fill(OBJECTS)
    line = wire.Line(bench.address)
    table = wire.request("GET", bench.path() + "?limit=500", headers=_AS.format("Table"))
    partial = bench.path() + "?resourceVersion=0"
    some = wire.request("GET", partial, headers=_AS.format("PartialObjectMetadataList"))
    yield ("Table of 500 rows, first", _first(bench, line, "?limit=500", "Table", 20) * 1e3, "ms CPU", 4.0)
    yield ("Table of 500 rows, remembered", _again(bench, line, table, 300) * 1e3, "ms CPU", 0.5)
    cost = _first(bench, line, "?resourceVersion=0", "PartialObjectMetadataList", 4)
    yield (f"PartialObjectMetadata of {OBJECTS:,}, first", cost * 1e3, "ms CPU", 0.0)
    yield (f"PartialObjectMetadata of {OBJECTS:,}, remembered", _again(bench, line, some, 30) * 1e3, "ms CPU", 8.0)
    yield (f"PartialObjectMetadata of {OBJECTS:,}, size", line.ask(some) / 1e6, "MB", 0.0)
    line.socket.close()


def _again(bench: Rig, line: wire.Line, ask: bytes, rounds: int) -> float:
    line.ask(ask)
    before = bench.cpu()
    for _ in range(rounds):
        line.ask(ask)
    return (bench.cpu() - before) / rounds


def _first(bench: Rig, line: wire.Line, query: str, kind: str, rounds: int) -> float:
    """Return the CPU seconds of a list whose media type is not cached."""
    total = 0.0
    for _ in range(rounds):
        # two media types are cached: requests for two other types evict the measured type
        for version, include in (("v1beta1", "Object"), ("v1beta1", "None")):
            headers = _AS.format(kind).replace("v=v1", f"v={version}")
            line.ask(wire.request("GET", f"{bench.path()}{query}&includeObject={include}", headers=headers))
        ask = wire.request("GET", f"{bench.path()}{query}", headers=_AS.format(kind))
        before = bench.cpu()
        line.ask(ask)
        total += bench.cpu() - before
    return total / rounds


def applies(bench: Rig) -> Iterator[Row]:
    """Measure an apply of a changed object of 1 KiB whose fields have one or ten managers."""
    address, count = bench.address, 500
    for managers, goal in ((1, 900.0), (MANAGERS, 2_000.0)):
        names = [f"apply{managers:02}-{number:04}" for number in range(count)]
        for manager in range(managers):
            wire.run(address, (_apply(bench, name, manager, 0) for name in names), 16)
        before = bench.cpu()
        wire.run(address, [_apply(bench, name, 0, 1) for name in names], 1)
        by = f"{managers} manager" + "s" * (managers > 1)
        yield (f"server-side apply, {by}, 1 client", (bench.cpu() - before) / count * 1e6, "µs CPU", goal)


def _apply(bench: Rig, name: str, manager: int, turn: int) -> bytes:
    """Return an apply of the whole object by manager 0, or of two fields by another manager.

    The two fields of a manager are separate from those of other managers.
    """
    document = json.loads(thing(name, turn))
    if manager:
        document["spec"] = {f"p{40 + manager}": name, f"n{manager + 1:02}": manager}
    path = f"{bench.path(name)}?fieldManager=manager{manager}&force=true"
    return wire.request("PATCH", path, json.dumps(document).encode(), kind=_APPLY)
