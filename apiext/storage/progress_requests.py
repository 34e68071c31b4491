"""Requests for the progress of the root watch."""

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
    """Requests the progress of the root watch from etcd if no event reports a revision that etcd has.

    If etcd does not respond, or its progress responses are unreliable, this class writes a key below the root, whose
    event reports the progress.
    """

    def __init__(
        self,
        store: EtcdStore,
        key: str,
        progress: Progress,
        watch: RootWatch,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        """``key`` is the key to write; ``spawn`` runs a coroutine as a task."""
        self._store = store
        self._key = key
        self._progress = progress
        self._watch = watch
        self._spawn = spawn
        self._requesting = False
        self._touched = (0, 0)  # epoch of the watch and revision of the last write

    def request(self, revision: int, times: int) -> None:
        """Start a task that requests progress up to a revision.

        ``times`` is the number of requests for a waiting reader.
        """
        if not self._requesting and self._watch.is_complete:
            self._requesting = True
            self._spawn(self._request(revision, times))

    async def touch(self) -> None:
        """Write the key, unless the event of the last write is still missing."""
        epoch = self._watch.epoch
        if self._touched > (epoch, self._progress.revision):
            return
        try:
            kv = await self._store.get(self._key)
            result = await self._store.put(self._key, b"{}\n", kv.mod_revision if kv else 0, None)
            if result.ok:  # not after a conflict, since the write of another server may be too old
                self._touched = (epoch, result.revision)
        except StoreError as error:
            log.warning("the progress of the watch could not be requested: %s", error)

    async def _request(self, revision: int, times: int) -> None:
        try:
            head = await self._store.head()
            if head < revision or self._progress.revision >= revision:
                return
            if times > limits.PROGRESS_REQUESTS or not self._watch.request_progress():
                await self.touch()
        except StoreError as error:
            log.warning("the progress of the watch could not be requested: %s", error)
        finally:
            self._requesting = False
