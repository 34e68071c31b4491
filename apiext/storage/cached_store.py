"""The store: it writes to etcd, and serves most reads from a cache.

One watch of the whole prefix, the root watch, updates the cache. A guard is another key and its expected revision. The
guard holds if the key has this revision when the write commits.
"""

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
from apiext.storage.decryption_buffer import DecryptionBuffer
from apiext.storage.dispatcher import Dispatcher
from apiext.storage.encryption import Encryptions, NoEncryption
from apiext.storage.etcd_store import EtcdStore, key_outcome, refusal
from apiext.storage.fanout import Watcher
from apiext.storage.fills import Fills
from apiext.storage.keys import Keys, bounds, relative
from apiext.storage.progress import Progress
from apiext.storage.progress_requests import ProgressRequests
from apiext.storage.pump import Pump
from apiext.storage.root_watch import RootWatch
from apiext.storage.snapshot import Slice
from apiext.storage.store import (
    DetachedEntry,
    Entry,
    FutureRevision,
    Guard,
    StoreError,
    Unavailable,
)
from apiext.storage.tasks import Tasks
from apiext.storage.watching import Sink, WatchGroup
from apiext.telemetry import HistogramFamily

log = logging.getLogger(__name__)


class CachedStore:
    """Objects of many resources below one prefix of one etcd.

    A read of a ready collection returns the state at ``revision``, or at an earlier revision while a change of the
    collection waits for its data key (``lagging``). Call all methods on one event loop. The ``revision`` of a
    CachedState belongs to objects that were read from it, if the caller awaited nothing between the two reads.
    """

    def __init__(
        self, etcd: Etcd, keys: Keys, seconds: HistogramFamily | None = None, encryptions: Encryptions | None = None
    ) -> None:
        """``seconds`` is the histogram of the durations of etcd calls.

        ``encryptions`` is the encryption of stored values.
        """
        self.etcd = etcd
        self.keys = keys
        self.lagging: set[DecryptionBuffer] = set()
        """The decryption buffers (one for each collection) in which changes wait for a data key."""
        self._encryptions = encryptions or NoEncryption()
        self._store = EtcdStore(etcd, seconds=seconds)
        self._collections: dict[str, Collection] = {}
        self._pump = Pump()
        self._tasks = Tasks()
        self._progress = Progress(lambda revision, times: requests.request(revision, times))  # noqa: PLW0108 - made below
        self._dispatcher = Dispatcher(keys.root, self._collections, self._progress, self.spawn)
        self._watch = RootWatch(etcd, keys.root, self._dispatcher, lambda: self.spawn(self.fills.fill_all()))
        self.fills = Fills(self._store, self._collections, self._progress, self._dispatcher, self._watch)
        requests = ProgressRequests(self._store, keys.progress, self._progress, self._watch, self.spawn)
        self._backfills = Backfills(etcd, keys.root, requests.touch)

    # -- start and stop

    async def start(self, group: asyncio.TaskGroup) -> None:
        """Open the root watch, and begin to fill the existing collections; raise Unavailable."""
        self._tasks.start(group)
        head = await self._store.head()
        self._progress.restart(head)
        self._watch.open(head)
        for col in self._collections.values():
            self.spawn(self.fills.fill(col))
        self._tasks.repeat(collection_module.BOOKMARK_EVERY, self._tick)

    async def stop(self) -> None:
        """End watches and tasks. The etcd client stays open."""
        self._watch.close()
        for col in list(self._collections.values()):
            col.unload()
        self._collections.clear()
        await self._tasks.stop()
        self._progress.close()

    @property
    def revision(self) -> int:
        """The revision that all ready collections have reached, except those that are ``lagging``."""
        return self._progress.revision

    @property
    def connected(self) -> bool:
        """True while the root watch is open and etcd responds."""
        return self._watch.connected

    # -- collections

    def add(self, resource: GroupResource, namespaced: bool, decoder: Decoder | None = None) -> Collection:
        """Return the collection of a resource.

        Create it if it is new or has another scope; a task then fills it.
        """
        path = self.keys.path(resource)
        col = self._collections.get(path)
        if col is not None and col.namespaced is namespaced:
            return col
        if col is not None:
            self.drop(resource)
        prefix = self.keys.collection(resource)
        col = Collection(resource, namespaced, prefix, decoder, self._progress, self._pump)
        col.set_encryption(self._encryptions.of(resource), self, self._progress)
        self._dispatcher.decrypts |= col.values.encryption is not None
        self._collections[path] = col
        if self._tasks.started:
            self.spawn(self.fills.fill(col))
        return col

    def collection(self, resource: GroupResource) -> Collection | None:
        """Return the collection of a resource, None if it was not added."""
        return self._collections.get(self.keys.path(resource))

    def drop(self, resource: GroupResource) -> None:
        """Remove the collection of a resource, and end its watches."""
        col = self._collections.pop(self.keys.path(resource), None)
        if col is not None:
            col.unload()

    def switch_encryption(self, encryptions: Encryptions) -> None:
        """Use a new encryption configuration.

        Fill a collection again if the configuration can change which of its values are readable (RV-019).
        """
        self._encryptions = encryptions
        for col in self._collections.values():
            encryption = encryptions.of(col.resource)
            changed = col.switch_encryption(encryption, self, self._progress)
            self._dispatcher.decrypts |= col.values.encryption is not None
            if changed:
                col.unready()
                self.spawn(self.fills.fill(col))

    # -- reading

    async def fresh(self, col: Collection | None = None) -> int:
        """Wait until the cache has all writes that ended before this call, and return its revision.

        ``col`` is the collection that the caller reads (None: all collections). Raises Unavailable if etcd does not
        respond, or if the cache does not get the writes within limits.FRESH_WAIT. Raises NotReady if the collection is
        not filled in time, or if changes wait too long for their data keys.
        """
        while True:
            epoch = await self._watch.wait_complete()
            head = await self._store.head()
            if epoch != self._watch.epoch:
                continue
            if self._progress.revision < head and not await self._progress.reach(head):
                raise Unavailable(f"the cache is at revision {self.revision} and the store at {head}")
            if epoch == self._watch.epoch:
                if self.lagging or (col is not None and not col.state.ready):
                    await self._caught_up(col)
                return self._progress.revision

    async def _caught_up(self, col: Collection | None) -> None:
        """Wait until a collection is filled and none of its changes waits for a data key.

        Raise NotReady at a timeout. If ``col`` is None, wait only until no change of any collection waits for a data
        key.
        """
        if col is not None:
            await col.caught_up()
            return
        for buffer in [*self.lagging]:
            await buffer.done()

    async def reaches(self, revision: int, timeout: float) -> bool:
        """Wait until the cache has reached a revision; return False after ``timeout`` seconds."""
        return await self._progress.reach(revision, timeout)

    async def at_least(self, revision: int, col: Collection | None = None) -> None:
        """Wait until the cache has reached a revision; raise FutureRevision after limits.FRESH_WAIT.

        See RV-002. Like ``fresh``, also wait for fills and data keys. Raises the errors of ``fresh``.
        """
        await self._watch.wait_complete()
        if not await self._progress.reach(revision):
            raise FutureRevision(revision, self.revision)
        if self.lagging or (col is not None and not col.state.ready):
            await self._caught_up(col)

    async def current(self, col: Collection, namespace: str, name: str) -> Entry | None:
        """Read one object from etcd, linearizably; None if it does not exist.

        Raises Malformed, Unavailable.
        """
        key = relative(namespace, name)
        began = perf_counter()
        try:
            kv = await self._store.get(col.prefix + key)
        finally:
            self._store.record_duration("get", col.resource, began)
        if kv is None:
            return None
        try:
            return await col.entry_prepared(key, kv.mod_revision, kv.value)
        except ValueError as error:
            raise col.state.fault(key, col.values.broken(kv.mod_revision, kv.value, error)) from error

    async def unchanged(self, col: Collection, revision: int) -> bool:
        """Report whether the cache still has the state at a revision.

        Like ``at_revision``, wait for a future revision, and raise Compacted, FutureRevision, Unavailable.
        """
        await self.at_least(revision, col)
        if col.unchanged_since(revision):
            # the cache does not know which revisions are compacted, but this read raises Compacted
            await self._store.get(self.keys.absent, revision)
        return col.unchanged_since(revision)

    async def at_revision(
        self, col: Collection, namespace: str | None, revision: int, *, after: str = "", limit: int = 0
    ) -> Slice:
        """Return the objects at exactly this revision.

        ``after`` is the key at which the page begins, as in a continue token. Raises Compacted, FutureRevision (after a
        wait as in at_least), Malformed, Unavailable.
        """
        if await self.unchanged(col, revision):
            return col.state.page(namespace, after, limit)._replace(revision=revision)
        prefix = col.prefix + bounds(namespace)[0]
        began = perf_counter()
        try:
            state = await self._store.read(col, prefix, revision, start=after, limit=limit)
        finally:
            self._store.record_duration("list", col.resource, began)
        if state.broken:
            raise col.state.faults(state.broken)
        return Slice(state.entries, revision, state.remaining, state.next)

    async def watch(
        self, col: Collection, group: WatchGroup, start: int, sink: Sink, *, bookmarks: bool = False
    ) -> Watcher:
        """Open a watch as Collection.watch does, from any revision that etcd has.

        Raise Compacted, Unavailable.
        """
        await self.history(col, start)
        return col.watch(group, start, sink, bookmarks=bookmarks)

    async def history(self, col: Collection, start: int) -> None:
        """Load the changes after a revision into a collection's history, from etcd if necessary."""
        if self.lagging:
            await col.caught_up()
        if start < col.feed.history.floor:
            await self._backfills.fill(col, start)

    # -- writing

    # create and update are not ``async``, since a second coroutine for each write costs time
    def create(
        self,
        col: Collection,
        namespace: str,
        name: str,
        raw: bytes,
        guard: Guard | None = None,
        also: Guard | None = None,
    ) -> Coroutine[None, None, Entry]:
        """Create an object if it does not exist and both guards hold.

        Raises KeyExists, GuardChanged, TooLarge, OutOfSpace, Corrupt, Unavailable (nothing written), UnknownOutcome.
        """
        return self._put(col, (namespace, name), raw, 0, guard, also)

    def update(
        self, col: Collection, namespace: str, name: str, raw: bytes, expected: int, guard: Guard | None = None
    ) -> Coroutine[None, None, Entry]:
        """Write an object if it has the expected revision and the guard holds.

        Raises RevisionChanged, Malformed if the stored object has another revision and cannot be read, and the errors
        of ``create`` except KeyExists.
        """
        return self._put(col, (namespace, name), raw, expected, guard)

    async def delete(
        self, col: Collection, namespace: str, name: str, expected: int, guard: Guard | None = None
    ) -> Entry:
        """Delete an object if it has the expected revision.

        Return its last state with the revision of the deletion. The state is ``{}`` if it cannot be read. Raises
        RevisionChanged, Malformed if the stored object has another revision and cannot be read, GuardChanged, Corrupt,
        Unavailable (nothing written), UnknownOutcome.
        """
        key = relative(namespace, name)
        last = col.state.by_key(key)
        revision = await self._delete(col, key, expected, guard)
        if last is None or last.revision != expected:
            last = await self._last_state(col, key, revision)
        return last.with_revision(revision)

    async def delete_unread(self, col: Collection, namespace: str, name: str, expected: int) -> None:
        """Delete an object, even an unreadable one, if it has the expected revision.

        Raises the errors of ``delete``.
        """
        await self._delete(col, relative(namespace, name), expected, None)

    async def _delete(self, col: Collection, key: str, expected: int, guard: Guard | None) -> int:
        began = perf_counter()
        try:
            result = await self._store.delete(col.prefix + key, expected, guard)
        finally:
            self._store.record_duration("delete", col.resource, began)
        if not result.ok:
            raise await refusal(col, key, result, expected, guard)
        if not self._apply_own_write(col, key, result.revision, None):
            await self._progress.reach(result.revision)
        return result.revision

    async def _last_state(self, col: Collection, key: str, revision: int) -> Entry:
        """Return the deleted object.

        If it cannot be read, return an empty object, since the deletion has succeeded.
        """
        try:
            kv = await self._store.get(col.prefix + key, revision - 1)
            if kv is not None:
                return await col.entry_prepared(key, kv.mod_revision, kv.value)
        except (StoreError, ValueError) as error:
            log.warning("the last state of %s %s cannot be read: %s", col.resource, key, error)
        namespace, _, name = key.rpartition("/")
        return Entry(namespace, name, revision, b"{}")

    async def read_again(self, col: Collection) -> None:
        """Fill a collection again, and end its watches.

        Do nothing while another fill runs. A second fill would drop the changes that the first fill has buffered.
        """
        if col.state.ready:
            col.unready()
            await self.fills.fill(col)

    async def get_key(self, key: str) -> tuple[bytes, int] | None:
        """Return the value and revision of a key outside of collections.

        Return None if the key does not exist.
        """
        kv = await self._store.get(key)
        return None if kv is None else (kv.value, kv.mod_revision)

    async def put_key(self, key: str, value: bytes, expected: int) -> int:
        """Write a key outside of collections if it has the expected revision (0: it does not exist).

        Return its new revision; raise RevisionChanged.
        """
        return key_outcome(key, await self._store.put(key, value, expected, None))

    async def delete_key(self, key: str, expected: int) -> int:
        """Delete a key outside of collections if it has the expected revision.

        Return the revision of the deletion; raise RevisionChanged.
        """
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
                self._store.record_duration("update" if expected else "create", col.resource, began)
            if result.ok and not self._apply_own_write(col, key, result.revision, stored):
                await self._progress.reach(result.revision)
        finally:
            if col.values.pending.get(key) is raw:
                del col.values.pending[key]
                if col.values.encrypted:
                    col.values.encrypted.pop(key, None)
        if not result.ok:
            raise await refusal(col, key, result, expected, guard, also)
        entry = col.state.by_key(key)
        if entry is not None and entry.revision == result.revision:
            return entry
        return DetachedEntry(*name, result.revision, raw)

    def _apply_own_write(self, col: Collection, key: str, revision: int, value: bytes | None) -> bool:
        """Apply a write of this server to the cache if it is the next change.

        Return whether the cache has the write. If not, the root watch will deliver the write. The write has succeeded,
        so a cache that lags behind is no error.
        """
        progress, watch = self._progress, self._watch.usable
        if progress.revision == revision - 1 and watch is not None:
            if col.dropped:
                self._dispatcher.dispatch(col.prefix + key, revision, value)
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
