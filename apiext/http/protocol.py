"""The adapter to aiohttp; only this module uses private names of aiohttp.

See tests/unit/http/test_aiohttp_names.py. ``HttpProtocol`` is aiohttp's connection, with public names for the parts
that other modules use. One task handles all requests of a connection. aiohttp itself would create a task for each
request, which would cost two iterations of the event loop before Python 3.12. ``Listener`` is aiohttp's server.
"""

import asyncio
from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any, cast

from aiohttp import http_parser, web
from aiohttp.http import HttpProcessingError, RawRequestMessage
from aiohttp.streams import EMPTY_PAYLOAD, StreamReader
from aiohttp.web_protocol import _ErrInfo

from apiext import limits

Parsed = tuple[Any, StreamReader]
"""(parsed head or the parser's error, body)."""


def failure(error: BaseException, code: int = 400, message: str = "") -> Parsed:
    """Return the item of the queue for a request with an invalid head."""
    return _ErrInfo(code, error, message), EMPTY_PAYLOAD


def is_failure(message: Any) -> bool:
    """Report whether a message stands for an invalid head."""
    return isinstance(message, _ErrInfo)


def take_received(payload: StreamReader) -> bytes:
    """Remove and return the bytes of a body that have arrived."""
    found = b"".join(payload._buffer)
    payload._buffer.clear()
    return found


def has_fast_parser() -> bool:
    """Report whether aiohttp uses its C parser.

    The Python parser is slow, and unsafe against request smuggling.
    """
    return http_parser.HttpRequestParser is not http_parser.HttpRequestParserPy


class Request:
    """A request with the attributes that aiohttp's connection uses.

    ``message`` is its head, ``payload`` its body.
    """

    __slots__ = ("continued", "message", "payload")

    def __init__(self, message: RawRequestMessage, payload: StreamReader) -> None:
        self.message = message
        self.payload = payload
        self.continued = False

    def _finish(self) -> None:
        """Release nothing: a request has no temporary files."""

    def _cancel(self, error: BaseException) -> None:
        """Wake a reader of the body: the client has closed the connection."""
        self.payload.set_exception(error)


class _Written:
    """The response object for aiohttp, after this server itself has written the response."""

    async def prepare(self, request: object) -> None:
        """Do nothing: the head has been written."""

    async def write_eof(self) -> None:
        """Do nothing: the body has been written."""


_WRITTEN: Any = _Written()


class HttpProtocol(web.RequestHandler):
    """A connection; one task handles its requests in order.

    ``messages`` are the parsed requests that wait. ``request`` is the current or last request with a valid head, None
    before the first.
    """

    __slots__ = ("_stale", "loop", "messages", "request")

    def __init__(self, manager: web.Server, *, loop: asyncio.AbstractEventLoop, **settings: Any) -> None:
        super().__init__(manager, loop=loop, **settings)
        self.loop = loop
        self.messages: deque[Parsed] = self._messages
        self.request: Request | None = None
        self._stale = False  # the parser may assume that reading is paused when it is not

    @abstractmethod
    async def answer(self, request: Request) -> bool:
        """Handle a request, and write the response; return whether the connection stays open."""

    @abstractmethod
    def refuse(self, code: int, error: BaseException | None) -> None:
        """Write the error for a request that ``answer`` did not handle, and close the connection."""

    # --- state ---

    @property
    def is_new(self) -> bool:
        """Report whether no request has arrived yet."""
        return not self._request_count

    @property
    def is_idle(self) -> bool:
        """Report whether no request runs or waits."""
        return self._waiter is not None and not self._waiter.done() and not self._messages

    @property
    def is_upgraded(self) -> bool:
        """Report whether the bytes after the last request belong to another protocol.

        The last request has requested this protocol.
        """
        return self._upgraded

    @property
    def is_last(self) -> bool:
        """Report whether the connection closes after the current response.

        Further bytes are discarded.
        """
        return self._close

    @is_last.setter
    def is_last(self, value: bool) -> None:
        self._close = value

    @property
    def received(self) -> int:
        """The number of requests that arrived on this connection."""
        return self._request_count

    def parses_next(self) -> bool:
        """Report whether arriving bytes belong to the next head, and can be parsed now.

        Return False before the task of the connection waits for requests, while a request runs or waits, while the
        client does not read responses, after an upgrade to another protocol, and if the connection closes.
        """
        waiter = self._waiter
        return not (
            waiter is None
            or waiter.done()
            or self._messages
            or self._payload_parser is not None
            or self._upgraded
            or self._paused
            or self._close
            or self._force_close
            or self._parser is None
        )

    def may_parse(self) -> bool:
        """Report whether the connection is open and has a parser."""
        return self.transport is not None and self._parser is not None and not self._force_close

    # --- bytes and requests ---

    def parse(self, data: bytes) -> Sequence[Parsed]:
        """Return the requests whose heads the bytes complete, with failures for invalid heads."""
        assert self._parser is not None
        try:
            messages, upgraded, tail = self._parser.feed_data(data)
        except HttpProcessingError as error:
            messages, upgraded, tail = [failure(error, 400, error.message)], False, b""
        self._upgraded = upgraded
        if upgraded and tail:
            self._message_tail = tail
        return messages

    def queue(self, messages: Sequence[Parsed]) -> None:
        """Pass parsed requests to the task that handles them."""
        if not messages:
            return
        self._request_count += len(messages)
        self._messages.extend(messages)
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
        if not self._buffer_paused and len(self._messages) >= self._max_msg_queue_size:
            self._pause_reading_for_buffer()

    def hold_reading(self) -> None:
        """Stop reading from the client until ``release_reading``."""
        self._pause_transport_reading()

    def release_reading(self) -> None:
        """Resume reading, unless a body or a full queue has paused it meanwhile."""
        if not self._reading_paused and not self._buffer_paused:
            self._resume_transport_reading()

    def resume_reading(self, resume_parser: bool = True) -> None:
        """Resume reading if it is paused; aiohttp calls this after each piece of a body.

        The end of a body, such as its last chunk, may have paused the parser. Then the parser stops within the next
        body, and must be resumed there.
        """
        self._stale = self._stale or (self._reading_paused and not resume_parser)
        if self._reading_paused or (self._stale and resume_parser):
            super().resume_reading(resume_parser)

    # --- the end ---

    def close_within(self, seconds: float) -> None:
        """Close the connection if its first head does not arrive in this time."""
        if self._keepalive_handle is not None:
            self._keepalive_handle.cancel()
        self._next_keepalive_close_time = self._loop.time() + seconds
        self._keepalive_handle = self._loop.call_at(self._next_keepalive_close_time, self._process_keepalive)

    def cut_off(self) -> None:
        """Close the connection immediately, without sending buffered bytes.

        TLS would wait for the client.
        """
        transport = self.transport
        self.force_close()
        self._parser = None  # the parser and the messages reference request heads, which would stay in memory
        self._messages.clear()
        if transport is not None:
            transport.abort()

    def retire(self) -> None:
        """Close the connection now if it is idle, else after the current response."""
        if self.is_idle:
            self.force_close()
        else:
            self._close = True

    # --- the task ---

    async def start(self) -> None:
        """Handle requests until the connection must close, then close it."""
        began = 0.0
        while not self._force_close:
            if not self._messages:
                self._waiter = self._loop.create_future()
                try:
                    await self._waiter
                finally:
                    self._waiter = None
                began = monotonic()
                continue  # test ``_force_close`` again: the client may have disconnected in the meantime
            # Handlers of pipelined requests may never yield to the event loop, so this loop must.
            if monotonic() - began > limits.LOOP_BUDGET:
                await asyncio.sleep(0)
                began = monotonic()
            message, payload = self._messages.popleft()
            late = not payload.is_eof()
            if self._parser is not None and not late:
                self._parser.message_consumed()
            if self._buffer_paused and len(self._messages) <= self._msg_queue_resume_size:
                self._resume_reading_if_drained()
            try:
                if not await self._answer_next(message, payload):
                    break
            except BaseException:
                self.force_close()
                raise
            if late and self._parser is not None:  # the parser counts a message only when its body is complete
                self._parser.message_consumed()
                self.data_received(b"")
        if not self._force_close:
            self._task_handler = None
            if self.transport is not None:
                self.transport.close()

    async def _answer_next(self, message: Any, payload: StreamReader) -> bool:
        """Handle one request; return whether another request may follow."""
        manager = self._manager
        if manager is None:
            return False  # the connection was lost meanwhile
        manager.requests_count += 1
        request: Any = Request(message, payload)
        self._current_request = request
        self._request_in_progress = True
        stays_open = False
        try:
            try:
                if is_failure(message):
                    self.refuse(message.status, message.exc)
                else:
                    self.request = request
                    stays_open = await self.answer(request)
            except Exception as error:
                self.refuse(504 if isinstance(error, TimeoutError) else 500, error)
            if self._upgraded:  # aiohttp's method parses the bytes after the request if the upgrade was declined
                await self.finish_response(request, _WRITTEN, None)
        except ConnectionError:
            return False
        except Exception as error:  # the response with an error could not be written
            self.log_exception("Unhandled exception", exc_info=error)
            self.force_close()
            return False
        finally:
            self._current_request = None
            self._request_in_progress = False
            if self._handler_waiter is not None:
                self._handler_waiter.set_result(None)
        self._keepalive = stays_open
        if not payload.is_eof():
            await self._linger(payload)
        if not stays_open or self._close or self._force_close:
            return False
        self._next_keepalive_close_time = self._loop.time() + self._keepalive_timeout
        if self._keepalive_handle is None:
            self._keepalive_handle = self._loop.call_at(self._next_keepalive_close_time, self._process_keepalive)
        return True

    async def drained(self) -> None:
        """Wait until the transport has drained.

        Raise ConnectionResetError if the client has closed the connection. In aiohttp's own method, the frame
        references the future, the future its exception, and the exception the frame. This cycle keeps the frames of all
        callers, with their responses, in memory until the garbage collector runs.
        """
        if self.transport is None:
            raise ConnectionResetError("the client is gone")
        if self._paused:
            if self._drain_waiter is None:
                self._drain_waiter = self._loop.create_future()
            await self._drain_waiter

    _drain_helper = drained  # the name that aiohttp calls

    async def _linger(self, payload: StreamReader) -> None:
        """Read and discard an unread body for a while.

        An immediate close could lose the response.
        """
        try:
            async with asyncio.timeout(self._lingering_time):
                while not payload.is_eof() and not self._force_close:
                    await payload.readany()
                    await asyncio.sleep(0)  # readany does not yield to the event loop if bytes are buffered
        except TimeoutError:
            pass
        except web.RequestPayloadError:
            self.force_close()
        except Exception as error:
            self.log_exception("Unhandled exception", exc_info=error)
            self.force_close()
        if not payload.is_eof() and not self._force_close:
            self.close()


Make = Callable[[web.Server, asyncio.AbstractEventLoop, dict[str, Any]], asyncio.BaseProtocol]


class Listener(web.Server):
    """aiohttp's server.

    ``make(listener, loop, settings)`` returns the protocol of a new connection.
    """

    def __init__(self, make: Make, **settings: Any) -> None:
        super().__init__(cast(Any, None), **settings)  # connections handle their requests themselves
        self.make = make

    def __call__(self) -> web.RequestHandler:
        # the cast is for mypy: the event loop accepts any protocol
        return cast(web.RequestHandler, self.make(self, self._loop, self._kwargs))
