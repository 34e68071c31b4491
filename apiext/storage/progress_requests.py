"""Requests for the progress of the root watch, the etcd watch of all keys below the prefix."""

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
    """Requests the progress of the root watch for readers that wait for a revision.

    It sends requests only if etcd has the revision, but the cache lacks it. If etcd leaves several requests unanswered,
    or its progress responses are unreliable, this class writes a key below the prefix. The watch event of this write
    reports the progress.
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
        self._touched = (0, 0)  # at the last write: (RootWatch.epoch, revision of the write)

    def request(self, revision: int, times: int) -> None:
        """Start a task that requests progress up to a revision.

        Do nothing if such a task runs or the watch is not open. ``times`` is 1 for the first request, and increases
        with each further request while readers wait.
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
            # After a conflict, another server has written the key, and the watch may already have this event. So the
            # next call writes again.
            if result.ok:
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
