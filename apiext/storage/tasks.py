"""Background tasks of a store, in the task group of the server."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class Tasks:
    """Tasks that end with the store, and one timer. Tasks can begin only after ``start``."""

    def __init__(self) -> None:
        self._group: asyncio.TaskGroup | None = None
        self._running: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None

    @property
    def started(self) -> bool:
        """True after the call of ``start``."""
        return self._group is not None

    def start(self, group: asyncio.TaskGroup) -> None:
        """Run all later tasks in this group."""
        self._group = group

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine as a task."""
        assert self._group is not None
        task = self._group.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)

    def repeat(self, seconds: float, call: Callable[[], None]) -> None:
        """Call a function every ``seconds`` until ``stop``."""

        def tick() -> None:
            self.repeat(seconds, call)  # set the timer first, so that it continues if the call raises an exception
            call()

        self._timer = asyncio.get_running_loop().call_later(seconds, tick)

    async def stop(self) -> None:
        """Cancel the timer and all tasks, and wait until they have ended."""
        if self._timer is not None:
            self._timer.cancel()
        tasks = list(self._running)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
