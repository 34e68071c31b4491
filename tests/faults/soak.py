"""Run a mixed load, and record a server's resources each minute, to find growth.

The resources are memory, descriptors, threads and lag.
"""

from __future__ import annotations

import itertools
import os
import re
import statistics
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from apiext.conformance.support.definitions import Resource, definition, establish
from apiext.conformance.support.http_client import DEFINITIONS, TABLE, Client
from apiext.conformance.support.waiting import busy, pause
from tests.support.processes import Server
from tests.support.strain import memory

WARM = 0.4  # share of a soak in which bounded caches fill, code is imported and threads start
LAG = re.compile(r'^apiext_event_loop_lag_seconds_bucket\{le="([^"]+)"\} (\d+)$', re.M)
NAMESPACE = "/api/v1/namespaces/soaked"


@dataclass(frozen=True)
class Minute:
    """The minimum use of resources within a minute, and the lag of the event loop."""

    mib: float
    files: int
    threads: int
    lag: float  # milliseconds; 99 % of the event loop's timers were at most this late
    crowd: float  # runnable programs for each processor

    def __str__(self) -> str:
        return (
            f"{self.mib:7.1f} MiB {self.files:5d} descriptors {self.threads:3d} threads "
            f"lag p99 {self.lag:5.0f} ms, each processor was wanted {self.crowd:.1f} times"
        )


def growth(minutes: Sequence[Minute], filling: float = 0.0) -> list[str]:
    """Return the names of figures that grow from the first to the second half of a soak.

    The warm-up does not count. ``filling`` are additional MiB for a short soak, since caches fill in the first five
    minutes (74 to 87 MiB).

    - Memory may grow by 3 MiB, since the allocator returns memory late (an arena is 1 MiB, and each of the three
    threads that work on objects has its own). A leak of 1 KiB per request would be 20 MiB.
    - Descriptors may grow by 3, for connections that open and close. A leak of one descriptor per round would be 100.
    - Threads may grow by 1, which a pool starts at its first use. A leak of one thread per round would be 100.
    - Lag may double and grow by 25 ms (a bucket of the metric), times the growth of the machine's load.
    """
    late = minutes[int(WARM * len(minutes)) :]
    before, after = late[: len(late) // 2], late[len(late) // 2 :]
    busier = max(1.0, _middle(each.crowd for each in after) / _middle(each.crowd for each in before))
    bounds: dict[str, tuple[Callable[[Minute], float], Callable[[float], float]]] = {
        "MiB": (lambda each: each.mib, lambda had: had + 3 + filling),
        "descriptors": (lambda each: each.files, lambda had: had + 3),
        "threads": (lambda each: each.threads, lambda had: had + 1),
        "ms of lag": (lambda each: each.lag, lambda had: (2 * had + 25) * busier),
    }
    found = []
    for name, (value, bound) in bounds.items():
        had, has = _middle(map(value, before)), _middle(map(value, after))
        if has > bound(had):
            found.append(f"{had:.1f} {name} became {has:.1f}, the bound is {bound(had):.1f}")
    return found


def _middle(values: Iterable[float]) -> float:
    return statistics.median(values)


def lags(text: str) -> dict[float, int]:
    """Parse /metrics: seconds → number of timers of the event loop that were at most this late."""
    return {float(bound): int(count) for bound, count in LAG.findall(text)}


def lag_of(before: Mapping[float, int], after: Mapping[float, int], share: float = 0.99) -> float:
    """Return the lag in milliseconds that this share of timers did not exceed.

    The timers are those between two scrapes; the lag is the bound of a bucket.
    """
    passed = {bound: count - before[bound] for bound, count in after.items()}
    wanted = share * passed[float("inf")]
    return 1000 * next(bound for bound, count in sorted(passed.items()) if count >= wanted)


def watched(server: Server, seconds: float, rows: int) -> list[Minute]:
    """Sample a server for ``seconds``; print and return ``rows`` rows."""
    api, found = Client(server.url), list[Minute]()
    seen = lags(api.get("/metrics").text)
    for number in range(1, rows + 1):
        until, looks = time.monotonic() + seconds / rows, list[tuple[float, int, int]]()
        while time.monotonic() < until:
            pause(min(1.0, seconds / rows / 3))
            process = Path(f"/proc/{server.pid}")
            files, threads = len(os.listdir(process / "fd")), len(os.listdir(process / "task"))
            looks.append((memory(server, "VmRSS"), files, threads))
        now = lags(api.get("/metrics").text)
        mib, files, threads = (min(column) for column in zip(*looks, strict=True))
        found.append(Minute(mib, int(files), int(threads), lag_of(seen, now), busy()))
        seen = now
        print(f"{number * seconds / rows / 60:5.1f} min {found[-1]}", flush=True)
    return found


class Churn:
    """Short-lived work during the steady load.

    It consists of definitions, events, accounts, tokens, watches and documents.
    """

    def __init__(self, api: Client) -> None:
        self.rounds, self.wrong = 0, list[str]()
        self._api = api
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Start the rounds in a thread."""
        self._api.post("/api/v1/namespaces", {"metadata": {"name": "soaked"}}).expect(201)
        self._thread.start()

    def finish(self) -> None:
        """Stop, and wait for the last round."""
        self._over.set()
        self._thread.join(60)

    def _run(self) -> None:
        try:
            for number in itertools.count():
                if self._over.wait(0.5):
                    return
                self._round(number)
                self.rounds += 1
        except Exception as failure:
            self.wrong.append(f"round {self.rounds}: {failure!r}")

    def _round(self, number: int) -> None:
        """Do one round. Names repeat, since the metrics of each name remain for some minutes."""
        api, name = self._api, f"n{number % 20}"
        group = f"{name}.soak.example.com"
        kind = establish(api, definition(group))["spec"]["names"]["kind"]
        widgets = Resource(api, group, "widgets", kind)
        with api.watch(widgets.path(), resourceVersion=0, timeoutSeconds=30) as watch:
            for each in range(5):
                widgets.create(f"a{each}", color="red", size=each)
            watch.next("ADDED")
        api.get(widgets.path(), {"Accept": TABLE}).expect(200)
        api.get(f"{widgets.path()}?labelSelector=a%3Db&limit=2").expect(200)
        api.get(widgets.path("none")).expect(404)
        api.post(widgets.path(), {"kind": kind, "metadata": {"name": "a0"}}).expect(400)
        for path in (f"/openapi/v3/apis/{group}/v1", "/apis", "/openapi/v2"):
            api.get(path).expect(200)
        event = {"metadata": {"generateName": "e-"}, "involvedObject": {"namespace": "soaked", "name": name}}
        api.post(f"{NAMESPACE}/events", {**event, "reason": "Soak", "message": name}).expect(201)
        api.post(f"{NAMESPACE}/serviceaccounts", {"metadata": {"name": name}}).expect(201)
        api.post(f"{NAMESPACE}/serviceaccounts/{name}/token", {"spec": {"expirationSeconds": 600}}).expect(201)
        api.delete(f"{NAMESPACE}/serviceaccounts/{name}").expect(200)
        api.delete(widgets.path()).expect(200)
        api.delete(f"{DEFINITIONS}/widgets.{group}").expect(200)
        while api.get(f"{DEFINITIONS}/widgets.{group}").status != 404:
            pause(0.02)
