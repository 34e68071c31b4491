"""Compaction of etcd's history, as often as upstream does it (OPS-002)."""

import asyncio

from apiext.storage import compaction as compaction_module
from apiext.storage.cached_store import CachedStore


class Compaction:
    """Runs the store's compaction loop until it is stopped; several servers share the work."""

    def __init__(self, store: CachedStore, every: float = compaction_module.COMPACT_EVERY) -> None:
        self._store = store
        self._every = every
        self._task: asyncio.Task[None] | None = None

    def start(self, group: asyncio.TaskGroup) -> None:
        """Begin; an interval of 0 seconds means never."""
        if self._every > 0:
            self._task = group.create_task(self._store.compact_loop(self._every))

    async def stop(self) -> None:
        """Stop between two compactions, or in the middle of one: nothing is lost."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
