"""The contract of stores, for encrypted values, and changes of encryption keys."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from apiext.etcd.errors import UNAVAILABLE, StoreReplaced
from apiext.etcd.values import WriteResult
from apiext.storage.ciphers import AES_CBC, AES_GCM, IDENTITY, SECRETBOX, CipherEncryptions, Provider, Rule
from apiext.storage.encryption import Encryptions, Secret
from apiext.storage.store import KeyExists, NotReady, Undecryptable
from tests.support.fake_world import FakeWorld
from tests.support.sinks import RecordingSink, watch_group
from tests.support.store_contract import THINGS, StoreContract, body

pytestmark = pytest.mark.looptime

PREFIX = "/registry/example.com/things/"


def encryptions(kind: str, *names: str, identity: bool = True) -> Encryptions:
    keys = tuple(Secret(kind, name, (name * 32)[:32].encode()) for name in names)
    plain = (Provider(IDENTITY),) if identity else ()
    return CipherEncryptions([Rule(("*.*",), (Provider(kind, keys), *plain))])


class EncryptedWorld(FakeWorld):
    """An encrypted store with a FakeEtcd.

    A second writer stores plain values, which are read, too.
    """

    async def value(self, name: str) -> bytes:
        found = await self.etcd.get(f"{PREFIX}{name}".encode())
        assert found is not None
        return bytes(found.value)


@pytest.fixture(params=[AES_CBC, AES_GCM, SECRETBOX])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[EncryptedWorld]:
    """Return a started store with one cipher."""
    async with asyncio.TaskGroup() as group:
        made = EncryptedWorld(group, encryptions(request.param, "b", "a"))
        await made.store.start(group)
        yield made
        await made.store.stop()


@pytest.mark.rows("OPS-003")
class TestEncryptedStore(StoreContract):
    """Tests of CachedStore with encryption and FakeEtcd."""


@pytest.mark.rows("OPS-003")
async def test_etcd_holds_encrypted_values_and_cache_plain_values(world: EncryptedWorld) -> None:
    col = world.store.add(THINGS, True)
    await col.wait_ready()
    made = await world.store.create(col, "d", "a", body(n=1))
    assert made.raw == body(n=1)
    assert not col.values.stale(made)
    stored = await world.value("d/a")
    assert stored.startswith(b"k8s:enc:")
    assert body(n=1) not in stored
    fresh = (await world.restart()).add(THINGS, True)
    await fresh.wait_ready()
    found = fresh.state.get("d", "a")
    assert found is not None
    assert found.raw == body(n=1)


@pytest.mark.rows("OPS-003")
async def test_values_of_older_keys_are_stale_until_rewritten(world: EncryptedWorld) -> None:
    store = world.store
    col = store.add(THINGS, True)
    await col.wait_ready()
    made = await store.create(col, "d", "a", body(n=1))
    plain = world.etcd.put(f"{PREFIX}d/b", body(n=1))
    await store.at_least(plain)
    other = col.state.get("d", "b")
    assert other is not None
    assert col.values.stale(other)
    kind = made.secret.kind  # type: ignore[attr-defined]
    store.switch_encryption(encryptions(kind, "c", "b"))
    assert col.values.stale(made)
    again = await store.update(col, "d", "a", made.raw, made.revision)
    assert not col.values.stale(again)
    assert b":v1:c:" in await world.value("d/a")
    current = await store.current(col, "d", "b")
    assert current is not None
    assert col.values.stale(current)


@pytest.mark.rows("OPS-003", "RV-020")
async def test_undecryptable_values_are_reported_and_others_read(world: EncryptedWorld) -> None:
    store = world.store
    col = store.add(THINGS, True)
    await col.wait_ready()
    good = await store.create(col, "d", "good", body(n=1))
    sink = RecordingSink()
    col.watch(watch_group(), None, sink)
    seen = world.etcd.put(f"{PREFIX}d/bad", b"k8s:enc:zzz")
    await store.at_least(seen)
    with pytest.raises(Undecryptable) as alone:
        col.state.get("d", "bad")
    with pytest.raises(Undecryptable) as listed:
        col.state.entries()
    with pytest.raises(Undecryptable) as current:
        await store.current(col, "d", "bad")
    with pytest.raises(Undecryptable) as updated:
        await store.update(col, "d", "bad", body(n=2), 1)
    with pytest.raises(KeyExists):
        await store.create(col, "d", "bad", body(n=2))
    for error in (alone, listed, current, updated):
        assert error.value.key == f"{PREFIX}d/bad"
        assert error.value.reason == "no matching prefix found"
    assert [error.value.listed for error in (alone, listed, current, updated)] == [False, True, False, False]
    changed = await store.update(col, "d", "good", body(n=2), good.revision)
    assert col.state.get("d", "good") is changed
    events = await sink.reached(changed.revision)
    assert [(seen.type, seen.revision) for seen in events] == [("MODIFIED", changed.revision)]
    with pytest.raises(Undecryptable) as earlier:  # read from etcd, as the cache is newer
        await store.at_revision(col, None, seen)
    assert (earlier.value.key, earlier.value.listed) == (f"{PREFIX}d/bad", True)


@pytest.mark.rows("OPS-003")
async def test_peer_create_is_not_taken_for_own_create(world: EncryptedWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    """A create that conflicts with an existing object fails.

    It fails also if the watch reports that object before etcd responds.
    """
    store = world.store
    col = store.add(THINGS, True)
    await col.wait_ready()
    update, answer = world.etcd.update, asyncio.Event()

    async def slow(*what: Any, **how: Any) -> WriteResult:
        result = await update(*what, **how)
        await answer.wait()
        return result

    monkeypatch.setattr(world.etcd, "update", slow)
    world.etcd.hold()
    theirs = world.etcd.put(f"{PREFIX}d/a", body(n=1))
    ours = asyncio.get_running_loop().create_task(store.create(col, "d", "a", body(n=2)))
    await asyncio.sleep(0.1)
    world.etcd.release()
    await store.at_least(theirs)
    answer.set()
    with pytest.raises(KeyExists):
        await ours
    found = col.state.get("d", "a")
    assert found is not None
    assert (found.revision, found.raw) == (theirs, body(n=1))


@pytest.mark.rows("OPS-003")
@pytest.mark.parametrize("identity", [True, False])
async def test_removed_key_makes_its_values_undecryptable(world: EncryptedWorld, identity: bool) -> None:
    store = world.store
    col = store.add(THINGS, True)
    await col.wait_ready()
    made = await store.create(col, "d", "a", body(n=1))
    kind = made.secret.kind  # type: ignore[attr-defined]
    sink = RecordingSink()
    col.watch(watch_group(), None, sink)
    store.switch_encryption(encryptions(kind, "c", "b", identity=identity))
    await asyncio.sleep(1)
    assert [entry.raw for entry in col.state.entries()] == [body(n=1)]
    assert not sink.ended
    store.switch_encryption(encryptions(kind, "c", identity=identity))
    await asyncio.sleep(1)
    with pytest.raises(Undecryptable):
        col.state.entries()
    assert sink.ended


@pytest.mark.rows("OPS-003")
async def test_restored_key_decrypts_its_values(world: EncryptedWorld) -> None:
    store = world.store
    col = store.add(THINGS, True)
    await col.wait_ready()
    made = await store.create(col, "d", "a", body(n=1))
    kind = made.secret.kind  # type: ignore[attr-defined]
    stored = await world.value("d/a")
    store.switch_encryption(encryptions(kind, "c", identity=False))
    await store.at_least(world.etcd.put(f"{PREFIX}d/a", stored))
    with pytest.raises(Undecryptable):
        col.state.entries()
    store.switch_encryption(encryptions(kind, "c", "b"))
    await asyncio.sleep(1)
    assert [entry.raw for entry in col.state.entries()] == [body(n=1)]


@pytest.mark.rows("OPS-003", "RV-017")
async def test_bookmarks_wait_for_events_during_a_reload(world: EncryptedWorld) -> None:
    store = world.store
    col = store.add(THINGS, True)
    await col.wait_ready()
    made = await store.create(col, "d", "a", body(n=1))
    kind = made.secret.kind  # type: ignore[attr-defined]
    sink = RecordingSink()
    watcher = col.watch(watch_group(), None, sink, bookmarks=True)
    world.etcd.down = True
    store.switch_encryption(encryptions(kind, "c"))
    unseen = world.etcd.put(f"{PREFIX}d/b", body(n=2))
    await asyncio.sleep(1)
    assert store.revision == unseen
    watcher.bookmark_now()
    assert all(seen.revision < unseen for seen in sink.seen)
    newer = world.etcd.put(f"{PREFIX}d/a", body(n=3))
    await store.at_least(newer)
    with pytest.raises(NotReady):
        col.state.entries()
    ready = world.group.create_task(col.wait_ready())
    await asyncio.sleep(0)
    assert not ready.done()
    world.etcd.down = False
    await ready
    assert [entry.revision for entry in col.state.entries()] == [newer, unseen]
    assert sink.ended


async def wait_for_page_reads(world: EncryptedWorld, count: int) -> None:
    """Wait until ``count`` more pages were read: two hundred objects have three."""
    count += world.etcd.calls.count("range")
    while world.etcd.calls.count("range") < count:  # noqa: ASYNC110 - iterations of the loop are counted
        await asyncio.sleep(0)


@pytest.mark.rows("OPS-003", "RV-019")
async def test_key_switch_during_a_reload_applies_to_whole_collection(world: EncryptedWorld) -> None:
    store = world.store
    col = store.add(THINGS, True)
    await col.wait_ready()
    made = [await store.create(col, "d", f"a{number}", body(n=1)) for number in range(200)]
    kind = made[0].secret.kind  # type: ignore[attr-defined]
    store.switch_encryption(encryptions(kind, "c", identity=False))
    await wait_for_page_reads(world, 2)
    store.switch_encryption(encryptions(kind, "c", "b"))
    await asyncio.sleep(10)
    assert len(col.state.entries()) == 200


@pytest.mark.rows("OPS-003", "RV-019")
async def test_key_switch_during_a_resync_loses_no_event(world: EncryptedWorld) -> None:
    store = world.store
    col = store.add(THINGS, True)
    await col.wait_ready()
    made = [await store.create(col, "d", f"a{number}", body(n=1)) for number in range(200)]
    await store.at_least(world.etcd.put(f"{PREFIX}d/bad", b"k8s:enc:zzz"))  # decryption is retried with each new key
    for watch in list(world.etcd.watches):
        watch.end(StoreReplaced(UNAVAILABLE, "the store was replaced"))
    await wait_for_page_reads(world, 2)
    store.switch_encryption(encryptions(made[0].secret.kind, "c", "b"))  # type: ignore[attr-defined]
    await wait_for_page_reads(world, 3)
    revision = world.etcd.put(f"{PREFIX}d/late", body(n=2))
    await asyncio.sleep(10)
    assert (await store.fresh(), len(col.state.readable())) == (revision, 201)


async def test_encrypted_value_without_keys_is_reported() -> None:
    async with asyncio.TaskGroup() as group:
        world = EncryptedWorld(group, CipherEncryptions())
        await world.store.start(group)
        col = world.store.add(THINGS, True)
        await world.store.at_least(world.etcd.put(f"{PREFIX}d/a", b"k8s:enc:aescbc:v1:a:x"))
        await col.wait_ready()
        with pytest.raises(Undecryptable) as found:
            col.state.get("d", "a")
        assert found.value.reason == "identity transformer tried to read encrypted data"
        await world.store.stop()
