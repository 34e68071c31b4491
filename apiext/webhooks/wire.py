"""One HTTP/1.1 connection to a webhook: one request at a time."""

import asyncio
import math
from typing import cast

from apiext.webhooks.answers import RECORD, Answer, AnswerParser, Buffer
from apiext.webhooks.errors import Broken, CallError


class Connection(asyncio.BufferedProtocol):
    """The protocol of one connection.

    ``began`` is true if a byte of the current response has arrived.
    """

    __slots__ = (
        "_buffer",
        "_cut",
        "_deadline",
        "_due",
        "_loop",
        "_lost",
        "_parser",
        "_paused",
        "_timer",
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
        self._buffer = Buffer()
        self._parser = AnswerParser(self._buffer, 0)
        self._paused = False  # reading is paused until the received chunks are parsed
        self._cut: Exception | None = None  # the error of a connection that was lost while reading was paused
        self._waiter: asyncio.Future[Answer] | None = None
        self._lost = False

    @property
    def usable(self) -> bool:
        """True if the connection can send another request."""
        return not self._lost and self.transport is not None and not self.transport.is_closing()

    @property
    def in_body(self) -> bool:
        """True if the head of the response has arrived."""
        return self._parser.head is not None

    async def exchange(self, head: bytes, body: bytes, max_bytes: int, deadline: float = math.inf) -> Answer:
        """Send a request and return its response of at most ``max_bytes`` bytes; raise CallError.

        Raise TimeoutError at ``deadline``, a time of the event loop.
        """
        assert self.transport is not None
        self.began = False
        self._buffer.clear()
        self._parser = AnswerParser(self._buffer, max_bytes)
        self._waiter = self._loop.create_future()
        if self._lost:
            raise Broken("EOF")
        self._wake_at(deadline)
        # send a small request as one TLS record
        self.transport.writelines((head + body,) if len(body) < RECORD else (head, body))
        try:
            return await self._waiter
        finally:
            self._waiter = None
            self._buffer.shrink()

    def _wake_at(self, deadline: float) -> None:
        """Set the deadline of the current exchange.

        Later exchanges reuse the timer, since creating one is slow.
        """
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
        self.transport = cast(asyncio.Transport, transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        """Return free space of the buffer, which grows if necessary."""
        return self._buffer.space(sizehint)

    def buffer_updated(self, nbytes: int) -> None:
        """Process received bytes; close the connection if no request waits for a response."""
        if self._waiter is None or self._waiter.done():
            self.close()
            return
        self.began = True
        self._buffer.end += nbytes
        self._parser.lacking -= nbytes
        if self._parser.lacking <= 0 and not self._paused:
            self._advance()

    def _advance(self) -> None:
        """Parse received bytes, a limited number of chunks in each iteration of the event loop.

        The limit is limits.WEBHOOK_CHUNKS_AT_ONCE.
        """
        waiter = self._waiter
        if waiter is None or waiter.done():  # the caller was cancelled between two iterations
            return
        assert self.transport is not None
        try:
            answer = self._parser.parse()
        except CallError as error:
            waiter.set_exception(error)
            self.close()
            return
        if self._parser.more:
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
        """End the exchange.

        A response without a length is complete if the webhook closed the connection. Any other response is broken.
        """
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
        answer = self._parser.closed() if error is None else None
        if answer is not None:
            waiter.set_result(answer)
            return
        if isinstance(error, ConnectionResetError | BrokenPipeError):
            text = "read tcp: read: connection reset by peer"
        else:
            text = "unexpected EOF" if self.began else "EOF"
        waiter.set_exception(Broken(text))
