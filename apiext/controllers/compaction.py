"""Compaction of etcd's history, as often as upstream does it (OPS-002)."""

import asyncio

from apiext.storage.compaction import Compactor


class Compaction:
    """Runs the store's compaction loop until it is stopped; several servers share the work."""

    def __init__(self, compactor: Compactor, every: float) -> None:
        self._compactor = compactor
        self._every = every
        self._task: asyncio.Task[None] | None = None

    def start(self, group: asyncio.TaskGroup) -> None:
        """Begin; an interval of 0 seconds means never."""
        if self._every > 0:
            self._task = group.create_task(self._compactor.run(self._every))

    async def stop(self) -> None:
        """Stop between two compactions, or in the middle of one: nothing is lost."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
