"""What the head of a request says by itself, whatever is served: no type of the HTTP library, no socket."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol
from urllib.parse import unquote, unquote_to_bytes

from apiext.auth import impersonation
from apiext.http import limits
from apiext.meta import requestinfo

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
