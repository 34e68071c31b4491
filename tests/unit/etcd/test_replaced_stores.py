"""Watches end if the store was reset to an earlier state or replaced.

Their events are no longer valid.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from apiext.etcd import errors
from apiext.etcd.client import Etcd
from tests.unit.etcd.listening import Listener, client, until
from tests.unit.etcd.mini import Mini

REPLACED = {
    "another cluster": {"cluster_id": 8},
    "older": {"revision": 3},
    "restored and written on": {"term": 1, "revision": 50},
}


@pytest.mark.looptime
@pytest.mark.parametrize("name", REPLACED)
async def test_reconnect_to_a_replaced_store_ends_watches(name: str) -> None:
    mini = Mini(revision=10, term=5)
    async with client(mini) as etcd:
        heard, other = Listener(), Listener()
        heard.watch(etcd, 0)
        other.watch(etcd, 0)
        await asyncio.sleep(1)
        mini.cut()
        for field, value in REPLACED[name].items():
            setattr(mini, field, value)
        await asyncio.sleep(5)
        assert [type(error) for error in (*heard.ends, *other.ends)] == [errors.StoreReplaced] * 2
        # a new watch works in the new store
        heard.watch(etcd, 0)
        await asyncio.sleep(1)
        mini.put(b"/k", b"x")
        assert heard.revisions == [mini.revision]


@asynccontextmanager
async def watched(mini: Mini) -> AsyncIterator[tuple[Etcd, Listener]]:
    """Yield a client of a store, and a watcher of it."""
    async with client(mini) as etcd:
        heard = Listener()
        handle = heard.watch(etcd, 0)
        await until(lambda: handle.connected)
        yield etcd, heard


@pytest.mark.looptime
async def test_head_probe_detects_a_replaced_store() -> None:
    mini = Mini(revision=10)
    async with watched(mini) as (etcd, heard):
        mini.revision = 4
        assert await etcd.head_revision() == 4
        assert [type(error) for error in heard.ends] == [errors.StoreReplaced]


@pytest.mark.looptime
async def test_store_without_the_own_last_write_is_replaced() -> None:
    """The client knows the revision of its own write, also if no watch receives it."""
    mini = Mini(revision=10)
    async with watched(mini) as (etcd, heard):
        for link in mini.links:
            for stream in link.streams:
                stream.next = 99  # this watch gets no event
        assert (await etcd.create(b"elsewhere", b"v")).revision == 11
        mini.revision = 10
        await etcd.head_revision()
        assert [type(error) for error in heard.ends] == [errors.StoreReplaced]


@pytest.mark.looptime
async def test_writes_detect_a_store_reset_to_an_older_revision() -> None:
    mini = Mini(revision=10)
    async with watched(mini) as (etcd, heard):
        mini.revision = 7
        async with asyncio.TaskGroup() as group:
            for number in range(9):
                group.create_task(etcd.create(f"elsewhere-{number}".encode(), b"v"))
        assert mini.revision == 16
        assert [type(error) for error in heard.ends] == [errors.StoreReplaced]
        again = Listener()
        again.watch(etcd, 0)
        await etcd.create(b"later", b"v")
        assert await etcd.head_revision() == 17
        assert again.ends == [], "told once"


async def watch_with_last_event(mini: Mini, etcd: Etcd, last: str) -> Listener:
    """Return the listener of a watch whose last event is of /k.

    The event is a change or deletion by this or another client.
    """
    heard = Listener()
    watch = heard.watch(etcd, 0)
    await until(lambda: watch.connected)
    mini.put(b"/k", b"old")
    if last.startswith("own"):
        watch.skip_to(3, b"/k", None if last.endswith("deletion") else b"new")
    if last.endswith("deletion"):
        mini.delete(b"/k")
    else:
        mini.put(b"/k", b"new")
    await until(lambda: watch.watermark == 3)
    assert heard.revisions == ([2] if last.startswith("own") else [2, 3])
    return heard


CARRIED_ON = {  # writes of other clients after the store was reset to revision 2
    "another key": [b"/other"] * 9,
    "the key at another revision": [b"/other", b"/k", b"/other"],
    "the key at that revision": [b"/k", b"/other"],
}


@pytest.mark.looptime
@pytest.mark.parametrize("last", ["change", "deletion", "own change", "own deletion"])
@pytest.mark.parametrize("name", CARRIED_ON)
async def test_reset_store_is_detected_after_other_clients_wrote(name: str, last: str) -> None:
    mini = Mini()
    async with client(mini) as etcd:
        heard, other = await watch_with_last_event(mini, etcd, last), Listener()
        other.watch(etcd, 0)
        mini.restore(2)
        for key in CARRIED_ON[name]:
            mini.put(key, b"theirs")
        await asyncio.sleep(5)
        assert [type(error) for error in (*heard.ends, *other.ends)] == [errors.StoreReplaced] * 2
        assert "went back to an older state and was then changed" in str(heard.ends[0])
        assert "the change of /k at revision 3 is missing" in str(heard.ends[0])


@pytest.mark.looptime
@pytest.mark.parametrize("last", ["change", "deletion", "own change", "own deletion"])
async def test_reconnect_to_the_same_store_continues_watches(last: str) -> None:
    mini = Mini()
    async with client(mini) as etcd:
        heard = await watch_with_last_event(mini, etcd, last)
        mini.cut()
        mini.put(b"/k", b"newer")
        await asyncio.sleep(5)
        assert (heard.ends, heard.revisions[-1]) == ([], 4)


@pytest.mark.looptime
async def test_reconnect_after_compaction_ends_the_watch_as_compacted() -> None:
    mini = Mini()
    async with client(mini) as etcd:
        heard = await watch_with_last_event(mini, etcd, "change")
        mini.cut()
        mini.put(b"/k", b"newer")
        mini.put(b"/k", b"newest")
        mini.compacted = 5
        await asyncio.sleep(5)
        assert [type(error) for error in heard.ends] == [errors.Compacted]
