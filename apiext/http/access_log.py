"""The access log: a log line for each request, with --v=2 or more.

A thread writes the lines, so that a blocked terminal blocks no request.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from apiext import logs
from apiext.audit.threads import Worker
from apiext.http import limits
from apiext.http.exchange import Answer, Exchange, Handler, Reply
from apiext.http.filters import Gate

LOGGER = __name__


class AccessLog:
    """Writes lines to a file descriptor, and drops lines that exceed its buffer.

    A line is dropped and counted if more than limits.ACCESS_HELD bytes would wait.
    """

    def __init__(self, descriptor: int, form: "logs.JsonLines | logs.TextLines") -> None:
        self._descriptor = descriptor
        self._form = form
        self._worker = Worker("access log")
        self._lines: list[bytes] = []
        self._held = 0
        self._lost = 0
        self._scheduled: asyncio.Handle | None = None
        self._writing: asyncio.Future[None] | None = None

    def put(self, line: dict[str, Any], started: float) -> None:
        """Queue the line of a request that ends now.

        ``started`` is the time of the event loop at which the request began.
        """
        took = round((time.monotonic() - started) * 1000, 3)  # loop.time() is older: the event loop caches it
        text = self._text("info", f"{line.get('method')} {line.get('uri')}", {**line, "milliseconds": took})
        if self._held and self._held + len(text) > limits.ACCESS_HELD:
            self._lost += 1
            return
        self._lines.append(text)
        self._held += len(text)
        if self._scheduled is None and self._writing is None:
            self._scheduled = asyncio.get_running_loop().call_soon(self._next)

    async def stop(self) -> None:
        """Write the queued lines, for at most ACCESS_FLUSH seconds."""
        if self._scheduled is not None:
            self._scheduled.cancel()
            self._next()
        until = asyncio.get_running_loop().time() + limits.ACCESS_FLUSH
        while self._writing is not None and (left := until - asyncio.get_running_loop().time()) > 0:
            await asyncio.wait([self._writing], timeout=left)
            await asyncio.sleep(0)  # run the callback of the write, which starts the next write
        self._worker.stop()

    def _next(self) -> None:
        self._scheduled = None
        if self._lost:
            text = "requests not logged"
            self._lines.append(self._text("warning", text, {"event": text, "count": self._lost}))
            self._lost = 0
        lines, self._lines = b"".join(self._lines), []
        self._writing = self._worker.run(lambda: self._write(lines))
        self._writing.add_done_callback(self._written)

    def _text(self, level: str, message: str, more: dict[str, Any]) -> bytes:
        return self._form.line(time.time(), level, LOGGER, message, more).encode() + b"\n"

    def _write(self, lines: bytes) -> None:
        logs.write_to(self._descriptor, lines)

    def _written(self, done: asyncio.Future[None]) -> None:
        done.exception()  # marks a failed write as seen; it cannot be logged if standard error is closed
        self._writing = None
        self._held = sum(map(len, self._lines))
        if self._lines:
            self._next()


def logging_to(log: AccessLog) -> Callable[[Gate, Handler, Exchange], Awaitable[Answer]]:
    """Return the filter that logs a request after its handler, and a watch after its end."""

    async def access(_: Gate, handler: Handler, exchange: Exchange) -> Answer:
        try:
            reply = await handler(exchange)
        except BaseException:  # the client has disconnected, or the server ends
            log.put(_line(exchange, None), exchange.started)
            raise
        line, started = _line(exchange, reply.code), exchange.started
        if isinstance(reply, Reply):
            log.put(line | {"bytes": reply.size}, started)
        else:  # a watch; the callback must not keep the exchange in memory until the watch ends
            reply.stream.done.add_done_callback(lambda _: log.put(line, started))
        return reply

    return access


def _line(exchange: Exchange, code: int | None) -> dict[str, Any]:
    """Return the fields of a line; ``code`` is None if there is no response."""
    target, address = exchange.connection.origin()
    return {
        "event": "request",
        "verb": exchange.info.verb,
        "method": exchange.method,
        "uri": target,
        "code": code,
        "user": exchange.user.name,
        "userAgent": exchange.headers.get("User-Agent", ""),
        "source": address,
        "auditID": exchange.audit_id,
    }
