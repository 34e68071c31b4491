"""The metric of the delay of the event loop.

This delay adds to the latency of every request.
"""

import asyncio
import random
from time import monotonic

from apiext.controllers import limits
from apiext.telemetry import HistogramFamily

# Mean seconds between two timers that measure the delay. The timers use 0.02 % of the time of a processor.
LAG_EVERY = 0.5

BOUNDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)


class LoopLag:
    """Sets a timer about every LAG_EVERY seconds, and observes the delay of the timer.

    The pauses are random, so that the timers do not coincide with other periodic work. A long delay prevents further
    timers. For each prevented timer (at most limits.LAG_MISSED), the metric also counts the delay that the timer would
    have had. Otherwise a long delay would hardly change the quantiles.
    """

    def __init__(self) -> None:
        self.family = HistogramFamily(
            "apiext_event_loop_lag_seconds",
            "Delay of timers of the event loop in seconds: a new request waits this long before the server reads it.",
            (),
            BOUNDS,
        )
        self._found = self.family.slot()
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Set the next timer on the running event loop."""
        pause = LAG_EVERY * random.uniform(0.5, 1.5)
        self._due = monotonic() + pause
        self._timer = asyncio.get_running_loop().call_later(pause, self._fired)

    def stop(self) -> None:
        """End the measurement."""
        if self._timer is not None:
            self._timer.cancel()

    def _fired(self) -> None:
        lag = max(0.0, monotonic() - self._due)
        self._found.observe(lag)
        for missed in range(1, min(int(lag / LAG_EVERY), limits.LAG_MISSED) + 1):
            self._found.observe(lag - missed * LAG_EVERY)
        self.start()
