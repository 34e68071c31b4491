"""One request and its answer as the core sees them: no type of the HTTP library, no socket."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple, Protocol

from msgspec import Struct, field

from apiext.audit.events import Trail
from apiext.auth.authentication import Holder
from apiext.auth.user import ANONYMOUS, User
from apiext.http import limits
from apiext.http.heads import Head
from apiext.http.sinks import WatchSink


class Connection(Protocol):
    """What the core may ask of the connection that a request came on."""

    holder: Holder | None  # of the client certificate
    is_allowed_page: bool  # whether --cors-allowed-origins names where the request comes from
    waiting: asyncio.Future[None] | None  # what its request waits for, as long as the client is there

    def declared_size(self) -> int:
        """Return how many bytes of a body are still to come, MAX_BODY if the head does not tell."""

    async def read_body(self, limit: int) -> bytes:
        """Return the body; raises StatusError 413 over ``limit`` bytes, 408 when it does not come."""

    def origin(self) -> tuple[str, str]:
        """Return the request target as it was sent, and the address of the client."""

    def open_stream(
        self, head: bytes, columns: bytes, kind: type[WatchSink] = WatchSink, unread: int = limits.WATCH_HIGH_WATER
    ) -> WatchSink:
        """Return the sink of a watch; ``columns`` go into its first event if that is a Table."""


class Reply(Struct):
    """A complete answer: status code, content type, more header lines, and the body in parts.

    ``parts`` are joined on the wire without being copied together first. ``compressible`` says whether gzip may be
    applied. ``shared`` tells that other answers consist of the same bytes, so that a slow client holds none for itself.
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
    """An answer that goes on until ``stream`` ends; the verbs write to it."""

    stream: WatchSink
    code: int = 200


Answer = Reply | StreamReply


class Labels(NamedTuple):
    """What metrics show of a request."""

    verb: str
    group: str
    version: str
    resource: str
    subresource: str
    scope: str
    component: str = "apiserver"


class Exchange:
    """A request on its way through the filters; each filter adds what it found out.

    ``given`` are the seconds that the client gives it, 0 for no limit. ``labels`` are what metrics show of it; routes
    set them once it is known what is asked for, so that no URL can make up new ones, and what has none is not counted,
    as upstream. ``promised`` are the bytes of memory that it may take (http.memory). ``trail`` is what the audit log is
    to be told, if anything.
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
        """The dryRun parameter as metrics label it."""
        asked = self.query.get("dryRun", ()) if self.query else ()
        if not asked:
            return ""
        return "All" if set(asked) == {"All"} else "invalid"

    @property
    def accept(self) -> str:
        """The Accept header."""
        return self.sender.accept

    def value(self, name: str) -> str:
        """Return the first value of a query parameter, empty when it is absent."""
        values = self.query.get(name)
        return values[0] if values else ""


Handler = Callable[[Exchange], Awaitable[Answer]]
