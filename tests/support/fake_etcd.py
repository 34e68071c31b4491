"""An etcd in memory with the interface of apiext.etcd.client.Etcd.

It has revisions, guards, compaction, watches and faults.
"""

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from apiext.etcd.errors import (
    UNAVAILABLE,
    Closed,
    Compacted,
    EtcdError,
    FutureRevision,
    OutOfSpace,
    StoreReplaced,
    TooLarge,
    Unavailable,
)
from apiext.etcd.values import DELETE, PUT, Alarm, Batch, KeyValue, RangeResult, Status, WatchEvent, WriteResult

Guards = Sequence[tuple[bytes, int]]
MAX_REQUEST = 1_572_864


@dataclass
class _History:
    """All states of a key, with ascending revisions; the state of a deletion is None."""

    revisions: list[int] = field(default_factory=list)
    states: list[KeyValue | None] = field(default_factory=list)

    def at(self, revision: int) -> KeyValue | None:
        place = bisect_right(self.revisions, revision)
        return self.states[place - 1] if place else None


class FakeWatch:
    """A watch that delivers events in a later iteration of the event loop.

    It delivers nothing while ``hold`` is in effect.
    """

    def __init__(self, etcd: "FakeEtcd", span: tuple[bytes, bytes], start: int, prev_kv: bool) -> None:
        self.etcd = etcd
        self.span = span
        self.watermark = max(start - 1, 0) or etcd.revision
        self.prev_kv = prev_kv
        self.connected = True
        self.ended = False
        self.on_batch: Callable[[Batch], None] = lambda batch: None
        self.on_end: Callable[[EtcdError], None] = lambda error: None
        self.wake()

    def cancel(self) -> None:
        self.ended = True
        self.etcd.watches.discard(self)

    def end(self, error: EtcdError) -> None:
        if not self.ended:
            self.cancel()
            self.on_end(error)

    def request_progress(self) -> bool:
        if self.etcd.progress_requests_ok and not self.etcd.held:
            asyncio.get_running_loop().call_soon(self._progress)
            return True
        return False

    def skip_to(self, revision: int, _key: bytes, _value: bytes | None) -> None:
        self.watermark = max(self.watermark, revision)

    def wake(self) -> None:
        asyncio.get_running_loop().call_soon(self.deliver)

    def deliver(self) -> None:
        if self.ended or self.etcd.held:
            return
        etcd = self.etcd
        if self.watermark + 1 < etcd.compacted:
            self.end(Compacted(oldest=etcd.compacted))
            return
        low, high = self.span
        events = [
            event if self.prev_kv else event._replace(prev=None)
            for event in etcd.log_after(self.watermark)
            if low <= event.kv.key < high
        ]
        for number in range(0, len(events), etcd.batch):
            part = events[number : number + etcd.batch]
            self._say(Batch(part, part[-1].kv.mod_revision, False))

    def _progress(self) -> None:
        self.deliver()
        if not self.ended and not self.etcd.held:
            self._say(Batch([], self.etcd.revision, True))

    def _say(self, batch: Batch) -> None:
        if not self.ended and batch.revision > self.watermark:
            self.on_batch(batch)
            self.watermark = batch.revision


class FakeEtcd:
    """One etcd member that is always reachable, unless a test sets a fault.

    ``held``: watches send no events. ``down``: calls fail. ``batch``: maximum number of events in a batch. ``full``:
    puts are refused until the alarm NOSPACE is disarmed. ``corrupt``: the alarm CORRUPT is raised. ``size``,
    ``in_use``: bytes of the database file, and its used bytes.
    """

    def __init__(self) -> None:
        self.progress_requests_ok = True
        self.connected = True
        self.answering = True
        self.revision = 1
        self.compacted = 0
        self.held = False
        self.down = False
        self.full = self.corrupt = False
        self.size = self.in_use = 1000
        self.batch = 1000
        self.calls: list[str] = []
        self.watches: set[FakeWatch] = set()
        self._keys: dict[bytes, _History] = {}
        self._log: list[WatchEvent] = []

    # -- faults and writes of tests

    def hold(self) -> None:
        """Stop all events of watches until ``release``."""
        self.held = True

    def release(self) -> None:
        """Deliver the events since ``hold``."""
        self.held = False
        self._wake()

    def forget_before(self, revision: int) -> None:
        """Compact at once; held watches then end with a compaction error."""
        self.compacted = revision

    def replace(self, revision: int, values: dict[bytes, bytes]) -> None:
        """Replace the content, as a restore from a backup does.

        The last value is at this revision; watches end.
        """
        self._keys = {}
        self._log = []
        self.revision = revision - len(values)
        self.compacted = 0
        for key, value in values.items():
            self._write(key, value)
        self._log = []
        for watch in list(self.watches):
            watch.end(StoreReplaced(UNAVAILABLE, "the store was replaced"))

    def put(self, key: str, value: bytes) -> int:
        """Write a key as another client; return the revision."""
        return self._write(key.encode(), value)

    def remove(self, key: str) -> int:
        """Delete a key as another client; return the revision."""
        return self._write(key.encode(), None)

    def state(self, prefix: str, revision: int = 0) -> dict[str, tuple[int, bytes]]:
        """Return key → (mod_revision, value) of all keys below a prefix, now or at a revision."""
        found = {key: past.at(revision or self.revision) for key, past in self._keys.items()}
        return {
            key.decode(): (kv.mod_revision, kv.value)
            for key, kv in sorted(found.items())
            if kv is not None and key.startswith(prefix.encode())
        }

    def log_after(self, revision: int) -> list[WatchEvent]:
        """Return all events after a revision."""
        return self._log[bisect_right(self._log, revision, key=lambda event: event.kv.mod_revision) :]

    # -- the interface of Etcd

    async def start(self) -> None:
        pass

    async def close(self) -> None:
        for watch in list(self.watches):
            watch.end(Closed())

    async def head_revision(self) -> int:
        await self._call("head")
        return self.revision

    async def get(self, key: bytes, *, revision: int = 0) -> KeyValue | None:
        await self._call("get")
        self._check(revision)
        past = self._keys.get(key)
        return past.at(revision or self.revision) if past else None

    async def range(
        self,
        start: bytes,
        end: bytes,
        *,
        limit: int = 0,
        revision: int = 0,
        keys_only: bool = False,
    ) -> RangeResult:
        await self._call("range")
        self._check(revision)
        at = revision or self.revision
        keys = sorted(key for key in self._keys if start <= key < end)
        found = [kv for key in keys if (kv := self._keys[key].at(at)) is not None]
        shown = found[: limit or None]
        if keys_only:
            shown = [kv._replace(value=b"") for kv in shown]
        return RangeResult(shown, 0 < limit < len(found), len(found), self.revision)

    async def create(self, key: bytes, value: bytes, *, guards: Guards = (), lease: int = 0) -> WriteResult:
        return await self._guarded(key, value, 0, guards)

    async def update(
        self, key: bytes, value: bytes, expected: int, *, guards: Guards = (), lease: int = 0
    ) -> WriteResult:
        return await self._guarded(key, value, expected, guards)

    async def delete(self, key: bytes, expected: int, *, guards: Guards = ()) -> WriteResult:
        return await self._guarded(key, None, expected, guards)

    async def lease_grant(self, ttl: int) -> int:
        """Grant a lease, which never expires here."""
        await self._call("lease_grant")
        return ttl

    async def compact(self, revision: int) -> None:
        await self._call("compact")
        if revision > self.revision:
            raise FutureRevision(11, "etcdserver: mvcc: required revision is a future revision")
        if revision <= self.compacted:
            raise Compacted(oldest=self.compacted)
        self.compacted = revision

    async def status(self) -> Status:
        await self._call("status")
        return Status("3.5.16", 1, 1, self.size, self.in_use, 1, self.revision, ())

    async def alarms(self) -> list[Alarm]:
        await self._call("alarms")
        return [Alarm(1, "NOSPACE")] * self.full + [Alarm(1, "CORRUPT")] * self.corrupt

    async def disarm(self, alarm: Alarm) -> None:
        await self._call("disarm")
        self.full, self.corrupt = self.full and alarm.kind != "NOSPACE", self.corrupt and alarm.kind != "CORRUPT"

    async def defragment(self) -> None:
        await self._call("defragment")
        self.size = self.in_use

    def watch(
        self,
        start: bytes,
        end: bytes,
        from_revision: int,
        *,
        prev_kv: bool = False,
        on_batch: Callable[[Batch], None],
        on_end: Callable[[EtcdError], None],
    ) -> FakeWatch:
        watch = FakeWatch(self, (start, end), from_revision, prev_kv)
        watch.on_batch, watch.on_end = on_batch, on_end
        self.watches.add(watch)
        return watch

    # -- implementation

    async def _call(self, name: str) -> None:
        self.calls.append(name)
        await asyncio.sleep(0)
        if self.down:
            raise Unavailable(14, "connection refused", sent=False)

    def _check(self, revision: int) -> None:
        if revision > self.revision:
            raise FutureRevision(11, "etcdserver: mvcc: required revision is a future revision")
        if 0 < revision < self.compacted:
            raise Compacted(oldest=self.compacted)

    async def _guarded(self, key: bytes, value: bytes | None, expected: int, guards: Guards) -> WriteResult:
        await self._call("txn")
        if value is not None and len(value) > MAX_REQUEST:
            raise TooLarge(3, "etcdserver: request is too large")
        if value is not None and self.full:
            raise OutOfSpace(8, "etcdserver: mvcc: database space exceeded")
        current = self._now(key)
        found = tuple(kv.mod_revision if (kv := self._now(guard)) else 0 for guard, _ in guards)
        holds = all(have == want for have, (_, want) in zip(found, guards, strict=True))
        if not holds or (current.mod_revision if current else 0) != expected:
            return WriteResult(False, self.revision, current, found)
        return WriteResult(True, self._write(key, value))

    def _now(self, key: bytes) -> KeyValue | None:
        past = self._keys.get(key)
        return past.at(self.revision) if past else None

    def _write(self, key: bytes, value: bytes | None) -> int:
        prev = self._now(key)
        if value is None and prev is None:
            return self.revision
        self.revision += 1
        past = self._keys.setdefault(key, _History())
        past.revisions.append(self.revision)
        if value is None:
            past.states.append(None)
            self._log.append(WatchEvent(DELETE, KeyValue(key, b"", self.revision, 0, 0), prev))
        else:
            created, version = (prev.create_revision, prev.version + 1) if prev else (self.revision, 1)
            kv = KeyValue(key, value, self.revision, created, version)
            past.states.append(kv)
            self._log.append(WatchEvent(PUT, kv, prev))
        self._wake()
        return self.revision

    def _wake(self) -> None:
        for watch in self.watches:
            watch.wake()
