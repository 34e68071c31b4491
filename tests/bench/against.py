"""Compare the cost of two source trees: `scripts/bench --against REV`.

Both servers run at the same time and handle requests in turns, so the speed of the machine is the same for both. Only
the ratios are meaningful.
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

WARM = 20  # requests of each kind before the measured requests
TURN = 30  # requests before the other server's turn
DEFINITIONS = 20  # in addition to the definition of the measured objects
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
        """Return "dearer" or "cheaper" if the ratio is significant, else "".

        It is significant if it is more than two standard errors from 1.
        """
        if self.value - 2 * self.error > 1:
            return "dearer"
        return "cheaper" if self.value + 2 * self.error < 1 else ""


def ratio(pairs: Sequence[tuple[float, float]]) -> Ratio:
    """Return the mean ratio of the first to the second of each pair.

    There must be at least two pairs, all above zero. The mean is that of the logarithms, so that swapping the trees
    gives the inverse.
    """
    logs = [math.log(ours / theirs) for ours, theirs in pairs]
    value = math.exp(mean(logs))
    return Ratio(value, value * stdev(logs) / math.sqrt(len(logs)))


# ---------------------------------------------------------------------- source trees


@dataclass(frozen=True)
class Tree:
    """A source tree, and the Python interpreter of its environment."""

    root: Path
    python: str = sys.executable

    @property
    def env(self) -> dict[str, str]:
        """Environment variables of a server of this tree."""
        return {"PYTHONPATH": str(self.root)}

    @property
    def package(self) -> Path:
        """The path of the package apiext that a server of this tree imports."""
        code = "import apiext; print(apiext.__file__)"
        env = {**os.environ, **self.env}
        found = subprocess.run([self.python, "-c", code], cwd=self.root, env=env, stdout=subprocess.PIPE, check=True)
        return Path(found.stdout.decode().strip()).resolve()


def check_trees(ours: Tree, theirs: Tree) -> None:
    """Raise AssertionError unless each tree imports its own sources.

    Raise it also if the trees are the same directory. An editable install imports the checkout from which it was
    installed, so one tree could be measured twice.
    """
    for tree in (ours, theirs):
        wanted = tree.root.resolve() / "apiext" / "__init__.py"
        assert tree.package == wanted, f"the server of {tree.root} would run {tree.package}"
    assert ours.package != theirs.package, f"{ours.root} would be compared with itself"


@contextlib.contextmanager
def checkout(revision: str, repository: Path = ROOT) -> Iterator[Path]:
    """Check out a revision into a temporary worktree of a repository, and yield its path."""
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
    """Send requests one after another; return the CPU seconds of the server."""
    before = cpu(bench)
    wire.run(bench.address, requests)
    return cpu(bench) - before


def send(bench: Rig, requests: Sequence[bytes]) -> None:
    """Send requests that are not measured."""
    wire.run(bench.address, requests, 16)


def names(count: int, start: str = "o") -> list[str]:
    """Return names of objects; objects whose names begin with ``o`` always exist."""
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
    """Replace objects by PUTs with their resourceVersion."""
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
    bodies = {name: thing(name, -turn) for name in names(count)}  # different from the bodies of PUTs in the same turn
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
    """Read objects at the newest revision of the store."""
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
    """List 100 unchanged objects as a Table, ``count`` times."""
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
"""(server, unique number of the turn, number of requests) → CPU seconds of these requests."""

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
    """Run a server of a tree, and create the measured definitions and objects.

    The server has its default store.
    """
    with tempfile.TemporaryDirectory(prefix="apiext-bench-") as temporary:
        directory, flags = Path(temporary) / "server", ["--insecure", "--port=0"]
        # an installed server has compiled bytecode; here the first start writes it
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
    """Restart both servers and measure each kind in turns.

    Return kind → CPU seconds of both servers.
    """
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
    """Yield kind → the ratio of our cost to theirs, after the second and each later round.

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
