"""Connections that are lost: of many at once those beyond a slice wait for turns of the loop behind this one."""

import asyncio
from collections import deque
from collections.abc import Callable
from time import perf_counter

from apiext import limits


class Farewells:
    """Connections let go of what they hold: limits.PUMP_SLICE at once, others for half limits.LOOP_BUDGET a turn."""

    __slots__ = ("_left", "_now")

    def __init__(self) -> None:
        self._left: deque[Callable[[], None]] = deque()
        self._now = 0  # connections lost in this turn

    def put(self, let_go: Callable[[], None]) -> None:
        """Call ``let_go`` now, or soon."""
        if not self._now and not self._left:
            asyncio.get_running_loop().call_soon(self._turn)
        self._now += 1
        if self._now <= limits.PUMP_SLICE and not self._left:
            let_go()
        else:
            self._left.append(let_go)

    def _turn(self) -> None:
        self._now = 0
        late = perf_counter() + limits.LOOP_BUDGET / 2
        try:
            while self._left and perf_counter() < late:
                self._left.popleft()()
        finally:  # one that cannot be let go of must not keep the others
            if self._left:
                asyncio.get_running_loop().call_soon(self._turn)
