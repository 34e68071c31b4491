"""Ten minutes of a mixed load: memory, descriptors and threads of the server do not grow.

The checker finds leaks.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from apiext.conformance.support.definitions import serve
from apiext.conformance.support.http_client import Client
from apiext.conformance.support.waiting import until
from tests.faults.soak import Churn, Minute, growth, lag_of, lags, watched
from tests.faults.steady import Steady
from tests.support.processes import running_server

RATE, WATCHERS = 60.0, 50
CALM = Minute(100.0, 80, 12, 10.0, 1.0)
SCHEMA = {"type": "object", "properties": {"spec": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}}


@pytest.mark.long
def test_soak_grows_no_memory_descriptors_or_threads(tmp_path: Path) -> None:
    """Run the soak for ``SOAK_MINUTES``; each row is a tenth of it, at most a minute.

    In a shorter run memory may grow by one more MiB for each missing minute.
    """
    minutes = float(os.environ.get("SOAK_MINUTES", "10"))
    seed = int(os.environ.get("FAULT_SEED", "0")) or random.randrange(1, 2**31)
    print(f"FAULT_SEED={seed} SOAK_MINUTES={minutes:g}")
    with running_server(["--insecure", "--port=0", "--event-ttl=30s"], tmp_path) as server:
        api, files = Client(server.url), Path(f"/proc/{server.pid}/fd")
        before = len(os.listdir(files))
        churn, load = Churn(api), Steady(serve(api, schema={"openAPIV3Schema": SCHEMA}), RATE, WATCHERS, seed)
        churn.start()
        load.start()
        found = watched(server, 60 * minutes, max(10, round(minutes)))
        churn.finish()
        load.finish()
        print(f"{churn.rounds} rounds, {len(load.reads)} reads, {len(load.writes)} writes")
        assert not churn.wrong + load.wrong, (churn.wrong + load.wrong)[:5]
        assert churn.rounds > 3 * minutes
        until(lambda: len(os.listdir(files)) <= before + 5, "descriptors of clients and watches are closed")
        assert "Traceback" not in server.log_tail()
    grown = growth(found, max(0.0, 10 - minutes))
    assert not grown, grown


def artificial_soak(change: Callable[[int], Minute], minutes: int = 10) -> list[Minute]:
    """Return the minutes of an artificial soak, with noise.

    ``change`` maps the number of a minute to its figures.
    """
    noise = random.Random(7)
    return [
        replace(found, mib=found.mib + noise.uniform(-1, 1), lag=found.lag * noise.choice((1, 1, 2.5)))
        for found in map(change, range(minutes))
    ]


@pytest.mark.parametrize("minutes", [10, 30])
@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda _: CALM, ""),
        (lambda at: replace(CALM, mib=100 + 20 * min(at, 3)), ""),  # caches that fill
        (lambda at: replace(CALM, threads=5 + 2 * min(at, 3)), ""),
        (lambda at: replace(CALM, lag=40, crowd=1 + at), ""),
        (lambda at: replace(CALM, lag=100.0 * (1 + at), crowd=1.0 + at), ""),  # a shared machine
        (lambda at: replace(CALM, mib=100 + 2 * at), "MiB"),
        (lambda at: replace(CALM, files=80 + 2 * at), "descriptors"),
        (lambda at: replace(CALM, threads=12 + at // 2), "threads"),
        (lambda at: replace(CALM, lag=10.0 * 2**at), "ms of lag"),
    ],
    ids=["calm", "caches", "pools", "busy", "busier", "memory", "descriptors", "threads", "lag"],
)
def test_checker_detects_growth(change: Callable[[int], Minute], told: str, minutes: int) -> None:
    found = growth(artificial_soak(change, minutes))
    assert [told in line for line in found] == [True] * bool(told), found


def test_lag_is_computed_between_two_scrapes() -> None:
    def parse_counts(*counts: int) -> dict[float, int]:
        bounds = ("0.001", "0.01", "0.1", "+Inf")
        lines = (f'{name}{{le="{le}"}} {n}' for le, n in zip(bounds, counts, strict=True))
        return lags("\n".join(lines))

    name = "apiext_event_loop_lag_seconds_bucket"
    assert lag_of(parse_counts(0, 0, 0, 0), parse_counts(200, 200, 200, 200)) == 1
    assert lag_of(parse_counts(200, 200, 200, 200), parse_counts(200, 299, 300, 300)) == 10
    assert lag_of(parse_counts(200, 200, 200, 200), parse_counts(200, 298, 300, 300)) == 100
    assert lag_of(parse_counts(0, 0, 0, 0), parse_counts(0, 0, 0, 2)) == float("inf")
