"""The keyed queue under every controller: serial per key, coalescing, jittered backoff, resync."""

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

# Seconds before a controller repeats a failed run (upstream: ItemExponentialFailureRateLimiter).
RETRY_FIRST = 0.005
# Seconds between full reconciliations (upstream: informers' resync).
RESYNC_EVERY = 300.0

log = logging.getLogger(__name__)

Reconcile = Callable[[str], Awaitable[None]]
"""Bring the state of one key to the wanted state; a call that raises is repeated."""


@contextmanager
def retried_conflicts(*codes: int) -> Iterator[None]:
    """Run a key again after a conflict, at first without a log line: other errors are faults.

    After several conflicts log them, and pause longer each time: a webhook's denial may have any code.
    """
    try:
        yield
    except StatusError as error:
        if error.code not in codes:
            raise
        raise StoreError(error.message) from error


class Loop:
    """Runs ``reconcile(key)``: never twice at a time for a key, once for any number of ``add`` calls before it starts.

    A run that raises is logged, later ones of many now and then, and repeated after a jittered pause that doubles from
    ``RETRY_FIRST`` to ``limits.RETRY_LAST`` seconds. At most ``width`` keys run at a time; each key is queued once.
    """

    def __init__(self, name: str, reconcile: Reconcile, *, width: int = 4) -> None:
        self._name = name
        self._reconcile = reconcile
        self._width = width
        self._group: asyncio.TaskGroup | None = None
        self._ready: OrderedDict[str, None] = OrderedDict()  # keys to run in order of arrival; a dict is slow to empty
        self._running: dict[str, asyncio.Task[Exception | None]] = {}
        self._failures: dict[str, int] = {}
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._waiting: dict[str, list[asyncio.Future[None]]] = {}
        self._keys: Callable[[], Iterable[str]] | None = None
        self._resync: asyncio.TimerHandle | None = None
        self._stopped = False

    def start(self, group: asyncio.TaskGroup, keys: Callable[[], Iterable[str]] | None = None) -> None:
        """Run keys as tasks of the group; ``keys()`` is added again every ``RESYNC_EVERY`` seconds."""
        self._group = group
        self._keys = keys
        if keys is not None:
            self._schedule_resync()
        self._pump()

    def add(self, key: str) -> None:
        """Ask for a run of the key that begins after this call; it ends a pause after a failure."""
        self._now(key)

    def add_after(self, key: str, seconds: float) -> None:
        """Ask for a run in so many seconds, unless one is due before; one that is due later comes then."""
        if self._stopped:
            return
        loop, timer = asyncio.get_running_loop(), self._timers.get(key)
        if timer is not None:
            if timer.when() <= loop.time() + seconds:
                return
            timer.cancel()
        self._timers[key] = loop.call_later(seconds, self._now, key)

    async def run(self, key: str) -> None:
        """Run the key now and wait for a run that begins after this call. Its exceptions are raised."""
        if self._stopped:
            raise Unavailable(f"{self._name} is stopping")
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key, []).append(done)
        self._now(key)
        await done

    async def settled(self) -> None:
        """Wait until every key that was queued before this call has run once, successfully or not."""
        loop = asyncio.get_running_loop()
        futures = []
        for key in self._ready:
            done: asyncio.Future[None] = loop.create_future()
            self._waiting.setdefault(key, []).append(done)
            futures.append(done)
        # A key that runs now and is not queued again may have read the awaited change.
        runs = [task for key, task in self._running.items() if key not in self._ready]
        await asyncio.gather(*futures, return_exceptions=True)
        if runs:
            await asyncio.wait(runs)

    @property
    def idle(self) -> bool:
        """Report whether nothing runs and nothing is due now (a pause after a failure counts as idle)."""
        return not self._ready and not self._running

    async def stop(self) -> None:
        """Cancel running keys, drop queued ones; the group goes on."""
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
            self._answer(self._waiting.pop(key), Unavailable(f"{self._name} is stopping"))

    def _now(self, key: str) -> None:
        if self._stopped:
            return
        timer = self._timers.pop(key, None)
        if timer is not None:
            timer.cancel()
        self._ready[key] = None
        self._pump()

    def _pump(self) -> None:
        """Start what may run: the oldest keys that do not run already."""
        if self._group is None or self._stopped or len(self._running) >= self._width:
            return
        free = (key for key in self._ready if key not in self._running)
        for key in list(islice(free, self._width - len(self._running))):
            del self._ready[key]
            task = self._spawn(self._once(key))
            if task is None:
                return
            self._running[key] = task
            task.add_done_callback(partial(self._ran, key, self._waiting.pop(key, [])))

    def _spawn(self, work: Coroutine[Any, Any, Exception | None]) -> asyncio.Task[Exception | None] | None:
        assert self._group is not None
        try:
            return self._group.create_task(work)
        except RuntimeError:  # the group is ending: so are we
            work.close()
            self._stopped = True
            return None

    async def _once(self, key: str) -> Exception | None:
        try:
            await self._reconcile(key)
        except Exception as failure:  # the outermost filter of background work
            self._retry(key, failure)
            return failure
        self._failures.pop(key, None)
        return None

    def _ran(self, key: str, waiting: list[asyncio.Future[None]], task: asyncio.Task[Exception | None]) -> None:
        del self._running[key]
        error = Unavailable(f"{self._name} is stopping") if task.cancelled() else task.result()
        self._answer(waiting, error)
        self._pump()

    def _retry(self, key: str, failure: Exception) -> None:
        count = self._failures.get(key, 0)
        self._failures[key] = count + 1
        pause = min(limits.RETRY_LAST, RETRY_FIRST * 2 ** min(count, 30)) * random.uniform(0.5, 1.0)
        # A store that did not answer or a lost race heals by itself; what lasts is worth a line, but not each time.
        heals = isinstance(failure, StoreError) and count < 3
        foreseen = isinstance(failure, StoreError | StatusError | Unreadable)
        told = not heals and (count < limits.RETRIES_LOGGED or count % limits.RETRIES_LOGGED == 0)
        level = logging.WARNING if told else logging.DEBUG
        where = None if foreseen else failure  # the reason of such an error is its text
        log.log(level, "%s of %s failed (%s), again in %.3f s", self._name, key, failure, pause, exc_info=where)
        if not self._stopped and key not in self._ready:
            self.add_after(key, pause)

    def _schedule_resync(self) -> None:
        pause = RESYNC_EVERY * random.uniform(0.9, 1.1)
        self._resync = asyncio.get_running_loop().call_later(pause, self._add_all)

    def _add_all(self) -> None:
        if self._stopped or self._keys is None:
            return
        self._schedule_resync()  # first, so that it comes again whatever this one meets
        for key in list(self._keys()):
            self.add(key)

    @staticmethod
    def _answer(waiting: list[asyncio.Future[None]], error: Exception | None) -> None:
        for done in waiting:
            if done.done():
                continue
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)
