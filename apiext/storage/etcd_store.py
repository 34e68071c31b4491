"""Reads and writes of objects in etcd.

An EtcdStore translates keys and guards to those of etcd, and errors of etcd to StoreErrors. A guard is another key and
its expected revision. The guard holds if the key has this revision when the write commits.
"""

import asyncio
from functools import lru_cache
from time import perf_counter

from apiext import limits as server_limits
from apiext.etcd import errors
from apiext.etcd import limits as etcd_limits
from apiext.etcd.client import Etcd, prefix_end
from apiext.etcd.values import KeyValue, RangeResult, WriteResult
from apiext.meta.names import GroupResource
from apiext.storage import limits, metrics
from apiext.storage.collection import Collection
from apiext.storage.free_memory import FreeMemory
from apiext.storage.keys import split_relative
from apiext.storage.leases import Leases
from apiext.storage.snapshot import Snapshot
from apiext.storage.store import (
    Compacted,
    Corrupt,
    Entry,
    FutureRevision,
    Guard,
    GuardChanged,
    KeyExists,
    OutOfSpace,
    Overloaded,
    RevisionChanged,
    StoreError,
    TooLarge,
    Unavailable,
    UnknownOutcome,
)
from apiext.storage.values import Broken
from apiext.telemetry import HistogramFamily

_NO_LEASE = "requested lease not found"  # the error text of etcd
_OVERHEAD = 430  # estimated bytes of a cached object in addition to its value
_NO_MEMORY = "the server has too little memory left"

_KINDS: tuple[tuple[type[errors.EtcdError], type[StoreError]], ...] = (
    (errors.TooLarge, TooLarge),
    (errors.OutOfSpace, OutOfSpace),
    (errors.Corrupt, Corrupt),
    (errors.Overloaded, Overloaded),
    (errors.UnknownOutcome, UnknownOutcome),
)


def store_error(error: errors.EtcdError, requested: int = 0, current: int = 0) -> StoreError:
    """Return the StoreError for an error of etcd; Unavailable if no other StoreError fits."""
    if isinstance(error, errors.Compacted):
        return Compacted(requested, error.oldest)
    if isinstance(error, errors.FutureRevision):
        return FutureRevision(requested, current)
    for of, kind in _KINDS:
        if isinstance(error, of):
            return kind(error.message)
    return Unavailable(str(error))


class StoredState:
    """The result of ``read``: entries at one revision in key order, and unreadable values.

    ``broken`` is key, relative to the collection → unreadable value. ``remaining`` is the number of keys that a limit
    has left unread. ``next`` is the first key of the next ``read``, relative to its prefix, "" if no key remains.
    """

    __slots__ = ("broken", "entries", "next", "remaining", "revision")

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.broken: dict[str, Broken] = {}
        self.revision = 0
        self.remaining = 0
        self.next = ""


class EtcdStore:
    """Objects read from and written to etcd, without a cache."""

    def __init__(self, etcd: Etcd, memory: FreeMemory | None = None, seconds: HistogramFamily | None = None) -> None:
        """``memory`` reports the free memory, by default of this process.

        ``seconds`` is the histogram of the durations of etcd calls.
        """
        self.etcd = etcd
        self._memory = memory or FreeMemory()
        self._leases = Leases(etcd)
        self._seconds = seconds

    def record_duration(self, operation: str, resource: GroupResource, began: float) -> None:
        """Record the duration of a call since ``began`` (perf_counter)."""
        if self._seconds is not None:
            self._seconds.observe(perf_counter() - began, resource.group, operation, resource.resource)

    async def put(
        self, key: str, raw: bytes, expected: int, guard: Guard | None, ttl: int = 0, also: Guard | None = None
    ) -> WriteResult:
        """Write a value if the key has the expected revision and both guards hold.

        If ``expected`` is 0, the key must not exist. If ``ttl`` is not 0, the key expires after at least so many
        seconds. Raises StoreErrors, such as Overloaded if a new or large value does not fit into memory.
        """
        if (not expected or len(raw) > server_limits.WORK_INLINE) and not self._memory.fits(len(raw)):
            raise Overloaded(_NO_MEMORY)
        guards = _guards(guard, also)
        try:
            if not ttl:
                return await self.etcd.update(key.encode(), raw, expected, guards=guards)
            lease = await self._leases.lease(ttl)
            try:
                return await self.etcd.update(key.encode(), raw, expected, guards=guards, lease=lease)
            except errors.EtcdError as error:
                if _NO_LEASE not in error.message or isinstance(error, errors.UnknownOutcome):
                    raise
            self._leases.remove(lease)  # another client has revoked the lease
            lease = await self._leases.lease(ttl)
            return await self.etcd.update(key.encode(), raw, expected, guards=guards, lease=lease)
        except errors.EtcdError as error:
            raise store_error(error) from error

    async def delete(self, key: str, expected: int, guard: Guard | None) -> WriteResult:
        """Delete a key if it has the expected revision and the guard holds."""
        try:
            return await self.etcd.delete(key.encode(), expected, guards=_guards(guard))
        except errors.EtcdError as error:
            raise store_error(error) from error

    async def get(self, key: str, revision: int = 0) -> KeyValue | None:
        """Return a key with its value at a revision (0: now); None if the key does not exist.

        Raises StoreErrors, such as Compacted, FutureRevision, Unavailable.
        """
        try:
            return await self.etcd.get(key.encode(), revision=revision)
        except errors.EtcdError as error:
            raise store_error(error, revision) from error

    async def head(self) -> int:
        """Return a revision that is at least etcd's newest revision at the time of this call."""
        try:
            return await self.etcd.head_revision()
        except errors.EtcdError as error:
            raise store_error(error) from error

    async def read(
        self, col: Collection, prefix: str, revision: int, *, start: str = "", limit: int = 0
    ) -> StoredState:
        """Read the keys below the prefix of a collection or namespace, in pages at one revision.

        ``revision`` 0 means now. ``start`` is the first key, relative to the prefix; ``limit`` 0 reads all keys. Raises
        StoreErrors, such as Compacted, FutureRevision, and Overloaded if the remaining pages do not fit into memory.
        """
        state, began = StoredState(), perf_counter()
        state.revision = revision
        low, end = (prefix + start).encode(), prefix_end(prefix.encode())
        size = min(limit or limits.ETCD_FIRST_PAGE, limits.ETCD_PAGE)
        while True:
            page = await self._page(low, end, size, state.revision)
            state.revision = state.revision or page.revision
            await _add_page(col, page, state)
            read = len(page.kvs)
            left = limit - len(state.entries) - len(state.broken) if limit else limits.ETCD_PAGE
            if not page.more or left <= 0:
                break
            low = page.kvs[-1].key + b"\0"
            average = sum(len(kv.value) for kv in page.kvs) // read + 1
            remaining = page.count - read if not limit else min(left, page.count - read)
            if not self._memory.fits(remaining * (average + _OVERHEAD)):
                raise Overloaded(f"{_NO_MEMORY} for {remaining:,} objects of {average:,} bytes")
            size = max(1, min(limits.ETCD_PAGE, left, 4 * size, limits.PART_BYTES // average))
        if page.more:
            state.remaining = page.count - read
            state.next = page.kvs[-1].key.decode()[len(prefix) :] + "\0"
        metrics.listed(col.resource, began, len(state.entries), len(state.broken))
        return state

    async def read_collection(self, col: Collection, revision: int) -> tuple[Snapshot, dict[str, Broken], int]:
        """Read a collection at a revision (0: now).

        Return its state, its unreadable values, and the revision.
        """
        found = await self.read(col, col.prefix, revision)
        return await Snapshot.from_entries(found.entries), found.broken, found.revision

    async def _page(self, low: bytes, end: bytes, size: int, revision: int) -> RangeResult:
        try:
            return await self.etcd.range(low, end, limit=size, revision=revision)
        except errors.EtcdError as error:
            raise store_error(error, revision) from error


@lru_cache(etcd_limits.GUARDS_KEPT)
def _guards(*held: Guard | None) -> tuple[tuple[bytes, int], ...]:
    """Encode guards for etcd. Cached, since most writes have the guards of an earlier write."""
    return tuple((guard.key.encode(), guard.revision) for guard in held if guard is not None)


async def _add_page(col: Collection, page: RangeResult, state: StoredState) -> None:
    if col.values.encryption is not None:
        cut = len(col.prefix)
        await col.values.prepare([(kv.key[cut:].decode("utf-8", "replace"), kv.value) for kv in page.kvs])
    try:
        await _decode_page(col, page, state)
    finally:
        # ``prepare`` puts decrypted values into ``ahead``, and decoding takes them out. Values stay in ``ahead`` if the
        # request is cancelled, or if a key is not the key of an object.
        if col.values.ahead:
            for kv in page.kvs:
                col.values.drop_ahead(kv.value)


async def _decode_page(col: Collection, page: RangeResult, state: StoredState) -> None:
    cut, checked = len(col.prefix), 0
    for kv in page.kvs:
        key = kv.key[cut:].decode("utf-8", "replace")
        if not split_relative(key, col.namespaced):
            continue
        try:
            state.entries.append(col.entry_of(key, kv.mod_revision, kv.value))
        except ValueError as error:
            state.broken[key] = col.values.broken(kv.mod_revision, kv.value, error)
        checked += len(kv.value)
        if checked > limits.CHECKED_BYTES:
            checked = 0
            await asyncio.sleep(0)


async def refusal(col: Collection, key: str, result: WriteResult, expected: int, *guards: Guard | None) -> StoreError:
    """Return the error of a write that etcd refused.

    The error is GuardChanged if a guard does not hold, else KeyExists or RevisionChanged with the current object. If
    this object is unreadable, the error of an update or delete is Malformed.
    """
    for guard, revision in zip(filter(None, guards), result.guards, strict=False):
        if revision != guard.revision:
            return GuardChanged(guard.key)
    if result.current is None:
        return RevisionChanged(None)
    kv = result.current
    try:
        current = await col.entry_prepared(key, kv.mod_revision, kv.value)
    except ValueError as error:
        if expected:  # the current value cannot be read
            return col.state.fault(key, col.values.broken(kv.mod_revision, kv.value, error))
        namespace, _, name = key.rpartition("/")
        current = Entry(namespace, name, kv.mod_revision, b"")
    return RevisionChanged(current) if expected else KeyExists(current)


def key_outcome(key: str, result: WriteResult) -> int:
    """Return the revision of a write of a key outside of collections.

    Raise RevisionChanged if etcd refused the write.
    """
    if result.ok:
        return result.revision
    kv = result.current
    raise RevisionChanged(Entry("", key, kv.mod_revision, kv.value) if kv else None)
