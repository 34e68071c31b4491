"""etcd leases for objects that go by themselves after a while; one lease serves many of them."""

import asyncio
from dataclasses import dataclass
from typing import Protocol

from apiext import limits


class Granter(Protocol):
    """What is needed of the etcd client."""

    async def lease_grant(self, ttl: int) -> int:
        """Return the id of a new lease."""


@dataclass(slots=True)
class _Lease:
    id: int
    until: float  # loop time until which further objects may share it
    left: int  # how many may


class Leases:
    """Leases by time to live; an object stays at least its time, and at most ``limits.LEASE_SHARED`` seconds longer."""

    def __init__(self, etcd: Granter) -> None:
        self._etcd = etcd
        self._leases: dict[int, _Lease] = {}
        self._granting = asyncio.Lock()

    async def lease(self, ttl: int) -> int:
        """Return the lease for an object that is to live ``ttl`` seconds, 0 for one that stays; raises EtcdError."""
        if not ttl:
            return 0
        async with self._granting:
            now = asyncio.get_running_loop().time()
            known = self._leases.get(ttl)
            if known is None or known.until < now or not known.left:
                granted = await self._etcd.lease_grant(ttl + limits.LEASE_SHARED)
                known = self._leases[ttl] = _Lease(granted, now + limits.LEASE_SHARED, limits.LEASE_OBJECTS)
            known.left -= 1
            return known.id

    def forget(self, lease: int) -> None:
        """Never give out a lease again, since etcd does not know it."""
        self._leases = {ttl: known for ttl, known in self._leases.items() if known.id != lease}
