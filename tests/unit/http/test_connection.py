"""Requests that could confuse parsers or proxies, or exhaust memory."""

import asyncio
import gc
import socket
from contextlib import suppress

import pytest

from apiext import limits as server_limits
from apiext.config import HeaderConfig
from apiext.http import limits as http_limits
from apiext.http.connection import ApiHandler
from apiext.scheduling.slices import Slices
from apiext.storage import heap as heap_module
from apiext.storage import limits as storage_limits
from apiext.storage.heap import Heap
from apiext.verbs.call import Call
from tests.unit.http.support import COLLECTION, Shelf, connected, on_uvloop, serving, until

ONE = f"{COLLECTION}/a?resourceVersion=0"


@pytest.mark.parametrize("query", ["?resourceVersion=0", ""])
@on_uvloop
async def test_unread_responses_stop_further_responses(query: str) -> None:
    shelf = Shelf()
    shelf.put("a", x="x" * 20_000)
    async with serving(shelf) as server, connected(server) as client:
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        for _ in range(15):
            client.writer.write(f"GET {COLLECTION}/a{query} HTTP/1.1\r\nHost: x\r\n\r\n".encode() * 100)
            await asyncio.sleep(0.01)
        (connection,) = server.connections
        assert connection.transport is not None
        assert connection.transport.get_write_buffer_size() < 500_000
        client.writer.transport.resume_reading()  # type: ignore[attr-defined]
        for _ in range(1500):
            assert (await client.receive()).code == 200


@on_uvloop
async def test_each_request_has_its_own_headers() -> None:
    shelf = Shelf()
    shelf.put("a")
    async with serving(shelf) as server, connected(server) as client:
        for agent, lines in (("one/1", 1), ("one/1", 1), ("curl/8", 10), ("two/1", 1), ("curl/8", 10)):
            answer = await client.ask("GET", f"{COLLECTION}/a", User_Agent=agent, Audit_Id=agent)
            assert (answer.headers["Audit-Id"], answer.body.count(b"\n") >= lines) == (agent, True)
            assert (answer.body.count(b"\n") == 1) is (lines == 1)
    assert [call.manager for call in shelf.calls] == ["one", "one", "curl", "two", "curl"]


@pytest.mark.parametrize("wanted", ["h2c", "websocket"])
@on_uvloop
async def test_requests_after_a_declined_upgrade_are_not_lost(wanted: str) -> None:
    shelf = Shelf()
    shelf.put("a")
    async with serving(shelf) as server:
        async with connected(server) as client:
            client.send("GET", ONE, Connection="Upgrade", Upgrade=wanted)
            assert "Connection" not in (await client.receive()).headers
            client.send("GET", ONE, Connection="Upgrade", Upgrade=wanted)
            client.send("GET", "/livez")
            first = await client.receive()
            if first.headers.get("Connection") == "close":  # a repeated request does not wait for the cancelled request
                assert await asyncio.wait_for(client.reader.read(), 20) == b""
            else:
                assert (await client.receive()).body == b"ok"
        async with connected(server) as client:
            client.send("POST", COLLECTION, b'{"metadata": {"name": "b"}}', Connection="Upgrade", Upgrade=wanted)
            client.send("GET", "/livez")
            first = await client.receive()
            assert first.code == 201
            assert first.headers.get("Connection") == "close" or (await client.receive()).body == b"ok"


@pytest.mark.parametrize("more", [b"", b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n", b"GET /livez"])
@on_uvloop
async def test_declined_upgrade_received_on_connect_is_answered(more: bytes) -> None:
    """Bytes are processed that arrive in the same loop iteration as the connection.

    They arrive before a task waits for them.
    """
    head = b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n\r\n"
    async with serving(Shelf()) as server:
        assert server._listener is not None
        connection = server._listener()
        assert isinstance(connection, ApiHandler)
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_connection(asyncio.Protocol, sock=theirs)
        transport.pause_reading()
        connection.connection_made(transport)
        connection.data_received(head + more)
        answer = await asyncio.wait_for(loop.sock_recv(ours, 65536), 20)
        assert answer.startswith(b"HTTP/1.1 200 OK\r\n")
        assert (b"Connection: close" in answer) is bool(more)
        ours.close()
        transport.close()


@pytest.mark.parametrize("path", [COLLECTION, "/apis/none.example.com/v1/x"])
@on_uvloop
async def test_invalid_chunk_gets_an_error_and_closes_the_connection(
    path: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(Shelf()) as server, connected(server) as client:
        client.send("POST", path, Transfer_Encoding="chunked")
        client.writer.write(b"2\r\n{}\r\n")
        await asyncio.sleep(0.01)
        client.writer.write(b"no size\r\n")
        assert (await client.receive()).code == (400 if path == COLLECTION else 404)
        assert await asyncio.wait_for(client.reader.read(), 20) == b""
    assert not caplog.records, "it is the client's fault"


@on_uvloop
async def test_http_1_0_bodies_with_expect_and_chunked_encoding() -> None:
    """HTTP/1.0 clients get no 100, and their connection closes after a chunked body.

    See RFC 9110, 10.1.1, and RFC 9112, 6.1.
    """
    body = b'{"metadata": {"name": "a"}}'
    head = f"POST {COLLECTION} HTTP/1.0\r\nConnection: keep-alive\r\n".encode()
    async with serving(Shelf()) as server:
        async with connected(server) as client:
            client.writer.write(head + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(body))
            await asyncio.sleep(0.01)
            client.writer.write(body)
            answer = await client.receive()
            assert (answer.code, answer.headers["Connection"]) == (201, "keep-alive")
        async with connected(server) as client:
            client.writer.write(head + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(body), body))
            answer = await client.receive()
            assert (answer.code, answer.headers.get("Connection")) == (201, None)
            assert await asyncio.wait_for(client.reader.read(), 20) == b""


@pytest.mark.parametrize(
    "raw",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: +3\r\n\r\nabc",
        b"GET / HTTP/1.1\r\nHost : x\r\n\r\n",
        b"nonsense\r\n\r\n",
        b"GET /livez\r\n\r\n",
        b"GET /livez HTTP/2.0\r\nHost: x\r\n\r\n",
        f"GET {COLLECTION}/a?resourceVersion=0 HTTP/2.0\r\nHost: x\r\n\r\n".encode(),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    ],
)
@on_uvloop
async def test_malformed_requests_get_400_and_close(raw: bytes) -> None:
    shelf = Shelf()
    shelf.put("a")
    async with serving(shelf) as server, connected(server) as client:
        client.writer.write(raw)
        answer = await client.receive()
        assert (answer.code, answer.json["reason"]) == (400, "BadRequest")
        assert answer.json["kind"] == "Status"
        assert answer.headers["Connection"] == "close"
        assert await asyncio.wait_for(client.reader.read(), 20) == b""


@on_uvloop
async def test_lost_connections_are_cleaned_up_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("apiext.scheduling.slices.perf_counter", lambda: now[0])
    lost_connections, gone = Slices(storage_limits.PUMP_SLICE), list[int]()
    for number in range(1_000):
        lost_connections.put(lambda number=number: gone.append(number))  # type: ignore[misc]
    assert gone == list(range(storage_limits.PUMP_SLICE)), "the others wait"
    lost_connections.put(lambda: now.append(now.pop() + server_limits.LOOP_BUDGET))
    lost_connections.put(lambda: gone.append(1_000))
    await asyncio.sleep(0)
    assert 1_000 not in gone, "what took long ends the turn"
    for _ in range(1_000):
        await asyncio.sleep(0)
    assert gone == list(range(1_001))
    lost_connections.put(lambda: gone.append(1_001))
    assert gone[-1] == 1_001, "at once again"


async def test_failed_cleanup_of_a_connection_stops_no_other() -> None:
    lost_connections, gone = Slices(storage_limits.PUMP_SLICE), list[int]()
    asyncio.get_running_loop().set_exception_handler(lambda *_: None)
    for number in range(storage_limits.PUMP_SLICE + 9):
        lost_connections.put(lambda number=number: gone.append(1 // (number - storage_limits.PUMP_SLICE - 3)))  # type: ignore[misc]
    for _ in range(20):
        await asyncio.sleep(0)
    assert len(gone) == storage_limits.PUMP_SLICE + 8


@on_uvloop
async def test_heads_over_the_size_limit_get_431() -> None:
    async with serving(Shelf()) as server:
        async with connected(server) as client:
            assert (await client.ask("GET", "/healthz", Authorization="Bearer " + "x" * 60_000)).code == 200
        async with connected(server) as client:
            assert (await client.ask("GET", "/healthz", Authorization="Bearer " + "x" * 70_000)).code == 431


@pytest.mark.parametrize("path", ["/apis", f"{COLLECTION}/a", f"{COLLECTION}/a?resourceVersion=0", "/nowhere"])
@pytest.mark.parametrize("item", ["*,", "*/*;as=T,", "a/b;q=1,", ","])
@on_uvloop
async def test_headers_have_a_limited_number_of_parts(path: str, item: str) -> None:
    """The number of parts of a header is limited: parsing an Accept of 64 KiB takes 30 to 70 ms."""
    async with serving(Shelf()) as server, connected(server) as client:
        assert (await client.ask("GET", path, Accept=item * 20 + "*/*")).code in (200, 404)
        parts = item.count(",") + item.count(";")
        many = item * (http_limits.HEADER_PARTS // parts)
        answer = await client.ask("GET", path, Accept=many + ",*/*")
        assert answer.code == (404 if path == "/nowhere" else 431)
        answer = await client.ask("GET", path, Accept=many[: -len(item)] + "*/*")
        assert answer.code in (200, 404)


@pytest.mark.parametrize(
    "begin",
    [
        f"GET {COLLECTION}?watch=true HTTP/1.1\r\nHost: x\r\n\r\nGET / HTTP/1.1\r\nHost: x\r\n",
        f"POST {COLLECTION} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{{}}\r\n0\r\n",
        "",
    ],
    ids=["behind a watch", "as trailers", "alone"],
)
@on_uvloop
async def test_endless_heads_and_trailers_close_the_connection(begin: str) -> None:
    shelf = Shelf()
    fields = b"".join(b"X-%d: %b\r\n" % (number, b"v" * 60_000) for number in range(40))
    async with serving(shelf) as server, connected(server) as client:
        client.writer.write(begin.encode() or b"GET / HTTP/1.1\r\nHost: x\r\n")
        await asyncio.sleep(0.01)
        client.writer.write(fields)
        answer = b""
        with suppress(ConnectionError):
            answer = await asyncio.wait_for(client.reader.read(), 20)
        assert begin or not answer or answer.startswith(b"HTTP/1.1 431 ")
        assert not shelf.watches


CHUNKS = "Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
BEFORE = {
    "a read": f"GET {ONE} HTTP/1.1\r\nHost: x\r\n\r\n",
    "two reads": f"GET {ONE} HTTP/1.1\r\nHost: x\r\n\r\nGET /healthz HTTP/1.1\r\nHost: x\r\n\r\n",
    "a create": f"POST {COLLECTION} HTTP/1.1\r\nHost: x\r\nContent-Length: 8\r\n\r\n\r\n\r\n\r\n\r\n",
    "a create in chunks": f"POST {COLLECTION} HTTP/1.1\r\nHost: x\r\n{CHUNKS}",
}


@pytest.mark.parametrize("split", [0, 1, 40], ids="split at {}".format)
@pytest.mark.parametrize("before", BEFORE)
@on_uvloop
async def test_partial_head_after_requests_counts_toward_memory(before: str, split: int) -> None:
    """An incomplete head after whole requests counts toward the limit on memory.

    2,000 connections with 250 KB each take 500 MB.
    """
    shelf = Shelf()
    shelf.put("a")
    begun = b"GET /healthz HTTP/1.1\r\nHost: x\r\n" + b"".join(b"X-%d: %b\r\n" % (at, b"v" * 9_000) for at in range(4))
    async with serving(shelf) as server, connected(server) as client:
        sent = BEFORE[before].encode() + begun
        at = len(BEFORE[before]) - split if split else len(sent)
        client.writer.write(sent[:at])
        await asyncio.sleep(0.02)
        client.writer.write(sent[at:])
        for _ in range(BEFORE[before].count(" HTTP/1.1")):
            await client.receive()
        await until(lambda: server.service.unauthenticated._total >= len(begun))
        assert server.service.unauthenticated._total < 5 * len(sent)
        client.writer.write(b"\r\n")
        assert (await client.receive()).code == 200
        assert (server.service.unauthenticated._total, server.service.unauthenticated._heads) == (0, {})


@on_uvloop
async def test_large_heads_are_not_kept_in_memory() -> None:
    """Connections with large heads are closed.

    Otherwise, the parser keeps the last head until the next request.
    """
    shelf = Shelf()
    shelf.put("a")
    large = {f"X-{number}": "v" * 50_000 for number in range(4)}
    async with serving(shelf) as server, connected(server) as client:
        body = b'{"metadata": {"name": "b"}, "spec": {"t": "%b"}}' % (b"x" * 300_000)
        assert "Connection" not in (await client.ask("POST", COLLECTION, body)).headers
        answer = await client.ask("GET", ONE, **large)
        assert (answer.code, answer.headers["Connection"]) == (200, "close")
    async with serving(shelf) as server, connected(server) as client:
        answer = await client.ask("GET", ONE, **{f"X-{number}": "v" for number in range(1000)})
        assert (answer.code, answer.headers["Connection"]) == (200, "close")


def _handlers() -> list[ApiHandler]:
    return [it for it in gc.get_objects() if isinstance(it, ApiHandler)]


@on_uvloop
async def test_closed_connection_frees_its_unread_response() -> None:
    shelf = Shelf()
    for number in range(200):
        shelf.put(f"a{number}", x="x" * 20_000)
    gc.collect()
    gc.disable()
    others = {id(it) for it in _handlers()}  # from other tests
    try:
        async with serving(shelf) as server:
            for _ in range(3):
                async with connected(server) as client:
                    client.writer.transport.pause_reading()  # type: ignore[attr-defined]
                    client.send("GET", COLLECTION)
                    await until(lambda: any(it._paused for it in server.connections))
                await until(lambda: not server.connections)
            shelf.calls.clear()
            await until(lambda: all(id(it) in others for it in _handlers()))
    finally:
        gc.enable()


@on_uvloop
async def test_heap_is_trimmed_after_many_unread_responses(monkeypatch: pytest.MonkeyPatch) -> None:
    trims: list[int] = []
    monkeypatch.setattr("apiext.storage.heap._trim", lambda: trims.append(0))
    monkeypatch.setattr("apiext.http.connection.HEAP", Heap())
    shelf = Shelf()
    for number in range(400):
        shelf.put(f"a{number}", x="x" * 20_000)
    async with serving(shelf) as server:
        async with connected(server) as client:
            size = len((await client.ask("GET", COLLECTION)).body)
        await until(lambda: not server.connections)
        assert not trims, "what its client has read is left for the next answer"
        for _ in range(1 + heap_module.HEAP_FREED // size):
            async with connected(server) as client:
                client.writer.transport.pause_reading()  # type: ignore[attr-defined]
                client.send("GET", COLLECTION)
                await until(lambda: any(it._paused for it in server.connections))
            await until(lambda: not server.connections)
        await until(lambda: trims == [0])


class _Queue(Shelf):
    """A shelf whose requests wait while their clients are connected."""

    async def _turn(self, call: Call) -> None:
        assert call.client is not None
        call.client.waiting = asyncio.get_running_loop().create_future()
        self.opening.set()
        try:
            await call.client.waiting
        finally:
            call.client.waiting = None
            self.opening.clear()


@pytest.mark.parametrize("origins", [[], ["^https://a$"]])
@on_uvloop
async def test_disconnect_cancels_a_waiting_request(origins: list[str]) -> None:
    shelf = _Queue()
    shelf.put("a")
    async with serving(shelf, headers=HeaderConfig(cors_origins=origins)) as server:
        async with connected(server) as client:
            client.send("GET", f"{COLLECTION}/a", Origin="https://a")
            await asyncio.wait_for(shelf.opening.wait(), 5)
        await until(lambda: not shelf.opening.is_set())
        await until(lambda: not server.connections)
