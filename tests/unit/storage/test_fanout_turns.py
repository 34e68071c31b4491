"""Work for the watchers of a collection is split if it takes long.

So it does not block the event loop.
"""

import asyncio
from math import inf
from time import perf_counter, process_time

from apiext import limits
from apiext.storage.store import Entry
from tests.support.sinks import RecordingSink, line, watch_group
from tests.unit.storage.test_fanout import GROUP, Feed, turns


def record_slowly(made: list[str], name: str) -> None:
    """Take so long that only a few objects fit into one iteration of the loop."""
    late = perf_counter() + limits.LOOP_BUDGET / 8
    while perf_counter() < late:
        pass
    made.append(name)


async def max_frames_per_iteration(made: list[str], wanted: int) -> int:
    """Return the maximum number of expected frames that one iteration of the loop wrote."""
    most = 0
    while len(made) < wanted:
        before = len(made)
        await asyncio.sleep(0)
        most = max(most, len(made) - before)
    return most


async def test_slow_initial_events_are_sliced() -> None:
    feed = Feed()
    made: list[str] = []

    def first(entry: Entry) -> bytes:
        record_slowly(made, entry.name)
        return line("ADDED", entry.name, entry.revision)

    names = [f"o{number:03}" for number in range(150)]
    feed.put(*(f"n/{name}" for name in names))
    group = watch_group(first=first, key="initial")
    sinks = [RecordingSink() for _ in range(2)]
    for sink in sinks:
        feed.col.watch(group, None, sink, initial=True)
    assert await max_frames_per_iteration(made, 150) <= 10
    await turns()
    for sink in sinks:
        assert [seen.key for seen in sink.seen] == names
    assert made == names, "once for both"


async def test_slow_selection_from_history_is_sliced() -> None:
    feed = Feed()
    made: list[str] = []

    def selects(entry: Entry) -> bool:
        record_slowly(made, entry.name)
        return False

    start = feed.put("n/first")
    feed.put(*(f"n/o{number:03}" for number in range(150)))
    sink = RecordingSink()
    watcher = feed.col.watch(watch_group(selects=selects, key="selected"), start, sink)
    assert await max_frames_per_iteration(made, 150) <= 10
    await turns()
    assert (sink.seen, watcher.revision) == ([], feed.revision)


async def test_ending_watches_during_a_pass_takes_linear_time() -> None:
    took: dict[int, float] = {}
    for number in (1000, 8000) * 3:
        feed = Feed()
        sinks = [RecordingSink() for _ in range(number)]
        for sink in sinks:
            feed.col.watch(GROUP, None, sink)
        await turns(200)
        feed.put("n/a")
        await asyncio.sleep(0)
        assert sum(bool(sink.seen) for sink in sinks) < number, "the pass goes on"
        began = process_time()
        feed.col.feed.fanout.end(None, feed.revision)
        took[number] = min(process_time() - began, took.get(number, inf))
    assert took[8000] < 25 * took[1000], "far more where each is looked for among all"
