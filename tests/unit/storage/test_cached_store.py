"""The contract of stores, for CachedStore with an etcd in memory."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from apiext.meta.names import GroupResource
from apiext.storage.collection import Collection
from tests.support.fake_world import FakeWorld
from tests.support.store_contract import StoreContract

pytestmark = pytest.mark.looptime


@pytest.fixture(params=["progress", "touch"])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[FakeWorld]:
    """Return a started store, with and without reliable progress notifications of etcd."""
    async with asyncio.TaskGroup() as group:
        made = FakeWorld(group)
        made.etcd.progress_requests_ok = request.param == "progress"
        await made.store.start(group)
        yield made
        await made.store.stop()


class TestCachedStore(StoreContract):
    """Tests of CachedStore with FakeEtcd."""


def widgets(world: FakeWorld) -> Collection:
    return world.store.add(GroupResource("example.com", "widgets"), namespaced=True)


async def test_write_is_cached_before_its_event_if_cache_is_current(world: FakeWorld) -> None:
    col, store = widgets(world), world.store
    await col.wait_ready()
    heard: list[tuple[str, int]] = []
    col.feed.subscribe(lambda change: heard.append((change.kind, change.revision)))
    world.etcd.hold()
    made = await store.create(col, "d", "a", b'{"x":1}')
    assert col.state.get("d", "a") is made
    changed = await store.update(col, "d", "a", b'{"x":2}', made.revision)
    assert col.state.get("d", "a") is changed
    gone = await store.delete(col, "d", "a", changed.revision)
    assert (col.state.get("d", "a"), store.revision) == (None, gone.revision)
    other = world.etcd.put("/registry/example.com/widgets/d/b", b"{}")
    world.etcd.release()
    await store.at_least(other)
    assert heard == [
        ("ADDED", made.revision),
        ("MODIFIED", changed.revision),
        ("DELETED", gone.revision),
        ("ADDED", other),
    ]


async def test_write_waits_for_event_of_earlier_peer_write(world: FakeWorld) -> None:
    col, store = widgets(world), world.store
    await col.wait_ready()
    world.etcd.hold()
    world.etcd.put("/registry/example.com/widgets/d/b", b"{}")
    async with asyncio.TaskGroup() as group:
        write = group.create_task(store.create(col, "d", "a", b"{}"))
        for _ in range(50):  # iterations of the loop; a call of this etcd takes few
            await asyncio.sleep(0)
        assert "/registry/example.com/widgets/d/a" in world.etcd.state("/registry/example.com/")
        assert not write.done()
        assert col.state.get("d", "a") is None
        world.etcd.release()
    assert [entry.name for entry in col.state.entries("d")] == ["a", "b"]
    assert col.state.get("d", "a") is write.result()


async def test_deletion_waits_for_event_of_earlier_peer_write(world: FakeWorld) -> None:
    """A client does not read an object again after its deletion."""
    col, store = widgets(world), world.store
    await col.wait_ready()
    made = await store.create(col, "d", "a", b"{}")
    world.etcd.hold()
    world.etcd.put("/registry/example.com/widgets/d/b", b"{}")
    async with asyncio.TaskGroup() as group:
        deletion = group.create_task(store.delete(col, "d", "a", made.revision))
        for _ in range(50):  # iterations of the loop; a call of this etcd takes few
            await asyncio.sleep(0)
        assert "/registry/example.com/widgets/d/a" not in world.etcd.state("/registry/example.com/")
        assert not deletion.done()
        world.etcd.release()
    assert [entry.name for entry in col.state.entries("d")] == ["b"]


async def test_write_to_dropped_collection_appears_in_its_successor(world: FakeWorld) -> None:
    col, store = widgets(world), world.store
    await col.wait_ready()
    world.etcd.hold()
    write = asyncio.get_running_loop().create_task(store.create(col, "d", "a", b"{}"))
    store.drop(col.resource)
    other = widgets(world)
    entry = await write
    await other.wait_ready()
    found = other.state.get("d", "a")
    assert found is not None
    assert found.revision == entry.revision
    assert not col.state.ready
