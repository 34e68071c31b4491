"""How the requests of one connection are answered in turn: aiohttp's loop, without the task that it makes for each.

Before Python 3.12 such a task costs each request two more turns of the event loop. The names with a leading underscore
are aiohttp's; each has a contract test, and the versions allowed are pinned.
"""

import asyncio
from abc import abstractmethod
from time import monotonic
from typing import Any

from aiohttp import web
from aiohttp.streams import StreamReader
from aiohttp.web_protocol import _ErrInfo

from apiext import limits as server_limits


class Request:
    """The little of a request that aiohttp's connection needs, and the message itself."""

    __slots__ = ("continued", "message", "payload")

    def __init__(self, message: Any, payload: StreamReader) -> None:
        self.message = message
        self.payload = payload
        self.continued = False

    def _finish(self) -> None:
        """Release nothing: there are no temporary files here."""

    def _cancel(self, error: BaseException) -> None:
        """Wake a reader of the body: the client is gone."""
        self.payload.set_exception(error)


class _Written:
    """What aiohttp takes for a response whose bytes went out."""

    async def prepare(self, request: object) -> None:
        """Do nothing: the head went out."""

    async def write_eof(self) -> None:
        """Do nothing: the body went out."""


_WRITTEN: Any = _Written()


class Turns(web.RequestHandler):
    """A connection whose requests are all answered by the one task that the connection has."""

    __slots__ = ()

    @abstractmethod
    async def answer(self, request: Request) -> bool:
        """Answer a request and write it; return whether the connection may go on."""

    @abstractmethod
    def refuse(self, code: int, error: BaseException | None) -> None:
        """Answer what ``answer`` cannot, and close."""

    async def start(self) -> None:
        """Answer requests until one was the last, then close."""
        began = 0.0
        while not self._force_close:
            if not self._messages:
                self._waiter = self._loop.create_future()
                try:
                    await self._waiter
                finally:
                    self._waiter = None
                began = monotonic()
                continue  # the client may have left between its request and this turn of the loop
            if monotonic() - began > server_limits.LOOP_BUDGET:  # pipelined requests may all be answered without a wait
                await asyncio.sleep(0)
                began = monotonic()
            message, payload = self._messages.popleft()
            late = not payload.is_eof()
            if self._parser is not None and not late:
                self._parser.message_consumed()
            if self._buffer_paused and len(self._messages) <= self._msg_queue_resume_size:
                self._resume_reading_if_drained()
            try:
                if not await self._turn(message, payload):
                    break
            except BaseException:
                self.force_close()
                raise
            if late and self._parser is not None:  # the parser counts it since its body was complete
                self._parser.message_consumed()
                self.data_received(b"")
        if not self._force_close:
            self._task_handler = None
            if self.transport is not None:
                self.transport.close()

    async def _turn(self, message: Any, payload: StreamReader) -> bool:
        """Answer one request; return whether another may follow."""
        manager = self._manager
        if manager is None:
            return False  # the connection was lost meanwhile
        manager.requests_count += 1
        request: Any = Request(message, payload)
        self._current_request = request
        self._request_in_progress = True
        kept = False
        try:
            try:
                if isinstance(message, _ErrInfo):
                    self.refuse(message.status, message.exc)
                else:
                    kept = await self.answer(request)
            except Exception as error:
                self.refuse(504 if isinstance(error, TimeoutError) else 500, error)
            if self._upgraded:  # bytes behind an upgrade that was declined are parsed as aiohttp does it
                await self.finish_response(request, _WRITTEN, None)
        except ConnectionError:
            return False
        except Exception as error:  # what could not even be refused
            self.log_exception("Unhandled exception", exc_info=error)
            self.force_close()
            return False
        finally:
            self._current_request = None
            self._request_in_progress = False
            if self._handler_waiter is not None:
                self._handler_waiter.set_result(None)
        self._keepalive = kept
        if not payload.is_eof():
            await self._linger(payload)
        if not kept or self._close or self._force_close:
            return False
        self._next_keepalive_close_time = self._loop.time() + self._keepalive_timeout
        if self._keepalive_handle is None:
            self._keepalive_handle = self._loop.call_at(self._next_keepalive_close_time, self._process_keepalive)
        return True

    async def _drain_helper(self) -> None:
        """Wait until the transport has drained. The error of a lost connection must keep no answer in memory.

        aiohttp's frame holds the future, which holds the error, which holds the frame: until the collector comes that
        keeps the frames of all callers, and what they were to send.
        """
        if self.transport is None:
            raise ConnectionResetError("the client is gone")
        if self._paused:
            if self._drain_waiter is None:
                self._drain_waiter = self._loop.create_future()
            await self._drain_waiter

    async def _linger(self, payload: StreamReader) -> None:
        """Read and ignore a body that nobody wanted, for a while: closing at once could cost the client its answer."""
        try:
            async with asyncio.timeout(self._lingering_time):
                while not payload.is_eof() and not self._force_close:
                    await payload.readany()
                    await asyncio.sleep(0)  # it may have brought the next piece at once
        except TimeoutError:
            pass
        except web.RequestPayloadError:
            self.force_close()
        except Exception as error:
            self.log_exception("Unhandled exception", exc_info=error)
            self.force_close()
        if not payload.is_eof() and not self._force_close:
            self.close()
