"""Consistency of the workers behind one port.

The response to a write of configuration waits for all workers. Other objects do not need this, since a consistent read
gets the head revision from etcd and a write compares revisions. But after a client has written a role, or has received
a definition as Established, its next request may need this role or definition, and another worker may receive this
request.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from apiext import limits as server_limits
from apiext.admission import configured
from apiext.admission.attributes import NAMESPACES
from apiext.auth import roles
from apiext.config import Worker
from apiext.controllers.definitions import DEFINITIONS
from apiext.controllers.guards import GUARDS
from apiext.controllers.loop import Loop
from apiext.meta.names import GroupResource
from apiext.storage import limits as storage_limits
from apiext.storage.cached_store import CachedStore
from apiext.storage.history import Change
from apiext.system.worker_progress import WorkerProgress
from apiext.verbs.reviews import ACCOUNTS, SECRETS

# Seconds between two reads of the revisions of other workers.
WORKER_POLL = 0.001

log = logging.getLogger(__name__)

CONFIGURATION = (
    DEFINITIONS,
    GUARDS,
    NAMESPACES,
    ACCOUNTS,
    SECRETS,
    *roles.ROLES,
    *roles.BINDINGS,
    configured.MUTATING,
    configured.VALIDATING,
    configured.POLICIES,
    configured.BINDINGS,
    configured.MUTATING_POLICIES,
    configured.MUTATING_BINDINGS,
)
"""The resources whose objects configure how the server processes requests."""


class Peers:
    """Publishes the revision of this worker, and waits for other workers."""

    def __init__(self, worker: Worker, store: CachedStore, settled: Callable[[], Awaitable[None]]) -> None:
        """``settled()`` waits until the catalog has every cached definition."""
        self._progress = WorkerProgress(worker.progress, worker.of)
        self._number = worker.number
        self._store = store
        self._settled = [settled]
        self._latest = 0  # the revision of the newest change of configuration
        # number of a worker → its revision at the time when a wait for this worker timed out
        self._stalled: dict[int, int] = {}
        self._loop = Loop("peers", lambda _: self._publish(), width=1)
        self._timer: asyncio.TimerHandle | None = None

    def follow(self) -> None:
        """Record the newest revision of the configuration, and subscribe to its changes."""
        for resource in CONFIGURATION:
            collection = self._store.collection(resource)
            if collection is not None:
                collection.feed.subscribe(self._changed)
                self._latest = max((self._latest, *(entry.revision for entry in collection.state.readable())))

    def add_settled(self, settled: Callable[[], Awaitable[None]]) -> None:
        """Before each publication of a revision, also wait for ``settled()``."""
        self._settled.append(settled)

    async def join(self, group: asyncio.TaskGroup) -> None:
        """Make other workers wait for this worker from now on.

        Return when this worker uses all configuration that was written before this call.
        """
        self._progress.put(self._number, self._store.revision)
        self._beat()
        self._loop.start(group)
        await self._store.fresh()
        await self._loop.run("")

    async def stop(self) -> None:
        """Stop publishing. The supervisor publishes that this worker has ended."""
        if self._timer is not None:
            self._timer.cancel()
        self._progress.stop_beats(self._number)
        await self._loop.stop()

    async def everywhere(self, written: GroupResource | None = None) -> None:
        """Wait until all workers use the configuration of this worker.

        The wait is at most storage_limits.FRESH_WAIT seconds. ``written`` is the resource of a written object. If it is
        not in CONFIGURATION, return at once. After a timeout, do not wait again for the late worker until its revision
        has changed.
        """
        wanted = self._latest
        if (written is not None and written not in CONFIGURATION) or not self._awaited(wanted):
            return
        try:
            async with asyncio.timeout(storage_limits.FRESH_WAIT):
                while self._awaited(wanted):  # noqa: ASYNC110 - another process cannot set an asyncio.Event
                    await asyncio.sleep(WORKER_POLL)
        except TimeoutError:
            self._stalled |= self._progress.behind(wanted)
            log.warning("not all workers use the configuration of revision %d yet", wanted)

    def _awaited(self, wanted: int) -> bool:
        """Report whether a worker is behind.

        Ignore workers without progress since the last wait for them timed out.
        """
        return any(self._stalled.get(number) != revision for number, revision in self._progress.behind(wanted).items())

    def _beat(self) -> None:
        """Send periodic heartbeats to the supervisor, which show that the event loop is not blocked."""
        self._progress.beat(self._number)
        self._timer = asyncio.get_running_loop().call_later(server_limits.WORKER_BEAT, self._beat)

    def _changed(self, change: Change) -> None:
        self._latest = change.entry.revision  # not the maximum, since a restored store has lower revisions
        self._loop.add("")

    async def _publish(self) -> None:
        revision = self._store.revision
        for settled in self._settled:
            await settled()
        self._progress.put(self._number, revision)
