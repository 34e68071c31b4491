"""Memory and descriptors of a server in long runs.

The runs have a steady load, or thousands of short-lived definitions.
"""

from __future__ import annotations

import itertools
import os
import random
import statistics
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from apiext.conformance.support.definitions import Resource, definition, establish, serve
from apiext.conformance.support.http_client import DEFINITIONS, Client
from apiext.conformance.support.waiting import busy, pause, until
from tests.faults.steady import Steady
from tests.support.processes import Server, running_server
from tests.support.strain import memory

RATE, WATCHERS = 300.0, 200
WARM = 0.4  # share of a run until bounded caches are full
MANY, CLIENTS = 1_000, 4
FORGOTTEN = 300.0  # seconds until the metrics of definitions are deleted and a garbage collection has run
SCHEMA = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {"size": {"type": "integer"}, "sent": {"type": "integer"}, "note": {"type": "string"}},
        }
    },
}


@dataclass(frozen=True)
class Sample:
    """Memory and descriptors of the server at one second of a run."""

    second: float
    mib: float
    files: int
    threads: int


def take_sample(server: Server, began: float) -> Sample:
    """Return a sample of the server now."""
    process = Path(f"/proc/{server.pid}")
    files, threads = len(os.listdir(process / "fd")), len(os.listdir(process / "task"))
    return Sample(time.monotonic() - began, memory(server, "VmRSS"), files, threads)


def slope(samples: Iterable[Sample]) -> float:
    """Return the growth of the memory in MiB per hour."""
    points = [(sample.second / 3600, sample.mib) for sample in samples]
    return statistics.linear_regression(*zip(*points, strict=True)).slope


@pytest.mark.long
def test_steady_load_keeps_latency_and_memory_bounded(tmp_path: Path) -> None:
    minutes = float(os.environ.get("STEADY_MINUTES", "2.5"))
    seed = int(os.environ.get("FAULT_SEED", "0")) or random.randrange(1, 2**31)
    print(f"FAULT_SEED={seed} STEADY_MINUTES={minutes:g}")
    with running_server(["--insecure", "--port=0"], tmp_path) as server:
        widgets = serve(Client(server.url), schema={"openAPIV3Schema": SCHEMA})
        load = Steady(widgets, RATE, WATCHERS, seed)
        load.start()
        began, samples, crowd = time.monotonic(), list[Sample](), list[float]()
        while time.monotonic() - began < 60 * minutes:
            pause(1.0)
            samples.append(take_sample(server, began))
            crowd.append(busy())
        load.finish()
        until(lambda: take_sample(server, began).files < samples[0].files - WATCHERS, "watches and clients are gone")
    late = samples[int(WARM * len(samples)) :]
    grows, slow = slope(late), statistics.fmean(crowd)
    for name, took in (("reads", load.reads), ("writes", load.writes), ("deliveries", load.deliveries)):
        print(f"{name}: {len(took)}, p50 {took.share(0.5):.0f} ms, p99 {took.share(0.99):.0f} ms")
    print(
        f"{late[0].mib:.1f} to {late[-1].mib:.1f} MiB, {grows:+.1f} MiB/h; each processor was wanted {slow:.1f} times"
    )
    assert not load.wrong, load.wrong[:5]
    assert len(load.reads) + len(load.writes) > 0.9 * RATE * 60 * minutes / slow
    assert load.reads.share(0.99) <= 50 * slow
    assert load.writes.share(0.99) <= 100 * slow
    assert load.deliveries.share(0.99) <= 100 * slow
    assert max(each.files for each in late) - min(each.files for each in late) <= 2
    assert max(each.threads for each in late) == min(each.threads for each in late)
    hours = (late[-1].second - late[0].second) / 3600
    assert grows * hours <= 1 + hours, "it grows by more than a MiB an hour, and one for what is got from the system"


def _for_each(task: Callable[[str], object], groups: Iterable[str]) -> None:
    with ThreadPoolExecutor(CLIENTS) as pool:
        list(pool.map(task, groups))


def _create_definitions(api: Client, groups: list[str]) -> None:
    """Create a definition in each group, and use it."""

    def make(group: str) -> None:
        kind = establish(api, definition(group))["spec"]["names"]["kind"]
        widgets = Resource(api, group, "widgets", kind)
        widgets.create("a", color="red")
        api.get(widgets.path()).expect(200)
        api.get(f"/openapi/v3/apis/{group}/v1").expect(200)

    _for_each(make, groups)


def _delete_definitions(api: Client, groups: list[str]) -> None:
    _for_each(lambda group: api.delete(f"{DEFINITIONS}/widgets.{group}").expect(200), groups)
    until(lambda: not api.get(f"{DEFINITIONS}?limit=1").expect(200)["items"], "all are gone", 120, every=0.5)


@pytest.mark.long
def test_deleted_definitions_free_their_memory(tmp_path: Path) -> None:
    numbers = itertools.count()
    with running_server(["--insecure", "--port=0"], tmp_path) as server:
        api, told = Client(server.url), list[float]()
        for count in (20, MANY, MANY):  # the first definitions import code
            groups = [f"g{next(numbers)}.example.com" for _ in range(count)]
            _create_definitions(api, groups)
            told.append(memory(server, "VmRSS"))
            _delete_definitions(api, groups)
            told.append(memory(server, "VmRSS"))
        until(lambda: "example.com" not in api.get("/metrics").text, "nothing is counted of them", FORGOTTEN, every=1.0)
        left = until(lambda: _memory_below(server, told[2]), f"less than with {MANY} of them", FORGOTTEN, every=1.0)
    shown = ", ".join(f"{each:.0f}" for each in told)
    print(f"made and deleted 20, {MANY} and {MANY}: {shown} MiB, and {left:.1f} when that was forgotten")


def _memory_below(server: Server, bound: float) -> float | None:
    found = memory(server, "VmRSS")
    return found if found <= bound else None
