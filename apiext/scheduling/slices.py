"""Slices of work that many connections need at once: the first pieces now, the rest in later loop iterations."""

import asyncio
from collections import deque
from collections.abc import Callable
from time import perf_counter

from apiext import limits


class Slices:
    """Does ``at_once`` pieces of work at once; further ones for half a LOOP_BUDGET in each loop iteration."""

    __slots__ = ("_at_once", "_left", "_now")

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._left: deque[Callable[[], None]] = deque()
        self._now = 0  # pieces of this loop iteration

    def put(self, work: Callable[[], None]) -> None:
        """Call ``work`` now, or in a later loop iteration."""
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
        finally:  # the other pieces are done even if one raises
            if self._left:
                asyncio.get_running_loop().call_soon(self._step)
