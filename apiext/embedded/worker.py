"""A thread that runs functions in order, and passes their results to the event loop."""

import asyncio
from collections.abc import Callable
from queue import SimpleQueue
from threading import Thread
from typing import Any


class Worker:
    """Runs functions ("jobs") in order in a thread."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.get_running_loop()
        self._jobs: SimpleQueue[tuple[Callable[[], Any], Callable[[Any], None]] | None] = SimpleQueue()
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def do(self, job: Callable[[], Any], done: Callable[[Any], None]) -> None:
        """Run a job in the thread.

        ``done`` is called on the event loop, with the result or the exception of the job.
        """
        self._jobs.put((job, done))

    def close(self) -> None:
        """Wait until all jobs are done, and end the thread."""
        self._jobs.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (task := self._jobs.get()) is not None:
            job, done = task
            try:
                outcome = job()
            except Exception as error:  # ``done`` gets the exception
                outcome = error
            if not self._loop.is_closed():
                self._loop.call_soon_threadsafe(done, outcome)
            del task, job, done, outcome  # so that the waiting thread keeps no object alive
