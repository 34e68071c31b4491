"""Measure definitions among 100, 1,000 and 5,000 definitions of one group."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

from apiext.conformance.support.definitions import is_true
from apiext.conformance.support.http_client import DEFINITIONS
from apiext.conformance.support.waiting import until
from tests.bench import wire
from tests.bench.rig import Rig

Row = tuple[str, float, str] | tuple[str, float, str, float]
GROUP = "many.example.com"
CLIENTS = 8
SIZES = (100, 1_000, 5_000)
BATCH = 100  # definitions for one measurement of a cost


def definition(number: int) -> dict[str, Any]:
    """Return a small definition; all are in the same group."""
    plural, kind = f"m{number:05}s", f"M{number:05}"
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"a": {"type": "string"}}}}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced",
            "names": {"plural": plural, "kind": kind, "singular": kind.lower(), "listKind": f"{kind}List"},
            "versions": [version],
        },
    }


def _path(number: int) -> str:
    return f"{DEFINITIONS}/{definition(number)['metadata']['name']}"


def _define(bench: Rig, first: int, last: int) -> None:
    """Create definitions and wait until all of them are established."""
    bodies = (json.dumps(definition(number)).encode() for number in range(first, last))
    posts = (wire.request("POST", DEFINITIONS, body) for body in bodies)
    wire.run(bench.address, posts, CLIENTS)
    for number in range(max(first, last - 2 * CLIENTS), last):
        path = _path(number)
        until(lambda path=path: is_true(bench.api.get(path).expect(200), "Established"), "established", 600, every=0.05)


def _delete(bench: Rig, first: int, last: int) -> None:
    """Delete definitions and wait until all are deleted."""
    wire.run(bench.address, (wire.request("DELETE", _path(number)) for number in range(first, last)), CLIENTS)
    for number in range(max(first, last - 2 * CLIENTS), last):
        path = _path(number)
        until(lambda path=path: bench.api.get(path).status == 404, "gone", 600, every=0.05)


def rows(bench: Rig) -> Iterator[Row]:
    """Measure the CPU to create, change and delete a definition among many, and of a restart."""
    have, first = 0, 0.0
    for size in SIZES:
        began = time.perf_counter()
        _define(bench, have, size - BATCH)
        before = bench.cpu()
        _define(bench, size - BATCH, size)
        cost = (bench.cpu() - before) / BATCH
        first, have = first or cost, size
        yield f"definition created to Established, the {size:,}th of a group", cost * 1e3, "ms CPU", first * 1e3 * 1.3
        if size == SIZES[-1]:
            seconds = time.perf_counter() - began
            yield f"definitions created to Established, from {SIZES[-2]:,} to {size:,}", seconds, "s"
    bench.restart()
    yield f"CPU from start to ready, {have:,} definitions of a group", bench.cpu(), "s CPU", 5.0
    few = _deletion(bench, have - BATCH, have)
    yield f"definition deleted, {BATCH} of {have:,}", few * 1e3, "ms CPU"
    began = time.perf_counter()
    yield "definition deleted, 2,000 at a time", _deletion(bench, 0, 2_000) * 1e3, "ms CPU", few * 1e3 * 1.3
    yield "2,000 definitions deleted", time.perf_counter() - began, "s"


def _deletion(bench: Rig, first: int, last: int) -> float:
    before = bench.cpu()
    _delete(bench, first, last)
    return (bench.cpu() - before) / (last - first)
