"""The etcd watch of all keys below the root of a store."""

import asyncio
import logging
from collections.abc import Callable

from apiext.etcd.client import Etcd, WatchHandle, prefix_end
from apiext.etcd.errors import Closed, EtcdError
from apiext.storage import limits
from apiext.storage.dispatcher import Dispatcher
from apiext.storage.store import Unavailable

log = logging.getLogger(__name__)


class RootWatch:
    """The watch of all keys below the root.

    The watch is complete while it is open, since the cache then gets each change. If the watch ends, ``epoch``
    increases by one, unless the server itself has closed the watch or the client of etcd. All filled collections must
    then be read again at one revision. Then the watch opens again at this revision.
    """

    def __init__(self, etcd: Etcd, root: str, dispatcher: Dispatcher, on_lost: Callable[[], None]) -> None:
        """``dispatcher`` receives the changes; ``on_lost()`` is called when the watch has ended."""
        self._etcd = etcd
        self._root = root.encode()
        self._dispatcher = dispatcher
        self._on_lost = on_lost
        self._watch: WatchHandle | None = None
        self._complete = asyncio.Event()
        self.epoch = 0

    @property
    def is_complete(self) -> bool:
        """True while the watch is open, so that the cache misses no change."""
        return self._complete.is_set()

    @property
    def connected(self) -> bool:
        """True while the watch is open and etcd responds."""
        watch = self._watch
        return self._complete.is_set() and watch is not None and watch.connected and self._etcd.answering

    @property
    def usable(self) -> WatchHandle | None:
        """The watch while it is complete, else None.

        Without a complete watch, a write of this server must not be applied to the cache.
        """
        return self._watch if self._complete.is_set() else None

    def open(self, revision: int) -> None:
        """Watch the changes after ``revision``, which is the revision of all filled collections."""
        low, high = self._root, prefix_end(self._root)
        self._watch = self._etcd.watch(low, high, revision + 1, on_batch=self._dispatcher.on_batch, on_end=self._on_end)
        self._complete.set()

    def close(self) -> None:
        """End the watch, without a call of ``on_lost``."""
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    def request_progress(self) -> bool:
        """Request progress from etcd.

        Return False if etcd's responses are unreliable, or if there is no connection.
        """
        return self._watch is not None and self._watch.request_progress()

    async def wait_open(self) -> int:
        """Wait until the watch is complete, and return its epoch."""
        await self._complete.wait()
        return self.epoch

    async def wait_complete(self) -> int:
        """Wait until the watch is complete, and return its epoch.

        Raise Unavailable after limits.FRESH_WAIT seconds.
        """
        if not self._complete.is_set():
            try:
                async with asyncio.timeout(limits.FRESH_WAIT):
                    await self._complete.wait()
            except TimeoutError as error:
                raise Unavailable("the cache is being read again") from error
        return self.epoch

    def _on_end(self, error: EtcdError) -> None:
        if self._watch is None or isinstance(error, Closed):
            return
        log.error("the watch of the store ended, so all objects are read again: %s", error)
        self.epoch += 1
        self._complete.clear()
        self._on_lost()
