"""Background tasks of an object, and a log with a limited rate."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from apiext.etcd import limits

log = logging.getLogger("apiext.etcd")


class RateLimitedLog:
    """Log of warnings of one kind, at most one warning in limits.LOG_EVERY seconds.

    The next warning contains the number of omitted warnings.
    """

    def __init__(self) -> None:
        self._due = float("-inf")
        self._omitted = 0

    def warning(self, text: str, *arguments: object) -> None:
        """Log a warning; only count it if the last one is less than LOG_EVERY seconds old."""
        now = asyncio.get_running_loop().time()
        if now < self._due:
            self._omitted += 1
            return
        more = f" ({self._omitted} more were not logged)" if self._omitted else ""
        self._due, self._omitted = now + limits.LOG_EVERY, 0
        log.warning(text + more, *arguments)


class Scope:
    """A TaskGroup that exists from ``open`` to ``close``, so that an object can own tasks."""

    def __init__(self) -> None:
        self._group: asyncio.TaskGroup | None = None
        self._root: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = asyncio.Event()
        self._failure: BaseException | None = None

    async def open(self) -> None:
        """Create the TaskGroup, so that ``spawn`` can start tasks."""
        opened = asyncio.Event()
        self._root = asyncio.get_running_loop().create_task(self._run(opened), name="etcd scope")
        await opened.wait()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None] | None:
        """Start a task. If the scope is not open, drop the coroutine and return None."""
        if self._group is None or self._closing.is_set():
            work.close()
            return None
        task = self._group.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def close(self) -> None:
        """Cancel all tasks and wait until they have ended."""
        self._closing.set()
        if self._root is not None:
            root, self._root = self._root, None
            await root

    async def wait_closed(self) -> None:
        """Wait until the scope is closed.

        A failed task also closes the scope; then raise an ExceptionGroup with the exception of the task.
        """
        await self._closing.wait()
        if self._failure is not None:
            raise self._failure

    async def _run(self, opened: asyncio.Event) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                self._group = group
                opened.set()
                await self._closing.wait()
                for task in list(self._tasks):
                    task.cancel()
        except* Exception as failure:
            log.exception("a task of the etcd client failed; the client is closed")
            self._failure = failure
        finally:
            self._closing.set()
            self._group = None
