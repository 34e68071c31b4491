"""Tests of server-sent events and WebSocket frames.

The cases: expired revisions, errors in the stream, pings, slow readers.
"""

import asyncio
import socket
import time
from typing import Any, cast

import orjson
import pytest

from apiext.auth.authentication import Credentials
from apiext.auth.user import authenticated
from apiext.conformance.support.waiting import prompt
from apiext.http import eventstream, limits, websocket
from apiext.http import websocket as websocket_module
from apiext.http.sinks import NO_COLUMNS
from apiext.meta import status
from tests.unit.http.support import COLLECTION, Client, Shelf, connected, on_uvloop, serving, until

WATCH = f"{COLLECTION}?watch=true"
EVENTS = {"Accept": "text/event-stream"}
UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}


async def frame(client: Client) -> tuple[int, bytes]:
    """Return opcode and payload of the next frame."""
    head = await client.reader.readexactly(2)
    size = head[1]
    if size > 125:
        size = int.from_bytes(await client.reader.readexactly(2 if size == 126 else 8), "big")
    return head[0] & 0xF, await client.reader.readexactly(size)


@pytest.mark.rows("RV-009")
@on_uvloop
async def test_expired_start_resets_the_id_of_an_event_source() -> None:
    shelf = Shelf()
    shelf.fails = status.expired("too old resource version: 3 (9)")
    async with serving(shelf) as server, connected(server) as client:
        client.send("GET", WATCH, **EVENTS, **{"Last-Event-ID": "3"})
        assert (await client.head())[0] == 200
        reset, data, *rest = (await client.chunk()).split(b"\n")
        assert reset == b"id"  # an empty id: the browser reconnects without one
        assert orjson.loads(data.removeprefix(b"data: "))["object"]["code"] == 410
        assert rest == [b"", b""]
        assert await client.chunk() == b""
        assert shelf.calls[-1].query["resourceVersion"] == ["3"]


@on_uvloop
async def test_expired_watch_sends_its_error_and_ends() -> None:
    shelf = Shelf()
    async with serving(shelf) as server, connected(server) as client:
        client.send("GET", WATCH, **EVENTS)
        await client.head()
        watch = shelf.watches[0]
        watch.sink.end(watch.frames.expired(3, 9))
        assert (await client.chunk()).startswith(b'id\ndata: {"type":"ERROR"')
    async with serving(shelf) as server, connected(server) as client:
        client.send("GET", WATCH, **UPGRADE)
        await client.head()
        watch = shelf.watches[-1]
        watch.sink.end(watch.frames.expired(3, 9))
        opcode, payload = await frame(client)
        assert (opcode, orjson.loads(payload)["type"]) == (websocket.TEXT, "ERROR")
        assert await frame(client) == (websocket.CLOSE, (1000).to_bytes(2, "big"))
        assert await client.reader.read() == b""


@on_uvloop
async def test_refused_websocket_gets_a_plain_http_response() -> None:
    shelf = Shelf()
    shelf.fails = status.bad_request("no")
    async with serving(shelf) as server, connected(server) as client:
        client.send("GET", WATCH, **UPGRADE)
        assert (await client.receive()).code == 400
        assert (await client.ask("GET", "/healthz")).code == 200  # the connection stays usable


@on_uvloop
async def test_watch_error_is_sent_as_a_websocket_frame() -> None:
    shelf = Shelf()
    shelf.fails = status.expired("gone")
    async with serving(shelf) as server, connected(server) as client:
        client.send("GET", WATCH, **UPGRADE)
        assert (await client.head())[0] == 101
        opcode, payload = await frame(client)
        assert (opcode, orjson.loads(payload)["object"]["code"]) == (websocket.TEXT, 410)
        assert await frame(client) == (websocket.CLOSE, (1000).to_bytes(2, "big"))


def test_idle_websocket_sends_pings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket_module, "WEBSOCKET_PING", 0.02)

    @on_uvloop
    async def run() -> None:
        shelf = Shelf()
        async with serving(shelf) as server, connected(server) as client:
            client.send("GET", WATCH, **UPGRADE)
            await client.head()
            assert await frame(client) == (websocket.PING, b"")
            assert await frame(client) == (websocket.PING, b"")
            shelf.put("a")
            while (found := await frame(client))[0] == websocket.PING:
                pass
            assert found[0] == websocket.TEXT
        await until(lambda: not shelf.watches)

    run()


class FakeSink:
    """The parts of a watch that a receiver uses."""

    def __init__(self) -> None:
        self.allowed = limits.WEBSOCKET_INPUT
        self.paused = False
        self.told: list[tuple[str, Any]] = []

    @property
    def closed(self) -> bool:
        return any(what == "hang up" for what, _ in self.told)

    def write(self, data: bytes) -> None:
        self.told.append(("write", data))

    def send_close(self, code: int) -> None:
        self.told.append(("hang up", code))


def from_client(opcode: int, payload: bytes = b"") -> bytes:
    """Return a frame of a client, with a mask of zeros."""
    made = websocket.frame(opcode, payload)
    at = len(made) - len(payload)
    return made[:1] + bytes((made[1] | 0x80,)) + made[2:at] + bytes(4) + payload


@pytest.mark.parametrize("opcode", [websocket.TEXT, websocket.PING, websocket.PONG])
def test_a_flood_of_frames_ends_the_watch_at_once(opcode: int) -> None:
    sink = FakeSink()
    receiver = websocket.Receiver(cast(Any, sink))
    began = time.process_time()
    for _ in range(16):
        receiver.feed_data(from_client(opcode) * 10_000)
    prompt(time.process_time() - began, 0.05, "960 KB of frames without content")
    assert sink.told[-1] == ("hang up", websocket.TOO_BIG)
    assert len(sink.told) == (2 if opcode == websocket.PING else 1)


@pytest.mark.parametrize("piece", [1, 7, 1000])
def test_pings_are_answered_in_order_before_a_close(piece: int) -> None:
    sink = FakeSink()
    receiver = websocket.Receiver(cast(Any, sink))
    pings = b"".join(from_client(websocket.PING, b"%d" % number) for number in range(20))
    more = from_client(websocket.TEXT, b"x" * 300) + from_client(websocket.PONG, b"y")
    sent = pings + more + pings + from_client(websocket.CLOSE) + pings
    for at in range(0, len(sent), piece):
        receiver.feed_data(sent[at : at + piece])
    pongs = b"".join(websocket.frame(websocket.PONG, b"%d" % number) for number in range(20))
    assert b"".join(data for what, data in sink.told if what == "write") == pongs * 2
    assert sink.told[-1] == ("hang up", websocket.NORMAL)


def test_each_ping_resets_the_input_limit_of_a_client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(websocket_module, "WEBSOCKET_PING", 0.02)

    @on_uvloop
    async def run() -> None:
        shelf = Shelf()
        async with serving(shelf) as server, connected(server) as client:
            client.send("GET", WATCH, **UPGRADE)
            await client.head()
            for _ in range(4):
                client.writer.write(from_client(websocket.TEXT, b"x" * 40_000))
                assert await frame(client) == (websocket.PING, b"")
                assert await frame(client) == (websocket.PING, b"")
        await until(lambda: not shelf.watches)

    run()


@pytest.mark.rows("RV-018")
@on_uvloop
async def test_unread_websocket_pauses_and_answers_no_pings() -> None:
    shelf = Shelf()
    async with serving(shelf) as server, connected(server) as client:
        line = client.writer.get_extra_info("socket")
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.send("GET", WATCH, **UPGRADE)
        await client.head()
        client.reader._transport.pause_reading()  # type: ignore[attr-defined]
        sink = shelf.watches[0].sink
        while not sink.paused:
            sink.write(websocket.frame(websocket.TEXT, b"x" * 65536))
            await asyncio.sleep(0)
        waiting = server.connections[0].transport.get_write_buffer_size()
        receiver = websocket.Receiver(sink)
        for _ in range(100):
            receiver.feed_data(from_client(websocket.PING, b"still here"))
        assert server.connections[0].transport.get_write_buffer_size() <= waiting


@on_uvloop
async def test_event_source_gets_bookmarks_without_initial_events() -> None:
    shelf = Shelf()
    async with serving(shelf) as server, connected(server) as client:
        client.send("GET", f"{WATCH}&resourceVersion=7", **EVENTS)
        await client.head()
        query = shelf.calls[-1].query
        assert (query["allowWatchBookmarks"], query["resourceVersion"]) == (["true"], ["7"])
        assert "sendInitialEvents" not in query
        watch = shelf.watches[0]
        watch.sink.write(watch.frames.bookmark(77, False) + watch.frames.bookmark(78, True))
        assert await client.chunk() == b"id: 77\n\n"
        assert await client.chunk() == b"id: 78\n\n"


@pytest.mark.parametrize("size", [0, 1, 125, 126, 65535, 65536, 200_000])
def test_encoded_frames_are_split_back(size: int) -> None:
    payload = bytes(range(256)) * (size // 256 + 1)
    payload = payload[:size]
    data = websocket.frame(websocket.BINARY, payload) + b"rest"
    assert websocket.split(data) == (websocket.BINARY, payload, b"rest")


@pytest.mark.parametrize(
    ("given", "authorization"),
    [
        ({}, ""),
        ({"Authorization": "Bearer a"}, "Bearer a"),
        ({"Sec-WebSocket-Protocol": "x, base64url.bearer.authorization.k8s.io.c2VjcmV0"}, "Bearer secret"),
        ({"Sec-WebSocket-Protocol": "base64url.bearer.authorization.k8s.io.YQ"}, "Bearer a"),
        ({"Sec-WebSocket-Protocol": "base64url.bearer.authorization.k8s.io.!"}, "Bearer !"),
        ({"Sec-WebSocket-Protocol": "base64url.bearer.authorization.k8s.io._w"}, "Bearer _w"),
        ({"Sec-WebSocket-Protocol": "binary.k8s.io"}, ""),
    ],
)
@pytest.mark.rows("AUT-001")
def test_bearer_token_is_read_from_the_subprotocol(given: dict[str, str], authorization: str) -> None:
    assert websocket.authorization(given) == authorization


@pytest.mark.parametrize("offered", [b"\xff", b"a b", b"b,\xc3\xa9", b"a,(b)"])
@on_uvloop
async def test_invalid_subprotocol_gets_400(offered: bytes) -> None:
    async with serving(Shelf()) as server, connected(server) as client:
        lines = [f"GET {WATCH} HTTP/1.1", "Host: x", *(f"{name}: {value}" for name, value in UPGRADE.items())]
        head = "\r\n".join(lines).encode() + b"\r\nSec-WebSocket-Protocol: " + offered + b"\r\n\r\n"
        client.writer.write(head)
        assert (await client.receive()).code == 400


@pytest.mark.rows("AUT-001", "ERR-19")
@on_uvloop
async def test_websocket_authenticates_by_subprotocol_token() -> None:
    shelf = Shelf()
    known = Credentials({"secret": authenticated("alice")})
    token = "base64url.bearer.authorization.k8s.io.c2VjcmV0"
    elsewhere = {**UPGRADE, "Origin": "https://elsewhere.example.com"}
    async with serving(shelf, authenticator=known) as server:
        for protocol, code in ((f"{token}, binary.k8s.io", 101), (f"{token}x", 401), ("binary.k8s.io", 401)):
            async with connected(server) as client:
                client.send("GET", WATCH, **elsewhere, **{"Sec-WebSocket-Protocol": protocol})
                told, headers = await client.head()
                assert told == code, protocol
                if code == 101:
                    assert headers["Sec-WebSocket-Protocol"] == "binary.k8s.io"  # the token is not repeated
                    assert shelf.calls[-1].user.name == "alice"
    assert len(shelf.calls) == 1


def test_websocket_sends_columns_in_the_first_event_only() -> None:
    class Transport:
        sent = b""

        def write(self, data: bytes) -> None:
            self.sent += data

    async def run() -> None:
        transport = Transport()
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        sink = websocket.WebSocketSink(transport, b"", b'"columnDefinitions":[1]', done)
        event = websocket.form(False).event(b"{%b}" % NO_COLUMNS, 1)
        for data in (websocket.frame(websocket.PING, b""), event + event, event):
            sink.write(data)
        assert transport.sent.count(b'"columnDefinitions":[1]') == 1
        assert transport.sent.count(NO_COLUMNS) == 2
        first, rest = websocket.split(transport.sent)[1:]
        assert first == b""
        assert websocket.split(rest)[1] == b'{"columnDefinitions":[1]}\n'

    asyncio.run(run())


@pytest.mark.parametrize("accept", ["text/event-stream", "text/event-stream;as=Table;v=v1;g=meta.k8s.io, */*"])
def test_preferred_media_type_selects_the_event_stream(accept: str) -> None:
    assert eventstream.is_wanted(accept)
    assert not eventstream.is_wanted(f"application/json, {accept.replace(';', ';q=0.1;', 1)};q=0.1")
