"""Core of the embedded store: revisions, transactions, reads, compaction, leases and quota.

The event loop decides the outcome of a transaction with the index, which also has changes that are not on disk yet.
While the back end writes a batch, new transactions form the next batch. The store responds to a transaction when its
batch is on disk. Reads and watches see the state at ``durable``, the last revision on disk. The back end stores each
change of a key as a row; a record is the entry of this change in the index.
"""

import asyncio
import logging
import secrets
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from time import perf_counter
from typing import NamedTuple

from google.protobuf.message import DecodeError

from apiext.embedded import faults, limits, wire
from apiext.embedded.backend import Backend, Batch, Commit, NoRoom, row_of
from apiext.embedded.index import Index, Span
from apiext.embedded.leases import Leases
from apiext.embedded.watches import Hub
from apiext.embedded.wire import Change, Record, Txn
from apiext.etcd import messages
from apiext.etcd.errors import INTERNAL, UNIMPLEMENTED, EtcdError

log = logging.getLogger("apiext.embedded")

VERSION = "3.6.6"  # the version of etcd whose behaviour the store has
SLICE = 0.002  # seconds of work before the store yields to the event loop
RAFT_BYTES = 18  # bytes that etcd adds to a request before it compares the size with its limit
ROW_BYTES = 128  # estimated bytes of a row in addition to key and value
ANSWERS = 2  # number of calls to which the store responds in one iteration of the event loop
WRITTEN = 256  # number of keys of a response that are encoded before the store checks its time slice
DELETED_ROWS = 500  # approximate number of rows that one transaction of a compaction deletes
FIRST_REVISION = 1  # the revision of an empty store, as in etcd

Answer = asyncio.Future[bytes]
Measured = Callable[[Commit, int], None]
"""The store calls this function with the outcome and the number of changes of each batch on disk."""


class RangeQuery(NamedTuple):
    """The parameters of a RangeRequest."""

    span: Span
    limit: int
    revision: int
    keys_only: bool
    count_only: bool


class Store:
    """The store.

    ``dialer`` of connection.py opens connections to it. Call all methods on the event loop.
    """

    def __init__(
        self, backend: Backend, quota: int = limits.QUOTA, measured: Measured = lambda commit, count: None
    ) -> None:
        self.durable = FIRST_REVISION
        self.compacted = -1  # -1 means that there was no compaction yet
        self.quota = quota
        self.index = Index()
        self.backend = backend
        self.headers = wire.Headers(0, 0)
        self.failed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        """A future. Its result is the error of a back end that could not read or write. The server must then end."""
        self.hub = Hub(self)
        self._member = 0
        self._loop = asyncio.get_running_loop()
        self._measured = measured
        self._tip = FIRST_REVISION  # the revision of the last decided change, which may not be on disk yet
        self._leases = Leases(self._expire)
        self._batch = Batch()
        # (future, response) of the calls that end when ``_batch`` is on disk, in order
        self._calls: list[tuple[Answer, bytes]] = []
        self._after: list[Callable[[], None]] = []  # functions to call when ``_batch`` is on disk, or was undone
        # (future, response) of calls whose batch is on disk, but which have no response yet
        self._stored_calls: deque[tuple[Answer, bytes]] = deque()
        self._answering = False  # ``_answer`` is scheduled
        self._scheduled = self._writing = False
        self._writing_bytes = 0  # bytes of the batch that the back end is writing
        self._began = 0.0  # event loop time at which the back end began to write this batch
        # True while, in this order: a compaction deletes rows; the full store frees space; the store refuses puts.
        self._sweeping = self._relieving = self._refused = False
        # (start, end, revision) of the remaining pages of a list → number of their keys
        self._counts: OrderedDict[tuple[bytes, bytes, int], int] = OrderedDict()
        self._handlers: dict[str, Callable[[bytes, Answer], None]] = {
            messages.TXN: self._txn,
            messages.RANGE: self._range,
            messages.COMPACT: self._compact,
            messages.LEASE_GRANT: self._grant,
            messages.STATUS: self._status,
            messages.ALARM: self._alarm,
            messages.DEFRAGMENT: self._defragment,
            messages.AUTHENTICATE: self._authenticate,
        }

    # -- life ----------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Read the stored content; raise StoreFault, or OSError if the disk is full."""
        kept = await asyncio.to_thread(self.backend.load)
        self.headers = wire.Headers(*kept.identity)
        self._member = kept.identity.member
        self.compacted = kept.compacted
        put = self.index.put
        for number, (key, record) in enumerate(kept.changes):
            put(key, record)
            if not number % 1000:
                await asyncio.sleep(0)
        last = kept.changes[-1][1].revision if kept.changes else 0
        self.durable = self._tip = max(FIRST_REVISION, self.compacted, last)
        held: dict[int, list[bytes]] = {}
        for key, record in self.index.now.items():
            if record.lease and record.version:
                held.setdefault(record.lease, []).append(key)
        for lease, ttl in kept.leases:
            self._leases.add(lease, ttl, held.get(lease))
        self.hub.start()
        if self.compacted >= 0:
            self._sweep()  # deletes rows that a crash may have left
        if self.backend.short:
            self._relieve()

    async def close(self) -> None:
        """Write the current batch, and close the back end."""
        self._leases.close()
        self.hub.stop()
        if not self.failed.done():
            kept = self._loop.create_future()
            self._after.append(lambda: kept.set_result(None))
            self._schedule()
            await asyncio.wait((kept, self.failed), return_when=asyncio.FIRST_COMPLETED)
        await asyncio.to_thread(self.backend.close)

    @property
    def stuck(self) -> bool:
        """True if the disk needs more than limits.STUCK seconds for a batch.

        While it is true, reads succeed, but writes wait.
        """
        return self._writing and self._loop.time() - self._began > limits.STUCK

    # -- calls ---------------------------------------------------------------------------------------------------

    def call(self, path: str, message: bytes) -> Answer:
        """Execute a unary call, and return the future of the response."""
        answer: Answer = self._loop.create_future()
        try:
            handler = self._handlers.get(path)
            if handler is None:
                _, service, method = path.split("/")
                raise EtcdError(UNIMPLEMENTED, f"unknown method {method} for service {service}")
            if self.failed.done():
                raise faults.broken(self.failed.result())
            if len(message) > faults.MAX_MESSAGE:
                raise faults.unread(len(message))
            handler(message, answer)
        except EtcdError as error:
            self._loop.call_soon(_fail, answer, error)
        except DecodeError as error:
            self._loop.call_soon(_fail, answer, EtcdError(INTERNAL, f"the request cannot be read: {error}"))
        return answer

    def _answer_later(self, answer: Answer, message: bytes) -> None:
        """Set the response in a later iteration of the event loop.

        So other tasks run between many calls.
        """
        self._loop.call_soon(_settle, answer, message)

    def _txn(self, message: bytes, answer: Answer) -> None:
        txn = wire.read_txn(message)
        if len(message) > limits.MAX_REQUEST - RAFT_BYTES:
            # the keys of guards (all compares but the first) do not count: kube-apiserver sends no guards, and both
            # servers must accept objects of the same size (DIF-155)
            guards = sum(2 * len(key) for key, _ in txn.compares[1:])
            if len(message) - guards > limits.MAX_REQUEST - RAFT_BYTES:
                raise faults.too_large()
        self._decide(txn, answer)

    def _decide(self, txn: Txn, answer: Answer) -> None:
        """Decide the outcome of a transaction with the index, and add its change to the batch."""
        compares, key, value, lease, _ = txn
        if not key:
            raise faults.empty_key()
        if value is not None and self._is_full(len(key) + len(value)):
            raise faults.no_space()
        now = self.index.now
        for name, expected in compares:
            met = now.get(name)
            if (met.revision if met is not None and met.version else 0) != expected:
                self._refuse(txn, answer)
                return
        before = now.get(key)
        there = before is not None and before.version
        if value is None:
            if not there:
                self._calls.append((answer, self.headers.deleted(self._tip, 0)))
                self._schedule()
                return
            self._tip += 1
            record = Record(self._tip, 0, 0, 0)
            done = self.headers.deleted(self._tip, 1)
        else:
            if lease and lease not in self._leases.known:
                raise faults.no_lease()
            self._tip += 1
            if before is not None and there:
                record = Record(self._tip, before.created, before.version + 1, lease)
            else:
                record = Record(self._tip, self._tip, 1, lease)
            done = self.headers.put(self._tip)
        self._change(key, value, record)
        self._calls.append((answer, done))
        self._schedule()

    def _change(self, key: bytes, value: bytes | None, record: Record) -> None:
        before = self.index.put(key, record)
        if record.lease or (before is not None and before.lease):
            self._leases.move(key, before, record)
        batch = self._batch
        batch.changes.append(Change(key, value, record))
        batch.revision = record.revision
        batch.size += ROW_BYTES + len(key) + (len(value) if value else 0)

    def _refuse(self, txn: Txn, answer: Answer) -> None:
        """Respond to a failed compare with the current values of keys, when these are on disk."""
        reads = wire.read_reads(txn.otherwise)
        at = self._tip
        found = [(key, self.index.at(key, at), bare) for key, bare in reads]
        rows = [row_of(record) for _, record, bare in found if record is not None and not bare]

        def look() -> None:
            if at > self.durable:  # the disk was full, and the compared state was undone
                decide_again()
            elif rows:
                self.backend.values(rows, respond)
            else:
                respond({})

        def respond(values: dict[int, bytes] | Exception) -> None:
            if isinstance(values, Exception):
                self._fail_for_good(values)
                _fail(answer, faults.broken(str(values)))
            elif all(row in values for row in rows):
                kvs = [
                    None if record is None else wire.key_value(key, b"" if bare else values[row_of(record)], record)
                    for key, record, bare in found
                ]
                _settle(answer, self.headers.failed(at, kvs))
            else:  # another write and a compaction have deleted the values
                decide_again()

        def decide_again() -> None:
            try:
                self._decide(txn, answer)
            except EtcdError as error:
                _fail(answer, error)

        self._once_stored(look)

    def _once_stored(self, act: Callable[[], None]) -> None:
        """Call a function when all decided changes are on disk or undone.

        The call is in a later iteration of the event loop.
        """
        if self._tip == self.durable:
            self._loop.call_soon(act)
        else:
            self._after.append(act)
            self._schedule()

    # -- writing -------------------------------------------------------------------------------------------------

    def _schedule(self) -> None:
        if not (self._writing or self._scheduled):
            self._scheduled = True
            self._loop.call_soon(self._write)

    def _write(self) -> None:
        """Pass the decided changes to the back end, in one batch."""
        self._scheduled = False
        batch, calls, after = self._batch, self._calls, self._after
        if self._writing or self.failed.done():
            return
        self._batch, self._calls, self._after = Batch(), [], []
        if not batch.changes and batch.plain:
            self._stored(batch, calls, after)
            return
        self._writing = True
        self._writing_bytes, self._began = batch.size, self._loop.time()
        self.backend.write(batch, partial(self._written, batch, calls, after))

    def _written(
        self,
        batch: Batch,
        calls: list[tuple[Answer, bytes]],
        after: list[Callable[[], None]],
        outcome: Commit | Exception,
    ) -> None:
        self._writing, self._writing_bytes = False, 0
        if isinstance(outcome, NoRoom):
            self._undo(batch, [*calls, *self._calls], [*after, *self._after])
            if not (self._calls or self._after or self._batch.changes):
                return  # rows that a compaction still has to delete wait for the next write
        elif isinstance(outcome, Exception):
            self._calls = [*calls, *self._calls]
            self._fail_for_good(outcome)
        else:
            self._measured(outcome, len(batch.changes))
            self._stored(batch, calls, after)
            if outcome.was_full:
                log.error("the disk of the store was full; the reserve was released, and the store refuses puts")
                self._relieve()
        if self._calls or self._after or self._batch.changes or not self._batch.plain:
            self._schedule()

    def _stored(self, batch: Batch, calls: list[tuple[Answer, bytes]], after: list[Callable[[], None]]) -> None:
        if batch.revision:
            self.durable = batch.revision
        self._stored_calls.extend(calls)
        if not self._answering:
            self._answer()
        if batch.changes:
            # The hub gets these changes after the first responses, so that the server puts the changes into its cache
            # before the watch delivers them.
            self.hub.feed(batch.changes)
        for act in after:
            act()

    def _answer(self) -> None:
        """Respond to some calls whose batch is on disk.

        Respond to more calls in the next iteration of the event loop. Each response lets a request run for up to 1 ms.
        With many responses at once, timers would wait too long.
        """
        for _ in range(min(ANSWERS, len(self._stored_calls))):
            _settle(*self._stored_calls.popleft())
        self._answering = bool(self._stored_calls)
        if self._answering:
            self._loop.call_soon(self._answer)

    def _undo(self, batch: Batch, calls: list[tuple[Answer, bytes]], after: list[Callable[[], None]]) -> None:
        """Undo the changes that did not fit on the disk and all later changes.

        Their writers get an error.
        """
        late = self._batch
        for key, _, record in reversed(batch.changes + late.changes):
            self._leases.move(key, record, self.index.undo(key))
        self._tip = self.durable
        for lease, _ in batch.granted + late.granted:
            self._leases.drop(lease)
        again, self._calls, self._after = Batch(), [], []
        again.compacted = max(batch.compacted, late.compacted)
        again.deleted_rows = batch.deleted_rows + late.deleted_rows
        for lease in batch.revoked + late.revoked:
            self._leases.add(
                lease, limits.SHORTEST, [k for k, r in self.index.now.items() if r.version and r.lease == lease]
            )
        self._batch = again
        for answer, _ in calls:
            _fail(answer, faults.no_space())
        for act in after:
            act()
        self._relieve()

    def _fail_for_good(self, error: Exception) -> None:
        """Refuse all further calls.

        After a failed sync, the content of the disk is unknown until the next start.
        """
        if not self.failed.done():
            log.error("the embedded store has failed: %s", error)
            self.failed.set_result(str(error))
        calls, self._calls, self._after = self._calls, [], []
        for answer, _ in calls:
            _fail(answer, faults.broken(str(error)))
        self.hub.end_all(faults.broken(str(error)))

    # -- reading -------------------------------------------------------------------------------------------------

    def _range(self, message: bytes, answer: Answer) -> None:
        query = _read_range(message)
        start, end = query.span
        if not start:
            raise faults.empty_key()
        if query.revision > self.durable:
            raise faults.future()
        at = query.revision if query.revision > 0 else self.durable
        if at < self.compacted:
            raise faults.compacted()
        header = self.headers.at(self.durable)  # the newest revision, from which clients continue
        if end:
            self._run(self._list(query, at, header, message, answer))
            return
        record = self.index.at(start, at)
        if record is None or query.count_only:
            self._answer_later(answer, header + (b"" if record is None else b"\x20\x01"))
        elif query.keys_only:
            self._answer_later(answer, header + _kvs([(start, b"", record)]) + b"\x20\x01")
        else:
            self._with_values([(start, record)], at, message, answer, (header, b"\x20\x01"))

    def _list(self, query: RangeQuery, at: int, header: bytes, message: bytes, answer: Answer) -> Iterator[None]:
        """Respond to a read of a range of keys. Each step of the iterator is a part of the work."""
        (start, end), limit = query.span, max(query.limit, 0)
        known = self._counts.get((start, end, at))
        found: list[tuple[bytes, Record]] = []
        count, place = 0, start
        while True:
            part, following = self.index.part((place, end), at)
            count += len(part)
            if not query.count_only and (not limit or len(found) < limit):
                found += part[: limit - len(found) if limit else None]
            if following is None:
                break
            if known is not None and limit and len(found) == limit:
                count = known
                break
            place = following
            yield
        if at < self.compacted:
            self._overtaken(query, message, answer)
            return
        more = bool(limit) and count > limit and not query.count_only
        if more:
            self._counts[found[-1][0] + b"\0", end, at] = count - len(found)
            if len(self._counts) > limits.COUNTS_KEPT:
                self._counts.popitem(last=False)
        tail = (b"\x18\x01" if more else b"") + (b"\x20" + wire.number(count) if count else b"")
        if query.keys_only or not found:
            self._loop.call_soon(self._run, self._encode_answer(found, None, answer, (header, tail)))
        else:
            self._with_values(found, at, message, answer, (header, tail))

    def _overtaken(self, query: RangeQuery, message: bytes, answer: Answer) -> None:
        """Respond to a read whose revision was compacted meanwhile.

        A read of the newest revision starts again.
        """
        if query.revision > 0:
            _fail(answer, faults.compacted())
        else:
            self._range(message, answer)

    def _with_values(
        self, found: list[tuple[bytes, Record]], at: int, message: bytes, answer: Answer, around: tuple[bytes, bytes]
    ) -> None:
        """Respond with keys and their values.

        ``around`` are the bytes of the response before and after the keys.
        """

        def respond(values: dict[int, bytes] | Exception) -> None:
            if isinstance(values, Exception):
                self._fail_for_good(values)
                _fail(answer, faults.broken(str(values)))
            elif len(values) < len(found) and at < self.compacted:
                self._overtaken(_read_range(message), message, answer)
            elif len(values) < len(found):
                self._fail_for_good(LookupError(f"a value of revision {at} or before is missing"))
                _fail(answer, faults.broken("a value is missing"))
            else:
                self._run(self._encode_answer(found, values, answer, around))

        self.backend.values([row_of(record) for _, record in found], respond)

    def _encode_answer(
        self,
        found: list[tuple[bytes, Record]],
        values: dict[int, bytes] | None,
        answer: Answer,
        around: tuple[bytes, bytes],
    ) -> Iterator[None]:
        """Encode the response of a range, in steps. ``values`` is None if only keys are requested."""
        header, tail = around
        parts = [header]
        for first in range(0, len(found), WRITTEN):
            some = found[first : first + WRITTEN]
            parts.append(
                _kvs([(key, b"" if values is None else values[row_of(record)], record) for key, record in some])
            )
            yield
        parts.append(tail)
        _settle(answer, b"".join(parts))

    def _run(self, steps: Iterator[None]) -> None:
        """Run the steps of an iterator, and yield to the event loop after each SLICE seconds."""
        late = perf_counter() + SLICE
        for _ in steps:
            if perf_counter() > late:
                self._loop.call_soon(self._run, steps)
                return

    # -- compaction ----------------------------------------------------------------------------------------------

    def _compact(self, message: bytes, answer: Answer) -> None:
        revision = messages.CompactionRequest.FromString(message).revision
        if revision <= self.compacted:
            raise faults.compacted()
        if revision > self.durable:
            raise faults.future()
        self._compact_to(revision)
        self._calls.append((answer, self.headers.at(self.durable)))

    def _compact_to(self, revision: int) -> None:
        self.compacted = self._batch.compacted = revision
        self._after.append(self._sweep)
        self._schedule()
        self.hub.compacted()

    def _sweep(self) -> None:
        """Start to delete the records that a compaction makes superfluous.

        Do nothing if such a deletion already runs.
        """
        if not self._sweeping:
            self._sweeping = True
            self._delete_rows(self._deletable(self.compacted), self.compacted)

    def _deletable(self, revision: int) -> Iterator[list[int]]:
        """Drop records from the index, and yield lists of their rows, which the caller must delete.

        A list may be empty, so that the caller yields to the event loop in time.
        """
        rows: list[int] = []
        late = perf_counter() + SLICE
        for key in self.index.touched():
            rows += [row_of(record) for record in self.index.drop_before(key, revision)]
            if len(rows) >= DELETED_ROWS or perf_counter() > late:
                yield rows
                rows, late = [], perf_counter() + SLICE
        if rows:
            yield rows

    def _delete_rows(self, sweep: Iterator[list[int]], revision: int) -> None:
        if self.failed.done():
            return
        rows = next(sweep, None)
        if rows is not None:
            self._batch.deleted_rows += rows
            self._after.append(partial(self._delete_rows, sweep, revision))
            self._schedule()
            return
        self._sweeping = False
        if revision < self.compacted:
            self._sweep()
        else:
            self.backend.shrink(False, self._check_room)

    # -- room ----------------------------------------------------------------------------------------------------

    def _is_full(self, more: int) -> bool:
        coming = self._batch.size + self._writing_bytes + more + ROW_BYTES
        full = self._refused or self.backend.short or self.backend.size.in_use + coming > self.quota
        if full and not self._refused:
            if self.backend.short:
                log.error("the disk of the store is full, so the store accepts deletions only")
            else:
                log.error("the store is full and accepts deletions only: its quota is %d bytes", self.quota)
            self._refused = True
        if full:
            self._relieve()
        return full

    def _relieve(self) -> None:
        """Compact to the last revision and free the space.

        Repeat this every limits.RELIEF seconds while the disk is full.
        """
        if self._relieving or self.failed.done():
            return
        self._relieving = True
        if self.durable > self.compacted:
            self._compact_to(self.durable)
        else:
            self._sweep()
        if not self._batch.plain:
            self._schedule()
        self._loop.call_later(limits.RELIEF, self._relieved)

    def _relieved(self) -> None:
        self._relieving = False
        if self.backend.short:
            self._relieve()

    def _check_room(self) -> None:
        """Accept puts again if there is enough space."""
        if self._refused and not self.backend.short and self.backend.size.in_use < limits.ROOMY * self.quota:
            self._refused = False
            log.warning("the store was full; it was compacted and accepts writes again")

    # -- the rest ------------------------------------------------------------------------------------------------

    def _grant(self, message: bytes, answer: Answer) -> None:
        request = messages.LeaseGrantRequest.FromString(message)
        lease, ttl = request.ID, max(request.TTL, limits.SHORTEST)
        if ttl > limits.LONGEST:
            raise faults.lease_too_long()
        if lease in self._leases.known:
            raise faults.lease_exists()
        if self._is_full(0):
            raise faults.no_space()
        while not lease or lease in self._leases.known:
            lease = secrets.randbits(62) | 1
        self._leases.add(lease, ttl)
        self._batch.granted.append((lease, ttl))
        number = wire.number
        self._calls.append((answer, self.headers.at(self.durable) + b"\x10" + number(lease) + b"\x18" + number(ttl)))
        self._schedule()

    def _expire(self, lease: int, keys: list[bytes]) -> None:
        """Delete the keys of an expired lease in one revision, as etcd does."""
        self._leases.drop(lease)
        self._batch.revoked.append(lease)
        if keys:
            self._tip += 1
            for place, key in enumerate(keys):
                self._change(key, None, Record(self._tip, 0, 0, place))
        self._schedule()

    def _status(self, _message: bytes, answer: Answer) -> None:
        size = self.backend.size
        status = messages.StatusResponse(
            version=VERSION,
            dbSize=max(size.total, 1),
            dbSizeInUse=max(size.in_use, 1),
            leader=self._member,
            raftTerm=wire.TERM,
            errors=[f"memberID:{self._member} alarm:NOSPACE "] if self._refused else [],
        )
        self._answer_later(answer, self.headers.at(self.durable) + status.SerializeToString())

    def _alarm(self, message: bytes, answer: Answer) -> None:
        request = messages.AlarmRequest.FromString(message)
        if request.action == 1:
            raise faults.unimplemented("raising an alarm")
        found = messages.AlarmResponse()
        if self._refused and request.alarm != 2:
            found.alarms.add(memberID=self._member, alarm=1)
        if request.action == 2:
            self._refused = False  # the next put raises the alarm again if the store is still full
        self._answer_later(answer, self.headers.at(self.durable) + found.SerializeToString())

    def _defragment(self, _message: bytes, answer: Answer) -> None:
        self.backend.shrink(True, lambda: _settle(answer, self.headers.at(self.durable)))

    def _authenticate(self, _message: bytes, _answer: Answer) -> None:
        raise faults.no_auth()


@lru_cache(limits.COUNTS_KEPT)
def _read_range(message: bytes) -> RangeQuery:
    """Parse a RangeRequest. The result is cached, since clients repeat requests."""
    found = messages.RangeRequest.FromString(message)
    if found.sort_order:
        raise faults.unimplemented("a sorted range")
    return RangeQuery((found.key, found.range_end), found.limit, found.revision, found.keys_only, found.count_only)


def _kvs(found: list[tuple[bytes, bytes, Record]]) -> bytes:
    parts: list[bytes] = []
    for key, value, record in found:
        kv = wire.key_value(key, value, record)
        parts += (b"\x12", wire.number(len(kv)), kv)
    return b"".join(parts)


def _settle(answer: Answer, message: bytes) -> None:
    if not answer.done():
        answer.set_result(message)


def _fail(answer: Answer, error: EtcdError) -> None:
    if not answer.done():
        answer.set_exception(error)
