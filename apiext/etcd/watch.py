"""A watch that survives its connections: each change once, in order, from a revision on."""

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from msgspec import Struct

from apiext.etcd import limits, messages
from apiext.etcd.calls import is_cut_off, is_hollow
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
    stale_token,
    tells_stale_token,
)
from apiext.etcd.scope import Seldom
from apiext.etcd.transport import Stream, Transport
from apiext.etcd.values import DELETE, Batch, KeyValue, WatchEvent, key_value

_read_answer = messages.WatchResponse.FromString  # the lookup of the method takes half as long as the call


class WatchSpec(Struct, frozen=True):
    """A watched range and its callbacks.

    ``on_batch`` gets the changes of whole revisions, or progress. ``on_end`` is called at most once, not after
    a cancel: Compacted (FarBehind) or StoreReplaced mean that the range must be listed again, AuthError that it
    may not be watched, Closed that the client was closed. Both run on the loop and must not raise.
    """

    start: bytes
    end: bytes
    from_revision: int
    prev_kv: bool
    on_batch: Callable[[Batch], None]
    on_end: Callable[[EtcdError], None]


class WatchHandle(Protocol):
    """The handle of a watch for its owner."""

    watermark: int
    """The revision up to which everything was delivered; 0 before the first word of a watch from now."""
    connected: bool
    """True if a server has created the watch."""

    def cancel(self) -> None:
        """End the watch; no callback is called any more."""

    def request_progress(self) -> bool:
        """Ask for progress; False when there is no server, or one whose answers cannot be trusted."""

    def knows(self, revision: int, key: bytes, value: bytes | None) -> None:
        """Deliver nothing up to a revision: the owner has it all, the last from the answer to a write of its own.

        ``value`` are the written bytes, None for a deletion.
        """


class Owner(Protocol):
    """The part of the client that a watch uses."""

    progress_requests_ok: bool
    closed_watches: Seldom
    """Tells of watches that do not stay open."""

    async def head_revision(self) -> int:
        """Return a revision not older than this call."""

    async def login_again(self, transport: Transport, failed_at: float) -> None:
        """Get a new token."""

    def saw(self, revision: int) -> None:
        """Remember that the store has reached a revision."""

    async def get(self, key: bytes, *, revision: int) -> KeyValue | None:
        """Return one key as it was at a revision."""

    def contradicted(self, what: str) -> None:
        """End all watches: the store does not have the past that they told of."""

    def forget(self, watch: "Watch") -> None:
        """Drop a watch that has ended."""


class Watch:
    """One watch on one stream at a time (a WatchHandle)."""

    def __init__(self, spec: WatchSpec, channel: Channel, owner: Owner) -> None:
        self.spec = spec
        self.watermark = max(spec.from_revision - 1, 0)
        self.connected = False
        self.ended = False
        self.task: asyncio.Task[None] | None = None
        self._channel = channel
        self._owner = owner
        self._stream: Stream | None = None
        self._over: asyncio.Future[EtcdError] | None = None  # the end of the stream
        self._created: asyncio.Future[None] | None = None
        self._denied = False  # whether the last try to open it was refused, perhaps for an old token
        self._held: list[WatchEvent] = []  # of a revision whose last fragment has not come
        self._last: tuple[int, bytes, bytes | None] | None = None  # revision, key and value of the last change told

    def cancel(self) -> None:
        """End the watch without a word."""
        if not self.ended:
            self._stop()

    def end(self, error: EtcdError) -> None:
        """End the watch and say why."""
        if not self.ended:
            self._stop()
            self.spec.on_end(error)

    def request_progress(self) -> bool:
        """Ask for progress, where the answer can be trusted."""
        if not (self.connected and self._stream is not None and self._owner.progress_requests_ok):
            return False
        request = messages.WatchRequest()
        request.progress_request.SetInParent()
        self._stream.send(request.SerializeToString())
        return True

    def knows(self, revision: int, key: bytes, value: bytes | None) -> None:
        """Deliver nothing up to a revision."""
        if revision > self.watermark:
            self.watermark = revision
            self._last = (revision, key, value)
            if self._held:
                self._held = [event for event in self._held if event.kv.mod_revision > revision]

    def _stop(self) -> None:
        self.ended = True
        self.connected = False
        self._owner.forget(self)
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.cancel()
        if self.task is not None and self.task is not asyncio.current_task():
            self.task.cancel()

    # -- keeping a stream ----------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Open the watch, and again whenever its stream ends."""
        loop = asyncio.get_running_loop()
        pause = limits.FIRST_PAUSE
        resuming = False
        while True:
            try:
                transport = await self._channel.connection(float("inf"))
            except EtcdError:  # our password is wrong, and may be put right: the channel has said so
                await asyncio.sleep(jittered(limits.LAST_PAUSE))
                continue
            began, self._created = loop.time(), None
            try:
                if resuming and not await self._may_resume():
                    return
                error = await self._stay(transport)
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
        """Look whether the store is the same and near enough; the client ends the watch when it is not the same."""
        head = await self._owner.head_revision()
        if not self.ended and self.watermark and head - self.watermark > limits.RELIST_GAP:
            self.end(FarBehind(f"the watch is {head - self.watermark} revisions behind"))
        elif not self.ended and self._last is not None:
            await self._look_back(*self._last)
        return not self.ended

    async def _look_back(self, revision: int, key: bytes, value: bytes | None) -> None:
        """Check that the last delivered change is still there: other clients may write to a store that was restored."""
        known = self.watermark
        try:
            found = await self._owner.get(key, revision=known)
        except Compacted:  # the server ends the watch itself
            return
        if (found and (found.mod_revision, found.value)) != (None if value is None else (revision, value)):
            self._owner.contradicted(f"the change of {key.decode(errors='replace')} at revision {revision} is gone")

    async def _stay(self, transport: Transport) -> EtcdError:
        loop = asyncio.get_running_loop()
        over = self._over = loop.create_future()
        created = self._created = loop.create_future()
        self._held = []
        self._stream = transport.stream(messages.WATCH, self._on_message, self._on_over)
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
        elif error.code == DEADLINE_EXCEEDED or self._is_elsewhere(transport, error, began):
            self._channel.retire(transport, error.message)

    def _is_elsewhere(self, transport: Transport, error: EtcdError, began: float) -> bool:
        """Report whether another endpoint may work."""
        refused = self._created is not None and not self._created.done()
        hollow = refused and is_hollow(error) and transport.answered <= began
        return len(self._channel.endpoints) > 1 and (hollow or is_cut_off(error))

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

    def _on_over(self, error: EtcdError) -> None:
        self.connected = False
        self._stream = None
        if self._over is not None and not self._over.done():
            self._over.set_result(error)

    # -- reading it ----------------------------------------------------------------------------------------------

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
            self._denied = "permission denied" in reason  # before 3.4.20 and 3.5.5 an old token has this text, too
            stream, self._stream = self._stream, None
            if stream is not None:
                stream.cancel()
            old = self._denied or tells_stale_token(reason)
            self._on_over(EtcdError(UNAUTHENTICATED if old else UNAVAILABLE, reason))

    def _on_events(self, found: Any, fragment: bool) -> None:
        watermark = self.watermark  # servers before 3.5.8 repeat events, and the owner may know some already
        with_prev = self.spec.prev_kv
        events, self._held = self._held, []
        for at in range(len(found)):  # it is no iterator: its end would be an exception with a text
            event = found[at]
            kv = event.kv
            revision = kv.mod_revision
            if revision > watermark:
                prev = key_value(event.prev_kv) if with_prev and event.HasField("prev_kv") else None
                now = KeyValue(kv.key, kv.value, revision, kv.create_revision, kv.version)
                events.append(WatchEvent(event.type, now, prev))
        if fragment and events:
            # the last revision may go on in the next fragment
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
        self._owner.saw(revision)
