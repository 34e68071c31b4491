"""Watches as server-sent events, for browsers and curl.

Each event is a ``data:`` line. Last-Event-ID resumes a watch.
"""

from collections.abc import Mapping, Sequence

from apiext.http.exchange import Exchange, Query
from apiext.http.negotiation import JSON, parse_accept
from apiext.http.sinks import chunk
from apiext.http.streams import Form

MEDIA_TYPE = "text/event-stream"


def is_wanted(accept: str) -> bool:
    """Report whether the first choice of a client is server-sent events.

    A wildcard does not select them.
    """
    if MEDIA_TYPE not in accept:
        return False
    clauses = parse_accept(accept)
    return bool(clauses) and (clauses[0].type, clauses[0].subtype) == ("text", "event-stream")


def accept(header: str) -> str:
    """Return the Accept header for the content of the ``data:`` lines (``;as=Table`` and so on)."""
    return header.replace(MEDIA_TYPE, JSON)


def query(exchange: Exchange) -> Query:
    """Return the query of a stream that a client can resume by Last-Event-ID.

    Last-Event-ID overrides resourceVersion. If the request has neither, or has resourceVersion=0, the stream begins
    with the existing objects, unless the query has sendInitialEvents. The stream always has bookmarks, since a client
    can resume from the revision of a bookmark. A client that did not request bookmarks gets only the id of a bookmark.
    """
    found: dict[str, Sequence[str]] = {**exchange.query, "allowWatchBookmarks": ["true"]}
    last = exchange.headers.get("Last-Event-ID", "")
    if last.isascii() and last.isdigit():
        found["resourceVersion"] = [last]
        found.pop("sendInitialEvents", None)
        found.pop("resourceVersionMatch", None)
    elif exchange.value("resourceVersion") in ("", "0") and "sendInitialEvents" not in found:
        found["sendInitialEvents"] = ["true"]
        found["resourceVersionMatch"] = ["NotOlderThan"]
    return found


def form(query: Mapping[str, Sequence[str]]) -> Form:
    """Return the encoding of events; ``query`` is the query of the client."""
    bookmarks = query.get("allowWatchBookmarks", ["false"])[0] in ("true", "1")
    ends = bookmarks and query.get("sendInitialEvents", ["false"])[0] in ("true", "1")

    def bookmark(data: bytes, revision: int, end: bool) -> bytes:
        return _event(data, revision) if (ends if end else bookmarks) else chunk(b"id: %d\n\n" % revision)

    return Form(
        key=("events", bookmarks, ends),
        event=_event,
        initial=_without_id,
        bookmark=bookmark,
        # the empty id makes the client reconnect without a revision
        error=lambda data: chunk(b"id\ndata: %b\n\n" % data),
        content_type=MEDIA_TYPE,
    )


def _event(data: bytes, revision: int) -> bytes:
    return chunk(b"id: %d\ndata: %b\n\n" % (revision, data))


def _without_id(data: bytes, revision: int) -> bytes:
    return chunk(b"data: %b\n\n" % data)  # initial events are sorted by name, so none is a point to resume from
