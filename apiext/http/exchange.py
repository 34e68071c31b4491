"""One request and its answer as the core sees them: no type of the HTTP library, no socket."""

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol
from urllib.parse import unquote, unquote_to_bytes

from apiext import limits
from apiext.audit.events import Trail
from apiext.auth import impersonation
from apiext.auth.user import ANONYMOUS, User
from apiext.http.sinks import WatchSink
from apiext.meta.requestinfo import RequestInfo

Query = Mapping[str, Sequence[str]]
_NO_ESCAPE = re.compile("%(?![0-9a-fA-F]{2})")


class Headers(Protocol):
    """Request headers; names are matched without regard to case."""

    def get(self, name: str, default: str = "", /) -> str:
        """Return the first value of a header."""

    def items(self) -> Iterable[tuple[str, str]]:
        """Return every header with its value, repeated ones as often as they were sent."""


class Sender:
    """What the headers of a request say of who sends it; those that came before on a connection are not read again.

    ``manager`` is the manager name that the User-Agent implies: its text up to the first slash. ``acts``: as somebody
    else. ``packed``: its body is, so that nobody here reads it. ``places`` are the origins of the page that it is
    (http.pages), by whether a request writes.
    """

    __slots__ = ("accept", "acts", "agent", "audit_id", "authorization", "manager", "packed", "places")

    def __init__(self, headers: Headers) -> None:
        self.accept = headers.get("Accept", "")
        self.agent = headers.get("User-Agent", "")
        self.audit_id = headers.get("Audit-Id", "")
        self.authorization = headers.get("Authorization", "")
        self.manager = self.agent.partition("/")[0]
        self.acts = impersonation.is_meant(headers)
        content = headers.get("Content-Encoding", "identity").strip().lower()
        transfer = headers.get("Transfer-Encoding", "chunked").strip().lower()
        self.packed = content not in {"", "identity"} or transfer != "chunked"
        self.places: dict[bool, str] = {}


class Connection(Protocol):
    """What the core may ask of the connection that a request came on."""

    certificate_user: User | None
    is_proxy: bool
    is_allowed_page: bool  # whether --cors-allowed-origins names where the request comes from

    async def read_body(self, limit: int) -> bytes:
        """Return the body; raises StatusError 413 over ``limit`` bytes, 408 when it does not come."""

    def origin(self) -> tuple[str, str]:
        """Return the request target as it was sent, and the address of the client."""

    def open_stream(self, head: bytes, columns: bytes, kind: type[WatchSink] = WatchSink) -> WatchSink:
        """Return the sink of a watch; ``columns`` go into its first event if that is a Table."""


@dataclass(slots=True)
class Reply:
    """A complete answer: status code, content type, more header lines, and the body in parts.

    ``parts`` are joined on the wire without being copied together first. ``compressible`` says whether gzip may be
    applied.
    """

    code: int
    content_type: str = "application/json"
    parts: Sequence[bytes] = ()
    headers: list[tuple[str, str]] = field(default_factory=list)
    compressible: bool = False

    @property
    def size(self) -> int:
        """Bytes of the body."""
        return sum(map(len, self.parts))


@dataclass(slots=True)
class StreamReply:
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
    as upstream. ``trail`` is what the audit log is to be told, if anything.
    """

    __slots__ = (
        "audit_id",
        "connection",
        "deadline",
        "given",
        "headers",
        "info",
        "labels",
        "long_running",
        "method",
        "path",
        "query",
        "sender",
        "started",
        "trail",
        "user",
        "warnings",
    )

    def __init__(
        self, method: str, target: str, headers: Headers, connection: Connection, started: float, sender: Sender
    ) -> None:
        self.method = method
        self.path, self.query = split_target(target)
        self.headers = headers
        self.sender = sender
        self.connection = connection
        self.started = started
        self.audit_id = ""
        self.user: User = ANONYMOUS
        self.info: RequestInfo | None = None
        self.deadline = 0.0
        self.given = 0.0
        self.long_running = False
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


def split_target(target: str) -> tuple[str, Query]:
    """Return the decoded path and the query of a request target; an absolute-form target loses its host.

    A path with an escape that is none is empty.
    """
    path, _, text = target.partition("?")
    if not path.startswith("/"):
        path = _without_host(path)
    if "%" in path:
        path = "" if _NO_ESCAPE.search(path) else unquote(path)
    return path, _query(text) if text and text.count("&") < limits.QUERY_PARAMETERS else {}


def _query(text: str) -> Query:
    """Return what parse_qs(text, keep_blank_values=True) does, at a third of its cost, without what is malformed."""
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
    """Return a name or value without its escapes, of which none is malformed."""
    text = text.replace("+", " ").replace("%3D", "=").replace("%2C", ",")  # the last two: what selectors are full of
    if "%" not in text:
        return text
    return unquote_to_bytes(text).decode("utf-8", "replace") if text.isascii() else unquote(text)


def _without_host(target: str) -> str:
    scheme, mark, rest = target.partition("://")
    if not mark or scheme not in {"http", "https"}:
        return target
    slash = rest.find("/")
    return rest[slash:] if slash >= 0 else "/"
