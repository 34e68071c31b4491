"""Work that many connections need at once: the first pieces are done now, the others in later turns of the loop."""

import asyncio
from collections import deque
from collections.abc import Callable
from time import perf_counter

from apiext import limits as server_limits


class Slices:
    """Do ``at_once`` pieces of work in the turn in which they come, others for half a LOOP_BUDGET a turn."""

    __slots__ = ("_at_once", "_left", "_now")

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._left: deque[Callable[[], None]] = deque()
        self._now = 0  # pieces that came in this turn

    def put(self, work: Callable[[], None]) -> None:
        """Call ``work`` now, or soon."""
        if not self._now and not self._left:
            asyncio.get_running_loop().call_soon(self._turn)
        self._now += 1
        if self._now <= self._at_once and not self._left:
            work()
        else:
            self._left.append(work)

    def _turn(self) -> None:
        self._now = 0
        late = perf_counter() + server_limits.LOOP_BUDGET / 2
        try:
            while self._left and perf_counter() < late:
                self._left.popleft()()
        finally:  # a piece that fails must not keep the others
            if self._left:
                asyncio.get_running_loop().call_soon(self._turn)
