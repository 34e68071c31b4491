"""Knows each workload: how it is driven, and the goal that its figure is held against."""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.synchronize import Event

from tests.bench import wire
from tests.bench.rig import GROUP, Rig, definition, rig, thing
from tests.support.definitions import establish, is_true
from tests.support.http_client import DEFINITIONS
from tests.support.waiting import until

NAMES = 10_000
GET_ROUNDS = 12_000
GZIP = "Accept-Encoding: gzip\r\n"


@dataclass(frozen=True)
class Figure:
    """One measured figure; a goal of 0 is none, ``more`` says that bigger is better."""

    workload: str
    value: float
    unit: str
    goal: float = 0.0
    more: bool = False

    @property
    def verdict(self) -> str:
        """Return how the figure stands to its goal."""
        if not self.goal:
            return ""
        met = self.value >= self.goal if self.more else self.value <= self.goal
        return "met" if met else "missed"


def per_operation(bench: Rig, work: Callable[[], wire.Run]) -> tuple[float, wire.Run]:
    """Return seconds of server CPU for each request of a piece of work, and the run."""
    before = bench.cpu()
    run = work()
    return (bench.cpu() - before) / run.count, run


def percentile(values: list[float], part: float) -> float:
    """Return the value below which a part of the values lies."""
    return sorted(values)[min(len(values) - 1, int(part * len(values)))]


def gets(bench: Rig, count: int, rounds: int, query: str) -> Iterator[bytes]:
    """Yield GETs that go round all names, so that no answer is remembered for being asked again."""
    requests = [wire.request("GET", bench.path(f"o{number:05}") + query) for number in range(count)]
    return itertools.islice(itertools.cycle(requests), rounds)


# ---------------------------------------------------------------------- reads


def get(bench: Rig) -> Iterator[Figure]:
    """GET of single objects, from the cache and consistent, at three sizes of the collection."""
    have = 0
    for size in (100, 1_000, NAMES):
        bench.fill(size - have, have)
        have = size
        names = max(100, min(size, 8_000))
        for query, what, goal in (("?resourceVersion=0", "cache", 30.0), ("", "consistent", 70.0)):
            wire.run(bench.address, gets(bench, names, names, query), 16)
            cost, run = per_operation(
                bench, lambda q=query, n=names: wire.run(bench.address, gets(bench, n, GET_ROUNDS, q), 16)
            )  # type: ignore[misc]
            yield Figure(f"GET, {what}, {size:,} objects", cost * 1e6, "µs CPU", goal)
            if size == NAMES:
                yield Figure(f"GET, {what}, throughput", run.count / run.seconds, "/s")


def lists(bench: Rig) -> Iterator[Figure]:
    """LIST at three sizes, plain and compressed, one object written before each."""
    size = 0
    for count, rounds in ((100, 1_000), (1_000, 300), (NAMES, 60)):
        bench.fill(count - _count(bench), _count(bench))
        size, cost = _lists(bench, rounds)
        goal = _ten_megabytes(4.0, size) if count == NAMES else 0
        yield Figure(f"LIST {count:,}, identity", cost * 1e3, "ms CPU", goal)
    yield Figure(f"LIST {NAMES:,}, identity, size", size / 1e6, "MB")
    packed, cost = _cold(bench, 4)
    yield Figure(f"LIST {NAMES:,}, gzip, size", packed / 1e6, "MB")
    yield Figure(f"LIST {NAMES:,}, gzip cold", cost * 1e3, "ms CPU", _ten_megabytes(12.0, size))
    _, cost = _lists(bench, 100, headers=GZIP)
    yield Figure(f"LIST {NAMES:,}, gzip warm", cost * 1e3, "ms CPU", _ten_megabytes(0.7, size))
    _, cost = _lists(bench, 500, query="?limit=500")
    yield Figure("LIST 500 (limit), consistent", cost * 1e3, "ms CPU", 0.6)


def _ten_megabytes(goal: float, size: int) -> float:
    """Return a goal that is given for 10 MB, for a list of this size."""
    return goal * size / 10e6


def _count(bench: Rig) -> int:
    page = bench.api.get(bench.path(), limit=1).expect(200)
    return len(page["items"]) + int(page["metadata"].get("remainingItemCount", 0))


def _lists(bench: Rig, rounds: int, query: str = "", headers: str = "") -> tuple[int, float]:
    """Return the size of a LIST and its seconds of server CPU: rounds of a write and a LIST, less those of a write."""
    line, turns = wire.Line(bench.address), itertools.count()
    ask = wire.request("GET", bench.path() + query, headers=headers)
    size = line.ask(ask)

    def write() -> None:
        turn = next(turns)
        line.ask(wire.request("PATCH", bench.path(f"o{turn % 100:05}"), b'{"spec":{"p58":"turn %d"}}' % turn))

    before = bench.cpu()
    for _ in range(rounds):
        write()
    between = bench.cpu()
    for _ in range(rounds):
        write()
        size = line.ask(ask)
    after = bench.cpu()
    line.socket.close()
    return size, max(0.0, (after - between) - (between - before)) / rounds


def _cold(bench: Rig, rounds: int) -> tuple[int, float]:
    """Return size and seconds of CPU of the first compressed LIST after a start; the plain one has come before."""
    total, size = 0.0, 0
    for _ in range(rounds):
        bench.restart()
        wire.run(bench.address, [wire.request("GET", bench.path())])
        before = bench.cpu()
        size = wire.run(bench.address, [wire.request("GET", bench.path(), headers=GZIP)]).size
        total += bench.cpu() - before
    return size, total / rounds


def latency(bench: Rig) -> Iterator[Figure]:
    """GET latency while another client reads the whole list again and again."""
    bench.fill(max(0, NAMES - _count(bench)), _count(bench))
    quiet = _paced_gets(bench, 600)
    yield Figure("GET p99, idle server", percentile(quiet, 0.99) * 1e3, "ms")
    context = multiprocessing.get_context("spawn")
    over = context.Event()
    lister = context.Process(target=_list_on, args=(bench.address, bench.path(), over), daemon=True)
    lister.start()
    try:
        _paced_gets(bench, 50)
        took = _paced_gets(bench, 600)
    finally:
        over.set()
        lister.join(10)
    yield Figure("GET p50 while 10,000-object lists run", percentile(took, 0.5) * 1e3, "ms")
    yield Figure("GET p99 while 10,000-object lists run", percentile(took, 0.99) * 1e3, "ms", 5.0)


def _paced_gets(bench: Rig, rounds: int) -> list[float]:
    line, took = wire.Line(bench.address), []
    for ask in gets(bench, 1000, rounds, "?resourceVersion=0"):
        line.ask(ask)
        took.append(time.perf_counter() - line.began)
        time.sleep(0.005)
    line.socket.close()
    return took


def _list_on(address: tuple[str, int], path: str, over: Event) -> None:
    line, ask = wire.Line(address), wire.request("GET", f"{path}?resourceVersion=0")
    while not over.is_set():
        line.ask(ask)


# ---------------------------------------------------------------------- writes


def writes(bench: Rig) -> Iterator[Figure]:
    """POST, PUT, merge patch, status and DELETE of 1 KiB objects, by 1 and by 16 clients."""
    rules = "two CEL rules" if bench.rules else "no CEL rules (not served yet)"
    for clients, count in ((1, 1_000), (16, 4_000)):
        names = [f"w{clients:02}-{number:05}" for number in range(count)]
        by = f"{clients} client" + "s" * (clients > 1)

        def measured(requests: list[bytes], by_clients: int = clients) -> tuple[float, wire.Run]:
            return per_operation(bench, lambda: wire.run(bench.address, requests, by_clients))

        cost, run = measured([wire.request("POST", bench.path(), thing(name)) for name in names])
        yield Figure(f"POST create, {rules}, {by}", cost * 1e6, "µs CPU", 300.0)
        yield Figure(f"POST create, {by}, p50", percentile(run.took, 0.5) * 1e3, "ms")
        yield Figure(f"POST create, {by}, throughput", run.count / run.seconds, "/s")
        revisions = {
            item["metadata"]["name"]: item["metadata"]["resourceVersion"]
            for item in bench.api.get(bench.path()).expect(200)["items"]
        }
        puts = [
            wire.request("PUT", bench.path(name), thing(name, 1, resourceVersion=revisions[name])) for name in names
        ]
        yield Figure(f"PUT update, {by}", measured(puts)[0] * 1e6, "µs CPU", 350.0)
        patches = [wire.request("PATCH", bench.path(name), b'{"spec":{"p58":"patched"}}') for name in names]
        yield Figure(f"merge patch, {by}", measured(patches)[0] * 1e6, "µs CPU", 350.0)
        statuses = [
            wire.request("PATCH", bench.path(name) + "/status", b'{"status":{"phase":"Ready"}}') for name in names
        ]
        yield Figure(f"merge patch of status, {by}", measured(statuses)[0] * 1e6, "µs CPU", 350.0)
        deletes = [wire.request("DELETE", bench.path(name)) for name in names]
        yield Figure(f"DELETE, {by}", measured(deletes)[0] * 1e6, "µs CPU", 150.0)


# ---------------------------------------------------------------------- watches


def watch(bench: Rig) -> Iterator[Figure]:
    """Fan-out to 10, 100 and 1,000 watchers: a burst of writes, and one write at a time."""
    for count in (10, 100, 1_000):
        yield from _fan_out(bench, count)


def _fan_out(bench: Rig, count: int) -> Iterator[Figure]:
    names = itertools.count()
    since = bench.api.get(bench.path(), limit=1).expect(200)["metadata"]["resourceVersion"]
    path = f"{bench.path()}?watch=true&resourceVersion={since}"
    memory = bench.rss()
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    reader = context.Process(target=_read_watches, args=(theirs, bench.address, path, count), daemon=True)
    reader.start()
    assert ours.recv() == "open"
    if count == 1_000:
        yield Figure("idle watcher memory", (bench.rss() - memory) * 1024 / count, "KiB", 14.0)
    model = wire.Watchers(bench.address, path, 1)

    def write(number: int, lines: int) -> float:
        """Write so many objects; return the seconds of server CPU until every watcher has them all."""
        before = bench.cpu()
        posts = [wire.request("POST", bench.path(), thing(f"f{count}-{next(names):05}")) for _ in range(number)]
        wire.run(bench.address, posts, lines)
        while model.receive(0.2):
            pass
        ours.send(model.received.copy().popitem()[1])
        assert ours.recv() == "got"
        return bench.cpu() - before

    alone = _write_cost(bench, f"x{count}")
    burst, began = 1_000, time.perf_counter()
    cost = write(burst, 16)
    took = time.perf_counter() - began
    deliveries = burst * count
    own = max(cost - burst * alone, 0.01)
    goal = 500_000.0 if count == 1_000 else 0.0
    yield Figure(f"watch, {count:,} watchers, burst", deliveries / own, "deliveries/s of CPU", goal, True)
    if count == 1_000:
        yield Figure(f"watch, {count:,} watchers, burst, writes included", deliveries / cost, "deliveries/s of CPU")
        yield Figure(f"watch, {count:,} watchers, burst, by the clock", deliveries / took, "deliveries/s")
    singles, cost, times = 30, 0.0, []
    for _ in range(singles):
        began = time.perf_counter()
        cost += write(1, 1)
        times.append(time.perf_counter() - began)
    each = max(cost - singles * alone, 0.0) / (singles * count)
    yield Figure(
        f"watch, {count:,} watchers, 1 event per write", each * 1e6, "µs CPU per delivery", 14.0 * (count == 1_000)
    )
    ours.send(0)
    reader.join(10)
    model.close()


def _write_cost(bench: Rig, prefix: str) -> float:
    """Return the seconds of CPU that a create costs without watchers of its own resource's changes counted."""
    other = f"/apis/{GROUP}/v1/namespaces/default/b000s"
    if bench.api.get(other).status != 200:
        establish(bench.api, definition(0, bench.rules))
    posts = [
        wire.request("POST", other, thing(f"{prefix}-{number:04}").replace(b'"Bench"', b'"B000"'))
        for number in range(500)
    ]
    return per_operation(bench, lambda: wire.run(bench.address, posts, 16))[0]


def _read_watches(pipe: object, address: tuple[str, int], path: str, count: int) -> None:
    watchers = wire.Watchers(address, path, count)
    pipe.send("open")  # type: ignore[attr-defined]
    while True:
        while not pipe.poll(0):  # type: ignore[attr-defined]
            watchers.receive(0.05)
        size = pipe.recv()  # type: ignore[attr-defined]
        if not size:
            watchers.close()
            return
        watchers.until(size)
        pipe.send("got")  # type: ignore[attr-defined]


# ---------------------------------------------------------------------- start and memory


def start(bench: Rig) -> Iterator[Figure]:
    """Start and memory with no, 5, 50 and 500 definitions."""
    yield Figure("RSS idle, no definitions", bench.rss(), "MiB", 90.0)
    yield Figure("start to ready, empty, etcd up", min(bench.restart() for _ in range(3)), "s", 0.5)
    have = 0
    for count in (5, 50, 500):
        _define_many(bench, have, count)
        have = count
        seconds = min(bench.restart() for _ in range(2))
        yield Figure(f"start to ready, {count} definitions", seconds, "s", 1.2 if count == 500 else 0)
        yield Figure(f"RSS after start, {count} definitions", bench.rss(), "MiB")
    times = []
    for number in range(600, 610):
        began = time.perf_counter()
        establish(bench.api, definition(number, bench.rules))
        times.append(time.perf_counter() - began)
    yield Figure("definition created to Established", percentile(times, 0.5) * 1e3, "ms", 40.0)


def _define_many(bench: Rig, first: int, count: int) -> None:
    for number in range(first, count):
        bench.api.post(DEFINITIONS, definition(number, bench.rules)).expect(201)
    last = f"{DEFINITIONS}/{definition(count - 1)['metadata']['name']}"
    until(lambda: is_true(bench.api.get(last).expect(200), "Established"), "the last definition is established", 60)


def memory(bench: Rig) -> Iterator[Figure]:
    """Memory of cached objects, after they were listed once."""
    before = bench.rss()
    for size in (105, 1_050, 10_500):
        bench.fill(size - _count(bench), _count(bench))
        listed = wire.run(bench.address, [wire.request("GET", bench.path())])
        grown = bench.rss() - before
        yield Figure(f"RSS growth, {size:,} objects listed once", grown, "MiB")
        if size == 10_500:
            yield Figure("RSS growth over bytes served", grown / (listed.size / 2**20), "×", 1.5)


def own_etcd(bench: Rig) -> Iterator[Figure]:
    """Start with a private etcd child."""
    from tests.support.processes import running_server

    times = []
    for _ in range(3):
        began = time.perf_counter()
        with running_server(["--insecure", "--port=0"]):
            times.append(time.perf_counter() - began)
    yield Figure("start to ready, empty, own etcd", min(times), "s", 1.0)


Measure = Callable[[Rig], Iterator[Figure]]
MEASURES: dict[str, Measure] = {
    "start": start,
    "own-etcd": own_etcd,
    "get": get,
    "list": lists,
    "latency": latency,
    "writes": writes,
    "watch": watch,
    "memory": memory,
}


def run(names: list[str]) -> Iterator[tuple[str, Figure]]:
    """Run workloads, each on a server of its own; yield their figures as they come."""
    for name in names:
        with contextlib.ExitStack() as stack:
            bench = stack.enter_context(rig())
            if name not in ("start", "own-etcd"):
                bench.define()
            for figure in MEASURES[name](bench):
                yield name, figure
