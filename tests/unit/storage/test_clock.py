"""Periodic work of the cache: bookmarks, and the end of watches that are not read."""

import asyncio

import pytest

from apiext.storage import collection, limits
from apiext.storage.cached_store import CachedStore
from apiext.storage.keys import Keys
from tests.support.fake_etcd import FakeEtcd
from tests.support.sinks import RecordingSink, Seen, watch_group
from tests.support.store_contract import ROOMS, THINGS, body

pytestmark = pytest.mark.looptime


@pytest.mark.rows("RV-012")
async def test_bookmarks_are_sent_periodically() -> None:
    etcd, sink = FakeEtcd(), RecordingSink()
    store = CachedStore(etcd, Keys("registry"))  # type: ignore[arg-type]
    async with asyncio.TaskGroup() as group:
        await store.start(group)
        col = store.add(THINGS, True)
        await col.wait_ready()
        col.watch(watch_group(), None, sink, bookmarks=True)
        etcd.put("/registry/somebody/else", b"x")
        await asyncio.sleep(2.5 * collection.BOOKMARK_EVERY)  # looptime: virtual time
        assert sink.seen == [Seen("BOOKMARK", "", etcd.revision)] * 2
        await store.stop()


@pytest.mark.rows("RV-012", "RV-018")
async def test_watch_behind_the_history_ends_without_other_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    """The group of an ended watch ends, too, and periodic work continues for other groups."""
    monkeypatch.setattr(limits, "EVENT_RING", 5)
    etcd, stuck, well = FakeEtcd(), RecordingSink(), RecordingSink()
    store = CachedStore(etcd, Keys("registry"))  # type: ignore[arg-type]
    async with asyncio.TaskGroup() as group:
        await store.start(group)
        col, rooms = store.add(THINGS, True), store.add(ROOMS, False)
        await col.wait_ready()
        await rooms.wait_ready()
        col.watch(watch_group(), None, stuck)
        rooms.watch(watch_group(), None, well, bookmarks=True)
        await asyncio.sleep(1)  # looptime: virtual time
        stuck.paused = True
        for number in range(10):
            await store.create(col, "one", f"o{number}", body(n=number))
        await asyncio.sleep(3.5 * collection.BOOKMARK_EVERY)
        assert stuck.ended
        assert [seen.type for seen in well.seen] == ["BOOKMARK"] * 3
        await store.stop()
