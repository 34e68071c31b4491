"""Send audit events in batches, when a batch is full or after some time, at a limited rate."""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Sequence

from apiext.audit import limits
from apiext.audit.counters import Counters
from apiext.audit.events import Event
from apiext.config import AuditDelivery

# Seconds that an event for the log file waits for further events, so that one write has several events. An event does
# not wait if a request waits until the event is written.
AUDIT_LINGER = 0.005

log = logging.getLogger(__name__)

PLUGIN = "buffered"
Deliver = Callable[[Sequence[Event]], Awaitable[object]]


class Batches:
    """A buffer of events, and the task that sends them.

    The task sends at most ``parallel`` batches concurrently.
    """

    __slots__ = (
        "_closing",
        "_counters",
        "_deliver",
        "_delivery",
        "_gathers",
        "_group",
        "_held",
        "_in_flight",
        "_parallel",
        "_queue",
        "_slots",
        "_task",
        "_throttle",
        "_unsent",
        "_wake",
    )

    def __init__(self, delivery: AuditDelivery, deliver: Deliver, counters: Counters, parallel: int = 1) -> None:
        self._delivery = delivery
        self._deliver = deliver
        self._counters = counters
        self._parallel = parallel
        # with batch-max-size 1, the default of the log file, a batch has all waiting events, up to AUDIT_WRITE_EVENTS
        self._gathers = parallel == 1 and delivery.max_batch == 1
        self._queue: deque[Event] = deque()
        self._held = 0
        self._wake = asyncio.Event()
        self._slots = asyncio.Semaphore(parallel)
        self._in_flight: set[asyncio.Task[None]] = set()
        self._unsent = 0  # events removed from the buffer and not yet sent; the log file counts its events itself
        self._throttle = Throttle(delivery.throttle_qps, delivery.throttle_burst) if delivery.throttled else None
        self._closing = False
        self._task: asyncio.Task[None] | None = None
        self._group: asyncio.TaskGroup | None = None

    def start(self, group: asyncio.TaskGroup) -> None:
        """Start the task that sends the events."""
        self._group = group
        self._task = group.create_task(self._run())

    def put(self, event: Event) -> None:
        """Add an event to the buffer; drop and count the event if the buffer is full."""
        if len(self._queue) >= self._delivery.buffer_size or self._held + event.size > limits.AUDIT_BUFFER_BYTES:
            self._counters.lost(PLUGIN, 1, "audit buffer queue blocked")
            return
        self._queue.append(event)
        self._held += event.size
        if len(self._queue) == 1 or len(self._queue) >= self._delivery.max_batch:
            self._wake.set()

    async def stop(self) -> None:
        """Send the remaining events within AUDIT_FLUSH seconds; count lost events."""
        self._closing = True
        self._wake.set()
        try:
            async with asyncio.timeout(limits.AUDIT_FLUSH):
                if self._task is not None:
                    await asyncio.shield(self._task)
                while self._in_flight:
                    await asyncio.wait(self._in_flight)
        except TimeoutError:
            for task in (self._task, *self._in_flight):
                if task is not None:
                    task.cancel()
        if left := len(self._queue) + self._unsent:
            self._counters.lost(PLUGIN, left, "audit backend shut down")
            self._queue.clear()

    async def _run(self) -> None:
        while not self._closing or self._queue:
            await self._filled()
            if self._gathers and not self._closing:
                await asyncio.sleep(AUDIT_LINGER)
            batch = self._next_batch()
            if not batch:
                continue
            if self._throttle is not None and not self._closing:
                await self._throttle.wait()
            if self._parallel == 1:
                self._unsent -= len(batch)
                await self._send(batch)
            else:
                await self._send_in_parallel(batch)

    async def _send_in_parallel(self, batch: Sequence[Event]) -> None:
        assert self._group is not None
        await self._slots.acquire()
        task = self._group.create_task(self._one(batch))
        self._in_flight.add(task)
        task.add_done_callback(self._in_flight.discard)

    async def _one(self, batch: Sequence[Event]) -> None:
        try:
            await self._send(batch)
            self._unsent -= len(batch)
        finally:
            self._slots.release()

    async def _send(self, batch: Sequence[Event]) -> None:
        try:
            await self._deliver(batch)
        except Exception as error:  # a bug; the audited request must not fail because of it
            log.exception("audit events could not be sent")
            self._counters.lost(PLUGIN, len(batch), repr(error))

    async def _filled(self) -> None:
        """Wait for an event, then at most --audit-…-batch-max-wait until the batch is full."""
        await self._holding(1)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._delivery.max_wait):
                await self._holding(self._delivery.max_batch)

    async def _holding(self, count: int) -> None:
        while len(self._queue) < count and not self._closing:
            self._wake.clear()
            await self._wake.wait()

    def _next_batch(self) -> list[Event]:
        most = limits.AUDIT_WRITE_EVENTS if self._gathers else self._delivery.max_batch
        found = [self._queue.popleft() for _ in range(min(most, len(self._queue)))]
        self._held -= sum(event.size for event in found)
        self._unsent += len(found)
        return found


class Throttle:
    """Token bucket: at most ``qps`` batches per second, and ``burst`` batches after a pause."""

    __slots__ = ("_burst", "_qps", "_tokens", "_when")

    def __init__(self, qps: float, burst: int) -> None:
        self._qps = qps
        self._burst = float(burst)
        self._tokens = float(burst)
        self._when = -1.0

    async def wait(self) -> None:
        """Wait until the next batch may be sent."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        self._tokens = (
            min(self._burst, self._tokens + (now - self._when) * self._qps) if self._when >= 0 else self._burst
        )
        self._when = now
        self._tokens -= 1
        if self._tokens < 0:
            await asyncio.sleep(-self._tokens / self._qps)
