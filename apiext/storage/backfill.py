"""Changes from before the cache began, read out of etcd's own history so that a watch resumes there (RV-017, F-11)."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator

from apiext import limits
from apiext.etcd.client import Etcd, prefix_end
from apiext.etcd.errors import EtcdError
from apiext.etcd.values import DELETE, Batch, KeyValue, WatchEvent
from apiext.storage.collection import Collection
from apiext.storage.etcd_store import translated
from apiext.storage.history import Change
from apiext.storage.keys import split_relative
from apiext.storage.sealing import Lacking
from apiext.storage.store import Compacted, Entry, Unavailable


async def backfill(etcd: Etcd, col: Collection, root: str, start: int, touch: Callable[[], Awaitable[None]]) -> None:
    """Make every change after the revision ``start`` known to the collection's history.

    Raises Compacted when etcd has forgotten them or they are more than limits.HISTORY_BYTES, Unavailable.
    """
    async with col.backfilling:
        history = col.history
        stop = history.floor
        if start >= stop:
            return
        history.held = True
        try:
            reader = _Reader(col, start, stop)
            await _run(etcd, reader, root, touch)
        finally:
            history.held = False
        if history.floor != stop:  # the collection was filled again meanwhile
            raise Compacted(start, history.floor)
        history.prepend(reader.changes, start)


async def _run(etcd: Etcd, reader: "_Reader", root: str, touch: Callable[[], Awaitable[None]]) -> None:
    # a server whose progress answers cannot be trusted is made to say something by a write, seen below the root only
    trusted = etcd.progress_requests_ok
    prefix = (reader.col.prefix if trusted else root).encode()
    # from `start`, not the revision after it: old servers lose a deletion at the very revision they compacted to
    handle = etcd.watch(
        prefix, prefix_end(prefix), max(1, reader.start), prev_kv=True, on_batch=reader.on_batch, on_end=reader.on_end
    )
    loop = asyncio.get_running_loop()
    delay = limits.PROGRESS_AFTER
    try:
        while not reader.done.done():
            heard = reader.heard
            await asyncio.wait((reader.done, reader.woken), timeout=delay, return_when=asyncio.FIRST_COMPLETED)
            await reader.catch_up()
            if reader.done.done():
                break
            if reader.heard == heard and not (trusted and handle.request_progress()):
                await touch()
            if loop.time() - reader.heard > limits.BACKFILL_STALL:
                raise Unavailable("etcd does not tell its history")
            delay = min(0.5, 2 * delay)
        reader.done.result()
    finally:
        handle.cancel()


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
        self.heard = self._loop.time()
        self.start = start
        self.stop = stop

    def on_batch(self, batch: Batch) -> None:
        """Take events, or wake who opens them first; done when they go beyond the revision wanted."""
        self.heard = self._loop.time()
        if self.col.sealing is None:
            self._read(batch)
            return
        self._late.append(batch)
        if not self.woken.done():
            self.woken.set_result(None)

    async def catch_up(self) -> None:
        """Take the events that wait, their sealed values opened elsewhere if they are large."""
        if self.woken.done():
            self.woken = self._loop.create_future()
        late, self._late = self._late, []
        for batch in late:
            values = list(self._values(batch))
            await self.col.prepare(values)
            self._read(batch)
            for _, value in values:
                self.col.close_again(value)

    def _values(self, batch: Batch) -> Iterator[tuple[str, bytes]]:
        """Yield what will be read of a batch: a state before only of what was not seen earlier."""
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
            self._fail(Compacted(self.start, self.stop))
        elif batch.revision >= self.stop and not self.done.done():
            self.done.set_result(None)

    def on_end(self, error: EtcdError) -> None:
        """The watch ended: too old, or the store is gone."""
        self._fail(translated(error, self.start))

    def _fail(self, error: Exception) -> None:
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
                    self._fail(Compacted(self.start, self.stop))
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
        except Lacking as lack:  # it may open later, so a watch must not go on without it
            self._fail(Unavailable(str(lack)))
            return None
        except ValueError:
            return None  # skipped, as in the root watch (ETC-006)

    def _add(self, change: Change) -> None:
        self.changes.append(change)
        self._size += change.entry.size
