"""Measures how costs grow with what should not matter: `scripts/bench --surface [NAME…]`.

Each dimension of surface.yaml is measured at three sizes, each on a fresh server. Its exponent is the slope of the
logarithm of the cost over that of the size: a property of the code, so that no goal depends on the machine.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from apiext.conformance.support.conversion_webhook import in_another_process
from apiext.conformance.support.definitions import establish
from tests.bench import conversion, wire
from tests.bench.rig import Rig, rig
from tests.support.processes import ROOT

TABLE = Path(__file__).with_suffix(".yaml")
WRITES = 200
CONTENDED = 1_280
GROUP = "surface.example.com"


@dataclass(frozen=True)
class Dimension:
    """A row of the table."""

    name: str
    of: str
    sizes: tuple[int, ...]
    exponent: float
    quick: bool = False


@dataclass(frozen=True)
class Slope:
    """What a dimension was found to be: seconds of CPU at each size, and the exponent."""

    dimension: Dimension
    costs: tuple[float, ...]

    @property
    def exponent(self) -> float:
        """The slope between the smallest and the largest size."""
        sizes = self.dimension.sizes
        return math.log(self.costs[-1] / self.costs[0]) / math.log(sizes[-1] / sizes[0])

    @property
    def holds(self) -> bool:
        """Whether the cost grows as the table allows, or less."""
        return self.exponent <= self.dimension.exponent

    @property
    def line(self) -> str:
        """What is printed."""
        sizes = "  ".join(
            f"{size:>7,}: {cost * 1e6:>9,.0f} µs" for size, cost in zip(self.dimension.sizes, self.costs, strict=True)
        )
        verdict = "" if self.holds else "  EXCEEDED"
        name = f"{self.dimension.name:22} {self.dimension.of:38}"
        return f"{name} {sizes}  exponent {self.exponent:5.2f} (≤ {self.dimension.exponent}){verdict}"


def dimensions() -> list[Dimension]:
    """Return the rows of the table."""
    rows = yaml.safe_load(TABLE.read_text(encoding="utf-8"))
    return [Dimension(**{**row, "sizes": tuple(row["sizes"])}) for row in rows]


def measure(names: Iterable[str], root: Path = ROOT) -> Iterator[Slope]:
    """Measure dimensions by name, all if none is named, each size on a fresh server of a source tree."""
    wanted = set(names)
    for dimension in dimensions():
        if not wanted or dimension.name in wanted:
            costs = []
            for size in dimension.sizes:
                with rig(root=root) as bench:
                    costs.append(COSTS[dimension.name](bench, size))
            yield Slope(dimension, tuple(costs))


# ---------------------------------------------------------------------- helpers


def define(bench: Rig, properties: Mapping[str, Any] | None = None, **version: Any) -> None:
    """Establish the definition of plain objects with a selectable field."""
    spec = {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "properties": {"color": {"type": "string"}}}
    spec["properties"].update(properties or {})  # type: ignore[attr-defined]
    establish(
        bench.api,
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"things.{GROUP}"},
            "spec": {
                "group": GROUP,
                "scope": "Namespaced",
                "names": {"plural": "things", "kind": "Thing"},
                "versions": [
                    {
                        "name": "v1",
                        "served": True,
                        "storage": True,
                        "selectableFields": [{"jsonPath": ".spec.color"}],
                        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}},
                        **version,
                    }
                ],
            },
        },
    )


def path(name: str = "", namespace: str = "default", query: str = "") -> str:
    """Return the path of an object, or of the collection."""
    base = f"/apis/{GROUP}/v1/namespaces/{namespace}/things"
    return (f"{base}/{name}" if name else base) + (f"?{query}" if query else "")


def body(name: str, **more: Any) -> bytes:
    """Return an object; ``labels`` go to its metadata, the rest to its spec."""
    labels = more.pop("labels", {})
    metadata = {"name": name, "labels": labels}
    return json.dumps(
        {"apiVersion": f"{GROUP}/v1", "kind": "Thing", "metadata": metadata, "spec": {"color": "none", **more}}
    ).encode()


def cost(bench: Rig, requests: Iterable[bytes], items: int, lines: int = 1) -> float:
    """Return the seconds of CPU that requests take, for one of so many items, at the reference's pace."""
    before, looks = bench.cpu(), len(bench.paces) - 1
    wire.run(bench.address, requests, lines)
    used = bench.cpu() - before
    pace = sum(bench.paces[looks:]) / len(bench.paces[looks:])
    return used / items / pace


def written(bench: Rig) -> float:
    """Return the cost of a patch of an object that nothing asks for."""
    wire.run(bench.address, [wire.request("POST", path(), body("other"))])
    patches = [wire.request("PATCH", path("other"), b'{"spec":{"n":%d}}' % number) for number in range(WRITES + 50)]
    wire.run(bench.address, patches[:50])
    return min(cost(bench, patches[50 + at :: 2], WRITES // 2) for at in range(2))


def watched(paths: Callable[[int], str]) -> Callable[[Rig, int], float]:
    """Return what measures a write beside so many watches of these paths."""

    def measured(bench: Rig, size: int) -> float:
        define(bench)
        watchers = wire.Watchers(bench.address, (paths(number) for number in range(size)))
        try:
            return written(bench)
        finally:
            watchers.close()

    return measured


def contended(make: Callable[[int], bytes]) -> Callable[[Rig, int], float]:
    """Return what measures a write of one object by so many clients at a time; ``make(n)`` is the n-th request."""

    def measured(bench: Rig, size: int) -> float:
        define(bench)
        wire.run(bench.address, [wire.request("POST", path(), body("one"))])
        wire.run(bench.address, (make(number) for number in range(64)))
        return cost(bench, (make(number) for number in range(64, 64 + CONTENDED)), CONTENDED, size)

    return measured


def _applied(number: int) -> bytes:
    """Return an apply of an own field by one of 64 managers."""
    spec = f'{{"apiVersion":"{GROUP}/v1","kind":"Thing","spec":{{"f{number % 64}":{number}}}}}'.encode()
    url = path("one", query=f"fieldManager=m{number % 64}")
    return wire.request("PATCH", url, spec, kind="application/apply-patch+yaml")


def converted(bench: Rig, size: int) -> float:
    """Return the cost of a write beside so many watches by labels of a version that a webhook makes."""
    with in_another_process() as (config, _):
        conversion.define(bench, "hooked", config)
        conversion.fill(bench, "hooked", "default", 1)
        paths = (
            conversion.path("hooked", "v2", "default", query=f"?watch=true&labelSelector=own%3Dv{number}")
            for number in range(size)
        )
        watchers = wire.Watchers(bench.address, paths)
        one = conversion.path("hooked", "v1", "default", "o00000")
        patches = [wire.request("PATCH", one, b'{"spec":{"p58":"turn %d"}}' % number) for number in range(WRITES + 20)]
        try:
            wire.run(bench.address, patches[:20])
            return cost(bench, patches[20:], WRITES)
        finally:
            watchers.close()


def missing_owners(bench: Rig, size: int) -> float:
    """Return the cost of an owner, of an object that names so many that never were: it is created, and collected."""
    define(bench)
    wire.run(bench.address, [wire.request("POST", path(), body("warm"))])

    def named() -> float:
        owner = {"apiVersion": f"{GROUP}/v1", "kind": "Thing"}
        owners = [{**owner, "name": f"x{number}", "uid": f"uid-{number}"} for number in range(size)]
        before = bench.cpu()
        bench.api.post(path(), json.loads(body("owned")) | {"metadata": {"name": "owned", "ownerReferences": owners}})
        until(lambda: bench.api.get(path("owned")).status == 404)
        return (bench.cpu() - before) / size / bench.paces[-1]

    return min(named() for _ in range(2))


def until(condition: Callable[[], bool], within: float = 60.0) -> None:
    """Wait until a condition holds."""
    end = time.monotonic() + within
    while not condition():
        assert time.monotonic() < end, "it never came"
        time.sleep(0.05)


def _watch(query: str = "", namespace: str = "default") -> str:
    return path(query=f"watch=true&{query}", namespace=namespace)


COSTS: dict[str, Callable[[Rig, int], float]] = {
    "patches-of-one-object": contended(
        lambda number: wire.request("PATCH", path("one"), b'{"spec":{"n":%d}}' % number)
    ),
    "applies-to-one-object": contended(_applied),
    "converted-watches": converted,
    "missing-owners": missing_owners,
    "watches-by-name": watched(lambda number: _watch(f"fieldSelector=metadata.name%3Do{number}")),
    "watches-by-label": watched(lambda number: _watch(f"labelSelector=own%3Dv{number}")),
    "watches-by-own-label": watched(lambda number: _watch(f"labelSelector=l{number}%3Dx")),
    "watches-by-field": watched(lambda number: _watch(f"fieldSelector=spec.color%3Dc{number}")),
    "watches-by-namespace": watched(lambda number: _watch(namespace=f"n{number}")),
}
