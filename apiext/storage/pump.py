"""The turns in which watchers are written to: a bounded slice of work, then the loop is somebody else's."""

import asyncio
import logging
from collections import deque
from time import perf_counter
from typing import Protocol

from apiext import limits

log = logging.getLogger(__name__)


class Work(Protocol):
    """Something that is done in steps."""

    queued: bool

    @property
    def busy(self) -> bool:
        """Whether there is something to do now."""

    def step(self, budget: int) -> int:
        """Do one thing, at most ``budget`` writes; returns how many writes it was worth."""

    def rest(self) -> None:
        """Nothing is left to do for now."""

    def fail(self, error: Exception) -> bool:
        """A step raised: give up what it was about; returns whether those whom it was for are told why."""


class Pump:
    """A queue of work, served in turn: limits.PUMP_SLICE writes or half limits.LOOP_BUDGET per turn of the loop."""

    __slots__ = ("_queue", "_scheduled")

    def __init__(self) -> None:
        self._queue: deque[Work] = deque()
        self._scheduled = False

    def add(self, work: Work) -> None:
        """Do the work soon."""
        if not work.queued:
            work.queued = True
            self._queue.append(work)
            if not self._scheduled:
                self._scheduled = True
                asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self) -> None:
        queue = self._queue
        budget = limits.PUMP_SLICE
        late = perf_counter() + limits.LOOP_BUDGET / 2
        while queue and budget > 0 and perf_counter() < late:
            work = queue.popleft()
            budget -= self._step(work, budget)
            if work.busy:
                queue.append(work)
            else:
                work.queued = False
                work.rest()
        self._scheduled = bool(queue)
        if queue:
            asyncio.get_running_loop().call_soon(self._turn)

    def _step(self, work: Work, budget: int) -> int:
        try:
            return work.step(budget)
        except Exception as error:  # outermost: one watch that cannot be written must not stop the others
            if not work.fail(error):
                log.exception("a group of watches could not be served and is ended")
            return 1
