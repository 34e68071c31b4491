"""Requests that make the root watch tell how far it has come."""

import logging
from collections.abc import Callable, Coroutine
from typing import Any

from apiext.storage import limits
from apiext.storage.etcd_store import EtcdStore
from apiext.storage.progress import Progress
from apiext.storage.root_watch import RootWatch
from apiext.storage.store import StoreError

log = logging.getLogger(__name__)


class ProgressRequests:
    """Asks for the progress of the root watch if no event brings a revision that has happened.

    A request to etcd comes first. If etcd does not answer, or its answers cannot be trusted, a write of a key below the
    root makes an event.
    """

    def __init__(
        self,
        store: EtcdStore,
        key: str,
        progress: Progress,
        watch: RootWatch,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        """``key`` is the key to write; ``spawn`` runs a task."""
        self._store = store
        self._key = key
        self._progress = progress
        self._watch = watch
        self._spawn = spawn
        self._asking = False
        self._touched = (0, 0)  # epoch of the watch and revision of the last write

    def nudge(self, revision: int, times: int) -> None:
        """Ask in a task whether a revision has happened; a reader waits for it for the ``times``-th time."""
        if not self._asking and self._watch.is_whole:
            self._asking = True
            self._spawn(self._ask(revision, times))

    async def touch(self) -> None:
        """Write the key, unless the event of the last write has not come yet."""
        epoch = self._watch.epoch
        if self._touched > (epoch, self._progress.revision):
            return
        try:
            kv = await self._store.get(self._key)
            result = await self._store.put(self._key, b"{}\n", kv.mod_revision if kv else 0, None)
            if result.ok:  # after a conflict the key of another server may be too old: the next call tries again
                self._touched = (epoch, result.revision)
        except StoreError as error:
            log.warning("no progress of the watch: %s", error)

    async def _ask(self, revision: int, times: int) -> None:
        try:
            head = await self._store.head()
            if head < revision or self._progress.revision >= revision:
                return
            if times > limits.PROGRESS_ASKS or not self._watch.request_progress():
                await self.touch()
        except StoreError as error:
            log.warning("no progress of the watch: %s", error)
        finally:
            self._asking = False
