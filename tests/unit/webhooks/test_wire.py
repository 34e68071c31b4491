"""Answers as bytes: however they are cut, they parse the same; what is no HTTP is refused."""

from __future__ import annotations

import asyncio
import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiext import limits
from apiext.webhooks.errors import Broken, CallError, TooLarge
from apiext.webhooks.wire import Answer, Connection


class _Transport(asyncio.Transport):
    """A transport that only knows whether it was dropped."""

    def __init__(self) -> None:
        super().__init__()
        self.dropped = False
        self.sent = b""

    def writelines(self, parts: object) -> None:
        self.sent += b"".join(parts)  # type: ignore[arg-type]

    def abort(self) -> None:
        self.dropped = True

    def is_closing(self) -> bool:
        return self.dropped


def receive(connection: Connection, piece: bytes) -> None:
    """Have bytes arrive as a transport puts them into a buffer."""
    while piece:
        room = connection.get_buffer(len(piece))
        count = min(len(room), len(piece))
        room[:count], piece = piece[:count], piece[count:]
        connection.buffer_updated(count)


def play(pieces: list[bytes], *, end: bool = False, most: int = 1000) -> Answer:
    async def run() -> Answer:
        connection = Connection()
        connection.connection_made(_Transport())
        async with asyncio.TaskGroup() as group:
            answer = group.create_task(connection.exchange(b"head", b"body", most))
            await asyncio.sleep(0)
            for piece in pieces:
                if not answer.done():
                    receive(connection, piece)
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
    (b"HTTP/1.1 204 No Content\r\n\r\n", Answer(204, "", b"", True)),
    (b"HTTP/1.1 500\r\nContent-Length: 1\r\nConnection: close\r\n\r\nx", Answer(500, "", b"x", False)),
    (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n3;x=y\r\n ho\r\n0\r\n\r\n",
        Answer(200, "", b"hi ho", True),
    ),
]


@pytest.mark.parametrize(("raw", "answer"), WHOLE)
@given(cuts=st.lists(st.integers(0, 120), max_size=6))
def test_cuts_change_nothing(raw: bytes, answer: Answer, cuts: list[int]) -> None:
    places = [0, *sorted(min(cut, len(raw)) for cut in cuts), len(raw)]
    pieces = [raw[a:b] for a, b in itertools.pairwise(places) if a < b]
    assert play(pieces) == answer


def test_what_comes_behind_an_answer_is_no_part_of_it() -> None:
    raw = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi"
    assert play([raw + b"HTTP/1.1 200 OK\r\n"]) == Answer(200, "", b"hi", False)


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
def test_one_answer_after_the_other(raws: list[bytes], cuts: list[int]) -> None:
    expected = {raw: play([raw], most=1_000_000) for raw in raws}

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
            assert len(connection.get_buffer(1)) <= limits.WEBHOOK_BUFFER

    asyncio.run(run())


def test_a_body_may_end_with_the_connection() -> None:
    assert play([b"HTTP/1.1 200 OK\r\n\r\nall of ", b"it"], end=True) == Answer(200, "", b"all of it", False)


def test_bytes_behind_an_answer_end_the_connection() -> None:
    assert not play([b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi and more"]).reusable


async def test_each_answer_has_a_deadline_of_its_own() -> None:
    connection, loop = Connection(), asyncio.get_running_loop()
    connection.connection_made(_Transport())
    began = loop.time()
    for seconds in (0.05, 0.5, 0.02):  # the timer of the first is still set when the second one waits, and so on
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


BAD = [
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
def test_what_is_no_http(raw: bytes, text: str) -> None:
    with pytest.raises(Broken, match=text):
        play([raw])


@pytest.mark.parametrize(
    "raw", [b"HTTP/1.1 200 OK\r\nContent-Length: 1001\r\n\r\n", b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 1001,
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 1001]
)  # fmt: skip
def test_the_bound(raw: bytes) -> None:
    with pytest.raises(TooLarge):
        play([raw])


@given(raw=st.binary(max_size=200))
def test_any_bytes_are_an_answer_or_an_error(raw: bytes) -> None:
    try:
        play([b"HTTP/1.1 200 OK\r\n" + raw], end=True)
    except CallError as error:
        assert str(error)  # noqa: PT017 - either is right, nothing else is
