"""Bulkhead and circuit breaker: a limit on concurrent calls, a pause after slow failures.

Each owner has its own circuit breaker. An owner is an admission webhook, a definition with a conversion webhook, or the
audit log.
"""

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable

from apiext.webhooks import limits
from apiext.webhooks.errors import CallError, CircuitOpen, Refused, TimedOut

# Seconds between the calls that an open circuit lets through.
WEBHOOK_PROBE_EVERY = 0.5

Clock = Callable[[], float]


class Cut(float):
    """A timeout that the request's deadline has shortened.

    If it expires, the webhook has not failed.
    """

    __slots__ = ()


class Breaker:
    """Bulkhead and circuit of one owner.

    Only slow failures open the circuit, since requests wait for them. Fast failures, such as a refused connection, do
    not.
    """

    __slots__ = ("_clock", "_failures", "_last", "_probe_at", "_under_way", "_waiting")

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._under_way = 0
        self._waiting: deque[asyncio.Future[None]] = deque()  # calls that wait for a slot
        self._failures = 0
        self._last = ""
        self._probe_at = 0.0

    @property
    def is_open(self) -> bool:
        """True if calls fail immediately, except for one trial call in WEBHOOK_PROBE_EVERY seconds."""
        return self._failures >= limits.WEBHOOK_FAILURES

    async def run(self, call: Callable[[], Awaitable[bytes]], deadline: float, *, cut: bool = False) -> bytes:
        """Run a call when a slot is free; raise the error of the call.

        Raise CircuitOpen if the circuit is open and no trial call is due, and TimeoutError if no slot is free in time.

        ``deadline`` is a time of the running loop. ``cut`` is true if the webhook's own timeout is longer; then a call
        that ends at the deadline does not count as a failure.
        """
        if self.is_open:
            self._probe()
        if self._under_way < limits.WEBHOOK_PARALLEL:
            self._under_way += 1
        else:
            await self._wait(deadline)
        began = self._clock()
        try:
            answer = await call()
        except Refused:
            self._failures = 0  # the webhook responded, if only with an error status
            raise
        except CallError as error:
            if not (cut and isinstance(error, TimedOut)):
                self._count(error, self._clock() - began)
            raise
        finally:
            self._leave()
        self._failures = 0
        return answer

    async def _wait(self, deadline: float) -> None:
        """Wait for a slot; raise TimeoutError at the deadline."""
        loop = asyncio.get_running_loop()
        place = loop.create_future()
        self._waiting.append(place)
        try:
            async with asyncio.timeout_at(deadline):
                await place
            if loop.time() >= deadline:
                raise TimeoutError
        except BaseException:
            if place.done() and not place.cancelled():  # this call got a slot too late: release the slot
                self._leave()
            elif place in self._waiting:
                self._waiting.remove(place)
            raise

    def _leave(self) -> None:
        """Give the slot to the call that has waited longest, or free the slot."""
        while self._waiting:
            place = self._waiting.popleft()
            if not place.done():
                place.set_result(None)
                return
        self._under_way -= 1

    def _probe(self) -> None:
        now = self._clock()
        if now < self._probe_at:
            raise CircuitOpen(f"{self._last} (not called again yet after {self._failures} failures in a row)")
        self._probe_at = now + WEBHOOK_PROBE_EVERY

    def _count(self, error: CallError, took: float) -> None:
        if took < limits.WEBHOOK_SLOW_FAILURE:
            return
        self._failures += 1
        self._last = str(error)
        if self._failures == limits.WEBHOOK_FAILURES:
            self._probe_at = self._clock() + WEBHOOK_PROBE_EVERY


class Breakers:
    """The breakers of all owners.

    Above limits.WEBHOOK_OWNERS, the least recently used breaker is evicted.
    """

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: OrderedDict[str, Breaker] = OrderedDict()

    def of(self, owner: str) -> Breaker:
        """Return the breaker of an owner, created at the first call."""
        found = self._known.get(owner)
        if found is None:
            found = self._known[owner] = Breaker()
            if len(self._known) > limits.WEBHOOK_OWNERS:
                self._known.popitem(last=False)
        else:
            self._known.move_to_end(owner)
        return found
