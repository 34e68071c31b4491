"""Leases. When a lease expires, all its keys are deleted."""

import asyncio
from collections.abc import Callable
from heapq import heappop, heappush

from apiext.embedded.wire import Record


class Lease:
    """A lease and its keys."""

    __slots__ = ("keys", "ttl")

    def __init__(self, ttl: int) -> None:
        self.ttl = ttl
        self.keys: set[bytes] = set()


class Leases:
    """All leases (``known``: id → lease).

    When a lease expires, ``expire(id, keys)`` is called. This function must drop the lease.
    """

    def __init__(self, expire: Callable[[int, list[bytes]], None]) -> None:
        self.known: dict[int, Lease] = {}
        self._expire = expire
        # a heap of (event loop time of the expiry, id); it may contain dropped leases
        self._due: list[tuple[float, int]] = []
        self._timer: asyncio.TimerHandle | None = None

    def add(self, lease: int, ttl: int, keys: list[bytes] | None = None) -> None:
        """Add a lease, which expires after its full time to live."""
        made = self.known[lease] = Lease(ttl)
        made.keys.update(keys or ())
        loop = asyncio.get_running_loop()
        heappush(self._due, (loop.time() + ttl, lease))
        self._wait()

    def drop(self, lease: int) -> Lease | None:
        """Drop a lease, but do not delete its keys. Return the lease, None if it does not exist."""
        return self.known.pop(lease, None)

    def move(self, key: bytes, before: Record | None, after: Record | None) -> None:
        """Update the key sets of leases after the record of a key has changed.

        None means that there is no record.
        """
        if before is not None and before.version and before.lease in self.known:
            self.known[before.lease].keys.discard(key)
        if after is not None and after.version and after.lease in self.known:
            self.known[after.lease].keys.add(key)

    def close(self) -> None:
        """Stop the expiry of leases."""
        self._due.clear()
        self._wait()

    def _wait(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        if self._due:
            self._timer = asyncio.get_running_loop().call_at(self._due[0][0], self._expire_due)

    def _expire_due(self) -> None:
        now = asyncio.get_running_loop().time()
        while self._due and self._due[0][0] <= now:
            _, lease = heappop(self._due)
            if lease in self.known:
                self._expire(lease, sorted(self.known[lease].keys))
        self._wait()
