"""A connection to one of several endpoints, which is opened again whenever it ends."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence

from apiext.etcd import limits
from apiext.etcd.errors import UNAVAILABLE, AuthError, EtcdError, Unavailable, classify
from apiext.etcd.scope import Scope, log
from apiext.etcd.transport import TLS, Dial, Endpoint, Transport

SetUp = Callable[[Transport], Awaitable[None]]


def jittered(pause: float) -> float:
    """Return a random time from 0.5 to 1.5 times the pause.

    With random times, clients do not reconnect at the same time.
    """
    return pause * random.uniform(0.5, 1.5)


class Channel:
    """Keeps a connection to one of the endpoints open.

    While there is no connection, callers of ``connection`` wait.
    """

    def __init__(self, endpoints: Sequence[Endpoint], tls: TLS, dial: Dial, scope: Scope, set_up: SetUp) -> None:
        if not endpoints:
            raise ValueError("etcd needs at least one endpoint")
        self.endpoints = tuple(endpoints)
        self.live: Transport | None = None
        self.reason = "not connected yet"
        self._tls, self._dial, self._scope, self._set_up = tls, dial, scope, set_up
        self._next = 0
        self._waiting: list[asyncio.Future[Transport]] = []
        self._all: set[Transport] = set()

    def start(self) -> None:
        """Start the task that keeps a connection open."""
        self._scope.spawn(self._keep())

    async def connection(self, deadline: float) -> Transport:
        """Return the connection.

        If there is none until ``deadline`` (event loop time), raise Unavailable. Raises AuthError if etcd refuses the
        credentials.
        """
        if self.live is not None and self.live.live:
            return self.live
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[Transport] = loop.create_future()
        self._waiting.append(waiter)
        try:
            async with asyncio.timeout_at(deadline):
                return await waiter
        except TimeoutError:
            raise Unavailable(UNAVAILABLE, f"etcd is not reachable: {self.reason}", sent=False) from None
        finally:
            if waiter in self._waiting:
                self._waiting.remove(waiter)

    def retire(self, transport: Transport, reason: str) -> None:
        """Close a connection whose member does not respond, and connect to the next endpoint."""
        if transport.live:
            log.warning("closing a connection to etcd: %s", reason)
            self.reason = reason
            if self.live is transport:
                self.live = None
            transport.drain()

    async def close(self, seconds: float) -> None:
        """Close all connections gracefully. Abort connections that are still open after ``seconds``."""
        transports = list(self._all)
        for transport in transports:
            transport.drain()
        if transports:
            await asyncio.wait([transport.closed for transport in transports], timeout=seconds)
        for transport in transports:
            if not transport.closed.done():
                transport.abort()

    async def _keep(self) -> None:
        loop = asyncio.get_running_loop()
        pause = limits.FIRST_PAUSE
        while True:
            transport = await self._connect()
            if transport is not None:
                since = loop.time()
                self._publish(transport)
                # asyncio.wait is used, since the cancellation of a direct await would also cancel the future
                await asyncio.wait([transport.lost])
                self.live = None
                self._next = (self._next + 1) % len(self.endpoints)
                if loop.time() - since > limits.SHORT_LIFE:
                    pause = limits.FIRST_PAUSE
                    continue
            await asyncio.sleep(jittered(pause))
            pause = min(pause * 2, limits.LAST_PAUSE)

    async def _connect(self) -> Transport | None:
        count = len(self.endpoints)
        for step in range(count):
            at = (self._next + step) % count
            try:
                transport = await self._try(self.endpoints[at])
            except EtcdError as error:
                fault = classify(error)
                if self.reason != fault.message:
                    log.warning("no connection to etcd: %s", fault.message)
                self.reason = fault.message
                if isinstance(fault, AuthError):
                    self._refuse(fault)
                continue
            self._next = at
            return transport
        return None

    async def _try(self, endpoint: Endpoint) -> Transport:
        transport = await self._dial(endpoint, self._tls, self._scope.spawn)
        self._all.add(transport)
        transport.closed.add_done_callback(lambda _: self._all.discard(transport))
        try:
            await self._set_up(transport)
        except BaseException:
            transport.abort()
            raise
        return transport

    def _publish(self, transport: Transport) -> None:
        self.live = transport
        self.reason = "the connection was lost"
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(transport)

    def _refuse(self, fault: EtcdError) -> None:
        # The waiting callers fail at once, since wrong credentials would also fail later.
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_exception(fault)
