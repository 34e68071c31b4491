"""etcd leases for objects that go by themselves after a while; one lease serves many of them."""

import asyncio
from typing import Protocol

from msgspec import Struct

from apiext.etcd.errors import EtcdError
from apiext.storage import limits


class Granter(Protocol):
    """The part of the etcd client that leases use."""

    async def lease_grant(self, ttl: int) -> int:
        """Return the id of a new lease."""


class _Lease(Struct):
    id: int
    until: float  # loop time until which further objects may share it
    left: int  # how many may


class Leases:
    """Leases by time to live, shared by objects that are written shortly one after the other.

    An object lives at least its time to live, and at most LEASE_SHARE of it or LEASE_SHARED seconds longer, whichever
    is less (upstream: leaseManager). Below 20 seconds that is no whole second, and each object has its own lease.
    """

    def __init__(self, etcd: Granter) -> None:
        self._etcd = etcd
        self._leases: dict[int, _Lease] = {}
        self._granting = asyncio.Lock()
        self._failed: tuple[float, EtcdError | None] = 0.0, None  # loop time and error of the last grant that failed

    async def lease(self, ttl: int) -> int:
        """Return the lease for an object that is to live ``ttl`` seconds; raises EtcdError."""
        loop = asyncio.get_running_loop()
        asked = loop.time()
        async with self._granting:
            now = loop.time()
            when, error = self._failed
            if error is not None and when > asked:
                raise error.with_traceback(None)  # earlier callers have waited for the response already
            known = self._leases.get(ttl)
            if known is None or known.until <= now or not known.left:
                shared = min(int(ttl * limits.LEASE_SHARE), limits.LEASE_SHARED)
                granted = await self._granted(ttl + shared)
                known = self._leases[ttl] = _Lease(granted, now + shared, limits.LEASE_OBJECTS)
            known.left -= 1
            return known.id

    async def _granted(self, ttl: int) -> int:
        try:
            return await self._etcd.lease_grant(ttl)
        except EtcdError as error:
            self._failed = asyncio.get_running_loop().time(), error
            raise

    def forget(self, lease: int) -> None:
        """Never give out a lease again, since etcd does not know it."""
        self._leases = {ttl: known for ttl, known in self._leases.items() if known.id != lease}
