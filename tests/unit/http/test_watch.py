"""Watches, tested over sockets: frames, representations, ends, slow clients."""

import asyncio
import contextlib
import gzip
import socket
from functools import partial

import orjson
import pytest

from apiext.http import limits
from apiext.http.protobuf import decode
from apiext.http.sinks import WatchSink, chunk, with_columns
from apiext.meta import status
from tests.unit.http.support import COLLECTION, Shelf, connected, on_uvloop, serving, until

WATCH = f"{COLLECTION}?watch=true"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io"
PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"


@pytest.mark.rows("RV-010", "RV-014", "LIM-004")
@on_uvloop
async def test_watch_sends_events_bookmarks_and_errors() -> None:
    shelf = Shelf()
    async with serving(shelf) as server, connected(server) as client:
        client.send("GET", f"{WATCH}&timeoutSeconds=600")
        code, headers = await client.head()  # sent before the first event
        assert (code, headers["Content-Type"], headers["Transfer-Encoding"]) == (200, "application/json", "chunked")
        assert "Content-Length" not in headers
        entry = shelf.put("a", x=1)
        line = await client.chunk()
        assert line.endswith(b"}\n")
        event = orjson.loads(line)
        assert event["type"] == "ADDED"
        assert event["object"]["kind"] == "Widget"
        assert event["object"]["metadata"]["resourceVersion"] == str(entry.revision)
        shelf.put("a", x=2)
        assert orjson.loads(await client.chunk())["type"] == "MODIFIED"
        shelf.publish("DELETED", entry)
        assert orjson.loads(await client.chunk())["type"] == "DELETED"
        watch = shelf.watches[0]
        watch.sink.write(watch.frames.bookmark(77, False) + watch.frames.bookmark(78, True))
        assert orjson.loads(await client.chunk()) == {
            "type": "BOOKMARK",
            "object": {"apiVersion": "example.com/v1", "kind": "Widget", "metadata": {"resourceVersion": "77"}},
        }
        ended = orjson.loads(await client.chunk())["object"]["metadata"]
        assert ended == {"annotations": {"k8s.io/initial-events-end": "true"}, "resourceVersion": "78"}
        watch.sink.end(watch.frames.expired(3, 9))
        error = orjson.loads(await client.chunk())
        assert (error["type"], error["object"]["reason"], error["object"]["code"]) == ("ERROR", "Expired", 410)
        assert error["object"]["message"] == "too old resource version: 3 (9)"
        assert await client.chunk() == b""
        assert (await client.ask("GET", "/healthz")).code == 200  # the connection stays usable


@pytest.mark.rows("RV-014")
@on_uvloop
async def test_watch_timeout_ends_the_stream_with_a_last_chunk() -> None:
    shelf = Shelf()
    async with serving(shelf, timeout=0.5) as server, connected(server) as client:
        assert (await client.ask("GET", COLLECTION)).code == 200  # its deadline does not affect later requests
        answer = await client.ask("GET", f"{WATCH}&timeoutSeconds=1")
        assert (answer.code, answer.body) == (200, b"")
        assert (await client.ask("GET", "/healthz")).code == 200
        assert not shelf.watches


@pytest.mark.rows("RV-014")
@on_uvloop
async def test_watches_without_a_timeout_get_one_to_two_times_the_minimum(monkeypatch: pytest.MonkeyPatch) -> None:
    ends: list[float] = []
    monkeypatch.setattr(WatchSink, "end_after", lambda sink, seconds, bookmark, loop: ends.append(seconds))
    shelf = Shelf()
    async with serving(shelf, min_watch_timeout=10.0) as server:
        for query in (*[""] * 9, "&timeoutSeconds=0", "&timeoutSeconds=5", "&timeoutSeconds=99"):
            before = len(ends)
            async with connected(server) as client:
                client.send("GET", WATCH + query)
                await until(lambda: len(ends) > before)  # noqa: B023 - called in this iteration
    assert ends[-2:] == [5.0, 99.0]
    assert all(10.0 <= each <= 20.0 for each in ends[:-2])
    assert len(set(ends[:-2])) > 1, "not all at once"


@pytest.mark.rows("RV-014")
@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("999999999", 999_999_999.0),
        ("1000000000", 1e9),
        ("1000000001", 1e9),
        ("9999999999", 1e9),
        (str(2**63 - 1), 1e9),
        ("0000000000007", 7.0),
        ("%2B7", 7.0),
        ("%2B1000000001", 1e9),
        ("000000000000", None),
    ],
)
@on_uvloop
async def test_long_watch_timeout_is_capped_at_1e9_seconds(
    monkeypatch: pytest.MonkeyPatch, given: str, meant: float | None
) -> None:
    """The loop's timer accepts a long timeout.

    The watch stays open longer than a watch without a timeout.
    """
    ends: list[float] = []
    end_after = WatchSink.end_after

    def noted(sink: WatchSink, seconds: float, bookmark: bool, loop: asyncio.AbstractEventLoop) -> None:
        ends.append(seconds)
        end_after(sink, seconds, bookmark, loop)

    monkeypatch.setattr(WatchSink, "end_after", noted)
    shelf = Shelf()
    async with serving(shelf, min_watch_timeout=0.01) as server, connected(server) as client:
        client.send("GET", f"{WATCH}&timeoutSeconds={given}")
        await client.head()
        if meant is None:
            await until(lambda: not shelf.watches)
        else:
            await asyncio.sleep(0.03)
            assert shelf.watches
    assert ends == [meant] if meant is not None else 0.01 <= ends[0] <= 0.02


@on_uvloop
async def test_disconnect_before_a_watch_opens_leaves_no_watch() -> None:
    shelf = Shelf(gate=asyncio.Event())
    async with serving(shelf) as server:
        async with connected(server) as client:
            client.send("GET", WATCH)
            await until(lambda: bool(shelf.calls))
        await until(lambda: server.connections[0].transport is None)
        assert shelf.gate is not None
        shelf.gate.set()
        await shelf.opening.wait()
        await until(lambda: not server.service.in_flight.count)
        assert not shelf.watches


@on_uvloop
async def test_watches_over_the_user_limit_get_429(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "WATCHES_OF_A_USER", 1)
    shelf = Shelf()
    async with serving(shelf) as server, connected(server) as second:
        async with connected(server) as first:
            first.send("GET", WATCH)
            assert (await first.head())[0] == 200
            refused = await second.ask("GET", WATCH)
            assert (refused.code, refused.json["reason"]) == (429, "TooManyRequests")
            assert refused.headers["Retry-After"] == "1"
            assert (await second.ask("GET", COLLECTION)).code == 200
        await until(lambda: not shelf.watches)
        second.send("GET", WATCH)
        assert (await second.head())[0] == 200


@on_uvloop
async def test_watch_with_connection_close_ends_the_connection() -> None:
    shelf = Shelf()
    async with serving(shelf) as server, connected(server) as client:
        client.send("GET", WATCH, Connection="close")
        await client.head()
        await until(lambda: bool(shelf.watches))
        shelf.watches[0].sink.end(b"")
        assert await client.chunk() == b""
        assert await asyncio.wait_for(client.reader.read(), 20) == b""


@pytest.mark.rows("TAB-005")
@on_uvloop
async def test_tables_have_columns_in_the_first_event_only() -> None:
    shelf = Shelf()
    async with serving(shelf) as server, connected(server) as client:
        client.send("GET", WATCH, Accept=TABLE)
        await client.head()
        await until(lambda: bool(shelf.watches))
        shelf.put("a", x=1)
        shelf.put("b", x=2)
        first, second = [orjson.loads(await client.chunk())["object"] for _ in range(2)]
        assert [column["name"] for column in first["columnDefinitions"]] == ["Name", "X"]
        assert second["columnDefinitions"] is None
        assert [first["rows"][0]["cells"], second["rows"][0]["cells"]] == [["a", 1], ["b", 2]]
        assert second["rows"][0]["object"]["kind"] == "PartialObjectMetadata"
        assert second["metadata"]["resourceVersion"] == str(shelf.revision)
        watch = shelf.watches[0]
        watch.sink.write(watch.frames.bookmark(77, False))
        bookmark = orjson.loads(await client.chunk())["object"]
        assert bookmark["kind"] == "Table"
        assert bookmark["rows"][0]["object"]["metadata"] == {"resourceVersion": "77"}


@pytest.mark.rows("PAR-001")
@on_uvloop
async def test_watch_of_partial_object_metadata() -> None:
    shelf = Shelf()
    async with serving(shelf) as server, connected(server) as client:
        client.send("GET", WATCH, Accept=PARTIAL)
        await client.head()
        await until(lambda: bool(shelf.watches))
        shelf.put("a", x=1)
        found = orjson.loads(await client.chunk())["object"]
        assert (found["kind"], found["apiVersion"]) == ("PartialObjectMetadata", "meta.k8s.io/v1")
        assert "spec" not in found
        watch = shelf.watches[0]
        watch.sink.write(watch.frames.bookmark(5, False))
        assert orjson.loads(await client.chunk())["object"]["kind"] == "PartialObjectMetadata"


@pytest.mark.rows("RV-010", "NEG-002")
@on_uvloop
async def test_protobuf_watch_frames_are_length_prefixed() -> None:
    shelf = Shelf()
    async with serving(shelf) as server, connected(server) as client:
        client.send("GET", "/api/v1/namespaces?watch=1", Accept="application/vnd.kubernetes.protobuf, */*")
        _, headers = await client.head()
        assert headers["Content-Type"] == "application/vnd.kubernetes.protobuf;stream=watch"
        await until(lambda: bool(shelf.watches))
        shelf.put("a", "", "namespaces")
        frame = await client.chunk()
        assert int.from_bytes(frame[:4], "big") == len(frame) - 4
        assert decode(frame[frame.index(b"k8s\x00") :])["metadata"]["name"] == "a"


@pytest.mark.rows("RV-009", "RV-002")
@pytest.mark.parametrize(
    ("error", "code"), [(status.expired("gone"), 200), (status.too_large_resource_version(9, 3), 200),
                        (status.bad_request("no"), 400), (status.too_many_requests("wait"), 429)]
)  # fmt: skip
@on_uvloop
async def test_watch_errors_at_start_are_events_or_responses(error: status.StatusError, code: int) -> None:
    async with serving(Shelf(fails=error)) as server, connected(server) as client:
        answer = await client.ask("GET", WATCH)
        assert answer.code == code
        document = answer.json["object"] if code == 200 else answer.json
        assert (document["kind"], document["code"]) == ("Status", error.code)
        assert (await client.ask("GET", "/healthz")).code == 200


@pytest.mark.rows("NEG-008", "RV-016")
@on_uvloop
async def test_watch_with_unsupported_accept_gets_406() -> None:
    async with serving(Shelf()) as server, connected(server) as client:
        answer = await client.ask("GET", WATCH, Accept="application/yaml")
        assert (answer.code, answer.headers["Content-Type"]) == (406, "application/yaml")
        assert b"application/json;stream=watch,\n  application/vnd.kubernetes.protobuf;stream=watch" in answer.body
        assert (await client.ask("GET", f"{COLLECTION}?watch=0")).json["kind"] == "WidgetList"


@on_uvloop
async def test_disconnect_closes_the_watch() -> None:
    shelf = Shelf()
    async with serving(shelf) as server:
        async with connected(server) as client:
            client.send("GET", WATCH)
            await client.head()
            await until(lambda: bool(shelf.watches))
        await until(lambda: not shelf.watches)


def _has_watches(shelf: Shelf, count: int) -> bool:
    return len(shelf.watches) >= count


@pytest.mark.rows("RV-018")
@on_uvloop
async def test_watches_of_a_user_share_the_limit_of_unread_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unread bytes of a user's watches are limited.

    Once, 5,000 unread watches took 35 s of CPU for 50 writes of 100 KB.
    """
    monkeypatch.setattr(limits, "UNREAD_OF_A_USER", 4 * limits.WATCH_HIGH_WATER)
    shelf, written = Shelf(), []
    async with serving(shelf) as server, contextlib.AsyncExitStack() as clients:
        for number in range(1, 65):
            sock = clients.enter_context(contextlib.closing(socket.socket()))
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.connect(("127.0.0.1", server.port))
            sock.sendall(f"GET {WATCH} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
            await until(partial(_has_watches, shelf, number))
        for sink in (shelf.watches[0].sink, shelf.watches[-1].sink):
            count = 0
            while not sink.paused:
                sink.write(b"x" * 50_000)
                count += 1
                await asyncio.sleep(0)
                assert count < 1000
            written.append(count * 50_000)
    assert written[0] > limits.WATCH_HIGH_WATER
    assert written[1] < written[0] // 3


@on_uvloop
async def test_slow_watcher_is_paused_and_gets_all_events() -> None:
    shelf = Shelf()
    async with serving(shelf) as server:
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        sock.connect(("127.0.0.1", server.port))
        reader, writer = await asyncio.open_connection(sock=sock, limit=4096)
        writer.write(f"GET {WATCH} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
        await until(lambda: bool(shelf.watches))
        sink = shelf.watches[0].sink
        count = 0
        while not sink.paused:
            shelf.put(f"n{count}", t="x" * 50_000)
            count += 1
            await asyncio.sleep(0)
            assert count < 1000
        assert count * 50_000 < limits.WATCH_HIGH_WATER + 20 * limits.WATCH_SEND_BUFFER
        shelf.put("last")
        received = b""
        async with asyncio.timeout(20):
            while b'"last"' not in received[-100_000:]:
                received += await reader.read(65536)
        assert received.count(b'"type":"ADDED"') == count + 1
        writer.close()


async def open_unread_watch(port: int) -> socket.socket:
    """Open a watch with a small receive buffer, which is not read."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(sock, ("127.0.0.1", port))
    await loop.sock_sendall(sock, f"GET {WATCH} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    return sock


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="other systems have other ways")
@on_uvloop
async def test_unread_watch_has_a_tcp_timeout_of_minutes() -> None:
    shelf = Shelf()
    async with serving(shelf) as server:
        with await open_unread_watch(server.port):
            await until(lambda: bool(shelf.watches))
            for number in range(30):
                shelf.put(f"n{number}", t="x" * 50_000)
                await asyncio.sleep(0)
            assert shelf.watches[0].sink.paused
            (connection,) = server.connections
            assert connection.transport is not None
            line = connection.transport.get_extra_info("socket")
            # Linux handles a closed window like unacknowledged data
            told = line.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
            assert told == limits.UNREAD_TIMEOUT * 1000 >= 60_000


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="other systems have other ways")
@pytest.mark.parametrize("size", [5_000, 1_500_000])
@on_uvloop
async def test_watches_that_are_never_read_are_closed(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr(limits, "UNREAD_TIMEOUT", 0.5)
    shelf = Shelf()
    async with serving(shelf) as server:
        with await open_unread_watch(server.port):
            await until(lambda: bool(shelf.watches))
            for number in range(4):
                shelf.put(f"n{number}", t="x" * size)
            await until(lambda: not shelf.watches)


@pytest.mark.rows("RV-012")
@on_uvloop
async def test_watch_sends_a_bookmark_before_its_timeout() -> None:
    shelf = Shelf()
    async with serving(shelf) as server, connected(server) as client:
        client.send("GET", f"{WATCH}&allowWatchBookmarks=true&timeoutSeconds=5")
        await client.head()
        await until(lambda: bool(shelf.watches))
        sink = shelf.watches[0].sink
        sink._last_bookmark(asyncio.get_running_loop())
        assert orjson.loads(await client.chunk())["type"] == "BOOKMARK"


class Wire:
    """A transport that keeps written bytes, or raises ``error``."""

    def __init__(self) -> None:
        self.data = b""
        self.error: Exception | None = None

    def write(self, data: bytes) -> None:
        if self.error is not None:
            raise self.error
        self.data += data


@pytest.mark.parametrize("error", [RuntimeError("closed"), ConnectionResetError()])
async def test_sink_closes_when_its_transport_fails(error: Exception) -> None:
    wire = Wire()
    sink = WatchSink(wire, b"HEAD", b"", asyncio.get_running_loop().create_future())
    sink.start()
    sink.start()
    sink.write(b"1")
    assert wire.data == b"HEAD1"
    wire.error = error
    sink.write(b"2")
    assert sink.closed
    assert sink.done.done()
    sink.end(b"3")
    assert not sink.clean


def test_columns_go_into_the_first_frame() -> None:
    frame = chunk(b'{"columnDefinitions":null,"rows":[]}\n')
    both = with_columns(frame + frame, b'"columnDefinitions":[1]')
    assert both == chunk(b'{"columnDefinitions":[1],"rows":[]}\n') + frame


@pytest.mark.rows("RV-021")
@on_uvloop
async def test_lists_are_compressed_and_watches_are_not() -> None:
    shelf = Shelf()
    for number in range(200):
        shelf.put(f"n{number}", t="x" * 1000)
    async with serving(shelf) as server, connected(server) as client:
        plain = await client.ask("GET", COLLECTION)
        assert (plain.headers["Vary"], "Content-Encoding" in plain.headers) == ("Accept-Encoding", False)
        packed = await client.ask("GET", COLLECTION, Accept_Encoding="gzip")
        assert packed.headers["Content-Encoding"] == "gzip"
        assert gzip.decompress(packed.body) == plain.body
        small = await client.ask("GET", f"{COLLECTION}?limit=3", Accept_Encoding="gzip")
        assert "Content-Encoding" not in small.headers
        client.send("GET", WATCH, Accept_Encoding="gzip")
        _, headers = await client.head()
        assert "Content-Encoding" not in headers
