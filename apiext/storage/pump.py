"""Write events to watchers, and yield to the event loop between limited amounts of work."""

import asyncio
import logging
from collections import deque
from time import perf_counter
from typing import Protocol

from apiext import limits as server_limits
from apiext.storage import limits

log = logging.getLogger(__name__)


class Work(Protocol):
    """Work that is done in steps."""

    queued: bool

    @property
    def busy(self) -> bool:
        """True if ``step`` has work now."""

    def step(self, budget: int) -> int:
        """Do one step with at most ``budget`` writes. Return its cost, in writes."""

    def on_idle(self) -> None:
        """Free memory. Called when ``busy`` has become false."""

    def fail(self, error: Exception) -> bool:
        """Drop the work of a step that raised an exception.

        Return True if its watchers got an ERROR event.
        """


class Stream(Protocol):
    """An open response that can be ended."""

    def end(self, data: bytes) -> None:
        """Send the bytes and end the stream."""


def _end(stream: Stream, data: bytes) -> None:
    try:
        stream.end(data)
    except Exception:  # the error must not affect other watchers
        log.exception("a watch could not be ended")


class _Endings:
    """Streams to end, a few in each iteration of the event loop."""

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

    def on_idle(self) -> None:
        pass

    def fail(self, error: Exception) -> bool:
        return False


class Pump:
    """A queue of work.

    In one iteration of the event loop, the pump does at most limits.PUMP_SLICE writes, and starts no step after half of
    server_limits.LOOP_BUDGET.
    """

    __slots__ = ("_ended", "_endings", "_queue", "_scheduled")

    def __init__(self) -> None:
        self._queue: deque[Work] = deque()
        self._scheduled = False
        self._ended = 0  # the number of streams ended in this iteration of the event loop
        self._endings = _Endings()

    def end(self, stream: Stream, data: bytes) -> None:
        """End a stream.

        After limits.PUMP_SLICE calls in one iteration of the event loop, a later iteration ends the stream.
        """
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
        """Queue work for the next iterations of the event loop."""
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
                work.on_idle()
        self._scheduled = bool(queue)
        if queue:
            asyncio.get_running_loop().call_soon(self._turn)

    def _step(self, work: Work, budget: int) -> int:
        try:
            return work.step(budget)
        except Exception as error:  # the error must not affect other watches
            if not work.fail(error):
                log.exception("a group of watches could not be served and is ended")
            return 1
