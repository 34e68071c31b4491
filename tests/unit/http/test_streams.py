"""Large objects of watches are encoded in a thread, in order.

The result is the same as on the loop.
"""

import threading
from typing import Any

import orjson
import pytest
from msgspec.structs import replace

from apiext import limits as server_limits
from apiext.http import streams
from apiext.http.negotiation import JSON, PROTOBUF, Wanted
from apiext.http.representations import PARTIAL, Subject
from apiext.http.streams import EncodedAhead
from apiext.storage import limits as storage_limits
from apiext.storage.store import Entry
from apiext.storage.watching import WatchGroup
from apiext.telemetry import Distribution, Slot
from tests.unit.http.support import CODEC, MODEL, NAMESPACES, endpoint, until
from tests.unit.storage.test_fanout import Feed, turns

WAYS = [Wanted(PROTOBUF), Wanted(JSON), Wanted(PROTOBUF, PARTIAL, "v1"), Wanted(JSON, "Table", "v1")]


class Sink:
    """A sink that keeps written bytes."""

    def __init__(self) -> None:
        self.paused = self.closed = False
        self.data = b""

    def write(self, data: bytes) -> None:
        self.data += data

    def end(self, data: bytes) -> None:
        self.write(data + b"END")


def namespace(name: str, size: int) -> bytes:
    metadata = {"name": name, "uid": "u", "annotations": {"a": "x" * size}}
    return orjson.dumps({"apiVersion": "v1", "kind": "Namespace", "metadata": metadata})


def group(subject: Subject) -> tuple[streams.Frames, WatchGroup]:
    frames = streams.frames(subject, Slot(), Distribution(()))
    made = WatchGroup(frames.key, None, None, frames.frame, frames.bookmark, frames.expired, stage=frames.stage)
    return frames, made


@pytest.mark.rows("RV-010", "NEG-002")
@pytest.mark.parametrize("wanted", WAYS, ids=str)
@pytest.mark.parametrize("initial", [True, False])
async def test_events_encoded_in_a_thread_equal_those_of_the_loop(wanted: Wanted, initial: bool) -> None:
    where: set[int] = set()

    def view(raw: bytes, revision: int) -> bytes:
        where.add(threading.get_ident())
        return NAMESPACES.codec.view(raw, revision)

    subject = Subject(replace(NAMESPACES, codec=replace(CODEC, view=view)), endpoint(), wanted)
    feed, sink = Feed(), Sink()
    sizes = {"a": 10, "b": server_limits.WORK_INLINE, "c": 10, "d": 2 * server_limits.WORK_INLINE}
    if initial:
        for name, size in sizes.items():
            feed.put(f"n/{name}", raw=namespace(name, size))
    feed.col.watch(group(subject)[1], None, sink, initial=initial)
    await turns()
    if not initial:
        for name, size in sizes.items():
            feed.put(f"n/{name}", raw=namespace(name, size))
        feed.remove("n/d")
    events = [("ADDED", entry) for entry in feed.col.state.entries()]
    if not initial:
        gone = Entry("n", "d", 14, namespace("d", sizes["d"]))
        events += [("ADDED", gone), ("DELETED", gone.with_revision(15))]
    plain = streams.frames(replace(subject, served=NAMESPACES), Slot(), Distribution(()))
    expected = b"".join(plain.frame(event, entry) for event, entry in events)
    await until(lambda: len(sink.data) >= len(expected))
    assert sink.data == expected
    assert where - {threading.get_ident()}, "the large ones in a thread"


async def test_events_that_cannot_be_encoded_end_the_watch() -> None:
    def view(raw: bytes, revision: int) -> bytes:
        raise ValueError("no")

    feed, sink = Feed(), Sink()
    served = replace(NAMESPACES, codec=replace(CODEC, view=view))
    feed.col.watch(group(Subject(served, endpoint(), Wanted(PROTOBUF)))[1], None, sink)
    await turns()
    feed.put("n/a", raw=namespace("a", server_limits.WORK_INLINE))
    await until(lambda: sink.data.endswith(b"END"))


async def test_unused_encoded_events_are_dropped_when_idle() -> None:
    ahead = EncodedAhead(lambda entry: b"here", lambda entry: b"there")
    entries = [
        Entry("", f"o{number}", 1, b"x" * server_limits.WORK_INLINE) for number in range(2 * storage_limits.SEGMENT + 1)
    ]
    told: list[Any] = []
    ahead.prepare(entries, told.append)
    await until(lambda: bool(told))
    assert told == [entries]
    assert [ahead.now(entry) for entry in entries[:2]] == [None, entries[1]]
    assert [ahead.take(entry) for entry in (*entries[:2], entries[1])] == [b"here", b"there", b"here"]
    assert ahead.now(entries[2]) is entries[2]
    ahead.on_idle()
    assert ahead.now(entries[2]) is None


def test_custom_objects_are_encoded_on_the_loop() -> None:
    subject = Subject(replace(NAMESPACES, model=MODEL), endpoint(), Wanted(JSON))
    assert group(subject)[0].stage is None
