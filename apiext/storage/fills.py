"""Fills the cached collections from etcd."""

import asyncio
import logging
from collections.abc import Mapping
from time import perf_counter

from apiext.storage import limits, metrics
from apiext.storage.collection import Collection
from apiext.storage.dispatcher import Dispatcher
from apiext.storage.etcd_store import EtcdStore
from apiext.storage.progress import Progress
from apiext.storage.root_watch import RootWatch
from apiext.storage.store import StoreError

log = logging.getLogger(__name__)

_FIRST_PAUSE, _LAST_PAUSE = 0.05, 2.0  # seconds between two attempts of a fill


class Fills:
    """Reads new collections into the cache, and those whose cached state is no longer usable.

    After the end of the root watch, all collections are read again.
    """

    def __init__(
        self,
        store: EtcdStore,
        collections: Mapping[str, Collection],
        progress: Progress,
        dispatcher: Dispatcher,
        watch: RootWatch,
    ) -> None:
        self._store = store
        self._collections = collections
        self._progress = progress
        self._dispatcher = dispatcher
        self._watch = watch
        self._parallel = asyncio.Semaphore(limits.FILL_PARALLEL)
        self.complete = False
        """True after ``wait`` has returned."""
        self.lost = 0
        """The last revision before an older state of the store was restored, 0 if there was no restore."""

    async def wait(self, seconds: float) -> None:
        """Wait until all present collections are filled, at most ``seconds``."""
        waited = [col for col in self._collections.values() if not col.state.ready]
        try:
            async with asyncio.timeout(seconds):
                for col in waited:
                    await col.wait_ready()
        except TimeoutError:
            late = ", ".join(str(col.resource) for col in waited if not col.state.ready)
            log.warning(
                "the server is ready, but the objects of %s are not read yet; until then, lists of them fail with 429",
                late,
            )
        self.complete = True

    async def fill(self, col: Collection) -> None:
        """Read a collection at one revision. Meanwhile the collection buffers later events.

        Retry until this succeeds, or until the collection is dropped.
        """
        pause, began_waiting = _FIRST_PAUSE, perf_counter()
        labels = (col.resource.group, col.resource.resource)
        while not col.dropped:
            epoch = await self._watch.wait_open()
            try:
                async with self._parallel:
                    col.unready()  # buffer changes again, since fill_all may have made the collection ready
                    col.drop_early()
                    encryption, began = col.values.encryption, perf_counter()
                    state, broken, revision = await self._store.read_collection(col, 0)
                    self._store.record_duration("list", col.resource, began)
                reached = await self._progress.reach(revision)
                if reached and epoch == self._watch.epoch and encryption is col.values.encryption and not col.dropped:
                    col.announce(col.load(state, broken, revision))
                    metrics.INITIALIZATION.observe(perf_counter() - began_waiting, *labels)
                    return
            except StoreError as error:
                metrics.INITIALIZATION_ERRORS.slot(*labels).value += 1
                log.warning("%s could not be read: %s", col.resource, error)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LAST_PAUSE)

    async def fill_all(self) -> None:
        """Read all filled collections again at one revision, and open the root watch at it."""
        pause = _FIRST_PAUSE
        while True:
            try:
                head = await self._store.head()
                filled = [col for col in self._collections.values() if col.state.ready]
                states = [await self._store.read_collection(col, head) for col in filled]
                break
            except StoreError as error:
                log.warning("the store could not be read again: %s", error)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LAST_PAUSE)
        self._dispatcher.drop_buffered()
        for col in filled:
            col.drop_early()  # a restored store may lack the buffered changes that wait for a data key
        changes = [
            (col, col.load(state, broken, head))
            for col, (state, broken, _) in zip(filled, states, strict=True)
            if not col.dropped
        ]
        seen = self._progress.revision
        self.lost = max(self.lost, seen if seen > head else 0)
        self._progress.restart(head)
        self._watch.open(head)
        for col, differences in changes:
            col.announce(differences)
