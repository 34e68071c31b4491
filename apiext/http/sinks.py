"""Sinks: each sends the frames of one watch to its client (RV-010, RV-014)."""

import asyncio
from typing import Protocol

from isal import isal_zlib

GZIP_HEAD = b"Content-Encoding: gzip\r\nVary: Accept-Encoding\r\n"
LAST_CHUNK = b"0\r\n\r\n"
# The placeholder for column definitions in each Table of a watch. Watchers share the frames, but only the first event
# of each watcher has column definitions: its sink replaces the placeholder there.
NO_COLUMNS = b'"columnDefinitions":null'
# seconds between the last bookmark of a watch and its end (upstream: a watch about to end gets a bookmark, RV-012)
_BOOKMARK_BEFORE_END = 2.0


def chunk(data: bytes) -> bytes:
    """Return bytes with the framing of one HTTP chunk."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def with_columns(data: bytes, columns: bytes) -> bytes:
    """Return framed events with the column definitions in the first event.

    If the first event has no placeholder for them, return ``data``.
    """
    line, _, rest = data.partition(b"\r\n")
    length = int(line, 16)
    first, others = rest[:length], rest[length + 2 :]
    if NO_COLUMNS not in first:
        return data
    return chunk(first.replace(NO_COLUMNS, columns, 1)) + others


def unchunked(data: bytes) -> bytes:
    """Return framed events without their framing."""
    found, at = [], 0
    while at < len(data):
        start = data.index(b"\r\n", at) + 2
        end = start + int(data[at : start - 2], 16)
        found.append(data[start:end])
        at = end + 2
    return b"".join(found)


class Transport(Protocol):
    """The transport of the connection, as far as a sink uses it."""

    def write(self, data: bytes) -> None:
        """Send bytes; bytes that the kernel does not accept are buffered."""


class Watching(Protocol):
    """The watcher that writes to a sink."""

    def resume(self) -> None:
        """Send the events that arrived while the sink was paused."""

    def bookmark_now(self) -> None:
        """Send a bookmark with the revision of the events sent so far."""

    def close(self) -> None:
        """Unregister the sink."""


class WatchSink:
    """Sends the frames of one watch to its client.

    ``paused`` is true while the transport's buffer is over its high-water mark. ``closed`` is true once the client has
    disconnected or the stream has ended. ``clean`` is true if the connection can be reused afterwards. The head is sent
    with the first bytes. No method raises an exception for a lost connection.
    """

    __slots__ = ("_columns", "_head", "_timer", "_transport", "clean", "closed", "done", "paused", "watcher")

    def __init__(self, transport: Transport, head: bytes, columns: bytes, done: asyncio.Future[None]) -> None:
        self._transport = transport
        self._head = head
        self._columns = columns
        self._timer: asyncio.TimerHandle | None = None
        self.paused = False
        self.closed = False
        self.clean = False
        self.watcher: Watching | None = None
        self.done = done

    @property
    def started(self) -> bool:
        """Report whether the head was sent."""
        return not self._head

    def follow(self, watcher: Watching) -> None:
        """Set the watcher that writes to this sink.

        Close the watcher if the client has disconnected meanwhile.
        """
        if self.closed:
            watcher.close()
        else:
            self.watcher = watcher

    def write(self, data: bytes) -> None:
        """Send framed events."""
        if self.closed:
            return
        if self._columns and data:
            data = self._with_columns(data)
        if self._head:
            data = self._head + data
            self._head = b""
        try:
            self._transport.write(data)
        except (ConnectionError, RuntimeError):  # uvloop raises RuntimeError on a closed transport
            self.lost()

    def _with_columns(self, data: bytes) -> bytes:
        """Return events with the columns in the first of them, if it has a placeholder."""
        found = with_columns(data, self._columns)
        if found != data:
            self._columns = b""
        return found

    def start(self) -> None:
        """Send the head now, unless it was sent with events."""
        if self._head:
            self.write(b"")

    def end(self, data: bytes) -> None:
        """Send the last events, and end the response; set ``clean``."""
        if self.closed:
            return
        self.write(data)
        self._columns = b""
        self.clean = self._finished()
        self.lost()

    def _finished(self) -> bool:
        """Send the last chunk; return whether the client was still connected."""
        self.write(LAST_CHUNK)
        return not self.closed

    def lost(self) -> None:
        """Close the sink: the client has disconnected, or the stream has ended."""
        if not self.closed:
            self._close()

    def discard(self) -> None:
        """Close a sink whose head was not sent: the request gets another response."""
        self.lost()

    def pause(self) -> None:
        """Stop deliveries until ``resume``."""
        self.paused = True

    def resume(self) -> None:
        """Continue deliveries; first send the events that arrived during the pause."""
        self.paused = False
        if self.watcher is not None and not self.closed:
            self.watcher.resume()

    def end_after(self, seconds: float, bookmark: bool, loop: asyncio.AbstractEventLoop) -> None:
        """End the stream after ``seconds`` (RV-014).

        If ``bookmark`` is true, send a bookmark two seconds before the end. A stream of at most two seconds gets none.
        """
        if self.closed:
            return
        if bookmark and seconds > _BOOKMARK_BEFORE_END:
            self._timer = loop.call_later(seconds - _BOOKMARK_BEFORE_END, self._last_bookmark, loop)
        else:
            self._timer = loop.call_later(seconds, self.end, b"")

    def _last_bookmark(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = loop.call_later(_BOOKMARK_BEFORE_END, self.end, b"")
        if self.watcher is not None:
            self.watcher.bookmark_now()

    def _close(self) -> None:
        self.closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        watcher, self.watcher = self.watcher, None
        if watcher is not None:
            watcher.close()
        if not self.done.done():
            self.done.set_result(None)


class GzipSink(WatchSink):
    """Sends a watch as one gzip member that is flushed after each write.

    Each write is compressed independently. So watchers of a group share the compressed bytes, and idle watches need no
    compressor. The stream is a single member, since client libraries such as aiohttp and httpx stop at the end of the
    first member.
    """

    __slots__ = ("_checksum", "_size")

    def __init__(self, transport: Transport, head: bytes, columns: bytes, done: asyncio.Future[None]) -> None:
        super().__init__(transport, head, columns, done)
        self._checksum = self._size = 0

    def write(self, data: bytes) -> None:
        """Send framed events compressed."""
        if self._columns and data:
            data = self._with_columns(data)
        columns, self._columns = self._columns, b""  # super().write must not search compressed events for a placeholder
        if data:
            plain, packed = _LAST.compressed(data)
            first = b"" if self._size else _MEMBER
            self._checksum, self._size = isal_zlib.crc32(plain, self._checksum), self._size + len(plain)
            data = chunk(first + packed)
        super().write(data)
        self._columns = columns

    def _finished(self) -> bool:
        """Send the end of the member and the last chunk.

        Return whether the client was still connected.
        """
        trailer = self._checksum.to_bytes(4, "little") + (self._size & 0xFFFFFFFF).to_bytes(4, "little")
        super().write(chunk((b"" if self._size else _MEMBER) + _LAST_BLOCK + trailer) + LAST_CHUNK)
        return not self.closed


class _LastEvents:
    """Cache of the last events in compressed form: all watchers of a group get the same bytes."""

    __slots__ = ("_events", "_made")

    def __init__(self) -> None:
        self._events = b""
        self._made = b"", b""

    def compressed(self, data: bytes) -> tuple[bytes, bytes]:
        """Return events without framing, and the same events as deflate blocks.

        The blocks end at a byte boundary.
        """
        if data is not self._events:
            plain = unchunked(data)
            deflate = isal_zlib.compressobj(1, isal_zlib.DEFLATED, -15)
            self._made = plain, deflate.compress(plain) + deflate.flush(isal_zlib.Z_SYNC_FLUSH)
            self._events = data
        return self._made


_LAST = _LastEvents()
_MEMBER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x04\xff"  # RFC 1952: deflate, no name, no time, fastest
_LAST_BLOCK = b"\x03\x00"  # RFC 1951: empty and final


class UnchunkedSink(WatchSink):
    """Sends a watch to a client of HTTP/1.0 without chunks: the stream ends with the connection.

    See RFC 9112, 6.1.
    """

    __slots__ = ()

    def __init__(self, transport: Transport, head: bytes, columns: bytes, done: asyncio.Future[None]) -> None:
        plain = head.replace(b"Transfer-Encoding: chunked\r\n", b"", 1).replace(GZIP_HEAD, b"", 1)
        super().__init__(transport, plain.replace(b"HTTP/1.1", b"HTTP/1.0", 1), columns, done)

    def write(self, data: bytes) -> None:
        """Send framed events without their framing."""
        if self._columns and data:
            data = self._with_columns(data)
        columns, self._columns = self._columns, b""  # super().write must not parse the framing, which is removed here
        super().write(unchunked(data))
        self._columns = columns

    def _finished(self) -> bool:
        """Return False: the connection cannot be reused."""
        return False
