"""The revision of the cache, and the callers that wait for a later revision.

See RV-002, RV-017.
"""

import asyncio
from collections.abc import Callable
from heapq import heappop, heappush
from itertools import count
from typing import Protocol

from apiext.storage import limits

# Seconds that a read waits for a revision before the server requests progress from etcd.
PROGRESS_AFTER = 0.02


class Reached(Protocol):
    """An object with a revision, which increases."""

    @property
    def revision(self) -> int:
        """The current revision."""


class Progress:
    """The revision of the cache.

    A write of a key outside of the server's prefix increases etcd's revision, but the watch of the prefix gets no event
    of this write. So if callers have waited for PROGRESS_AFTER seconds, ``request(revision, times)`` is called to
    request progress from etcd. The call is repeated while callers wait. ``revision`` is the lowest revision that they
    wait for, ``times`` is the number of the call, from 1 on.

    If such writes seem frequent, the first call is made at once. They seem frequent if the last increase of the
    revision while callers waited came with a progress response, not with an event.
    """

    __slots__ = ("_foreign", "_order", "_request", "_timer", "_waiters", "revision")

    def __init__(self, request: Callable[[int, int], None]) -> None:
        self.revision = 0
        self._foreign = False
        self._request = request
        self._order = count()
        self._timer: asyncio.TimerHandle | None = None
        self._waiters: list[tuple[int, int, asyncio.Future[None]]] = []

    def advance(self, revision: int, by_event: bool = True) -> None:
        """Record that the cache has all changes up to a revision.

        ``by_event`` is False for a progress response.
        """
        if revision <= self.revision:
            return
        self.revision = revision
        waiters = self._waiters
        if waiters:
            self._foreign = not by_event
        while waiters and waiters[0][0] <= revision:
            _release(heappop(waiters)[2])
        if not waiters and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def restart(self, revision: int) -> None:
        """Set the revision, which may be lower than before if the store was restored."""
        self.revision = revision - 1
        self.advance(revision)

    async def reach(self, revision: int, timeout: float = limits.FRESH_WAIT) -> bool:
        """Wait until the cache has reached the revision, and return True.

        Return False if this takes longer than ``timeout`` seconds, or if ``close`` ends the wait.
        """
        if self.revision >= revision:
            return True
        loop = asyncio.get_running_loop()
        done: asyncio.Future[None] = loop.create_future()
        waiter = (revision, next(self._order), done)
        heappush(self._waiters, waiter)
        if self._timer is None:
            # While other programs write keys outside of the prefix, request progress immediately.
            self._timer = loop.call_later(0 if self._foreign else PROGRESS_AFTER, self._request_progress, 1)
        timer = loop.call_later(timeout, _release, done)
        try:
            await done
        finally:
            timer.cancel()
        return self.revision >= revision

    def close(self) -> None:
        """Wake all waiting callers."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._waiters:
            _release(self._waiters.pop()[2])

    def _request_progress(self, times: int) -> None:
        self._waiters = [waiter for waiter in self._waiters if not waiter[2].done()]
        self._waiters.sort()
        if not self._waiters:
            self._timer = None
            return
        self._request(self._waiters[0][0], times)
        delay = min(0.5, PROGRESS_AFTER * 2**times)
        self._timer = asyncio.get_running_loop().call_later(delay, self._request_progress, times + 1)


def _release(done: asyncio.Future[None]) -> None:
    if not done.done():
        done.set_result(None)
