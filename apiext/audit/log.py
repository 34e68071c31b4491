"""The audit backend that writes events to a file or standard output.

Requests may wait for the write.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from apiext.audit import batches as batches_module
from apiext.audit import flags, limits, truncation
from apiext.audit.batches import PLUGIN as BUFFERED
from apiext.audit.batches import Batches
from apiext.audit.counters import Counters
from apiext.audit.events import Event
from apiext.audit.policy import RECEIVED
from apiext.audit.threads import Worker
from apiext.config import AuditDelivery

PLUGIN = "log"

Waiting = tuple[Event, asyncio.Future[bool] | None]  # an event, and the future of the waiting request or None
Written = tuple[list[bool], BaseException | None]  # a success flag for each event, and the error or None


class Destination(Protocol):
    """A destination of lines."""

    def write(self, lines: Sequence[bytes]) -> None:
        """Write lines, each of which ends with a newline; raises OSError."""

    def close(self) -> None:
        """Close the destination."""


class Log:
    """Writes events as lines to a file or standard output.

    In mode ``blocking``, a response waits until the events of its request are written. In mode ``blocking-strict``, the
    server also rejects a request whose first event could not be written. In mode ``batch``, no request waits.
    """

    def __init__(self, destination: Destination, form: str, delivery: AuditDelivery, counters: Counters) -> None:
        self.strict = delivery.mode == flags.STRICT
        self._destination = destination
        self._delivery = delivery
        self._counters = counters
        self._render: Callable[[Event], bytes] = Event.legacy if form == flags.LEGACY else Event.line
        self._worker = Worker("audit log")
        self._queue: deque[Waiting] = deque()
        self._held = 0
        self._in_flight = 0
        self._later: asyncio.TimerHandle | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._blocked = False
        self._writing: asyncio.Future[Written] | None = None
        batch = delivery.mode == flags.BATCH
        self._batches = Batches(delivery, self._written, counters) if batch else None

    def start(self, group: asyncio.TaskGroup) -> None:
        """In batch mode, start the task that sends batches; other modes need no task."""
        if self._batches is not None:
            self._batches.start(group)

    def put(self, event: Event) -> asyncio.Future[bool] | None:
        """Accept an event.

        If the request must wait, return a future: True if the event is written, else False.
        """
        if self._batches is not None:
            self._batches.put(event)
            return None
        # In mode ``blocking``, a request does not wait for its first event: events are written in order, so a request
        # that waits for its last event also waits for its first event.
        return self._add(event, wait=self.strict or event.stage != RECEIVED)

    async def stop(self) -> None:
        """Write the remaining events within AUDIT_FLUSH seconds; count lost events."""
        if self._batches is not None:
            await self._batches.stop()
        try:
            async with asyncio.timeout(limits.AUDIT_FLUSH):
                self._due()
                while self._writing is not None:
                    await asyncio.wait([self._writing])
                    await asyncio.sleep(0)  # run the callback of the write, which starts the next write
        except TimeoutError:
            self._counters.lost(PLUGIN, self._in_flight + len(self._queue), "the audit log did not write them in time")
            self._queue.clear()
        else:
            self._destination.close()
        self._worker.stop()

    async def _written(self, events: Sequence[Event]) -> None:
        last = None
        for event in events:
            last = self._add(event, wait=event is events[-1])
        if last is not None:
            await last

    def _add(self, event: Event, *, wait: bool) -> asyncio.Future[bool] | None:
        done = asyncio.get_running_loop().create_future() if wait else None
        if self._held + event.size > limits.AUDIT_HELD_BYTES and self._held:
            self._counters.lost(BUFFERED, 1, "the audit log is too slow")
            if done is not None:
                done.set_result(False)
            return done
        if self._blocked and done is not None:
            done.set_result(False)
        self._queue.append((event, done))
        self._held += event.size
        if self._writing is None and done is not None:
            self._next()
        # collect events for which no request waits: a switch of threads costs as much as a write
        elif self._later is None and done is None:
            self._later = asyncio.get_running_loop().call_later(batches_module.AUDIT_LINGER, self._due)
        return done

    def _due(self) -> None:
        self._later = None
        if self._writing is None and self._queue:
            self._next()

    def _next(self) -> None:
        batch: list[Waiting] = []
        size = 0
        while self._queue and len(batch) < limits.AUDIT_WRITE_EVENTS and size < limits.AUDIT_WRITE_BYTES:
            batch.append(self._queue.popleft())
            size += batch[-1][0].size
        events = [event for event, _ in batch]
        self._writing = self._worker.run(lambda: self._write(events))
        self._in_flight = len(batch)
        self._deadline = asyncio.get_running_loop().call_later(limits.AUDIT_WAIT, self._release, batch)
        self._writing.add_done_callback(lambda written: self._done(written, batch, size))

    def _release(self, batch: Sequence[Waiting]) -> None:
        """Let requests continue that wait for a blocked destination.

        The thread may still write their events.
        """
        self._blocked = True
        waiting = [done for _, done in (*batch, *self._queue) if done is not None and not done.done()]
        self._counters.lost(PLUGIN, len(waiting), f"nothing was written for {limits.AUDIT_WAIT:g} seconds")
        for done in waiting:
            done.set_result(False)

    def _done(self, written: asyncio.Future[Written], batch: Sequence[Waiting], size: int) -> None:
        self._writing = None
        self._blocked = False
        if self._deadline is not None:
            self._deadline.cancel()
        self._held -= size
        error = written.exception()  # an error is a bug, but the requests must not wait forever
        successes, fault = written.result() if error is None else ([False] * len(batch), error)
        lost = successes.count(False)
        if lost and fault is not None:
            self._counters.lost(PLUGIN, lost, fault)
        elif lost:
            self._counters.lost(truncation.PLUGIN, lost, truncation.TOO_LARGE)
        for (_, done), success in zip(batch, successes, strict=True):
            if done is not None and not done.done():
                done.set_result(success)
        if self._queue:
            self._next()

    def _write(self, events: Sequence[Event]) -> Written:
        """Write events, in the thread; return a success flag for each event, and the error or None."""
        lines: list[bytes] = []
        successes: list[bool] = []
        for event in events:
            line = truncation.fitting(event, self._delivery, self._render)
            successes.append(line is not None)
            if line is not None:
                lines.append(line + b"\n")
        try:
            self._destination.write(lines)
        except OSError as error:
            return [False] * len(events), error
        return successes, None
