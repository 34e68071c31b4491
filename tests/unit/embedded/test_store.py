"""Guarantees of an embedded store without other tests: order, leases, quota, shutdown."""

import asyncio
from collections.abc import AsyncIterator, Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from apiext.embedded import backend, wire
from apiext.embedded import connection as connections
from apiext.embedded import limits as embedded_limits
from apiext.embedded import store as stores
from apiext.embedded.connection import Connection, dialer
from apiext.embedded.memory import MemoryBackend
from apiext.embedded.store import Store
from apiext.etcd import errors, messages, requests
from apiext.etcd import limits as etcd_limits
from apiext.etcd.client import Batch, Etcd, prefix_end
from apiext.etcd.errors import EtcdError
from tests.support.embedded import KINDS, client_of, file_of, opened
from tests.support.polling import until


@pytest.fixture(params=KINDS)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    async with opened(file_of(request.param, tmp_path)) as made:
        yield made


@pytest.fixture
async def etcd(store: Store) -> AsyncIterator[Etcd]:
    async with client_of(store) as client:
        yield client


class HeldBackend(MemoryBackend):
    """A backend whose writes wait for ``release()``; with ``outcome`` they fail."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[Callable[[], None]] = []
        self.outcome: Exception | None = None

    def write(self, batch: backend.Batch, written: backend.Written) -> None:
        outcome = self.outcome
        if outcome is not None:
            self.waiting.append(lambda: written(outcome))
        else:
            self.waiting.append(lambda: MemoryBackend.write(self, batch, written))

    def release(self) -> None:
        waiting, self.waiting = self.waiting, []
        for write in waiting:
            write()


class Ear:
    """The recorded events of a watch."""

    def __init__(self) -> None:
        self.batches: list[Batch] = []
        self.ends: list[EtcdError] = []

    def watch(self, etcd: Etcd, prefix: bytes, start: int, **how: Any) -> Any:
        return etcd.watch(
            prefix, prefix_end(prefix), start, on_batch=self.batches.append, on_end=self.ends.append, **how
        )

    @property
    def keys(self) -> list[bytes]:
        return [event.kv.key for batch in self.batches for event in batch.events]


async def settle(turns: int = 20) -> None:
    for _ in range(turns):
        await asyncio.sleep(0)


async def test_writes_are_invisible_until_the_backend_stored_them() -> None:
    held = HeldBackend()
    store = Store(held)
    await store.open()
    connection = Connection(store)
    messages_of_watch: list[bytes] = []
    stream = connection.stream(messages.WATCH, messages_of_watch.append, lambda error: None)
    create = messages.WatchRequest()
    create.create_request.key, create.create_request.range_end = b"a", b"b"
    stream.send(create.SerializeToString())
    first = connection.unary(messages.TXN, requests.put(b"a", b"1", 0, (), 0), 1)
    await settle()
    second = connection.unary(messages.TXN, requests.put(b"ab", b"2", 0, (), 0), 1)
    refused = connection.unary(messages.TXN, requests.put(b"a", b"3", 0, (), 0), 1)
    read = messages.RangeResponse.FromString(
        await connection.unary(messages.RANGE, requests.get(b"a", 0, serializable=False), 1)
    )
    assert (read.header.revision, len(read.kvs)) == (1, 0)
    future = connection.unary(messages.RANGE, requests.get(b"a", 2, serializable=False), 1)
    with pytest.raises(EtcdError, match="future revision"):
        await future
    await settle()
    assert not any(answer.done() for answer in (first, second, refused))
    assert len(messages_of_watch) == 1
    held.release()
    await settle()
    assert first.done()
    assert not any(answer.done() for answer in (second, refused))
    assert [len(messages.WatchResponse.FromString(raw).events) for raw in messages_of_watch] == [0, 1]
    held.release()
    assert messages.TxnResponse.FromString(await second).header.revision == 3
    answer = messages.TxnResponse.FromString(await refused)
    assert (answer.succeeded, answer.responses[0].response_range.kvs[0].value) == (False, b"1")


async def test_writes_on_a_hung_disk_are_unknown_and_appear_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(embedded_limits, "HUNG", 0.2)
    monkeypatch.setattr(connections, "SWEEP", 0.02)
    monkeypatch.setattr(embedded_limits, "STUCK", 0.1)
    held = HeldBackend()
    store = Store(held)
    await store.open()
    etcd = Etcd(["unix:///embedded"], transport=dialer(store), budget=0.2)
    etcd.stuck = lambda: store.stuck
    monkeypatch.setattr(etcd_limits, "TRY", 0.2)
    await etcd.start()
    outcomes = await asyncio.gather(etcd.create(b"a", b"1"), etcd.create(b"a", b"2"), return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [errors.UnknownOutcome, errors.UnknownOutcome]
    assert (await etcd.get(b"a"), await etcd.head_revision()) == (None, 1), "reads are answered"
    assert (store.stuck, etcd.answering) == (True, False)
    async with asyncio.TaskGroup() as group:
        late = group.create_task(etcd.create(b"b", b"3"))
        await settle()
        for _ in range(2):
            held.release()
            await settle()
    assert late.result().revision == 3
    found = await etcd.get(b"a")
    assert found is not None
    assert found.value == b"1"
    assert (store.stuck, etcd.answering) == (False, True)
    await etcd.close()


async def test_waiting_writes_become_one_batch(tmp_path: Path) -> None:
    sizes: list[int] = []
    async with opened(tmp_path / "store.db") as store:
        store._measured = lambda commit, count: sizes.append(count)
        async with client_of(store) as etcd:
            results = await asyncio.gather(*(etcd.create(b"k%03d" % number, b"v") for number in range(100)))
            assert sorted(result.revision for result in results) == list(range(2, 102))
            assert (await etcd.range(b"k", b"l")).count == 100
    assert sum(sizes) == 100
    assert len(sizes) <= 3


async def test_the_calls_of_one_batch_are_answered_in_several_iterations() -> None:
    held = HeldBackend()
    store = Store(held)
    await store.open()
    connection = Connection(store)
    first = connection.unary(messages.TXN, requests.put(b"first", b"1", 0, (), 0), 1)
    await settle()
    calls = [connection.unary(messages.TXN, requests.put(b"k%d" % n, b"1", 0, (), 0), 1) for n in range(9)]
    held.release()
    await settle()
    assert first.done()
    calls[2].cancel()
    later = connection.unary(messages.TXN, requests.put(b"later", b"1", 0, (), 0), 1)
    held.release()
    answered = []
    while not all(call.done() for call in calls):
        answered.append(sum(call.done() for call in calls if call is not calls[2]))
        await asyncio.sleep(0)
    answered.append(8)
    steps = [after - before for before, after in pairwise(answered)]
    assert max(steps) <= stores.ANSWERS < 9
    revisions = [
        messages.TxnResponse.FromString(call.result()).header.revision for call in calls if not call.cancelled()
    ]
    assert revisions == [3, 4, *range(6, 12)], "in order"
    await settle()
    held.release()
    assert messages.TxnResponse.FromString(await later).header.revision == 12


async def test_full_disk_rolls_back_pending_transactions() -> None:
    held = HeldBackend()
    store = Store(held)
    await store.open()
    connection = Connection(store)

    def put(key: bytes, value: bytes, expected: int) -> "asyncio.Future[bytes]":
        return connection.unary(messages.TXN, requests.put(key, value, expected, (), 0), 1)

    kept = put(b"a", b"1", 0)
    await settle()
    held.release()
    revision = messages.TxnResponse.FromString(await kept).header.revision
    held.outcome = backend.NoRoom()
    failing = [put(b"a", b"2", revision), put(b"new", b"2", 0)]
    await settle()
    late = [put(b"a", b"3", revision + 1), put(b"new", b"4", 7)]
    await settle()
    held.release()
    held.outcome = None
    for answer in (*failing, late[0]):
        with pytest.raises(EtcdError, match="database space exceeded"):
            await answer
    await settle()
    held.release()
    refused = messages.TxnResponse.FromString(await late[1])  # its guard key has changed, so it is checked again
    assert (refused.succeeded, len(refused.responses[0].response_range.kvs)) == (False, 0)
    again = put(b"a", b"5", revision)
    await settle()
    held.release()
    assert messages.TxnResponse.FromString(await again).header.revision == revision + 1


async def test_backend_failure_fails_all_calls_and_watches() -> None:
    held = HeldBackend()
    store = Store(held)
    await store.open()
    connection = Connection(store)
    ends: list[EtcdError] = []
    connection.stream(messages.WATCH, lambda raw: None, ends.append)
    held.outcome = OSError("the disk is gone")
    first = connection.unary(messages.TXN, requests.put(b"a", b"1", 0, (), 0), 1)
    await settle()
    second = connection.unary(messages.TXN, requests.put(b"b", b"1", 0, (), 0), 1)
    held.release()
    assert await store.failed == "the disk is gone"
    third = connection.unary(messages.STATUS, b"", 1)
    for answer in (first, second, third):
        with pytest.raises(EtcdError, match="has failed: the disk is gone") as failed:
            await answer
        assert (failed.value.code, failed.value.sent) == (errors.UNAVAILABLE, True)  # a write may have happened
    assert len(ends) == 1


async def test_expired_lease_deletes_its_keys_in_one_revision(etcd: Etcd, store: Store) -> None:
    lease = await etcd.lease_grant(1)
    for key in (b"b", b"a", b"c"):
        await etcd.create(key, b"x", lease=lease)
    kept = await etcd.get(b"c")
    assert kept is not None
    await etcd.update(b"c", b"y", kept.mod_revision)  # without the lease
    ear = Ear()
    head = await etcd.head_revision()
    ear.watch(etcd, b"", head + 1)
    await until(lambda: ear.batches)
    (batch,) = [batch for batch in ear.batches if batch.events]
    assert ear.keys == [b"a", b"b"]
    assert {event.kv.mod_revision for event in batch.events} == {head + 1}
    assert [kv.key for kv in (await etcd.range(b"a", b"z")).kvs] == [b"c"]
    assert [kv.key for kv in (await etcd.range(b"a", b"z", revision=head)).kvs] == [b"a", b"b", b"c"]
    with pytest.raises(EtcdError, match="requested lease not found"):
        await etcd.create(b"d", b"x", lease=lease)


async def test_restart_renews_the_full_ttl_of_leases(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    async with opened(path) as store, client_of(store) as etcd:
        lease = await etcd.lease_grant(1)
        await etcd.create(b"a", b"x", lease=lease)
    restarted = asyncio.get_running_loop().time()
    async with opened(path) as store, client_of(store) as etcd:
        assert await etcd.get(b"a") is not None
        [(due, _)] = store._leases._due
        assert due >= restarted + 1
        await until(lambda: store.durable == 3)
        assert await etcd.get(b"a") is None
    async with opened(path) as store, client_of(store) as etcd:
        assert (await etcd.head_revision(), await etcd.get(b"a")) == (3, None)
        with pytest.raises(EtcdError, match="requested lease not found"):
            await etcd.create(b"b", b"x", lease=lease)


@pytest.mark.parametrize("previous", [False, True])
async def test_progress_comes_after_all_earlier_events(etcd: Etcd, previous: bool) -> None:
    await asyncio.gather(*(etcd.create(b"k%03d" % number, b"v") for number in range(600)))
    head = await etcd.head_revision()
    ear = Ear()
    watch = ear.watch(etcd, b"k", 2, prev_kv=previous)
    await until(lambda: watch.connected)
    assert watch.request_progress()
    await until(lambda: ear.batches and ear.batches[-1].revision == head)
    assert len(ear.keys) == 600


async def test_progress_includes_revisions_of_unwatched_keys(etcd: Etcd) -> None:
    head = await etcd.head_revision()
    ear = Ear()
    watch = ear.watch(etcd, b"elsewhere", 0)
    await until(lambda: watch.connected)
    await etcd.create(b"k", b"v")
    assert watch.request_progress()
    await until(lambda: ear.batches)
    assert (ear.batches[-1].progress, ear.batches[-1].revision) == (True, head + 1)


async def test_watch_from_a_future_revision_waits_for_it(etcd: Etcd) -> None:
    ear = Ear()
    watch = ear.watch(etcd, b"", await etcd.head_revision() + 3)
    await until(lambda: watch.connected)
    for key in (b"a", b"b", b"c"):
        await etcd.create(key, b"")
    await until(lambda: ear.keys)
    assert (ear.keys, ear.ends) == ([b"c"], [])


async def test_watches_from_different_revisions_get_every_event(etcd: Etcd) -> None:
    ears = [Ear() for _ in range(4)]
    for place, ear in enumerate(ears):
        ear.watch(etcd, b"k", 2 + 100 * place, prev_kv=place % 2 == 1)
        await asyncio.gather(
            *(etcd.create(b"k%03d" % number, b"v") for number in range(100 * place, 100 * place + 100))
        )
    await until(lambda: all(ear.batches and ear.batches[-1].revision == 401 for ear in ears))
    for place, ear in enumerate(ears):
        revisions = [event.kv.mod_revision for batch in ear.batches for event in batch.events]
        assert revisions == list(range(2 + 100 * place, 402))


async def test_compaction_and_defragment_shrink_the_file(tmp_path: Path) -> None:
    async with opened(tmp_path / "store.db") as store, client_of(store) as etcd:
        revision = 0
        for _ in range(100):
            revision = (await etcd.update(b"k", bytes(60_000), revision)).revision
        full = (await etcd.status()).db_size
        assert full > 5_000_000
        await etcd.compact(revision)
        await until(lambda: store.backend.size.in_use < 1_000_000)
        await etcd.defragment()
        status = await etcd.status()
        assert status.db_size < 1_000_000
        found = await etcd.get(b"k")
        assert found is not None
        assert found.mod_revision == revision
        assert (tmp_path / "store.db").stat().st_size < 1_000_000


@pytest.mark.parametrize("kind", KINDS)
async def test_deletions_over_the_quota_clear_the_alarm(kind: str, tmp_path: Path) -> None:
    async with opened(file_of(kind, tmp_path), quota=2_000_000) as store, client_of(store) as etcd:
        done = await asyncio.gather(
            *(etcd.create(b"k%d" % number, bytes(100_000)) for number in range(30)), return_exceptions=True
        )
        refused = [one for one in done if isinstance(one, BaseException)]
        assert {type(one) for one in refused} == {errors.OutOfSpace}
        made = [one.revision for one in done if not isinstance(one, BaseException)]
        assert 10 < len(made) < 20
        assert [alarm.kind for alarm in await etcd.alarms()] == ["NOSPACE"]
        with pytest.raises(errors.OutOfSpace):
            await etcd.create(b"k", bytes(100_000))
        for number, revision in enumerate(made[:5]):
            assert (await etcd.delete(b"k%d" % number, revision)).ok
        await etcd.compact(await etcd.head_revision())
        await until(lambda: store.backend.size.in_use < 1_500_000 and not store._refused)
        assert (await etcd.create(b"k", bytes(100_000))).ok
        assert await etcd.alarms() == []


LONG_LEASE = messages.LeaseGrantRequest(TTL=9_000_000_001).SerializeToString()
REFUSED = [
    (messages.TXN, requests.put(b"", b"", 0, (), 0), errors.INVALID_ARGUMENT, "etcdserver: key is not provided"),
    (messages.RANGE, b"", errors.INVALID_ARGUMENT, "etcdserver: key is not provided"),
    (messages.TXN, requests.put(b"a", bytes(1_573_000), 0, (), 0), errors.INVALID_ARGUMENT, "request is too large"),
    (messages.TXN, bytes(2_100_000), errors.RESOURCE_EXHAUSTED, "larger than max (2100000 vs. 2097152)"),
    (messages.AUTHENTICATE, b"", errors.FAILED_PRECONDITION, "authentication is not enabled"),
    ("/etcdserverpb.KV/Put", b"", errors.UNIMPLEMENTED, "unknown method Put for service etcdserverpb.KV"),
    (messages.TXN, b"", errors.UNIMPLEMENTED, "a transaction without a write"),
    (messages.TXN, b"\x0a\x02\x10\x01", errors.UNIMPLEMENTED, "this compare"),
    (messages.TXN, b"\x12\xff", errors.INTERNAL, "the request is not a TxnRequest"),
    (messages.RANGE, b"\x0a\xff", errors.INTERNAL, "cannot be read"),
    (messages.LEASE_GRANT, LONG_LEASE, errors.OUT_OF_RANGE, "etcdserver: too large lease TTL"),
]


@pytest.mark.parametrize(("path", "message", "code", "text"), REFUSED)
async def test_invalid_requests_get_etcd_errors(store: Store, path: str, message: bytes, code: int, text: str) -> None:
    with pytest.raises(EtcdError) as refused:
        await Connection(store).unary(path, message, 1)
    assert (refused.value.code, text in refused.value.message) == (code, True)


async def test_guards_do_not_make_a_request_too_large(store: Store) -> None:
    size = embedded_limits.MAX_REQUEST - 120
    guards = ((b"g" * 100, 0),)
    answer = await Connection(store).unary(messages.TXN, requests.put(b"a", bytes(size), 0, guards, 0), 1)
    assert messages.TxnResponse.FromString(answer).succeeded


async def test_store_continues_after_a_connection_is_closed(store: Store) -> None:
    connection = Connection(store)
    ends: list[EtcdError] = []
    connection.stream(messages.WATCH, lambda raw: None, ends.append)
    writing = connection.unary(messages.TXN, requests.put(b"a", b"1", 0, (), 0), 1)
    connection.drain()
    await connection.closed
    assert len(ends) == 1
    assert messages.TxnResponse.FromString(await writing).succeeded
    with pytest.raises(EtcdError) as closed:
        await connection.unary(messages.STATUS, b"", 1)
    assert closed.value.sent is False
    assert messages.StatusResponse.FromString(await Connection(store).unary(messages.STATUS, b"", 1)).version


async def test_restart_keeps_cluster_id_and_revision(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    statuses = []
    for _ in range(2):
        async with opened(path) as store:
            etcd = Etcd(["unix:///x"], transport=dialer(store))
            await etcd.start()
            await etcd.create(b"k%d" % len(statuses), b"v")
            statuses.append(await etcd.status())
            assert etcd.progress_requests_ok
            await etcd.close()
    assert statuses[0].cluster_id == statuses[1].cluster_id
    assert [status.revision for status in statuses] == [2, 3]


async def test_slow_range_reports_the_revision_of_its_content(monkeypatch: pytest.MonkeyPatch) -> None:
    """A write during a read has a later revision than the read.

    Caches continue from the revision of the read.
    """
    monkeypatch.setattr(stores, "SLICE", 0.0)
    async with opened() as store, client_of(store) as etcd:
        for number in range(30_000):
            store.index.put(b"/r/%05d" % number, wire.Record(1, 1, 1, 0))
        writes = 0
        async with asyncio.TaskGroup() as group:
            reading = group.create_task(etcd.range(b"/r/", b"/r0", keys_only=True))
            await asyncio.sleep(0)
            while not reading.done():
                await etcd.create(b"/r/new-%d" % writes, b"")
                writes += 1
        shown = reading.result()
    assert writes > 3
    new = [kv for kv in shown.kvs if kv.key.startswith(b"/r/new-")]
    assert sorted(kv.mod_revision for kv in new) == [*range(2, shown.revision + 1)]


@pytest.mark.parametrize(
    "raw", [b"\x12\x00", b"\x12\x04\x12\x00\x12\x00", b"\x12\x02\x08\x01", b"\x12\x7f", b"\x0a\xff"]
)
def test_malformed_transaction_is_an_error_of_etcd(raw: bytes) -> None:
    with pytest.raises(EtcdError):
        wire.read_txn(raw)
