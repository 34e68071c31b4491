"""Ends of calls and streams: resets, limits, GOAWAY, silence, and streams of watches."""

import asyncio
from collections.abc import Callable
from typing import cast

import hpack
import pytest

from apiext.etcd import errors, frames, h2
from apiext.etcd import limits as etcd_limits
from apiext.etcd.errors import EtcdError
from apiext.etcd.frames import frame, settings, window_update
from apiext.etcd.h2 import Connection
from apiext.etcd.h2call import Call
from tests.unit.etcd.peer import OK_HEAD, Frame, Peer, connected, message, turn

PATH = "/etcdserverpb.KV/Range"


def kinds(heard: list[Frame]) -> list[int]:
    return [frame.kind for frame in heard]


def body_of(heard: list[Frame], stream: int) -> bytes:
    return b"".join(frame.payload for frame in heard if frame.kind == frames.DATA and frame.stream == stream)


async def call_error(answer: asyncio.Future[bytes]) -> EtcdError:
    with pytest.raises(EtcdError) as caught:
        await answer
    return caught.value


@pytest.mark.parametrize(("code", "sent"), [(frames.REFUSED_STREAM, False), (frames.CANCEL, True), (11, True)])
async def test_reset_by_the_server_fails_only_its_call(code: int, sent: bool) -> None:
    peer = await connected()
    answer = peer.connection.unary(PATH, b"q", 3.0)
    peer.say(frame(frames.RST_STREAM, 0, 1, code.to_bytes(4, "big")))
    error = await call_error(answer)
    assert (error.code, error.sent) == (errors.UNAVAILABLE, sent)
    assert peer.connection.live


@pytest.mark.looptime
async def test_cancelled_call_frees_its_stream() -> None:
    peer = await connected({frames.MAX_CONCURRENT_STREAMS: 1})
    first = peer.connection.unary(PATH, b"q", 30.0)
    second = peer.connection.unary(PATH, b"r", 30.0)
    third = peer.connection.unary(PATH, b"s", 30.0)
    await peer.heard()
    first.cancel()
    second.cancel()
    await asyncio.sleep(1)
    heard = await peer.heard()
    assert [(f.kind, f.stream) for f in heard] == [(frames.RST_STREAM, 1), (frames.HEADERS, 3), (frames.DATA, 3)]
    assert heard[2].payload == message(b"s")
    peer.say(peer.answer(1, b"late"), peer.answer(3, b"t"))
    assert await third == b"t"


# -- limits of the connection


async def test_calls_over_the_stream_limit_are_queued() -> None:
    peer = await connected({frames.MAX_CONCURRENT_STREAMS: 2})
    answers = [peer.connection.unary(PATH, b"q%d" % n, 3.0) for n in range(5)]
    assert [f.stream for f in await peer.heard() if f.kind == frames.HEADERS] == [1, 3]
    peer.say(peer.answer(3, b"b"))
    assert [f.stream for f in await peer.heard() if f.kind == frames.HEADERS] == [5]
    peer.say(settings({frames.MAX_CONCURRENT_STREAMS: 10}))
    assert [f.stream for f in await peer.heard() if f.kind == frames.HEADERS] == [7, 9]
    peer.say(*(peer.answer(stream, b"x") for stream in (1, 5, 7, 9)))
    assert [await answer for answer in answers] == [b"x", b"b", b"x", b"x", b"x"]


@pytest.mark.looptime
async def test_queued_call_past_its_deadline_is_unsent() -> None:
    peer = await connected({frames.MAX_CONCURRENT_STREAMS: 1})
    first = peer.connection.unary(PATH, b"q", 10.0)
    queued = peer.connection.unary(PATH, b"q", 1.0)
    error = await call_error(queued)
    assert (error.code, error.sent) == (errors.DEADLINE_EXCEEDED, False)
    assert not first.done()
    assert (await call_error(first)).sent


@pytest.mark.looptime
async def test_slow_response_is_read_but_a_stalled_one_times_out() -> None:
    peer = await connected()
    answers = [peer.connection.unary(PATH, b"q", 3.0) for _ in range(2)]
    body = message(b"x" * 80)
    peer.say(peer.head(1), peer.head(3), frame(frames.DATA, 0, 3, body[:9]))
    for at in range(0, len(body), 10):
        peer.say(frame(frames.DATA, 0, 1, body[at : at + 10]))
        await asyncio.sleep(1)
    peer.say(peer.trailers(1))
    assert await answers[0] == b"x" * 80
    assert (await call_error(answers[1])).code == errors.DEADLINE_EXCEEDED
    assert kinds(await peer.heard())[-1] == frames.RST_STREAM  # earlier


@pytest.mark.looptime
async def test_slow_request_is_sent_but_a_stalled_one_times_out() -> None:
    peer = await connected({frames.INITIAL_WINDOW_SIZE: 10_000})
    peer.say(window_update(0, 1 << 20))
    slow, still = (peer.connection.unary(PATH, b"x" * 100_000, 3.0) for _ in range(2))
    for _ in range(10):
        await asyncio.sleep(1)
        peer.say(window_update(1, 10_000))
    assert still.done()
    peer.say(peer.answer(1, b"a"))
    assert await slow == b"a"
    assert (await call_error(still)).code == errors.DEADLINE_EXCEEDED


def test_bytes_of_other_calls_are_no_progress() -> None:
    """An increase of unsent bytes is no progress of a call."""
    call = Call(PATH, 0.0)
    call.progress, call.out = (), b"x" * 10
    assert [call.has_progressed(unsent) for unsent in (100, 200, 150, 150)] == [True, False, True, False]
    call.out = b"x" * 5
    assert call.has_progressed(300)


async def test_watch_without_a_free_stream_raises_an_unsent_error() -> None:
    peer = await connected({frames.MAX_CONCURRENT_STREAMS: 0})
    with pytest.raises(EtcdError) as caught:
        peer.connection.stream(PATH, lambda _: None, lambda _: None)
    assert not caught.value.sent


async def test_exhausted_stream_ids_drain_the_connection() -> None:
    peer = await connected()
    peer.connection._next_id = frames.MAX_STREAM_ID  # after two thousand million calls
    answer = peer.connection.unary(PATH, b"q", 3.0)
    assert not peer.connection.live
    assert peer.connection.lost.done()
    assert not (await call_error(peer.connection.unary(PATH, b"q", 3.0))).sent
    peer.say(peer.answer(frames.MAX_STREAM_ID, b"last"))
    assert await answer == b"last"
    await turn()
    assert peer.closed


async def test_goaway_fails_unprocessed_calls_as_unsent() -> None:
    peer = await connected({frames.MAX_CONCURRENT_STREAMS: 3})
    ended: list[EtcdError] = []
    low, high = (peer.connection.unary(PATH, b"q", 3.0) for _ in range(2))
    peer.connection.stream(PATH, lambda _: None, ended.append)
    queued = peer.connection.unary(PATH, b"q", 3.0)
    await peer.heard()
    peer.say(frame(frames.GOAWAY, 0, 0, (1).to_bytes(4, "big") + (0).to_bytes(4, "big") + b"max_age"))
    assert not (await call_error(high)).sent
    assert not (await call_error(queued)).sent
    assert [(error.code, error.sent) for error in ended] == [(errors.UNAVAILABLE, False)]
    assert not peer.closed
    assert peer.connection.lost.done()
    peer.say(peer.answer(1, b"still"))
    assert await low == b"still"
    await turn()
    assert peer.closed
    assert peer.connection.closed.done()


async def test_goaway_ends_open_streams() -> None:
    peer = await connected()
    ended: list[EtcdError] = []
    peer.connection.stream(PATH, lambda _: None, ended.append)
    await peer.heard()
    peer.say(frame(frames.GOAWAY, 0, 0, frames.MAX_STREAM_ID.to_bytes(4, "big") + bytes(4)))
    assert kinds(await peer.heard()) == [frames.RST_STREAM]
    assert len(ended) == 1
    assert peer.closed


async def test_lost_connection_ends_calls_and_streams() -> None:
    peer = await connected()
    ended: list[EtcdError] = []
    answer = peer.connection.unary(PATH, b"q", 3.0)
    peer.connection.stream(PATH, lambda _: None, ended.append)
    await peer.heard()
    peer.close()
    error = await call_error(answer)
    assert (error.code, error.sent) == (errors.UNAVAILABLE, True)
    assert len(ended) == 1
    assert not (await call_error(peer.connection.unary(PATH, b"q", 3.0))).sent


async def test_unwritten_call_of_a_lost_connection_is_unsent() -> None:
    peer = await connected()
    first = peer.connection.unary(PATH, b"q", 3.0)
    await peer.heard()
    second = peer.connection.unary(PATH, b"q", 3.0)
    peer.connection.connection_lost(None)
    assert (await call_error(first)).sent
    assert not (await call_error(second)).sent


@pytest.mark.looptime
async def test_silent_server_is_pinged_and_then_aborted() -> None:
    peer = await connected()
    ended: list[EtcdError] = []
    peer.connection.stream(PATH, lambda _: None, ended.append)
    await peer.heard()
    await asyncio.sleep(etcd_limits.PING_EVERY + 1)
    assert kinds(await peer.heard()) == [frames.PING]
    peer.say(frame(frames.PING, frames.ACK, 0, bytes(8)))
    await asyncio.sleep(etcd_limits.PING_EVERY + 1)
    assert kinds(await peer.heard()) == [frames.PING]
    assert not ended
    await asyncio.sleep(etcd_limits.PING_WAIT + 1)
    assert peer.aborted
    assert len(ended) == 1


@pytest.mark.looptime
async def test_idle_connection_is_not_pinged() -> None:
    peer = await connected()
    await asyncio.sleep(100)
    assert await peer.heard() == []


# -- streams


async def test_stream_sends_and_receives_messages() -> None:
    peer = await connected()
    got: list[bytes] = []
    ended: list[EtcdError] = []
    stream = peer.connection.stream(PATH, got.append, ended.append)
    stream.send(b"one")
    stream.send(b"two")
    heard = await peer.heard()
    assert peer.read_head(heard[0].payload)[b"hasleader"] == b"true"
    assert body_of(heard, 1) == message(b"one") + message(b"two")
    assert not any(f.flags & frames.END_STREAM for f in heard)
    both = message(b"a" * 1000) + message(b"") + message(b"b")
    peer.say(peer.head(1))
    for at in range(0, len(both), 3):
        peer.say(frame(frames.DATA, 0, 1, both[at : at + 3]))
    assert got == [b"a" * 1000, b"", b"b"]
    peer.say(peer.trailers(1, 14, "etcdserver: no leader"))
    assert [(error.code, error.message) for error in ended] == [(14, "etcdserver: no leader")]
    stream.send(b"too late")
    stream.cancel()
    assert await peer.heard() == []


async def test_stream_cancelled_in_its_callback_stops_delivery() -> None:
    peer = await connected()
    got: list[bytes] = []
    ended: list[EtcdError] = []

    def listen(body: bytes) -> None:
        got.append(body)
        stream.cancel()

    stream = peer.connection.stream(PATH, listen, ended.append)
    await peer.heard()
    peer.say(peer.head(1), frame(frames.DATA, frames.END_STREAM, 1, message(b"a") + message(b"b")))
    assert got == [b"a"]
    assert ended == []
    assert kinds(await peer.heard()) == [frames.RST_STREAM]


@pytest.mark.parametrize("flags", [0, frames.END_STREAM], ids=["more to come", "the last"])
async def test_compressed_message_ends_the_stream(flags: int) -> None:
    peer = await connected()
    ended: list[EtcdError] = []
    peer.connection.stream(PATH, lambda _: None, ended.append)
    peer.say(peer.head(1), frame(frames.DATA, flags, 1, message(b"x", compressed=1)))
    assert [error.code for error in ended] == [errors.INTERNAL]


async def test_stream_messages_send_window_updates() -> None:
    peer = await connected()
    got: list[bytes] = []
    peer.connection.stream(PATH, got.append, lambda _: None)
    await peer.heard()
    peer.say(peer.head(1))
    chunk = frame(frames.DATA, 0, 1, message(bytes(16_000)))
    peer.say(*([chunk] * 1100))
    assert len(got) == 1100
    given = sum(int.from_bytes(f.payload, "big") for f in await peer.heard() if f.stream == 1)
    assert given >= 1100 * 16_000 - etcd_limits.RECEIVE_WINDOW // 4 - 16_384


# -- a process that was stopped


class Standing:
    """An event loop that a test stops.

    Like uvloop, it then runs its timers before it reads sockets.
    """

    def __init__(self) -> None:
        self.now = 100.0
        self.timers: list[tuple[float, Callable[[], None]]] = []
        real = asyncio.get_running_loop()
        self.create_future, self.call_soon = real.create_future, real.call_soon

    def time(self) -> float:
        return self.now

    def call_later(self, delay: float, callback: Callable[[], None]) -> None:
        self.timers.append((self.now + delay, callback))

    def after(self, seconds: float) -> None:
        """Block for ``seconds``, then run the callbacks that are due."""
        self.now += seconds
        due = [timer for timer in self.timers if timer[0] <= self.now]
        self.timers = [timer for timer in self.timers if timer not in due]
        for _, callback in due:
            callback()


async def stoppable_peer() -> tuple[Peer, Standing]:
    loop = Standing()
    peer = Peer(Connection("etcd:2379", "http", cast(asyncio.AbstractEventLoop, loop)))
    peer.greet()
    await peer.heard()
    return peer, loop


async def test_response_received_during_a_process_stop_is_accepted() -> None:
    peer, loop = await stoppable_peer()
    answer = peer.connection.unary(PATH, b"q", 3.0)
    for at in range(3):  # it may be stopped again immediately
        loop.after(60.0)
        assert not answer.done()
        peer.say(peer.answer(2 * at + 1, b"a"))
        assert await answer == b"a"
        loop.after(h2.SWEEP)
        answer = peer.connection.unary(PATH, b"q", 3.0)


async def test_process_stop_does_not_time_out_a_new_call() -> None:
    """A stop within an iteration of the loop is no timeout.

    This holds though uvloop's time is that of the iteration's start.
    """
    peer, loop = await stoppable_peer()
    answer = peer.connection.unary(PATH, b"q", 3.0)
    loop.after(60.0)
    for _ in range(int(etcd_limits.GRACE / h2.SWEEP)):
        loop.after(h2.SWEEP)
        assert not answer.done()
    loop.after(2 * h2.SWEEP)
    assert (await call_error(answer)).code == errors.DEADLINE_EXCEEDED, "there is no answer"


@pytest.mark.parametrize("stops", [(0.6, 0.6), (0.6, h2.SWEEP)], ids=["always", "every second time"])
async def test_repeated_process_stops_do_not_extend_deadlines(stops: tuple[float, float]) -> None:
    peer, loop = await stoppable_peer()
    answer = peer.connection.unary(PATH, b"q", 3.0)
    for _ in range(10):
        for seconds in stops:
            loop.after(seconds)
    assert answer.done()
    assert (await call_error(answer)).code == errors.DEADLINE_EXCEEDED


async def test_pong_received_during_a_process_stop_is_accepted() -> None:
    peer, loop = await stoppable_peer()
    peer.connection.unary(PATH, b"q", 600.0)
    for _ in range(50):
        loop.after(h2.SWEEP)
    assert frames.PING in kinds(await peer.heard())
    loop.after(60.0)
    peer.say(frame(frames.PING, frames.ACK, 0, bytes(8)))
    loop.after(h2.SWEEP)
    assert peer.connection.live


# -- headers


async def test_tokens_of_any_length_are_encoded() -> None:
    peer = await connected()
    for number, length in enumerate((1, 126, 127, 128, 254, 255, 4000)):
        peer.connection.set_token("t" * length)
        peer.connection.unary(PATH, b"q", 3.0)
        head, _ = await peer.heard()
        assert peer.read_head(head.payload)[b"token"] == b"t" * length, number


async def test_dynamic_header_table_of_the_server_is_decoded() -> None:
    peer = await connected()
    encoder = hpack.Encoder()  # it adds headers to its table, so equal bytes mean other headers later
    for number in range(6):
        stream = 2 * number + 1
        answer = peer.connection.unary(PATH, b"q", 3.0)
        code = b"0" if number % 2 else b"9"
        head = encoder.encode(OK_HEAD)
        trailers = encoder.encode([(b"grpc-status", code), (b"grpc-message", b"m%d" % (number // 2))])
        peer.say(
            frame(frames.HEADERS, frames.END_HEADERS, stream, head),
            frame(frames.DATA, 0, stream, message(b"a")),
            frame(frames.HEADERS, frames.END_HEADERS | frames.END_STREAM, stream, trailers),
        )
        if number % 2:
            assert await answer == b"a"
        else:
            assert (await call_error(answer)).message == f"m{number // 2}"
