"""Compression of watches with initial events and bookmarks, for clients that accept gzip."""

from __future__ import annotations

import contextlib
import json
import zlib
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import urlencode

import pytest

from apiext.conformance.support.definitions import serve
from apiext.conformance.support.http_client import Client

FIRST = {"allowWatchBookmarks": "true", "sendInitialEvents": "true", "resourceVersionMatch": "NotOlderThan"}
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"


Open = Callable[..., Any]
ONE_MEMBER = pytest.mark.differs("each write of a compressed watch is a gzip member of its own")


@pytest.fixture
def opened(api: Client) -> Iterator[Open]:
    """Yield a function that opens a watch and returns the answer."""
    with contextlib.ExitStack() as connections:

        def ask(path: str, query: dict[str, str], accepts: str, **headers: str) -> Any:
            connection = api.connect(20)
            connections.callback(connection.close)
            sent = {"Accept-Encoding": accepts} if accepts else {}
            target = f"{path}?{urlencode({'watch': 'true', **query})}"
            connection.putrequest("GET", target, skip_accept_encoding=True)
            for name, value in {**api.headers, **sent, **headers}.items():
                connection.putheader(name, value)
            connection.endheaders()
            return connections.enter_context(connection.getresponse())

        yield ask


class Events:
    """The events of a compressed watch; one decompressor reads them, as in simple clients."""

    def __init__(self, answer: Any) -> None:
        self._answer = answer
        self._inflate = zlib.decompressobj(31)
        self._text = b""

    def next(self) -> Any:
        while b"\n" not in self._text:
            piece = self._answer.read1(65536)
            assert piece, "the stream has ended"
            self._text += self._inflate.decompress(piece)
        line, _, self._text = self._text.partition(b"\n")
        return json.loads(line)

    def rest(self) -> bytes:
        self._text += self._inflate.decompress(self._answer.read())
        assert self._inflate.eof, "the member is not complete"
        return self._text


@ONE_MEMBER
@pytest.mark.rows("RV-013", "RV-021")
@pytest.mark.parametrize("query", [FIRST, {"allowWatchBookmarks": "true", "resourceVersion": "0"}])
def test_a_watch_that_begins_with_the_current_objects_is_compressed(
    api: Client, opened: Open, query: dict[str, str]
) -> None:
    widgets = serve(api)
    widgets.create("a")
    answer = opened(widgets.path(), {**query, "timeoutSeconds": "3"}, "deflate, gzip")
    assert (answer.status, answer.headers["Content-Encoding"]) == (200, "gzip")
    assert answer.headers["Vary"] == "Accept-Encoding"
    events = Events(answer)
    assert [events.next()["type"], events.next()["type"]] == ["ADDED", "BOOKMARK"]
    for name in ("b", "c"):
        widgets.create(name)
        assert events.next()["object"]["metadata"]["name"] == name
    events.rest()


@pytest.mark.rows("RV-013", "RV-021", "TAB-005")
def test_a_compressed_table_has_its_columns_once(api: Client, opened: Open) -> None:
    widgets = serve(api)
    widgets.create("a")
    widgets.create("b")
    answer = opened(widgets.path(), {**FIRST, "timeoutSeconds": "1"}, "gzip", Accept=TABLE)
    events = [json.loads(line) for line in Events(answer).rest().splitlines()]
    assert [bool(event["object"]["columnDefinitions"]) for event in events[:3]] == [True, False, False]


@ONE_MEMBER
@pytest.mark.rows("RV-021")
def test_watchers_of_one_group_are_sent_the_same_events(api: Client, opened: Open) -> None:
    widgets = serve(api)
    watches = [Events(opened(widgets.path(), {**FIRST, "timeoutSeconds": "5"}, "gzip")) for _ in range(5)]
    assert {events.next()["type"] for events in watches} == {"BOOKMARK"}
    for name in ("a", "b"):
        widgets.create(name)
        assert {events.next()["object"]["metadata"]["name"] for events in watches} == {name}


@pytest.mark.rows("RV-021")
@pytest.mark.parametrize(("query", "accepts"), [
    (FIRST, ""),
    (FIRST, "br, deflate"),
    ({"allowWatchBookmarks": "true", "resourceVersion": "1"}, "gzip"),
    ({"resourceVersion": "0"}, "gzip"),
    ({"allowWatchBookmarks": "true", "sendInitialEvents": "false", "resourceVersionMatch": "NotOlderThan"}, "gzip"),
])  # fmt: skip
def test_other_watches_are_plain(api: Client, opened: Open, query: dict[str, str], accepts: str) -> None:
    widgets = serve(api)
    made = widgets.create("a")["metadata"]["resourceVersion"]
    if query.get("resourceVersion") == "1":
        query = {**query, "resourceVersion": made}
    answer = opened(widgets.path(), {**query, "timeoutSeconds": "1"}, accepts)
    assert (answer.status, answer.headers["Content-Encoding"]) == (200, None)
    assert all(json.loads(line)["type"] for line in answer.read().splitlines())
