"""Compares the cost of two source trees: `scripts/bench --against REV`.

Both servers run side by side and take turns, so the pace of the machine is the same for both. Only ratios count.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from apiext.conformance.support.conversion_webhook import in_another_process
from apiext.conformance.support.definitions import establish
from tests.bench import conversion, wire
from tests.bench.rig import GROUP, Rig, cpu_of, definition, process_tree, rss_of, thing
from tests.support.processes import ROOT, start_server, stop

WARM = 20  # requests of each kind before those that are measured
TURN = 30  # requests before the other server's turn
DEFINITIONS = 20  # beside the one that is measured with
LISTED = 100
CONVERTED = 10
WATCHERS = 50
TABLE = "Accept: application/json;as=Table;v=v1;g=meta.k8s.io\r\n"

# ---------------------------------------------------------------------- statistics


@dataclass(frozen=True)
class Ratio:
    """A geometric mean of ratios and its standard error."""

    value: float
    error: float

    @property
    def mark(self) -> str:
        """Return "dearer" or "cheaper" if the ratio is more than two standard errors from 1, else ""."""
        if self.value - 2 * self.error > 1:
            return "dearer"
        return "cheaper" if self.value + 2 * self.error < 1 else ""


def ratio(pairs: Sequence[tuple[float, float]]) -> Ratio:
    """Return the mean ratio of the first to the second of each pair; needs two pairs, all above zero.

    The mean is that of the logarithms, so that swapping the trees gives the inverse.
    """
    logs = [math.log(ours / theirs) for ours, theirs in pairs]
    value = math.exp(mean(logs))
    return Ratio(value, value * stdev(logs) / math.sqrt(len(logs)))


# ---------------------------------------------------------------------- source trees


@dataclass(frozen=True)
class Tree:
    """A source tree, and the interpreter of the environment that it runs in."""

    root: Path
    python: str = sys.executable

    @property
    def env(self) -> dict[str, str]:
        """Variables of a server of this tree."""
        return {"PYTHONPATH": str(self.root)}

    @property
    def package(self) -> Path:
        """Where this interpreter, started as the server is, finds apiext."""
        code = "import apiext; print(apiext.__file__)"
        env = {**os.environ, **self.env}
        found = subprocess.run([self.python, "-c", code], cwd=self.root, env=env, stdout=subprocess.PIPE, check=True)
        return Path(found.stdout.decode().strip()).resolve()


def check_trees(ours: Tree, theirs: Tree) -> None:
    """Raise AssertionError unless each tree runs its own sources, and the two are different directories.

    An editable install finds the checkout it was made in, so one tree could be measured twice.
    """
    for tree in (ours, theirs):
        wanted = tree.root.resolve() / "apiext" / "__init__.py"
        assert tree.package == wanted, f"the server of {tree.root} would run {tree.package}"
    assert ours.package != theirs.package, f"{ours.root} would be compared with itself"


@contextlib.contextmanager
def checkout(revision: str, repository: Path = ROOT) -> Iterator[Path]:
    """Check out a revision into a temporary worktree of a repository."""
    with tempfile.TemporaryDirectory(prefix="apiext-against-") as directory:
        root, git = Path(directory) / "tree", ["git", "-C", str(repository), "worktree"]
        subprocess.run([*git, "add", "--quiet", "--detach", str(root), revision], check=True)
        try:
            yield root
        finally:
            subprocess.run([*git, "remove", "--force", str(root)], check=True)


# ---------------------------------------------------------------------- kinds of requests


def cpu(bench: Rig) -> float:
    """Return the seconds of CPU of the server and its descendants."""
    return sum(map(cpu_of, process_tree(bench.server.pid)))


def rss(bench: Rig) -> float:
    """Return the resident memory of the server and its descendants in MiB."""
    return sum(map(rss_of, process_tree(bench.server.pid)))


def spent(bench: Rig, *requests: bytes) -> float:
    """Send requests one after another; return the seconds of CPU they cost."""
    before = cpu(bench)
    wire.run(bench.address, requests)
    return cpu(bench) - before


def send(bench: Rig, requests: Sequence[bytes]) -> None:
    """Send requests that are not measured."""
    wire.run(bench.address, requests, 16)


def names(count: int, start: str = "o") -> list[str]:
    """Return the names of objects: those that begin with ``o`` always exist."""
    return [f"{start}{number:05}" for number in range(count)]


def _creates(bench: Rig, turn: int, count: int) -> tuple[list[bytes], list[bytes]]:
    """Return requests that create new objects, and requests that delete them."""
    new = names(count, f"c{turn}-")
    creates = [wire.request("POST", bench.path(), thing(name)) for name in new]
    return creates, [wire.request("DELETE", bench.path(name)) for name in new]


def create(bench: Rig, turn: int, count: int) -> float:
    """Create objects."""
    creates, deletes = _creates(bench, turn, count)
    cost = spent(bench, *creates)
    send(bench, deletes)
    return cost


def put(bench: Rig, turn: int, count: int) -> float:
    """Replace objects by their resourceVersion."""
    items = bench.api.get(bench.path()).expect(200)["items"]
    revisions = {it["metadata"]["name"]: it["metadata"]["resourceVersion"] for it in items}
    bodies = {name: thing(name, turn, resourceVersion=revisions[name]) for name in names(count)}
    return spent(bench, *(wire.request("PUT", bench.path(name), body) for name, body in bodies.items()))


def merge_patch(bench: Rig, turn: int, count: int) -> float:
    """Patch a field of objects."""
    patch = b'{"spec":{"p58":"turn %d"}}' % turn
    return spent(bench, *(wire.request("PATCH", bench.path(name), patch) for name in names(count)))


def apply(bench: Rig, turn: int, count: int) -> float:
    """Apply whole objects as one manager."""
    query, kind = "?fieldManager=bench&force=true", "application/apply-patch+yaml"
    bodies = {name: thing(name, -turn) for name in names(count)}  # unlike those of a PUT in the same turn
    return spent(
        bench, *(wire.request("PATCH", bench.path(name) + query, body, kind=kind) for name, body in bodies.items())
    )


def status(bench: Rig, turn: int, count: int) -> float:
    """Patch the status of objects."""
    patch = b'{"status":{"phase":"turn %d"}}' % turn
    return spent(bench, *(wire.request("PATCH", bench.path(it) + "/status", patch) for it in names(count)))


def delete(bench: Rig, turn: int, count: int) -> float:
    """Delete objects."""
    creates, deletes = _creates(bench, turn, count)
    send(bench, creates)
    return spent(bench, *deletes)


def get(bench: Rig, _: int, count: int) -> float:
    """Read objects from etcd's newest revision."""
    return spent(bench, *(wire.request("GET", bench.path(name)) for name in names(count)))


def get_cached(bench: Rig, _: int, count: int) -> float:
    """Read objects from the cache."""
    return spent(bench, *(wire.request("GET", bench.path(name) + "?resourceVersion=0") for name in names(count)))


def _listed(resource: str = "benches") -> str:
    return f"/apis/{GROUP}/v1/namespaces/listed/{resource}"


def list_changed(bench: Rig, turn: int, count: int) -> float:
    """List 100 objects, one of them changed before each list."""
    cost = 0.0
    for number in range(count):
        patch = b'{"spec":{"p58":"turn %d"}}' % (turn * count + number)
        send(bench, [wire.request("PATCH", f"{_listed()}/o{number % LISTED:05}", patch)])
        cost += spent(bench, wire.request("GET", _listed()))
    return cost


def table(bench: Rig, _: int, count: int) -> float:
    """List 100 unchanged objects as a Table, again and again."""
    return spent(bench, *[wire.request("GET", _listed(), headers=TABLE)] * count)


def watch(bench: Rig, turn: int, count: int) -> float:
    """Create objects and deliver their events to 50 watchers."""
    since = bench.api.get(bench.path(), limit=1).expect(200)["metadata"]["resourceVersion"]
    path = f"{bench.path()}?watch=true&resourceVersion={since}"
    model, fan = wire.Watchers(bench.address, path, 1), wire.Watchers(bench.address, path, WATCHERS - 1)
    creates, deletes = _creates(bench, turn, count)
    before = cpu(bench)
    for request in creates:
        send(bench, [request])
        model.until_lines(1)
        fan.until(model.size)
    cost = cpu(bench) - before
    model.close()
    fan.close()
    send(bench, deletes)
    return cost


def list_converted(bench: Rig, turn: int, count: int) -> float:
    """List ten objects through a conversion webhook, all of them changed before each list."""
    cost = 0.0
    for number in range(count):
        patch = b'{"spec":{"p58":"turn %d"}}' % (turn * count + number)
        paths = [conversion.path("hooked", "v1", "default", name) for name in names(CONVERTED)]
        send(bench, [wire.request("PATCH", path, patch) for path in paths])
        cost += spent(bench, wire.request("GET", conversion.path("hooked", "v2", "default")))
    return cost


Kind = Callable[[Rig, int, int], float]
"""Sends ``count`` requests in a turn that no other has the number of; returns seconds of CPU."""

REQUESTS: dict[str, Kind] = {
    "create": create,
    "PUT": put,
    "merge-patch": merge_patch,
    "apply": apply,
    "status": status,
    "DELETE": delete,
    "GET": get,
    "GET-cached": get_cached,
    "LIST": list_changed,
    "Table": table,
    "watch": watch,
    "LIST-converted": list_converted,
}
START, IDLE, LOADED = "start", "RSS", "RSS-loaded"
KINDS = (START, IDLE, *REQUESTS, LOADED)

# ---------------------------------------------------------------------- the comparison


@contextlib.contextmanager
def running(tree: Tree, webhook: dict[str, Any] | None) -> Iterator[Rig]:
    """Run a server of a tree with the store that it has by default, with definitions and objects to measure with."""
    with tempfile.TemporaryDirectory(prefix="apiext-bench-") as temporary:
        directory, flags = Path(temporary) / "server", ["--insecure", "--port=0"]
        # an installed server has its bytecode; the first start here writes it
        env = {**tree.env, "PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": f"{temporary}/bytecode"}
        command = (tree.python, "-m", "apiext", "serve")
        server = start_server(directory, flags, command=command, env=env, root=tree.root)
        bench = Rig(server, None, directory, flags, env, command, tree.root)
        try:
            _prepare(bench, webhook)
            yield bench
        finally:
            if bench.server.process:
                stop(bench.server.process)


def _prepare(bench: Rig, webhook: dict[str, Any] | None) -> None:
    bench.define()
    for number in range(DEFINITIONS):
        establish(bench.api, definition(number))
    bench.fill(TURN)
    bench.api.post("/api/v1/namespaces", {"metadata": {"name": "listed"}}).expect(201)
    send(bench, [wire.request("POST", _listed(), thing(name)) for name in names(LISTED)])
    if webhook is not None:
        conversion.define(bench, "hooked", webhook)
        conversion.fill(bench, "hooked", "default", CONVERTED)


def _round(
    benches: Sequence[Rig], kinds: Sequence[str], count: int, turns: Iterator[int]
) -> dict[str, tuple[float, float]]:
    """Restart both servers and let them take turns; return what each kind cost either."""
    costs: Counter[tuple[str, int]] = Counter()

    def in_turns(kind: str, cost: Callable[..., float], *arguments: int) -> None:
        for which in random.sample((0, 1), 2):
            costs[kind, which] += cost(benches[which], *arguments)

    def started(bench: Rig) -> float:
        bench.restart()
        return cpu(bench)

    in_turns(START, started)
    in_turns(IDLE, rss)
    for kind in kinds:
        if measure := REQUESTS.get(kind):
            in_turns("warm", measure, next(turns), WARM)
            for first in range(0, count, TURN):
                in_turns(kind, measure, next(turns), min(TURN, count - first))
    in_turns(LOADED, rss)
    return {kind: (costs[kind, 0], costs[kind, 1]) for kind in kinds}


def compare(ours: Tree, theirs: Tree, kinds: Sequence[str], rounds: int, count: int) -> Iterator[dict[str, Ratio]]:
    """Yield the cost of our tree over that of theirs for each kind after the second round and each later one.

    Each round has ``count`` requests of each kind.
    """
    check_trees(ours, theirs)
    pairs: dict[str, list[tuple[float, float]]] = {kind: [] for kind in kinds}
    with contextlib.ExitStack() as stack:
        webhook = stack.enter_context(in_another_process())[0] if "LIST-converted" in kinds else None
        benches = [stack.enter_context(running(tree, webhook)) for tree in (ours, theirs)]
        turns = itertools.count()
        for number in range(rounds):
            for kind, pair in _round(benches, kinds, count, turns).items():
                pairs[kind].append(pair)
            if number:
                yield {kind: ratio(pairs[kind]) for kind in kinds}


def lines(ratios: dict[str, Ratio]) -> list[str]:
    """Return the rows of the printed table."""
    return [f"{kind:15} {it.value:6.3f} ± {it.error:.3f}  {it.mark}".rstrip() for kind, it in ratios.items()]
