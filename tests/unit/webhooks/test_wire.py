"""Responses as bytes: any split into reads has the same result; invalid HTTP is refused."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiext import limits as server_limits
from apiext.webhooks import limits as webhooks_limits
from apiext.webhooks.answers import Answer
from apiext.webhooks.errors import Broken, CallError, TooLarge
from apiext.webhooks.wire import Connection


class _Transport(asyncio.Transport):
    """A transport that records its state and the sent bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.dropped = False
        self.sent = b""
        self.paused = False

    def writelines(self, parts: object) -> None:
        self.sent += b"".join(parts)  # type: ignore[arg-type]

    def abort(self) -> None:
        self.dropped = True

    def is_closing(self) -> bool:
        return self.dropped

    def pause_reading(self) -> None:
        self.paused = True

    def resume_reading(self) -> None:
        self.paused = False


def receive(connection: Connection, piece: bytes) -> None:
    """Deliver bytes to the connection's buffer, as a transport does."""
    while piece:
        room = connection.get_buffer(len(piece))
        count = min(len(room), len(piece))
        room[:count], piece = piece[:count], piece[count:]
        connection.buffer_updated(count)


async def wait_until_reading(transport: _Transport) -> list[float]:
    """Wait until the connection reads again; return the seconds of each iteration of the loop."""
    turns: list[float] = []
    for _ in range(1_000):
        if transport.dropped or not transport.paused:
            break
        began = time.thread_time()
        await asyncio.sleep(0)
        turns.append(time.thread_time() - began)
    return turns


@contextlib.asynccontextmanager
async def waiting_connection() -> AsyncIterator[tuple[Connection, _Transport, asyncio.Future[Answer]]]:
    """Yield a connection that waits for a response, its transport and the response.

    The response has at most a million bytes.
    """
    connection, transport = Connection(), _Transport()
    connection.connection_made(transport)
    answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    async def ask() -> None:
        try:
            answer.set_result(await connection.exchange(b"head", b"body", 1_000_000))
        except CallError as error:
            answer.set_exception(error)

    async with asyncio.TaskGroup() as group:
        group.create_task(ask())
        await asyncio.sleep(0)
        yield connection, transport, answer


def read_response(pieces: list[bytes], *, end: bool = False, max_bytes: int = 1000) -> Answer:
    async def run() -> Answer:
        connection, transport = Connection(), _Transport()
        connection.connection_made(transport)
        async with asyncio.TaskGroup() as group:
            answer = group.create_task(connection.exchange(b"head", b"body", max_bytes))
            await asyncio.sleep(0)
            for piece in pieces:
                if not answer.done():
                    receive(connection, piece)
                    await wait_until_reading(transport)
            if end:
                connection.connection_lost(None)
        return answer.result()

    try:
        return asyncio.run(run())
    except BaseExceptionGroup as group:
        raise group.exceptions[0] from None


WHOLE = [
    (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi", Answer(200, "", b"hi", True)),
    (b"HTTP/1.1 200 OK\r\nContent-Type: a/b\r\ncontent-length: 0\r\n\r\n", Answer(200, "a/b", b"", True)),
    (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx", Answer(200, "", b"x", True)),
    (b"HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\nx", Answer(200, "", b"x", False)),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx", Answer(200, "", b"x", True)),
    (b"HTTP/1.1 204 No Content\r\n\r\n", Answer(204, "", b"", True)),
    (b"HTTP/1.1 500\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx", Answer(500, "", b"x", False)),
    (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n3;x=y\r\n ho\r\n0\r\n\r\n",
        Answer(200, "", b"hi ho", True),
    ),
]


@pytest.mark.parametrize(("raw", "answer"), WHOLE)
@given(cuts=st.lists(st.integers(0, 120), max_size=6))
def test_response_is_independent_of_read_sizes(raw: bytes, answer: Answer, cuts: list[int]) -> None:
    places = [0, *sorted(min(cut, len(raw)) for cut in cuts), len(raw)]
    pieces = [raw[a:b] for a, b in itertools.pairwise(places) if a < b]
    assert read_response(pieces) == answer


def test_bytes_after_response_are_dropped() -> None:
    raw = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"
    assert read_response([raw + b"HTTP/1.1 200 OK\r\n"]) == Answer(200, "", b"hi", False)


LARGE = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b"
SEVERAL = [
    *[raw for raw, answer in WHOLE if answer.reusable],
    LARGE % (40_000, b"\r\n\r\n" * 10_000),
    LARGE % (3, b"\r\n0"),
    LARGE % (400_000, b"x" * 400_000),
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9c40\r\n" + b"0\r\n\r\n" * 8_000 + b"\r\n0\r\n\r\n",
]


@given(
    raws=st.lists(st.sampled_from(SEVERAL), min_size=2, max_size=5),
    cuts=st.lists(st.integers(0, 70) | st.integers(0, 40_100) | st.integers(0, 400_100), max_size=4),
)
def test_connection_reads_consecutive_responses(raws: list[bytes], cuts: list[int]) -> None:
    expected = {raw: read_response([raw], max_bytes=1_000_000) for raw in raws}

    async def run() -> None:
        connection = Connection()
        connection.connection_made(_Transport())
        for raw in raws:
            places = [0, *sorted(min(cut, len(raw)) for cut in cuts), len(raw)]
            async with asyncio.TaskGroup() as group:
                answer = group.create_task(connection.exchange(b"head", b"body", 1_000_000))
                await asyncio.sleep(0)
                for a, b in itertools.pairwise(places):
                    receive(connection, raw[a:b])
            assert answer.result() == expected[raw]
            assert len(connection.get_buffer(1)) <= webhooks_limits.WEBHOOK_BUFFER

    asyncio.run(run())


def test_body_without_length_ends_with_connection() -> None:
    assert read_response([b"HTTP/1.1 200 OK\r\n\r\nall of ", b"it"], end=True) == Answer(200, "", b"all of it", False)


def test_bytes_after_response_make_connection_unusable() -> None:
    assert not read_response([b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi and more"]).reusable


async def test_each_exchange_has_own_deadline() -> None:
    connection, loop = Connection(), asyncio.get_running_loop()
    connection.connection_made(_Transport())
    began = loop.time()
    for seconds in (0.05, 0.5, 0.02):  # the timer of each is still set while the next waits
        async with asyncio.TaskGroup() as group:
            answer = group.create_task(connection.exchange(b"head", b"body", 1000, began + seconds))
            await asyncio.sleep(0)
            receive(connection, WHOLE[0][0])
        assert answer.result() == WHOLE[0][1]
    with pytest.raises(TimeoutError):
        await connection.exchange(b"head", b"body", 1000, began + 0.2)
    assert 0.2 <= loop.time() - began < 0.45
    with pytest.raises(TimeoutError):
        await connection.exchange(b"head", b"body", 1000, began)
    connection.connection_lost(None)


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
BAD = [
    (CHUNKED + b"2\r\n{}\r\n0\r\n" + b"x" * 5_000, "suspiciously long trailer"),
    (CHUNKED + b"2\r\n{}\r\n0\r\nx: " + b"y\r\n" * 5_000, "suspiciously long trailer"),
    (CHUNKED + b"1" * 5_000, "header line too long"),
    (CHUNKED + b"1;" + b"x" * 5_000 + b"\r\n.\r\n", "header line too long"),
    (CHUNKED + (b"1;" + b"x" * 1_000 + b"\r\n.\r\n") * 20, "too much non-data"),
    (
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxy",
        'http: message cannot contain multiple Content-Length headers; got \\["1" "2"\\]',
    ),
    (CONTINUE * 6 + b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx", "too many 1xx informational responses"),
    (CONTINUE.replace(b"\r\n\r\n", b"\r\nX: " + b"y" * 20_000 + b"\r\n\r\n") * 4, "server response headers exceeded"),
    (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70_000 + b"\r\nContent-Length: 1\r\n\r\nx", "server response headers exceeded"),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nnonsense\r\nX: y\r\n\r\n", "malformed MIME header line: nonsense$"),
    (b"<html>not http", "malformed HTTP response"),
    (b"HTTP/2 200\r\n\r\n", "malformed HTTP response"),
    (b"HTTP/1.1 2000 OK\r\n\r\n", "malformed HTTP response"),
    (b"HTTP/1.1 200 OK\r\nnonsense\r\n\r\n", "malformed MIME header line: nonsense"),
    (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "bad Content-Length"),
    (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", "unsupported transfer encoding"),
    (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", "invalid byte in chunk length"),
    (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi!!0\r\n\r\n", "malformed chunked encoding"),
    (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70_000, "server response headers exceeded"),
]


@pytest.mark.parametrize(("raw", "text"), BAD)
def test_invalid_http_response_is_an_error(raw: bytes, text: str) -> None:
    with pytest.raises(Broken, match=text):
        read_response([raw])


@pytest.mark.parametrize(
    "raw", [b"HTTP/1.1 200 OK\r\nContent-Length: 1001\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 1001,
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 1001]
)  # fmt: skip
def test_response_over_limit_is_too_large(raw: bytes) -> None:
    with pytest.raises(TooLarge):
        read_response([raw])


WORK = [
    CHUNKED + b"1\r\nx\r\n" * 100_000 + b"0\r\n\r\n",
    CHUNKED + b"186a0\r\n" + b"x" * 100_000 + b"\r\n0\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n" + b"a:\r\n" * 15_000 + b"\r\n" + b"x" * 100_000,
    CHUNKED + b"1\r\nx\r\n" * 100_000 + b"0\r\nX: " + b"y" * 4_000 + b"\r\n\r\n",
]


@pytest.mark.parametrize("size", [7, 300, 1 << 20])
@pytest.mark.parametrize("raw", WORK, ids=["chunks", "chunk", "head", "trailer"])
async def test_response_parsing_yields_and_is_linear(raw: bytes, size: int) -> None:
    """Each byte is read a bounded number of times, and no iteration of the loop is long.

    This holds for any split of the bytes.
    """
    longest = whole = 0.0
    async with waiting_connection() as (connection, transport, answer):
        for at in range(0, len(raw), size):
            began = time.thread_time()
            receive(connection, raw[at : at + size])
            took = [time.thread_time() - began, *await wait_until_reading(transport)]
            longest, whole = max(longest, *took), whole + sum(took)
        assert (await answer).body == b"x" * 100_000
    assert longest < 4 * server_limits.LOOP_BUDGET
    assert whole < 3.0


@pytest.mark.parametrize("last", [b"0\r\n\r\n", b""])
async def test_bytes_before_a_lost_connection_are_parsed(last: bytes) -> None:
    async with waiting_connection() as (connection, _, answer):
        receive(connection, CHUNKED + b"1\r\nx\r\n" * 5_000 + last)
        connection.connection_lost(None)  # before all chunks are parsed
        assert not answer.done()
        if last:
            assert (await answer).body == b"x" * 5_000
        else:
            with pytest.raises(Broken, match="unexpected EOF"):
                await answer


async def test_number_of_chunks_is_limited() -> None:
    async with waiting_connection() as (connection, transport, answer):
        receive(connection, CHUNKED)
        for _ in range(webhooks_limits.WEBHOOK_CHUNKS // 1_000 + 1):
            receive(connection, b"1\r\nx\r\n" * 1_000)
            await wait_until_reading(transport)
        with pytest.raises(Broken, match="too much non-data"):
            await answer


@given(raw=st.binary(max_size=200))
def test_random_bytes_are_response_or_call_error(raw: bytes) -> None:
    try:
        read_response([b"HTTP/1.1 200 OK\r\n" + raw], end=True)
    except CallError as error:
        assert str(error)  # noqa: PT017 - a response or this error is correct
