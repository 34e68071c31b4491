"""The HTTP/2 transport with a simulated server: each of its risks."""

import asyncio

import pytest

from apiext.etcd import errors, frames
from apiext.etcd import limits as etcd_limits
from apiext.etcd.errors import EtcdError
from apiext.etcd.frames import frame, settings, window_update
from apiext.etcd.h2 import Connection
from tests.unit.etcd.peer import OK_HEAD, OK_TRAILERS, Frame, Peer, connected, message

PATH = "/etcdserverpb.KV/Range"


def kinds(heard: list[Frame]) -> list[int]:
    return [frame.kind for frame in heard]


def body_of(heard: list[Frame], stream: int) -> bytes:
    return b"".join(frame.payload for frame in heard if frame.kind == frames.DATA and frame.stream == stream)


async def call_error(answer: asyncio.Future[bytes]) -> EtcdError:
    with pytest.raises(EtcdError) as caught:
        await answer
    return caught.value


async def test_connection_preface_and_settings_exchange() -> None:
    peer = Peer(Connection("etcd:2379", "http", asyncio.get_running_loop()))
    hello, window = await peer.heard()
    values = dict(frames.SETTING.iter_unpack(hello.payload))
    assert values == {
        frames.HEADER_TABLE_SIZE: 0,
        frames.ENABLE_PUSH: 0,
        frames.INITIAL_WINDOW_SIZE: etcd_limits.RECEIVE_WINDOW,
    }
    assert window.kind == frames.WINDOW_UPDATE
    assert not peer.connection.ready.done()
    peer.greet()
    assert peer.connection.ready.done()
    (ack,) = await peer.heard()
    assert (ack.kind, ack.flags) == (frames.SETTINGS, frames.ACK)


async def test_unary_call_sends_its_head_and_returns_the_body() -> None:
    peer = await connected()
    answer = peer.connection.unary(PATH, b"question", 3.0)
    head, data = await peer.heard()
    assert peer.read_head(head.payload) == {
        b":method": b"POST",
        b":scheme": b"http",
        b":path": PATH.encode(),
        b":authority": b"etcd:2379",
        b"content-type": b"application/grpc",
        b"te": b"trailers",
    }
    assert head.flags == frames.END_HEADERS
    assert (data.flags, data.payload) == (frames.END_STREAM, message(b"question"))
    peer.say(peer.answer(1, b"answer"))
    assert await answer == b"answer"


async def test_concurrent_calls_use_independent_streams() -> None:
    peer = await connected()
    answers = [peer.connection.unary(PATH, b"q%d" % n, 3.0) for n in range(10)]
    heard = await peer.heard()
    assert [body_of(heard, 2 * n + 1) for n in range(10)] == [message(b"q%d" % n) for n in range(10)]
    # responses in reverse order: streams are independent
    peer.say(*(peer.answer(2 * n + 1, b"a%d" % n) for n in reversed(range(10))))
    assert [await answer for answer in answers] == [b"a%d" % n for n in range(10)]


@pytest.mark.parametrize("pieces", [1, 2, 3, 7, 8, 9, 10, 4096])
async def test_frames_split_across_reads_are_reassembled(pieces: int) -> None:
    peer = Peer(Connection("etcd:2379", "http", asyncio.get_running_loop()))
    peer.say(settings({frames.MAX_FRAME_SIZE: 16_384}), pieces=pieces)
    answer = peer.connection.unary(PATH, b"q", 3.0)
    big = bytes(range(256)) * 20
    peer.say(
        frame(frames.PING, 0, 0, b"12345678"),
        peer.head(1),
        frame(frames.DATA, 0, 1, message(big)[:3]),
        frame(frames.DATA, 0, 1, message(big)[3:4]),
        frame(frames.DATA, 0, 1, message(big)[4:100]),
        frame(frames.DATA, 0, 1, b""),
        frame(frames.DATA, 0, 1, message(big)[100:]),
        peer.trailers(1),
        pieces=pieces,
    )
    assert await answer == big
    assert not [f for f in await peer.heard() if f.kind == frames.PING]  # not immediately: see Connection._on_ping
    peer.connection._sweep()
    pongs = [f for f in await peer.heard() if f.kind == frames.PING]
    assert [(pong.flags, pong.payload) for pong in pongs] == [(frames.ACK, b"12345678")]


async def test_large_response_sends_window_updates() -> None:
    peer = await connected()
    answer = peer.connection.unary(PATH, b"q", 3.0)
    await peer.heard()
    body = b"abcdefgh" * (1 << 20)
    data = message(body)
    peer.say(peer.head(1), *(frame(frames.DATA, 0, 1, data[at : at + 16_384]) for at in range(0, len(data), 16_384)))
    heard = await peer.heard()
    given = {stream: sum(int.from_bytes(f.payload, "big") for f in heard if f.stream == stream) for stream in (0, 1)}
    assert set(kinds(heard)) == {frames.WINDOW_UPDATE}
    assert all(len(data) - etcd_limits.RECEIVE_WINDOW // 4 - 16_384 <= amount <= len(data) for amount in given.values())
    peer.say(peer.trailers(1))
    assert await answer == body


async def test_data_of_an_unknown_stream_updates_connection_window() -> None:
    peer = await connected()
    chunk = frame(frames.DATA, 0, 7, bytes(16_384))
    peer.say(*([chunk] * (etcd_limits.RECEIVE_WINDOW // 4 // 16_384 + 1)))
    (update,) = await peer.heard()
    assert (update.kind, update.stream) == (frames.WINDOW_UPDATE, 0)


async def test_header_blocks_in_continuation_frames_are_joined() -> None:
    peer = await connected()
    answer = peer.connection.unary(PATH, b"q", 3.0)
    head, tail = peer.block(OK_HEAD), peer.block(OK_TRAILERS)
    peer.say(
        frame(frames.HEADERS, 0, 1, head[:1]),
        frame(frames.CONTINUATION, 0, 1, head[1:2]),
        frame(frames.CONTINUATION, frames.END_HEADERS, 1, head[2:]),
        frame(frames.DATA, 0, 1, message(b"x")),
        frame(frames.HEADERS, frames.END_STREAM, 1, b""),
        frame(frames.CONTINUATION, frames.END_HEADERS, 1, tail),
    )
    assert await answer == b"x"


BROKEN = {
    "interrupted header block": [frame(frames.HEADERS, 0, 1, b"\x88"), frame(frames.PING, 0, 0, bytes(8))],
    "continuation without headers": [frame(frames.CONTINUATION, frames.END_HEADERS, 1, b"\x88")],
    "continuation of another stream": [
        frame(frames.HEADERS, 0, 1, b"\x88"),
        frame(frames.CONTINUATION, frames.END_HEADERS, 3, b""),
    ],
    "endless continuation": [frame(frames.HEADERS, 0, 1, b"\x88")]
    + [frame(frames.CONTINUATION, 0, 1, bytes(16_384))] * 17,
    "padding longer than the frame": [frame(frames.DATA, frames.PADDED, 1, b"\x05abc")],
    "empty padded frame": [frame(frames.DATA, frames.PADDED, 1)],
    "frame too large": [(16_385).to_bytes(3, "big") + bytes(6)],
    "headers that do not decode": [frame(frames.HEADERS, frames.END_HEADERS, 1, b"\xff\xff\xff\xff\xff\xff")],
    "grpc-status that is no number": [
        frame(frames.HEADERS, 5, 1, b"\x00\x0bgrpc-status\x01x"),
    ],
    "data without a stream": [frame(frames.DATA, 0, 0, b"x")],
    "push": [frame(frames.PUSH_PROMISE, frames.END_HEADERS, 1, b"\x00\x00\x00\x02\x88")],
    "settings of a wrong size": [frame(frames.SETTINGS, 0, 0, bytes(5))],
    "window out of range": [settings({frames.INITIAL_WINDOW_SIZE: 1 << 31})],
    "frame size out of range": [settings({frames.MAX_FRAME_SIZE: 1})],
    "http/1": [b"HTTP/1.1 400 Bad Request\r\n\r\n"],
}


@pytest.mark.parametrize("name", BROKEN)
async def test_protocol_errors_close_the_connection(name: str) -> None:
    peer = await connected()
    answer = peer.connection.unary(PATH, b"q", 3.0)
    await peer.heard()
    peer.say(*BROKEN[name])
    error = await call_error(answer)
    assert error.code == errors.UNAVAILABLE
    assert error.sent
    assert "protocol error" in error.message
    heard = await peer.heard()
    assert kinds(heard)[-1] == frames.GOAWAY
    assert peer.closed
    assert peer.connection.lost.done()
    assert peer.connection.closed.done()


async def test_http1_server_fails_the_connection() -> None:
    peer = Peer(Connection("etcd:2379", "http", asyncio.get_running_loop()))
    peer.say(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    with pytest.raises(EtcdError) as caught:
        await peer.connection.ready
    assert not caught.value.sent


@pytest.mark.parametrize("padding", [0, 1, 200])
async def test_padded_frames_are_decoded(padding: int) -> None:
    peer = await connected()
    answer = peer.connection.unary(PATH, b"q", 3.0)
    pad, filling = bytes((padding,)), bytes(padding)
    priority = bytes(5)
    peer.say(
        frame(frames.HEADERS, 4 | 8 | 0x20, 1, pad + priority + peer.block(OK_HEAD) + filling),
        frame(frames.DATA, frames.PADDED, 1, pad + message(b"hello")[:6] + filling),
        frame(frames.DATA, frames.PADDED, 1, pad + message(b"hello")[6:] + filling),
        frame(frames.HEADERS, 1 | 4 | 8, 1, pad + peer.block(OK_TRAILERS) + filling),
    )
    assert await answer == b"hello"


async def test_unknown_frames_are_ignored() -> None:
    peer = await connected()
    answer = peer.connection.unary(PATH, b"q", 3.0)
    peer.say(frame(0xAA, 0xFF, 1, b"what"), frame(frames.PRIORITY, 0, 1, bytes(5)), peer.answer(1, b"a"))
    assert await answer == b"a"


# -- flow control


async def test_request_waits_for_the_stream_window() -> None:
    peer = await connected({frames.INITIAL_WINDOW_SIZE: 10})
    peer.connection.unary(PATH, b"x" * 95, 3.0)
    heard = await peer.heard()
    assert kinds(heard) == [frames.HEADERS, frames.DATA]
    assert len(heard[1].payload) == 10
    peer.say(window_update(1, 40))
    (more,) = await peer.heard()
    assert (len(more.payload), more.flags) == (40, 0)
    peer.say(window_update(1, 1000))
    (rest,) = await peer.heard()
    assert (len(rest.payload), rest.flags) == (50, frames.END_STREAM)


@pytest.mark.parametrize(("calls", "length"), [(3, 30_000), (6, 15_000)])
async def test_calls_share_the_connection_window(calls: int, length: int) -> None:
    peer = await connected({frames.INITIAL_WINDOW_SIZE: 1 << 20})
    for _ in range(calls):
        peer.connection.unary(PATH, b"x" * length, 3.0)
    heard = await peer.heard()
    assert sum(len(f.payload) for f in heard if f.kind == frames.DATA) == 65_535
    peer.say(window_update(0, 100_000))
    heard += await peer.heard()
    assert [body_of(heard, 2 * number + 1) for number in range(calls)] == [message(b"x" * length)] * calls
    assert all(len(f.payload) <= 16_384 for f in heard)


async def test_smaller_initial_window_makes_the_window_negative() -> None:
    peer = await connected({frames.INITIAL_WINDOW_SIZE: 1000})
    peer.connection.unary(PATH, b"x" * 1995, 3.0)
    assert len(body_of(await peer.heard(), 1)) == 1000
    peer.say(settings({frames.INITIAL_WINDOW_SIZE: 100}))  # the window is now 900 below zero
    assert kinds(await peer.heard()) == [frames.SETTINGS]
    peer.say(window_update(1, 900))
    assert await peer.heard() == []
    peer.say(window_update(1, 1))
    assert len(body_of(await peer.heard(), 1)) == 1
    peer.say(settings({frames.INITIAL_WINDOW_SIZE: 5000}))
    assert len(body_of(await peer.heard(), 1)) == 999


@pytest.mark.parametrize("length", [40_000, 70_000])
async def test_request_uses_the_frame_size_of_the_server(length: int) -> None:
    peer = await connected({frames.MAX_FRAME_SIZE: 1 << 17, frames.INITIAL_WINDOW_SIZE: 1 << 17})
    peer.say(window_update(0, 1 << 17))
    peer.connection.unary(PATH, b"x" * length, 3.0)
    (data,) = (await peer.heard())[1:]
    assert (data.flags, data.payload) == (frames.END_STREAM, message(b"x" * length))


@pytest.mark.looptime
async def test_call_blocked_by_a_window_ends_at_its_deadline() -> None:
    peer = await connected({frames.INITIAL_WINDOW_SIZE: 0})
    answer = peer.connection.unary(PATH, b"q", 1.0)
    error = await call_error(answer)
    assert error.code == errors.DEADLINE_EXCEEDED
    heard = await peer.heard()
    assert kinds(heard) == [frames.HEADERS, frames.RST_STREAM]
    # the connection is usable, and the ended call has no effect on it
    peer.say(settings({frames.INITIAL_WINDOW_SIZE: 100}))
    again = peer.connection.unary(PATH, b"q", 1.0)
    assert body_of(await peer.heard(), 3) == message(b"q")
    peer.say(peer.answer(3, b"a"))
    assert await again == b"a"


# -- ends of calls


async def test_trailers_only_response_raises_its_status() -> None:
    peer = await connected()
    answer = peer.connection.unary(PATH, b"q", 3.0)
    fields = [*OK_HEAD, (b"grpc-status", b"11"), (b"grpc-message", b"etcdserver: 100%25 gone%0A")]
    peer.say(peer.head(1, fields, end=True))
    error = await call_error(answer)
    assert (error.code, error.message, error.sent) == (11, "etcdserver: 100% gone\n", True)


@pytest.mark.parametrize(("status", "code"), [(b"503", errors.UNAVAILABLE), (b"401", errors.UNAUTHENTICATED)])
async def test_http_error_status_becomes_a_grpc_error(status: bytes, code: int) -> None:
    peer = await connected()
    answer = peer.connection.unary(PATH, b"q", 3.0)
    peer.say(peer.head(1, [(b":status", status)]))
    error = await call_error(answer)
    assert error.code == code
    assert status.decode() in error.message
    assert kinds(await peer.heard())[-1] == frames.RST_STREAM
    peer.say(frame(frames.DATA, frames.END_STREAM, 1, b"<html>"))


async def test_informational_headers_are_skipped() -> None:
    peer = await connected()
    answer = peer.connection.unary(PATH, b"q", 3.0)
    peer.say(peer.head(1, [(b":status", b"103")]), peer.answer(1, b"a"))
    assert await answer == b"a"


BAD_BODIES = {
    "no message": b"",
    "half a prefix": b"\0\0",
    "compressed": message(b"zzz", compressed=1),
    "too short": message(b"abc")[:-1],
    "two messages": message(b"a") + message(b"b"),
}


@pytest.mark.parametrize("name", BAD_BODIES)
async def test_invalid_message_framing_is_an_internal_error(name: str) -> None:
    peer = await connected()
    answer = peer.connection.unary(PATH, b"q", 3.0)
    peer.say(peer.head(1), frame(frames.DATA, 0, 1, BAD_BODIES[name]), peer.trailers(1))
    assert (await call_error(answer)).code == errors.INTERNAL


async def test_response_without_trailers_is_unavailable() -> None:
    peer = await connected()
    answer = peer.connection.unary(PATH, b"q", 3.0)
    peer.say(peer.head(1), frame(frames.DATA, frames.END_STREAM, 1, message(b"a")))
    error = await call_error(answer)
    assert (error.code, error.sent) == (errors.UNAVAILABLE, True)


async def test_trailers_without_grpc_status_are_unknown() -> None:
    peer = await connected()
    answer = peer.connection.unary(PATH, b"q", 3.0)
    peer.say(peer.head(1), frame(frames.DATA, 0, 1, message(b"a")), peer.head(1, [(b"x", b"y")], end=True))
    assert (await call_error(answer)).code == errors.UNKNOWN
