"""Dispatches events of the root watch to their collections, in order.

The root watch is the etcd watch of the whole prefix. It delivers events in batches. If the encrypted values of a batch
are large in total, a thread decrypts them first.
"""

from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping

from apiext.etcd.values import DELETE, Batch
from apiext.storage import limits
from apiext.storage.collection import Collection
from apiext.storage.progress import Progress


class Dispatcher:
    """The dispatcher of changes below the watched prefix. ``spawn`` runs a coroutine as a task.

    While a thread decrypts the values of a batch, later batches are buffered. A write of this server may apply its own
    change in the meantime; the dispatcher then skips this change.
    """

    def __init__(
        self,
        root: str,
        collections: Mapping[str, Collection],
        progress: Progress,
        spawn: Callable[[Coroutine[None, None, None]], None],
    ) -> None:
        self._root_size = len(root)
        self._collections = collections
        self._progress = progress
        self._spawn = spawn
        self._buffered: deque[Batch] = deque()
        self._decrypting = False
        self.decrypts = False  # true if the values of any collection are encrypted

    def on_batch(self, batch: Batch) -> None:
        """Dispatch a batch of events, or buffer it until its values are decrypted."""
        if self.decrypts and (self._buffered or _is_large(batch)):
            self._buffered.append(batch)
            if not self._decrypting:
                self._decrypting = True
                self._spawn(self._catch_up())
            return
        for event in batch.events:
            kv = event.kv
            value = None if event.kind == DELETE else kv.value
            self.dispatch(kv.key.decode("utf-8", "replace"), kv.mod_revision, value)
        self._progress.advance(batch.revision, by_event=not batch.progress)

    def dispatch(self, key: str, revision: int, value: bytes | None) -> None:
        """Apply a change to the collection of its key. Do nothing if there is no such collection."""
        col, offset = self._locate(key)
        if col is not None:
            col.apply(key[offset:], revision, value)

    def drop_buffered(self) -> None:
        """Drop the buffered batches, since all collections were read again."""
        self._buffered.clear()

    def _locate(self, key: str) -> tuple[Collection | None, int]:
        """Return (collection of a key or None, offset at which the collection's prefix ends)."""
        root_size, collections = self._root_size, self._collections
        first = key.find("/", root_size)
        second = key.find("/", first + 1)
        col = collections.get(key[root_size:second]) if second > 0 else None
        if col is None:
            col, second = collections.get(key[root_size:first]), first
        return col, second + 1

    async def _catch_up(self) -> None:
        try:
            while self._buffered:
                batch = self._buffered[0]
                await self._decrypt_values(batch)
                if self._buffered and self._buffered[0] is batch:
                    self._apply(batch)
                    self._buffered.popleft()
                else:  # all collections were read again meanwhile
                    self._drop_values(batch)
        finally:
            self._decrypting = False

    async def _decrypt_values(self, batch: Batch) -> None:
        found: dict[Collection, list[tuple[str, bytes]]] = {}
        for col, key, _, value in self._events(batch):
            if value is not None:
                found.setdefault(col, []).append((key, value))
        for col, values in found.items():
            await col.values.decrypt_ahead(values)

    def _apply(self, batch: Batch) -> None:
        applied = self._progress.revision
        for col, key, revision, value in self._events(batch):
            if revision > applied:
                col.apply(key, revision, value)
            elif value is not None:
                col.values.drop_ahead(value)
        self._progress.advance(batch.revision, by_event=not batch.progress)

    def _drop_values(self, batch: Batch) -> None:
        for col, _, _, value in self._events(batch):
            if value is not None:
                col.values.drop_ahead(value)

    def _events(self, batch: Batch) -> Iterator[tuple[Collection, str, int, bytes | None]]:
        for event in batch.events:
            key = event.kv.key.decode("utf-8", "replace")
            col, offset = self._locate(key)
            if col is not None:
                yield col, key[offset:], event.kv.mod_revision, None if event.kind == DELETE else event.kv.value


def _is_large(batch: Batch) -> bool:
    return sum(len(event.kv.value) for event in batch.events) > limits.ENCRYPT_INLINE
