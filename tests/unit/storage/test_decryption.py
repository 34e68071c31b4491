"""Large values are encrypted and decrypted in threads, and events stay in order."""

import asyncio
import threading
from collections.abc import AsyncIterator, Container, Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest
from msgspec.structs import replace

from apiext.etcd.values import RangeResult
from apiext.meta.names import GroupResource
from apiext.storage import limits
from apiext.storage.ciphers import AES_CBC, AES_GCM, SECRETBOX, CipherEncryptions, Provider, Rule
from apiext.storage.encryption import Encryption, NoEncryption, Secret
from apiext.storage.store import Entry, KeyExists, RevisionChanged, Undecryptable
from tests.support.fake_world import FakeWorld
from tests.support.sinks import RecordingSink, watch_group
from tests.support.store_contract import THINGS, body

PREFIX = "/registry/example.com/things/"
LARGE, MANY, SMALL = "x" * 100_000, "x" * 20_000, "x"


@dataclass
class Witness:
    """Encryption that records how many bytes are processed in each iteration of the loop.

    Other threads decrypt nothing while ``gate`` is closed.
    """

    inner: Encryption
    gate: threading.Event = field(default_factory=threading.Event)
    waiting: threading.Event = field(default_factory=threading.Event)
    turns: dict[int, int] = field(default_factory=dict)
    turn: int = 0
    waits = False

    @property
    def secret(self) -> Secret:
        return self.inner.secret

    @property
    def secrets(self) -> Container[Secret]:
        return self.inner.secrets

    def encrypt(self, key: str, plain: bytes) -> bytes:
        self._saw(plain)
        return self.inner.encrypt(key, plain)

    def decrypt(self, key: str, value: bytes) -> tuple[bytes, Secret]:
        self._saw(value)
        return self.inner.decrypt(key, value)

    async def fetch(self, values: Iterable[bytes]) -> None:
        await self.inner.fetch(values)

    def is_healthy(self) -> bool:
        return self.inner.is_healthy()

    def _saw(self, value: bytes) -> None:
        if threading.current_thread() is threading.main_thread():
            asyncio.get_running_loop().call_soon(self._next, self.turn)
            self.turns[self.turn] = self.turns.get(self.turn, 0) + len(value)
        else:
            self.waiting.set()
            self.gate.wait(10)

    def _next(self, turn: int) -> None:
        self.turn = max(self.turn, turn + 1)


class EncryptedWorld(FakeWorld):
    """An encrypted store with a FakeEtcd, and a second writer with the same key."""

    def __init__(self, group: asyncio.TaskGroup, kind: str) -> None:
        rules = [Rule(("*.*",), (Provider(kind, (Secret(kind, "a", b"a" * 32),)),))]
        found = CipherEncryptions(rules).of(THINGS)
        assert found is not None
        self.theirs, self.ours = found, Witness(found)
        self.ours.gate.set()
        super().__init__(group, self)

    def of(self, resource: GroupResource) -> Encryption:
        return self.ours

    def write(self, name: str, text: str) -> int:
        key = f"{PREFIX}{name}"
        return self.etcd.put(key, self.theirs.encrypt(key, body(text=text)))


@pytest.fixture(params=[AES_CBC, AES_GCM, SECRETBOX])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[EncryptedWorld]:
    """Return a started store with one cipher."""
    async with asyncio.TaskGroup() as group:
        made = EncryptedWorld(group, request.param)
        await made.store.start(group)
        yield made
        await made.store.stop()
        assert max(made.ours.turns.values(), default=0) <= limits.ENCRYPT_INLINE + 1000


@pytest.mark.rows("OPS-003")
async def test_values_of_peers_are_decrypted_in_threads(world: EncryptedWorld) -> None:
    store = world.store
    col = store.add(THINGS, True)
    await col.wait_ready()
    sink = RecordingSink()
    col.watch(watch_group(), None, sink)
    world.etcd.hold()
    for number in range(10):
        world.write(f"d/many{number}", MANY)
    world.write("d/large", LARGE)
    last = world.write("d/large", SMALL)
    world.etcd.release()
    await store.at_least(last)
    wanted = [body(text=text) for text in (SMALL, *[MANY] * 10)]
    assert [entry.raw for entry in col.state.entries()] == wanted
    events = await sink.reached(last)
    assert [event.revision for event in events] == list(range(last - 11, last + 1))
    again = (await world.restart()).add(THINGS, True)
    await again.wait_ready()
    assert [entry.raw for entry in again.state.entries()] == wanted
    assert not col.values.ahead
    assert not again.values.ahead


@pytest.mark.rows("OPS-003")
async def test_cache_serves_reads_during_encryption_and_decryption(world: EncryptedWorld) -> None:
    store = world.store
    col = store.add(THINGS, True)
    await col.wait_ready()
    small = await store.create(col, "d", "a", body(text=SMALL))
    for work in (lambda: world.write("d/large", LARGE), lambda: store.create(col, "d", "ours", body(text=LARGE))):
        world.ours.gate.clear()
        world.ours.waiting.clear()
        begun = work()
        writing = world.group.create_task(store.at_least(begun) if isinstance(begun, int) else begun)
        assert await asyncio.to_thread(world.ours.waiting.wait, 10)
        assert col.state.get("d", "a") is small
        assert col.state.page(None, "", 0).remaining == 0
        assert not writing.done()
        world.ours.gate.set()
        await writing
    assert [entry.name for entry in col.state.entries()] == ["a", "large", "ours"]


@pytest.mark.rows("OPS-003")
async def test_events_keep_order_while_values_are_decrypted(world: EncryptedWorld) -> None:
    store = world.store
    col = store.add(THINGS, True)
    await col.wait_ready()
    sink = RecordingSink()
    col.watch(watch_group(), None, sink)
    theirs = [world.write("d/a", LARGE)]
    await asyncio.sleep(0)
    ours = await store.create(col, "d", "b", body(text=LARGE))
    theirs.append(world.write("d/c", SMALL))
    small = await store.create(col, "d", "e", body(text=SMALL))
    await store.at_least(world.etcd.remove(f"{PREFIX}d/a"))
    events = await sink.reached(world.etcd.revision)
    wanted = [theirs[0], ours.revision, theirs[1], small.revision, world.etcd.revision]
    assert [event.revision for event in events] == wanted
    assert col.state.get("d", "a") is None
    assert not col.values.ahead


@pytest.mark.rows("OPS-003")
async def test_values_read_from_the_store_are_decrypted_in_threads(world: EncryptedWorld) -> None:
    store = world.store
    first = world.write("d/a", LARGE)
    col = store.add(THINGS, True)
    await col.wait_ready()
    second = world.write("d/a", LARGE + "y")
    await store.at_least(second)
    current = await store.current(col, "d", "a")
    assert current is not None
    assert current.raw == body(text=LARGE + "y")
    earlier = await store.at_revision(col, None, first)
    assert [entry.raw for entry in earlier.entries] == [body(text=LARGE)]
    with pytest.raises(RevisionChanged) as changed:
        await store.update(col, "d", "a", body(text=SMALL), first)
    with pytest.raises(KeyExists) as there:
        await store.create(col, "d", "a", body(text=SMALL))
    with pytest.raises(RevisionChanged) as undeleted:
        await store.delete(col, "d", "a", first)
    found = (changed.value.current, there.value.current, undeleted.value.current)
    assert [entry.raw for entry in found if isinstance(entry, Entry)] == [body(text=LARGE + "y")] * 3
    world.etcd.hold()
    third = world.write("d/a", LARGE + "z")
    gone = await store.delete(col, "d", "a", third)
    world.etcd.release()
    assert gone.raw == body(text=LARGE + "z")


@pytest.mark.rows("OPS-003", "RV-017")
async def test_history_from_etcd_is_decrypted_in_threads(world: EncryptedWorld) -> None:
    first = world.write("d/a", SMALL)
    revisions = [world.write("d/a", LARGE), world.write("d/a", LARGE + "y"), world.write("d/b", SMALL)]
    revisions.append(world.etcd.remove(f"{PREFIX}d/a"))
    col = world.store.add(THINGS, True)
    await col.wait_ready()
    sink = RecordingSink()
    await world.store.watch(col, watch_group(), first, sink)
    events = await sink.reached(revisions[-1])
    assert [(event.type, event.revision) for event in events] == list(
        zip(("MODIFIED", "MODIFIED", "ADDED", "DELETED"), revisions, strict=True)
    )


@pytest.mark.rows("OPS-003", "RV-020")
async def test_large_undecryptable_or_malformed_value_is_reported(world: EncryptedWorld) -> None:
    store = world.store
    col = store.add(THINGS, True)
    await col.wait_ready()
    key = f"{PREFIX}d/a"
    await store.at_least(world.etcd.put(key, b"k8s:enc:none:" + LARGE.encode()))
    with pytest.raises(Undecryptable):
        col.state.get("d", "a")
    text = world.theirs.encrypt(key, b'{"text": "%b' % LARGE.encode())
    await store.at_least(world.etcd.put(key, text))
    with pytest.raises(ValueError, match="unexpected end of JSON input"):
        raise ValueError(col.state.broken["d/a"].reason)
    await store.at_least(world.write("d/a", LARGE))
    assert col.state.get("d", "a") is not None


@pytest.mark.rows("OPS-003", "RV-017")
async def test_resync_drops_only_earlier_values_under_decryption(
    world: EncryptedWorld,
) -> None:
    """A resync drops values that are being decrypted, and keeps later values.

    A resync reads everything again.
    """
    col, dispatcher = world.store.add(THINGS, True), world.store._dispatcher
    await col.wait_ready()
    world.ours.gate.clear()
    world.write("d/before", LARGE)
    assert await asyncio.to_thread(world.ours.waiting.wait, 10)
    dispatcher.drop_buffered()  # as if everything were read again
    after = world.write("d/after", LARGE)
    while not dispatcher._buffered:  # noqa: ASYNC110 - iterations of the loop are counted
        await asyncio.sleep(0)
    world.ours.gate.set()
    await world.store.at_least(after)
    assert col.state.get("d", "after") is not None
    assert not col.values.ahead


@pytest.mark.rows("OPS-003")
async def test_values_decrypted_for_dropped_events_are_released(world: EncryptedWorld) -> None:
    col, dispatcher = world.store.add(THINGS, True), world.store._dispatcher
    await col.wait_ready()
    world.ours.gate.clear()
    world.write("d/large", LARGE)
    assert await asyncio.to_thread(world.ours.waiting.wait, 10)
    dispatcher.drop_buffered()  # as if everything were read again
    world.ours.gate.set()
    async with asyncio.timeout(20):
        while dispatcher._decrypting:  # noqa: ASYNC110 - a thread cannot set an event
            await asyncio.sleep(0)
    assert not col.values.ahead


@pytest.mark.rows("OPS-003")
@pytest.mark.parametrize("end", ["filled", "filled again", "dropped"])
async def test_values_decrypted_during_a_fill_are_released(world: EncryptedWorld, end: str) -> None:
    store, dispatcher = world.store, world.store._dispatcher
    col = store.add(THINGS, True)
    await col.wait_ready()
    ranged = world.etcd.range
    begun, go = asyncio.Event(), asyncio.Event()

    async def slow(*args: Any, **named: Any) -> RangeResult:
        """Read late, and copy the bytes, as from a socket."""
        begun.set()
        await go.wait()
        found = await ranged(*args, **named)
        return replace(found, kvs=[kv._replace(value=bytes(bytearray(kv.value))) for kv in found.kvs])

    world.etcd.range = slow  # type: ignore[method-assign]
    col.unready()
    filling = world.group.create_task(store.fills.fill(col))
    await begun.wait()
    try:
        for number in range(5):
            world.write(f"d/a{number}", LARGE)
        world.write("foreign", LARGE)
        async with asyncio.timeout(20):
            while len(col.arrivals.early) < 6 or dispatcher._decrypting:  # noqa: ASYNC110 - a thread cannot set an event
                await asyncio.sleep(0)
        assert col.values.ahead, "they were opened while they are kept"
        if end == "filled again":
            col.drop_early()
            assert not col.values.ahead
        elif end == "dropped":
            store.drop(THINGS)
            assert not col.values.ahead
    finally:
        go.set()
    await filling
    assert not col.values.ahead
    assert not col.arrivals.early
    if end != "dropped":
        assert len(col.state.entries()) == 5


@pytest.mark.rows("OPS-003")
async def test_encryption_switch_clears_decrypted_values(world: EncryptedWorld) -> None:
    col = world.store.add(THINGS, True)
    await col.wait_ready()
    value = world.theirs.encrypt(f"{PREFIX}d/a", body(text=LARGE))
    await col.values.decrypt_ahead([("d/a", value)])
    assert col.values.ahead
    world.store.switch_encryption(NoEncryption())
    assert not col.values.ahead
