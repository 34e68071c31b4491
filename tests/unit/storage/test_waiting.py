"""Values encrypted with keys of a plug-in wait for their keys in order (OPS-003).

They do not block other values.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence

import pytest

from apiext.kms import limits as kms_limits
from apiext.kms import provider as provider_module
from apiext.kms.provider import Provider as Service
from apiext.storage import decryption_buffer as waiting_module
from apiext.storage import limits as storage_limits
from apiext.storage.cached_store import CachedStore
from apiext.storage.ciphers import IDENTITY, CipherEncryptions, Provider, Rule
from apiext.storage.collection import Collection
from apiext.storage.encryption import Encryption
from apiext.storage.envelopes import KMS
from apiext.storage.store import FutureRevision, NotEncrypted, NotReady, Unavailable, Undecryptable
from tests.support.fake_world import FakeWorld
from tests.support.sinks import RecordingSink, watch_group
from tests.support.store_contract import ROOMS, THINGS, body
from tests.unit.kms.fake import FakePlugin

pytestmark = [pytest.mark.looptime, pytest.mark.rows("OPS-003")]
PREFIX = "/registry/example.com/things/"
GONE = "failed to decrypt DEK, error: rpc error: code = Unavailable desc = gone"


class KmsWorld(FakeWorld):
    """A store whose things are encrypted with a plug-in's key.

    Other servers with other plug-ins write, too.
    """

    def __init__(self, group: asyncio.TaskGroup) -> None:
        self.plugin = FakePlugin()
        self.services: list[Service] = []
        super().__init__(group)

    async def start(self) -> Collection:
        """Start a server and return its things; it also has rooms."""
        service = await self._service(self.plugin)
        self.kept = encryptions(service)
        self.store = self._make()
        await self.store.start(self.group)
        self.rooms = self.store.add(ROOMS, True)
        col = self.store.add(THINGS, True)
        await col.wait_ready()
        return col

    async def other(self, key_id: str = "key-1") -> Encryption:
        """Return the encryption of another server, with another seed."""
        found = encryptions(await self._service(FakePlugin(key_id))).of(THINGS)
        assert found is not None
        return found

    async def _service(self, plugin: FakePlugin) -> Service:
        service = Service("p", plugin, asyncio.get_running_loop().time)
        await service.start(self.group)
        self.services.append(service)
        return service

    def write(self, by: Encryption, name: str, **fields: object) -> int:
        key = f"{PREFIX}{name}"
        return self.etcd.put(key, by.encrypt(key, body(**fields)))

    async def end(self) -> None:
        await self.store.stop()
        for service in self.services:
            await service.stop()


def encryptions(service: Service) -> CipherEncryptions:
    return CipherEncryptions([Rule(("things.example.com",), (Provider(KMS, service=service), Provider(IDENTITY)))])


@pytest.fixture
async def world() -> AsyncIterator[KmsWorld]:
    """Return a world that the test starts; time is real before."""
    async with asyncio.TaskGroup() as group:
        made = KmsWorld(group)
        yield made
        await made.end()
        assert not made.store.lagging


def names(col: Collection) -> list[str]:
    return [entry.name for entry in col.state.entries()]


async def test_kms_values_are_decrypted_after_a_restart(world: KmsWorld) -> None:
    col = await world.start()
    made = await world.store.create(col, "d", "a", body(n=1))
    assert (await world.store.update(col, "d", "a", body(n=2), made.revision)).raw == body(n=2)
    stored = world.etcd.state(PREFIX)[f"{PREFIX}d/a"][1]
    assert stored.startswith(b"k8s:enc:kms:v2:p:\x0a")
    assert world.plugin.count("Decrypt") == 0
    await world.store.stop()
    again = await world.start()
    assert [entry.raw for entry in again.state.entries()] == [body(n=2)]
    assert world.plugin.count("Decrypt") == 1


async def test_a_new_key_of_the_plugin_makes_values_stale(world: KmsWorld) -> None:
    col = await world.start()
    made = await world.store.create(col, "d", "a", body(n=1))
    assert not col.values.stale(made)
    world.plugin.key_id = "key-2"
    await asyncio.sleep(provider_module.KMS_POLL + 1)
    assert col.values.stale(made)
    again = await world.store.update(col, "d", "a", made.raw, made.revision)
    assert not col.values.stale(again)
    other = await world.other("key-2")
    await world.store.at_least(world.write(other, "d/b", n=1), col)
    theirs = col.state.get("d", "b")
    assert theirs is not None
    assert not col.values.stale(theirs)  # another seed of the same key is not stale


async def test_buffered_changes_keep_order_and_block_no_other_resource(world: KmsWorld) -> None:
    col = await world.start()
    first = await world.store.create(col, "d", "a", body(n=1))
    sink = RecordingSink()
    watcher = col.watch(watch_group(), None, sink, bookmarks=True)
    other = await world.other()
    world.plugin.gate.clear()
    revisions = [world.write(other, "d/b", n=1), world.write(other, "d/a", n=2), world.etcd.remove(f"{PREFIX}d/b")]
    elsewhere = world.etcd.put("/registry/example.com/rooms/d/a", body(n=1))
    ours = await world.store.create(col, "d", "c", body(n=1))
    assert await world.store.fresh(world.rooms) == ours.revision
    assert [entry.revision for entry in world.rooms.state.entries()] == [elsewhere]
    assert col.state.revision == revisions[0] - 1
    assert col.state.entries() == [first]  # reads from the cache are older, but complete
    await asyncio.sleep(0.1)
    assert world.plugin.count("Decrypt") == 1
    watcher.bookmark_now()
    waits = [
        world.group.create_task(work) for work in (world.store.fresh(col), world.store.at_least(ours.revision, col))
    ]
    await asyncio.sleep(1)
    assert not any(wait.done() for wait in waits)
    assert max((seen.revision for seen in sink.seen), default=0) < revisions[0]
    world.plugin.gate.set()
    await asyncio.gather(*waits)
    assert [(entry.name, entry.raw) for entry in col.state.entries()] == [("a", body(n=2)), ("c", body(n=1))]
    events = await sink.reached(ours.revision)
    assert [(seen.type, seen.revision) for seen in events] == [
        ("ADDED", revisions[0]),
        ("MODIFIED", revisions[1]),
        ("DELETED", revisions[2]),
        ("ADDED", ours.revision),
    ]
    assert not sink.ended
    assert col.state.revision == world.store.revision
    assert world.plugin.count("Decrypt") == 1


async def test_store_restore_drops_later_buffered_changes(world: KmsWorld) -> None:
    col = await world.start()
    made = await world.store.create(col, "d", "a", body(n=1))
    stored = world.etcd.state(PREFIX)[f"{PREFIX}d/a"][1]
    other = await world.other()
    world.plugin.gate.clear()
    for name in ("b", "c"):
        world.write(other, f"d/{name}", n=1)
    await asyncio.sleep(0.1)
    assert col.state.revision == made.revision, "they wait"
    world.etcd.replace(made.revision, {f"{PREFIX}d/a".encode(): stored})
    await asyncio.sleep(1)
    world.plugin.gate.set()
    await world.store.fresh(col)
    assert names(col) == ["a"]
    await world.store.create(col, "d", "b", body(n=1))
    assert names(col) == ["a", "b"]


async def test_reads_raise_not_ready_while_plugin_is_slow(world: KmsWorld) -> None:
    col = await world.start()
    other = await world.other()
    world.plugin.timeout = 30.0
    world.plugin.gate.clear()
    world.write(other, "d/a", n=1)
    with pytest.raises(NotReady):
        await world.store.fresh(col)
    assert await world.store.fresh(world.rooms) == world.etcd.revision
    world.plugin.gate.set()
    await world.store.fresh(col)
    assert names(col) == ["a"]


async def test_unavailable_key_fails_its_values_until_it_returns(world: KmsWorld) -> None:
    col = await world.start()
    await world.store.create(col, "d", "a", body(n=1))
    sink = RecordingSink()
    col.watch(watch_group(), None, sink)
    other = await world.other()
    world.plugin.die()
    world.write(other, "d/b", n=1)
    after = await world.store.create(col, "d", "c", body(n=1))
    await world.store.fresh(col)
    with pytest.raises(Undecryptable) as alone:
        col.state.get("d", "b")
    with pytest.raises(Undecryptable):
        col.state.entries()
    assert alone.value.reason == GONE
    with pytest.raises(Undecryptable):
        await world.store.current(col, "d", "b")
    assert [entry.name for entry in col.state.readable()] == ["a", "c"]
    assert [seen.revision for seen in await sink.reached(after.revision)] == [after.revision]
    asked = world.plugin.count("Decrypt")
    await asyncio.sleep(100)
    assert world.plugin.count("Decrypt") - asked < 20
    assert not sink.ended
    world.plugin.fault = None
    await asyncio.sleep(provider_module.KMS_POLL_FAILED + storage_limits.KMS_AGAIN_LAST + 1)
    assert names(col) == ["a", "b", "c"]
    assert sink.ended  # it missed the change in order, so it must restart


async def test_lost_key_does_not_block_retries_of_other_keys(world: KmsWorld) -> None:
    other, lost = await world.other(), await world.other("key-9")
    for number in range(10):
        world.write(lost, f"d/lost{number}", n=1)
    world.write(other, "d/z", n=1)
    world.plugin.unknown = {"key-1", "key-9"}
    col = await world.start()
    assert len(col.state.lacking()) == 11
    asked = world.plugin.count("Decrypt")
    await asyncio.sleep(100)
    assert world.plugin.count("Decrypt") - asked < 100 / storage_limits.KMS_AGAIN_LAST * 4
    world.plugin.unknown = {"key-9"}
    await asyncio.sleep(3 * storage_limits.KMS_AGAIN_LAST + 1)
    assert [entry.name for entry in col.state.readable()] == ["z"]
    with pytest.raises(Undecryptable, match="no key key-9"):
        col.state.entries()


async def test_start_without_plugin_reports_error_and_recovers(world: KmsWorld) -> None:
    other = await world.other()
    world.write(other, "d/a", n=1)
    world.plugin.die()
    col = await world.start()
    with pytest.raises(Undecryptable) as listed:
        col.state.entries()
    assert listed.value.reason == "got unexpected nil transformer"
    with pytest.raises(NotEncrypted, match="got unexpected nil transformer"):
        await world.store.create(col, "d", "b", body(n=1))
    assert list(world.etcd.state(PREFIX)) == [f"{PREFIX}d/a"]
    await world.store.create(world.rooms, "d", "a", body(n=1))
    world.plugin.fault = None
    await asyncio.sleep(provider_module.KMS_POLL_FAILED + waiting_module.KMS_AGAIN_FIRST + 1)
    assert names(col) == ["a"]
    await world.store.create(col, "d", "b", body(n=1))


async def test_expired_data_key_encrypts_nothing(world: KmsWorld) -> None:
    col = await world.start()
    made = await world.store.create(col, "d", "a", body(n=1))
    world.plugin.die()
    await asyncio.sleep(kms_limits.KMS_WRITES + 1)
    before = world.etcd.state(PREFIX)
    for work in (
        world.store.create(col, "d", "b", body(n=1)),
        world.store.update(col, "d", "a", body(n=2), made.revision),
        world.store.create(col, "d", "large", body(text="x" * 100_000)),
    ):
        with pytest.raises(NotEncrypted, match="expired at"):
            await work
    assert world.etcd.state(PREFIX) == before
    assert not col.values.pending
    assert names(col) == ["a"]
    assert (await world.store.delete(col, "d", "a", made.revision)).raw == body(n=1)


async def test_large_values_keep_order_with_small_values(world: KmsWorld) -> None:
    col = await world.start()
    other = await world.other()
    sink = RecordingSink()
    col.watch(watch_group(), None, sink)
    world.plugin.gate.clear()
    revisions = [world.write(other, "d/large", text="x" * 100_000), world.write(other, "d/small", n=1)]
    await asyncio.sleep(0.5)
    assert await world.store.fresh(world.rooms) == revisions[1]
    world.plugin.gate.set()
    await world.store.fresh(col)
    assert names(col) == ["large", "small"]
    assert [seen.revision for seen in await sink.reached(revisions[1])] == revisions
    assert not col.values.ahead


async def test_fill_decrypts_each_data_key_once(world: KmsWorld) -> None:
    others = [await world.other() for _ in range(3)]
    for number in range(300):
        world.write(others[number % 3], f"d/a{number:03}", n=number)
    col = await world.start()
    assert len(col.state.entries()) == 300
    assert world.plugin.count("Decrypt") == 3


async def test_watch_from_history_without_its_key_is_unavailable(world: KmsWorld) -> None:
    other = await world.other()
    first = world.write(other, "d/a", n=1)
    second = world.write(other, "d/a", n=2)
    world.etcd.remove(f"{PREFIX}d/a")
    col = await world.start()
    world.plugin.die()
    with pytest.raises(Unavailable, match="failed to decrypt DEK"):
        await world.store.watch(col, watch_group(), first, RecordingSink())
    world.plugin.fault = None
    await asyncio.sleep(kms_limits.KMS_TTL_FAILED)
    sink = RecordingSink()
    await world.store.watch(col, watch_group(), first, sink)
    assert [seen.revision for seen in await sink.reached(second + 1)] == [second, second + 1]


async def start_with_buffered_changes(world: KmsWorld, count: int = 1) -> Collection:
    """Return the things, of which ``count`` changes wait for keys."""
    col = await world.start()
    other = await world.other()
    world.plugin.gate.clear()
    for number in range(count):
        world.write(other, f"d/a{number:03}", n=1)
    async with asyncio.timeout(30):
        while col.arrivals.open:  # noqa: ASYNC110 - polls from outside
            await asyncio.sleep(0.1)
    return col


async def test_many_buffered_changes_are_dispatched_in_slices(world: KmsWorld) -> None:
    col = await start_with_buffered_changes(world, 5 * storage_limits.KMS_HELD_SLICE)
    seen: list[tuple[int, int]] = []
    col.feed.subscribe(lambda change: seen.append((change.revision, col.state.revision)))
    world.plugin.gate.set()
    await world.store.fresh(col)
    assert len(seen) == 5 * storage_limits.KMS_HELD_SLICE
    assert all(revision == at for revision, at in seen[:-1])


async def test_watch_from_buffered_revision_waits_for_its_key(world: KmsWorld) -> None:
    col = await start_with_buffered_changes(world)
    sink = RecordingSink()
    opening = world.group.create_task(world.store.watch(col, watch_group(), world.etcd.revision, sink))
    await asyncio.sleep(0.5)
    assert not opening.done()
    world.plugin.gate.set()
    await opening
    assert names(col) == ["a000"]
    with pytest.raises(FutureRevision):
        await world.store.watch(col, watch_group(), world.etcd.revision + 5, sink)


async def test_collection_is_dropped_while_changes_are_buffered(world: KmsWorld) -> None:
    await start_with_buffered_changes(world)
    world.store.drop(THINGS)
    world.plugin.gate.set()
    await world.store.fresh()
    again = world.store.add(THINGS, True)
    await again.wait_ready()
    assert names(again) == ["a000"]


async def test_encryption_switch_delivers_buffered_changes(world: KmsWorld) -> None:
    col = await start_with_buffered_changes(world)
    service = await world._service(FakePlugin())
    world.store.switch_encryption(encryptions(service))
    await asyncio.sleep(1)
    assert names(col) == ["a000"]
    assert col.arrivals.open


async def test_encryption_switch_without_plugin_ends_buffering(world: KmsWorld) -> None:
    col = await start_with_buffered_changes(world)
    world.store.switch_encryption(CipherEncryptions())
    await asyncio.sleep(1)
    with pytest.raises(Undecryptable, match="identity transformer"):
        col.state.entries()
    assert (col.decryption_buffer, col.state.revision) == (None, world.store.revision)


async def test_change_during_a_reload_is_delivered(world: KmsWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    col = await world.start()
    other = await world.other()
    asked, prepare = [0], col.values.prepare

    async def counted(values: Sequence[tuple[str, bytes]]) -> None:
        asked[0] += 1
        assert asked[0] < 10, "who shows what waits does not end, and nobody else has a turn"
        await prepare(values)

    monkeypatch.setattr(col.values, "prepare", counted)
    filling = world.group.create_task(world.store.read_again(col))
    value = other.encrypt(f"{PREFIX}d/a", body(n=1))
    world.etcd.hold()
    col.apply("d/a", world.etcd.put(f"{PREFIX}d/a", value), value)
    assert not col.arrivals.open
    await asyncio.sleep(0.1)
    assert asked[0] == 1
    world.etcd.release()
    await filling
    assert names(col) == ["a"]


async def test_reads_during_a_reload_wait_for_later_changes(world: KmsWorld) -> None:
    col = await world.start()
    first, second = await world.other(), await world.other()
    world.plugin.gate.clear()
    world.write(first, "d/a", n=1)
    await asyncio.sleep(0.1)
    filling = world.group.create_task(world.store.read_again(col))
    await asyncio.sleep(0.1)
    revision = world.write(second, "d/b", n=1)  # the fill is older
    reads = [world.group.create_task(work) for work in (world.store.fresh(col), world.store.at_least(revision, col))]
    await asyncio.sleep(0.1)
    world.plugin.gate.set()
    world.plugin.gate.clear()  # the waiting changes were delivered
    await filling
    await asyncio.sleep(0.5)
    assert (col.state.ready, col.state.revision) == (True, revision - 1)
    assert not any(read.done() for read in reads)
    world.plugin.gate.set()
    await asyncio.gather(*reads)
    assert names(col) == ["a", "b"]


async def test_second_reload_does_not_restart_the_first(world: KmsWorld) -> None:
    col = await world.start()
    first, second = await world.other(), await world.other()
    world.plugin.gate.clear()
    world.write(first, "d/a", n=1)
    filling = world.group.create_task(world.store.read_again(col))
    await asyncio.sleep(0.1)
    world.write(second, "d/b", n=1)
    world.etcd.put(f"{PREFIX}d/c", body(n=1))
    await asyncio.sleep(0.1)
    again = world.group.create_task(world.store.read_again(col))  # it would drop the changes since the first fill began
    await asyncio.sleep(0.1)
    assert len(col.arrivals.early) == 2
    world.plugin.gate.set()
    await asyncio.gather(filling, again)
    await world.store.fresh(col)
    assert names(col) == ["a", "b", "c"]


async def test_cancelled_read_releases_its_decrypted_values(world: KmsWorld) -> None:
    col = await world.start()
    for number in range(8):
        await world.store.create(col, "d", f"a{number}", body(text="x" * 200_000))
    reading = world.group.create_task(world.store.at_revision(col, None, world.etcd.revision - 1))
    while not col.values.ahead and not reading.done():  # noqa: ASYNC110 - a thread decrypts them
        await asyncio.sleep(0)
    assert not reading.done()
    reading.cancel()
    await asyncio.wait([reading])
    assert reading.cancelled()
    assert not col.values.ahead


async def test_store_stops_while_changes_are_buffered(world: KmsWorld) -> None:
    await start_with_buffered_changes(world)
    store: CachedStore = world.store
    await store.stop()
    assert not store.lagging
