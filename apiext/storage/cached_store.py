"""The store: writes go to etcd, reads come from collections that one watch on the whole prefix keeps up to date."""

import asyncio
import logging
from collections.abc import Coroutine
from time import perf_counter
from typing import Any

from apiext.etcd.client import Etcd
from apiext.meta.names import GroupResource
from apiext.storage import collection as collection_module
from apiext.storage.backfill import Backfills
from apiext.storage.collection import Collection, Decoder
from apiext.storage.encryption import Encryptions, NoEncryption
from apiext.storage.etcd_store import EtcdStore, key_outcome, refusal
from apiext.storage.fanout import Watcher
from apiext.storage.fills import Fills
from apiext.storage.inlet import Inlet
from apiext.storage.keys import Keys, bounds, relative
from apiext.storage.progress import Progress
from apiext.storage.progress_requests import ProgressRequests
from apiext.storage.pump import Pump
from apiext.storage.root_watch import RootWatch
from apiext.storage.snapshot import Slice
from apiext.storage.store import (
    Entry,
    FutureRevision,
    Guard,
    Passing,
    StoreError,
    Unavailable,
)
from apiext.storage.tasks import Tasks
from apiext.storage.waiting import Waiting
from apiext.storage.watching import Sink, WatchGroup
from apiext.telemetry import HistogramFamily

log = logging.getLogger(__name__)


class CachedStore:
    """Objects of many resources below one prefix of one etcd.

    A read of a ready collection returns the state at ``revision``. Everything runs on one loop; a read and its
    revision belong together as long as nothing is awaited in between.
    """

    def __init__(
        self, etcd: Etcd, keys: Keys, seconds: HistogramFamily | None = None, encryptions: Encryptions | None = None
    ) -> None:
        """``seconds`` measures calls of etcd, by operation and resource; ``encryptions`` encrypt stored values."""
        self.etcd = etcd
        self.keys = keys
        self.behind: set[Waiting] = set()
        """The buffers, of all collections, with changes that wait for a data key."""
        self._encryptions = encryptions or NoEncryption()
        self._store = EtcdStore(etcd, seconds=seconds)
        self._collections: dict[str, Collection] = {}
        self._pump = Pump()
        self._tasks = Tasks()
        self._progress = Progress(lambda revision, times: requests.nudge(revision, times))  # noqa: PLW0108 - made below
        self._inlet = Inlet(keys.root, self._collections, self._progress, self.spawn)
        self._watch = RootWatch(etcd, keys.root, self._inlet, lambda: self.spawn(self.fills.refill()))
        self.fills = Fills(self._store, self._collections, self._progress, self._inlet, self._watch)
        requests = ProgressRequests(self._store, keys.progress, self._progress, self._watch, self.spawn)
        self._backfills = Backfills(etcd, keys.root, requests.touch)

    # -- life

    async def start(self, group: asyncio.TaskGroup) -> None:
        """Open the root watch and begin to fill the collections added so far; raises Unavailable."""
        self._tasks.start(group)
        head = await self._store.head()
        self._progress.restart(head)
        self._watch.open(head)
        for col in self._collections.values():
            self.spawn(self.fills.fill(col))
        self._tasks.repeat(collection_module.BOOKMARK_EVERY, self._tick)

    async def stop(self) -> None:
        """End watches and tasks; the etcd client stays open."""
        self._watch.close()
        for col in list(self._collections.values()):
            col.unload()
        self._collections.clear()
        await self._tasks.stop()
        self._progress.close()

    @property
    def revision(self) -> int:
        """The revision that all ready collections are at."""
        return self._progress.revision

    @property
    def connected(self) -> bool:
        """True while the root watch is open and etcd answers."""
        return self._watch.connected

    # -- collections

    def add(self, resource: GroupResource, namespaced: bool, decoder: Decoder | None = None) -> Collection:
        """Return the collection of a resource, made and filled in the background if it is new."""
        path = self.keys.path(resource)
        col = self._collections.get(path)
        if col is not None and col.namespaced is namespaced:
            return col
        if col is not None:
            self.drop(resource)
        prefix = self.keys.collection(resource)
        col = Collection(resource, namespaced, prefix, decoder, self._progress, self._pump)
        col.set_encryption(self._encryptions.of(resource), self, self._progress)
        self._inlet.decrypts |= col.values.encryption is not None
        self._collections[path] = col
        if self._tasks.started:
            self.spawn(self.fills.fill(col))
        return col

    def collection(self, resource: GroupResource) -> Collection | None:
        """Return the collection of a resource that was added."""
        return self._collections.get(self.keys.path(resource))

    def drop(self, resource: GroupResource) -> None:
        """End the resource's watches and forget its objects."""
        col = self._collections.pop(self.keys.path(resource), None)
        if col is not None:
            col.unload()

    def switch_encryption(self, encryptions: Encryptions) -> None:
        """Use a new encryption configuration; fill each collection again of which it can read other values (RV-019)."""
        self._encryptions = encryptions
        for col in self._collections.values():
            encryption = encryptions.of(col.resource)
            changed = col.switch_encryption(encryption, self, self._progress)
            self._inlet.decrypts |= col.values.encryption is not None
            if changed:
                col.unready()
                self.spawn(self.fills.fill(col))

    # -- reading

    async def fresh(self, reading: Collection | None = None) -> int:
        """Wait until the cache has all writes before this call; return its revision then.

        ``reading`` is the collection that this is about, None: all. Raises Unavailable when etcd does not answer, or
        the cache does not follow within limits.FRESH_WAIT.
        """
        while True:
            epoch = await self._watch.whole()
            head = await self._store.head()
            if epoch != self._watch.epoch:
                continue
            if self._progress.revision < head and not await self._progress.reach(head):
                raise Unavailable(f"the cache is at revision {self.revision} and the store at {head}")
            if epoch == self._watch.epoch:
                if self.behind or (reading is not None and not reading.state.ready):
                    await self._caught_up(reading)
                return self._progress.revision

    async def _caught_up(self, reading: Collection | None) -> None:
        """Wait until no change of a collection (None: of all) waits for its data key; raises NotReady."""
        if reading is not None:
            await reading.caught_up()
            return
        for waiting in [*self.behind]:
            await waiting.done()

    async def reaches(self, revision: int, patience: float) -> bool:
        """Wait until the cache has reached a revision; return False after ``patience`` seconds."""
        return await self._progress.reach(revision, patience)

    async def at_least(self, revision: int, reading: Collection | None = None) -> None:
        """Wait until the cache has reached a revision; FutureRevision after limits.FRESH_WAIT (RV-002)."""
        await self._watch.whole()
        if not await self._progress.reach(revision):
            raise FutureRevision(revision, self.revision)
        if self.behind or (reading is not None and not reading.state.ready):
            await self._caught_up(reading)

    async def current(self, col: Collection, namespace: str, name: str) -> Entry | None:
        """Read one object from etcd, linearizably; Malformed, Unavailable."""
        key = relative(namespace, name)
        began = perf_counter()
        try:
            kv = await self._store.get(col.prefix + key)
        finally:
            self._store.took("get", col.resource, began)
        if kv is None:
            return None
        try:
            return await col.entry_prepared(key, kv.mod_revision, kv.value)
        except ValueError as error:
            raise col.state.fault(key, col.values.broken(kv.mod_revision, kv.value, error)) from error

    async def unchanged(self, col: Collection, revision: int) -> bool:
        """Report whether the cache has the state of a revision that etcd still has; waits and raises as at_revision."""
        await self.at_least(revision, col)
        if col.unchanged_since(revision):
            await self._store.get(self.keys.absent, revision)  # raises Compacted, which the cache does not know
        return col.unchanged_since(revision)

    async def at_revision(
        self, col: Collection, namespace: str | None, revision: int, *, after: str = "", limit: int = 0
    ) -> Slice:
        """Return objects exactly as they were at a revision, from the key ``after`` on, as tokens carry it.

        Raises Compacted, FutureRevision (after waiting as at_least), Malformed, Unavailable.
        """
        if await self.unchanged(col, revision):
            return col.state.page(namespace, after, limit)._replace(revision=revision)
        prefix = col.prefix + bounds(namespace)[0]
        began = perf_counter()
        try:
            state = await self._store.read(col, prefix, revision, start=after, limit=limit)
        finally:
            self._store.took("list", col.resource, began)
        if state.broken:
            raise col.state.faults(state.broken)
        return Slice(state.entries, revision, state.remaining, state.following)

    async def watch(
        self, col: Collection, group: WatchGroup, start: int, sink: Sink, *, bookmarks: bool = False
    ) -> Watcher:
        """Open a watch after any revision that etcd retains, as Collection.watch does; Compacted, Unavailable."""
        await self.history(col, start)
        return col.watch(group, start, sink, bookmarks=bookmarks)

    async def history(self, col: Collection, start: int) -> None:
        """Make the changes after a revision known to the collection, reading etcd's history if need be."""
        if self.behind:
            await col.caught_up()
        if start < col.following.history.floor:
            await self._backfills.fill(col, start)

    # -- writing

    # neither is a coroutine of its own: each write would make one more, and pass through it twice
    def create(
        self,
        col: Collection,
        namespace: str,
        name: str,
        raw: bytes,
        guard: Guard | None = None,
        also: Guard | None = None,
    ) -> Coroutine[None, None, Entry]:
        """Write an object that must not exist, if both guards hold.

        Raises KeyExists, GuardChanged, TooLarge, OutOfSpace, Unavailable (nothing written), UnknownOutcome.
        """
        return self._put(col, (namespace, name), raw, 0, guard, also)

    def update(
        self, col: Collection, namespace: str, name: str, raw: bytes, expected: int, guard: Guard | None = None
    ) -> Coroutine[None, None, Entry]:
        """Write an object that must have the revision expected; RevisionChanged, and as create."""
        return self._put(col, (namespace, name), raw, expected, guard)

    async def delete(
        self, col: Collection, namespace: str, name: str, expected: int, guard: Guard | None = None
    ) -> Entry:
        """Delete an object that must have the revision expected; returns its last state under the deletion's.

        Raises RevisionChanged, GuardChanged, Unavailable (nothing written), UnknownOutcome.
        """
        key = relative(namespace, name)
        last = col.state.known(key)
        revision = await self._delete(col, key, expected, guard)
        if last is None or last.revision != expected:
            last = await self._before(col, key, revision)
        return last.with_revision(revision)

    async def delete_unread(self, col: Collection, namespace: str, name: str, expected: int) -> None:
        """Delete an object, which may be one that cannot be read, at the revision expected.

        Raises as ``delete``, and Malformed if another value that cannot be read is there now.
        """
        await self._delete(col, relative(namespace, name), expected, None)

    async def _delete(self, col: Collection, key: str, expected: int, guard: Guard | None) -> int:
        began = perf_counter()
        try:
            result = await self._store.delete(col.prefix + key, expected, guard)
        finally:
            self._store.took("delete", col.resource, began)
        if not result.ok:
            raise await refusal(col, key, result, expected, guard)
        if not self._shows(col, key, result.revision, None):
            await self._progress.reach(result.revision)
        return result.revision

    async def _before(self, col: Collection, key: str, revision: int) -> Entry:
        """Return the deleted object; an empty one if it cannot be read any more, since the deletion did happen."""
        try:
            kv = await self._store.get(col.prefix + key, revision - 1)
            if kv is not None:
                return await col.entry_prepared(key, kv.mod_revision, kv.value)
        except (StoreError, ValueError) as error:
            log.warning("the last state of %s %s cannot be read: %s", col.resource, key, error)
        namespace, _, name = key.rpartition("/")
        return Entry(namespace, name, revision, b"{}")

    async def read_again(self, col: Collection) -> None:
        """Fill a collection anew, which ends its watches, unless that is under way: a second fill forgets changes."""
        if col.state.ready:
            col.unready()
            await self.fills.fill(col)

    async def get_key(self, key: str) -> tuple[bytes, int] | None:
        """Return the value and revision of a key outside of collections, such as a guard."""
        kv = await self._store.get(key)
        return None if kv is None else (kv.value, kv.mod_revision)

    async def put_key(self, key: str, value: bytes, expected: int) -> int:
        """Write such a key if it has the revision expected (0: is absent); returns its new one, or RevisionChanged."""
        return key_outcome(key, await self._store.put(key, value, expected, None))

    async def delete_key(self, key: str, expected: int) -> int:
        """Delete such a key if it has the revision expected; returns the deletion's revision, or RevisionChanged."""
        return key_outcome(key, await self._store.delete(key, expected, None))

    async def _put(
        self,
        col: Collection,
        name: tuple[str, str],
        raw: bytes,
        expected: int,
        guard: Guard | None,
        also: Guard | None = None,
    ) -> Entry:
        key = relative(*name)
        stored = raw if col.values.encryption is None else await col.values.encrypt(col.values.encryption, key, raw)
        col.values.pending[key] = raw
        began = perf_counter()
        try:
            try:
                result = await self._store.put(col.prefix + key, stored, expected, guard, col.ttl, also)
            finally:
                self._store.took("update" if expected else "create", col.resource, began)
            if result.ok and not self._shows(col, key, result.revision, stored):
                await self._progress.reach(result.revision)
        finally:
            if col.values.pending.get(key) is raw:
                del col.values.pending[key]
                if col.values.encrypted:
                    col.values.encrypted.pop(key, None)
        if not result.ok:
            raise await refusal(col, key, result, expected, guard, also)
        entry = col.state.known(key)
        if entry is not None and entry.revision == result.revision:
            return entry
        return Passing(*name, result.revision, raw)

    def _shows(self, col: Collection, key: str, revision: int, value: bytes | None) -> bool:
        """Apply a write of this server to the cache at once, if it is the next change; report whether the cache has it.

        Otherwise the watch brings it. A cache that does not follow must not turn a write that happened into a
        failure.
        """
        progress, watch = self._progress, self._watch.usable
        if progress.revision == revision - 1 and watch is not None:
            if col.dropped:
                self._inlet.take(col.prefix + key, revision, value)
            else:
                col.apply(key, revision, value)
            progress.advance(revision)
            watch.skip_to(revision, (col.prefix + key).encode(), value)
        return progress.revision >= revision

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine as a task that ends with the store."""
        self._tasks.spawn(work)

    def _tick(self) -> None:
        for col in list(self._collections.values()):
            col.tick()
