"""Indexes have the same results as a scan after any changes, and their size is limited."""

import asyncio
from collections.abc import Callable
from random import Random
from time import perf_counter

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiext import limits as server_limits
from apiext.storage import indexes as indexes_module
from apiext.storage import limits as storage_limits
from apiext.storage import state
from apiext.storage.indexes import Dimension, Index, Indexes, Term
from apiext.storage.store import Entry
from tests.support.laws import examples
from tests.support.sinks import RecordingSink, watch_group
from tests.unit.storage.test_fanout import Feed, turns

pytestmark = pytest.mark.rows("SEL-002")

COLORS = ("red", "green", "blue", "")


def value_of(field: str) -> Callable[[Entry], str | None]:
    return lambda entry: orjson.loads(entry.raw).get(field)


COLOR, SIZE = Dimension("color", value_of("color")), Dimension("size", value_of("size"))


def equal(dimension: Dimension, *values: str) -> Term:
    return Term(dimension, lambda found: found in values, frozenset(values))


def unequal(dimension: Dimension, value: str) -> Term:
    return Term(dimension, lambda found: found != value, None, frozenset((value,)))


def absent(dimension: Dimension) -> Term:
    return Term(dimension, lambda found: found is None)


TERMS = st.lists(
    st.one_of(
        st.sampled_from((COLOR, SIZE)).flatmap(
            lambda of: st.sampled_from(COLORS).map(lambda value: equal(of, value)) | st.just(equal(of, "red", "3"))
        ),
        st.sampled_from(COLORS).map(lambda value: unequal(COLOR, value)),
        st.just(absent(SIZE)),
    ),
    min_size=1,
    max_size=3,
)


def change(feed: Feed, random: Random) -> None:
    key = f"{random.choice('abc')}/o{random.randrange(30):02}"
    if random.random() < 0.25 and feed.col.state.by_key(key):
        feed.remove(key)
    else:
        body = {"color": random.choice(COLORS), "size": random.choice(("1", "3", None))}
        feed.put(key, raw=orjson.dumps({name: value for name, value in body.items() if value is not None}))


def scanned(feed: Feed, terms: list[Term], namespace: str | None) -> list[Entry]:
    return [entry for entry in feed.col.state.entries(namespace) if all(term.matches(entry) for term in terms)]


@given(
    st.randoms(use_true_random=False),
    st.lists(st.tuples(TERMS, st.sampled_from((None, "a", "c")), st.integers(0, 5)), min_size=1, max_size=6),
    st.sampled_from((0, 3, 1000)),
)
@examples(25)
def test_index_selects_the_same_objects_as_a_scan(
    random: Random, asked: list[tuple[list[Term], str | None, int]], sort: int
) -> None:
    async def run() -> None:
        feed = Feed()
        for terms, namespace, limit in asked:
            for _ in range(random.randrange(40)):
                change(feed, random)
            if random.random() < 0.1:
                entries = list(feed.col.state.entries())
                feed.col.announce(feed.col.load(entries, {}, feed.revision))
            wanted = scanned(feed, terms, namespace)
            found, start = [], ""
            while True:
                page = await feed.col.state.select(terms, namespace, start, limit)
                assert page.revision == feed.revision
                found += page.entries
                start = page.next
                assert not limit or len(page.entries) <= limit
                if not start:
                    break
                assert len(page.entries) == limit
            assert found == wanted

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(state, "INDEX_FROM", 1)
        patch.setattr(storage_limits, "INDEX_SORTED", sort)
        patch.setattr(Indexes, "bytes", 0)
        patch.setattr(storage_limits, "INDEXES_BYTES", random.choice((0, 20_000, 1_000_000)))
        patch.setattr(storage_limits, "INDEX_VALUES", random.choice((1, 100)))
        asyncio.run(run())


@pytest.mark.parametrize("budget", [0.0, 10.0], ids=["turn by turn", "at once"])
async def test_index_includes_changes_during_its_build(budget: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_limits, "LOOP_BUDGET", budget)
    monkeypatch.setattr(state, "INDEX_FROM", 1)
    feed = Feed()
    feed.put(*(f"a/o{number:02}" for number in range(50)), raw=b'{"color":"red"}')
    await feed.col.state.select([equal(COLOR, "red")], None)  # the next selection builds the index
    async with asyncio.TaskGroup() as group:
        asking = group.create_task(feed.col.state.select([equal(COLOR, "red")], None))
        await turns(5)
        feed.put("a/o00", raw=b'{"color":"blue"}')
        feed.remove("a/o49")
    found = asking.result()
    assert len(found.entries) == (50 if found.revision < feed.revision - 1 else 48)
    later = await feed.col.state.select([equal(COLOR, "red")], None)
    assert [entry.name for entry in later.entries] == [f"o{number:02}" for number in range(1, 49)]


async def test_collection_reload_during_an_index_build(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_limits, "LOOP_BUDGET", 0.0)
    monkeypatch.setattr(state, "INDEX_FROM", 1)
    feed = Feed()
    feed.put(*(f"a/o{number:02}" for number in range(50)), raw=b'{"color":"red"}')
    await feed.col.state.select([equal(COLOR, "red")], None)  # the next selection builds the index
    async with asyncio.TaskGroup() as group:
        asking = group.create_task(feed.col.state.select([equal(COLOR, "red")], None))
        await turns(3)
        kept = list(feed.col.state.entries())[:7]
        feed.col.announce(feed.col.load(kept, {}, feed.revision))
    assert list(asking.result().entries) == kept


async def test_unreadable_object_fails_each_indexed_selection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "INDEX_FROM", 1)

    def broken(entry: Entry) -> str:
        if entry.name == "bad":
            raise ValueError(entry.name)
        return "red"

    feed = Feed()
    feed.put("a/bad", "a/good")
    wrong = equal(Dimension("wrong", broken), "red")
    for _ in range(3):
        with pytest.raises(ValueError, match="bad"):
            await feed.col.state.select([wrong], None)
    feed.remove("a/bad")
    assert [entry.name for entry in (await feed.col.state.select([wrong], None)).entries] == ["good"]


def test_unused_indexes_are_dropped_within_a_byte_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Indexes, "bytes", 0)
    monkeypatch.setattr(storage_limits, "INDEXES_BYTES", 8 * indexes_module.INDEX_OBJECT)
    entries = {"a": Entry("", "a", 1, b"{}")}
    indexes, others = Indexes(lambda: entries), Indexes(lambda: entries)

    async def ask(key: str, which: Indexes = indexes) -> bool:
        return await which.narrow([equal(Dimension(key, lambda entry: "x"), "x")]) is not None

    async def run() -> None:
        assert [await ask("once") for _ in range(3)] == [False, True, True], "an index is for what is asked for again"
        for number in range(24):
            await ask(str(number))
            await ask(str(number))
            await ask(str(number), others)
            await ask(str(number), others)
        assert len(indexes) + len(others) == 8, "all collections share the bytes"
        assert await ask("once"), "one that is in use gives way to no other"
        indexes.tick()
        others.tick()
        await ask("once")
        assert not await ask("new")
        assert await ask("new"), "one that was idle for a tick does"
        for _ in range(storage_limits.INDEX_IDLE + 1):
            indexes.tick()
            others.tick()
        await ask("kept")
        await ask("kept")
        assert (len(indexes), len(others)) == (1, 0)
        indexes.clear()
        assert (len(indexes), Indexes.bytes) == (0, 0)

    asyncio.run(run())


async def test_indexes_of_many_labels_are_kept_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Indexes of twelve labels are kept at the same time.

    With room for eight they would be built and dropped in turn.
    """
    monkeypatch.setattr(Indexes, "bytes", 0)
    monkeypatch.setattr(state, "INDEX_FROM", 1)
    feed, reads = Feed(), list[str]()
    feed.put(*(f"a/o{number:03}" for number in range(300)), raw=b'{"color":"red"}')

    def dimension(number: int) -> Dimension:
        return Dimension(("label", number), lambda entry: (reads.append(entry.name), f"v{number}")[1])

    for _ in range(2):
        for number in range(12):
            await feed.col.state.select([equal(dimension(number), "x")], None)
    reads.clear()
    for _ in range(5):
        for number in range(12):
            await feed.col.state.select([equal(dimension(number), "x")], None)
    assert not reads


async def test_unequal_selector_uses_an_index_of_many_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Indexes, "bytes", 0)
    monkeypatch.setattr(state, "INDEX_FROM", 1)
    monkeypatch.setattr(storage_limits, "INDEX_VALUES", 100)
    feed, reads = Feed(), list[str]()
    for number in range(300):
        feed.put(f"a/o{number:03}", raw=b'{"color":"c%d"}' % number)
    color = Dimension("own color", lambda entry: (reads.append(entry.name), value_of("color")(entry))[1])
    for _ in range(2):
        await feed.col.state.select([unequal(color, "c7")], None)
    reads.clear()
    found = await feed.col.state.select([unequal(color, "c7")], None)
    assert [entry.name for entry in found.entries] == [f"o{number:03}" for number in range(300) if number != 7]
    assert not reads, "no object is read again"


def test_marking_a_change_reads_no_object() -> None:
    feed = Feed()
    reads: list[Entry] = []
    feed.put(*(f"a/o{number:02}" for number in range(50)))
    index = Index(Dimension("seen", reads.append), ())
    for number in range(1000):
        index.mark(f"o{number % 10}")
    assert not reads  # a change sets a mark, without reading the object
    entries = {f"o{number}": Entry("", f"o{number}", 1, b"{}") for number in range(10)}
    assert index.read_marked(entries, perf_counter() + 10)
    assert len(reads) == 10


# --- watches by value ---


@given(st.randoms(use_true_random=False))
@examples(12)
def test_routed_and_unrouted_groups_get_the_same_events(random: Random) -> None:
    async def run(values: int) -> list[list[object]]:
        seed = Random(start)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(storage_limits, "ROUTE_VALUES", values)
            feed = Feed()
            sinks = []
            for color in COLORS:
                term = equal(COLOR, color)
                for namespace in (None, "a"):
                    sinks.append(sink := RecordingSink())
                    group = watch_group(namespace, term.matches, key=f"{color}/{namespace}", route=term)
                    watcher = feed.col.watch(group, None, sink)
                    sink.paused = seed.random() < 0.2
                    if sink.paused:
                        laggards.append((sink, watcher))
            for _ in range(60):
                change(feed, seed)
                if seed.random() < 0.3:
                    await turns(5)
            for sink, watcher in laggards:
                sink.paused = False
                watcher.resume()
            laggards.clear()
            await turns(200)
            return [list(sink.events) for sink in sinks]

    laggards: list[tuple[RecordingSink, object]] = []
    start = random.randrange(10**9)
    assert asyncio.run(run(1)) == asyncio.run(run(0))


async def test_change_wakes_only_groups_that_it_may_match(monkeypatch: pytest.MonkeyPatch) -> None:
    feed = Feed()
    made: list[str] = []

    def frames(name: str) -> Callable[[str, Entry], bytes]:
        return lambda kind, entry: (made.append(name), b"")[1]

    looked: list[Entry] = []
    color = Dimension("color", lambda entry: (looked.append(entry), orjson.loads(entry.raw).get("color"))[1])
    for number in range(20):
        term = equal(color, f"c{number}")
        feed.col.watch(
            watch_group(selects=term.matches, key=str(number), frame=frames(f"c{number}"), route=term),
            None,
            RecordingSink(),
        )
    await turns(100)
    feed.put("a/x", raw=b'{"color":"c3"}')
    await turns(100)
    assert made == ["c3"]
    assert len(looked) == 2  # once to find the group, once by the group itself


async def test_unreadable_object_ends_all_routed_watches() -> None:
    def broken(entry: Entry) -> str:
        raise ValueError(entry.name)

    feed = Feed()
    sinks = []
    for number in range(20):
        term = equal(Dimension("broken", broken), str(number))
        sinks.append(sink := RecordingSink())
        feed.col.watch(watch_group(selects=term.matches, key=str(number), route=term), None, sink)
    await turns(100)
    feed.put("a/x")
    await turns(300)
    assert all(sink.ended for sink in sinks)
