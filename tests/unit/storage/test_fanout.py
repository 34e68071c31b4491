"""Watchers of one collection: shared frames, slices, slow watchers, bookmarks."""

import asyncio
from itertools import pairwise

import pytest
from msgspec.structs import replace

from apiext import limits as server_limits
from apiext.meta.names import GroupResource
from apiext.storage import fanout as fanout_module
from apiext.storage import initial_frames
from apiext.storage import limits as storage_limits
from apiext.storage.collection import Collection
from apiext.storage.progress import Progress
from apiext.storage.pump import Pump
from apiext.storage.store import Compacted, Entry, FutureRevision, NotReady
from tests.support.sinks import RecordingSink, Seen, line, watch_group

GROUP = watch_group(key="all")


class Feed:
    """A collection without a store; tests add the changes."""

    def __init__(self, revision: int = 10) -> None:
        self.progress = Progress(lambda revision, times: None)
        things = GroupResource("example.com", "things")
        self.col = Collection(things, True, "/r/example.com/things/", None, self.progress, Pump())
        self.col.announce(self.col.load([], {}, revision))
        self.progress.restart(revision)
        self.revision = revision

    def put(self, *keys: str, raw: bytes = b"{}") -> int:
        for key in keys:
            self.revision += 1
            self.col.apply(key, self.revision, raw)
        self.progress.advance(self.revision)
        return self.revision

    def remove(self, key: str) -> int:
        self.revision += 1
        self.col.apply(key, self.revision, None)
        self.progress.advance(self.revision)
        return self.revision


async def turns(number: int = 50) -> None:
    for _ in range(number):
        await asyncio.sleep(0)


@pytest.fixture
def feed() -> Feed:
    return Feed()


@pytest.fixture
def small_ring(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage_limits, "EVENT_RING", 5)


@pytest.mark.rows("RV-010")
async def test_frame_is_built_once_and_a_pass_is_one_write(feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_limits, "LOOP_BUDGET", 60.0)  # on a busy machine a pass may take several iterations
    made: list[int] = []

    def frame(kind: str, entry: Entry) -> bytes:
        made.append(entry.revision)
        return line(kind, entry.name, entry.revision)

    group = watch_group(frame=frame, key="shared")
    sinks = [RecordingSink() for _ in range(10)]
    for sink in sinks:
        feed.col.watch(group, None, sink)
    await turns()
    feed.put("n/a", "n/b", "n/a")
    await turns()
    assert made == [11, 12, 13]
    for sink in sinks:
        assert sink.writes == 1
        assert sink.events == [Seen("ADDED", "a", 11), Seen("ADDED", "b", 12), Seen("MODIFIED", "a", 13)]


@pytest.mark.rows("RV-010")
async def test_frames_of_one_write_are_limited_in_bytes(feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage_limits, "PUMP_BLOCK", 100)
    sink = RecordingSink()
    feed.col.watch(watch_group(frame=lambda kind, entry: line(kind, "x" * 60, entry.revision), key="wide"), None, sink)
    await turns()
    feed.put("n/a", "n/b", "n/c", "n/d")
    await turns()
    assert ([seen.revision for seen in sink.events], sink.writes) == ([11, 12, 13, 14], 2)


@pytest.mark.rows("RV-018")
async def test_fanout_pass_serves_watches_in_slices(feed: Feed) -> None:
    sinks = [RecordingSink() for _ in range(3 * storage_limits.PUMP_SLICE)]
    for sink in sinks:
        feed.col.watch(GROUP, None, sink)
    await turns(200)
    feed.put("n/a")
    served = []
    for _ in range(8):
        await asyncio.sleep(0)
        served.append(sum(bool(sink.seen) for sink in sinks))
    steps = [after - before for before, after in zip([0, *served], served, strict=False)]
    assert max(steps) <= storage_limits.PUMP_SLICE
    assert served[-1] == len(sinks)


@pytest.mark.rows("SRV-015")
async def test_many_watches_end_in_slices(feed: Feed) -> None:
    sinks = [RecordingSink() for _ in range(3 * storage_limits.PUMP_SLICE)]
    watchers = [feed.col.watch(GROUP, None, sink) for sink in sinks]
    await turns(200)
    feed.put("n/a")  # no watcher gets this event
    feed.col.feed.end_watches()
    assert all(watcher.ended for watcher in watchers)
    assert feed.col.feed.watchers == 0
    ended = []
    for _ in range(8):
        ended.append(sum(sink.ended for sink in sinks))
        await asyncio.sleep(0)
    assert ended[0] == storage_limits.PUMP_SLICE
    steps = [after - before for before, after in pairwise(ended)]
    assert max(steps) <= storage_limits.PUMP_SLICE
    assert ended[-1] == len(sinks)
    assert not any(sink.seen for sink in sinks)
    last = RecordingSink()
    feed.col.watch(GROUP, None, last)
    feed.col.feed.end_watches()
    assert last.ended  # a few watches end at once


async def test_events_during_a_pass_are_sent_in_the_next_pass(feed: Feed) -> None:
    sinks = [RecordingSink() for _ in range(2 * storage_limits.PUMP_SLICE)]
    for sink in sinks:
        feed.col.watch(GROUP, None, sink)
    await turns(200)
    feed.put("n/a")
    await asyncio.sleep(0)
    feed.put("n/b", "n/c")
    late = RecordingSink()
    feed.col.watch(GROUP, 11, late)
    await turns(200)
    assert {sink.writes for sink in sinks} == {2}
    assert late.events == [Seen("ADDED", "n/b", 12), Seen("ADDED", "n/c", 13)]


@pytest.mark.rows("RV-018")
async def test_a_paused_watcher_catches_up_in_one_write(feed: Feed) -> None:
    slow, quick = RecordingSink(), RecordingSink()
    watcher = feed.col.watch(GROUP, None, slow)
    feed.col.watch(GROUP, None, quick)
    await turns()
    slow.paused = True
    for name in "abc":
        feed.put(f"n/{name}")
        await turns()
    assert (slow.writes, quick.writes) == (0, 3)
    assert watcher.revision == 10
    slow.paused = False
    watcher.resume()
    watcher.resume()
    await turns()
    assert slow.writes == 1
    assert slow.events == quick.events
    assert watcher.revision == 13


@pytest.mark.rows("RV-018")
@pytest.mark.usefixtures("small_ring")
async def test_watcher_behind_the_history_gets_410(feed: Feed) -> None:
    assert feed.col.feed.fanout.slow_ended is not None
    before = feed.col.feed.fanout.slow_ended.value
    slow, stuck, quick = RecordingSink(), RecordingSink(), RecordingSink()
    watcher = feed.col.watch(GROUP, None, slow)
    feed.col.watch(GROUP, None, stuck)
    feed.col.watch(GROUP, None, quick)
    await turns()
    feed.put("n/first")
    await turns()
    slow.paused = stuck.paused = True
    for number in range(8):
        feed.put(f"n/o{number}")
        await turns()
    slow.paused = False
    watcher.resume()
    await turns()
    assert slow.seen[1:] == [Seen("ERROR", "410", 11, "14")]
    assert slow.ended
    assert not stuck.ended
    feed.col.tick()
    assert stuck.seen[1:] == [Seen("ERROR", "410", 11, "14")]
    assert len(quick.events) == 9
    assert feed.col.feed.watchers == 1
    assert feed.col.feed.fanout.slow_ended.value == before + 2


@pytest.mark.rows("RV-018")
@pytest.mark.usefixtures("small_ring")
@pytest.mark.parametrize("missed", [5, 6, 7])
async def test_changes_of_one_iteration_may_exceed_the_history(feed: Feed, missed: int) -> None:
    """A watcher gets an error if one loop iteration makes more changes than the history holds."""
    sink = RecordingSink()
    feed.col.watch(GROUP, None, sink)
    await turns()
    feed.put(*(f"n/o{number}" for number in range(missed)))
    await turns()
    if missed == 5:
        assert [seen.revision for seen in sink.events] == [11, 12, 13, 14, 15]
    else:
        assert [(seen.type, seen.raw) for seen in sink.seen] == [("ERROR", str(5 + missed))]


@pytest.mark.rows("RV-009")
@pytest.mark.usefixtures("small_ring")
async def test_watch_before_the_oldest_change_is_refused(feed: Feed) -> None:
    feed.put(*(f"n/o{number}" for number in range(8)))
    with pytest.raises(Compacted) as found:
        feed.col.watch(GROUP, 12, RecordingSink())
    assert (found.value.requested, found.value.oldest) == (12, 13)
    sink = RecordingSink()
    feed.col.watch(GROUP, 13, sink)
    await turns()
    assert [seen.revision for seen in sink.events] == [14, 15, 16, 17, 18]


@pytest.mark.rows("RV-002", "RV-009")
async def test_watch_from_future_revision_is_refused(feed: Feed) -> None:
    """A watch from a future revision is refused, also from the next one."""
    sink = RecordingSink()
    with pytest.raises(FutureRevision) as found:
        feed.col.watch(GROUP, feed.revision + 1, sink)
    assert (found.value.requested, found.value.current) == (11, 10)
    feed.col.watch(GROUP, feed.revision, sink)
    feed.put("n/a")
    await turns()
    assert [seen.revision for seen in sink.events] == [11]


async def test_a_closed_watcher_gets_nothing(feed: Feed) -> None:
    sinks = [RecordingSink() for _ in range(2 * storage_limits.PUMP_SLICE)]
    watchers = [feed.col.watch(GROUP, None, sink) for sink in sinks]
    await turns(200)
    feed.put("n/a")
    await asyncio.sleep(0)
    for watcher in watchers:
        watcher.close()
        watcher.close()
    served = sum(sink.writes for sink in sinks)
    assert 0 < served < len(sinks)
    await turns()
    assert sum(sink.writes for sink in sinks) == served
    assert feed.col.feed.watchers == 0


@pytest.mark.looptime
@pytest.mark.rows("RV-012")
async def test_bookmarks_go_to_requesting_watches_only(feed: Feed) -> None:
    wanting, plain, paused = RecordingSink(), RecordingSink(), RecordingSink()
    feed.col.watch(GROUP, None, wanting, bookmarks=True)
    feed.col.watch(GROUP, None, plain)
    watcher = feed.col.watch(GROUP, None, paused, bookmarks=True)
    await asyncio.sleep(fanout_module.BOOKMARK_FIRST)
    paused.paused = True
    feed.progress.advance(20)
    feed.col.tick()
    await turns()
    assert (wanting.seen, plain.seen) == ([Seen("BOOKMARK", "", 20)], [])
    feed.revision = 20
    feed.put("n/a")
    paused.paused = False
    watcher.resume()
    await turns()
    assert paused.seen == [Seen("ADDED", "n/a", 21, "{}")]
    feed.col.tick()
    await turns()
    assert paused.seen[-1] == Seen("BOOKMARK", "", 21)


@pytest.mark.looptime
@pytest.mark.rows("RV-012")
async def test_a_short_watch_gets_only_its_last_bookmark(feed: Feed) -> None:
    young, ending = RecordingSink(), RecordingSink()
    last = feed.col.watch(GROUP, None, ending, bookmarks=True)
    await asyncio.sleep(fanout_module.BOOKMARK_FIRST)
    feed.col.watch(GROUP, None, young, bookmarks=True)
    last.bookmark_now()
    for _ in range(2):
        feed.col.tick()
        await turns()
    assert (young.seen, len(ending.seen)) == ([], 1)
    await asyncio.sleep(fanout_module.BOOKMARK_FIRST)
    feed.col.tick()
    await turns()
    assert (len(young.seen), len(ending.seen)) == (1, 1)


@pytest.mark.rows("RV-012")
async def test_bookmark_now_has_the_last_delivered_revision(feed: Feed) -> None:
    sinks = [RecordingSink() for _ in range(2 * storage_limits.PUMP_SLICE)]
    watchers = [feed.col.watch(GROUP, None, sink) for sink in sinks]
    await turns(200)
    feed.put("n/a")
    await asyncio.sleep(0)
    feed.put("n/b")  # not in the running pass
    unserved = next(number for number, sink in enumerate(sinks) if not sink.seen)
    assert (watchers[unserved].revision, watchers[0].revision) == (10, 11)
    watchers[unserved].bookmark_now()
    assert [seen[:3] for seen in sinks[unserved].seen] == [("ADDED", "n/a", 11), ("BOOKMARK", "", 11)]
    await turns(200)
    assert [seen[:3] for seen in sinks[unserved].seen[2:]] == [("ADDED", "n/b", 12)]
    watchers[0].bookmark_now()
    assert sinks[0].seen[-1] == Seen("BOOKMARK", "", 12)


async def test_namespace_group_skips_other_namespaces(feed: Feed) -> None:
    one, two = RecordingSink(), RecordingSink()
    feed.col.watch(watch_group("one"), None, one)
    watcher = feed.col.watch(watch_group("two"), None, two)
    await turns()
    feed.put("one/a", "two/a", "one/b", "one/c")
    await turns()
    feed.put("one/d")
    assert [seen.key for seen in two.events] == ["two/a"]
    assert watcher.revision == 15
    await turns()
    assert [seen.key for seen in one.events] == ["one/a", "one/b", "one/c", "one/d"]


async def test_failed_frame_ends_only_its_group(feed: Feed, caplog: pytest.LogCaptureFixture) -> None:
    def broken(kind: str, entry: Entry) -> bytes:
        raise RuntimeError("no frame")

    bad, good = RecordingSink(), RecordingSink()
    feed.col.watch(watch_group(frame=broken), None, bad)
    feed.col.watch(GROUP, None, good)
    await turns()
    feed.put("n/a")
    await turns()
    assert bad.ended
    assert good.events == [Seen("ADDED", "n/a", 11)]
    assert "no frame" in caplog.text


async def test_failing_sink_does_not_stop_other_watches(feed: Feed, caplog: pytest.LogCaptureFixture) -> None:
    class Wrong(RecordingSink):
        def write(self, data: bytes) -> None:
            raise ValueError("not written")

        def end(self, data: bytes) -> None:
            raise ValueError("not ended")

    other = RecordingSink()
    feed.col.watch(GROUP, None, Wrong())
    feed.col.watch(watch_group(key="other"), None, other)
    await turns()
    for name in ("n/a", "n/b"):
        feed.put(name)
        await turns()
    assert [seen.key for seen in other.seen] == ["n/a", "n/b"]
    feed.col.watch(GROUP, None, Wrong())
    feed.col.feed.end_watches()
    assert other.ended
    assert "not ended" in caplog.text


async def test_failing_listener_does_not_stop_other_listeners(feed: Feed, caplog: pytest.LogCaptureFixture) -> None:
    def broken(change: object) -> None:
        raise RuntimeError("bad listener")

    heard: list[int] = []
    feed.col.feed.subscribe(broken)
    feed.col.feed.subscribe(lambda change: heard.append(change.revision))
    feed.put("n/a")
    assert heard == [11]
    assert "bad listener" in caplog.text


@pytest.mark.rows("RV-013")
async def test_initial_events_are_built_once_and_wait_for_slow_client(feed: Feed) -> None:
    made: list[str] = []

    def frame(kind: str, entry: Entry) -> bytes:
        made.append(entry.name)
        return line(kind, entry.name, entry.revision)

    feed.put(*(f"n/o{number:03}" for number in range(250)))
    group = watch_group(frame=frame, key="initial")
    slow, quick = RecordingSink(), RecordingSink()
    slow.paused = True
    watcher = feed.col.watch(group, None, slow, initial=True, bookmarks=True)
    feed.col.watch(group, None, quick, initial=True, bookmarks=True)
    await turns()
    assert slow.writes == 0
    feed.put("n/later")
    slow.paused = False
    watcher.resume()
    await turns()
    assert len(made) == 251
    for sink in (slow, quick):
        assert [seen.type for seen in sink.seen] == ["ADDED"] * 250 + ["END", "ADDED"]
        assert sink.seen[250].revision == 260


@pytest.mark.rows("RV-013")
async def test_watch_continues_after_the_selected_objects(feed: Feed) -> None:
    """Changes between the selection and the watch follow the first events."""
    feed.put("n/a", "n/b")
    selected = await feed.col.state.select([], None)
    feed.put("n/c")
    sink = RecordingSink()
    feed.col.watch(watch_group(), None, sink, initial=True, bookmarks=True, selected=selected)
    await turns()
    assert [seen[:3] for seen in sink.seen] == [
        ("ADDED", "n/a", 11),
        ("ADDED", "n/b", 12),
        ("END", "", 12),
        ("ADDED", "n/c", 13),
    ]


@pytest.mark.rows("RV-019")
async def test_unfilled_collection_raises_not_ready() -> None:
    things = GroupResource("example.com", "things")
    col = Collection(things, True, "/r/example.com/things/", None, Progress(lambda revision, times: None), Pump())
    for read in (lambda: col.state.get("n", "a"), col.state.entries, lambda: col.state.page(None, "", 0)):
        with pytest.raises(NotReady):
            read()
    with pytest.raises(NotReady):
        col.watch(GROUP, None, RecordingSink())


async def test_unused_list_views_are_evicted_by_ticks(feed: Feed) -> None:
    def view(raw: bytes, revision: int) -> bytes:
        return raw

    feed.put(*(f"n/o{number:03}" for number in range(250)))
    assert feed.col.state.segments(view).size
    assert feed.col.state.segments(view).pending == 0
    feed.col.tick()
    assert feed.col.state.segments(view).pending == 0
    for _ in range(2):
        feed.col.tick()
    assert feed.col.state.segments(view).pending == 250


async def test_cached_initial_frames_have_current_ages(feed: Feed) -> None:
    """A new watch gets ages of its own time.

    This holds also if earlier watches started with the same state.
    """
    second, made = 100, list[int]()

    def frame(kind: str, entry: Entry) -> bytes:
        made.append(second)
        return line(kind, entry.name, entry.revision, f"{second}")

    group = replace(watch_group(frame=frame, key="aged"), second=lambda: second)
    feed.put("n/a", "n/b")
    feed.col.watch(group, None, RecordingSink())  # nothing is cached for a single watch
    for second in (100, 100, 107, 93, 93):
        sink = RecordingSink()
        feed.col.watch(group, None, sink, initial=True)
        await turns()
        assert [seen.raw for seen in sink.seen] == [f"{second}"] * 2
    assert made == [100, 100, 107, 107, 93, 93], "once for all watches of a second"


async def test_shared_initial_frames_are_cached_within_one_limit(feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(initial_frames, "_ALL", initial_frames._All())
    monkeypatch.setattr(storage_limits, "INITIAL_BYTES", 50_000)
    feed.put(*(f"n/o{number:03}" for number in range(500)), raw=b'{"a":"%s"}' % (b"x" * 50))
    for number in range(20):
        feed.col.watch(watch_group(key=f"alone {number}"), None, RecordingSink(), initial=True)
    await turns(1000)
    assert initial_frames.cached_bytes() == 0, "of watches that have a group to themselves nothing"
    shared = [
        feed.col.watch(watch_group(key=f"two {number // 2}"), None, RecordingSink(), initial=True)
        for number in range(20)
    ]
    await turns(1000)
    assert 0 < initial_frames.cached_bytes() <= 50_000
    for watcher in shared[::2]:
        watcher.close()
    assert initial_frames.cached_bytes() == 0


async def test_cached_blocks_have_current_ages(feed: Feed) -> None:
    """Slow watches get ages of their own time from frames that stay cached under load."""
    second, made = 100, list[int]()

    def frame(kind: str, entry: Entry) -> bytes:
        made.append(second)
        return line(kind, entry.name, entry.revision, f"{second}")

    watcher = feed.col.watch(
        replace(watch_group(frame=frame, key="aged"), second=lambda: second), None, RecordingSink()
    )
    await turns()
    start = feed.col.feed.history.end
    feed.put("n/a")
    block = watcher._group._block
    for second in (100, 100, 50):
        assert block((start,), start, start + 1)[1] == line("ADDED", "a", feed.revision, f"{second}")
    assert made == [100, 50]
