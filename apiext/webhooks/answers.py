"""Parse webhook responses while they arrive: HTTP/1.1 heads and bodies, within limits."""

import re
from collections.abc import Sequence
from functools import lru_cache

from msgspec import Struct

from apiext.webhooks import limits
from apiext.webhooks.errors import Broken, TooLarge

_NO_BODY = frozenset((204, 304))
RECORD = 16 * 1024  # bytes of a TLS record
_SECONDS = re.compile(rb"[+-]?[0-9]{1,18}")
_FIELDS = re.compile(  # one pattern for all header fields that the client uses
    rb"\r\n(content-length|transfer-encoding|content-type|connection|retry-after):((?:(?!\r\n).)*)", re.I | re.S
)
_NO_FIELD = re.compile(rb"\r\n((?:(?!\r\n)[^:])*)(?=\r\n|\Z)", re.S)
_INFORMATIONAL = 5  # maximal number of 1xx heads before the final head (upstream: Go's max1xxResponses)
_CHUNK_LINE = 4096  # bytes of the line with the size of a chunk (upstream: Go's maxLineLength)
# bytes of overhead, besides the overhead that is free for each chunk (upstream: Go's chunkedReader)
_CHUNK_EXCESS = 16 * 1024
_TRAILER = 4096  # bytes of a trailer (upstream: the buffer of Go's bufio.Reader)
_BROKEN = "net/http: HTTP/1.x transport connection broken: "


class Answer(Struct, frozen=True):
    """Status, content type and body of a response.

    ``reusable`` is true if the connection can carry another request. ``again`` is Retry-After in seconds, or None.
    """

    status: int
    content_type: str
    body: bytes
    reusable: bool
    again: int | None = None


class Head(Struct, frozen=True):
    """The head of a response; ``length`` is None without a Content-Length."""

    status: int
    content_type: str
    length: int | None
    chunked: bool
    reusable: bool
    again: int | None

    def answer(self, body: bytes, *, reusable: bool) -> Answer:
        """Return the response with this body."""
        return Answer(self.status, self.content_type, body, self.reusable and reusable, self.again)


class Buffer:
    """The received bytes of a connection that are not parsed yet: ``data[start:end]``.

    One buffer receives all responses of a connection. Without it, asyncio's TLS would allocate 256 KiB for each record.
    """

    __slots__ = ("_searched", "data", "end", "start")

    def __init__(self) -> None:
        self.data = bytearray(RECORD)
        self.start = self.end = 0
        self._searched = 0  # number of bytes after ``start`` in which the last ``find`` found nothing

    @property
    def size(self) -> int:
        """The number of bytes that are not parsed yet."""
        return self.end - self.start

    def clear(self) -> None:
        """Discard all bytes."""
        self.start = self.end = self._searched = 0

    def shrink(self) -> None:
        """Free the memory of a large response after it has been parsed."""
        if len(self.data) > limits.WEBHOOK_BUFFER:
            self.data = bytearray(RECORD)
            self.clear()

    def space(self, sizehint: int) -> memoryview:
        """Return the free space for received bytes; the buffer grows if necessary."""
        held, room = self.size, min(sizehint, limits.WEBHOOK_READ) + 1
        if not held:
            self.start = self.end = 0
        if self.end + room > len(self.data):
            # a new object, since the transport may still have views of the old one
            larger = bytearray(held + max(held, room) + RECORD)
            larger[:held] = self.until(self.end)
            self.data, self.start, self.end = larger, 0, held
        return memoryview(self.data)[self.end :]

    def until(self, end: int) -> bytes:
        """Return a copy of the bytes before a position."""
        return memoryview(self.data)[self.start : end].tobytes()

    def find(self, mark: bytes) -> int:
        """Return the position of ``mark``, or -1.

        After -1, the next search skips the bytes that were searched.
        """
        found = self.data.find(mark, self.start + self._searched, self.end)
        self._searched = max(self.size - len(mark) + 1, 0) if found < 0 else 0
        return found


class Chunks:
    """The received chunks of a body."""

    __slots__ = ("_count", "_excess", "data", "ended")

    def __init__(self) -> None:
        self.data = bytearray()
        self.ended = False  # true once the last chunk has arrived
        self._count = self._excess = 0  # number of chunks; their overhead as Go counts it

    def add(self, data: memoryview, overhead: int) -> None:
        """Add a chunk; raise Broken for too much overhead or too many chunks.

        As in Go, overhead of 16 bytes plus twice the size of the chunk is free.
        """
        self._count += 1
        self._excess = max(self._excess + overhead - 16 - 2 * len(data), 0)
        if self._excess > _CHUNK_EXCESS or self._count > limits.WEBHOOK_CHUNKS:
            raise Broken("chunked encoding contains too much non-data")
        self.data += data


class AnswerParser:
    """Parses one response from a buffer; its body has at most ``max_bytes`` bytes.

    ``head`` is None until the head has arrived. ``lacking`` bytes must arrive before ``parse`` is called again. If
    ``more`` is true, the next iteration of the event loop must parse further chunks.
    """

    __slots__ = ("_buffer", "_chunks", "_head_bytes", "_informational", "_max_bytes", "head", "lacking", "more")

    def __init__(self, buffer: Buffer, max_bytes: int) -> None:
        self._buffer = buffer
        self._max_bytes = max_bytes
        self.head: Head | None = None
        self.lacking = 0
        self.more = False
        self._head_bytes = self._informational = 0  # bytes of all heads of the response; number of 1xx heads
        self._chunks: Chunks | None = None

    def parse(self) -> Answer | None:
        """Return the response, or None if it is incomplete or ``more`` is set; raise CallError."""
        self.more = False
        buffer = self._buffer
        head = self.head or self._parse_heads()
        if head is None:
            return None
        arrived, length = buffer.size, head.length
        if head.status in _NO_BODY:
            return head.answer(b"", reusable=not arrived)
        if head.chunked:
            return self._parse_chunks(head)
        self._bound(arrived if length is None else length)
        if length is None or arrived < length:
            self.lacking = 0 if length is None else length - arrived
            return None
        return head.answer(buffer.until(buffer.start + length), reusable=arrived == length)

    def closed(self) -> Answer | None:
        """Return the response that ends with the connection; None if the response is incomplete."""
        head = self.head
        if head is None or head.length is not None or head.chunked:
            return None
        return head.answer(self._buffer.until(self._buffer.end), reusable=False)

    def _parse_heads(self) -> Head | None:
        """Skip 1xx heads; return the final head, or None if it has not arrived."""
        buffer = self._buffer
        while self.head is None:
            end = buffer.find(b"\r\n\r\n")
            self._check_head(buffer.end if end < 0 else end)
            if end < 0:
                return None
            head = _parse_head(buffer.until(end))
            self._head_bytes += end + 4 - buffer.start
            buffer.start = end + 4
            if head.status >= 200:
                self.head = head
            elif self._informational == _INFORMATIONAL:
                raise Broken(f"{_BROKEN}net/http: too many 1xx informational responses")
            else:
                self._informational += 1
        return self.head

    def _check_head(self, end: int) -> None:
        """Raise Broken if a head is not HTTP, or all heads of the response together are too long."""
        buffer = self._buffer
        if self._head_bytes + end - buffer.start > limits.WEBHOOK_HEAD:
            raise Broken(f"{_BROKEN}net/http: server response headers exceeded {limits.WEBHOOK_HEAD} bytes; aborted")
        if not b"HTTP/1.".startswith(buffer.until(min(buffer.end, buffer.start + 7))):
            raise Broken(f"{_BROKEN}malformed HTTP response {_quoted(buffer.until(buffer.end))}")

    def _parse_chunks(self, head: Head) -> Answer | None:
        buffer = self._buffer
        chunks = self._chunks = self._chunks or Chunks()
        for _ in range(limits.WEBHOOK_CHUNKS_AT_ONCE):
            if chunks.ended:
                return self._parse_trailer(head, chunks.data)
            end = buffer.find(b"\r\n")
            if (buffer.end if end < 0 else end) - buffer.start > _CHUNK_LINE:
                raise Broken("header line too long")
            if end < 0:
                return None
            size = _chunk_size(buffer.until(end))
            if size == 0:
                buffer.start, chunks.ended = end + 2, True
                continue
            self._bound(len(chunks.data) + size)
            following = end + 4 + size
            if buffer.end < following:
                self.lacking = following - buffer.end
                return None
            if buffer.data[following - 2 : following] != b"\r\n":
                raise Broken("malformed chunked encoding")
            chunks.add(memoryview(buffer.data)[end + 2 : end + 2 + size], end + 4 - buffer.start)
            buffer.start = following
        self.more = True
        return None

    def _parse_trailer(self, head: Head, body: bytearray) -> Answer | None:
        """Skip the trailer; return the response, or None if it is incomplete.

        A connection cannot be reused after a trailer that is not empty.
        """
        buffer = self._buffer
        if buffer.size < 2:
            return None
        if buffer.data[buffer.start : buffer.start + 2] == b"\r\n":
            return head.answer(bytes(body), reusable=buffer.size == 2)
        end = buffer.find(b"\r\n\r\n")
        if (buffer.end if end < 0 else end) - buffer.start > _TRAILER:
            raise Broken("http: suspiciously long trailer after chunked body")
        return None if end < 0 else head.answer(bytes(body), reusable=False)

    def _bound(self, size: int) -> None:
        if size > self._max_bytes:
            raise TooLarge(f"the answer exceeds the limit of {self._max_bytes} bytes")


@lru_cache(limits.WEBHOOK_HEADS_SEEN)
def _parse_head(raw: bytes) -> Head:
    line = raw.partition(b"\r\n")[0]
    parts = line.split(b" ", 2)
    if len(parts) < 2 or not parts[0].startswith(b"HTTP/1.") or len(parts[1]) != 3 or not parts[1].isdigit():
        raise Broken(f"{_BROKEN}malformed HTTP response {_quoted(line)}")
    lengths: list[bytes] = []
    again: int | None = None
    chunked, kind, connection = False, "", b""
    malformed = _NO_FIELD.search(raw, len(line))
    if malformed is not None:
        raise Broken(f"{_BROKEN}malformed MIME header line: {malformed[1].decode('latin-1')}")
    for name, written in _FIELDS.findall(raw, len(line)):
        lowered, value = name.lower(), written.strip()
        if lowered == b"content-length":
            lengths.append(value)
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
    return Head(int(parts[1]), kind, _length(lengths), chunked, reusable, again)


def _length(values: Sequence[bytes]) -> int | None:
    """Return the length in the Content-Length headers of a response, None without one."""
    if not values:
        return None
    value = values[0]
    if any(other != value for other in values):
        shown = " ".join(map(_quoted, values))
        raise Broken(f"{_BROKEN}http: message cannot contain multiple Content-Length headers; got [{shown}]")
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
