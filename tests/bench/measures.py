"""Measure each workload; each figure has a goal."""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from multiprocessing.synchronize import Event
from statistics import mean

from apiext.conformance.support.definitions import establish, is_true
from apiext.conformance.support.http_client import DEFINITIONS
from apiext.conformance.support.waiting import until
from tests.bench import admission, cel, conversion, forms, many, published, schemas, selection, wire
from tests.bench.rig import PLURAL, Rig, definition, rig, thing

NAMES = 10_000
GET_ROUNDS = 12_000
SLICES = 5  # parts of a run of writes; the speed of the machine is measured after each part
GZIP = "Accept-Encoding: gzip\r\n"


@dataclass(frozen=True)
class Figure:
    """A measured figure. A goal of 0 means no goal; with ``more`` larger values are better.

    ``pace`` is the time of a fixed loop near the measurement, divided by the loop's time on the reference machine.
    """

    workload: str
    value: float
    unit: str
    goal: float = 0.0
    more: bool = False
    pace: float = 1.0

    @property
    def there(self) -> float:
        """Return the estimated figure on the reference machine.

        CPU times are divided by the pace; other figures are unchanged.
        """
        if "CPU" not in self.unit:
            return self.value
        return self.value * self.pace if self.more or "/s" in self.unit else self.value / self.pace

    @property
    def verdict(self) -> str:
        """The result on the reference machine: "met" or "missed", "" without a goal."""
        if not self.goal:
            return ""
        met = self.there >= self.goal if self.more else self.there <= self.goal
        return "met" if met else "missed"


def per_operation(bench: Rig, work: Callable[[], wire.Run]) -> tuple[float, wire.Run]:
    """Return the CPU seconds of the server for each request, and the run."""
    before = bench.cpu()
    run = work()
    return (bench.cpu() - before) / run.count, run


def percentile(values: list[float], part: float) -> float:
    """Return a percentile; ``part`` is between 0 and 1."""
    return sorted(values)[min(len(values) - 1, int(part * len(values)))]


def gets(bench: Rig, count: int, rounds: int, query: str) -> Iterator[bytes]:
    """Yield GETs of all names in turn, so that no repeated request gets a cached response."""
    requests = [wire.request("GET", bench.path(f"o{number:05}") + query) for number in range(count)]
    return itertools.islice(itertools.cycle(requests), rounds)


# ---------------------------------------------------------------------- reads


def get(bench: Rig) -> Iterator[Figure]:
    """Measure cached and consistent GETs of single objects at three sizes of the collection."""
    have = 0
    for size in (100, 1_000, NAMES):
        bench.fill(size - have, have)
        have = size
        names = max(100, min(size, 8_000))
        for query, what, goal in (("?resourceVersion=0", "cache", 60.0), ("", "consistent", 70.0)):
            wire.run(bench.address, gets(bench, names, names, query), 16)
            cost, run = per_operation(
                bench, lambda q=query, n=names: wire.run(bench.address, gets(bench, n, GET_ROUNDS, q), 16)
            )  # type: ignore[misc]
            yield Figure(f"GET, {what}, {size:,} objects", cost * 1e6, "µs CPU", goal)
            if size == NAMES:
                yield Figure(f"GET, {what}, throughput", run.count / run.seconds, "/s")


def lists(bench: Rig) -> Iterator[Figure]:
    """Measure LISTs of three sizes, plain and compressed.

    One object is written before each LIST.
    """
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
    """Convert a goal for 10 MB to a list of this size."""
    return goal * size / 10e6


def _count(bench: Rig) -> int:
    page = bench.api.get(bench.path(), limit=1).expect(200)
    return len(page["items"]) + int(page["metadata"].get("remainingItemCount", 0))


def _lists(bench: Rig, rounds: int, query: str = "", headers: str = "") -> tuple[int, float]:
    """Return the bytes of a LIST and its CPU seconds.

    The seconds are those of rounds with a write and a LIST, minus those of the writes.
    """
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
    """Return bytes and CPU seconds of the first compressed LIST after a start and a plain LIST."""
    total, size = 0.0, 0
    for _ in range(rounds):
        bench.restart()
        wire.run(bench.address, [wire.request("GET", bench.path())])
        before = bench.cpu()
        size = wire.run(bench.address, [wire.request("GET", bench.path(), headers=GZIP)]).size
        total += bench.cpu() - before
    return size, total / rounds


def latency(bench: Rig) -> Iterator[Figure]:
    """Measure the latency of GETs while another client repeatedly lists all objects."""
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
    """Measure POST, PUT, merge patch, status, DELETE of 1 KiB objects, by 1 and by 16 clients."""
    rules = "two CEL rules" if bench.rules else "rules not evaluated yet"
    for clients, count in ((1, 1_000), (16, 4_000)):
        names = [f"w{clients:02}-{number:05}" for number in range(count)]
        by = f"{clients} client" + "s" * (clients > 1)

        def measured(requests: list[bytes], by_clients: int = clients) -> tuple[float, wire.Run]:
            size = len(requests) // SLICES
            parts = [requests[start : start + size] for start in range(0, len(requests), size)]
            found = [
                per_operation(bench, lambda part=part: wire.run(bench.address, part, by_clients)) for part in parts
            ]  # type: ignore[misc]
            runs = [run for _, run in found]
            took = [second for run in runs for second in run.took]
            whole = wire.Run(len(requests), sum(run.seconds for run in runs), runs[-1].size, took)
            return mean(cost for cost, _ in found), whole

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
        yield Figure(f"server-side apply, {by}", measured(list(applies(bench, names)))[0] * 1e6, "µs CPU", 900.0)
        deletes = [wire.request("DELETE", bench.path(name)) for name in names]
        yield Figure(f"DELETE, {by}", measured(deletes)[0] * 1e6, "µs CPU", 150.0)


def applies(bench: Rig, names: list[str]) -> Iterator[bytes]:
    """Yield applies of whole objects by one manager; each apply changes its object."""
    kind = "application/apply-patch+yaml"
    for name in names:
        yield wire.request("PATCH", bench.path(name) + "?fieldManager=bench&force=true", thing(name, 2), kind=kind)


# ---------------------------------------------------------------------- watches


def watch(bench: Rig) -> Iterator[Figure]:
    """Measure the fan-out to 10, 100 and 1,000 watchers.

    The writes are a burst, single writes, and ten writes per second.
    """
    establish(bench.api, definition(0))
    for count in (10, 100, 1_000):
        fan = _Fan(bench, count)
        try:
            yield from _fan_out(fan, count)
        finally:
            fan.close()


def _fan_out(fan: _Fan, count: int) -> Iterator[Figure]:
    main = count == 1_000
    if main:
        yield Figure("idle watcher memory", fan.memory, "KiB", 14.0)
    burst = max(1_000, 20_000 // count)
    alone, (cost, seconds) = fan.cost_without_watchers(burst, 16), fan.write(burst, 16)
    rate = burst * count / max(cost - burst * alone, 0.01)
    yield Figure(f"watch, {count:,} watchers, burst", rate, "deliveries/s of CPU", 500_000.0 * main, True)
    if main:
        yield Figure("watch, 1,000 watchers, burst, writes included", burst * count / cost, "deliveries/s of CPU")
        yield Figure("watch, 1,000 watchers, burst, by the clock", burst * count / seconds, "deliveries/s")
    singles = max(60, 3_000 // count)
    alone, cost = fan.cost_without_watchers(singles, 1), sum(fan.write(1, 1)[0] for _ in range(singles))
    each = max(cost - singles * alone, 0.0) / (singles * count)
    yield Figure(f"watch, {count:,} watchers, 1 event per write", each * 1e6, "µs CPU per delivery", 14.0 * main)
    late = fan.latencies(40)
    yield Figure(f"watch latency, {count:,} watchers, p50", percentile(late, 0.5) * 1e3, "ms", 10.0 * main)
    yield Figure(f"watch latency, {count:,} watchers, p99", percentile(late, 0.99) * 1e3, "ms", 25.0 * main)


class _Fan:
    """Watches in another process, and one here that shows how many bytes each must receive."""

    def __init__(self, bench: Rig, count: int) -> None:
        self._bench, self._count = bench, count
        self._names = (f"f{count}-{number:05}" for number in itertools.count())
        since = bench.api.get(bench.path(), limit=1).expect(200)["metadata"]["resourceVersion"]
        path = f"{bench.path()}?watch=true&resourceVersion={since}"
        before = bench.rss()
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._reader = context.Process(target=_read_watches, args=(theirs, bench.address, path, count), daemon=True)
        self._reader.start()
        self._pipe.recv()
        self.memory = (bench.rss() - before) * 1024 / count
        self._model = wire.Watchers(bench.address, path, 1)

    def write(self, number: int, lines: int) -> tuple[float, float]:
        """Write objects; return CPU and wall-clock seconds until every watcher has all events."""
        posts = [wire.request("POST", self._bench.path(), thing(next(self._names))) for _ in range(number)]
        before, began = self._bench.cpu(), time.perf_counter()
        wire.run(self._bench.address, posts, lines)
        self._times(number)
        took = time.perf_counter() - began
        return self._bench.cpu() - before, took

    def latencies(self, number: int) -> list[float]:
        """Write ten objects per second; return the seconds from response to receipt by each watcher."""
        line, late = wire.Line(self._bench.address), []
        for _ in range(number):
            line.ask(wire.request("POST", self._bench.path(), thing(next(self._names))))
            answered = time.perf_counter()
            late += [max(0.0, at - answered) for at in self._times(1)]
            time.sleep(max(0.0, 0.1 - (time.perf_counter() - answered)))
        line.socket.close()
        return late

    def cost_without_watchers(self, number: int, lines: int) -> float:
        """Return the CPU seconds of a create in a resource without watches."""
        path = self._bench.path().replace(PLURAL, "b000s")
        names = [next(self._names) for _ in range(max(number, 500))]
        posts = [wire.request("POST", path, thing(name).replace(b'"Bench"', b'"B000"')) for name in names]
        return per_operation(self._bench, lambda: wire.run(self._bench.address, posts, lines))[0]

    def _times(self, events: int) -> list[float]:
        """Wait until all watchers have received ``events`` more events.

        Return the time of the last receipt of each watcher.
        """
        self._model.until_lines(events)
        self._pipe.send(self._model.size)
        times: list[float] = self._pipe.recv()
        return times

    def close(self) -> None:
        """Close all watches."""
        self._pipe.send(0)
        self._reader.join(10)
        self._model.close()


def _read_watches(pipe: Connection, address: tuple[str, int], path: str, count: int) -> None:
    watchers = wire.Watchers(address, path, count)
    pipe.send("open")
    while True:
        while not pipe.poll(0):
            watchers.receive(0.02)
        size = pipe.recv()
        if not size:
            watchers.close()
            return
        watchers.until(size)
        pipe.send(watchers.times)
        watchers.times = []


# ---------------------------------------------------------------------- start and memory


def start(bench: Rig) -> Iterator[Figure]:
    """Measure start and memory with 0, 5, 50 and 500 definitions."""
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
        establish(bench.api, definition(number))
        times.append(time.perf_counter() - began)
    yield Figure("definition created to Established", percentile(times, 0.5) * 1e3, "ms", 40.0)


def _define_many(bench: Rig, first: int, count: int) -> None:
    for number in range(first, count):
        bench.api.post(DEFINITIONS, definition(number)).expect(201)
    last = f"{DEFINITIONS}/{definition(count - 1)['metadata']['name']}"
    until(lambda: is_true(bench.api.get(last).expect(200), "Established"), "the last definition is established", 60)


def memory(bench: Rig) -> Iterator[Figure]:
    """Measure the memory of cached objects, written and listed once, and again after a restart."""
    bench.restart()
    before = bench.rss()
    size = 0
    for count in (105, 1_050, 10_500):
        bench.fill(count - _count(bench), _count(bench))
        size = wire.run(bench.address, [wire.request("GET", bench.path())]).size
        goal = 45.0 if count == 10_500 else 0
        yield Figure(f"RSS growth, {count:,} objects written and listed", bench.rss() - before, "MiB", goal)
    yield Figure("bytes of that list", size / 2**20, "MiB")
    bench.restart()
    wire.run(bench.address, [wire.request("GET", bench.path())])
    yield Figure("RSS growth, 10,500 objects, restarted and listed", bench.rss() - before, "MiB")


def own_store(bench: Rig) -> Iterator[Figure]:
    """Measure the start with the embedded store."""
    from tests.support.processes import running_server

    times = []
    for _ in range(3):
        began = time.perf_counter()
        with running_server(["--insecure", "--port=0"], env=bench.env):
            times.append(time.perf_counter() - began)
    yield Figure("start to ready, empty, own store", min(times), "s", 1.0)


def schema(bench: Rig) -> Iterator[Figure]:
    """Measure schemas: functions on one object, and real definitions.

    Also measure reads during writes of large definitions.
    """
    for row in schemas.functions():
        yield Figure(*row)
    bench.restart()
    for row in schemas.real(bench):
        yield Figure(*row)
    bench.fill(1_000)
    took = schemas.beside(bench, _paced_gets)
    yield Figure("GET p50 while 5,000-property definitions are written", percentile(took, 0.5) * 1e3, "ms")
    yield Figure("GET p99 while 5,000-property definitions are written", percentile(took, 0.99) * 1e3, "ms", 5.0)
    yield Figure("GET longest meanwhile", max(took) * 1e3, "ms")


def selective(bench: Rig) -> Iterator[Figure]:
    """Measure lists with selectors in a large collection."""
    for row in selection.rows(bench):
        yield Figure(*row)


def in_other_forms(bench: Rig) -> Iterator[Figure]:
    """Measure Tables, partial objects, and applies to objects with several managers."""
    for rows in (forms.applies(bench), forms.lists(bench)):
        yield from itertools.starmap(Figure, rows)


def rules(bench: Rig) -> Iterator[Figure]:
    """Measure CEL rules in this process."""
    for row in cel.rows():
        yield Figure(*row)


def documents(bench: Rig) -> Iterator[Figure]:
    """Measure discovery and OpenAPI with 500 definitions."""
    for row in published.rows(bench, _paced_gets):
        yield Figure(*row)


def converted(bench: Rig) -> Iterator[Figure]:
    """Measure reads in another version than the stored one."""
    for rows in (conversion.by_name(bench), conversion.by_webhook(bench)):
        yield from itertools.starmap(Figure, rows)


def judged(bench: Rig) -> Iterator[Figure]:
    """Measure writes with webhooks and policies."""
    yield from itertools.starmap(Figure, admission.rows(bench))


def many_definitions(bench: Rig) -> Iterator[Figure]:
    """Measure definitions among 100, 1,000 and 5,000 of one group."""
    for row in many.rows(bench):
        yield Figure(*row)


Measure = Callable[[Rig], Iterator[Figure]]
MEASURES: dict[str, Measure] = {
    "start": start,
    "own-store": own_store,
    "get": get,
    "list": lists,
    "latency": latency,
    "writes": writes,
    "watch": watch,
    "memory": memory,
    "schema": schema,
    "select": selective,
    "forms": in_other_forms,
    "cel": rules,
    "convert": converted,
    "admission": judged,
    "documents": documents,
    "many": many_definitions,
}


def run(names: list[str]) -> Iterator[tuple[str, Figure]]:
    """Run each workload with a new server; yield its name and figures with the current pace."""
    for name in names:
        with contextlib.ExitStack() as stack:
            bench = stack.enter_context(rig())
            if name not in ("start", "own-store"):
                bench.define()
            for figure in MEASURES[name](bench):
                yield name, replace(figure, pace=mean(bench.paces)) if bench.paces else figure
                bench.paces.clear()
