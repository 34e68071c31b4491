"""Measure functions of schemas, and the costs of many or large definitions.

The functions run on an object. Many definitions are held in memory; reads run during writes of a large definition.
"""

from __future__ import annotations

import json
import multiprocessing
import time
from collections.abc import Callable, Iterator
from multiprocessing.synchronize import Event
from typing import Any

import orjson

from apiext.conformance.support.definitions import is_true
from apiext.conformance.support.http_client import DEFINITIONS
from apiext.conformance.support.waiting import until
from apiext.documents.document import clone
from apiext.documents.encoding import decode_yaml
from apiext.schema.compile import compile_schema
from tests.bench import wire
from tests.bench.rig import GROUP, Rig, definition
from tests.support.shared import shared

Row = tuple[str, float, str, float]
"""Workload, figure, unit, goal (0: none)."""


def _member(number: int) -> dict[str, Any]:
    """Return the schema of a property; all are different, so that the server cannot share work."""
    kinds: list[dict[str, Any]] = [
        {"type": "string", "maxLength": 1000 + number},
        {"type": "string", "pattern": f"^([a-z0-9 ]*|v{number})$"},
        {"type": "integer", "maximum": 1000 + number, "default": 3},
        {"type": "boolean", "default": False},
        {"type": "string", "enum": ["one", "two", f"three {number}"]},
        {"type": "array", "items": {"type": "string"}, "maxItems": 10 + number},
    ]
    return kinds[number % len(kinds)]


def _members(count: int) -> dict[str, Any]:
    return {f"p{number:04}": _member(number) for number in range(count)}


def _schema(count: int) -> dict[str, Any]:
    spec = {"type": "object", "properties": _members(count)}
    return {"type": "object", "properties": {"spec": spec}}


def _object() -> dict[str, Any]:
    """Return an object of about 1 KB."""
    values = ["some words of text " * 2, "letters and 123", 7, True, "two", ["a", "b", "c"]]
    spec = {f"p{number:04}": values[number % len(values)] for number in range(50) if number % len(values) != 2}
    return {"apiVersion": f"{GROUP}/v1", "kind": "Bench", "metadata": {"name": "a"}, "spec": spec}


def _best(work: Callable[[Any], object], make: Callable[[], Any], rounds: int) -> float:
    """Return the seconds of the fastest of some rounds, each with a new value."""
    best = 1e9
    for _ in range(rounds):
        value = make()
        began = time.perf_counter()
        work(value)
        best = min(best, time.perf_counter() - began)
    return best


def functions() -> Iterator[Row]:
    """Measure the functions of a compiled schema on an object of 1 KB."""
    compiled, raw = compile_schema(_schema(60)), orjson.dumps(_object())
    whole = orjson.loads(raw)
    compiled.normalize(whole)
    changed = clone(whole)
    changed["spec"]["p0000"] = "changed"
    broken = clone(changed)
    broken["spec"]["p0004"] = "none of these"
    old = clone(whole)
    old["spec"]["p0004"] = "none of these"
    us = 1e6
    took = _best(compiled.normalize, lambda: orjson.loads(raw), 500)
    yield "prune, nulls, coerce, default: 60 properties, 1 KB", took * us, "µs", 40.0
    yield (
        "validate: 60 properties, 1 KB",
        _best(lambda it: compiled.validate(it, None), whole.copy, 500) * us,
        "µs",
        60.0,
    )
    took = _best(lambda it: compiled.validate(it, old), broken.copy, 500)
    yield "ratcheted update: 60 properties, 1 KB, an old fault", took * us, "µs", 150.0
    for count, goal in ((60, 5.0), (5_000, 300.0)):
        schema = orjson.dumps(_schema(count))

        def use(fresh: Any) -> None:
            made = compile_schema(fresh)
            made.normalize(orjson.loads(raw))
            made.validate(whole, None)

        took = _best(use, lambda text=schema: orjson.loads(text), 5)  # type: ignore[misc]
        yield f"compile and first use: {count:,} properties", took * 1e3, "ms", goal


def wide(name: str, count: int) -> bytes:
    """Return a definition with many properties."""
    made = definition(999)
    made["metadata"]["name"] = f"{name}s.{GROUP}"
    made["spec"]["names"] = {"plural": f"{name}s", "kind": name.capitalize()}
    made["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"] = {
        "type": "object",
        "properties": _members(count),
    }
    return json.dumps(made).encode()


def beside(bench: Rig, paced: Callable[[Rig, int], list[float]]) -> list[float]:
    """Return the seconds of each of some reads during writes of definitions.

    Definitions with many properties are created, updated and deleted meanwhile.
    """
    context = multiprocessing.get_context("spawn")
    over = context.Event()
    writer = context.Process(target=_define_on, args=(bench.address, over), daemon=True)
    writer.start()
    try:
        paced(bench, 100)
        return paced(bench, 600)
    finally:
        over.set()
        writer.join(20)


def _define_on(address: tuple[str, int], over: Event) -> None:
    line, number = wire.Line(address), 0
    while not over.is_set():
        number += 1
        name = f"wide{number}"
        path = f"{DEFINITIONS}/{name}s.{GROUP}"
        for ask in (
            wire.request("POST", DEFINITIONS, wide(name, 5_000)),
            wire.request("PATCH", path, b'{"metadata":{"labels":{"a":"b"}}}'),
            wire.request("DELETE", path),
        ):
            line.ask(ask)
    line.socket.close()


def real(bench: Rig) -> Iterator[Row]:
    """Measure memory and start with published definitions of projects, if these files exist."""
    files = shared("data/real/definitions")
    if files is None:
        return
    bodies: dict[str, bytes] = {}
    for file in sorted(files.rglob("*.*")):
        if file.suffix in (".yaml", ".json"):
            body = decode_yaml(file.read_bytes())[0]
            bodies.setdefault(body["metadata"]["name"], json.dumps(body).encode())
    before = bench.rss()
    client, names = bench.api, []
    for name, text in bodies.items():
        if client.post(DEFINITIONS, text).status == 201:
            names.append(name)
    for name in names:
        path = f"{DEFINITIONS}/{name}"
        until(lambda at=path: is_true(client.get(at).expect(200), "Established"), name, 60)  # type: ignore[misc]
    count = len(names)
    yield f"RSS, {count} real definitions just created", bench.rss(), "MiB", 200.0
    yield f"start to ready, {count} real definitions", min(bench.restart() for _ in range(3)), "s", 1.2
    yield f"RSS after start, {count} real definitions", bench.rss(), "MiB", 200.0
    yield "memory of a real definition, after start", (bench.rss() - before) * 1024 / count, "KiB", 100.0
