"""Requests and responses for filters and handlers, without types of the HTTP library."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol
from urllib.parse import unquote, unquote_to_bytes

from msgspec import Struct, field

from apiext.audit.events import Trail
from apiext.auth import impersonation
from apiext.auth.authentication import Holder
from apiext.auth.user import ANONYMOUS, User
from apiext.http import limits
from apiext.http.sinks import WatchSink
from apiext.meta import requestinfo

Query = Mapping[str, Sequence[str]]
_NO_ESCAPE = re.compile("%(?![0-9a-fA-F]{2})")


class Headers(Protocol):
    """Request headers; names are case-insensitive."""

    def get(self, name: str, default: str = "", /) -> str:
        """Return the first value of a header."""

    def items(self) -> Iterable[tuple[str, str]]:
        """Return every header with its value; a repeated header is returned repeatedly."""


class Sender:
    """Parsed headers that describe a client.

    A connection reuses a Sender while requests have equal headers. ``manager`` is the field manager that the User-Agent
    implies: the text before its first slash. ``impersonates`` is true if the headers request an impersonation.
    ``packed`` is true if the body has an encoding that the server does not decode. ``pages`` caches the
    origin of the web page that may have sent the requests, "" for none (see browsers.py). Its key is True for writes
    and False for reads.
    """

    __slots__ = ("accept", "agent", "audit_id", "authorization", "impersonates", "manager", "packed", "pages")

    def __init__(self, headers: Headers) -> None:
        self.accept = headers.get("Accept", "")
        self.agent = headers.get("User-Agent", "")
        self.audit_id = headers.get("Audit-Id", "")
        self.authorization = headers.get("Authorization", "")
        self.manager = self.agent.partition("/")[0]
        self.impersonates = impersonation.is_requested(headers)
        content = headers.get("Content-Encoding", "identity").strip().lower()
        transfer = headers.get("Transfer-Encoding", "chunked").strip().lower()
        self.packed = content not in {"", "identity"} or transfer != "chunked"
        self.pages: dict[bool, str] = {}


class Head:
    """The head of a request."""

    __slots__ = ("headers", "info", "method", "path", "query", "sender")

    def __init__(self, method: str, target: str, headers: Headers, sender: Sender) -> None:
        self.method = method
        self.path, self.query = split_target(target)
        self.headers = headers
        self.sender = sender
        self.info = requestinfo.parse(method, self.path, self.query)


def split_target(target: str) -> tuple[str, Query]:
    """Return the decoded path and the query of a request target.

    An absolute-form target is a URL; its scheme and host are dropped. The path is empty if it has a malformed percent
    escape. The query is empty if it has more than limits.QUERY_PARAMETERS parameters.
    """
    path, _, text = target.partition("?")
    if not path.startswith("/"):
        path = _without_host(path)
    if "%" in path:
        path = "" if _NO_ESCAPE.search(path) else unquote(path)
    return path, _query(text) if text and text.count("&") < limits.QUERY_PARAMETERS else {}


def _query(text: str) -> Query:
    """Parse a query as parse_qs(text, keep_blank_values=True) does, but faster.

    Unlike parse_qs, drop parts that have a malformed escape or a semicolon.
    """
    found: dict[str, list[str]] = {}
    for part in text.split("&"):
        name, _, value = part.partition("=")
        if "%" in part or "+" in part:
            if _NO_ESCAPE.search(part):
                continue
            name, value = _unquoted(name), _unquoted(value)
        if part and ";" not in part:
            found.setdefault(name, []).append(value)
    return found


def _unquoted(text: str) -> str:
    """Decode a name or value that has no malformed escapes."""
    text = text.replace("+", " ").replace("%3D", "=").replace("%2C", ",")  # the last two are frequent in selectors
    if "%" not in text:
        return text
    return unquote_to_bytes(text).decode("utf-8", "replace") if text.isascii() else unquote(text)


def _without_host(target: str) -> str:
    scheme, mark, rest = target.partition("://")
    if not mark or scheme not in {"http", "https"}:
        return target
    slash = rest.find("/")
    return rest[slash:] if slash >= 0 else "/"


class Connection(Protocol):
    """The connection of a request."""

    holder: Holder | None  # the client that a certificate names; None without a client certificate
    is_allowed_page: bool  # true if --cors-allowed-origins matches the Origin of the request
    waiting: asyncio.Future[None] | None  # a future that the request awaits; it fails if the client disconnects

    def declared_size(self) -> int:
        """Return the declared size of the body, 0 if all of it has arrived.

        Return MAX_BODY if the head declares no size.
        """

    async def read_body(self, limit: int) -> bytes:
        """Return the body.

        Raise a 413 over ``limit`` bytes, a 408 if it arrives too late, a 400 if it is malformed.
        """

    def origin(self) -> tuple[str, str]:
        """Return the request target as it was sent, and the address of the client."""

    def open_stream(
        self, head: bytes, columns: bytes, kind: type[WatchSink] = WatchSink, unread: int = limits.WATCH_HIGH_WATER
    ) -> WatchSink:
        """Return the sink of a watch, to which the caller writes events.

        The sink sends ``head`` before them. The sink inserts ``columns`` into the first event that is a Table.
        The watch pauses while more than ``unread`` bytes wait until the client reads them.
        """


class Reply(Struct):
    """A complete response: status code, content type, further headers, and the body in parts.

    ``parts`` are sent one after the other, without being joined. ``compressible`` is true if the server may compress
    the body. ``shared`` is true if other responses have the same bytes, so that a slow client needs no further memory.
    """

    code: int
    content_type: str = "application/json"
    parts: Sequence[bytes] = ()
    headers: list[tuple[str, str]] = field(default_factory=list)
    compressible: bool = False
    shared: bool = False

    @property
    def size(self) -> int:
        """Bytes of the body."""
        return sum(map(len, self.parts))


class StreamReply(Struct):
    """A response that lasts until ``stream`` ends; the storage layer writes to the stream."""

    stream: WatchSink
    code: int = 200


Answer = Reply | StreamReply


class Labels(NamedTuple):
    """The metric labels of a request."""

    verb: str
    group: str
    version: str
    resource: str
    subresource: str
    scope: str
    component: str = "apiserver"


class Exchange:
    """A request with the results of the filters.

    - ``given`` is the client's timeout in seconds, 0 for no limit.
    - ``labels`` are the metric labels. Routes set them only for known paths, so that clients cannot create labels by
      unknown URLs. As upstream, a request without labels is not counted.
    - ``promised`` is the reserved memory in bytes (http.memory).
    - ``trail`` is the audit trail, or None if the request is not audited.
    """

    __slots__ = (
        "audit_id",
        "connection",
        "deadline",
        "given",
        "head",
        "headers",
        "info",
        "labels",
        "long_running",
        "method",
        "path",
        "promised",
        "query",
        "sender",
        "started",
        "trail",
        "user",
        "warnings",
    )

    def __init__(self, head: Head, connection: Connection, started: float) -> None:
        self.head = head
        self.method = head.method
        self.path = head.path
        self.query = head.query
        self.headers = head.headers
        self.sender = head.sender
        info = self.info = head.info
        self.long_running = info.is_resource and info.verb == "watch"
        self.connection = connection
        self.started = started
        self.audit_id = ""
        self.user: User = ANONYMOUS
        self.deadline = 0.0
        self.given = 0.0
        self.promised = 0
        self.warnings: list[str] = []
        self.trail: Trail | None = None
        self.labels: Labels | None = None

    @property
    def dry_run(self) -> str:
        """The dryRun parameter as a metric label."""
        values = self.query.get("dryRun", ()) if self.query else ()
        if not values:
            return ""
        return "All" if set(values) == {"All"} else "invalid"

    @property
    def accept(self) -> str:
        """The Accept header."""
        return self.sender.accept

    def value(self, name: str) -> str:
        """Return the first value of a query parameter, empty if it is absent."""
        values = self.query.get(name)
        return values[0] if values else ""


Handler = Callable[[Exchange], Awaitable[Answer]]
