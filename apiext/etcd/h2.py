"""A gRPC client over HTTP/2, as an asyncio.Protocol.

The client has only the features that calls to etcd need. The classes implement the protocols Transport and Stream of
transport.py.
"""

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from typing import cast

from apiext.etcd import frames, limits
from apiext.etcd.errors import (
    CANCELLED,
    DEADLINE_EXCEEDED,
    RESOURCE_EXHAUSTED,
    UNAVAILABLE,
    UNKNOWN,
    EtcdError,
)
from apiext.etcd.frames import FRAME_HEAD, MESSAGE_HEAD, ProtocolFault, frame, window_update
from apiext.etcd.h2call import Call, OnEnd, OnMessage, unacknowledged

WINDOW_UPDATE_AFTER = limits.RECEIVE_WINDOW >> 2  # received bytes after which the client sends a WINDOW_UPDATE
SWEEP = 0.25  # seconds between two checks of all deadlines

# Flags that select the slow path: an ordinary HEADERS frame has END_HEADERS, but neither PADDED nor PRIORITISED.
_UNUSUAL = frames.PADDED | frames.PRIORITISED | frames.END_HEADERS


class H2Stream:
    """An open bidirectional stream. It implements the protocol Stream."""

    __slots__ = ("_call", "_connection")

    def __init__(self, connection: "Connection", call: Call) -> None:
        self._connection = connection
        self._call = call

    def send(self, message: bytes) -> None:
        """Queue a message; do nothing if the stream has ended."""
        self._connection.send(self._call, message)

    def cancel(self) -> None:
        """End the stream without a call of its ``on_end``."""
        self._call.on_end = None
        self._connection.reset(self._call, EtcdError(CANCELLED, "cancelled"))


class Connection(asyncio.Protocol):
    """One HTTP/2 connection. It implements the protocol Transport."""

    def __init__(
        self, authority: str, scheme: str, loop: asyncio.AbstractEventLoop, largest: int = limits.MAX_MESSAGE
    ) -> None:
        self.loop = loop
        self._largest = largest
        self.live = True
        self.last_byte_at = self.last_response_at = loop.time()
        self.lost: asyncio.Future[None] = loop.create_future()
        self.closed: asyncio.Future[None] = loop.create_future()
        self.ready: asyncio.Future[None] = loop.create_future()
        self._authority, self._scheme, self._token = authority, scheme, ""
        self._blocks: dict[str, bytes] = {}
        self._headers = frames.HeaderReader()
        self._transport: asyncio.Transport | None = None
        self._calls: dict[int, Call] = {}
        self._queued: deque[tuple[Call, bytes]] = deque()
        self._waiting: list[Call] = []  # calls whose remaining bytes wait for more room in a flow-control window
        self._next_id = 1
        self._flushed_id = 1  # no byte of a stream with this id or a higher id was sent yet
        self._out: list[bytes] = []
        self._flushing = False
        self._rest = b""
        self._window = 65_535
        self._first_window = 65_535
        self._max_frame = 16_384
        self._max_streams = 100
        self._unacked = 0
        self._fragment = b""
        self._fragment_of = 0
        self._fragment_flags = 0
        self._pinged = 0.0
        self._pongs = b""  # PING frames with ACK, which the next sweep sends
        self._sweeper: asyncio.TimerHandle | None = None
        self._sweep_due = 0.0  # a sweep after this event loop time is late
        self._was_late = False  # True if the last sweep was late
        self._handlers: dict[int, Callable[[int, int, bytes], None]] = {
            frames.DATA: self._on_data,
            frames.HEADERS: self._on_headers,
            frames.RST_STREAM: self._on_reset,
            frames.SETTINGS: self._on_settings,
            frames.PUSH_PROMISE: self._on_push,
            frames.PING: self._on_ping,
            frames.GOAWAY: self._on_goaway,
            frames.WINDOW_UPDATE: self._on_window,
            frames.CONTINUATION: self._on_continuation,
        }

    # -- calls ---------------------------------------------------------------------------------------------------

    def unary(self, path: str, message: bytes, timeout: float) -> asyncio.Future[bytes]:
        """Send a request, and return the future of its response (see Transport)."""
        call = Call(path, self.loop.time() + timeout)
        answer = call.answer = self.loop.create_future()
        if not self.live:
            answer.set_exception(EtcdError(UNAVAILABLE, "connection closed", sent=False))
        elif len(self._calls) >= self._max_streams:
            self._queued.append((call, message))
        else:
            self._start(call, message)
        return answer

    def stream(self, path: str, on_message: OnMessage, on_end: OnEnd) -> H2Stream:
        """Open a bidirectional stream (see Transport).

        Raise EtcdError if the connection accepts no more streams.
        """
        if not self.live or len(self._calls) >= self._max_streams:
            raise EtcdError(UNAVAILABLE, "connection closed" if not self.live else "no free stream", sent=False)
        call = Call(path, 0.0)
        call.on_message, call.on_end = on_message, on_end
        call.done_out = False
        block = self._open(call)
        self._put(frame(frames.HEADERS, frames.END_HEADERS, call.stream, block))
        return H2Stream(self, call)

    def send(self, call: Call, message: bytes) -> None:
        """Queue a message on an open stream."""
        if call.stream in self._calls:
            if not call.out:
                self._waiting.append(call)
            call.out += b"\x00" + len(message).to_bytes(4, "big") + message
            self._send_waiting()

    def set_token(self, token: str) -> None:
        """Send this auth token with every later call."""
        self._token = token
        self._blocks = {}

    def _open(self, call: Call) -> bytes:
        call.stream = self._next_id
        call.window = self._first_window
        self._calls[self._next_id] = call
        self._next_id += 2
        if self._next_id > frames.MAX_STREAM_ID:
            self.drain(end_streams=False)
        block = self._blocks.get(call.path)
        if block is None:
            # with ``hasleader``, a member of etcd ends its watches when it loses its leader
            extra = {"hasleader": "true"} if call.on_message else {}
            if self._token:
                extra["token"] = self._token
            block = self._blocks[call.path] = frames.request_block(self._scheme, self._authority, call.path, extra)
        return block

    def _start(self, call: Call, message: bytes) -> None:
        block = self._open(call)
        length = len(message)
        size = length + 5
        head = FRAME_HEAD.pack(len(block) << 8 | frames.HEADERS, frames.END_HEADERS, call.stream)
        if size <= self._window and size <= call.window and size <= self._max_frame and not self._waiting:
            self._window -= size
            behind = MESSAGE_HEAD.pack(size << 8 | frames.DATA, frames.END_STREAM, call.stream, 0, length)
            self._out += (head, block, behind, message)
        else:
            self._out += (head, block)
            call.out = b"\x00" + length.to_bytes(4, "big") + message
            call.progress = ()
            self._waiting.append(call)
            self._send_waiting()
        if len(self._calls) == 1:
            self._flush()  # the only open call does not wait for frames of other calls
        elif not self._flushing:
            self._flushing = True
            self.loop.call_soon(self._flush)

    def _start_queued(self) -> None:
        while self._queued and self.live and len(self._calls) < self._max_streams:
            call, message = self._queued.popleft()
            if call.answer is not None and not call.answer.done():
                self._start(call, message)

    # -- sending -------------------------------------------------------------------------------------------------

    def _put(self, data: bytes) -> None:
        self._out.append(data)
        if not self._flushing:
            self._flushing = True
            self.loop.call_soon(self._flush)

    def _flush(self) -> None:
        # One write sends all frames of one iteration of the event loop.
        self._flushing = False
        self._flushed_id = self._next_id
        if self._out and self._transport is not None:
            out, self._out = self._out, []
            self._transport.write(b"".join(out))

    def _send_waiting(self) -> None:
        self._waiting = [call for call in self._waiting if call.stream in self._calls and not self._send_allowed(call)]

    def _send_allowed(self, call: Call) -> bool:
        out, at = call.out, 0
        while at < len(out):
            size = min(len(out) - at, self._window, call.window, self._max_frame)
            if size <= 0:
                break
            last = call.done_out and at + size == len(out)
            self._put(frame(frames.DATA, frames.END_STREAM if last else 0, call.stream, out[at : at + size]))
            at += size
            self._window -= size
            call.window -= size
        call.out = out[at:]
        return not call.out

    # -- receiving -----------------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the settings of the client: no server push, no HPACK table, large windows.

        Without an HPACK table, equal response headers are equal bytes, so that their decoding can be cached.
        """
        stream = self._transport = cast(asyncio.Transport, transport)  # uvloop's transports are not subclasses
        sock = stream.get_extra_info("socket")
        if sock is not None and sock.family in (socket.AF_INET, socket.AF_INET6):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        ours = {frames.HEADER_TABLE_SIZE: 0, frames.ENABLE_PUSH: 0, frames.INITIAL_WINDOW_SIZE: limits.RECEIVE_WINDOW}
        stream.write(frames.PREFACE + frames.settings(ours) + window_update(0, limits.RECEIVE_WINDOW - 65_535))
        self._sweep_later()

    def data_received(self, data: bytes) -> None:
        """Process received bytes; a frame may arrive in several pieces."""
        if self._rest:
            data = self._rest + data
        self.last_byte_at = self.loop.time()
        at, size, handlers, read = 0, len(data), self._handlers, FRAME_HEAD.unpack_from
        try:
            while size - at >= 9:
                word, flags, stream = read(data, at)
                length, kind = word >> 8, word & 0xFF
                if length > limits.MAX_FRAME:
                    raise ProtocolFault(frames.FRAME_SIZE_ERROR, "frame too large, or not HTTP/2")
                end = at + 9 + length
                if end > size:
                    break
                if self._fragment_of and kind != frames.CONTINUATION:
                    raise ProtocolFault(frames.PROTOCOL_ERROR, "header block interrupted")
                handler = handlers.get(kind)
                if handler is not None:
                    handler(flags, stream & frames.MAX_STREAM_ID, data[at + 9 : end])
                at = end
        except ProtocolFault as fault:
            self._fault(fault)
            return
        self._rest = data[at:] if at < size else b""

    def _on_data(self, flags: int, stream: int, payload: bytes) -> None:
        size = len(payload)
        self._unacked += size
        if self._unacked > WINDOW_UPDATE_AFTER:
            self._put(window_update(0, self._unacked))
            self._unacked = 0
        call = self._calls.get(stream)
        if call is None:
            if stream == 0:
                raise ProtocolFault(frames.PROTOCOL_ERROR, "DATA without a stream")
            return
        call.unacked += size
        if flags & frames.PADDED:
            payload = frames.unpad(payload)
        if call.on_message is None:
            call.collect(payload)
            if call.size > self._largest:
                self.reset(call, EtcdError(RESOURCE_EXHAUSTED, "the response is too large"))
        else:
            fault = call.feed(payload)
            if fault is not None:
                self.reset(call, fault)
        if call.stream not in self._calls:  # the call has ended, perhaps since on_message called ``cancel``
            return
        if flags & frames.END_STREAM:
            self._finish(call, EtcdError(UNAVAILABLE, "the stream ended without trailers"))
        elif call.unacked > WINDOW_UPDATE_AFTER:
            self._put(window_update(stream, call.unacked))
            call.unacked = 0

    def _on_headers(self, flags: int, stream: int, payload: bytes) -> None:
        if flags & _UNUSUAL != frames.END_HEADERS:
            self._on_unusual_headers(flags, stream, payload)
            return
        status, code, message = self._headers.cached.get(payload) or self._headers.read(payload)
        if status == 200 and not flags & frames.END_STREAM:
            return  # the head of a successful response: messages and trailers follow
        call = self._calls.get(stream)
        if call is None:
            return
        if status and status >= 200 and status != 200:
            self.reset(call, EtcdError(*frames.http_error(status)))
        elif flags & frames.END_STREAM:
            if code == 0:
                self._finish(call, None)
            else:
                self._finish(call, EtcdError(UNKNOWN if code < 0 else code, message or "trailers without a status"))

    def _on_unusual_headers(self, flags: int, stream: int, payload: bytes) -> None:
        payload = frames.unpad(payload) if flags & frames.PADDED else payload
        payload = payload[5:] if flags & frames.PRIORITISED else payload
        if flags & frames.END_HEADERS:
            self._on_headers(flags & ~_UNUSUAL | frames.END_HEADERS, stream, payload)
        else:
            self._fragment, self._fragment_of, self._fragment_flags = payload, stream, flags & ~_UNUSUAL

    def _on_continuation(self, flags: int, stream: int, payload: bytes) -> None:
        if not stream or stream != self._fragment_of:
            raise ProtocolFault(frames.PROTOCOL_ERROR, "CONTINUATION without HEADERS")
        self._fragment += payload
        if len(self._fragment) > limits.MAX_HEADERS:
            raise ProtocolFault(frames.PROTOCOL_ERROR, "response headers are too large")
        if flags & frames.END_HEADERS:
            self._fragment_of = 0
            self._on_headers(self._fragment_flags | frames.END_HEADERS, stream, self._fragment)
            self._fragment = b""

    def _on_window(self, _flags: int, stream: int, payload: bytes) -> None:
        amount = int.from_bytes(payload, "big") & frames.MAX_WINDOW
        if stream == 0:
            self._window += amount
        else:
            call = self._calls.get(stream)
            if call is not None:
                call.window += amount
        if self._waiting:
            self._send_waiting()

    def _on_settings(self, flags: int, _stream: int, payload: bytes) -> None:
        if flags & frames.ACK:
            return
        if len(payload) % 6:
            raise ProtocolFault(frames.FRAME_SIZE_ERROR, "SETTINGS of a wrong size")
        values = dict(frames.SETTING.iter_unpack(payload))
        if not self.ready.done():
            self._max_streams = frames.MAX_STREAM_ID  # RFC 9113, 6.5.2: if the peer sends no value, there is no limit
            self.ready.set_result(None)
        self._max_streams = values.get(frames.MAX_CONCURRENT_STREAMS, self._max_streams)
        self._max_frame = values.get(frames.MAX_FRAME_SIZE, self._max_frame)
        first = values.get(frames.INITIAL_WINDOW_SIZE, self._first_window)
        if first > frames.MAX_WINDOW or not 16_384 <= self._max_frame < 1 << 24:
            raise ProtocolFault(frames.FLOW_CONTROL_ERROR, "SETTINGS out of range")
        for call in self._calls.values():
            call.window += first - self._first_window  # the window may become negative (RFC 9113, 6.9.2)
        self._first_window = first
        self._put(frame(frames.SETTINGS, frames.ACK, 0))
        self._send_waiting()
        self._start_queued()

    def _on_ping(self, flags: int, _stream: int, payload: bytes) -> None:
        # After a message, etcd sends a PING to measure the bandwidth, and has at most one PING open. If the response
        # waits for the next sweep, both sides save a wake-up for each call.
        if not flags & frames.ACK:
            self._pongs += frame(frames.PING, frames.ACK, 0, payload)

    def _on_push(self, _flags: int, _stream: int, _payload: bytes) -> None:
        raise ProtocolFault(frames.PROTOCOL_ERROR, "push is disabled")

    def _on_reset(self, _flags: int, stream: int, payload: bytes) -> None:
        call = self._calls.get(stream)
        if call is not None:
            code = int.from_bytes(payload[:4], "big")
            self._finish(call, EtcdError(UNAVAILABLE, f"stream reset ({code})", sent=code != frames.REFUSED_STREAM))

    def _on_goaway(self, _flags: int, _stream: int, payload: bytes) -> None:
        last = int.from_bytes(payload[:4], "big") & frames.MAX_STREAM_ID
        text = f"the server closes the connection: {payload[8:80].decode('ascii', 'replace') or 'shutdown'}"
        self.live = False  # set first, so that no queued call starts when an open call ends below
        for call in [call for call in self._calls.values() if call.stream > last]:
            self._finish(call, EtcdError(UNAVAILABLE, text, sent=False))
        self.drain()

    # -- the end of calls ----------------------------------------------------------------------------------------

    def reset(self, call: Call, error: EtcdError) -> None:
        """Cancel a call with RST_STREAM. The call fails with this error."""
        if call.stream in self._calls:
            self._put(frame(frames.RST_STREAM, 0, call.stream, frames.CANCEL.to_bytes(4, "big")))
            self._finish(call, error)

    def _finish(self, call: Call, error: EtcdError | None) -> None:
        self._calls.pop(call.stream, None)
        answer = call.answer
        if answer is None:
            call.on_message = None
            if call.on_end is not None:
                call.on_end(error or EtcdError(UNAVAILABLE, "the server ended the stream"))
        elif not answer.done():
            if error is None:
                self.last_response_at = self.last_byte_at
                call.settle(answer)
            else:
                answer.set_exception(error)
        if self._queued:
            self._start_queued()
        if not self.live and not self._calls:
            self._close()

    # -- the end of the connection -------------------------------------------------------------------------------

    def drain(self, *, end_streams: bool = True) -> None:
        """Accept no new calls, and close the connection when the open calls end (see Transport)."""
        self.live = False
        if not self.lost.done():
            self.lost.set_result(None)
        while self._queued:
            answer = self._queued.popleft()[0].answer
            if answer is not None and not answer.done():
                answer.set_exception(EtcdError(UNAVAILABLE, "the connection is closing", sent=False))
        if end_streams:  # otherwise an etcd that shuts down would wait for the end of its watches
            for call in [call for call in self._calls.values() if call.answer is None]:
                self.reset(call, EtcdError(UNAVAILABLE, "the connection is closing"))
        if not self._calls:
            self._close()

    def abort(self) -> None:
        """Close the connection at once (see Transport)."""
        self.live = False
        if self._transport is not None:
            self._transport.abort()

    def _close(self) -> None:
        if self._transport is not None:
            self._flush()
            if self._transport.get_write_buffer_size():
                self._transport.abort()  # the peer does not read; no call is open, so the bytes are not needed
            else:
                self._transport.close()

    def _fault(self, fault: ProtocolFault) -> None:
        self.live = False
        if self._transport is not None:
            self._flush()
            goaway = (0).to_bytes(4, "big") + fault.code.to_bytes(4, "big")
            self._transport.write(frame(frames.GOAWAY, 0, 0, goaway))
            self._transport.close()
        self._fail_all(f"protocol error: {fault}")

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail all open and queued calls."""
        self._transport = None
        if self._sweeper is not None:
            self._sweeper.cancel()
        self._fail_all(f"connection lost: {exc or 'closed by the server'}")
        if not self.closed.done():
            self.closed.set_result(None)

    def _fail_all(self, text: str) -> None:
        self.live = False
        if not self.ready.done():
            self.ready.set_exception(EtcdError(UNAVAILABLE, text, sent=False))
        self.drain(end_streams=False)
        for call in list(self._calls.values()):
            self._finish(call, EtcdError(UNAVAILABLE, text, sent=call.stream < self._flushed_id))

    def _sweep_later(self) -> None:
        self._sweep_due = self.loop.time() + 2 * SWEEP
        self._sweeper = self.loop.call_later(SWEEP, self._sweep)

    def _sweep(self) -> None:
        # One timer checks all deadlines, since a timer for each call would cost more than the call.
        now = self.loop.time()
        is_late, self._was_late = now > self._sweep_due and not self._was_late, now > self._sweep_due
        self._sweep_later()
        if is_late:  # uvloop runs timers before it reads sockets, so received responses may still be unread
            for call in self._calls.values():
                call.extend(now + limits.GRACE)
        for call in list(self._calls.values()):
            if call.answer is not None and call.answer.done():  # the caller has cancelled the future
                self.reset(call, EtcdError(CANCELLED, "cancelled"))
            elif call.deadline and call.deadline < now:
                if call.has_progressed(unacknowledged(self._transport)):
                    call.deadline = now + limits.STALL
                else:
                    self.reset(call, EtcdError(DEADLINE_EXCEEDED, "deadline exceeded"))
        self._sweep_queue(now)
        if self._pongs:
            self._put(self._pongs)
            self._pongs = b""
        if self._calls and not is_late:
            self._keep_alive(now)

    def _sweep_queue(self, now: float) -> None:
        kept: deque[tuple[Call, bytes]] = deque()
        for call, message in self._queued:
            if call.answer is None or call.answer.done():
                continue
            if call.deadline < now:
                call.answer.set_exception(EtcdError(DEADLINE_EXCEEDED, "deadline exceeded in the queue", sent=False))
            else:
                kept.append((call, message))
        self._queued = kept

    def _keep_alive(self, now: float) -> None:
        if self.last_byte_at < self._pinged < now - limits.PING_WAIT:
            self.abort()
        elif now - max(self.last_byte_at, self._pinged) > limits.PING_EVERY:
            self._pinged = now
            self._put(frame(frames.PING, 0, 0, bytes(8)))
