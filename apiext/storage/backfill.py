"""Changes from before the cache began, read out of etcd's own history so that a watch resumes there (RV-017)."""

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
from apiext.storage.etcd_store import translated
from apiext.storage.history import Change
from apiext.storage.keys import split_relative
from apiext.storage.store import Compacted, Entry, Unavailable


class Backfills:
    """Reads what happened before the caches began, for the collections of one store.

    If progress responses of an etcd cannot be trusted, it reads all changes below the root, once for all callers.
    """

    def __init__(self, etcd: Etcd, root: str, touch: Callable[[], Awaitable[None]]) -> None:
        """``touch`` writes a key below the root, which makes a watch of the root say something."""
        self._etcd, self._root, self._touch = etcd, root, touch
        self._shared: _Reading | None = None
        self._wanted: list[int] = []  # start revisions of the callers that wait for the next shared reading

    async def fill(self, col: Collection, start: int) -> None:
        """Make every change after the revision ``start`` known to the collection's history.

        Raises Compacted when etcd has forgotten them or they are more than limits.HISTORY_BYTES, Unavailable.
        """
        async with col.following.backfilling:
            while start < col.following.history.floor:
                # a server whose progress cannot be trusted is made to speak by a write, seen below the root only
                trusted = self._etcd.progress_requests_ok
                reading = _Reading(self._etcd, col.prefix, start) if trusted else await self._reading(start)
                with suppress(_Again):
                    await self._fill(col, start, reading)

    async def _reading(self, start: int) -> "_Reading":
        """Return a reading of everything that has told nothing after a revision yet; one runs at a time."""
        self._wanted.append(start)
        try:
            while (reading := self._shared) is not None and not reading.over.done():
                if start >= reading.position:
                    return reading
                await asyncio.wait((reading.over,))
            self._shared = _Reading(self._etcd, self._root, min(self._wanted))
            return self._shared
        finally:
            self._wanted.remove(start)

    async def _fill(self, col: Collection, start: int, reading: "_Reading") -> None:
        history = col.following.history
        stop = history.floor
        history.held = True
        reader = _Reader(col, start, stop)
        reading.join(reader)
        try:
            await self._follow(reader, reading)
        finally:
            reading.leave(reader)
            history.held = False
        if history.floor != stop:  # the collection was filled again meanwhile
            raise Compacted(start, history.floor)
        history.prepend(reader.changes, start)

    async def _follow(self, reader: "_Reader", reading: "_Reading") -> None:
        loop = asyncio.get_running_loop()
        delay = progress_module.PROGRESS_AFTER
        while not reader.done.done():
            heard = reading.heard
            await asyncio.wait((reader.done, reader.woken), timeout=delay, return_when=asyncio.FIRST_COMPLETED)
            await reader.catch_up()
            if reader.done.done():
                break
            if reading.heard == heard:
                await reading.nudge(heard, self._touch)
            if loop.time() - reading.heard > limits.BACKFILL_STALL:
                raise Unavailable("etcd does not tell its history")
            delay = min(0.5, 2 * delay)
        reader.done.result()


class _Again(Exception):
    """A reading that began earlier met what etcd has forgotten; this reader may find all it wants."""


class _Reading:
    """One watch of past changes below a prefix, and its readers; it ends with the last of them."""

    def __init__(self, etcd: Etcd, prefix: str, start: int) -> None:
        self._etcd = etcd
        self._loop = asyncio.get_running_loop()
        self._start = start
        self._readers: dict[str, _Reader] = {}  # by the prefixes of their collections
        self._nudging = asyncio.Lock()
        self.position = start
        """The revision up to which everything was told."""
        self.heard = self._loop.time()
        self.over: asyncio.Future[None] = self._loop.create_future()
        below = prefix.encode()
        # from `start`, not the revision after it: old servers lose a deletion at the very revision they compacted to
        self._handle = etcd.watch(
            below, prefix_end(below), max(1, start), prev_kv=True, on_batch=self._on_batch, on_end=self._on_end
        )

    def join(self, reader: "_Reader") -> None:
        """Add a reader; each collection has one at most."""
        self._readers[reader.col.prefix] = reader

    def leave(self, reader: "_Reader") -> None:
        """Remove a reader."""
        self._readers.pop(reader.col.prefix, None)
        if not self._readers and not self.over.done():
            self.over.set_result(None)
            self._handle.cancel()

    async def nudge(self, heard: float, touch: Callable[[], Awaitable[None]]) -> None:
        """Make etcd say something, unless it has since the loop time ``heard``."""
        async with self._nudging:
            trusted = self._etcd.progress_requests_ok
            if self.heard == heard and not (trusted and self._handle.request_progress()):
                await touch()

    def _on_batch(self, batch: Batch) -> None:
        self.heard = self._loop.time()
        readers, found = self._readers, dict[str, list[WatchEvent]]()
        for event in batch.events:
            for prefix in _collections_of(event.kv.key.decode("utf-8", "replace")):
                if prefix in readers:
                    found.setdefault(prefix, []).append(event)
        for prefix, reader in readers.items():
            reader.on_batch(batch._replace(events=found.get(prefix, [])))
        self.position = max(self.position, batch.revision)

    def _on_end(self, error: EtcdError) -> None:
        if not self.over.done():
            self.over.set_result(None)
        for reader in self._readers.values():
            if isinstance(error, errors.Compacted) and reader.start > self._start:
                reader.fail(_Again())
            else:
                reader.fail(translated(error, reader.start))


def _collections_of(key: str) -> Iterator[str]:
    """Yield the prefixes that end before a key's name, before its namespace and name."""
    for _ in range(2):
        key = key[: key.rfind("/", 0, -1) + 1]
        if key:
            yield key


class _Reader:
    """Turns events of a watch with previous values into changes, up to the revision ``stop``."""

    def __init__(self, col: Collection, start: int, stop: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._last: dict[str, Entry] = {}
        self._size = 0
        self.changes: list[Change] = []
        self.col = col
        self.done: asyncio.Future[None] = self._loop.create_future()
        self.woken: asyncio.Future[None] = self._loop.create_future()
        self._late: list[Batch] = []
        self.start = start
        self.stop = stop

    def on_batch(self, batch: Batch) -> None:
        """Add events, or wake the reader that decrypts them first; done when they exceed the wanted revision."""
        if self.col.values.encryption is None:
            self._read(batch)
            return
        self._late.append(batch)
        if not self.woken.done():
            self.woken.set_result(None)

    async def catch_up(self) -> None:
        """Apply the waiting events; large encrypted values are decrypted in a thread before."""
        if self.woken.done():
            self.woken = self._loop.create_future()
        late, self._late = self._late, []
        for batch in late:
            values = list(self._values(batch))
            await self.col.values.prepare(values)
            self._read(batch)
            for _, value in values:
                self.col.values.drop_ahead(value)

    def _values(self, batch: Batch) -> Iterator[tuple[str, bytes]]:
        """Yield the values of a batch that will be read: a previous state only for the first event of a key."""
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
                self._take(event, event.kv.key[len(prefix) :].decode("utf-8", "replace"))
        if self._size > limits.HISTORY_BYTES:
            self.fail(Compacted(self.start, self.stop))
        elif batch.revision >= self.stop and not self.done.done():
            self.done.set_result(None)

    def fail(self, error: Exception) -> None:
        """End the reading: the wanted changes are too old, too many, or cannot be read."""
        if not self.done.done():
            self.done.set_exception(error)

    def _take(self, event: WatchEvent, key: str) -> None:
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
        except MissingKey as lack:  # it may be decrypted later, so a watch must not skip it
            self.fail(Unavailable(str(lack)))
            return None
        except ValueError:
            return None  # skipped, as in the root watch (ETC-006)

    def _add(self, change: Change) -> None:
        self.changes.append(change)
        self._size += change.entry.size
