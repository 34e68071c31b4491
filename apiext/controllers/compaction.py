"""Periodic compaction of the store, by default at upstream's interval (OPS-002)."""

import asyncio

from apiext.storage.compaction import Compactor


class Compaction:
    """Runs the compaction loop of the store. Servers with a common store share the work."""

    def __init__(self, compactor: Compactor, every: float) -> None:
        self._compactor = compactor
        self._every = every
        self._task: asyncio.Task[None] | None = None

    def start(self, group: asyncio.TaskGroup) -> None:
        """Start the loop. With an interval of 0 seconds, do nothing."""
        if self._every > 0:
            self._task = group.create_task(self._compactor.run(self._every))

    async def stop(self) -> None:
        """Stop the loop. This is also safe during a compaction."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
