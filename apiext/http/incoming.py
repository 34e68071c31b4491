"""Parse the received bytes of a connection into requests.

Limits apply to large heads and unfinished heads.
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from aiohttp import web
from aiohttp.http import RawRequestMessage
from aiohttp.streams import EMPTY_PAYLOAD, StreamReader

from apiext.http import limits, refusals
from apiext.http.connection_limits import Unauthenticated
from apiext.http.protocol import HttpProtocol, Parsed, Request, failure, is_failure
from apiext.scheduling.slices import Slices

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

# A piece is the bytes that one read of the connection returns. If the first piece of a head has at most this number of
# bytes, it is parsed at once. All other pieces are collected until the head is complete.
HEAD_PIECE = 4 * 1024

HEAD_END = b"\r\n\r\n"
_MANY = 100  # number of fields up to which the size of a head is not computed, unless ``_large`` is true
_FIELD = 300  # bytes of memory that a field needs besides its text


class Incoming(HttpProtocol):
    """A connection that parses heads; the memory of unfinished heads is limited.

    ``unauthenticated`` counts the bytes of the unfinished heads of all connections. ``large_heads`` limits the work for
    large heads: one is parsed immediately, and further heads wait for later iterations of the event loop.
    """

    __slots__ = ("_head", "_large", "_large_heads", "_pieces", "_postponed", "_tail", "_unauthenticated", "is_alone")

    def __init__(
        self,
        manager: web.Server,
        unauthenticated: Unauthenticated,
        large_heads: Slices,
        *,
        loop: "AbstractEventLoop",
        **settings: Any,
    ) -> None:
        super().__init__(manager, loop=loop, **settings)
        self._unauthenticated = unauthenticated
        self._large_heads = large_heads
        self._head = 0  # bytes of an unfinished head
        self._pieces: list[bytes] = []  # the pieces of the unfinished head that are not parsed yet
        self._postponed = False  # true if ``_pieces`` wait in ``large_heads`` for their turn
        self._tail = b""  # the last three bytes that arrived
        self._large = False  # true if so many bytes arrived that the last head may be large
        # true if the bytes that arrived last contain the end of one head, and nothing after it; false for bytes that
        # arrive while an earlier request of this connection runs
        self.is_alone = False

    def cut_off(self) -> None:
        """Close the connection immediately, without sending buffered bytes."""
        self._pieces.clear()
        super().cut_off()

    def data_received(self, data: bytes) -> None:
        """Parse bytes, and queue the requests that they complete."""
        if not self.parses_next():
            self._take(data)
            return
        if self._postponed:
            self._pieces.append(data)
            return
        if self._head or len(data) > HEAD_PIECE:
            piece, data = data, self._gathered(data)
            if not data:
                return
            if data.find(HEAD_END) > limits.LARGE_HEAD:
                self._postpone(data, piece)
                return
        self._parse(data)

    def _postpone(self, data: bytes, piece: bytes) -> None:
        """Put a large head into ``large_heads``, to parse it now or later.

        ``piece`` is the part that arrived last.
        """
        self._unauthenticated.add_head(self, piece, parsed=False)
        if self.transport is None:  # add_head closed this connection: its head was the largest
            return
        self._pieces.append(data)
        self._postponed = True
        self.hold_reading()
        self._large_heads.put(self._parse_postponed)

    def _parse_postponed(self) -> None:
        self._postponed = False
        if not self.may_parse():
            return
        data = b"".join(self._pieces)
        self._pieces.clear()
        self._parse(data)
        self.release_reading()

    def _parse(self, data: bytes) -> None:
        """Parse bytes that arrive while no request runs."""
        before = self._tail
        self._keep_tail(data)
        messages = self.parse(data)
        size = self._head + len(data)
        begun = _begun(before + data, 0, messages) if messages and len(data) > HEAD_PIECE else 0
        self._large = size > limits.LARGE_HEAD
        if self._head or self._large or not messages or begun:
            large = self._large and self._head + data.find(HEAD_END) > limits.LARGE_HEAD
            self._unfinished(data, begun, whole=bool(messages) and not large)
            if self.transport is None:  # _unfinished closed this connection: its head was the largest
                return
        self._head = begun if messages else size
        if self._head > limits.MAX_HEAD:
            messages = [failure(refusals.HeadTooLong(), 431)]
        self.is_alone = _is_one_head(data)
        self.queue(messages)

    def _take(self, data: bytes) -> None:
        """Parse bytes as aiohttp does, while ``parses_next`` is false, usually since a request runs.

        A connection that closes after this request still reads the request's body. Any connection closes immediately if
        an unfinished head or unfinished trailers after the body exceed the limit.
        """
        # These pieces were collected while ``parses_next`` was true; then the client stopped reading responses.
        if self._pieces:
            data = self._joined(data)
        tail = self._tail
        self._keep_tail(data)
        message: Any = None
        body: StreamReader = EMPTY_PAYLOAD
        if self.messages:
            message, body = self.messages[-1]
        elif self.request is not None:
            message, body = self.request.message, self.request.payload
        self.is_alone = self.is_new and _is_one_head(data)
        before = self.received, body.total_bytes, body.is_eof()
        queued = len(self.messages)
        waited_for = self.is_last and not body.is_eof()
        self.is_last = self.is_last and not waited_for
        super().data_received(data)
        self.is_last = self.is_last or waited_for
        if self.messages and is_failure(self.messages[-1][0]) and not body.is_eof():
            # Without this error, a handler would wait forever for the rest of the body.
            body.set_exception(web.RequestPayloadError("what follows is no body"))
        whole = (self.received, body.total_bytes, body.is_eof()) != before or self.is_upgraded
        size = self._head + len(data)
        begun = 0
        if len(data) > HEAD_PIECE and body.is_eof() and whole and not self.is_upgraded:
            joined, at = tail + data, 0
            if message is not None and not before[2]:  # the rest of this message's body precedes the next head
                at = (
                    joined.rfind(HEAD_END) + len(HEAD_END)
                    if message.chunked
                    else len(tail) + body.total_bytes - before[1]
                )
            begun = _begun(joined, at, list(self.messages)[queued:])
        self._large = self._large or size > limits.LARGE_HEAD
        if self._head or begun or (data and not whole):
            self._unfinished(data, begun, whole=whole)
        self._head = begun if whole else size
        if self._head > limits.MAX_HEAD:
            self.force_close()

    def _gathered(self, data: bytes) -> bytes:
        """Collect the pieces of a head.

        Return the head once it is complete, and until then no bytes. Parsing each piece would cost time, and need two
        more copies of a head that may never end.
        """
        if HEAD_END in data or HEAD_END in self._tail + data[:3]:
            return self._joined(data) if self._pieces else data
        self._keep_tail(data)
        self._pieces.append(data)
        self._head += len(data)
        self._unauthenticated.add_head(self, data, parsed=False)
        if self._head > limits.MAX_HEAD:
            self._pieces.clear()
            self.queue([failure(refusals.HeadTooLong(), 431)])
        return b""

    def _joined(self, data: bytes) -> bytes:
        """Return the collected pieces of a head, with new data."""
        pieces = self._pieces
        self._head -= sum(map(len, pieces))
        data = b"".join((*pieces, data))
        pieces.clear()
        return data

    def _keep_tail(self, data: bytes) -> None:
        """Store the last three bytes, since two pieces may contain HEAD_END together."""
        self._tail = data[-3:] if len(data) > 2 else (self._tail + data)[-3:]

    def _unfinished(self, data: bytes, begun: int, *, whole: bool) -> None:
        """Count the memory of a head until it is complete.

        Count a large head until the response to its request. ``begun`` is the number of bytes at the end of ``data``
        that belong to the next head. ``whole`` is true if the head before them is complete and not large.
        """
        unauthenticated = self._unauthenticated
        if whole:
            unauthenticated.remove_head(self)
            data = data[len(data) - begun :]
        if data:
            unauthenticated.add_head(self, data, parsed=True)

    def release_head(self, request: Request) -> None:
        """Release a head that may be large, after the response to its request."""
        if not self._head:
            self._unauthenticated.remove_head(self)
        if self.is_large(request.message):
            # The connection closes after this response (``_ends`` in connection.py). If it waited for the rest of the
            # body, the head would stay in memory.
            request.payload.feed_eof()

    def is_large(self, message: RawRequestMessage) -> bool:
        """Report whether a head is too large to stay in the parser until the next head arrives."""
        fields = message.raw_headers
        if not self._large and len(fields) <= _MANY:
            return False
        return sum(len(name) + len(value) + _FIELD for name, value in fields) > limits.LARGE_HEAD


def _is_one_head(data: bytes) -> bool:
    """Report whether bytes contain the end of one head, and nothing after it."""
    return 0 <= data.find(HEAD_END) == len(data) - len(HEAD_END)


def _begun(data: bytes, at: int, messages: Iterable[Parsed]) -> int:
    """Return the number of bytes at the end of ``data`` that belong to the next head.

    This head follows ``messages``. The first message begins at ``at``. The number may be wrong if another message with
    a body follows a chunked body.
    """
    for message, payload in messages:
        if is_failure(message) or not payload.is_eof():
            return 0
        end = data.find(HEAD_END, at)
        at = end + len(HEAD_END) if end >= 0 else at
        if payload is not EMPTY_PAYLOAD:
            at = data.rfind(HEAD_END, at) + len(HEAD_END) if message.chunked else at + payload.total_bytes
    return max(0, len(data) - at)
