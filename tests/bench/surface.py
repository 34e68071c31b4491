"""Measure how costs grow with unrelated objects and clients.

The command is `scripts/bench --surface [NAME…]`. Each dimension of surface.yaml is measured at three sizes, each on a
fresh server. Its exponent is the slope of log(cost) over log(size). It depends on the code, not on the machine.
"""

from __future__ import annotations

import contextlib
import json
import math
import socket
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from apiext.conformance.support.conversion_webhook import in_another_process
from apiext.conformance.support.definitions import establish
from apiext.conformance.support.waiting import until
from tests.bench import conversion, wire
from tests.bench.rig import Rig, cpu_of, rig
from tests.support.processes import ROOT

TABLE = Path(__file__).with_suffix(".yaml")
WRITES = 200
CONTENDED = 640
GROUP = "surface.example.com"


@dataclass(frozen=True)
class Dimension:
    """A row of surface.yaml."""

    name: str
    of: str
    sizes: tuple[int, ...]
    exponent: float
    quick: bool = False
    memory: bool = False


@dataclass(frozen=True)
class Slope:
    """The result of a dimension: the cost at each size, and the exponent.

    Costs are in seconds of CPU or in MiB.
    """

    dimension: Dimension
    costs: tuple[float, ...]

    @property
    def exponent(self) -> float:
        """The slope between the smallest and the largest size."""
        sizes = self.dimension.sizes
        return math.log(self.costs[-1] / self.costs[0]) / math.log(sizes[-1] / sizes[0])

    @property
    def holds(self) -> bool:
        """True if the exponent does not exceed that of the table."""
        return self.exponent <= self.dimension.exponent

    @property
    def line(self) -> str:
        """The printed line."""
        unit, factor = ("MiB", 1.0) if self.dimension.memory else ("µs", 1e6)
        sizes = "".join(
            f"{size:>8,}: {cost * factor:>9,.0f} {unit:3}"
            for size, cost in zip(self.dimension.sizes, self.costs, strict=True)
        )
        verdict = "" if self.holds else "  EXCEEDED"
        name = f"{self.dimension.name:24} {self.dimension.of:46}"
        return f"{name} {sizes} exponent {self.exponent:5.2f} (≤ {self.dimension.exponent}){verdict}"


def dimensions() -> list[Dimension]:
    """Return the rows of surface.yaml."""
    rows = yaml.safe_load(TABLE.read_text(encoding="utf-8"))
    return [Dimension(**{**row, "sizes": tuple(row["sizes"])}) for row in rows]


def measure(names: Iterable[str] = (), root: Path = ROOT) -> Iterator[Slope]:
    """Measure the named dimensions, or all, each size with a new server of a source tree.

    If a dimension exceeds its exponent, it is measured twice more, since other work of the machine disturbs; the
    smallest cost of each size counts.
    """
    wanted = set(names)
    with tempfile.TemporaryDirectory(prefix="apiext-surface-") as temporary:
        bytecode = Path(temporary) / "bytecode"
        for dimension in dimensions():
            if not wanted or dimension.name in wanted:
                yield _slope(dimension, root, bytecode)


def _slope(dimension: Dimension, root: Path, bytecode: Path) -> Slope:
    found = Slope(dimension, (math.inf,) * len(dimension.sizes))
    for _ in range(3):
        again = [_measured(dimension, size, root, bytecode) for size in dimension.sizes]
        found = Slope(dimension, tuple(map(min, found.costs, again)))
        if found.holds:
            break
    return found


def _measured(dimension: Dimension, size: int, root: Path, bytecode: Path) -> float:
    with rig(*FLAGS.get(dimension.name, ()), root=root, bytecode=bytecode) as bench:
        return COSTS[dimension.name](bench, size)


# ---------------------------------------------------------------------- helpers


def define(bench: Rig, kind: str = "Thing", **fields: Any) -> None:
    """Establish a definition with a selectable field; ``fields`` are further properties of spec."""
    plural = f"{kind.lower()}s"
    text = {"type": "string"}
    spec = {"type": "object", "x-kubernetes-preserve-unknown-fields": True, "properties": {"color": text, **fields}}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "selectableFields": [{"jsonPath": ".spec.color"}],
        "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}},
    }
    names = {"plural": plural, "kind": kind}
    establish(
        bench.api,
        {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": f"{plural}.{GROUP}"},
            "spec": {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [version]},
        },
    )


def path(name: str = "", namespace: str = "default", query: str = "", plural: str = "things") -> str:
    """Return the path of an object, or of the collection."""
    base = f"/apis/{GROUP}/v1/namespaces/{namespace}/{plural}"
    return (f"{base}/{name}" if name else base) + (f"?{query}" if query else "")


def body(name: str, metadata: Mapping[str, Any] | None = None, kind: str = "Thing", **spec: Any) -> bytes:
    """Return an object."""
    document = {"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": {"name": name, **(metadata or {})}}
    return json.dumps({**document, "spec": {"color": "none", **spec}}).encode()


def fill(bench: Rig, bodies: Iterable[bytes], where: str = "") -> None:
    """Create objects."""
    wire.run(bench.address, (wire.request("POST", where or path(), one) for one in bodies), 16)


def cost(bench: Rig, requests: Iterable[bytes], items: int, lines: int = 1) -> float:
    """Return the CPU seconds of requests divided by ``items``, scaled to the reference machine."""
    with spent(bench) as used:
        wire.run(bench.address, requests, lines)
    return used[0] / items


@contextlib.contextmanager
def spent(bench: Rig) -> Iterator[list[float]]:
    """Yield a list that contains the CPU seconds of the server after the block.

    The seconds are scaled to the reference machine.
    """
    used: list[float] = []
    before, looks = bench.cpu(), len(bench.paces) - 1
    yield used
    after = bench.cpu()
    paces = bench.paces[looks:]
    used.append((after - before) / (sum(paces) / len(paces)))


def patches(count: int, of: str = "", start: int = 0) -> list[bytes]:
    """Return ``count`` merge patches of an object; ``of`` is its path."""
    numbers = range(start, start + count)
    return [wire.request("PATCH", of or path("other"), b'{"spec":{"n":%d}}' % number) for number in numbers]


def written(bench: Rig) -> float:
    """Return the cost of a patch of an object that no watch or list selects."""
    fill(bench, [body("other")])
    return least_of_two(bench, patches(WRITES + 50))


def least_of_two(bench: Rig, requests: list[bytes]) -> float:
    """Return the cost of a request: the smaller mean of two halves.

    The first fifty requests are not measured.
    """
    wire.run(bench.address, requests[:50])
    halves = requests[50::2], requests[51::2]
    return min(cost(bench, half, len(half)) for half in halves)


def idle(bench: Rig) -> None:
    """Wait until the server has been idle for 0.4 seconds."""
    used = -1.0
    while cpu_of(bench.server.pid) - used > 0.01:
        used = cpu_of(bench.server.pid)
        time.sleep(0.4)


def watching(query: str = "", namespace: str = "default", plural: str = "things") -> str:
    """Return the path of a watch."""
    return path(query=f"watch=true&{query}", namespace=namespace, plural=plural)


# ---------------------------------------------------------------------- dimensions

Cost = Callable[[Rig, int], float]
"""(server, size) → seconds of CPU, or MiB."""


def watched(paths: Callable[[int], str], ask: Cost = lambda bench, _: written(bench)) -> Cost:
    """Return a Cost that measures a write, or ``ask``, with ``size`` watches of these paths."""

    def measured(bench: Rig, size: int) -> float:
        define(bench)
        watchers = wire.Watchers(bench.address, (paths(number) for number in range(size)))
        try:
            return ask(bench, size)
        finally:
            watchers.close()

    return measured


def contended(make: Callable[[int], bytes]) -> Cost:
    """Return a Cost that measures writes of one object by ``size`` concurrent clients.

    ``make(n)`` is the n-th request.
    """

    def measured(bench: Rig, size: int) -> float:
        define(bench)
        fill(bench, [body("one")])
        wire.run(bench.address, (make(number) for number in range(64)))
        return cost(bench, (make(number) for number in range(64, 64 + CONTENDED)), CONTENDED, size)

    return measured


def _applied(number: int, managers: int = 64, name: str = "one") -> bytes:
    """Return an apply by one of some managers, each of which applies a separate field."""
    field = f'"f{number % managers}":{number}'
    spec = f'{{"apiVersion":"{GROUP}/v1","kind":"Thing","spec":{{{field}}}}}'.encode()
    url = path(name, query=f"fieldManager=m{number % managers}")
    return wire.request("PATCH", url, spec, kind="application/apply-patch+yaml")


def converted(bench: Rig, size: int) -> float:
    """Return the cost of a write with this many watches by labels of a converted version.

    A webhook converts this version.
    """
    with in_another_process() as (config, _):
        conversion.define(bench, "hooked", config)
        conversion.fill(bench, "hooked", "default", 1)
        paths = (
            conversion.path("hooked", "v2", "default", query=f"?watch=true&labelSelector=own%3Dv{number}")
            for number in range(size)
        )
        watchers = wire.Watchers(bench.address, paths)
        one = conversion.path("hooked", "v1", "default", "o00000")
        writes = [wire.request("PATCH", one, b'{"spec":{"p58":"turn %d"}}' % number) for number in range(WRITES + 20)]
        try:
            wire.run(bench.address, writes[:20])
            return cost(bench, writes[20:], WRITES)
        finally:
            watchers.close()


def missing_owners(bench: Rig, size: int) -> float:
    """Return the cost, for each owner, of an object with this many missing owners.

    The object is created and collected.
    """
    define(bench)
    fill(bench, [body("warm")])

    def named() -> float:
        owner = {"apiVersion": f"{GROUP}/v1", "kind": "Thing"}
        owners = [{**owner, "name": f"x{number}", "uid": f"uid-{number}"} for number in range(size)]
        with spent(bench) as used:
            fill(bench, [body("owned", {"ownerReferences": owners})])
            until(lambda: bench.api.get(path("owned")).status == 404, "the owned object is collected", 60)
        return used[0] / size

    return min(named() for _ in range(2))


def dependents(bench: Rig, size: int) -> float:
    """Return the cost of the deletion of a dependent whose owner has this many dependents."""
    define(bench)
    fill(bench, [body("owner")])
    uid = bench.api.get(path("owner")).expect(200)["metadata"]["uid"]
    owner = {"apiVersion": f"{GROUP}/v1", "kind": "Thing", "name": "owner", "uid": uid}
    fill(bench, (body(f"d{number}", {"ownerReferences": [owner]}) for number in range(size)))
    with spent(bench) as used:
        bench.api.delete(path("owner")).expect(200)
        until(lambda: not bench.api.get(path(), limit=1).expect(200)["items"], "the collection is empty", 60)
    return used[0] / size


def first_events(bench: Rig, size: int) -> float:
    """Return the memory after this many watches with different selectors got initial events."""
    define(bench)
    fill(bench, (body(f"o{number}", text="x" * 500) for number in range(3_000)))
    watchers = wire.Watchers(bench.address, (watching(f"labelSelector=a%21%3Dv{number}") for number in range(size)))
    end = time.monotonic() + 2 + size / 20
    while time.monotonic() < end:
        watchers.receive(0.1)
    found = bench.rss()
    watchers.close()
    return found


def labels_in_turn(bench: Rig, size: int) -> float:
    """Return the cost of a list by a label, with lists by this many labels in turn."""
    define(bench)
    labels = [f"l{number}" for number in range(size)]
    fill(bench, (body(f"o{n}", {"labels": dict.fromkeys(labels, f"v{n % 500}")}) for n in range(3_000)))
    asks = [wire.request("GET", path(query=f"labelSelector={one}%3Dv7")) for one in labels]
    wire.run(bench.address, asks * 3)
    rounds = -(-200 // size)
    return cost(bench, asks * rounds, rounds * size)


def closed_lists(bench: Rig, size: int) -> float:
    """Return the memory after this many rounds of clients that close without reading.

    Each client requests a large list.
    """
    define(bench)
    fill(bench, (body(f"o{number}", text="x" * 500) for number in range(4_000)))
    for turn in range(size):
        lines = [socket.create_connection(bench.address) for _ in range(40)]
        for number, line in enumerate(lines):
            line.sendall(wire.request("GET", path(query=f"labelSelector=a%21%3Dv{turn}-{number}")))
        idle(bench)
        for line in lines:
            line.close()
        idle(bench)
    return bench.rss()


def updates_of_large_objects(bench: Rig, size: int) -> float:
    """Return the memory after this many updates of an object of half a megabyte."""
    define(bench)
    fill(bench, [body("other", text="x" * 500_000)])
    wire.run(bench.address, patches(size))
    return bench.rss()


def deleted_collection(bench: Rig, size: int) -> float:
    """Return the cost, for each object, of the deletion of a collection with this many objects."""
    define(bench)
    fill(bench, (body(f"o{number}") for number in range(size)))
    return cost(bench, [wire.request("DELETE", path())], size)


def distinct_values(bench: Rig, size: int) -> float:
    """Return the cost per object of a list by ``!=`` of this many objects with different values."""
    define(bench)
    fill(bench, (body(f"o{number}", color=f"c{number}") for number in range(size)))
    ask = wire.request("GET", path(query="fieldSelector=spec.color%21%3Dc1&limit=1000000"))
    wire.run(bench.address, [ask] * 3)
    return cost(bench, [ask] * 5, 5 * size)


def distinct_labels(bench: Rig, size: int) -> float:
    """Return the cost of a list by a label for which this many objects have different values."""
    define(bench)
    fill(bench, (body(f"o{number}", {"labels": {"own": f"v{number}"}}) for number in range(size)))
    return least_of_two(
        bench, [wire.request("GET", path(query=f"labelSelector=own%3Dv{number}")) for number in range(WRITES + 50)]
    )


def object_size(bench: Rig, size: int) -> float:
    """Return the cost of a patch of an object of this many KiB."""
    define(bench)
    fill(bench, [body("other", **{f"f{number}": "x" * 1000 for number in range(size)})])
    return least_of_two(bench, patches(110))


def managers(bench: Rig, size: int) -> float:
    """Return the cost of an apply to an object with this many managers."""
    define(bench)
    fill(bench, [body("one")])
    wire.run(bench.address, (_applied(number, size) for number in range(size)))
    return least_of_two(bench, [_applied(number, size) for number in range(size, size + 150)])


def list_map_items(bench: Rig, size: int) -> float:
    """Return the cost of an apply of one item of a list map with this many items."""
    item = {"type": "object", "required": ["k"], "properties": {"k": {"type": "string"}, "v": {"type": "integer"}}}
    listed = {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"], "items": item}
    define(bench, items=listed)
    fill(bench, [body("one", items=[{"k": f"k{number}", "v": 0} for number in range(size)])])

    def apply(number: int) -> bytes:
        spec = {"items": [{"k": "own", "v": number}]}
        document = json.dumps({"apiVersion": f"{GROUP}/v1", "kind": "Thing", "spec": spec}).encode()
        return wire.request("PATCH", path("one", query="fieldManager=m"), document, kind="application/apply-patch+yaml")

    return least_of_two(bench, [apply(number) for number in range(150)])


def namespaces(bench: Rig, size: int) -> float:
    """Return the cost of a write with this many namespaces, which contain one object each."""
    define(bench)
    spaces = [f"n{number}" for number in range(size)]
    made = ({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}} for name in spaces)
    fill(bench, (json.dumps(one).encode() for one in made), "/api/v1/namespaces")
    wire.run(bench.address, (wire.request("POST", path(namespace=name), body("o")) for name in spaces), 16)
    return written(bench)


def objects(bench: Rig, size: int) -> float:
    """Return the cost of a write with this many other objects."""
    define(bench)
    fill(bench, (body(f"o{number}") for number in range(size)))
    return written(bench)


def definitions(bench: Rig, size: int) -> float:
    """Return the cost of creating and establishing a definition beside this many definitions."""
    for number in range(size):
        define(bench, f"K{number}")
    with spent(bench) as used:
        for number in range(10):
            define(bench, f"L{number}")
    return used[0] / 10


def roles(bench: Rig, size: int) -> float:
    """Return the cost of a write by a user with this many roles, each bound to another user."""
    define(bench)
    api = "rbac.authorization.k8s.io"

    def bind(name: str, user: str) -> tuple[bytes, bytes]:
        rules = [{"apiGroups": [GROUP], "resources": ["things"], "verbs": ["*"]}]
        meta = {"apiVersion": f"{api}/v1", "metadata": {"name": name}}
        role = {**meta, "kind": "ClusterRole", "rules": rules}
        subject = {"apiGroup": api, "kind": "User", "name": user}
        reference = {"apiGroup": api, "kind": "ClusterRole", "name": name}
        binding = {**meta, "kind": "ClusterRoleBinding", "roleRef": reference, "subjects": [subject]}
        return json.dumps(role).encode(), json.dumps(binding).encode()

    pairs = [bind(f"r{number}", f"u{number}") for number in range(size)]
    for number, plural in enumerate(("clusterroles", "clusterrolebindings")):
        fill(bench, (pair[number] for pair in pairs), f"/apis/{api}/v1/{plural}")
    fill(bench, [body("other")])
    headers = "Impersonate-User: u0\r\n"
    asks = [wire.request("PATCH", path("other"), b'{"spec":{"n":%d}}' % n, headers) for n in range(WRITES + 50)]
    return least_of_two(bench, asks)


def policies(bench: Rig, size: int) -> float:
    """Return the cost of a write with this many admission policies for another kind."""
    define(bench)
    define(bench, "Ruled")
    api = "admissionregistration.k8s.io"
    rule = {"apiGroups": [GROUP], "apiVersions": ["v1"], "operations": ["*"], "resources": ["ruleds"]}
    for number in range(size):
        meta = {"apiVersion": f"{api}/v1", "metadata": {"name": f"p{number}"}}
        validations = [{"expression": "object.spec.color != 'red'"}]
        spec = {"matchConstraints": {"resourceRules": [rule]}, "validations": validations}
        bound = {"policyName": f"p{number}", "validationActions": ["Deny"]}
        for kind, content in (("ValidatingAdmissionPolicy", spec), ("ValidatingAdmissionPolicyBinding", bound)):
            plural = f"{kind.lower()[:-1]}ies" if kind.endswith("y") else f"{kind.lower()}s"
            bench.api.post(f"/apis/{api}/v1/{plural}", {**meta, "kind": kind, "spec": content}).expect(201)
    red = json.loads(body("red", kind="Ruled")) | {"spec": {"color": "red"}}
    until(lambda: bench.api.post(path(plural="ruleds"), red, dryRun="All").status == 422, "the policy counts", 60)
    return written(bench)


def restarted(bench: Rig) -> float:
    """Return the cost of a start until the server is ready."""
    bench.restart()
    used = bench.cpu()
    return used / bench.paces[-1]


def restart_by_objects(bench: Rig, size: int) -> float:
    """Return the cost of a start with this many objects."""
    define(bench)
    fill(bench, (body(f"o{number}") for number in range(size)))
    return restarted(bench)


def restart_by_definitions(bench: Rig, size: int) -> float:
    """Return the cost of a start with this many definitions."""
    for number in range(size):
        define(bench, f"K{number}")
    return restarted(bench)


def _read(bench: Rig, _: int) -> float:
    fill(bench, [body("other")])
    return least_of_two(bench, [wire.request("GET", path("other", query="resourceVersion=0"))] * 1_050)


def _of_another_kind(bench: Rig, _: int) -> float:
    define(bench, "Another")
    fill(bench, [body("other", kind="Another")], path(plural="anothers"))
    return least_of_two(bench, patches(WRITES + 50, path("other", plural="anothers")))


def _delivered(bench: Rig, size: int) -> float:
    fill(bench, [body("other")])
    return least_of_two(bench, patches(110)) / size


COSTS: dict[str, Cost] = {
    "patches-of-one-object": contended(lambda number: patches(1, path("one"), number)[0]),
    "applies-to-one-object": contended(_applied),
    "first-events": first_events,
    "converted-watches": converted,
    "labels-in-turn": labels_in_turn,
    "closed-lists": closed_lists,
    "watches-by-name": watched(lambda number: watching(f"fieldSelector=metadata.name%3Do{number}")),
    "watches-by-label": watched(lambda number: watching(f"labelSelector=own%3Dv{number}")),
    "watches-by-own-label": watched(lambda number: watching(f"labelSelector=l{number}%3Dx")),
    "watches-by-field": watched(lambda number: watching(f"fieldSelector=spec.color%3Dc{number}")),
    "watches-by-namespace": watched(lambda number: watching(namespace=f"n{number}")),
    "watches-of-all": watched(lambda _: watching(), _delivered),
    "idle-watches": watched(lambda _: watching(), _read),
    "unrelated-watches": watched(lambda _: watching(), _of_another_kind),
    "deleted-collection": deleted_collection,
    "updates-of-large-objects": updates_of_large_objects,
    "distinct-values": distinct_values,
    "missing-owners": missing_owners,
    "dependents": dependents,
    "distinct-labels": distinct_labels,
    "object-size": object_size,
    "managers": managers,
    "list-map-items": list_map_items,
    "namespaces": namespaces,
    "objects": objects,
    "definitions": definitions,
    "roles": roles,
    "policies": policies,
    "restart-by-objects": restart_by_objects,
    "restart-by-definitions": restart_by_definitions,
}
"""Name of a dimension → the function that measures it."""

FLAGS: dict[str, Sequence[str]] = {"roles": ("--authorization-mode=RBAC",)}
"""Name of a dimension → further flags of its servers."""
