"""A lease that is kept alive as long as its owner wants."""

import asyncio
from typing import Protocol

from apiext.etcd import messages
from apiext.etcd.channel import FIRST_PAUSE, LAST_PAUSE, jittered
from apiext.etcd.errors import UNAVAILABLE, EtcdError
from apiext.etcd.transport import Transport


class Leases(Protocol):
    """What a kept lease needs of the client."""

    async def lease_grant(self, ttl: int) -> int:
        """Return a new lease."""

    async def lease_revoke(self, lease: int) -> None:
        """End a lease."""

    async def stream_connection(self) -> Transport:
        """Return the connection for streams."""


class KeptLease:
    """One lease of ``ttl`` seconds; ``run`` belongs into a task of the owner's TaskGroup."""

    def __init__(self, client: Leases, ttl: int) -> None:
        self.id = 0
        self.granted = asyncio.Event()
        self._client = client
        self._ttl = ttl
        self._over: asyncio.Future[EtcdError] | None = None

    async def run(self) -> None:
        """Grant the lease and keep it alive until it has run out in spite of that; revoke it when cancelled."""
        self.id = await self._client.lease_grant(self._ttl)
        self.granted.set()
        pause = FIRST_PAUSE
        try:
            while True:
                try:
                    error = await self._refresh(await self._client.stream_connection())
                except EtcdError as fault:
                    error = fault
                if error.message == "expired":
                    return
                await asyncio.sleep(jittered(pause))
                pause = min(pause * 2, LAST_PAUSE)
        except asyncio.CancelledError:
            await self._client.lease_revoke(self.id)
            raise

    async def _refresh(self, transport: Transport) -> EtcdError:
        over: asyncio.Future[EtcdError] = asyncio.get_running_loop().create_future()
        self._over = over
        stream = transport.stream(messages.LEASE_KEEP_ALIVE, self._on_message, self._on_end)
        request = messages.LeaseKeepAliveRequest(ID=self.id).SerializeToString()
        try:
            while not over.done():
                stream.send(request)
                await asyncio.wait([over], timeout=self._ttl / 3)
        finally:
            stream.cancel()
        return over.result()

    def _on_message(self, raw: bytes) -> None:
        if messages.LeaseKeepAliveResponse.FromString(raw).TTL <= 0:
            self._on_end(EtcdError(UNAVAILABLE, "expired"))

    def _on_end(self, error: EtcdError) -> None:
        if self._over is not None and not self._over.done():
            self._over.set_result(error)
