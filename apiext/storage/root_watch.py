"""The one watch of a store: all changes below its root."""

import asyncio
import logging
from collections.abc import Callable

from apiext.etcd.client import Etcd, WatchHandle, prefix_end
from apiext.etcd.errors import Closed, EtcdError
from apiext.storage import limits
from apiext.storage.inlet import Inlet
from apiext.storage.store import Unavailable

log = logging.getLogger(__name__)


class RootWatch:
    """The watch below the root. It is whole from ``open`` until it ends; each end begins another ``epoch``.

    After an end, the collections must be read again at one revision before the watch opens there.
    """

    def __init__(self, etcd: Etcd, root: str, inlet: Inlet, lost: Callable[[], None]) -> None:
        """``inlet`` gets the changes; ``lost()`` is called when the watch has ended."""
        self._etcd = etcd
        self._root = root.encode()
        self._inlet = inlet
        self._lost = lost
        self._watch: WatchHandle | None = None
        self._whole = asyncio.Event()
        self.epoch = 0

    @property
    def is_whole(self) -> bool:
        """True while the cache has all changes that the watch brought."""
        return self._whole.is_set()

    @property
    def connected(self) -> bool:
        """True while the watch is open and etcd answers."""
        watch = self._watch
        return self._whole.is_set() and watch is not None and watch.connected and self._etcd.answering

    @property
    def usable(self) -> WatchHandle | None:
        """The watch while it is whole, else None: only then a change may be applied before its event comes."""
        return self._watch if self._whole.is_set() else None

    def open(self, revision: int) -> None:
        """Watch the changes after a revision, which all filled collections are at."""
        low, high = self._root, prefix_end(self._root)
        self._watch = self._etcd.watch(low, high, revision + 1, on_batch=self._inlet.on_batch, on_end=self._on_end)
        self._whole.set()

    def close(self) -> None:
        """End the watch for good."""
        if self._watch is not None:
            self._watch.cancel()
            self._watch = None

    def request_progress(self) -> bool:
        """Ask etcd how far the watch has come; return False if its answer could not be trusted."""
        return self._watch is not None and self._watch.request_progress()

    async def opened(self) -> int:
        """Wait until the watch is whole; return its epoch."""
        await self._whole.wait()
        return self.epoch

    async def whole(self) -> int:
        """Return the epoch of a whole watch; raises Unavailable if it is not whole within limits.FRESH_WAIT."""
        if not self._whole.is_set():
            try:
                async with asyncio.timeout(limits.FRESH_WAIT):
                    await self._whole.wait()
            except TimeoutError as error:
                raise Unavailable("the cache is being read again") from error
        return self.epoch

    def _on_end(self, error: EtcdError) -> None:
        if self._watch is None or isinstance(error, Closed):
            return
        log.error("the watch of the store ended, everything is read again: %s", error)
        self.epoch += 1
        self._whole.clear()
        self._lost()
