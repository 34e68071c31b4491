"""Calls of our etcd client with both transports.

The etcd3 package is an independent reader and writer.
"""

import asyncio
import random
import uuid
from typing import Any

import pytest

from apiext.etcd import errors
from apiext.etcd.client import Batch, Etcd, WatchHandle, prefix_end
from apiext.etcd.errors import EtcdError
from tests.etcd.conftest import RealEtcd
from tests.etcd.etcd3_client import etcd3_client
from tests.support.polling import until


@pytest.fixture
def prefix() -> bytes:
    """A key prefix that no other test uses."""
    return b"/" + uuid.uuid4().hex.encode() + b"/"


@pytest.fixture
def etcd3(etcd: RealEtcd) -> Any:
    with etcd3_client("127.0.0.1", etcd.port) as independent:
        yield independent


class Listener:
    """Records the events of a watch; ``until`` waits for them."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.ends: list[EtcdError] = []
        self._changed = asyncio.Event()

    def on_batch(self, batch: Batch) -> None:
        self.batches.append(batch)
        self._changed.set()

    def on_end(self, error: EtcdError) -> None:
        self.ends.append(error)
        self._changed.set()

    def watch(self, client: Etcd, prefix: bytes, start: int, prev_kv: bool = False) -> WatchHandle:
        return client.watch(
            prefix, prefix_end(prefix), start, prev_kv=prev_kv, on_batch=self.on_batch, on_end=self.on_end
        )

    @property
    def events(self) -> list[tuple[int, int, bytes]]:
        return [(e.kv.mod_revision, e.kind, e.kv.key) for batch in self.batches for e in batch.events]

    async def until(self, count: int) -> None:
        async with asyncio.timeout(20):
            while len(self.events) < count and not self.ends:
                self._changed.clear()
                await self._changed.wait()


async def test_etcd3_reads_writes_of_our_client(client: Etcd, etcd3: Any, prefix: bytes) -> None:
    created = await client.create(prefix + b"k", b"1")
    value, meta = etcd3.get(prefix + b"k")
    assert (value, meta.mod_revision, meta.create_revision, meta.version) == (
        b"1",
        created.revision,
        created.revision,
        1,
    )
    refused = await client.create(prefix + b"k", b"2")
    assert (refused.ok, refused.current.value if refused.current else None) == (False, b"1")
    updated = await client.update(prefix + b"k", b"2", created.revision)
    assert updated.revision > created.revision
    assert etcd3.get(prefix + b"k")[0] == b"2"
    assert not (await client.delete(prefix + b"k", created.revision)).ok
    deleted = await client.delete(prefix + b"k", updated.revision)
    assert deleted.revision > updated.revision
    assert etcd3.get(prefix + b"k") == (None, None)


async def test_our_client_watches_writes_of_etcd3(client: Etcd, etcd3: Any, prefix: bytes) -> None:
    heard = Listener()
    start = await client.head_revision()
    heard.watch(client, prefix, start + 1, prev_kv=True)
    etcd3.put(prefix + b"a", b"1")
    etcd3.put(prefix + b"a", b"2")
    etcd3.delete(prefix + b"a")
    await heard.until(3)
    first, second, third = (event for batch in heard.batches for event in batch.events)
    assert (first.kind, first.kv.value, first.prev) == (0, b"1", None)
    assert (second.kind, second.kv.value, second.prev and second.prev.value) == (0, b"2", b"1")
    assert (third.kind, third.prev and third.prev.value) == (1, b"2")
    found = await client.get(prefix + b"a", revision=second.kv.mod_revision)
    assert found == second.kv


async def test_changed_guard_fails_a_create(client: Etcd, etcd3: Any, prefix: bytes) -> None:
    etcd3.put(prefix + b"guard", b"")
    revision = etcd3.get(prefix + b"guard")[1].mod_revision
    guards = [(prefix + b"guard", revision)]
    assert (await client.create(prefix + b"k", b"1", guards=guards)).ok
    etcd3.put(prefix + b"guard", b"")
    moved = etcd3.get(prefix + b"guard")[1].mod_revision
    refused = await client.create(prefix + b"l", b"1", guards=guards)
    assert (refused.ok, refused.current, refused.guards) == (False, None, (moved,))


SIZES = [0, 1, 16_300, 16_384, 16_400, 65_400, 65_535, 65_600, 300_000, 1_048_576, 1_500_000]


@pytest.mark.parametrize("size", SIZES)
async def test_values_of_any_size_are_stored_and_read(client: Etcd, etcd3: Any, prefix: bytes, size: int) -> None:
    value = random.Random(size).randbytes(size)
    assert (await client.create(prefix + b"k", value)).ok
    assert etcd3.get(prefix + b"k")[0] == value
    found = await client.get(prefix + b"k")
    assert found is not None
    assert found.value == value


async def test_range_returns_pages_at_a_revision(client: Etcd, prefix: bytes) -> None:
    end = prefix_end(prefix)
    done = await asyncio.gather(*(client.create(prefix + b"%04d" % n, bytes(5000)) for n in range(600)))
    whole = await client.range(prefix, end)
    assert [kv.key for kv in whole.kvs] == [prefix + b"%04d" % n for n in range(600)]
    assert (whole.count, whole.more) == (600, False)
    head = whole.revision
    assert head >= max(result.revision for result in done)
    page = await client.range(prefix + b"0010", end, limit=5, revision=head)
    assert ([kv.key[-4:] for kv in page.kvs], page.more) == ([b"0010", b"0011", b"0012", b"0013", b"0014"], True)
    assert page.count == 590
    bare = await client.range(prefix, end, keys_only=True, limit=1)
    assert (bare.kvs[0].value, bare.kvs[0].mod_revision) == (b"", whole.kvs[0].mod_revision)


async def test_refused_calls_raise_specific_errors(client: Etcd, prefix: bytes) -> None:
    with pytest.raises(errors.TooLarge):
        await client.create(prefix + b"k", bytes(1_700_000))
    head = await client.head_revision()
    with pytest.raises(errors.FutureRevision):
        await client.get(prefix, revision=head + 1000)
    first = (await client.create(prefix + b"k", b"1")).revision
    second = (await client.update(prefix + b"k", b"2", first)).revision
    await client.compact(second)
    with pytest.raises(errors.Compacted):
        await client.get(prefix + b"k", revision=first)
    with pytest.raises(errors.Compacted):
        await client.compact(first)
    heard = Listener()
    heard.watch(client, prefix, first)
    await heard.until(99)
    (error,) = heard.ends
    assert isinstance(error, errors.Compacted)
    assert error.oldest == second


async def test_watch_receives_history_in_fragments(client: Etcd, prefix: bytes) -> None:
    start = await client.head_revision()
    for n in range(6):
        await client.create(prefix + b"%d" % n, random.Random(n).randbytes(1_000_000))
    heard = Listener()
    heard.watch(client, prefix, start + 1)
    await heard.until(6)
    assert [key for _, _, key in heard.events] == [prefix + b"%d" % n for n in range(6)]
    values = [event.kv.value for batch in heard.batches for event in batch.events]
    assert values == [random.Random(n).randbytes(1_000_000) for n in range(6)]


async def test_watch_is_complete_despite_cancelled_calls(client: Etcd, etcd3: Any, prefix: bytes) -> None:
    heard = Listener()
    start = await client.head_revision()
    heard.watch(client, prefix, start + 1)
    rng = random.Random(5)
    done: dict[bytes, tuple[int, bytes]] = {}

    async def write(n: int) -> None:
        value = rng.randbytes(rng.choice([0, 10, 1000, 20_000, 120_000]))
        result = await client.create(prefix + b"%d" % n, value)
        done[prefix + b"%d" % n] = (result.revision, value)

    async def writer(numbers: list[int]) -> None:
        for n in numbers:
            task = group.create_task(write(n))
            if rng.random() < 0.15:
                await asyncio.sleep(0)
                task.cancel()
            await asyncio.wait([task])

    async with asyncio.TaskGroup() as group:
        for lane in range(48):
            group.create_task(writer(list(range(lane, 480, 48))))
    stored = {meta.key: (meta.mod_revision, value) for value, meta in etcd3.get_prefix(prefix)}
    assert len(stored) >= len(done) > 300
    assert {key: stored[key] for key in done} == done
    await heard.until(len(stored))
    assert heard.events == sorted((revision, 0, key) for key, (revision, _) in stored.items())


async def test_progress_is_requested_if_etcd_supports_it(client: Etcd, prefix: bytes) -> None:
    heard = Listener()
    watch = heard.watch(client, prefix, 0)
    await until(lambda: watch.connected)
    assert watch.request_progress() is client.progress_requests_ok
    assert watch.watermark > 0


async def test_create_attaches_a_lease(client: Etcd, etcd3: Any, prefix: bytes) -> None:
    lease = await client.lease_grant(60)
    await client.create(prefix + b"k", b"", lease=lease)
    await client.create(prefix + b"l", b"")
    assert [etcd3.get(prefix + name)[1].lease_id for name in (b"k", b"l")] == [lease, 0]


async def test_maintenance_calls_succeed(client: Etcd, etcd: RealEtcd) -> None:
    status = await client.status()
    assert status.version == etcd.binary.text
    assert status.leader == status.member_id
    assert status.db_size >= status.db_size_in_use > 0
    assert await client.alarms() == []
    await client.defragment()
