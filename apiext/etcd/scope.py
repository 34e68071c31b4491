"""The tasks of one object: a private TaskGroup that lives from its start to its close."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

from apiext.etcd import limits

log = logging.getLogger("apiext.etcd")


class Seldom:
    """Warnings of one kind, at most one line in an interval; the next line counts the omitted ones."""

    def __init__(self) -> None:
        self._due = float("-inf")
        self._left_out = 0

    def warning(self, text: str, *arguments: object) -> None:
        """Log a line, unless the interval of limits.LOG_EVERY has not passed."""
        now = asyncio.get_running_loop().time()
        if now < self._due:
            self._left_out += 1
            return
        more = f" ({self._left_out} more were not told)" if self._left_out else ""
        self._due, self._left_out = now + limits.LOG_EVERY, 0
        log.warning(text + more, *arguments)


class Scope:
    """Owns tasks that belong to an object instead of a block of code."""

    def __init__(self) -> None:
        self._group: asyncio.TaskGroup | None = None
        self._root: asyncio.Task[None] | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._closing = asyncio.Event()
        self._failure: BaseException | None = None

    async def open(self) -> None:
        """Open the scope for tasks."""
        opened = asyncio.Event()
        self._root = asyncio.get_running_loop().create_task(self._run(opened), name="etcd scope")
        await opened.wait()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None] | None:
        """Start a task; in a closed scope, drop it without starting it."""
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

    async def over(self) -> None:
        """Wait until the scope is closed. A failed task closes it, too; its exception is raised."""
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
