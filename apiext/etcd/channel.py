"""A connection that is always kept open: endpoints in turn, reconnects with jitter, waiting callers."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence

from apiext.etcd import limits
from apiext.etcd.errors import UNAVAILABLE, AuthError, EtcdError, Unavailable, classify
from apiext.etcd.scope import Scope, log
from apiext.etcd.transport import TLS, Dial, Endpoint, Transport

Greet = Callable[[Transport], Awaitable[None]]


def jittered(pause: float) -> float:
    """Return a wait of half to one and a half times the pause: many clients must not reconnect at the same time."""
    return pause * random.uniform(0.5, 1.5)


class Channel:
    """Keeps a connection to one of the endpoints; callers wait while there is none."""

    def __init__(self, endpoints: Sequence[Endpoint], tls: TLS, dial: Dial, scope: Scope, greet: Greet) -> None:
        if not endpoints:
            raise ValueError("etcd needs at least one endpoint")
        self.endpoints = tuple(endpoints)
        self.live: Transport | None = None
        self.reason = "not connected yet"
        self._tls, self._dial, self._scope, self._greet = tls, dial, scope, greet
        self._next = 0
        self._waiting: list[asyncio.Future[Transport]] = []
        self._all: set[Transport] = set()

    def start(self) -> None:
        """Start to connect."""
        self._scope.spawn(self._keep())

    async def connection(self, deadline: float) -> Transport:
        """Return the live connection; wait for one until the loop time ``deadline``, then raise Unavailable."""
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
        """Drop a connection whose member seems to be dead; connect to the next endpoint."""
        if transport.live:
            log.warning("leaving an etcd connection: %s", reason)
            self.reason = reason
            if self.live is transport:
                self.live = None
            transport.drain()

    async def close(self, patience: float) -> None:
        """Close all connections in order; abort those that are still open after ``patience`` seconds."""
        open_ones = list(self._all)
        for transport in open_ones:
            transport.drain()
        if open_ones:
            await asyncio.wait([transport.gone for transport in open_ones], timeout=patience)
        for transport in open_ones:
            if not transport.gone.done():
                transport.abort()

    async def _keep(self) -> None:
        loop = asyncio.get_running_loop()
        pause = limits.FIRST_PAUSE
        while True:
            transport = await self._connect()
            if transport is not None:
                since = loop.time()
                self._publish(transport)
                # not awaited directly: the cancellation of this task must not cancel it
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
                    log.warning("no etcd connection: %s", fault.message)
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
        transport.gone.add_done_callback(lambda _: self._all.discard(transport))
        try:
            await self._greet(transport)
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
        # waiting does not fix a wrong password
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_exception(fault)
