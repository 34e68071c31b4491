"""A watch that resumes on new connections.

The watch delivers each change since a given revision exactly once, in order.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from msgspec import Struct

from apiext.etcd import limits, messages
from apiext.etcd.calls import is_isolated, is_proxy_error
from apiext.etcd.channel import Channel, jittered
from apiext.etcd.errors import (
    DEADLINE_EXCEEDED,
    PERMISSION_DENIED,
    UNAUTHENTICATED,
    UNAVAILABLE,
    AuthError,
    Compacted,
    EtcdError,
    FarBehind,
    is_stale_token_text,
    stale_token,
)
from apiext.etcd.scope import RateLimitedLog
from apiext.etcd.transport import Stream, Transport
from apiext.etcd.values import DELETE, Batch, KeyValue, WatchEvent, key_value

_read_answer = messages.WatchResponse.FromString  # bound once, since a lookup takes half as long as the call


class WatchSpec(Struct, frozen=True):
    """A watched range and its callbacks.

    ``on_batch`` gets all changes of one or more revisions, or progress without changes. ``on_end`` gets the reason for
    which the watch has ended. ``on_end`` is called at most once, and never after ``cancel``. After Compacted (or its
    subclass FarBehind) and after StoreReplaced, the caller must list the range again. AuthError means that the user may
    not watch the range. Closed means that the client was closed. Both callbacks run on the event loop and must not
    raise exceptions.
    """

    start: bytes
    end: bytes
    from_revision: int
    prev_kv: bool
    on_batch: Callable[[Batch], None]
    on_end: Callable[[EtcdError], None]


class WatchHandle(Protocol):
    """The interface of a watch for its user."""

    watermark: int
    """The revision up to which all changes were delivered; 0 before etcd has created a watch without start revision."""
    connected: bool
    """True while the watch exists on an etcd server."""

    def cancel(self) -> None:
        """End the watch. After this call, no callback is called."""

    def request_progress(self) -> bool:
        """Request progress from etcd.

        Return False if the responses are unreliable, or if there is no connection.
        """

    def skip_to(self, revision: int, key: bytes, value: bytes | None) -> None:
        """Deliver no changes up to ``revision``. The user of the watch has these changes already.

        The last change is the user's own write of ``key`` and ``value`` (None: a deletion).
        """


class Owner(Protocol):
    """The part of the client that watches use."""

    progress_requests_ok: bool
    closed_watches: RateLimitedLog
    """Log of watches that do not stay open."""

    async def head_revision(self) -> int:
        """Return the head revision at the time of this call or later."""

    async def login_again(self, transport: Transport, began_at: float) -> None:
        """Get a new auth token, unless a caller got one after ``began_at``.

        ``began_at`` is the event loop time at which the failed attempt began.
        """

    def observe(self, revision: int) -> None:
        """Record that the store has reached a revision."""

    async def get(self, key: bytes, *, revision: int) -> KeyValue | None:
        """Return the state of a key at a revision, None if the key does not exist."""

    def contradicted(self, what: str) -> None:
        """End all watches, since the store lacks changes that watches have delivered.

        ``what`` describes the missing change, for the log and for ``on_end``.
        """

    def discard(self, watch: "Watch") -> None:
        """Drop a watch that has ended."""


class Watch:
    """A watch, which uses one stream at a time. It implements the protocol WatchHandle."""

    def __init__(self, spec: WatchSpec, channel: Channel, owner: Owner) -> None:
        self.spec = spec
        self.watermark = max(spec.from_revision - 1, 0)
        self.connected = False
        self.ended = False
        self.task: asyncio.Task[None] | None = None
        self._channel = channel
        self._owner = owner
        self._stream: Stream | None = None
        self._stream_end: asyncio.Future[EtcdError] | None = None  # its result is the reason for which the stream ended
        self._created: asyncio.Future[None] | None = None
        self._denied = False  # True if etcd denied the last attempt, perhaps because of an old token
        self._held: list[WatchEvent] = []  # events of a revision whose last fragment was not received yet
        # (revision, key, value) of the last delivered change
        self._last: tuple[int, bytes, bytes | None] | None = None

    def cancel(self) -> None:
        """End the watch without a call of ``on_end``."""
        if not self.ended:
            self._stop()

    def end(self, error: EtcdError) -> None:
        """End the watch, and call ``on_end`` with the reason."""
        if not self.ended:
            self._stop()
            self.spec.on_end(error)

    def request_progress(self) -> bool:
        """Request progress from etcd; see WatchHandle.

        Some versions of etcd send progress before earlier events.
        """
        if not (self.connected and self._stream is not None and self._owner.progress_requests_ok):
            return False
        request = messages.WatchRequest()
        request.progress_request.SetInParent()
        self._stream.send(request.SerializeToString())
        return True

    def skip_to(self, revision: int, key: bytes, value: bytes | None) -> None:
        """Deliver no changes up to a revision; see WatchHandle."""
        if revision > self.watermark:
            self.watermark = revision
            self._last = (revision, key, value)
            if self._held:
                self._held = [event for event in self._held if event.kv.mod_revision > revision]

    def _stop(self) -> None:
        self.ended = True
        self.connected = False
        self._owner.discard(self)
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.cancel()
        if self.task is not None and self.task is not asyncio.current_task():
            self.task.cancel()

    # -- the stream ----------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Open the watch, and open it again whenever its stream ends."""
        loop = asyncio.get_running_loop()
        pause = limits.FIRST_PAUSE
        resuming = False
        while True:
            try:
                transport = await self._channel.connection(float("inf"))
            except EtcdError:  # the credentials are wrong, which the channel logs; an administrator may correct them
                await asyncio.sleep(jittered(limits.LAST_PAUSE))
                continue
            began, self._created = loop.time(), None
            try:
                if resuming and not await self._may_resume():
                    return
                error = await self._use_stream(transport)
            except EtcdError as fault:
                error = fault
            if self.ended:
                return
            resuming = True
            if loop.time() - began > limits.SHORT_LIFE:
                pause = limits.FIRST_PAUSE
            if pause >= limits.LAST_PAUSE:
                where = self.spec.start.decode(errors="replace")
                self._owner.closed_watches.warning("a watch of %s in etcd does not stay open: %s", where, error.message)
            await self._recover(transport, error, began)
            await asyncio.sleep(jittered(pause))
            pause = min(pause * 2, limits.LAST_PAUSE)

    async def _may_resume(self) -> bool:
        """Report whether the watch can resume, or end the watch.

        End the watch if the store was replaced, or if the watch is more than RELIST_GAP revisions behind.
        """
        head = await self._owner.head_revision()
        if not self.ended and self.watermark and head - self.watermark > limits.RELIST_GAP:
            self.end(FarBehind(f"the watch is {head - self.watermark} revisions behind"))
        elif not self.ended and self._last is not None:
            await self._check_last_change(*self._last)
        return not self.ended

    async def _check_last_change(self, revision: int, key: bytes, value: bytes | None) -> None:
        """Check that the store still has the last delivered change, and end all watches if not.

        After a restore of an older state, other clients may have written again. The head revision then looks normal.
        """
        try:
            found = await self._owner.get(key, revision=self.watermark)
        except Compacted:  # etcd will end the watch with this error
            return
        if (found and (found.mod_revision, found.value)) != (None if value is None else (revision, value)):
            self._owner.contradicted(f"the change of {key.decode(errors='replace')} at revision {revision} is missing")

    async def _use_stream(self, transport: Transport) -> EtcdError:
        loop = asyncio.get_running_loop()
        over = self._stream_end = loop.create_future()
        created = self._created = loop.create_future()
        self._held = []
        self._stream = transport.stream(messages.WATCH, self._on_message, self._on_stream_end)
        try:
            self._stream.send(self._request())
            await asyncio.wait((over, created), timeout=limits.TRY, return_when=asyncio.FIRST_COMPLETED)
            if not over.done() and not created.done():
                return EtcdError(DEADLINE_EXCEEDED, "the watch was not opened in time")
            error: EtcdError = await over
            return error
        finally:
            self.connected = False
            stream, self._stream = self._stream, None
            if stream is not None:
                stream.cancel()

    async def _recover(self, transport: Transport, error: EtcdError, began: float) -> None:
        if stale_token(error) or error.code == UNAUTHENTICATED:
            try:
                await self._owner.login_again(transport, began)
            except EtcdError as refused:
                self._channel.retire(transport, refused.message)
        elif error.code == DEADLINE_EXCEEDED or self._may_work_elsewhere(transport, error, began):
            self._channel.retire(transport, error.message)

    def _may_work_elsewhere(self, transport: Transport, error: EtcdError, began: float) -> bool:
        """Report whether the watch may succeed on another endpoint."""
        refused = self._created is not None and not self._created.done()
        is_proxy_failure = refused and is_proxy_error(error) and transport.last_response_at <= began
        return len(self._channel.endpoints) > 1 and (is_proxy_failure or is_isolated(error))

    def _request(self) -> bytes:
        request = messages.WatchRequest()
        create = request.create_request
        create.key = self.spec.start
        create.range_end = self.spec.end
        create.start_revision = self.watermark + 1 if self.watermark or self.spec.from_revision else 0
        create.prev_kv = self.spec.prev_kv
        create.progress_notify = True
        create.fragment = True
        return request.SerializeToString()  # type: ignore[no-any-return]

    def _on_stream_end(self, error: EtcdError) -> None:
        self.connected = False
        self._stream = None
        if self._stream_end is not None and not self._stream_end.done():
            self._stream_end.set_result(error)

    # -- messages ------------------------------------------------------------------------------------------------

    def _on_message(self, raw: bytes) -> None:
        answer = _read_answer(raw)
        if answer.canceled:
            self._on_canceled(answer)
        elif events := answer.events:
            self._on_events(events, answer.fragment)
        elif answer.created:
            self.connected, self._denied = True, False
            if not self.watermark and not self.spec.from_revision:
                self.watermark = answer.header.revision
            if self._created is not None and not self._created.done():
                self._created.set_result(None)
        elif not self._held and answer.header.revision > self.watermark:
            self._deliver([], answer.header.revision)

    def _on_canceled(self, answer: Any) -> None:
        reason = answer.cancel_reason or "the server cancelled the watch"
        if answer.compact_revision or "compacted" in reason:
            self.end(Compacted(oldest=answer.compact_revision))
        elif "permission denied" in reason and (self.connected or self._denied):
            self.end(AuthError(PERMISSION_DENIED, reason))
        else:
            # etcd before 3.4.20 and 3.5.5 uses this text also for an old token.
            self._denied = "permission denied" in reason
            stream, self._stream = self._stream, None
            if stream is not None:
                stream.cancel()
            old = self._denied or is_stale_token_text(reason)
            self._on_stream_end(EtcdError(UNAUTHENTICATED if old else UNAVAILABLE, reason))

    def _on_events(self, found: Any, fragment: bool) -> None:
        # Skip events up to the watermark: etcd before 3.5.8 repeats some of them, and the user of the watch already has
        # those up to the revision of ``skip_to``.
        watermark = self.watermark
        with_prev = self.spec.prev_kv
        events, self._held = self._held, []
        # The loop uses indices, since the end of an iterator over a protobuf list is a costly exception.
        for at in range(len(found)):
            event = found[at]
            kv = event.kv
            revision = kv.mod_revision
            if revision > watermark:
                prev = key_value(event.prev_kv) if with_prev and event.HasField("prev_kv") else None
                now = KeyValue(kv.key, kv.value, revision, kv.create_revision, kv.version)
                events.append(WatchEvent(event.type, now, prev))
        if fragment and events:
            # The next fragment may have more events of the last revision.
            last = events[-1].kv.mod_revision
            whole = next(at for at, event in enumerate(events) if event.kv.mod_revision == last)
            self._held = events[whole:]
            events = events[:whole]
        if events:
            self._deliver(events, events[-1].kv.mod_revision)

    def _deliver(self, events: list[WatchEvent], revision: int) -> None:
        self.spec.on_batch(Batch(events, revision, progress=not events))
        self.watermark = revision
        if events:
            last = events[-1]
            self._last = (revision, last.kv.key, None if last.kind == DELETE else last.kv.value)
        self._owner.observe(revision)
