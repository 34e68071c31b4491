"""Work that many connections need at once, distributed over event loop iterations."""

import asyncio
from collections import deque
from collections.abc import Callable
from time import perf_counter

from apiext import limits


class Slices:
    """Calls functions, and limits their work in one iteration of the event loop.

    The first ``at_once`` functions of an iteration are called immediately. Further functions are queued. Each later
    iteration calls queued functions for half of LOOP_BUDGET. While the queue is not empty, all new functions are
    queued.
    """

    __slots__ = ("_at_once", "_left", "_now")

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._left: deque[Callable[[], None]] = deque()
        self._now = 0  # number of calls of ``put`` in this iteration of the event loop

    def put(self, work: Callable[[], None]) -> None:
        """Call ``work`` immediately, or queue it for a later iteration of the event loop."""
        if not self._now and not self._left:
            asyncio.get_running_loop().call_soon(self._step)
        self._now += 1
        if self._now <= self._at_once and not self._left:
            work()
        else:
            self._left.append(work)

    def _step(self) -> None:
        self._now = 0
        until = perf_counter() + limits.LOOP_BUDGET / 2
        try:
            while self._left and perf_counter() < until:
                self._left.popleft()()
        finally:  # the remaining functions are called even if one raises an exception
            if self._left:
                asyncio.get_running_loop().call_soon(self._step)
