"""How the requests of one connection are answered in turn: aiohttp's loop, without the task that it makes for each.

Before Python 3.12 such a task costs each request two more turns of the event loop. The names with a leading underscore
are aiohttp's; each has a contract test, and the versions allowed are pinned.
"""

import asyncio
from typing import Any, cast

from aiohttp import web
from aiohttp.streams import StreamReader
from aiohttp.web_protocol import ERROR, _ErrInfo


class Turns(web.RequestHandler):
    """A connection whose requests are all answered by the one task that the connection has."""

    __slots__ = ()

    async def start(self) -> None:
        """Answer requests until one was the last, then close."""
        while not self._force_close:
            if not self._messages:
                self._waiter = self._loop.create_future()
                try:
                    await self._waiter
                finally:
                    self._waiter = None
            message, payload = self._messages.popleft()
            if self._parser is not None:
                self._parser.message_consumed()
            if self._buffer_paused and len(self._messages) <= self._msg_queue_resume_size:
                self._resume_reading_if_drained()
            try:
                if not await self._turn(message, payload):
                    break
            except BaseException:
                self.force_close()
                raise
        if not self._force_close:
            self._task_handler = None
            if self.transport is not None:
                self.transport.close()

    async def _turn(self, message: Any, payload: StreamReader) -> bool:
        """Answer one request; return whether another may follow."""
        manager, factory, handler = self._manager, self._request_factory, self._request_handler
        if manager is None or factory is None or handler is None:
            return False  # the connection was lost meanwhile
        manager.requests_count += 1
        if isinstance(message, _ErrInfo):
            handler, message = self._make_error_handler(message), ERROR
        request = factory(message, payload, cast(Any, self), cast(Any, None), cast(Any, None))
        try:
            response, reset = await self._handle_request(request, None, handler)
        except ConnectionError:
            return False
        except Exception as error:  # what handle_error could not answer
            self.log_exception("Unhandled exception", exc_info=error)
            self.force_close()
            return False
        if reset:
            return False
        self._keepalive = bool(response.keep_alive)
        if not payload.is_eof():
            await self._linger(payload)
        if not self._keepalive or self._close or self._force_close:
            return False
        self._next_keepalive_close_time = self._loop.time() + self._keepalive_timeout
        if self._keepalive_handle is None:
            self._keepalive_handle = self._loop.call_at(self._next_keepalive_close_time, self._process_keepalive)
        return True

    async def _linger(self, payload: StreamReader) -> None:
        """Read and ignore a body that nobody wanted, for a while: closing at once could cost the client its answer."""
        try:
            async with asyncio.timeout(self._lingering_time):
                while not payload.is_eof() and not self._force_close:
                    await payload.readany()
        except TimeoutError:
            pass
        except Exception as error:  # the body is no valid one
            self.log_exception("Unhandled exception", exc_info=error)
            self.force_close()
        if not payload.is_eof() and not self._force_close:
            self.close()

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Do nothing: the answer is out. Bytes behind an upgrade that was declined are parsed as aiohttp does it."""
        return await super().finish_response(request, resp, start_time) if self._upgraded else (resp, False)
