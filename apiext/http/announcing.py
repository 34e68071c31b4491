"""Headers that answers carry beside their own: what pages of other origins may do, and that TLS is a must (LIM-005)."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from apiext.auth.authentication import Holder
from apiext.config import HeaderConfig
from apiext.http import limits
from apiext.http.exchange import Answer, Connection, Exchange, Handler, Reply
from apiext.http.gate import Gate
from apiext.http.sinks import WatchSink
from apiext.http.websocket import WebSocketSink
from apiext.schema import patterns

HSTS = "Strict-Transport-Security"
_CORS = (
    ("Access-Control-Allow-Methods", "POST, GET, OPTIONS, PUT, DELETE, PATCH"),
    (
        "Access-Control-Allow-Headers",
        "Content-Type, Content-Length, Accept-Encoding, X-CSRF-Token, Authorization, X-Requested-With, "
        "If-Modified-Since",
    ),
    ("Access-Control-Expose-Headers", "Date"),
    ("Access-Control-Allow-Credentials", "true"),
)

Lines = list[tuple[str, str]]
Announce = Callable[[Gate, Handler, Exchange], Awaitable[Answer]]


def secure(config: HeaderConfig, *, tls: bool) -> Lines:
    """Return the header that all answers carry with TLS, if one is wanted."""
    return [(HSTS, "; ".join(config.hsts))] if config.hsts and tls else []


def written(lines: Lines) -> bytes:
    """Return headers as they go out."""
    return "".join(f"{name}: {value}\r\n" for name, value in lines).encode("latin-1", "replace")


def announcing(config: HeaderConfig, *, tls: bool) -> Announce | None:
    """Return the filter that adds headers to answers; None when there are none to add."""
    always, allowed = secure(config, tls=tls), [patterns.searcher(origin) for origin in config.cors_origins]
    if not always and not allowed:
        return None

    async def announce(gate: Gate, handler: Handler, exchange: Exchange) -> Answer:
        lines = always + _of_origin(exchange.headers.get("Origin", ""), allowed)
        if exchange.method == "OPTIONS" and len(lines) > len(always):
            return Reply(204, "", headers=lines)
        if lines:
            exchange.connection = _Announcing(exchange.connection, lines, len(lines) > len(always))
        reply = await handler(exchange)
        if isinstance(reply, Reply):
            reply.headers = [*reply.headers, *lines]
        return reply

    return announce


def _of_origin(origin: str, allowed: Sequence[Callable[[str], bool]]) -> Lines:
    if not origin or len(origin) > limits.MAX_ORIGIN or not any(matches(origin) for matches in allowed):
        return []
    return [("Access-Control-Allow-Origin", origin), *_CORS]


class _Announcing:
    """A connection whose watches begin with some headers more; a WebSocket's do not, as upstream's do not."""

    def __init__(self, inner: Connection, lines: Lines, is_allowed_page: bool) -> None:
        self._inner = inner
        self.is_allowed_page = is_allowed_page
        self._lines = written(lines)
        self.holder: Holder | None = inner.holder

    @property
    def waiting(self) -> asyncio.Future[None] | None:
        """What the request waits for, as long as the client is there."""
        return self._inner.waiting

    @waiting.setter
    def waiting(self, waiting: asyncio.Future[None] | None) -> None:
        self._inner.waiting = waiting

    def declared_size(self) -> int:
        """Return how many bytes of a body are still to come, MAX_BODY if the head does not tell."""
        return self._inner.declared_size()

    async def read_body(self, limit: int) -> bytes:
        """Return the body."""
        return await self._inner.read_body(limit)

    def origin(self) -> tuple[str, str]:
        """Return the request target as it was sent, and the address of the client."""
        return self._inner.origin()

    def open_stream(
        self, head: bytes, columns: bytes, kind: type[WatchSink] = WatchSink, unread: int = limits.WATCH_HIGH_WATER
    ) -> WatchSink:
        """Return the sink of a watch."""
        if not issubclass(kind, WebSocketSink):
            start, end, rest = head.partition(b"\r\n")
            head = b"".join((start, end, self._lines, rest))
        return self._inner.open_stream(head, columns, kind, unread)
