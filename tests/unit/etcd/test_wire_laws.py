"""The split of bytes into frames and reads has no effect.

Flow-control windows are never exceeded.
"""

import asyncio
from itertools import pairwise

import looptime
from hypothesis import given
from hypothesis import strategies as st

from apiext.etcd import frames
from apiext.etcd.errors import EtcdError
from apiext.etcd.frames import frame, request_block, settings, window_update
from apiext.etcd.h2 import Connection
from tests.unit.etcd.peer import Peer, connected, message

PATH = "/etcdserverpb.KV/Range"
BODIES = st.lists(st.binary(max_size=60), max_size=6)
CUTS = st.lists(st.integers(min_value=0, max_value=400), max_size=12)


def cut(data: bytes, cuts: list[int]) -> list[bytes]:
    at = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    return [data[begin:end] for begin, end in pairwise(at)]


def run(story: object) -> None:
    with asyncio.Runner(loop_factory=looptime.new_event_loop) as runner:
        runner.run(story)  # type: ignore[arg-type]


@given(BODIES, CUTS, CUTS)
def test_stream_messages_survive_any_split(bodies: list[bytes], into_frames: list[int], into_reads: list[int]) -> None:
    async def story() -> None:
        peer = await connected()
        got: list[bytes] = []
        ended: list[EtcdError] = []
        peer.connection.stream(PATH, got.append, ended.append)
        data = b"".join(message(body) for body in bodies)
        said = peer.head(1) + b"".join(frame(frames.DATA, 0, 1, part) for part in cut(data, into_frames))
        for part in cut(said + peer.trailers(1, 14, "x"), into_reads):
            peer.say(part)
        assert got == bodies
        assert len(ended) == 1
        peer.close()

    run(story())


@given(st.binary(max_size=300), CUTS, CUTS)
def test_unary_response_survives_any_split(body: bytes, into_frames: list[int], into_reads: list[int]) -> None:
    async def story() -> None:
        peer = await connected()
        answer = peer.connection.unary(PATH, b"q", 3.0)
        said = peer.head(1) + b"".join(frame(frames.DATA, 0, 1, part) for part in cut(message(body), into_frames))
        for part in cut(said + peer.trailers(1), into_reads):
            peer.say(part)
        assert await answer == body
        peer.close()

    run(story())


WORDS = st.one_of(
    st.tuples(st.just("call"), st.integers(0, 3000)),
    st.tuples(st.just("open"), st.integers(1, 2000)),
    st.tuples(st.just("open all"), st.integers(1, 2000)),
    st.tuples(st.just("first window"), st.integers(0, 2000)),
    st.tuples(st.just("frame size"), st.integers(16_384, 20_000)),
)


@given(st.lists(WORDS, max_size=25))
def test_requests_respect_windows_and_arrive_completely(words: list[tuple[str, int]]) -> None:
    async def story() -> None:
        peer = Peer(Connection("etcd:2379", "http", asyncio.get_running_loop()))
        first, total = 100, 65_535
        peer.greet({frames.INITIAL_WINDOW_SIZE: first})
        windows: dict[int, int] = {}
        bodies: dict[int, bytes] = {}
        ends: set[int] = set()
        sizes: list[int] = []

        async def listen() -> None:
            nonlocal total
            for heard in await peer.heard():
                if heard.kind == frames.DATA:
                    total -= len(heard.payload)
                    windows[heard.stream] -= len(heard.payload)
                    assert total >= 0
                    assert windows[heard.stream] >= 0
                    bodies[heard.stream] += heard.payload
                    if heard.flags & frames.END_STREAM:
                        ends.add(heard.stream)

        async def open_stream(amount: int) -> None:
            stream = min((s for s in windows if s not in ends), default=0)
            if stream:
                windows[stream] += amount
                peer.say(window_update(stream, amount))

        answers = []
        for word, amount in words:
            if word == "call":
                answers.append(peer.connection.unary(PATH, bytes(amount), 1e6))
                windows[2 * len(sizes) + 1], bodies[2 * len(sizes) + 1] = first, b""
                sizes.append(amount)
            elif word == "open":
                await open_stream(amount)
            elif word == "open all":
                total += amount
                peer.say(window_update(0, amount))
            elif word == "first window":
                for stream in windows:
                    windows[stream] += amount - first
                first = amount
                peer.say(settings({frames.INITIAL_WINDOW_SIZE: amount}))
            else:
                peer.say(settings({frames.MAX_FRAME_SIZE: amount}))
            await listen()
        total += 1 << 20
        peer.say(window_update(0, 1 << 20))
        await listen()
        for _ in sizes:
            await open_stream(1 << 16)
            await listen()
        assert [len(bodies[2 * number + 1]) - 5 for number in range(len(sizes))] == sizes
        assert len(ends) == len(sizes)
        peer.say(*(peer.answer(stream, b"") for stream in sorted(ends)))
        assert [await answer for answer in answers] == [b""] * len(sizes)
        peer.close()

    run(story())


@given(st.text(alphabet=st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=5000))
def test_any_token_survives_the_header_block(token: str) -> None:
    async def story() -> None:
        peer = await connected()
        head = peer.read_head(request_block("https", "h:1", "/p", {"token": token}))
        assert head[b"token"] == token.encode()
        assert head[b":scheme"] == b"https"
        peer.close()

    run(story())
