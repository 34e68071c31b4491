"""Watches as server-sent events and over WebSockets."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
import os
import socket
from collections.abc import AsyncIterator, Iterator
from typing import Any
from urllib.parse import urlencode

import aiohttp
import pytest

from apiext.conformance.support.definitions import Resource, fresh_group, serve
from apiext.conformance.support.http_client import MERGE, TABLE, Client
from apiext.conformance.support.waiting import until

EVENTS = "text/event-stream"
NO_EVENTS = "text/event-stream is a 406"
ORIGIN = "http://server"


class Events:
    """An EventSource: yields the events and keeps the last id, like a browser."""

    def __init__(self, api: Client, path: str, last: str = "", accept: str = EVENTS, **query: object) -> None:
        self._connection = api.connect(20)
        headers = {**api.headers, "Accept": accept} | ({"Last-Event-ID": last} if last else {})
        self._connection.request("GET", f"{path}?{urlencode({'watch': 'true', **query})}", headers=headers)
        self.response = self._connection.getresponse()
        self.last = last

    def __iter__(self) -> Iterator[dict[str, Any]]:
        data: list[str] = []
        while line := self.response.readline().decode():
            name, _, value = line.rstrip("\n").partition(":")
            if name == "id":
                self.last = value.strip()
            elif name == "data":
                data.append(value.removeprefix(" "))
            elif not name:
                if data:
                    yield json.loads("\n".join(data))
                data = []

    def next(self) -> dict[str, Any]:
        return next(iter(self))

    def close(self) -> None:
        self.response.close()
        self._connection.close()

    def __enter__(self) -> Events:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def paint(api: Client, widgets: Resource, name: str, color: str) -> dict[str, Any]:
    changed: dict[str, Any] = api.patch(widgets.path(name), {"spec": {"color": color}}, MERGE).expect(200)
    return changed


@pytest.mark.differs(NO_EVENTS)
@pytest.mark.rows("RV-010")
def test_server_sent_events_begin_with_the_current_objects_and_have_revisions_as_ids(api: Client) -> None:
    widgets = serve(api)
    made = [widgets.create(name, color="red") for name in "ab"]
    with Events(api, widgets.path()) as events:
        assert events.response.status == 200
        assert events.response.getheader("Content-Type") == EVENTS
        first = [events.next(), events.next()]
        assert first == [{"type": "ADDED", "object": it} for it in made]
        assert events.last == ""  # initial events have no id: a client that disconnects here must begin again
        changed = paint(api, widgets, "a", "blue")
        assert events.next() == {"type": "MODIFIED", "object": changed}
        assert events.last == changed["metadata"]["resourceVersion"]
        api.delete(widgets.path("b")).expect(200)
        gone = events.next()
        assert (gone["type"], gone["object"]["metadata"]["name"]) == ("DELETED", "b")
        assert events.last == gone["object"]["metadata"]["resourceVersion"]


@pytest.mark.differs(NO_EVENTS)
@pytest.mark.rows("RV-009")
def test_the_last_event_id_resumes_without_gap_or_repetition(api: Client) -> None:
    widgets = serve(api)
    widgets.create("a", color="c0")
    with Events(api, widgets.path()) as events:
        events.next()
        paint(api, widgets, "a", "c1")
        events.next()
        last = events.last
    for number in range(2, 6):
        paint(api, widgets, "a", f"c{number}")
    # a browser keeps the URL of an EventSource, so it repeats the query of the first request
    with Events(api, widgets.path(), last, resourceVersion="0", sendInitialEvents="true") as events:
        assert [events.next()["object"]["spec"]["color"] for _ in range(4)] == ["c2", "c3", "c4", "c5"]


def lines(raw: bytes) -> list[bytes]:
    """Return the complete lines of a watch in JSON."""
    return raw.split(b"\n")[:-1]


def messages(raw: bytes) -> list[bytes]:
    """Return the complete messages of a watch in protobuf, which are prefixed with their length."""
    found = []
    while raw and len(raw) >= (end := 4 + int.from_bytes(raw[:4], "big")):
        found.append(raw[4:end])
        raw = raw[end:]
    return found


PLAIN = {"application/json": lines, TABLE: lines, "application/vnd.kubernetes.protobuf": messages}


@pytest.mark.rows("RV-010")
@pytest.mark.parametrize("accept", PLAIN)
def test_watches_over_http_1_0_are_not_chunked(api: Client, accept: str) -> None:
    """HTTP/1.0 has no chunks, so an answer of unknown length ends with the connection.

    See RFC 9112, 6.1 and 6.3.
    """
    path, label = "/api/v1/namespaces/default/configmaps", fresh_group()
    for name in "ab":
        made = {"metadata": {"name": f"{name}.{label}", "labels": {"of": label}}}
        api.post(path, {"apiVersion": "v1", "kind": "ConfigMap", **made}).expect(201)

    def asked(seconds: str) -> socket.socket:
        query = {"watch": "true", "labelSelector": f"of={label}", "resourceVersion": "0", "timeoutSeconds": seconds}
        line = api.dial(20)
        fields = f"Host: x\r\nConnection: keep-alive\r\nAccept: {accept};stream=watch\r\n"
        line.sendall(f"GET {path}?{urlencode(query)} HTTP/1.0\r\n{fields}".encode() + api.fields + b"\r\n")
        return line

    with asked("30") as line:
        seen = body = b""
        while len(events := PLAIN[accept](body)) < 2:
            seen += line.recv(65536)
            head, _, body = seen.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.0 200 OK\r\n")
    assert b"chunked" not in head
    assert b"connection" not in head.lower()
    first, second = events
    assert f"a.{label}".encode() in first
    assert f"b.{label}".encode() in second
    with asked("-1") as line:
        seen = b"".join(iter(lambda: line.recv(65536), b""))
    assert not seen.endswith(b"\r\n0\r\n\r\n")


@pytest.mark.parametrize(("connection", "kept"), [("", False), ("close", False), ("Keep-Alive", True)])
@pytest.mark.needs("/api")
def test_clients_of_http_1_0_are_answered_in_their_version(api: Client, connection: str, kept: bool) -> None:
    """The server closes the connection, unless the client requests to keep it open.

    See RFC 9112, C.2.2.
    """
    field = (f"Connection: {connection}\r\n" if connection else "") + api.fields.decode()
    with api.dial(20) as line, line.makefile("rb") as answers:
        for path, code in (("default", 200), ("none", 404)) if kept else (("none", 404),):
            line.sendall(f"GET /api/v1/namespaces/{path} HTTP/1.0\r\n{field}\r\n".encode())
            assert answers.readline().startswith(b"HTTP/1.0 %d " % code)
            told = http.client.parse_headers(answers)
            assert (told["Connection"] or "").lower() == ("keep-alive" if kept else "")
            assert len(answers.read(int(told["Content-Length"]))) > 100
        if not kept:
            assert answers.read() == b""


@pytest.mark.differs(NO_EVENTS)
def test_an_id_follows_the_initial_events_even_without_bookmarks(api: Client) -> None:
    widgets = serve(api)
    made = widgets.create("a")
    with Events(api, widgets.path()) as events:
        assert events.next()["type"] == "ADDED"
        assert events.response.readline().startswith(b"id: ")
        assert events.response.readline() == b"\n"
    with Events(
        api, widgets.path(), allowWatchBookmarks="true", sendInitialEvents="true", resourceVersionMatch="NotOlderThan"
    ) as events:
        assert events.next()["object"] == made
        end = events.next()
        assert end["type"] == "BOOKMARK"
        assert end["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}
        assert events.last == end["object"]["metadata"]["resourceVersion"]


@pytest.mark.differs(NO_EVENTS)
def test_server_sent_events_with_tables_and_selectors(api: Client) -> None:
    widgets = serve(api, selectableFields=[{"jsonPath": ".spec.color"}])
    widgets.create("a", color="red")
    widgets.create("b", color="blue")
    accept = f"{EVENTS};as=Table;v=v1;g=meta.k8s.io"
    with Events(api, widgets.path(), accept=accept, fieldSelector="spec.color=red") as events:
        first = events.next()["object"]
        assert [column["name"] for column in first["columnDefinitions"]] == ["Name", "Age"]
        assert [row["cells"][0] for row in first["rows"]] == ["a"]
        paint(api, widgets, "b", "red")
        second = events.next()
        assert (second["type"], second["object"]["columnDefinitions"]) == ("ADDED", None)


@pytest.mark.rows("NEG-004")
@pytest.mark.parametrize(
    ("accept", "status", "content"),
    [
        pytest.param(EVENTS, 200, EVENTS, marks=pytest.mark.differs(NO_EVENTS)),
        pytest.param(f"{EVENTS},application/json;q=0.5", 200, EVENTS, marks=pytest.mark.differs(NO_EVENTS)),
        (f"application/json,{EVENTS};q=0.5", 200, "application/json"),
        ("*/*", 200, "application/json"),
        ("text/*", 406, "application/json"),
    ],
)
def test_only_clients_that_accept_event_streams_get_them(api: Client, accept: str, status: int, content: str) -> None:
    widgets = serve(api)
    answer = api.get(widgets.path(), {"Accept": accept}, watch="true", timeoutSeconds="1")
    assert (answer.status, answer.headers["content-type"]) == (status, content)


@pytest.mark.differs(NO_EVENTS)
@pytest.mark.rows("NEG-007")
def test_an_invalid_event_stream_request_is_a_status(api: Client) -> None:
    widgets = serve(api)
    answer = api.get(widgets.path(), {"Accept": EVENTS}, watch="true", fieldSelector="spec.nosuch=1")
    assert answer.expect(400)["message"] == "field label not supported: spec.nosuch"
    assert api.get(widgets.path(), {"Accept": EVENTS}).status == 406  # a list is no stream


# --- WebSockets ---


@contextlib.asynccontextmanager
async def dialled(
    api: Client, path: str, *protocols: str, headers: dict[str, str] | None = None, **query: str
) -> AsyncIterator[aiohttp.ClientWebSocketResponse]:
    url = f"{api.url}{path}?{urlencode({'watch': 'true', **query})}"
    headers = {"Origin": api.url} | api.headers | (headers or {})
    async with (
        aiohttp.ClientSession() as session,
        session.ws_connect(
            url, ssl=api.tls or True, protocols=protocols, headers=headers, autoping=False, max_msg_size=0
        ) as line,
    ):
        yield line


async def event(line: aiohttp.ClientWebSocketResponse) -> dict[str, Any]:
    found: dict[str, Any] = await line.receive_json(timeout=20)
    return found


@pytest.mark.rows("RV-010")
async def test_a_watch_over_websocket_is_one_text_frame_per_event(api: Client) -> None:
    widgets = serve(api)
    made = widgets.create("a", color="red")
    async with dialled(api, widgets.path()) as line:
        assert line.protocol is None
        assert await event(line) == {"type": "ADDED", "object": made}
        changed = paint(api, widgets, "a", "x" * 70_000)  # a frame whose length needs eight bytes
        assert await event(line) == {"type": "MODIFIED", "object": changed}
        await line.ping(b"are you there")
        answer = await line.receive(timeout=20)
        assert (answer.type, answer.data) == (aiohttp.WSMsgType.PONG, b"are you there")
        await line.send_str("nobody reads this")
        await line.send_bytes(os.urandom(300))
        shorter = paint(api, widgets, "a", "y" * 300)
        assert await event(line) == {"type": "MODIFIED", "object": shorter}
        assert await line.close()
        assert line.close_code == 1000


async def test_a_websocket_watch_ends_with_a_close_frame_after_its_timeout(api: Client) -> None:
    widgets = serve(api)
    async with dialled(api, widgets.path(), timeoutSeconds="1") as line:
        answer = await line.receive(timeout=20)
        assert (answer.type, answer.data) == (aiohttp.WSMsgType.CLOSE, 1000)


@pytest.mark.rows("TAB-005")
async def test_tables_over_websocket(api: Client) -> None:
    widgets = serve(api)
    widgets.create("a")
    widgets.create("b")
    async with dialled(api, widgets.path(), headers={"Accept": TABLE}) as line:
        first, second = await event(line), await event(line)
        assert [column["name"] for column in first["object"]["columnDefinitions"]] == ["Name", "Age"]
        assert second["object"]["columnDefinitions"] is None


ONE = pytest.mark.differs("a WebSocket handshake with several subprotocols is refused")


@pytest.mark.parametrize(
    ("offered", "chosen"),
    [
        (("binary.k8s.io",), "binary.k8s.io"),
        (("base64.binary.k8s.io",), "base64.binary.k8s.io"),
        pytest.param(("my.own", "binary.k8s.io"), "binary.k8s.io", marks=ONE),
        (("my.own",), "my.own"),
        pytest.param(
            (f"base64url.bearer.authorization.k8s.io.{base64.urlsafe_b64encode(b'tok').decode().rstrip('=')}", "x"),
            "x",
            marks=ONE,
        ),
    ],
    ids=["binary", "base64", "known first", "unknown", "token"],
)
async def test_subprotocols(api: Client, offered: tuple[str, ...], chosen: str) -> None:
    widgets = serve(api)
    made = widgets.create("a")
    async with dialled(api, widgets.path(), *offered) as line:
        assert line.protocol == chosen
        assert await event(line) == {"type": "ADDED", "object": made}


def handshake(**changes: str | None) -> bytes:
    headers = {
        "Host": "server",
        "Origin": ORIGIN,
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
    } | {name.replace("_", "-"): value for name, value in changes.items()}
    return "".join(f"{name}: {value}\r\n" for name, value in headers.items() if value is not None).encode() + b"\r\n"


class Raw:
    """A socket for raw bytes."""

    def __init__(self, api: Client, target: str, headers: bytes, more: bytes = b"") -> None:
        self.line = api.dial()
        self.line.sendall(f"GET {target} HTTP/1.1\r\n".encode() + api.fields + headers + more)
        self.received = b""

    def until(self, text: bytes) -> bytes:
        while text not in self.received:
            more = self.line.recv(65536)
            if not more:
                raise AssertionError(f"closed after {self.received!r}")
            self.received += more
        return self.received

    def rest(self) -> bytes:
        with contextlib.suppress(ConnectionError):
            while more := self.line.recv(65536):
                self.received += more
        return self.received

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *_: object) -> None:
        self.line.close()


UNREAD = pytest.mark.differs("keys and subprotocols in a WebSocket handshake are not validated")
ELSEWHERE, UNKNOWN = "another origin", "another origin, an unknown token"
STRICTER = pytest.mark.differs("a WebSocket handshake must have an Origin, but any origin is accepted")


def refusal(api: Client, why: str, foreign: bool) -> int:
    """Return the code of the answer to a WebSocket handshake from a page of another origin."""
    if foreign:
        return 403
    # With a valid token, any origin is accepted. A browser sends a client certificate also for pages of another origin,
    # so a certificate is not sufficient.
    if api.tls is None and api.get("/api", {"Authorization": "Bearer unknown"}).status == 200:
        return 403  # the server has no authentication
    if "Authorization" in api.headers:
        return 101
    return 401 if why == UNKNOWN else 403


def wait_for_watches(api: Client, path: str) -> None:
    """Wait until clients can watch a new kind.

    kube-apiserver answers 429 while it fills its cache.
    """

    def is_ready() -> bool:
        with Raw(api, f"{path}?watch=true", b"\r\n") as line:
            return b" 429 " not in line.until(b"\r\n").partition(b"\r\n")[0]

    until(is_ready, f"{path} can be watched", within=10)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"Sec_WebSocket_Version": "8"}, 400),
        ({"Sec_WebSocket_Version": None}, 400),
        pytest.param({"Sec_WebSocket_Key": "short"}, 400, marks=UNREAD),
        ({"Sec_WebSocket_Key": None}, 400),
        pytest.param({"Sec_WebSocket_Protocol": "caf\u00e9"}, 400, marks=UNREAD),
        ({"Sec_WebSocket_Protocol": "a," * 500 + "a"}, 400),
        pytest.param({"Origin": "http://elsewhere.example.com"}, ELSEWHERE, marks=STRICTER),
        ({"Origin": "null"}, ELSEWHERE),
        ({"Origin": ORIGIN}, 101),
        pytest.param({"Origin": None}, 101, marks=STRICTER),
        ({"Connection": "keep-alive, Upgrade"}, 101),
        pytest.param(
            {"Origin": "http://elsewhere.example.com", "Authorization": "Bearer anything"}, UNKNOWN, marks=STRICTER
        ),
        ({"Origin": "http://["}, ELSEWHERE),
    ],
    ids=[
        "version", "no version", "key", "no key", "protocol", "protocols", "origin", "null origin", "own origin",
        "no origin", "list", "token", "bad origin",
    ],
)  # fmt: skip
def test_handshakes(api: Client, changes: dict[str, str | None], code: int | str, foreign: bool) -> None:
    widgets = serve(api)
    if isinstance(code, str):
        code = refusal(api, code, foreign)
    wait_for_watches(api, widgets.path())
    with Raw(api, f"{widgets.path()}?watch=true", handshake(**changes)) as line:
        head = line.until(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 %d " % code), head
        if code == 101:
            assert b"sec-websocket-accept: s3pplmbitxaq9kygzzhzrbk+xoo=\r\n" in head.lower()


@pytest.mark.differs("a refused WebSocket handshake has no message")
def test_a_refused_handshake_is_a_status(api: Client) -> None:
    widgets = serve(api)
    refused = [({"Sec_WebSocket_Version": "8"}, 400), ({"Origin": "null"}, refusal(api, ELSEWHERE, foreign=False))]
    for changes, code in refused:
        if code == 101:
            continue
        with Raw(api, f"{widgets.path()}?watch=true", handshake(**changes)) as line:
            line.until(b"\r\n\r\n")
            body = line.until(b"}\n" if b"}\n" in line.received else b"}").partition(b"\r\n\r\n")[2]
            assert json.loads(body)["code"] == code


def test_requests_without_watch_are_not_upgraded(api: Client) -> None:
    widgets = serve(api)
    with Raw(api, widgets.path(), handshake()) as line:
        assert line.until(b"\r\n\r\n").startswith(b"HTTP/1.1 200 ")
        line.until(b'"items":[]')
        line.line.sendall(b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n")  # the connection still serves requests
        line.until(b"gitVersion")


FORGIVING = pytest.mark.differs("frames of a WebSocket client are not validated")


def frame(first: int, payload: bytes, *, masked: bool = True, size: bytes | None = None) -> bytes:
    length = size if size is not None else bytes((len(payload),))
    head = bytes((first, length[0] | (0x80 if masked else 0))) + length[1:]
    return head + (b"\0\0\0\0" if masked else b"") + payload


@pytest.mark.parametrize(
    ("sent", "code"),
    [
        (frame(0x88, b""), 1000),
        pytest.param(frame(0x88, (4321).to_bytes(2, "big") + b"bye"), 4321, marks=FORGIVING),
        pytest.param(frame(0x88, (5).to_bytes(2, "big")), 1002, marks=FORGIVING),
        pytest.param(frame(0x81, b"clear", masked=False), 1002, marks=FORGIVING),
        pytest.param(frame(0xC1, b"compressed"), 1002, marks=FORGIVING),
        pytest.param(frame(0x09, b"half a ping"), 1002, marks=FORGIVING),
        pytest.param(frame(0x8B, b"no such control"), 1002, marks=FORGIVING),
        pytest.param(frame(0x89, b"", size=b"\x7e\x01\x00"), 1002, marks=FORGIVING),
        pytest.param(frame(0x83, b"no such data"), 1002, marks=FORGIVING),
        pytest.param(frame(0x80, b"the end of nothing"), 1002, marks=FORGIVING),
        pytest.param(frame(0x01, b"half") + frame(0x80, b"whole") + frame(0x02, b"half") + frame(0x81, b"other"), 1002,
                     marks=FORGIVING),
        pytest.param(frame(0x88, b"x"), 1002, marks=FORGIVING),
        pytest.param(frame(0x88, (1015).to_bytes(2, "big")), 1002, marks=FORGIVING),
        pytest.param(frame(0x88, (1000).to_bytes(2, "big") + b"\xff"), 1007, marks=FORGIVING),
        pytest.param(frame(0x82, b"", size=b"\x7f" + (1 << 40).to_bytes(8, "big")), 1009, marks=FORGIVING),
        pytest.param(frame(0x82, b"x" * 60_000, size=b"\x7e" + (60_000).to_bytes(2, "big")) * 2, 1009, marks=FORGIVING),
    ],
    ids=[
        "close", "own code", "bad code", "unmasked", "extension", "fragment", "opcode", "long", "data opcode", "end",
        "mixed", "half a code", "no code", "no text", "huge", "many",
    ],
)  # fmt: skip
def test_invalid_client_frames_end_the_watch(api: Client, sent: bytes, code: int) -> None:
    widgets = serve(api)
    with Raw(api, f"{widgets.path()}?watch=true", handshake()) as line:
        line.until(b"\r\n\r\n")
        with contextlib.suppress(ConnectionError):
            for at in range(0, len(sent), 1000):  # a long frame comes in several pieces
                line.line.sendall(sent[at : at + 1000])
        assert line.rest().endswith(b"\x88\x02" + code.to_bytes(2, "big"))


@pytest.mark.differs("a proxy before the server may lose frames that arrive with the handshake")
def test_frames_in_one_piece_with_the_handshake_are_answered(api: Client) -> None:
    widgets = serve(api)
    pings = b"".join(frame(0x89, b"%d" % number) for number in range(5))
    with Raw(api, f"{widgets.path()}?watch=true", handshake(), pings) as line:
        line.until(b"".join(b"\x8a\x01%d" % number for number in range(5)))


@pytest.mark.has("metrics of one process")
async def test_a_client_that_goes_away_leaves_no_watch(api: Client) -> None:
    widgets = serve(api)

    def open_watches() -> int:
        needle = f'resource="{widgets.plural}"'
        lines = [
            it
            for it in api.get("/metrics").text.splitlines()
            if it.startswith("apiserver_longrunning_requests{") and needle in it and widgets.group in it
        ]
        return sum(int(float(it.rsplit(" ", 1)[1])) for it in lines)

    wait_for_watches(api, widgets.path())
    until(lambda: open_watches() == 0, "the first watch is gone", within=10)
    with Raw(api, f"{widgets.path()}?watch=true", handshake()) as line:
        line.until(b"\r\n\r\n")
        assert open_watches() == 1
    until(lambda: open_watches() == 0, "the watch is gone", within=10)
