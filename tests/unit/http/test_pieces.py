"""Requests that arrive in pieces get the same responses as whole requests."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import accumulate

import orjson
import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from apiext.http import limits
from apiext.http.connection import ApiHandler
from tests.unit.http.support import COLLECTION, Client, Shelf, connected, on_uvloop, serving, until

OTHER = "/apis/example.com/v1/namespaces/e/widgets"
LOOKS_LIKE_ONE = b"POST /apis/example.com/v1/namespaces/d/widgets HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"


def created(name: str, size: int = 0) -> bytes:
    return orjson.dumps({"metadata": {"name": name}, "spec": {"x": "x" * size}})


@dataclass
class Wire:
    """A connection to which a test delivers each piece directly, as a network may join pieces."""

    connection: ApiHandler
    client: Client

    async def give(self, piece: bytes, *, wait: bool = True) -> None:
        self.connection.data_received(piece)
        if wait:
            await until(self.wants_more)

    def is_idle(self) -> bool:
        """Report whether the connection waits for a request, or has ended."""
        waiter = self.connection._waiter
        return self.connection._task_handler is None or (waiter is not None and not waiter.done())

    def wants_more(self) -> bool:
        """Report whether the connection waits for a piece."""
        return self.is_idle() or self._reads()

    def _reads(self) -> bool:
        request = self.connection.request  # also while the body of a refused request is read and ignored
        return request is not None and not request.payload.is_eof()


@asynccontextmanager
async def wired(shelf: Shelf) -> AsyncIterator[Wire]:
    async with serving(shelf) as server:
        assert server._listener is not None
        connection = server._listener()
        assert isinstance(connection, ApiHandler)
        ours, theirs = socket.socketpair()
        transport, _ = await asyncio.get_running_loop().create_connection(asyncio.Protocol, sock=theirs)
        transport.pause_reading()
        connection.connection_made(transport)
        reader, writer = await asyncio.open_connection(sock=ours)
        yield Wire(connection, Client(reader, writer))
        writer.close()
        transport.close()


@on_uvloop
async def test_creates_with_equal_heads_have_their_own_bodies() -> None:
    shelf = Shelf()
    async with serving(shelf) as server, connected(server) as client:
        for number in range(20):
            assert (await client.ask("POST", COLLECTION, created(f"n{number}", number * 7))).code == 201
            answer = await client.ask("POST", OTHER, created(f"n{number}"), Audit_Id="mine")
            assert (answer.code, answer.headers["Audit-Id"]) == (201, "mine")
    assert [(call.namespace, body.document) for call, body in zip(shelf.calls, shelf.bodies, strict=True)] == [
        (namespace, orjson.loads(created(f"n{number}", size)))
        for number in range(20)
        for namespace, size in (("d", number * 7), ("e", 0))
    ]


def post(target: str, body: bytes = b"{}", *fields: str) -> bytes:
    lines = [f"POST {target} HTTP/1.1", "Host: x", *fields, f"Content-Length: {len(body)}", "", ""]
    return "\r\n".join(lines).encode() + body


PART = b"GET /livez HTTP/1.1\r\nHost: x\r\nX: "
LIVEZ = b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n"
BODY = post(OTHER, b"{" + b" " * len(post(COLLECTION, created("a"))))[: -len(post(COLLECTION, created("a")))]
UPGRADE = b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"


@pytest.mark.parametrize("busy", [False, True], ids=["idle", "busy"])
@pytest.mark.parametrize("first", [True, False], ids=["first", "later"])
@pytest.mark.parametrize(
    "before",
    [
        PART,
        BODY,
        LIVEZ + PART,
        LIVEZ + BODY,
        post(COLLECTION, created("b")) + PART,
        UPGRADE + PART,
    ],
    ids=["head", "body", "get-head", "get-body", "create-head", "upgrade"],
)
@on_uvloop
async def test_no_create_begins_inside_another_request(before: bytes, first: bool, busy: bool) -> None:
    """Requests on one connection are never mixed.

    A proxy may send requests of many clients over one connection.
    """
    shelf, known = Shelf(), post(COLLECTION, created("a"))
    async with wired(shelf) as wire:
        if not first:
            await wire.give(known)
            await wire.give(known)
        if busy:
            shelf.gate = asyncio.Event()
            await wire.give(f"GET {COLLECTION} HTTP/1.1\r\nHost: x\r\n\r\n".encode(), wait=False)
            await until(lambda: bool(shelf.calls) and shelf.calls[-1].verb == "list")
        await wire.give(before, wait=not busy)
        if shelf.gate is not None:
            shelf.gate.set()
            await until(wire.wants_more)
        await wire.give(known)
        await until(wire.is_idle)
    assert [body.raw for body in shelf.bodies].count(created("a")) == (0 if first else 2)


def misleading_create(field: str, *, chunked: bool = False) -> tuple[bytes, bytes]:
    """Return a head, and its body with half of another head; together they look like one create."""
    body = b"x\r\nContent-Length: %d\r\n\r\n" % (len(PART) + 7 * chunked)
    head = f"POST {OTHER} HTTP/1.1\r\nHost: x\r\n{field}\r\n\r\n".replace("LENGTH", str(len(body)))
    return head.encode(), (b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if chunked else body) + PART


@pytest.mark.parametrize(
    "pieces",
    [
        misleading_create("Content-Length: LENGTH"),
        misleading_create("Content-Length:LENGTH"),
        misleading_create("content-length:\tLENGTH"),
        misleading_create("Content-Length: 0000000LENGTH"),
        misleading_create("Transfer-Encoding: chunked", chunked=True),
        (b"GET",),
    ],
)
@pytest.mark.parametrize("busy", [False, True], ids=["idle", "busy"])
@on_uvloop
async def test_a_body_is_never_taken_for_a_create(pieces: tuple[bytes, ...], busy: bool) -> None:
    shelf, known = Shelf(), post(COLLECTION, created("a"))
    async with wired(shelf) as wire:
        await wire.give(known)
        await wire.give(known)
        if busy:
            shelf.gate = asyncio.Event()
            await wire.give(f"GET {COLLECTION} HTTP/1.1\r\nHost: x\r\n\r\n".encode(), wait=False)
            await until(lambda: shelf.calls[-1].verb == "list")
        for piece in pieces:
            await wire.give(piece, wait=not busy)
        if shelf.gate is not None:
            shelf.gate.set()
        await until(wire.is_idle)
        await wire.give(known)
        await until(wire.is_idle)
    assert [body.raw for body in shelf.bodies].count(created("a")) == 2


@pytest.mark.parametrize("path", [COLLECTION, "/apis/none.example.com/v1/x"])
@on_uvloop
async def test_an_idle_connection_keeps_no_body(path: str) -> None:
    async with wired(Shelf()) as wire:
        for number in range(3):
            await wire.give(post(path, created(f"a{number}", 100_000)))
            request = wire.connection.request
            assert request is not None
            assert not request.payload._buffer


@on_uvloop
async def test_large_body_parsed_in_parts_is_read_completely() -> None:
    shelf = Shelf()
    async with wired(shelf) as wire:
        for number, size in enumerate((100, 400_000, 100, 400_000)):
            await wire.give(post(COLLECTION, created(f"a{number}", size)))
            assert not wire.connection._reading_paused
            await wire.give(LIVEZ)
        assert [(await wire.client.receive()).code for _ in range(8)] == [201, 200] * 4
    assert [len(body.raw) > 400_000 for body in shelf.bodies] == [False, True] * 2


@pytest.mark.parametrize("before", [LIVEZ, post(COLLECTION, created("a"))], ids=["get", "create"])
@pytest.mark.parametrize("left", [1, 2, 3, 4])
@on_uvloop
async def test_split_end_of_a_head_after_a_request_is_detected(before: bytes, left: int) -> None:
    """A body that arrives after its head is processed, and not taken for a part of the head."""
    shelf, large = Shelf(), post(OTHER, created("b", 150_000))
    at = large.index(b"\r\n\r\n") + left
    async with wired(shelf) as wire:
        await wire.give(before + large[:at])
        await wire.give(large[at:])
        await until(lambda: wire.is_idle() and any(len(body.raw) > 150_000 for body in shelf.bodies))
        assert [(await wire.client.receive()).code for _ in range(2)][1] == 201


@on_uvloop
async def test_buffered_head_is_answered_after_writing_resumes() -> None:
    shelf = Shelf()
    asked = f"GET {COLLECTION} HTTP/1.1\r\nHost: x\r\n".encode() + b"X: " + b"x" * 5_000
    async with wired(shelf) as wire:
        await wire.give(asked)
        assert wire.connection._pieces
        wire.connection.pause_writing()
        await wire.give(b"\r\n\r\n", wait=False)
        wire.connection.resume_writing()
        assert (await wire.client.receive()).code == 200
        assert wire.connection._head == 0


@pytest.mark.parametrize("together", [True, False])
@on_uvloop
async def test_requests_after_a_body_of_many_chunks_are_answered(together: bool) -> None:
    """A connection continues after a body whose last chunks pause the parser."""
    most = limits.BODY_BUFFER // 16  # maximum of chunks that aiohttp queues
    shelf, next_one = Shelf(), post(OTHER, created("b", 100))
    body = created("a", most + 1 - len(created("a")))
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body)
    many = f"POST {COLLECTION} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    many += chunks + b"0\r\n\r\n"
    async with wired(shelf) as wire:
        if together:
            await wire.give(many + next_one + next_one)
        else:
            for piece in (many, next_one, next_one):
                await wire.give(piece)
        assert [(await wire.client.receive()).code for _ in range(3)] == [201] * 3
    assert [body.raw for body in shelf.bodies] == [body, created("b", 100), created("b", 100)]


@pytest.mark.parametrize("late", [1, 40])
@on_uvloop
async def test_requests_after_late_bodies_are_all_answered(late: int) -> None:
    """The parser pauses after 32 unprocessed requests, also if their bodies arrive late."""
    shelf, body = Shelf(), post(COLLECTION, created("a", 100))
    async with wired(shelf) as wire:
        for _ in range(late):
            await wire.give(body[:-1])
            await wire.give(body[-1:] + LIVEZ * (60 if late == 1 else 1))
        codes = [(await wire.client.receive()).code for _ in range(late + (60 if late == 1 else late))]
        assert codes.count(201) == late


@on_uvloop
async def test_request_of_a_disconnected_client_creates_nothing() -> None:
    shelf = Shelf()
    async with wired(shelf) as wire:
        for number in range(2):
            await wire.give(post(COLLECTION, created(f"a{number}")))
        wire.connection.data_received(post(COLLECTION, created("b")))
        turns = wire.connection._task_handler
        wire.connection.force_close()
        assert turns is not None
        await until(turns.done)
    assert [body.document["metadata"]["name"] for body in shelf.bodies] == ["a0", "a1"]


@dataclass
class Asked:
    """A request in short form.

    None is a probe, a number a valid create of that size, bytes an invalid create.
    """

    body: int | bytes | None
    target: str = COLLECTION
    fields: tuple[str, ...] = ()
    chunked: bool = False

    @property
    def raw(self) -> bytes:
        if self.body is None:
            return LIVEZ
        if not self.chunked:
            return post(self.target, self.content, *self.fields)
        head = f"POST {self.target} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        return head.encode() + b"%x\r\n%b\r\n0\r\n\r\n" % (len(self.content), self.content)

    @property
    def content(self) -> bytes:
        return created("a", self.body) if isinstance(self.body, int) else self.body or b""

    @property
    def code(self) -> int:
        return 200 if self.body is None else 201 if isinstance(self.body, int) else 400


_SIZES = st.integers(0, 300) | st.just(150_000)
_BAD = st.sampled_from([b"{", LOOKS_LIKE_ONE, b" " + LOOKS_LIKE_ONE, b"\r\n\r\n"])
_ASKED = st.builds(
    Asked,
    _SIZES | _SIZES | _BAD | st.none(),
    st.sampled_from([COLLECTION, OTHER]),
    st.sampled_from([(), ("User-Agent: me/1",), ("Audit-Id: one",)]),
    st.sampled_from([False, False, False, True]),
)


@given(
    requests=st.lists(_ASKED, min_size=1, max_size=12),
    cuts=st.lists(st.tuples(st.integers(0, 4000) | st.integers(0, 400_000), st.booleans()), max_size=12),
    apart=st.booleans(),
)
def test_requests_in_any_split_get_the_same_responses(
    requests: list[Asked], cuts: list[tuple[int, bool]], apart: bool
) -> None:
    async def run() -> None:
        shelf = Shelf()
        async with wired(shelf) as wire:
            at = dict(cuts)
            if apart:
                edges = accumulate(len(one.raw) for one in requests)
                at |= dict.fromkeys(edges, True)
            stream, last = b"".join(one.raw for one in requests), 0
            for end in sorted({*at, len(stream)}):
                if last < end <= len(stream):
                    await wire.give(stream[last:end], wait=at.get(end, True))
                    last = end
            await until(wire.is_idle)
            assert not wire.connection._reading_paused
            codes = [(await wire.client.receive()).code for _ in requests]
        assert codes == [one.code for one in requests]
        assert [body.raw for body in shelf.bodies] == [one.content for one in requests if one.code == 201]

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(run())
