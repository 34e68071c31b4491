"""Threads for work that may block, such as writes to a disk.

A disk that hangs must not block the event loop or the shutdown.
"""

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

log = logging.getLogger(__name__)

T = TypeVar("T")


class Worker:
    """A daemon thread that runs queued work in order; it starts with the first job."""

    __slots__ = ("_jobs", "_name", "_thread")

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def run(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Queue work; return a future of its result."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()

        def job() -> None:
            settle: Callable[[Any], None]
            try:
                settle, found = future.set_result, work()
            except BaseException as error:  # the future raises it
                settle, found = future.set_exception, error  # type: ignore[assignment]
            with contextlib.suppress(RuntimeError):  # the event loop is closed: no caller waits
                loop.call_soon_threadsafe(_settled, future, settle, found)

        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._thread.start()
        self._jobs.put(job)
        return future

    def stop(self) -> None:
        """End the thread after its queued work, without waiting."""
        self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()


def _settled(future: asyncio.Future[Any], settle: Callable[[Any], None], found: Any) -> None:
    if not future.done():
        settle(found)


class Background:
    """Runs background jobs in a thread, one at a time.

    A new job replaces a queued job that has not started.
    """

    __slots__ = ("_lock", "_next", "_runs")

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next: Callable[[], None] | None = None
        self._runs = False

    def __call__(self, work: Callable[[], None]) -> None:
        """Queue a job."""
        with self._lock:
            self._next = work
            if self._runs:
                return
            self._runs = True
        threading.Thread(target=self._run, name="audit log files", daemon=True).start()

    def _run(self) -> None:
        while True:
            with self._lock:
                work, self._next = self._next, None
                if work is None:
                    self._runs = False
                    return
            try:
                work()
            except Exception:  # a bug; later jobs must run
                log.exception("a background task of the audit log failed")
