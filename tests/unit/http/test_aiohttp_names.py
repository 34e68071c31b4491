"""The private names of aiohttp that connections use: each must mean what http.connection believes."""

import asyncio

import pytest
from aiohttp import http_parser, web
from aiohttp.http_exceptions import BadHttpMessage
from aiohttp.streams import EMPTY_PAYLOAD
from aiohttp.web_protocol import _ErrInfo

from apiext.http import limits
from apiext.http.connection import ApiHandler
from apiext.http.gate import Deadlines
from apiext.http.turns import Request
from tests.unit.http.support import COLLECTION, Shelf, connected, on_uvloop, serving, until


def test_versions_are_pinned() -> None:
    from importlib.metadata import requires

    assert any(line.startswith("aiohttp<3.15,>=3.14.5") for line in requires("apiext") or ())


def test_the_parser_is_the_one_in_c() -> None:
    assert http_parser.HttpRequestParser is not http_parser.HttpRequestParserPy


async def handler() -> ApiHandler:
    """Return the connection of a server that never listened."""

    async def nothing(request: web.BaseRequest) -> web.StreamResponse:
        raise NotImplementedError

    manager = web.Server(nothing)
    return ApiHandler(manager, object(), loop=asyncio.get_running_loop(), auto_decompress=False)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "initial"),
    [
        ("_waiter", None),
        ("_payload_parser", None),
        ("_paused", False),
        ("_upgraded", False),
        ("_close", False),
        ("_force_close", False),
        ("_request_count", 0),
        ("_keepalive_handle", None),
        ("_next_keepalive_close_time", 0.0),
        ("_message_tail", b""),
        ("_buffer_paused", False),
        ("_max_msg_queue_size", 32),
        ("_keepalive_timeout", 3630),
        ("_msg_queue_resume_size", 16),
        ("_lingering_time", 10.0),
        ("_current_request", None),
        ("_request_in_progress", False),
        ("_handler_waiter", None),
        ("_reading_paused", False),
    ],
)
async def test_state_of_a_new_connection(name: str, initial: object) -> None:
    assert getattr(await handler(), name) == initial


async def test_methods_are_there() -> None:
    connection = await handler()
    for name in (
        "_process_keepalive",
        "_pause_reading_for_buffer",
        "_drain_helper",
        "_resume_reading_if_drained",
        "_manager",
        "finish_response",
    ):
        assert callable(getattr(connection, name))
    assert not connection._messages


async def test_the_parser_gives_messages_and_wants_them_consumed() -> None:
    parser = (await handler())._parser
    assert parser is not None
    for _ in range(40):  # more than its queue allows: each was consumed
        messages, upgraded, tail = parser.feed_data(b"GET /a?b=c HTTP/1.1\r\nHost: x\r\nA: b\r\n\r\n")
        parser.message_consumed()
        message, payload = messages[0]
        assert (message.method, message.path, message.version, message.should_close) == ("GET", "/a?b=c", (1, 1), False)
        assert message.headers.get("host") == "x"
        assert message.raw_headers == ((b"Host", b"x"), (b"A", b"b"))
        assert payload is EMPTY_PAYLOAD
        assert (upgraded, tail) == (False, b"")
    with pytest.raises(BadHttpMessage) as caught:
        parser.feed_data(b"nonsense\r\n\r\n")
    assert _ErrInfo(400, caught.value, caught.value.message).status == 400


async def test_a_body_that_came_with_its_head_is_in_the_buffer() -> None:
    parser = (await handler())._parser
    assert parser is not None
    chunks = b"2\r\nbo\r\n2\r\ndy\r\n0\r\n\r\n"
    for header, body in ((b"Content-Length: 4", b"body"), (b"Transfer-Encoding: chunked", chunks)):
        messages, _, _ = parser.feed_data(b"POST /a HTTP/1.1\r\nHost: x\r\n%b\r\n\r\n%b" % (header, body))
        payload = messages[0][1]
        assert (payload.is_eof(), payload.exception(), b"".join(payload._buffer)) == (True, None, b"body")


async def test_a_body_that_came_before_its_client_left_is_not_taken() -> None:
    connection = await handler()
    assert connection._parser is not None
    messages, _, _ = connection._parser.feed_data(b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody")
    request = connection._request = Request(*messages[0])
    assert await connection.read_body(4) == b"body"
    request._cancel(ConnectionResetError())
    with pytest.raises(ConnectionResetError):
        await connection.read_body(4)


@on_uvloop
async def test_the_end_waits_for_a_request_no_longer_than_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Deadlines, "end", lambda *_: None)  # one that does not listen to its being over
    monkeypatch.setattr(limits, "SHUTDOWN_LATE", 0.01)
    shelf = Shelf(gate=asyncio.Event())
    shelf.put("a")
    async with serving(shelf) as server, connected(server) as client, asyncio.TaskGroup() as group:
        client.send("GET", f"{COLLECTION}/a")
        await until(lambda: bool(shelf.calls))
        connection = server.connections[0]
        group.create_task(server.wait_closed(drain=0.0))
        await until(lambda: connection._handler_waiter is not None)
        assert shelf.gate is not None
        shelf.gate.set()
        assert (await client.receive()).code == 200
        await until(lambda: connection.transport is None)
        assert connection._handler_waiter is not None  # None again when the time was over
        assert connection._handler_waiter.done()


@pytest.mark.parametrize(("error", "code"), [(TimeoutError(), 504), (ZeroDivisionError(), 500)])
@on_uvloop
async def test_what_no_filter_sees_is_answered(error: Exception, code: int, monkeypatch: pytest.MonkeyPatch) -> None:
    async def answer(self: ApiHandler, request: Request) -> bool:
        raise error

    monkeypatch.setattr(ApiHandler, "answer", answer)
    async with serving(Shelf()) as server, connected(server) as client:
        found = await client.ask("GET", COLLECTION)
        assert (found.code, found.headers["Connection"]) == (code, "close")


@on_uvloop
async def test_a_connection_waits_with_a_future_and_its_deadline_moves() -> None:
    shelf = Shelf()
    shelf.put("a")
    async with serving(shelf) as server, connected(server) as client:
        await until(lambda: bool(server.connections))
        connection = server.connections[0]
        await until(lambda: connection._waiter is not None)
        first = connection._next_keepalive_close_time
        assert connection._keepalive_handle is not None
        assert first < asyncio.get_running_loop().time() + 33  # the head has less time than an idle connection
        assert (await client.ask("GET", f"{COLLECTION}/a?resourceVersion=0")).code == 200
        assert connection._next_keepalive_close_time > first + 50
        assert connection._request_count == 1
        shelf.gate, shelf.calls = asyncio.Event(), []
        client.send("GET", f"{COLLECTION}/a")
        await until(lambda: bool(shelf.calls))
        assert connection._waiter is None  # busy: what comes now is queued
        client.send("GET", f"{COLLECTION}/a?resourceVersion=0")
        await until(lambda: len(connection._messages) == 1)
        shelf.gate.set()
        assert [(await client.receive()).code for _ in range(2)] == [200, 200]
        connection._process_keepalive()  # too early: it only sets the next timer
        assert not connection._force_close
        connection._next_keepalive_close_time = 0.0
        await until(lambda: connection._waiter is not None)
        connection._process_keepalive()
        assert connection._force_close
        assert await client.reader.read() == b""


@on_uvloop
async def test_writing_waits_for_room() -> None:
    shelf = Shelf()
    for number in range(60):
        shelf.put(f"n{number}", t="x" * 100_000)
    async with serving(shelf) as server, connected(server) as client:
        client.send("GET", COLLECTION)
        await until(lambda: bool(server.connections) and server.connections[0]._paused)
        assert server.active == 1  # parked in _drain_helper
        assert len((await client.receive()).json["items"]) == 60
        await until(lambda: server.active == 0)


@on_uvloop
async def test_upgrades_are_declined() -> None:
    shelf = Shelf()
    async with serving(shelf) as server, connected(server) as client:
        client.send("GET", "/healthz", Connection="Upgrade", Upgrade="websocket")
        client.send("GET", "/readyz")
        assert [(await client.receive()).body for _ in range(2)] == [b"ok", b"ok"]
        assert not server.connections[0]._upgraded


@on_uvloop
async def test_one_task_answers_all_requests_of_a_connection() -> None:
    shelf = Shelf(gate=asyncio.Event())
    assert shelf.gate is not None
    shelf.put("a")
    async with serving(shelf) as server, connected(server) as client:
        await until(lambda: bool(server.connections))
        tasks = asyncio.all_tasks()
        for _ in range(2):
            shelf.gate.clear()
            client.send("GET", f"{COLLECTION}/a")
            await until(lambda: server.active == 1)
            assert asyncio.all_tasks() == tasks
            assert server.connections[0]._task_handler in tasks
            shelf.gate.set()
            assert (await client.receive()).code == 200


@on_uvloop
async def test_a_body_that_nobody_wanted_is_read_before_the_next_request() -> None:
    shelf = Shelf()
    shelf.put("a")
    async with serving(shelf) as server, connected(server) as client:
        client.send("DELETE", f"{COLLECTION}/none/none/none", Content_Length="40000")
        assert (await client.receive()).code == 404
        connection = server.connections[0]
        assert connection._waiter is None  # not ready for another request
        for _ in range(4):
            client.writer.write(b"x" * 10_000)
            await asyncio.sleep(0)
        await until(lambda: connection._waiter is not None)
        assert (await client.ask("GET", f"{COLLECTION}/a")).code == 200


@on_uvloop
async def test_a_body_that_never_comes_ends_the_connection() -> None:
    shelf = Shelf()
    async with serving(shelf) as server, connected(server) as client:
        await until(lambda: bool(server.connections))
        server.connections[0]._lingering_time = 0.01
        client.send("DELETE", f"{COLLECTION}/none/none/none", Content_Length="40000")
        assert (await client.receive()).code == 404
        assert await asyncio.wait_for(client.reader.read(), 20) == b""
