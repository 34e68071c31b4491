"""etcd leases for objects that expire, such as events. Many objects share a lease."""

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
    until: float  # event loop time until which further objects may share the lease
    left: int  # the number of further objects that may share the lease


class Leases:
    """The current lease for each time to live.

    Objects that are written shortly after each other share a lease. So an object may expire too late: by at most its
    time to live multiplied by LEASE_SHARE, and by at most LEASE_SHARED seconds (as in upstream's leaseManager). If the
    time to live is below 20 seconds, each object has its own lease.
    """

    def __init__(self, etcd: Granter) -> None:
        self._etcd = etcd
        self._leases: dict[int, _Lease] = {}
        self._granting = asyncio.Lock()
        self._failed: tuple[float, EtcdError | None] = 0.0, None  # event loop time and error of the last failed grant

    async def lease(self, ttl: int) -> int:
        """Return a lease for an object that expires after ``ttl`` seconds; raise EtcdError."""
        loop = asyncio.get_running_loop()
        called = loop.time()
        async with self._granting:
            now = loop.time()
            failed_at, error = self._failed
            if error is not None and failed_at > called:
                raise error.with_traceback(None)  # a grant failed while this caller waited for the lock
            lease = self._leases.get(ttl)
            if lease is None or lease.until <= now or not lease.left:
                shared = min(int(ttl * limits.LEASE_SHARE), limits.LEASE_SHARED)
                granted = await self._grant(ttl + shared)
                lease = self._leases[ttl] = _Lease(granted, now + shared, limits.LEASE_OBJECTS)
            lease.left -= 1
            return lease.id

    async def _grant(self, ttl: int) -> int:
        try:
            return await self._etcd.lease_grant(ttl)
        except EtcdError as error:
            self._failed = asyncio.get_running_loop().time(), error
            raise

    def remove(self, lease: int) -> None:
        """Remove a lease that etcd no longer has."""
        self._leases = {ttl: one for ttl, one in self._leases.items() if one.id != lease}
