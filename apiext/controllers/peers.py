"""Consistency of the workers behind one port: configuration that one of them has confirmed takes effect in all.

Objects need none of this, since each read gets the head revision from etcd and each write compares revisions. But a
definition that a client has seen Established, or a role that it has just written, must apply to its next request, which
another worker may get.
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

# Seconds between reads of the other workers' revisions.
WORKER_LOOK = 0.001

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
"""Cached resources that configure how requests are answered."""


class Peers:
    """Publishes this worker's revision, and waits for the other workers."""

    def __init__(self, worker: Worker, store: CachedStore, settled: Callable[[], Awaitable[None]]) -> None:
        """``settled()`` returns once the catalog reflects every definition that the cache has."""
        self._progress = WorkerProgress(worker.progress, worker.of)
        self._number = worker.number
        self._store = store
        self._settled = [settled]
        self._latest = 0  # of the configuration
        self._still: dict[int, int] = {}  # worker → how far it had come when it was not waited for any longer
        self._loop = Loop("peers", lambda _: self._publish(), width=1)
        self._timer: asyncio.TimerHandle | None = None

    def follow(self) -> None:
        """Record the revision of the configuration, and follow its changes."""
        for resource in CONFIGURATION:
            collection = self._store.collection(resource)
            if collection is not None:
                collection.following.subscribe(self._changed)
                self._latest = max((self._latest, *(entry.revision for entry in collection.state.readable())))

    def await_too(self, settled: Callable[[], Awaitable[None]]) -> None:
        """Count a revision as reached only when ``settled()`` has returned, too."""
        self._settled.append(settled)

    async def join(self, group: asyncio.TaskGroup) -> None:
        """Join the workers that are waited for; return once this worker has all earlier configuration."""
        self._progress.put(self._number, self._store.revision)
        self._beat()
        self._loop.start(group)
        await self._store.fresh()
        await self._loop.run("")

    async def stop(self) -> None:
        """Stop the reports; the supervisor publishes that this worker left."""
        if self._timer is not None:
            self._timer.cancel()
        self._progress.stop_beats(self._number)
        await self._loop.stop()

    async def everywhere(self, written: GroupResource | None = None) -> None:
        """Wait, at most storage_limits.FRESH_WAIT, until all workers use the configuration that this one has.

        ``written`` is the written object, if it may be no configuration. A worker that stands still is waited for once
        only.
        """
        wanted = self._latest
        if (written is not None and written not in CONFIGURATION) or not self._awaited(wanted):
            return
        try:
            async with asyncio.timeout(storage_limits.FRESH_WAIT):
                while self._awaited(wanted):  # noqa: ASYNC110 - other processes set no events
                    await asyncio.sleep(WORKER_LOOK)
        except TimeoutError:
            self._still |= self._progress.behind(wanted)
            log.warning("not all workers use the configuration of revision %d yet", wanted)

    def _awaited(self, wanted: int) -> bool:
        """Report whether a worker is behind, and has advanced since the last check."""
        return any(self._still.get(number) != revision for number, revision in self._progress.behind(wanted).items())

    def _beat(self) -> None:
        """Show the supervisor that the loop turns."""
        self._progress.beat(self._number)
        self._timer = asyncio.get_running_loop().call_later(server_limits.WORKER_BEAT, self._beat)

    def _changed(self, change: Change) -> None:
        self._latest = change.entry.revision  # not the highest: a store may go back in time
        self._loop.add("")

    async def _publish(self) -> None:
        revision = self._store.revision
        for settled in self._settled:
            await settled()
        self._progress.put(self._number, revision)
