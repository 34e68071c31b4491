"""The sorted state and the bytes of lists equal those of a simple model."""

import asyncio
import zlib
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiext import limits as server_limits
from apiext.meta.time import Ages, render
from apiext.storage import limits as storage_limits
from apiext.storage.keys import bounds
from apiext.storage.segments import Segments
from apiext.storage.snapshot import Snapshot, batches
from apiext.storage.store import EncodedView, Entry, ViewSource

CREATED = datetime(2026, 1, 1, tzinfo=UTC)
NAMESPACES = ("a", "a-b", "a.b", "ab", "b")


def view(raw: bytes, revision: int) -> bytes:
    return b'{"raw":%s,"v":"1","rv":%d}' % (raw, revision)


def other_view(raw: bytes, revision: int) -> bytes:
    return b'{"v":"two","rv":%d,"raw":%s}' % (revision, raw)


def churn(seed: int, names: int, changes: int) -> Iterator[tuple[Snapshot, dict[str, Entry], Random]]:
    """Yield a snapshot and its model as a dict repeatedly, between random changes of both."""
    random = Random(seed)
    model: dict[str, Entry] = {}
    for number in range(random.randrange(names)):
        model[f"{random.choice(NAMESPACES)}/o{random.randrange(names):04}"] = Entry("", "", number, b"%d" % number)
    model = dict(sorted(model.items()))
    snapshot = Snapshot(model.items())
    weight = random.random()
    for number in range(changes):
        key = f"{random.choice(NAMESPACES)}/o{random.randrange(names):04}"
        if random.random() < weight:
            entry = Entry(*key.split("/"), 10_000 + number, b"%d" % number)
            assert snapshot.put(key, entry) is model.get(key)
            model[key] = entry
        else:
            assert snapshot.remove(key) is model.pop(key, None)
        if random.random() < 0.05:
            yield snapshot, dict(sorted(model.items())), random
    yield snapshot, dict(sorted(model.items())), random


def between(model: dict[str, Entry], low: str, high: str) -> list[Entry]:
    return [entry for key, entry in model.items() if low <= key and (not high or key < high)]


@given(st.integers(0, 2**32), st.sampled_from([5, 300, 2000]))
def test_snapshot_equals_a_sorted_dict(seed: int, names: int) -> None:
    for snapshot, model, random in churn(seed, names, 400):
        assert dict(snapshot.index.items()) == model
        assert list(snapshot.items()) == list(model.items())
        assert snapshot.entries() == list(model.values())
        assert len(snapshot) == snapshot.count() == len(model)
        low, high = bounds(random.choice(NAMESPACES))
        assert snapshot.entries(low, high) == between(model, low, high)
        assert snapshot.count(low, high) == len(between(model, low, high))
        start = low + f"o{random.randrange(names):04}\0"
        assert snapshot.entries(start, high) == between(model, start, high)
        for below, above in ((low, high), (start, high), (start, ""), ("", high), ("", "")):
            inside = [key for key in model if below <= key < (above or "~")]
            assert snapshot.last(below, above) == (inside[-1] if inside else "")
        sizes = [len(chunk.keys) for chunk in snapshot.chunks()]
        assert all(0 < size <= 2 * storage_limits.SEGMENT for size in sizes)


@given(st.integers(0, 2**32), st.sampled_from([5, 300, 2000]))
def test_snapshot_pieces_of_readers_never_change(seed: int, names: int) -> None:
    held = []
    for snapshot, model, random in churn(seed, names, 300):
        low, high = random.choice((("", ""), bounds(random.choice(NAMESPACES))))
        low += random.choice(("", f"o{random.randrange(names):04}\0"))
        limit = random.choice((0, 1, 40, storage_limits.SEGMENT, 150, 1000))
        inside = [(key, entry) for key, entry in model.items() if low <= key and (not high or key < high)]
        held.append((snapshot.pieces(low, high, limit), inside[: limit or None]))
    for pieces, inside in held:
        kept = [pair for keys, entries in batches(pieces) for pair in zip(keys, entries, strict=True)]
        assert kept == inside


def test_page_shares_only_its_own_chunks() -> None:
    snapshot = Snapshot((f"n/o{at:04}", Entry("n", f"o{at:04}", at, b"{}")) for at in range(1000))
    snapshot.pieces("n/", "n0", 150)
    assert [chunk.shared for chunk in snapshot.chunks()] == [True] * 2 + [False] * 8


@given(st.integers(0, 2**32), st.sampled_from([5, 300, 2000]))
@pytest.mark.rows("RV-021")
def test_segments_equal_joined_views(seed: int, names: int) -> None:
    for snapshot, model, random in churn(seed, names, 300):
        viewer = random.choice((view, view, other_view))
        low, high = random.choice((("", ""), bounds(random.choice(NAMESPACES)), (f"a/o{names // 3:04}\0", "")))
        naive = b",".join(viewer(entry.raw, entry.revision) for entry in between(model, low, high))
        segments = Segments(snapshot.pieces(low, high), viewer)
        assert segments.count == len(between(model, low, high))
        assert b"".join(segments.parts) == naive
        assert segments.size == len(naive)
        assert segments.pending == 0
        if random.random() < 0.5:
            packed = b"".join(segments.gzip(b'{"items":[', b"]}\n"))
            unpacking = zlib.decompressobj(zlib.MAX_WBITS | 16)
            assert unpacking.decompress(packed) == b'{"items":[' + naive + b"]}\n"
            assert (unpacking.eof, unpacking.unused_data) == (True, b""), "one member, and nothing behind it"
            whole = [piece for piece in snapshot.pieces(low, high) if piece.stop - piece.start == len(piece.chunk.keys)]
            assert (segments.uncompressed < len(naive)) if whole else (segments.uncompressed <= len(naive))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_batches_of_large_objects_are_limited_in_bytes(seed: int) -> None:
    random = Random(seed)
    snapshot, model = Snapshot(), {}
    for number in range(400):
        key = f"a/o{random.randrange(60):02}"
        if random.random() < 0.7:
            raw = b"%d" % number * random.choice((1, 1, 100_000, 400_000))
            model[key] = Entry("a", key[2:], number, raw)
            snapshot.put(key, model[key])
        else:
            snapshot.remove(key)
            model.pop(key, None)
        if number % 40 == 0:
            pieces = snapshot.pieces()
            assert [entry for _, batch in batches(pieces) for entry in batch] == [model[it] for it in sorted(model)]
            for chunk, start, stop in pieces:
                assert stop - start == 1 or sum(len(it.raw) for it in chunk.entries) <= 2 * storage_limits.SEGMENT_BYTES
            naive = b",".join(view(model[it].raw, model[it].revision) for it in sorted(model))
            assert b"".join(Segments(pieces, view).parts) == naive


def test_one_change_renders_one_view() -> None:
    made: list[int] = []

    def counting(raw: bytes, revision: int) -> bytes:
        made.append(revision)
        return raw

    entries = [(f"n/o{number:04}", Entry("n", f"o{number:04}", number, b"%d" % number)) for number in range(1000)]
    snapshot = Snapshot(entries)
    assert b"".join(Segments(snapshot.pieces(), counting).parts) == b",".join(b"%d" % number for number in range(1000))
    assert len(made) == 1000
    kept = snapshot.pieces()
    snapshot.put("n/o0500", Entry("n", "o0500", 2000, b"new"))
    snapshot.put("n/o0500a", Entry("n", "o0500a", 2001, b"newer"))
    snapshot.remove("n/o0502")
    text = b"".join(Segments(snapshot.pieces(), counting).parts)
    assert b",499,new,newer,501,503," in text
    assert len(made) <= 1000 + 4
    assert b",499,500,501,502," in b"".join(Segments(kept, counting).parts)  # requested before


@pytest.mark.parametrize("most", [storage_limits.CONVERTED_AT_ONCE, 500])
async def test_conversion_requests_are_limited_in_objects(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage_limits, "CONVERTED_AT_ONCE", most)
    entries = [(f"n/o{number:04}", Entry("n", f"o{number:04}", number, b"%d" % number)) for number in range(1000)]
    asked: list[int] = []

    async def convert(wanted: Sequence[Entry]) -> Sequence[ViewSource]:
        asked.append(len(wanted))
        return [EncodedView(entry.uncached_view(view), entry.revision) for entry in wanted]

    segments = Segments(Snapshot(entries).pieces(), view)
    await segments.prepare(convert)
    assert sum(asked) == 1000
    assert (len(asked) == 1) is (most > 500)
    assert segments.pending == 0


async def test_other_forms_are_cached_by_chunk() -> None:
    made: list[int] = []

    def maker(ages: Ages) -> Callable[[Entry], bytes]:
        def form(entry: Entry) -> bytes:
            made.append(entry.revision)
            age = f' "{ages.of(render(CREATED))}"' if aged and entry.revision % 3 else ""
            return b"<%b%b>" % (entry.raw, age.encode())

        return form

    aged = False

    async def in_form(now: float = 0.0, name: str = "a", limit: int = 1000) -> list[bytes]:
        made.clear()
        pieces = [
            piece._replace(stop=min(piece.stop, max(0, limit - at)))
            for at, piece in zip(range(0, 1000, 100), snapshot.pieces(), strict=True)
            if at < limit
        ]
        found = await Segments(pieces, view).in_form(name, maker, now)
        return b",".join(found).split(b",")

    snapshot = Snapshot((f"o{number:04}", Entry("", f"o{number:04}", number, b"%d" % number)) for number in range(1000))
    assert [piece.stop for piece in snapshot.pieces()] == [100] * 10
    all_of_them = [b"<%d>" % number for number in range(1000)]
    assert await in_form(limit=230) == all_of_them[:230]
    assert len(made) == 230
    assert await in_form(limit=275) == all_of_them[:275]
    assert len(made) == 100  # for most of a chunk, the whole chunk is made
    assert await in_form(limit=260) == all_of_them[:260]
    assert await in_form() == all_of_them
    assert len(made) == 700
    assert await in_form() == all_of_them
    assert not made
    snapshot.put("o0500", Entry("", "o0500", 2000, b"new"))
    all_of_them[500] = b"<new>"
    assert await in_form() == all_of_them
    assert len(made) == 100
    aged, later = True, CREATED.timestamp() + 4 * 3600 + 60
    for number, (now, age) in enumerate(((later, "4h1m"), (later + 60, "4h2m"), (later - 60, "4h"), (later, "4h1m"))):
        aged_ones = [
            raw if revision % 3 == 0 else raw.replace(b">", f' "{age}">'.encode())
            for raw, revision in zip(all_of_them, (*range(500), 2000, *range(501, 1000)), strict=True)
        ]
        assert await in_form(now, "b") == aged_ones
        assert len(made) == (0 if number else 1000), "only ages are written again"
        assert await in_form(now, "b", limit=275) == aged_ones[:275]
        assert await in_form(now, "b", limit=230) == aged_ones[:230]
    aged = False
    for name in "cd":
        await in_form(name=name)
    assert all(len(piece.chunk.forms) == storage_limits.FORMS for piece in snapshot.pieces())
    for piece in snapshot.pieces():
        piece.chunk.evict()
    assert await in_form(name="d") == all_of_them
    assert len(made) == 1000


async def test_prepare_renders_all_pending_views() -> None:
    snapshot = Snapshot((f"o{number:05}", Entry("", f"o{number:05}", number, b"1")) for number in range(1000))
    segments = Segments(snapshot.pieces(), view)
    assert segments.pending == 1000
    await segments.prepare()
    assert segments.pending == 0
    assert b"".join(segments.parts).count(b"rv") == 1000


def test_snapshot_merges_small_chunks() -> None:
    snapshot = Snapshot((f"o{number:05}", Entry("", f"o{number:05}", number, b"1")) for number in range(5000))
    for number in range(5000):
        if number % 50:
            snapshot.remove(f"o{number:05}")
    assert len(snapshot) == 100
    assert len(list(snapshot.chunks())) <= 8


async def test_large_snapshot_is_built_over_several_iterations(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_limits, "LOOP_BUDGET", 0)  # so each part takes one iteration of the loop on any machine
    entries = [Entry("n", f"o{number:05}", number, b"1") for number in range(1000)]
    turns = 0
    async with asyncio.TaskGroup() as group:
        making = group.create_task(Snapshot.from_entries(entries))
        while not making.done():
            turns += 1
            await asyncio.sleep(0)
    made, naive = making.result(), Snapshot((f"n/{entry.name}", entry) for entry in entries)
    assert turns >= 1000 // storage_limits.SEGMENT
    assert list(made.items()) == list(naive.items())
    assert dict(made.index.items()) == dict(naive.index.items())
    assert [chunk.keys for chunk in made.chunks()] == [chunk.keys for chunk in naive.chunks()]
    assert made.last() == naive.last() == "n/o00999"
