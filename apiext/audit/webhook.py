"""The audit backend that POSTs lists of events to a webhook, with retries.

The lists are of the type audit.k8s.io/v1 EventList.
"""

import asyncio
import logging
import random
from collections.abc import Iterator, Sequence

from apiext.audit import flags, limits, truncation
from apiext.audit.batches import Batches
from apiext.audit.counters import Counters
from apiext.audit.events import Event
from apiext.config import AuditConfig
from apiext.webhooks.client import Client
from apiext.webhooks.errors import CallError
from apiext.webhooks.remote import Remote

# Factor by which the pause between retries grows each time (as upstream).
AUDIT_BACKOFF = 1.5
# Largest random addition to a pause between retries, as a fraction of the pause (as upstream).
AUDIT_BACKOFF_JITTER = 0.2

log = logging.getLogger(__name__)

PLUGIN = "webhook"
_HEAD = b'{"kind":"EventList","apiVersion":"audit.k8s.io/v1","metadata":{},"items":['


class Webhook:
    """A backend that sends lists of events to a webhook; in batch mode no request waits."""

    def __init__(self, remote: Remote, client: Client, config: AuditConfig, counters: Counters) -> None:
        self.strict = config.webhook.mode == flags.STRICT
        self._remote = remote
        self._client = client
        self._delivery = config.webhook
        self._backoff = config.initial_backoff
        self._counters = counters
        self._group: asyncio.TaskGroup | None = None
        self._stopping = asyncio.Event()
        self._direct: set[asyncio.Task[bool]] = set()
        batch = config.webhook.mode == flags.BATCH
        self._batches = Batches(config.webhook, self._deliver, counters, limits.AUDIT_POSTS) if batch else None

    def start(self, group: asyncio.TaskGroup) -> None:
        """Start sending, in tasks of this group."""
        self._group = group
        if self._batches is not None:
            self._batches.start(group)

    def put(self, event: Event) -> asyncio.Future[bool] | None:
        """Accept an event.

        If the request must wait, return a future: True if the event is delivered, else False.
        """
        if self._batches is not None:
            self._batches.put(event)
            return None
        assert self._group is not None
        task = self._group.create_task(self._deliver((event,)))
        self._direct.add(task)
        task.add_done_callback(self._direct.discard)
        return asyncio.shield(task)  # a cancelled request does not cancel the delivery of its events

    async def stop(self) -> None:
        """Send the remaining events, without retries; cancel calls after limits.AUDIT_FLUSH seconds."""
        self._stopping.set()
        if self._batches is not None:
            await self._batches.stop()
        if self._direct:
            await asyncio.wait(self._direct, timeout=limits.AUDIT_FLUSH)
        for task in self._direct:
            task.cancel()

    async def _deliver(self, events: Sequence[Event]) -> bool:
        """Send events with retries; if some are lost, count them and return False."""
        try:
            return await self._send(events)
        except Exception as error:  # a bug; it must not end the server
            log.exception("audit events could not be sent")
            self._counters.lost(PLUGIN, len(events), repr(error))
            return False

    async def _send(self, events: Sequence[Event]) -> bool:
        bodies, lost = await asyncio.to_thread(self._bodies, events)
        if lost:
            self._counters.lost(truncation.PLUGIN, lost, truncation.TOO_LARGE)
        success = not lost
        for body, count in bodies:
            fault = await self._post(body)
            if fault is not None:
                self._counters.lost(PLUGIN, count, fault)
                success = False
        return success

    async def _post(self, body: bytes) -> CallError | None:
        """POST one body, with retries; return the last error, None on success."""
        pause, fault = self._backoff, None
        for remaining in reversed(range(limits.AUDIT_TRIES)):
            try:
                await self._client.post(
                    self._remote.target,
                    body,
                    limits.AUDIT_POST_TIMEOUT,
                    owner="audit",
                    user=self._remote.user,
                    empty=True,
                )
                return None
            except CallError as error:
                fault = error
            if not remaining or self._stopping.is_set():
                break
            await self._wait(pause * (1 + random.random() * AUDIT_BACKOFF_JITTER))
            pause *= AUDIT_BACKOFF
        return fault

    async def _wait(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            pass

    def _bodies(self, events: Sequence[Event]) -> tuple[list[tuple[bytes, int]], int]:
        """Return (body, number of events) of each call, and the number of events that are too large."""
        lines = [line for event in events if (line := truncation.fitting(event, self._delivery, Event.item))]
        max_bytes = self._delivery.max_batch_bytes if self._delivery.truncated else 0
        return [(_HEAD + b",".join(part) + b"]}", len(part)) for part in _parts(lines, max_bytes)], len(events) - len(
            lines
        )


def _parts(lines: Sequence[bytes], max_bytes: int) -> Iterator[list[bytes]]:
    """Split lines into lists of at most ``max_bytes`` bytes (0: no limit).

    A longer line is a list of its own.
    """
    found: list[bytes] = []
    size = 0
    for line in lines:
        if max_bytes and found and size + len(line) > max_bytes:
            yield found
            found, size = [], 0
        found.append(line)
        size += len(line)
    if found:
        yield found
