"""The work queue of the controllers.

A run is a call of ``reconcile(key)``. The queue retries failed runs, and periodically runs all keys (resyncs).
"""

import asyncio
import logging
import random
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import islice
from typing import Any

from apiext.catalog.stored import Unreadable
from apiext.controllers import limits
from apiext.meta.status import StatusError
from apiext.storage.store import StoreError, Unavailable

# Maximum seconds before the first retry of a failed run, as in upstream's ItemExponentialFailureRateLimiter.
RETRY_FIRST = 0.005
# Seconds between two resyncs, like the resyncs of upstream's informers.
RESYNC_EVERY = 300.0

log = logging.getLogger(__name__)

Reconcile = Callable[[str], Awaitable[None]]
"""(key): brings the object of a key to the wanted state. After an exception, it is called again."""


@contextmanager
def retried_conflicts(*codes: int) -> Iterator[None]:
    """Turn a StatusError with one of these codes into a StoreError.

    The loop logs a StoreError only if it repeats. The caller passes codes that usually mean a conflict. But a webhook
    may deny with the same codes, so the pauses of the loop grow as after other errors.
    """
    try:
        yield
    except StatusError as error:
        if error.code not in codes:
            raise
        raise StoreError(error.message) from error


class Loop:
    """Runs ``reconcile(key)`` for queued keys, at most ``width`` keys at a time.

    A key has one run at a time. If ``add`` is called several times before the next run of a key starts, only this run
    follows. A failed run is repeated after a jittered pause. The pause doubles from ``RETRY_FIRST`` to
    ``limits.RETRY_LAST`` seconds.
    """

    def __init__(self, name: str, reconcile: Reconcile, *, width: int = 4) -> None:
        self._name = name
        self._reconcile = reconcile
        self._width = width
        self._group: asyncio.TaskGroup | None = None
        # queued keys in order; the removal of the first key of a plain dict is slow
        self._ready: OrderedDict[str, None] = OrderedDict()
        self._running: dict[str, asyncio.Task[Exception | None]] = {}
        self._failures: dict[str, int] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._waiting: dict[str, list[asyncio.Future[None]]] = {}
        self._keys: Callable[[], Iterable[str]] | None = None
        self._resync: asyncio.TimerHandle | None = None
        self._stopped = False

    def start(self, group: asyncio.TaskGroup, keys: Callable[[], Iterable[str]] | None = None) -> None:
        """Start to run keys in tasks of the group.

        Add all ``keys()`` about every ``RESYNC_EVERY`` seconds.
        """
        self._group = group
        self._keys = keys
        if keys is not None:
            self._schedule_resync()
        self._pump()

    def add(self, key: str) -> None:
        """Queue the key, so that a run begins after this call.

        The run begins even during the pause after a failed run.
        """
        self._queue_now(key)

    def add_after(self, key: str, seconds: float) -> None:
        """Queue the key after ``seconds``, or earlier if an earlier time is set already."""
        if self._stopped:
            return
        loop, timer = asyncio.get_running_loop(), self._timers.get(key)
        if timer is not None:
            if timer.when() <= loop.time() + seconds:
                return
            timer.cancel()
        self._timers[key] = loop.call_later(seconds, self._queue_now, key)

    async def run(self, key: str) -> None:
        """Queue the key, wait for a run that begins after this call, and raise its exception."""
        if self._stopped:
            raise Unavailable(f"{self._name} is stopping")
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key, []).append(done)
        self._queue_now(key)
        await done

    async def settled(self) -> None:
        """Wait until the runs of all keys that are queued or running now have ended.

        The runs may end with or without an error.
        """
        loop = asyncio.get_running_loop()
        futures = []
        for key in self._ready:
            done: asyncio.Future[None] = loop.create_future()
            self._waiting.setdefault(key, []).append(done)
            futures.append(done)
        # This also waits for running keys, since their runs may process the change for which the caller waits.
        runs = [task for key, task in self._running.items() if key not in self._ready]
        await asyncio.gather(*futures, return_exceptions=True)
        if runs:
            await asyncio.wait(runs)

    @property
    def idle(self) -> bool:
        """True if no key is running or queued. A key in a pause after a failure does not count."""
        return not self._ready and not self._running

    async def stop(self) -> None:
        """Cancel the running keys and drop the queued keys. The task group stays open."""
        self._stopped = True
        for timer in (*self._timers.values(), *([self._resync] if self._resync else [])):
            timer.cancel()
        self._timers.clear()
        self._ready.clear()
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for key in list(self._waiting):
            self._complete(self._waiting.pop(key), Unavailable(f"{self._name} is stopping"))

    def _queue_now(self, key: str) -> None:
        if self._stopped:
            return
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
        self._ready[key] = None
        self._pump()

    def _pump(self) -> None:
        """Start queued keys that are not running, oldest first, until ``width`` keys run."""
        if self._group is None or self._stopped or len(self._running) >= self._width:
            return
        free = (key for key in self._ready if key not in self._running)
        for key in list(islice(free, self._width - len(self._running))):
            del self._ready[key]
            task = self._spawn(self._run_once(key))
            if task is None:
                return
            self._running[key] = task
            task.add_done_callback(partial(self._on_done, key, self._waiting.pop(key, [])))

    def _spawn(self, work: Coroutine[Any, Any, Exception | None]) -> asyncio.Task[Exception | None] | None:
        assert self._group is not None
        try:
            return self._group.create_task(work)
        except RuntimeError:  # the task group is ending, so this loop ends, too
            work.close()
            self._stopped = True
            return None

    async def _run_once(self, key: str) -> Exception | None:
        try:
            await self._reconcile(key)
        except Exception as failure:  # the loop must retry after every error of a controller
            self._retry(key, failure)
            return failure
        self._failures.pop(key, None)
        return None

    def _on_done(self, key: str, waiting: list[asyncio.Future[None]], task: asyncio.Task[Exception | None]) -> None:
        del self._running[key]
        error = Unavailable(f"{self._name} is stopping") if task.cancelled() else task.result()
        self._complete(waiting, error)
        self._pump()

    def _retry(self, key: str, failure: Exception) -> None:
        count = self._failures.get(key, 0)
        self._failures[key] = count + 1
        pause = min(limits.RETRY_LAST, RETRY_FIRST * 2 ** min(count, 30)) * random.uniform(0.5, 1.0)
        # After a conflict or a short failure of the store, a retry usually succeeds, so the error is logged only if it
        # repeats.
        may_pass = isinstance(failure, StoreError) and count < 3
        is_expected = isinstance(failure, StoreError | StatusError | Unreadable)
        is_logged = not may_pass and (count < limits.RETRIES_LOGGED or count % limits.RETRIES_LOGGED == 0)
        level = logging.WARNING if is_logged else logging.DEBUG
        exc_info = None if is_expected else failure  # an expected error is logged without its traceback
        log.log(level, "%s of %s failed (%s), retry in %.3f s", self._name, key, failure, pause, exc_info=exc_info)
        if not self._stopped and key not in self._ready:
            self.add_after(key, pause)

    def _schedule_resync(self) -> None:
        pause = RESYNC_EVERY * random.uniform(0.9, 1.1)
        self._resync = asyncio.get_running_loop().call_later(pause, self._add_all)

    def _add_all(self) -> None:
        if self._stopped or self._keys is None:
            return
        self._schedule_resync()  # scheduled first, so that an exception in ``_keys`` does not end the resyncs
        for key in list(self._keys()):
            self.add(key)

    @staticmethod
    def _complete(waiting: list[asyncio.Future[None]], error: Exception | None) -> None:
        for done in waiting:
            if done.done():
                continue
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)
