"""Shutdown of a server: awaited requests, its time limit, and responses to other requests."""

import asyncio
import socket

import pytest

from apiext.http import limits
from tests.unit.http.support import COLLECTION, Shelf, connected, on_uvloop, serving, until


@pytest.mark.parametrize("query", ["", "?timeout=30s"])
@on_uvloop
async def test_requests_cancelled_at_shutdown_are_not_logged_as_errors(
    query: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(limits, "SHUTDOWN_CLOSE", 0.01)
    shelf = Shelf(gate=asyncio.Event())
    async with serving(shelf) as server, connected(server) as client:
        client.send("GET", COLLECTION + query)
        await until(lambda: bool(shelf.calls))
        await server.wait_closed(drain=0.0)
    assert caplog.messages == ["1 requests were still running at the end of the shutdown time"]


def _is_closed(port: int) -> bool:
    with socket.socket() as asking:
        return asking.connect_ex(("127.0.0.1", port)) != 0


@pytest.mark.rows("LIM-003")
@on_uvloop
async def test_shutdown_finishes_running_requests() -> None:
    shelf = Shelf(gate=asyncio.Event())
    shelf.put("a")
    async with serving(shelf) as server, connected(server) as client, connected(server) as idle:
        assert (await idle.ask("GET", "/readyz")).code == 200
        client.send("GET", f"{COLLECTION}/a")
        await until(lambda: bool(shelf.calls))
        server.begin_shutdown()
        assert (await idle.ask("GET", "/readyz")).code == 500
        async with asyncio.TaskGroup() as group:
            group.create_task(server.wait_closed())
            await until(lambda: _is_closed(server.port))
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection("127.0.0.1", server.port)
            assert shelf.gate is not None
            shelf.gate.set()
            answer = await client.receive()
        assert (answer.code, answer.headers["Connection"]) == (200, "close")
        assert await asyncio.wait_for(idle.reader.read(), 20) == b""


@pytest.mark.rows("LIM-003")
@on_uvloop
async def test_shutdown_serves_connections_accepted_before_it() -> None:
    shelf = Shelf()
    shelf.put("a")
    async with serving(shelf) as server, connected(server) as client:
        await until(lambda: bool(server.connections))
        async with asyncio.TaskGroup() as group:
            group.create_task(server.wait_closed())
            await until(lambda: _is_closed(server.port))
            assert (await client.ask("GET", f"{COLLECTION}/a")).code == 200
        assert await asyncio.wait_for(client.reader.read(), 20) == b""


@pytest.mark.rows("LIM-003")
@on_uvloop
async def test_shutdown_ends_slow_requests_with_504() -> None:
    shelf = Shelf(gate=asyncio.Event())
    async with serving(shelf) as server, connected(server) as one, connected(server) as two:
        one.send("GET", f"{COLLECTION}/a")
        two.send("GET", f"{COLLECTION}/a?timeout=30s")
        await until(lambda: len(shelf.calls) == 2)
        await server.wait_closed(drain=0.05)
        for client in (one, two):
            answer = await client.receive()
            assert (answer.code, answer.headers["Connection"]) == (504, "close")
            assert answer.json["reason"] == "Timeout"


@pytest.mark.rows("LIM-003")
@on_uvloop
async def test_shutdown_does_not_wait_for_watches_and_slow_readers(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(limits, "SHUTDOWN_CLOSE", 0.01)
    shelf = Shelf(gate=asyncio.Event())
    for number in range(60):
        shelf.put(f"n{number}", t="x" * 100_000)
    async with serving(shelf) as server, connected(server) as reader, connected(server) as watcher:
        reader.send("GET", COLLECTION)
        await until(lambda: bool(shelf.calls))
        assert shelf.gate is not None
        shelf.gate.set()
        await until(lambda: server.service.in_flight.count == 1)
        shelf.gate.clear()
        watcher.send("GET", f"{COLLECTION}?watch=true")
        await until(lambda: len(shelf.calls) == 2)
        async with asyncio.timeout(20):
            await server.wait_closed(drain=0.01)
    assert caplog.messages[0] == "2 requests were still running at the end of the shutdown time"


@pytest.mark.rows("LIM-003", "RV-010")
@on_uvloop
async def test_shutdown_ends_watches_with_a_last_chunk() -> None:
    shelf = Shelf()
    async with serving(shelf) as server, connected(server) as client:
        client.send("GET", f"{COLLECTION}?watch=true")
        assert (await client.head())[0] == 200
        await server.wait_closed()
        assert await client.chunk() == b""
        assert await asyncio.wait_for(client.reader.read(), 20) == b""
    assert not shelf.watches
