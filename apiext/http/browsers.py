"""Requests of web pages: cross-origin checks, CORS and Strict-Transport-Security (LIM-005).

Pages of other origins must not use a server without authentication (--insecure) through the browser of its user. Writes
are checked as in net/http.CrossOriginProtection of Go 1.25, by the headers Origin and Sec-Fetch-Site, which only
browsers send. With DNS rebinding, a page's own host name resolves to this machine, and browsers send no
Sec-Fetch-Site. So the server also rejects reads and writes without Sec-Fetch-Site whose Host header may be a registered
domain, even requests of programs.
"""

import asyncio
import re
import socket
from collections.abc import Awaitable, Callable, Sequence
from ipaddress import ip_address
from typing import TYPE_CHECKING

from apiext.auth.authentication import Holder
from apiext.auth.authorization import is_public
from apiext.config import HeaderConfig
from apiext.http import limits
from apiext.http.exchange import Answer, Connection, Exchange, Handler, Headers, Reply
from apiext.http.header_flags import origin_matchers
from apiext.http.sinks import WatchSink
from apiext.http.websocket import WebSocketSink
from apiext.meta.status import StatusError

if TYPE_CHECKING:
    from apiext.http.filters import Gate

HSTS = "Strict-Transport-Security"
Check = Callable[[Exchange], None]
Lines = list[tuple[str, str]]
AddHeaders = Callable[["Gate", Handler, Exchange], Awaitable[Answer]]

_SAFE = frozenset(("GET", "HEAD", "OPTIONS"))
_SAME_ORIGIN = frozenset(("same-origin", "none"))  # values of Sec-Fetch-Site
_UNREGISTRABLE = (".localhost", ".internal")  # RFC 6761, and ICANN's resolution of 2024
_PORT = re.compile("(:[0-9]*)?")
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


# --- protection of a server without authentication ---


def cross_origin_check(origins: Sequence[str]) -> Check:
    """Return a check: it raises a 403 for requests that may come from pages of other origins.

    ``origins`` are the patterns of allowed origins. Public paths (health and version) are not checked.
    """
    allowed = origin_matchers(origins)

    def check(exchange: Exchange) -> None:
        writes, cached = exchange.method not in _SAFE, exchange.sender.pages
        if writes not in cached:
            cached[writes] = _page_origin(exchange.headers, writes)
        origin = cached[writes]
        if origin and not any(matches(origin) for matches in allowed) and not is_public(exchange.path):
            raise StatusError(
                403,
                "Forbidden",
                f"forbidden: {_foreign_host(exchange.headers) or f'a page of {origin}'} may not call a server without "
                "authentication, unless --cors-allowed-origins names it",
            )

    return check


def _foreign_host(headers: Headers) -> str:
    host = headers.get("Host", "")
    return "" if is_local_host(host) else f"a request for http://{host}, which may be a page's name for this machine,"


def _page_origin(headers: Headers, writes: bool) -> str:
    """Return the foreign origin of the page that may have sent a request.

    The result is empty if there is no such page. If the request has Sec-Fetch-Site, the result is empty for a read.
    Without this header, a Host header that is not local counts as the origin of a page, even if a program has sent the
    request.
    """
    if site := headers.get("Sec-Fetch-Site", ""):
        if writes and site not in _SAME_ORIGIN:
            return headers.get("Origin", "") or f"another origin ({site})"
        return ""
    host = headers.get("Host", "")
    origin = headers.get("Origin", "") if writes else ""
    if origin and origin.lower().partition("://")[2] != host.lower():
        return origin
    return "" if is_local_host(host) else origin or f"http://{host}"


def is_local_host(host: str) -> bool:
    """Report whether a Host header is an address or a local name.

    No page of another origin can have a local name: it has no dot, cannot be registered, or is the name of this
    machine.
    """
    name, rest = host.lower(), ""
    if name.startswith("["):
        name, mark, rest = name[1:].partition("]")
        return bool(mark and _PORT.fullmatch(rest) and _is_address(name))
    name, mark, rest = name.partition(":")
    name = name.removesuffix(".")
    if _PORT.fullmatch(mark + rest) is None:
        return False
    return "." not in name or name.endswith(_UNREGISTRABLE) or _is_address(name) or name == socket.gethostname().lower()


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True


# --- headers for browsers ---


def secure(config: HeaderConfig, *, tls: bool) -> Lines:
    """Return the header Strict-Transport-Security, or no header without TLS or without the flag."""
    return [(HSTS, "; ".join(config.hsts))] if config.hsts and tls else []


def written(lines: Lines) -> bytes:
    """Encode headers as lines of HTTP/1.1."""
    return "".join(f"{name}: {value}\r\n" for name, value in lines).encode("latin-1", "replace")


def header_filter(config: HeaderConfig, *, tls: bool) -> AddHeaders | None:
    """Return the filter that adds headers to responses; None if no such header is configured."""
    always, allowed = secure(config, tls=tls), origin_matchers(config.cors_origins)
    if not always and not allowed:
        return None

    async def add_headers(gate: "Gate", handler: Handler, exchange: Exchange) -> Answer:
        lines = always + _cors(exchange.headers.get("Origin", ""), allowed)
        if exchange.method == "OPTIONS" and len(lines) > len(always):
            return Reply(204, "", headers=lines)
        if lines:
            exchange.connection = _WithHeaders(exchange.connection, lines, len(lines) > len(always))
        reply = await handler(exchange)
        if isinstance(reply, Reply):
            reply.headers = [*reply.headers, *lines]
        return reply

    return add_headers


def _cors(origin: str, allowed: Sequence[Callable[[str], bool]]) -> Lines:
    if not origin or len(origin) > limits.MAX_ORIGIN or not any(matches(origin) for matches in allowed):
        return []
    return [("Access-Control-Allow-Origin", origin), *_CORS]


class _WithHeaders:
    """A connection that adds headers to the head of a watch.

    As in upstream, it adds none to the head of a WebSocket.
    """

    def __init__(self, inner: Connection, lines: Lines, is_allowed_page: bool) -> None:
        self._inner = inner
        self.is_allowed_page = is_allowed_page
        self._lines = written(lines)
        self.holder: Holder | None = inner.holder

    @property
    def waiting(self) -> asyncio.Future[None] | None:
        """The future that the request awaits; it fails if the client disconnects."""
        return self._inner.waiting

    @waiting.setter
    def waiting(self, waiting: asyncio.Future[None] | None) -> None:
        self._inner.waiting = waiting

    def declared_size(self) -> int:
        """Return the declared size of the body; see exchange.Connection."""
        return self._inner.declared_size()

    async def read_body(self, limit: int) -> bytes:
        """Return the body; see exchange.Connection."""
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
