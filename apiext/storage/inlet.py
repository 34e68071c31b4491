"""Dispatch events of the root watch to their collections, in order; large encrypted values are decrypted first."""

from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping

from apiext.etcd.values import DELETE, Batch
from apiext.storage import limits
from apiext.storage.collection import Collection
from apiext.storage.progress import Progress


class Inlet:
    """Hands changes below a root to the collections; ``spawn`` runs what takes longer than a turn of the loop.

    While a thread decrypts the values of a batch, later batches wait. Changes that a write of this server has applied
    meanwhile are not applied again.
    """

    def __init__(
        self,
        root: str,
        collections: Mapping[str, Collection],
        progress: Progress,
        spawn: Callable[[Coroutine[None, None, None]], None],
    ) -> None:
        self._cut = len(root)
        self._collections = collections
        self._progress = progress
        self._spawn = spawn
        self._late: deque[Batch] = deque()
        self._opening = False
        self.decrypts = False  # whether the values of any collection are encrypted

    def on_batch(self, batch: Batch) -> None:
        """Process a batch of the watch."""
        if self.decrypts and (self._late or _is_large(batch)):
            self._late.append(batch)
            if not self._opening:
                self._opening = True
                self._spawn(self._catch_up())
            return
        for event in batch.events:
            kv = event.kv
            self.take(kv.key.decode("utf-8", "replace"), kv.mod_revision, None if event.kind == DELETE else kv.value)
        self._progress.advance(batch.revision, by_event=not batch.progress)

    def take(self, key: str, revision: int, value: bytes | None) -> None:
        """Hand a change to the collection that the key lies in, if any."""
        col, place = self._place(key)
        if col is not None:
            col.apply(key[place:], revision, value)

    def forget(self) -> None:
        """Forget what waits: everything has been read again."""
        self._late.clear()

    def _place(self, key: str) -> tuple[Collection | None, int]:
        """Return the collection that a key lies in, and where the key within it begins."""
        cut, collections = self._cut, self._collections
        first = key.find("/", cut)
        second = key.find("/", first + 1)
        col = collections.get(key[cut:second]) if second > 0 else None
        if col is None:
            col, second = collections.get(key[cut:first]), first
        return col, second + 1

    async def _catch_up(self) -> None:
        try:
            while self._late:
                batch = self._late[0]
                await self._open(batch)
                if self._late and self._late[0] is batch:
                    self._show(batch)
                    self._late.popleft()
                else:  # everything has been read again meanwhile
                    self._close(batch)
        finally:
            self._opening = False

    async def _open(self, batch: Batch) -> None:
        found: dict[Collection, list[tuple[str, bytes]]] = {}
        for col, key, _, value in self._events(batch):
            if value is not None:
                found.setdefault(col, []).append((key, value))
        for col, values in found.items():
            await col.values.decrypt_ahead(values)

    def _show(self, batch: Batch) -> None:
        known = self._progress.revision
        for col, key, revision, value in self._events(batch):
            if revision > known:
                col.apply(key, revision, value)
            elif value is not None:
                col.values.drop_ahead(value)
        self._progress.advance(batch.revision, by_event=not batch.progress)

    def _close(self, batch: Batch) -> None:
        for col, _, _, value in self._events(batch):
            if value is not None:
                col.values.drop_ahead(value)

    def _events(self, batch: Batch) -> Iterator[tuple[Collection, str, int, bytes | None]]:
        for event in batch.events:
            key = event.kv.key.decode("utf-8", "replace")
            col, place = self._place(key)
            if col is not None:
                yield col, key[place:], event.kv.mod_revision, None if event.kind == DELETE else event.kv.value


def _is_large(batch: Batch) -> bool:
    return sum(len(event.kv.value) for event in batch.events) > limits.ENCRYPT_INLINE
