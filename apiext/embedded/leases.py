"""Leases: keys that are deleted together when their time is over."""

import asyncio
from collections.abc import Callable
from heapq import heappop, heappush

from apiext.embedded.wire import Record


class Lease:
    """One lease and the keys that it holds."""

    __slots__ = ("keys", "ttl")

    def __init__(self, ttl: int) -> None:
        self.ttl = ttl
        self.keys: set[bytes] = set()


class Leases:
    """All leases by id; ``expire(id, keys)`` is called when the time of one is over, and drops it."""

    def __init__(self, expire: Callable[[int, list[bytes]], None]) -> None:
        self.known: dict[int, Lease] = {}
        self._expire = expire
        self._due: list[tuple[float, int]] = []  # loop time and id; a lease that was dropped may still be here
        self._timer: asyncio.TimerHandle | None = None

    def add(self, lease: int, ttl: int, keys: list[bytes] | None = None) -> None:
        """Begin a lease, whose whole time is still to come."""
        made = self.known[lease] = Lease(ttl)
        made.keys.update(keys or ())
        loop = asyncio.get_running_loop()
        heappush(self._due, (loop.time() + ttl, lease))
        self._wait()

    def drop(self, lease: int) -> Lease | None:
        """Forget a lease; its keys stay as they are."""
        return self.known.pop(lease, None)

    def move(self, key: bytes, before: Record | None, after: Record | None) -> None:
        """Follow a key from one state to the next: each has its lease, or none."""
        if before is not None and before.version and before.lease in self.known:
            self.known[before.lease].keys.discard(key)
        if after is not None and after.version and after.lease in self.known:
            self.known[after.lease].keys.add(key)

    def close(self) -> None:
        """Let nothing expire any more."""
        self._due.clear()
        self._wait()

    def _wait(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        if self._due:
            self._timer = asyncio.get_running_loop().call_at(self._due[0][0], self._look)

    def _look(self) -> None:
        now = asyncio.get_running_loop().time()
        while self._due and self._due[0][0] <= now:
            _, lease = heappop(self._due)
            if lease in self.known:
                self._expire(lease, sorted(self.known[lease].keys))
        self._wait()
