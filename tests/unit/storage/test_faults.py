"""The cache with faults of etcd: compaction, replacement, data loss, no responses."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from apiext.etcd.errors import UNAVAILABLE, EtcdError
from apiext.etcd.values import KeyValue, RangeResult
from apiext.storage import compaction, limits, progress
from apiext.storage.cached_store import CachedStore
from apiext.storage.collection import Collection
from apiext.storage.compaction import Compactor
from apiext.storage.history import Change
from apiext.storage.keys import Keys
from apiext.storage.store import Compacted, Malformed, NotReady, OutOfSpace, Unavailable
from tests.support.fake_etcd import FakeEtcd
from tests.support.polling import until
from tests.support.sinks import RecordingSink, Seen, fold, watch_group
from tests.support.store_contract import ROOMS, THINGS, body

pytestmark = pytest.mark.looptime


class Rig:
    """A started store with a fake etcd and one filled collection."""

    def __init__(self, etcd: FakeEtcd, store: CachedStore, col: Collection, quota: int) -> None:
        self.etcd = etcd
        self.store = store
        self.col = col
        self.compactor = Compactor(etcd, quota)  # type: ignore[arg-type]

    def key(self, name: str) -> str:
        return self.store.keys.object(THINGS, "one", name)


QUOTA = 10_000  # bytes; the quota of the server's own store


@pytest.fixture
def quota() -> int:
    return 0


@pytest.fixture
async def rig(quota: int) -> AsyncIterator[Rig]:
    etcd = FakeEtcd()
    store = CachedStore(etcd, Keys("registry"))  # type: ignore[arg-type]
    async with asyncio.TaskGroup() as group:
        await store.start(group)
        col = store.add(THINGS, True)
        await col.wait_ready()
        yield Rig(etcd, store, col, quota)
        await store.stop()


def watch_and_subscribe(rig: Rig) -> tuple[RecordingSink, list[Change]]:
    sink, heard = RecordingSink(), list[Change]()
    rig.col.watch(watch_group(), None, sink)
    rig.col.feed.subscribe(heard.append)
    return sink, heard


@pytest.mark.rows("RV-020")
async def test_repaired_value_is_readable_again(rig: Rig) -> None:
    await rig.store.create(rig.col, "one", "a", body(n=1))
    rig.etcd.put(rig.key("a"), b"{")
    await rig.store.fresh()
    with pytest.raises(Malformed):
        rig.col.state.page("one", "", 0)
    again = rig.etcd.put(rig.key("a"), body(n=2))
    await rig.store.fresh()
    assert [entry.revision for entry in rig.col.state.page("one", "", 0).entries] == [again]
    assert rig.col.state.count() == 1


@pytest.mark.rows("RV-009")
async def test_compaction_past_the_root_watch_causes_a_resync(rig: Rig) -> None:
    a = await rig.store.create(rig.col, "one", "a", body(n=1))
    b = await rig.store.create(rig.col, "one", "b", body(n=1))
    kept = await rig.store.create(rig.col, "one", "kept", body(n=1))
    sink, heard = watch_and_subscribe(rig)
    rig.etcd.hold()
    rig.etcd.remove(rig.key("a"))
    changed = rig.etcd.put(rig.key("b"), body(n=2))
    made = rig.etcd.put(rig.key("c"), body(n=3))
    rig.etcd.forget_before(made)
    rig.etcd.release()
    await sink.until(lambda it: it.ended)
    head = await rig.store.fresh()
    assert sink.seen == [Seen("ERROR", "410", kept.revision, str(head))]
    assert [(change.kind, change.entry.name, change.entry.revision) for change in heard] == [
        ("MODIFIED", "b", changed),
        ("DELETED", "a", head),
        ("ADDED", "c", made),
    ]
    assert heard[1].previous is a
    assert heard[0].previous is b
    assert rig.col.state.get("one", "kept") is kept
    with pytest.raises(Compacted):
        await rig.store.watch(rig.col, watch_group(), kept.revision, RecordingSink())
    after, _ = watch_and_subscribe(rig)
    again = await rig.store.create(rig.col, "one", "d", body(n=1))
    assert await after.reached(again.revision) == [Seen("ADDED", "one/d", again.revision)]


@pytest.mark.rows("RV-020")
async def test_resync_dispatches_changes_of_unreadable_objects(rig: Rig) -> None:
    """Events of deleted or changed unreadable objects have the last readable state.

    Clients have seen only this state.
    """
    for name in ("gone", "good"):
        await rig.store.create(rig.col, "one", name, body(n=1))
    for name in ("gone", "good"):
        rig.etcd.put(rig.key(name), b"{")
    await rig.store.fresh()
    _, heard = watch_and_subscribe(rig)
    rig.etcd.hold()
    rig.etcd.remove(rig.key("gone"))
    good = rig.etcd.put(rig.key("good"), body(n=2))
    rig.etcd.forget_before(good)
    rig.etcd.release()
    head = await rig.store.fresh()
    assert [(change.kind, change.entry.name, change.revision) for change in heard] == [
        ("DELETED", "gone", head),
        ("MODIFIED", "good", good),
    ]


@pytest.mark.rows("RV-020")
async def test_deletion_of_unreadable_object_is_sent_after_resync(rig: Rig) -> None:
    """Watchers get the deletion of an object that they have seen."""
    made = await rig.store.create(rig.col, "one", "a", body(n=1))
    _, heard = watch_and_subscribe(rig)
    rig.etcd.hold()
    rig.etcd.put(rig.key("a"), b"{")
    rig.etcd.forget_before(rig.etcd.put(rig.key("b"), body(n=1)))
    rig.etcd.release()
    await rig.store.fresh()
    assert heard.pop().entry.name == "b"
    assert heard == []
    gone = rig.etcd.remove(rig.key("a"))
    await rig.store.fresh()
    assert [(change.kind, change.previous, change.revision) for change in heard] == [("DELETED", made, gone)]


async def test_fill_restarts_if_the_root_watch_ends_early(rig: Rig) -> None:
    """A collection is read again if the watch ends before it reaches the revision of the read."""
    rig.etcd.hold()
    rig.etcd.put("/registry/example.com/rooms/attic", body(n=1))
    fills = rig.etcd.calls.count("range")
    rooms = rig.store.add(ROOMS, False)
    await asyncio.sleep(progress.PROGRESS_AFTER / 2)  # looptime: virtual time
    assert (rig.etcd.calls.count("range"), rooms.state.ready) == (fills + 1, False)
    rig.etcd.forget_before(rig.etcd.put("/registry/example.com/rooms/cellar", body(n=1)))
    rig.etcd.release()
    await rooms.wait_ready()
    assert [entry.name for entry in rooms.state.entries()] == ["attic", "cellar"]


@pytest.mark.rows("RV-017")
async def test_collection_is_not_ready_before_cache_reaches_its_read(rig: Rig) -> None:
    """A collection is not ready while the cache is older than its first read.

    Otherwise, lists would have a wrong revision.
    """
    rig.etcd.hold()
    made = rig.etcd.put("/registry/example.com/rooms/attic", body(n=1))
    rooms = rig.store.add(ROOMS, False)
    await asyncio.sleep(limits.FRESH_WAIT + 1)  # looptime: virtual time
    assert (rooms.state.ready, rig.store.revision < made) == (False, True)
    rig.etcd.release()
    await rooms.wait_ready()
    assert [entry.revision for entry in rooms.state.entries()] == [made]


async def test_collection_dropped_during_a_resync_stays_dropped(rig: Rig) -> None:
    """No read uses the cache of a dropped collection, which is not updated."""
    await rig.store.create(rig.col, "one", "a", body(n=1))
    reads = rig.etcd.calls.count("range")
    rig.etcd.replace(50, {rig.key("a").encode(): body(n=2)})
    while rig.etcd.calls.count("range") == reads:  # noqa: ASYNC110 - iterations of the loop are counted
        await asyncio.sleep(0)
    rig.store.drop(THINGS)
    assert await rig.store.fresh() == 50
    with pytest.raises(NotReady):
        rig.col.state.entries()


async def test_write_during_a_resync_is_dispatched_once(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that was read before a change does not replace the change.

    Otherwise, the object would vanish and return.
    """
    _, heard = watch_and_subscribe(rig)
    reading, go_on, read = asyncio.Event(), asyncio.Event(), rig.etcd.range

    async def slow(*place: bytes, limit: int = 0, revision: int = 0) -> RangeResult:
        reading.set()
        await go_on.wait()
        return await read(*place, limit=limit, revision=revision)

    monkeypatch.setattr(rig.etcd, "range", slow)
    for watch in list(rig.etcd.watches):
        watch.end(EtcdError(UNAVAILABLE, "the watch ended"))
    await reading.wait()
    writing = asyncio.get_running_loop().create_task(rig.store.create(rig.col, "one", "a", body(n=1)))
    await asyncio.sleep(progress.PROGRESS_AFTER)  # looptime: virtual time
    assert rig.etcd.state(rig.key("a"))
    go_on.set()
    made = await writing
    await rig.store.fresh()
    assert [(change.kind, change.revision) for change in heard] == [("ADDED", made.revision)]


@pytest.mark.rows("RV-017")
async def test_progress_key_is_written_if_etcd_ignores_requests(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server writes a key and waits for its event if etcd answers no progress requests.

    This etcd accepts the requests.
    """
    (watch,) = rig.etcd.watches
    asked: list[int] = []

    def promise() -> bool:
        asked.append(rig.store.revision)
        return True

    monkeypatch.setattr(watch, "request_progress", promise)
    elsewhere = rig.etcd.put("/elsewhere", b"1")
    assert await rig.store.fresh() > elsewhere
    assert len(asked) > 1


async def test_current_returns_newest_revision_of_equal_bytes(rig: Rig) -> None:
    """A read returns the newest revision.

    This holds also if the cache has an earlier write of equal content.
    """
    made = await rig.store.create(rig.col, "one", "a", body(n=1))
    rig.etcd.hold()
    again = rig.etcd.put(rig.key("a"), body(n=1))
    found = await rig.store.current(rig.col, "one", "a")
    assert found is not None
    assert (made.revision, found.revision) == (again - 1, again)
    rig.etcd.release()


async def test_restored_store_replaces_all_cached_objects(rig: Rig) -> None:
    made = await rig.store.create(rig.col, "one", "a", body(n=1))
    for number in range(5):
        await rig.store.create(rig.col, "one", f"lost{number}", body(n=1))
    sink, heard = watch_and_subscribe(rig)
    rig.etcd.replace(made.revision, {rig.key("a").encode(): body(n=0)})
    assert sink.ended is False
    assert not rig.store.connected
    assert await rig.store.fresh() == made.revision
    assert rig.store.connected
    assert [entry.name for entry in rig.col.state.entries()] == ["a"]
    assert sink.ended
    assert sorted(change.kind for change in heard) == ["DELETED"] * 5 + ["MODIFIED"]
    again = await rig.store.create(rig.col, "one", "b", body(n=1))
    assert again.revision == made.revision + 1


async def test_reads_wait_for_a_resync_up_to_a_timeout(rig: Rig) -> None:
    rig.etcd.down = True
    rig.etcd.replace(50, {})
    loop = asyncio.get_running_loop()
    began = loop.time()
    with pytest.raises(Unavailable):
        await rig.store.fresh()
    assert loop.time() - began == pytest.approx(limits.FRESH_WAIT)
    rig.etcd.down = False
    assert await rig.store.fresh() == 50


@pytest.mark.rows("RV-017")
async def test_fresh_read_fails_if_the_cache_is_stale(rig: Rig) -> None:
    rig.etcd.hold()
    rig.etcd.put(rig.key("a"), body(n=1))
    with pytest.raises(Unavailable):
        await rig.store.fresh()
    rig.etcd.release()
    await rig.store.fresh()
    assert rig.col.state.get("one", "a") is not None
    rig.etcd.down = True
    with pytest.raises(Unavailable):
        await rig.store.fresh()


async def test_progress_write_is_retried_after_conflict_with_peer(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.etcd.progress_requests_ok = False
    get, found = rig.etcd.get, list[KeyValue | None]()

    async def overtaken(key: bytes, *, revision: int = 0) -> KeyValue | None:
        found.append(await get(key, revision=revision))
        if len(found) == 1:
            rig.etcd.put(key.decode(), b"{}\n")
            rig.etcd.put("/elsewhere", b"1")
        return found[-1]

    monkeypatch.setattr(rig.etcd, "get", overtaken)
    rig.etcd.put("/elsewhere", b"0")
    await rig.store.fresh()
    assert await rig.store.fresh() == rig.etcd.revision


async def test_write_succeeds_though_its_event_is_late(rig: Rig) -> None:
    rig.etcd.hold()
    made = await rig.store.create(rig.col, "one", "a", body(n=1))
    assert rig.etcd.state(rig.key("a"))[rig.key("a")] == (made.revision, body(n=1))
    assert rig.etcd.revision <= made.revision + 1  # no repeated progress writes
    gone = await rig.store.delete(rig.col, "one", "a", made.revision)
    assert gone.raw == body(n=1)
    rig.etcd.release()
    await rig.store.fresh()
    assert rig.col.state.get("one", "a") is None


async def test_failed_fill_is_retried(rig: Rig) -> None:
    rig.etcd.put("/registry/example.com/rooms/attic", body(n=1))
    rig.etcd.down = True
    pages = rig.etcd.calls.count("range")
    rooms = rig.store.add(ROOMS, False)
    await until(lambda: rig.etcd.calls.count("range") >= pages + 2)  # the fill is tried again
    with pytest.raises(NotReady):
        rooms.state.get("", "attic")
    rig.etcd.down = False
    await rooms.wait_ready()
    assert rooms.state.get("", "attic") is not None


async def test_fill_includes_changes_between_its_pages(rig: Rig) -> None:
    for number in range(180):
        rig.etcd.put(f"/registry/example.com/rooms/r{number:03}", body(n=number))
    rooms = rig.store.add(ROOMS, False)
    heard: list[Change] = []
    rooms.feed.subscribe(heard.append)
    pages = rig.etcd.calls.count("range")
    while rig.etcd.calls.count("range") == pages:  # noqa: ASYNC110 - iterations of the loop are counted
        await asyncio.sleep(0)
    await asyncio.sleep(0)
    rig.etcd.put("/registry/example.com/rooms/r000", body(n=1000))
    rig.etcd.remove("/registry/example.com/rooms/r179")
    made = rig.etcd.put("/registry/example.com/rooms/r999", body(n=999))
    await rooms.wait_ready()
    await rig.store.fresh()
    state = {key.rpartition("/")[2]: at for key, (at, _) in rig.etcd.state("/registry/example.com/rooms/").items()}
    assert {entry.name: entry.revision for entry in rooms.state.entries()} == state
    assert state["r999"] == made
    events = [Seen(change.kind, change.entry.name, change.entry.revision) for change in heard]
    assert fold(events) == state
    assert rig.etcd.calls.count("range") - pages >= 2


async def test_events_already_in_the_fill_are_not_dispatched(rig: Rig) -> None:
    rig.etcd.hold()
    made = rig.etcd.put("/registry/example.com/rooms/attic", body(n=1))
    rooms = rig.store.add(ROOMS, False)
    heard: list[Change] = []
    pages = rig.etcd.calls.count("range")
    rooms.feed.subscribe(heard.append)
    await until(lambda: rig.etcd.calls.count("range") > pages)  # the fill has read its page
    rig.etcd.release()
    await rooms.wait_ready()
    assert [(change.kind, change.revision) for change in heard] == [("ADDED", made)]
    assert rooms.feed.history.end == 0


async def test_collection_dropped_during_its_fill_is_not_ready(rig: Rig) -> None:
    rooms = rig.store.add(ROOMS, False)
    rig.store.drop(ROOMS)
    await rooms.wait_ready()
    assert rooms.dropped
    with pytest.raises(NotReady):
        rooms.state.entries()


@pytest.mark.rows("RV-009", "RV-017")
async def test_watch_before_the_ring_reads_history_from_etcd_once(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "EVENT_RING", 5)
    first = await rig.store.create(rig.col, "one", "o00", body(n=0))
    expected = []
    for number in range(1, 30):
        made = await rig.store.create(rig.col, "one", f"o{number:02}", body(n=number))
        expected.append(Seen("ADDED", f"one/o{number:02}", made.revision))
    sinks = [RecordingSink() for _ in range(5)]
    watches = rig.etcd.calls.count("head")
    await asyncio.gather(*(rig.store.watch(rig.col, watch_group(key="all"), first.revision, sink) for sink in sinks))
    later = await rig.store.create(rig.col, "one", "later", body(n=1))
    expected.append(Seen("ADDED", "one/later", later.revision))
    for sink in sinks:
        assert await sink.reached(later.revision) == expected
    assert rig.etcd.calls.count("head") == watches
    assert len(rig.etcd.watches) == 1
    rig.col.watch(watch_group(), expected[10].revision, RecordingSink()).close()
    rig.col.tick()
    rig.col.tick()
    with pytest.raises(Compacted):
        rig.col.watch(watch_group(), expected[10].revision, RecordingSink())


@pytest.mark.rows("RV-009")
async def test_watches_from_several_past_revisions_get_each_event_once(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader that waited for another reader's pages of history does not read them again.

    It evicts nothing.
    """
    monkeypatch.setattr(limits, "EVENT_RING", 5)
    made = [(await rig.store.create(rig.col, "one", f"o{number:02}", body(n=1))).revision for number in range(30)]
    sinks = [RecordingSink() for _ in range(3)]
    early, late, again = (
        rig.store.watch(rig.col, watch_group(), made[at], sink) for at, sink in zip((3, 10, 3), sinks, strict=True)
    )
    await asyncio.gather(early, late)
    await again
    for at, sink in zip((3, 10, 3), sinks, strict=True):
        assert [seen.revision for seen in await sink.reached(made[-1])] == made[at + 1 :]


async def test_watch_over_the_history_byte_limit_is_refused(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "EVENT_RING", 2)
    monkeypatch.setattr(limits, "HISTORY_BYTES", 100)
    first = await rig.store.create(rig.col, "one", "first", body(n=0))
    for number in range(8):
        await rig.store.create(rig.col, "one", f"o{number}", body(n=number))
    with pytest.raises(Compacted):
        await rig.store.watch(rig.col, watch_group(), first.revision, RecordingSink())
    assert len(rig.etcd.watches) == 1


@pytest.mark.rows("OPS-002")
async def test_store_is_compacted_periodically(rig: Rig) -> None:
    made = await rig.store.create(rig.col, "one", "a", body(n=1))
    async with asyncio.TaskGroup() as group:
        task = group.create_task(rig.compactor.run())
        await asyncio.sleep(1.5 * compaction.COMPACT_EVERY)
        assert rig.etcd.compacted == 0
        rig.etcd.down = True
        await asyncio.sleep(compaction.COMPACT_EVERY)
        rig.etcd.down = False
        await asyncio.sleep(compaction.COMPACT_EVERY)
        assert rig.etcd.compacted > made.revision
        task.cancel()
    assert await rig.store.fresh() == rig.etcd.revision
    assert await rig.etcd.get(b"compact_rev_key") is not None  # upstream: compactRevKey, outside any prefix


@pytest.mark.rows("OPS-002")
async def test_full_store_is_compacted_without_a_revision_mark(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    made = await rig.store.create(rig.col, "one", "a", body(n=1))
    await rig.compactor.turn()
    rig.etcd.full = True
    with pytest.raises(OutOfSpace):
        await rig.store.create(rig.col, "one", "b", body(n=1))
    await rig.store.delete(rig.col, made.namespace, made.name, made.revision)
    await rig.compactor.turn()
    assert rig.etcd.compacted >= made.revision
    assert rig.etcd.full, "an etcd of others is theirs to defragment"
    assert "out of space and allows only deletions" in caplog.text


@pytest.mark.rows("OPS-002")
@pytest.mark.parametrize("quota", [QUOTA])
async def test_full_own_store_is_defragmented_and_accepts_writes(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    await rig.compactor.turn()
    rig.etcd.full, rig.etcd.size, rig.etcd.in_use = True, 10_001, 9_900
    rig.etcd.corrupt = True
    await rig.compactor.turn()
    assert rig.etcd.full, "defragmenting would give nothing back"
    rig.etcd.in_use = 500
    await rig.compactor.turn()
    await rig.store.create(rig.col, "one", "b", body(n=1))
    assert (rig.etcd.size, "allows writes again" in caplog.text) == (500, True)
    assert rig.etcd.corrupt, "no room cures that"


@pytest.mark.parametrize("quota", [QUOTA])
async def test_own_store_logs_before_it_is_full(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    for rig.etcd.size, told in ((8_000, False), (9_500, True)):
        await rig.compactor.turn()
        assert ("the store has 9500 bytes" in caplog.text) is told


async def test_views_of_single_objects_are_bounded(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "VIEW_BYTES", 1000)
    made: list[int] = []

    def view(raw: bytes, revision: int) -> bytes:
        made.append(revision)
        return b"x" * 300

    entries = [await rig.store.create(rig.col, "one", f"o{number}", body(n=1)) for number in range(6)]
    for entry in entries:
        entry.view(view)
        entry.view(view)
    assert len(made) == 6
    entries[5].view(view)
    assert len(made) == 6
    entries[0].view(view)
    assert len(made) == 7
