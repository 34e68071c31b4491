"""Listed objects share the bytes of their list, which saves memory without changing reads."""

from __future__ import annotations

import gc
import tracemalloc
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiext.storage import store
from apiext.storage.joined_views import JoinedViews, can_be_cut_out
from apiext.storage.segments import Segments
from apiext.storage.snapshot import Snapshot
from apiext.storage.store import Entry

NAMESPACES = ("a", "a-b", "b")


def stored(name: str, note: object) -> bytes:
    return b'{"apiVersion":"example.com/v1","metadata":{"name":"%b","uid":"%b"},"spec":"%b"}\n' % (
        name.encode(),
        name.encode(),
        str(note).encode(),
    )


def view(raw: bytes, revision: int) -> bytes:
    return raw[:-1].replace(b'"uid"', b'"resourceVersion":"%d","uid"' % revision)


def again(raw: bytes, revision: int) -> bytes:  # as of a newer definition
    return view(raw, revision)


def other(raw: bytes, revision: int) -> bytes:
    return view(raw, revision).replace(b"/v1", b"/v2")


def defaulted(raw: bytes, revision: int) -> bytes:
    return view(raw, revision).replace(b'"spec":', b'"more":1,"spec":') if revision % 3 else view(raw, revision)


def live_joined_views() -> list[JoinedViews]:
    gc.collect()
    return [it for it in gc.get_objects() if isinstance(it, JoinedViews)]


@given(st.integers(0, 2**32), st.sampled_from([5, 120, 1000]))
def test_reads_of_joined_views_equal_reads_of_entries(seed: int, names: int) -> None:
    random = Random(seed)
    snapshot, now, raws = Snapshot(), dict[str, Entry](), dict[Entry, bytes]()
    held: list[tuple[Segments, bytes]] = []
    for number in range(1, 500):
        namespace, name = random.choice(NAMESPACES), f"o{random.randrange(names):04}"
        key = f"{namespace}/{name}"
        if random.random() < 0.7:
            entry = now[key] = Entry(namespace, name, number, stored(name, number * random.choice((1, 10**20))))
            raws[entry] = entry.raw
            snapshot.put(key, entry)
        else:
            snapshot.remove(key)
            now.pop(key, None)
        if random.random() < 0.04:
            viewer = random.choice((view, view, again, other, defaulted))
            text = b",".join(viewer(raws[now[at]], now[at].revision) for at in sorted(now))
            listed = Segments(snapshot.pieces(), viewer)
            assert b"".join(listed.parts) == text
            held.append((listed, text))
        if random.random() < 0.01:
            for chunk in snapshot.chunks():
                chunk.evict()
    for entry, raw in raws.items():
        assert (entry.raw, entry.size) == (raw, len(raw))
        for viewer in (view, again, other, defaulted):
            assert entry.uncached_view(viewer) == entry.view(viewer) == viewer(raw, entry.revision)
        assert entry.with_revision(7).raw == raw
    every = list(raws)
    assert store.stored(every) == list(raws.values())
    assert store.bytes_of(every) == sum(map(len, raws.values()))
    assert all(b"".join(listed.parts) == text for listed, text in held)
    assert sum(chunk.stored_size() for chunk in snapshot.chunks()) == sum(len(raws[entry]) for entry in now.values())


@pytest.mark.parametrize(
    ("raw", "shown", "can"),
    [
        (stored("a", 1), view(stored("a", 1), 7), True),
        (stored("a", 1), view(stored("a", 1), 8), False),
        (stored("a", 1), other(stored("a", 1), 7), False),
        (stored("a", 1), defaulted(stored("a", 1), 7), False),
        (stored("a", 1)[:-1], view(stored("a", 1), 7), False),
        (b'{"a":{"resourceVersion":"7","uid":1},"uid":2}\n', b'{"a":{"resourceVersion":"7","uid":1},"uid":2}', False),
        (
            b'{"a":{"resourceVersion":"7","uid":1},"uid":2}\n',
            b'{"a":{"resourceVersion":"7","uid":1},"resourceVersion":"7","uid":2}',
            False,
        ),
    ],
)
def test_can_be_cut_out_accepts_views_that_hold_stored_bytes(raw: bytes, shown: bytes, can: bool) -> None:
    assert can_be_cut_out(raw, shown, 7) is can


def test_lists_and_entries_share_object_bytes() -> None:
    count, size = 2_000, 10_000
    tracemalloc.start()
    try:
        snapshot = Snapshot(
            (f"a/o{number:05}", Entry("a", f"o{number:05}", number, stored(f"o{number:05}", str(number % 10) * size)))
            for number in range(count)
        )
        had = tracemalloc.get_traced_memory()[0]
        for viewer in (view, again):
            listed = Segments(snapshot.pieces(), viewer)
            assert listed.size > count * size
            del listed
            assert tracemalloc.get_traced_memory()[0] < had + 0.05 * count * size
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_joined_views_that_few_entries_use_are_released() -> None:
    had = len(live_joined_views())
    entries = [Entry("a", f"o{number:03}", 1, stored(f"o{number:03}", number)) for number in range(100)]
    snapshot = Snapshot((f"a/{entry.name}", entry) for entry in entries)
    assert Segments(snapshot.pieces(), view).parts
    assert len(live_joined_views()) == had + 1
    newer = [Entry("a", f"o{number:03}", 2, stored("new", number)) for number in range(60)]
    replaced = [snapshot.put(f"a/{entry.name}", entry) for entry in newer]
    for chunk in snapshot.chunks():
        chunk.evict()  # as two minutes after the last list: earlier bytes are freed
    assert len(live_joined_views()) == had
    assert [entry.raw for entry in entries] == [stored(f"o{number:03}", number) for number in range(100)]
    assert replaced == list[Entry | None](entries[:60])


def test_views_of_two_versions_do_not_evict_each_other() -> None:
    made: list[int] = []

    def counting(raw: bytes, revision: int) -> bytes:
        made.append(revision)
        return view(raw, revision)

    snapshot = Snapshot((f"a/o{at:03}", Entry("a", f"o{at:03}", at, stored(f"o{at:03}", at))) for at in range(300))
    for _ in range(3):
        for viewer in (counting, other):
            assert Segments(snapshot.pieces(), viewer).size
    assert len(made) == 300
