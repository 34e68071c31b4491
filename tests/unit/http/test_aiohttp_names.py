"""The private names of aiohttp that http.protocol uses exist and have the expected meaning."""

import ast
import asyncio
from importlib.metadata import requires, version
from pathlib import Path
from typing import Any

import pytest
from aiohttp import http_parser, http_writer, web, web_protocol
from aiohttp.http_exceptions import BadHttpMessage
from aiohttp.streams import EMPTY_PAYLOAD, StreamReader

from apiext.http import connection as connections
from apiext.http import incoming, limits, protocol, server
from apiext.http.connection import ApiHandler
from apiext.http.filters import Deadlines
from apiext.http.protocol import Request, failure
from tests.unit.http.support import COLLECTION, Shelf, connected, on_uvloop, serving, until

INITIAL = {
    "_buffer_paused": False,
    "_close": False,
    "_current_request": None,
    "_drain_waiter": None,
    "_force_close": False,
    "_handler_waiter": None,
    "_keepalive": True,
    "_keepalive_handle": None,
    "_keepalive_timeout": 3630,
    "_lingering_time": 10.0,
    "_max_msg_queue_size": 32,
    "_message_tail": b"",
    "_msg_queue_resume_size": 16,
    "_next_keepalive_close_time": 0.0,
    "_paused": False,
    "_payload_parser": None,
    "_reading_paused": False,
    "_request_count": 0,
    "_request_in_progress": False,
    "_task_handler": None,
    "_upgraded": False,
    "_waiter": None,
}
"""Attributes of a connection, and their values in a new one."""
OBJECTS = {"_loop": asyncio.AbstractEventLoop, "_manager": web.Server, "_messages": object, "_parser": object}
"""Attributes of a connection that hold an object from the start, and its class."""
METHODS = {
    "_drain_helper", "_pause_reading_for_buffer", "_pause_transport_reading", "_process_keepalive",
    "_resume_reading_if_drained", "_resume_transport_reading",
}  # fmt: skip
"""Methods of a connection."""
ELSEWHERE = {"_ErrInfo": web_protocol, "_buffer": StreamReader, "_kwargs": web.Server, "_loop": web.Server}
"""Names of other classes and modules."""
CALLED = {"_cancel", "_drain_helper", "_finish"}
"""Names of the server's class that aiohttp calls."""
MISSING = f"aiohttp {version('aiohttp')} lacks names that apiext/http/protocol.py uses; see its web_protocol.py"


def _private(module: Any, *, defined: bool = False) -> set[str]:
    """Return the private attributes that a module uses.

    With ``defined``, return those that it defines.
    """
    tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
    if defined:
        functions = (node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
        slots = {
            name
            for node in ast.walk(tree)
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__slots__"
            for name in ast.literal_eval(node.value)
        }
        found = {*functions, *slots}
    else:
        found = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)} | {
            it.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("aiohttp")
            for it in node.names
        }
    return {name for name in found if name.startswith("_") and not name.startswith("__")}


def test_aiohttp_requirement_excludes_untested_versions() -> None:
    found = next(line for line in requires("apiext") or () if line.startswith("aiohttp"))
    assert found.startswith("aiohttp<3.15,>=3.14.5")


def test_used_private_names_are_listed() -> None:
    used = _private(protocol) - _private(protocol, defined=True)
    assert used | CALLED == {*INITIAL, *OBJECTS, *METHODS, *ELSEWHERE, *CALLED}


@pytest.mark.parametrize("module", [incoming, connections, server])
def test_only_the_protocol_module_uses_private_names(module: Any) -> None:
    theirs = {*INITIAL, *OBJECTS, *METHODS, "_ErrInfo", "_kwargs"}
    assert not _private(module) & theirs, "give it a public name in apiext/http/protocol.py"


def test_aiohttp_uses_its_c_parser() -> None:
    assert http_parser.HttpRequestParser is not http_parser.HttpRequestParserPy
    assert protocol.has_fast_parser()


async def new_connection() -> ApiHandler:
    """Return the connection of a server that never listened."""

    async def nothing(request: web.BaseRequest) -> web.StreamResponse:
        raise NotImplementedError

    service: Any = type("Service", (), {"unauthenticated": None, "large_heads": None})()
    return ApiHandler(web.Server(nothing), service, loop=asyncio.get_running_loop(), auto_decompress=False)


async def test_aiohttp_defines_every_private_name() -> None:
    """Names exist in aiohttp's class: the server's subclass may define names that aiohttp lacks."""
    theirs = web.RequestHandler(web.Server(web.Application), loop=asyncio.get_running_loop())  # type: ignore[arg-type]
    missing = {name for name in (*INITIAL, *OBJECTS, *METHODS) if not hasattr(theirs, name)}
    body = StreamReader(theirs, 1, loop=asyncio.get_running_loop())
    places = {web_protocol: web_protocol, StreamReader: body, web.Server: web.Server(web.Application)}  # type: ignore[arg-type]
    missing |= {name for name, place in ELSEWHERE.items() if not hasattr(places[place], name)}
    assert not missing, MISSING


def test_aiohttp_calls_the_overridden_names() -> None:
    source = "".join(Path(module.__file__ or "").read_text(encoding="utf-8") for module in (web_protocol, http_writer))
    assert not {name for name in CALLED if f".{name}(" not in source}, "aiohttp calls them no more"


async def test_private_attributes_of_a_new_connection() -> None:
    ours = await new_connection()
    assert {name: getattr(ours, name) for name in INITIAL} == INITIAL
    assert {name for name, kind in OBJECTS.items() if not isinstance(getattr(ours, name), kind)} == set()
    assert not ours._messages
    assert ours.messages is ours._messages


async def test_parser_returns_messages_that_must_be_consumed() -> None:
    parser = (await new_connection())._parser
    assert parser is not None
    for _ in range(40):  # more than its queue holds: each was consumed
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
    message, _ = failure(caught.value, 400, caught.value.message)
    assert (message.status, message.exc, protocol.is_failure(message)) == (400, caught.value, True)


async def test_body_received_with_its_head_is_buffered() -> None:
    parser = (await new_connection())._parser
    assert parser is not None
    chunks = b"2\r\nbo\r\n2\r\ndy\r\n0\r\n\r\n"
    for header, body in ((b"Content-Length: 4", b"body"), (b"Transfer-Encoding: chunked", chunks)):
        messages, _, _ = parser.feed_data(b"POST /a HTTP/1.1\r\nHost: x\r\n%b\r\n\r\n%b" % (header, body))
        payload = messages[0][1]
        assert (payload.is_eof(), payload.exception(), b"".join(payload._buffer)) == (True, None, b"body")


async def test_buffered_body_is_not_read_after_a_disconnect() -> None:
    connection = await new_connection()
    assert connection._parser is not None
    messages, _, _ = connection._parser.feed_data(b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbody")
    request = connection.request = Request(*messages[0])
    assert await connection.read_body(4) == b"body"
    request._cancel(ConnectionResetError())
    with pytest.raises(ConnectionResetError):
        await connection.read_body(4)


@on_uvloop
async def test_shutdown_wait_ends_with_the_running_request(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Deadlines, "end", lambda *_: None)  # a request that ignores its deadline
    monkeypatch.setattr(limits, "SHUTDOWN_CANCELLED", 0.01)
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
        assert connection._handler_waiter is not None  # None after the time limit
        assert connection._handler_waiter.done()


@pytest.mark.parametrize(("error", "code"), [(TimeoutError(), 504), (ZeroDivisionError(), 500)])
@on_uvloop
async def test_errors_before_any_filter_get_a_response(
    error: Exception, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def answer(self: ApiHandler, request: Request) -> bool:
        raise error

    monkeypatch.setattr(ApiHandler, "answer", answer)
    async with serving(Shelf()) as server, connected(server) as client:
        found = await client.ask("GET", COLLECTION)
        assert (found.code, found.headers["Connection"]) == (code, "close")


@on_uvloop
async def test_each_request_moves_the_keepalive_deadline() -> None:
    shelf = Shelf()
    shelf.put("a")
    async with serving(shelf) as server, connected(server) as client:
        await until(lambda: bool(server.connections))
        connection = server.connections[0]
        await until(lambda: connection._waiter is not None)
        first = connection._next_keepalive_close_time
        assert connection._keepalive_handle is not None
        assert first < asyncio.get_running_loop().time() + 33  # heads have a shorter limit than idle connections
        assert (await client.ask("GET", f"{COLLECTION}/a?resourceVersion=0")).code == 200
        assert connection._next_keepalive_close_time > first + 50
        assert connection._request_count == 1
        shelf.gate, shelf.calls = asyncio.Event(), []
        client.send("GET", f"{COLLECTION}/a")
        await until(lambda: bool(shelf.calls))
        assert connection._waiter is None  # busy: later requests are queued
        client.send("GET", f"{COLLECTION}/a?resourceVersion=0")
        await until(lambda: len(connection._messages) == 1)
        shelf.gate.set()
        assert [(await client.receive()).code for _ in range(2)] == [200, 200]
        connection._process_keepalive()  # before the time limit: it only sets the next timer
        assert not connection._force_close
        connection._next_keepalive_close_time = 0.0
        await until(lambda: connection._waiter is not None)
        connection._process_keepalive()
        assert connection._force_close
        assert await client.reader.read() == b""


@on_uvloop
async def test_large_response_waits_for_the_write_buffer() -> None:
    shelf = Shelf()
    for number in range(60):
        shelf.put(f"n{number}", t="x" * 100_000)
    async with serving(shelf) as server, connected(server) as client:
        client.send("GET", COLLECTION)
        await until(lambda: bool(server.connections) and server.connections[0]._paused)
        assert server.service.in_flight.count == 1  # it waits in drained()
        assert len((await client.receive()).json["items"]) == 60
        await until(lambda: server.service.in_flight.count == 0)


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
            await until(lambda: server.service.in_flight.count == 1)
            assert asyncio.all_tasks() == tasks
            assert server.connections[0]._task_handler in tasks
            shelf.gate.set()
            assert (await client.receive()).code == 200


@on_uvloop
async def test_unread_body_is_skipped_before_the_next_request() -> None:
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
async def test_missing_body_of_a_refused_request_closes_connection() -> None:
    shelf = Shelf()
    async with serving(shelf) as server, connected(server) as client:
        await until(lambda: bool(server.connections))
        server.connections[0]._lingering_time = 0.01
        client.send("DELETE", f"{COLLECTION}/none/none/none", Content_Length="40000")
        assert (await client.receive()).code == 404
        assert await asyncio.wait_for(client.reader.read(), 20) == b""
