"""Watches whose objects must be converted: order, ends, and requested conversions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace

import pytest
from msgspec.structs import replace

from apiext.storage.store import Entry
from tests.support.sinks import RecordingSink, line, watch_group
from tests.unit.storage.test_fanout import Feed, turns


class Slow:
    """A stage whose conversions a test completes; ``asked`` are the names in each request."""

    def __init__(self, but: str = "") -> None:
        self.asked: list[list[str]] = []
        self.known: set[Entry] = set()
        self.rested = 0
        self._but = but
        self._waiting: list[tuple[Sequence[Entry], Callable[[Sequence[Entry] | bytes], None]]] = []

    def may_select(self, entry: Entry) -> bool:
        return entry.name != self._but

    def now(self, entry: Entry) -> Entry | None:
        return entry if entry in self.known else None

    def prepare(self, entries: Sequence[Entry], then: Callable[[Sequence[Entry] | bytes], None]) -> None:
        self.asked.append([entry.name for entry in entries])
        self._waiting.append((entries, then))

    def on_idle(self) -> None:
        self.rested += 1

    def answer(self, data: bytes | None = None) -> None:
        entries, then = self._waiting.pop(0)
        then(data if data is not None else entries)


@pytest.fixture
def feed() -> Feed:
    return Feed()


def open_watch(feed: Feed, slow: Slow, **how: object) -> RecordingSink:
    sink = RecordingSink()
    feed.col.watch(replace(watch_group(key="slow"), stage=slow), None, sink, **how)  # type: ignore[arg-type]
    return sink


def names(sink: RecordingSink) -> list[str]:
    return [seen.key.rpartition("/")[2] for seen in sink.events]


@pytest.mark.rows("VER-012", "VER-008")
async def test_events_wait_for_the_stage_and_keep_their_order(feed: Feed) -> None:
    slow = Slow()
    sink = open_watch(feed, slow)
    await turns()
    feed.put("n/a", "n/b")
    feed.put("n/c")
    await turns()
    assert (names(sink), slow.asked) == ([], [["a", "b", "c"]])
    feed.put("n/d")
    slow.answer()
    await turns()
    assert (names(sink), slow.asked[1:]) == (["a", "b", "c"], [["d"]])
    slow.answer()
    await turns()
    assert names(sink) == ["a", "b", "c", "d"]


async def test_already_converted_objects_bypass_the_stage(feed: Feed) -> None:
    slow = Slow()
    sink = open_watch(feed, slow)
    await turns()
    feed.put("n/a")
    entry = feed.col.state.get("n", "a")
    assert entry is not None
    slow.known.add(entry)
    await turns()
    assert (names(sink), slow.asked) == (["a"], [])


async def test_initial_objects_wait_for_the_stage(feed: Feed) -> None:
    feed.put(*(f"n/o{number:03}" for number in range(250)))
    slow = Slow()
    sink = open_watch(feed, slow, initial=True)
    other = open_watch(feed, slow, initial=True)
    await turns()
    assert names(sink) == names(other) == []
    for _ in range(6):
        if slow.asked and len(names(sink)) < 250:
            slow.answer()
            await turns()
    assert names(sink) == names(other) == [f"o{number:03}" for number in range(250)]
    assert sorted(name for asked in slow.asked for name in asked) == sorted(
        set(names(sink))
    )  # nothing was converted twice


@pytest.mark.rows("VER-008")
async def test_stage_failure_ends_all_watches_of_its_group(feed: Feed) -> None:
    slow, others = Slow(), RecordingSink()
    feed.col.watch(watch_group(key="others"), None, others)
    sinks = [open_watch(feed, slow) for _ in range(3)]
    await turns()
    feed.put("n/a")
    await turns()
    slow.answer(line("ERROR", "", 1))
    await turns()
    assert all(sink.ended and sink.seen[-1].type == "ERROR" for sink in sinks)
    assert (names(others), others.ended) == (["a"], False)
    feed.put("n/b")
    await turns()
    assert len(slow.asked) == 1


@pytest.mark.rows("SEL-002")
async def test_only_objects_that_may_be_selected_are_converted(feed: Feed) -> None:
    feed.put("n/a", "n/boring")
    slow = Slow(but="boring")
    sink = open_watch(feed, slow, initial=True)
    await turns()
    slow.answer()
    feed.put("n/boring")
    feed.put("n/a")
    await turns()
    slow.answer()
    await turns()
    assert (names(sink), slow.asked) == (["a", "a"], [["a"], ["a"]])


@pytest.mark.rows("SEL-002")
@pytest.mark.parametrize("over", [False, True], ids=["one turn", "many"])
async def test_initial_objects_are_converted_and_sent_once(
    feed: Feed, monkeypatch: pytest.MonkeyPatch, *, over: bool
) -> None:
    monkeypatch.setattr("apiext.storage.fanout.LoopBudget", lambda: SimpleNamespace(exhausted=over))
    feed.put(*(f"n/o{number:03}{'x' if number % 7 == 5 else ''}" for number in range(100)))
    slow = Slow()
    monkeypatch.setattr(slow, "may_select", lambda entry: entry.name.endswith("x"))
    sink = open_watch(feed, slow, initial=True)
    await turns()
    slow.answer()
    await turns(500)
    assert names(sink) == [f"o{number:03}x" for number in range(5, 100, 7)]
    assert slow.asked == [names(sink)], "what is ready and has to wait for its turn is not asked for again"


async def test_watch_closed_during_conversion_gets_no_event(feed: Feed) -> None:
    slow = Slow()
    sink = RecordingSink()
    watcher = feed.col.watch(replace(watch_group(key="slow"), stage=slow), None, sink)
    await turns()
    feed.put("n/a")
    await turns()
    watcher.close()
    slow.answer()
    await turns()
    assert (names(sink), feed.col.feed.watchers) == ([], 0)
