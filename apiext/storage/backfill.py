"""Read from etcd the changes that are no longer in memory.

So watches can start at old revisions (RV-017). The root is the prefix of all keys of the server. A progress response
of etcd contains a revision, but no events: it tells that the watch has received all events up to this revision.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress

from apiext.etcd import errors
from apiext.etcd.client import Etcd, prefix_end
from apiext.etcd.errors import EtcdError
from apiext.etcd.values import DELETE, Batch, KeyValue, WatchEvent
from apiext.storage import limits
from apiext.storage import progress as progress_module
from apiext.storage.collection import Collection
from apiext.storage.encryption import MissingKey
from apiext.storage.etcd_store import store_error
from apiext.storage.history import Change
from apiext.storage.keys import split_relative
from apiext.storage.store import Compacted, Entry, Unavailable


class Backfills:
    """The reader of old changes from etcd, for the collections of one store.

    If progress responses of etcd are unreliable, all callers share one etcd watch of all keys below the root.
    """

    def __init__(self, etcd: Etcd, root: str, touch: Callable[[], Awaitable[None]]) -> None:
        """``touch`` writes a key below the root, so that a watch of the root gets an event."""
        self._etcd, self._root, self._touch = etcd, root, touch
        self._shared: _PastWatch | None = None
        self._starts: list[int] = []  # start revisions of the callers that wait for the next shared watch

    async def fill(self, col: Collection, start: int) -> None:
        """Add every change after the revision ``start`` to the history of a collection.

        Raises Compacted if etcd has compacted these changes, if they exceed limits.HISTORY_BYTES, or if the collection
        is filled again meanwhile. Raises Unavailable if etcd does not send them, or if a value cannot be decrypted
        since no plug-in has decrypted its data key.
        """
        async with col.feed.backfilling:
            while start < col.feed.history.floor:
                # if progress responses are unreliable, ``touch`` causes an event, which only a watch of the root
                # receives
                trusted = self._etcd.progress_requests_ok
                watch = _PastWatch(self._etcd, col.prefix, start) if trusted else await self._shared_watch(start)
                with suppress(_Retry):
                    await self._fill(col, start, watch)

    async def _shared_watch(self, start: int) -> "_PastWatch":
        """Return a watch of all keys below the root, with all events after the revision ``start``.

        Only one such watch exists at a time. If it has already passed this revision, wait for its end, then open the
        next watch.
        """
        self._starts.append(start)
        try:
            while (watch := self._shared) is not None and not watch.ended.done():
                if start >= watch.position:
                    return watch
                await asyncio.wait((watch.ended,))
            self._shared = _PastWatch(self._etcd, self._root, min(self._starts))
            return self._shared
        finally:
            self._starts.remove(start)

    async def _fill(self, col: Collection, start: int, watch: "_PastWatch") -> None:
        history = col.feed.history
        stop = history.floor
        history.pin()
        reader = _Reader(col, start, stop)
        watch.join(reader)
        try:
            await self._follow(reader, watch)
        finally:
            watch.leave(reader)
            history.unpin()
        if history.floor != stop:  # meanwhile the collection was filled again
            raise Compacted(start, history.floor)
        history.prepend(reader.changes, start)

    async def _follow(self, reader: "_Reader", watch: "_PastWatch") -> None:
        loop = asyncio.get_running_loop()
        delay = progress_module.PROGRESS_AFTER
        while not reader.done.done():
            last_response = watch.last_response
            await asyncio.wait((reader.done, reader.woken), timeout=delay, return_when=asyncio.FIRST_COMPLETED)
            await reader.catch_up()
            if reader.done.done():
                break
            if watch.last_response == last_response:
                await watch.request_response(last_response, self._touch)
            if loop.time() - watch.last_response > limits.BACKFILL_STALL:
                raise Unavailable("etcd does not send its history")
            delay = min(0.5, 2 * delay)
        reader.done.result()


class _Retry(Exception):
    """The shared watch began at a compacted revision.

    The reader needs only later revisions, and may retry.
    """


class _PastWatch:
    """One watch of past changes below a prefix.

    The watch ends when its last reader leaves, or on an error.
    """

    def __init__(self, etcd: Etcd, prefix: str, start: int) -> None:
        self._etcd = etcd
        self._loop = asyncio.get_running_loop()
        self._start = start
        self._readers: dict[str, _Reader] = {}  # prefix of the collection → reader
        self._nudging = asyncio.Lock()
        self.position = start
        """The revision up to which etcd has sent all events."""
        self.last_response = self._loop.time()
        self.ended: asyncio.Future[None] = self._loop.create_future()
        below = prefix.encode()
        # From ``start``, not ``start + 1``: if etcd is compacted at ``start + 1``, a watch from there is allowed, but
        # old etcd servers omit a deletion at this revision. A watch from ``start`` gets the error Compacted instead.
        self._handle = etcd.watch(
            below, prefix_end(below), max(1, start), prev_kv=True, on_batch=self._on_batch, on_end=self._on_end
        )

    def join(self, reader: "_Reader") -> None:
        """Add a reader. A collection has at most one reader."""
        self._readers[reader.col.prefix] = reader

    def leave(self, reader: "_Reader") -> None:
        """Remove a reader."""
        self._readers.pop(reader.col.prefix, None)
        if not self._readers and not self.ended.done():
            self.ended.set_result(None)
            self._handle.cancel()

    async def request_response(self, last_response: float, touch: Callable[[], Awaitable[None]]) -> None:
        """Make etcd send a response, unless it has sent one since ``last_response``.

        ``last_response`` is a time of the event loop.
        """
        async with self._nudging:
            trusted = self._etcd.progress_requests_ok
            if self.last_response == last_response and not (trusted and self._handle.request_progress()):
                await touch()

    def _on_batch(self, batch: Batch) -> None:
        self.last_response = self._loop.time()
        readers, found = self._readers, dict[str, list[WatchEvent]]()
        for event in batch.events:
            for prefix in _collections_of(event.kv.key.decode("utf-8", "replace")):
                if prefix in readers:
                    found.setdefault(prefix, []).append(event)
        for prefix, reader in readers.items():
            reader.on_batch(batch._replace(events=found.get(prefix, [])))
        self.position = max(self.position, batch.revision)

    def _on_end(self, error: EtcdError) -> None:
        if not self.ended.done():
            self.ended.set_result(None)
        for reader in self._readers.values():
            if isinstance(error, errors.Compacted) and reader.start > self._start:
                reader.fail(_Retry())
            else:
                reader.fail(store_error(error, reader.start))


def _collections_of(key: str) -> Iterator[str]:
    """Yield the prefixes that the collection of a key may have.

    Example: /a/b/c → /a/b/ and /a/. The second prefix is right if ``b`` is a namespace.
    """
    for _ in range(2):
        key = key[: key.rfind("/", 0, -1) + 1]
        if key:
            yield key


class _Reader:
    """Converts watch events to changes, up to the revision ``stop``.

    The watch events contain the previous values.
    """

    def __init__(self, col: Collection, start: int, stop: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._last: dict[str, Entry] = {}
        self._size = 0
        self.changes: list[Change] = []
        self.col = col
        self.done: asyncio.Future[None] = self._loop.create_future()
        self.woken: asyncio.Future[None] = self._loop.create_future()
        self._queued: list[Batch] = []
        self.start = start
        self.stop = stop

    def on_batch(self, batch: Batch) -> None:
        """Add the events of a batch. If values may be encrypted, queue the batch for ``catch_up``.

        The future ``done`` ends when the reader has all events up to the revision ``stop``.
        """
        if self.col.values.encryption is None:
            self._read(batch)
            return
        self._queued.append(batch)
        if not self.woken.done():
            self.woken.set_result(None)

    async def catch_up(self) -> None:
        """Add the queued events, after the decryption of their values."""
        if self.woken.done():
            self.woken = self._loop.create_future()
        queued, self._queued = self._queued, []
        for batch in queued:
            values = list(self._values(batch))
            await self.col.values.prepare(values)
            self._read(batch)
            for _, value in values:
                self.col.values.drop_ahead(value)

    def _values(self, batch: Batch) -> Iterator[tuple[str, bytes]]:
        """Yield (key, value) for the values of a batch to decrypt.

        The previous value is necessary only for the first event of a key. For later events it is already decrypted.
        """
        prefix, seen = self.col.prefix.encode(), set(self._last)
        for event in batch.events:
            if event.kv.key.startswith(prefix):
                key = event.kv.key[len(prefix) :].decode("utf-8", "replace")
                if event.prev is not None and key not in seen:
                    yield key, event.prev.value
                yield key, event.kv.value
                seen.add(key)

    def _read(self, batch: Batch) -> None:
        prefix = self.col.prefix.encode()
        for event in batch.events:
            if self.start < event.kv.mod_revision <= self.stop and event.kv.key.startswith(prefix):
                self._add_event(event, event.kv.key[len(prefix) :].decode("utf-8", "replace"))
        if self._size > limits.HISTORY_BYTES:
            self.fail(Compacted(self.start, self.stop))
        elif batch.revision >= self.stop and not self.done.done():
            self.done.set_result(None)

    def fail(self, error: Exception) -> None:
        """End the reader with an error."""
        if not self.done.done():
            self.done.set_exception(error)

    def _add_event(self, event: WatchEvent, key: str) -> None:
        if not split_relative(key, self.col.namespaced):
            return
        previous = self._last.get(key) or self._entry(key, event.prev)
        revision = event.kv.mod_revision
        if event.kind == DELETE:
            self._last.pop(key, None)
            if previous is None:
                if event.prev is None:
                    self.fail(Compacted(self.start, self.stop))
                return
            self._add(Change("DELETED", previous.with_revision(revision), previous, revision))
            return
        entry = self._entry(key, event.kv)
        if entry is not None:
            self._last[key] = entry
            self._add(Change("ADDED" if previous is None else "MODIFIED", entry, previous, revision))

    def _entry(self, key: str, kv: KeyValue | None) -> Entry | None:
        try:
            return None if kv is None else self.col.entry_of(key, kv.mod_revision, kv.value)
        except MissingKey as error:  # a watch must not skip the value, since its data key may be decrypted later
            self.fail(Unavailable(str(error)))
            return None
        except ValueError:
            return None  # an unreadable value is skipped, as in the watch that fills the caches (ETC-006)

    def _add(self, change: Change) -> None:
        self.changes.append(change)
        self._size += change.entry.size
