"""The metric of the event loop's lag."""

import asyncio
import time

import pytest
import uvloop

from apiext.controllers import limits
from apiext.controllers import loop_lag as loop_lag_module
from apiext.controllers.loop_lag import LoopLag
from apiext.telemetry import Distribution

LOOPS = pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])


def measure_lag(monkeypatch: pytest.MonkeyPatch, loop: object, seconds: float, stall: float = 0.0) -> Distribution:
    """Return the lags of a loop within ``seconds``.

    Halfway, the clock of the loop advances by ``stall``, as if the loop had been blocked.
    """
    late = [0.0]
    monkeypatch.setattr(loop_lag_module, "monotonic", lambda: time.monotonic() + late[0])

    async def live() -> Distribution:
        lag = LoopLag()
        lag.start()
        await asyncio.sleep(seconds / 2)
        late[0] = stall
        await asyncio.sleep(seconds / 2)
        lag.stop()
        found = lag.family.slot()
        before = found.count
        await asyncio.sleep(5 * loop_lag_module.LAG_EVERY)
        assert found.count == before, "it has been stopped"
        return found

    with asyncio.Runner(loop_factory=loop) as runner:  # type: ignore[arg-type]
        return runner.run(live())


def count_lags_over(found: Distribution, seconds: float) -> int:
    """Return how many lags are longer than ``seconds``, one of the bounds."""
    return sum(found.buckets[found.bounds.index(seconds) + 1 :])


@LOOPS
def test_stall_is_counted_by_its_length(monkeypatch: pytest.MonkeyPatch, loop: object) -> None:
    monkeypatch.setattr(loop_lag_module, "LAG_EVERY", 0.01)
    found = measure_lag(monkeypatch, loop, 0.2, stall=0.5)
    assert count_lags_over(found, 0.25) == pytest.approx(25, abs=4), (
        "half of the time until the end, a timer each 10 ms"
    )
    assert found.count == pytest.approx(70, abs=25)


@LOOPS
def test_idle_loop_has_no_lag(monkeypatch: pytest.MonkeyPatch, loop: object) -> None:
    monkeypatch.setattr(loop_lag_module, "LAG_EVERY", 0.02)
    found = measure_lag(monkeypatch, loop, 1.0)
    assert 20 <= found.count <= 100
    assert count_lags_over(found, 0.01) <= found.count / 4


def test_stall_is_counted_as_one_minute_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    later = 0.0
    monkeypatch.setattr("apiext.controllers.loop_lag.monotonic", lambda: time.monotonic() + later)
    lag = LoopLag()

    async def live() -> None:
        nonlocal later
        lag.start()
        later = 86_400.0
        lag._fired()
        lag.stop()

    asyncio.run(live())
    assert lag.family.slot().count == 1 + limits.LAG_MISSED
    assert 'apiext_event_loop_lag_seconds_bucket{le="10"} 0' in lag.family.lines()
