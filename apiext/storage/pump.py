"""Writes to watchers in turns: a bounded slice of work, then it yields to the event loop."""

import asyncio
import logging
from collections import deque
from time import perf_counter
from typing import Protocol

from apiext import limits as server_limits
from apiext.storage import limits

log = logging.getLogger(__name__)


class Work(Protocol):
    """Something that is done in steps."""

    queued: bool

    @property
    def busy(self) -> bool:
        """True if there is work now."""

    def step(self, budget: int) -> int:
        """Do one thing, at most ``budget`` writes; returns how many writes it was worth."""

    def rest(self) -> None:
        """Nothing is left to do for now."""

    def fail(self, error: Exception) -> bool:
        """A step raised: drop its work; return whether its watchers got an error."""


class Stream(Protocol):
    """An object that can be ended."""

    def end(self, data: bytes) -> None:
        """Send the bytes and end the stream."""


def _end(stream: Stream, data: bytes) -> None:
    try:
        stream.end(data)
    except Exception:  # outermost: other watchers get their events
        log.exception("a watch could not be ended")


class _Endings:
    """Streams that end soon, a few in each turn."""

    __slots__ = ("left", "queued")

    def __init__(self) -> None:
        self.left: deque[tuple[Stream, bytes]] = deque()
        self.queued = False

    @property
    def busy(self) -> bool:
        return bool(self.left)

    def step(self, budget: int) -> int:
        ended = min(budget, len(self.left))
        for _ in range(ended):
            _end(*self.left.popleft())
        return ended

    def rest(self) -> None:
        pass

    def fail(self, error: Exception) -> bool:
        return False


class Pump:
    """A queue of work: limits.PUMP_SLICE writes or half server_limits.LOOP_BUDGET in each turn of the loop."""

    __slots__ = ("_ended", "_endings", "_queue", "_scheduled")

    def __init__(self) -> None:
        self._queue: deque[Work] = deque()
        self._scheduled = False
        self._ended = 0  # streams in this turn of the loop
        self._endings = _Endings()

    def end(self, stream: Stream, data: bytes) -> None:
        """End a stream: at once, but of many in one turn of the loop those beyond limits.PUMP_SLICE soon."""
        if not self._ended:
            asyncio.get_running_loop().call_soon(self._begin)
        self._ended += 1
        if self._ended <= limits.PUMP_SLICE:
            _end(stream, data)
        else:
            self._endings.left.append((stream, data))
            self.add(self._endings)

    def _begin(self) -> None:
        self._ended = 0

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
        late = perf_counter() + server_limits.LOOP_BUDGET / 2
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
        except Exception as error:  # outermost: other watches go on
            if not work.fail(error):
                log.exception("a group of watches could not be served and is ended")
            return 1
