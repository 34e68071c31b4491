"""One HTTP/1.1 connection to a webhook: one request at a time; answers are parsed as they arrive, within limits."""

import asyncio
import math
import re
from functools import lru_cache
from typing import cast

from msgspec import Struct

from apiext.webhooks import limits
from apiext.webhooks.errors import Broken, CallError, TooLarge

_NO_BODY = frozenset((204, 304))
_RECORD = 16 * 1024  # bytes of a TLS record
_SECONDS = re.compile(rb"[+-]?[0-9]{1,18}")
_FIELDS = re.compile(  # all header fields that are used, in one pattern
    rb"\r\n(content-length|transfer-encoding|content-type|connection|retry-after):((?:(?!\r\n).)*)", re.I | re.S
)
_NO_FIELD = re.compile(rb"\r\n((?:(?!\r\n)[^:])*)(?=\r\n|\Z)", re.S)
_INFORMATIONAL = 5  # 1xx heads before the final one (upstream: Go's max1xxResponses)
_CHUNK_LINE = 4096  # bytes of the line before a chunk (upstream: Go's maxLineLength)
_CHUNK_EXCESS = 16 * 1024  # bytes of overhead above the free overhead of chunks (upstream: Go's chunkedReader)
_TRAILER = 4096  # bytes of a trailer (upstream: the buffer of Go's bufio.Reader)
_BROKEN = "net/http: HTTP/1.x transport connection broken: "


class Answer(Struct, frozen=True):
    """Status, content type and body of an answer; ``reusable`` if the connection can carry the next request.

    ``again`` is its Retry-After in seconds, None if it has none.
    """

    status: int
    content_type: str
    body: bytes
    reusable: bool
    again: int | None = None


class _Head(Struct, frozen=True):
    status: int
    content_type: str
    length: int | None
    chunked: bool
    reusable: bool
    again: int | None

    def answer(self, body: bytes, *, reusable: bool) -> Answer:
        return Answer(self.status, self.content_type, body, self.reusable and reusable, self.again)


class Connection(asyncio.BufferedProtocol):
    """The protocol of one connection. ``began`` is true if a byte of the current answer has arrived.

    It has a buffer of its own for all answers: asyncio's TLS would allocate a buffer of 256 KiB for each record.
    """

    __slots__ = (
        "_buffer",
        "_chunked",
        "_chunks",
        "_cut",
        "_deadline",
        "_due",
        "_end",
        "_excess",
        "_head",
        "_head_bytes",
        "_informational",
        "_lacking",
        "_loop",
        "_lost",
        "_max_bytes",
        "_more",
        "_paused",
        "_searched",
        "_start",
        "_timer",
        "_trailing",
        "_waiter",
        "began",
        "idle_since",
        "transport",
    )

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._deadline = self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self.transport: asyncio.Transport | None = None
        self.began = False
        self.idle_since = 0.0
        self._buffer = bytearray(_RECORD)
        self._start = self._end = 0  # the received bytes in the buffer that are not parsed yet
        self._lacking = 0  # bytes that must arrive before the next attempt to parse
        self._searched = 0  # bytes from _start that do not contain the searched mark
        self._chunked = bytearray()
        self._chunks = self._excess = 0  # chunks so far; their overhead as Go counts it
        self._trailing = False  # the last chunk has arrived
        self._head_bytes = self._informational = 0  # bytes of all heads of an answer; number of 1xx heads
        self._more = False  # chunks are left for the next turn of the loop
        self._paused = False  # reading is paused until these are parsed
        self._cut: Exception | None = None  # the error of a connection that was lost while paused
        self._head: _Head | None = None
        self._waiter: asyncio.Future[Answer] | None = None
        self._max_bytes = 0
        self._lost = False

    @property
    def usable(self) -> bool:
        """True if another request can be sent."""
        return not self._lost and self.transport is not None and not self.transport.is_closing()

    @property
    def in_body(self) -> bool:
        """True if the head of the answer has arrived."""
        return self._head is not None

    async def exchange(self, head: bytes, body: bytes, max_bytes: int, deadline: float = math.inf) -> Answer:
        """Send a request and return its answer of at most ``max_bytes`` bytes; raises CallError.

        ``deadline`` is a time of the loop at which TimeoutError is raised.
        """
        assert self.transport is not None
        self.began, self._head, self._max_bytes = False, None, max_bytes
        self._start = self._end = self._lacking = self._searched = 0
        self._chunks = self._excess = self._head_bytes = self._informational = 0
        self._trailing = False
        self._chunked.clear()
        self._waiter = self._loop.create_future()
        if self._lost:
            raise Broken("EOF")
        self._wake_at(deadline)
        self.transport.writelines((head + body,) if len(body) < _RECORD else (head, body))  # one TLS record, not two
        try:
            return await self._waiter
        finally:
            self._waiter = None
            if len(self._buffer) > limits.WEBHOOK_BUFFER:
                self._buffer = bytearray(_RECORD)

    def _wake_at(self, deadline: float) -> None:
        """Set the deadline of the current exchange. Later exchanges reuse the timer, since creating one is slow."""
        self._deadline = deadline
        if self._timer is not None:
            if self._due <= deadline:
                return
            self._timer.cancel()
        self._due, self._timer = deadline, None
        if deadline < math.inf:
            self._timer = self._loop.call_at(deadline, self._wake)

    def _wake(self) -> None:
        self._timer = None
        if self._waiter is None or self._waiter.done():
            return
        if self._loop.time() >= self._deadline:
            self._waiter.set_exception(TimeoutError())
        else:
            self._wake_at(self._deadline)

    def close(self) -> None:
        """Abort the connection."""
        if self.transport is not None:
            self.transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self.transport = cast(asyncio.Transport, transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return free space of the buffer, which grows if necessary."""
        held, room = self._end - self._start, min(sizehint, limits.WEBHOOK_READ) + 1
        if not held:
            self._start = self._end = 0
        if self._end + room > len(self._buffer):
            larger = bytearray(held + max(held, room) + _RECORD)  # new, since the transport may hold views of the old
            larger[:held] = self._taken(self._end)
            self._buffer, self._start, self._end = larger, 0, held
        return memoryview(self._buffer)[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        """Process received bytes; bytes without a request end the connection."""
        if self._waiter is None or self._waiter.done():
            self.close()
            return
        self.began = True
        self._end += nbytes
        self._lacking -= nbytes
        if self._lacking <= 0 and not self._paused:
            self._advance()

    def _advance(self) -> None:
        """Parse the received bytes, at most limits.WEBHOOK_CHUNKS_AT_ONCE chunks in one turn of the loop."""
        waiter = self._waiter
        if waiter is None or waiter.done():  # the caller was cancelled between two turns
            return
        assert self.transport is not None
        self._more = False
        try:
            answer = self._parse()
        except CallError as error:
            waiter.set_exception(error)
            self.close()
            return
        if self._more:
            if not self._paused:
                self._paused = True
                self.transport.pause_reading()
            self._loop.call_soon(self._advance)
            return
        if self._paused:
            self._paused = False
            self.transport.resume_reading()
        if answer is not None:
            waiter.set_result(answer)
        elif self._lost:
            self._end_by(waiter, self._cut)

    def connection_lost(self, error: Exception | None) -> None:
        """End the exchange: an answer without a length is complete, any other one is broken."""
        self._lost = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._waiter is None or self._waiter.done():
            return
        if self._paused:
            self._cut = error
        else:
            self._end_by(self._waiter, error)

    def _end_by(self, waiter: asyncio.Future[Answer], error: Exception | None) -> None:
        """End the exchange of a lost connection; ``error`` is None if the webhook closed it."""
        head = self._head
        if error is None and head is not None and head.length is None and not head.chunked:
            waiter.set_result(head.answer(self._taken(self._end), reusable=False))
            return
        if isinstance(error, ConnectionResetError | BrokenPipeError):
            text = "read tcp: read: connection reset by peer"
        else:
            text = "unexpected EOF" if self.began else "EOF"
        waiter.set_exception(Broken(text))

    def _taken(self, end: int) -> bytes:
        return memoryview(self._buffer)[self._start : end].tobytes()

    def _find(self, mark: bytes) -> int:
        """Return the offset of a mark in the received bytes, or -1; bytes are searched only once."""
        found = self._buffer.find(mark, self._start + self._searched, self._end)
        self._searched = max(self._end - self._start - len(mark) + 1, 0) if found < 0 else 0
        return found

    def _parse(self) -> Answer | None:
        while self._head is None:
            end = self._find(b"\r\n\r\n")
            self._check_head(self._end if end < 0 else end)
            if end < 0:
                return None
            head = _parse_head(self._taken(end))
            self._head_bytes += end + 4 - self._start
            self._start = end + 4
            if head.status >= 200:
                self._head = head
            elif self._informational == _INFORMATIONAL:
                raise Broken(f"{_BROKEN}net/http: too many 1xx informational responses")
            else:
                self._informational += 1
        head, come = self._head, self._end - self._start
        length = head.length
        if head.status in _NO_BODY:
            return head.answer(b"", reusable=not come)
        if head.chunked:
            return self._parse_chunks(head)
        self._bound(come if length is None else length)
        if length is None or come < length:
            self._lacking = 0 if length is None else length - come
            return None
        body = self._taken(self._start + length)
        return head.answer(body, reusable=come == length)

    def _check_head(self, end: int) -> None:
        """Raise Broken for a head that is not HTTP, or if all heads of the answer together are too long."""
        if self._head_bytes + end - self._start > limits.WEBHOOK_HEAD:
            raise Broken(f"{_BROKEN}net/http: server response headers exceeded {limits.WEBHOOK_HEAD} bytes; aborted")
        if not b"HTTP/1.".startswith(self._taken(min(self._end, self._start + 7))):
            raise Broken(f"{_BROKEN}malformed HTTP response {_quoted(self._taken(self._end))}")

    def _parse_chunks(self, head: _Head) -> Answer | None:
        for _ in range(limits.WEBHOOK_CHUNKS_AT_ONCE):
            if self._trailing:
                return self._parse_trailer(head)
            end = self._find(b"\r\n")
            if (self._end if end < 0 else end) - self._start > _CHUNK_LINE:
                raise Broken("header line too long")
            if end < 0:
                return None
            size = _chunk_size(self._taken(end))
            if size == 0:
                self._start, self._trailing = end + 2, True
                continue
            self._bound(len(self._chunked) + size)
            following = end + 4 + size
            if self._end < following:
                self._lacking = following - self._end
                return None
            if self._buffer[following - 2 : following] != b"\r\n":
                raise Broken("malformed chunked encoding")
            self._count_chunk(end + 4 - self._start, size)
            self._chunked += memoryview(self._buffer)[end + 2 : end + 2 + size]
            self._start = following
        self._more = True
        return None

    def _count_chunk(self, overhead: int, size: int) -> None:
        """Raise Broken for too much overhead. As in Go, 16 bytes a chunk and twice the size of its data are free."""
        self._chunks += 1
        self._excess = max(self._excess + overhead - 16 - 2 * size, 0)
        if self._excess > _CHUNK_EXCESS or self._chunks > limits.WEBHOOK_CHUNKS:
            raise Broken("chunked encoding contains too much non-data")

    def _parse_trailer(self, head: _Head) -> Answer | None:
        """Skip the trailer. A connection is not reused after one."""
        come = self._end - self._start
        if come < 2:
            return None
        if self._buffer[self._start : self._start + 2] == b"\r\n":
            return head.answer(bytes(self._chunked), reusable=come == 2)
        end = self._find(b"\r\n\r\n")
        if (self._end if end < 0 else end) - self._start > _TRAILER:
            raise Broken("http: suspiciously long trailer after chunked body")
        return None if end < 0 else head.answer(bytes(self._chunked), reusable=False)

    def _bound(self, size: int) -> None:
        if size > self._max_bytes:
            raise TooLarge(f"the answer exceeds the limit of {self._max_bytes} bytes")


@lru_cache(limits.WEBHOOK_HEADS_SEEN)
def _parse_head(raw: bytes) -> _Head:
    line = raw.partition(b"\r\n")[0]
    parts = line.split(b" ", 2)
    if len(parts) < 2 or not parts[0].startswith(b"HTTP/1.") or len(parts[1]) != 3 or not parts[1].isdigit():
        raise Broken(f"{_BROKEN}malformed HTTP response {_quoted(line)}")
    length: int | None = None
    again: int | None = None
    chunked, kind, connection = False, "", b""
    malformed = _NO_FIELD.search(raw, len(line))
    if malformed is not None:
        raise Broken(f"{_BROKEN}malformed MIME header line: {malformed[1].decode('latin-1')}")
    for name, written in _FIELDS.findall(raw, len(line)):
        lowered, value = name.lower(), written.strip()
        if lowered == b"content-length":
            length = _length(value)
        elif lowered == b"transfer-encoding":
            chunked = value.lower() == b"chunked"
            if not chunked:
                raise Broken(f"{_BROKEN}unsupported transfer encoding: {_quoted(value)}")
        elif lowered == b"content-type":
            kind = value.decode("latin-1")
        elif lowered == b"connection":
            connection = value.lower()
        elif _SECONDS.fullmatch(value):
            again = int(value)
    reusable = parts[0] == b"HTTP/1.1" and b"close" not in connection
    return _Head(int(parts[1]), kind, length, chunked, reusable, again)


def _length(value: bytes) -> int:
    if not value.isdigit() or len(value) > 18:
        raise Broken(f"{_BROKEN}bad Content-Length {_quoted(value)}")
    return int(value)


def _chunk_size(line: bytes) -> int:
    digits = line.split(b";", 1)[0].strip()
    if not digits or len(digits) > 15 or digits.strip(b"0123456789abcdefABCDEF"):
        raise Broken("invalid byte in chunk length")
    return int(digits, 16)


def _quoted(raw: bytes | bytearray) -> str:
    """Return the beginning of raw bytes as Go quotes a string."""
    text = bytes(raw[:64]).decode("latin-1").replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(c if c.isprintable() and c.isascii() else f"\\x{ord(c):02x}" for c in text) + '"'
