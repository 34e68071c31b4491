"""Connections to an embedded store: what a client of etcd takes for one to a member (the Transport port)."""

import asyncio
from collections.abc import Callable
from math import inf

from apiext.embedded import faults
from apiext.embedded.store import Store
from apiext.embedded.watches import WatchStream
from apiext.etcd import messages
from apiext.etcd.errors import UNIMPLEMENTED, EtcdError
from apiext.etcd.transport import TLS, Dial, Endpoint, Spawn, Transport


class Connection:
    """A connection that is never lost by itself. Its end is not that of the store, and calls under way finish."""

    def __init__(self, store: Store) -> None:
        self._loop = asyncio.get_running_loop()
        self._store = store
        self._streams: set[WatchStream] = set()
        self.live = True
        self.heard = self.answered = inf  # a store in this process is never silent
        self.lost: asyncio.Future[None] = self._loop.create_future()
        self.gone: asyncio.Future[None] = self._loop.create_future()

    def unary(self, path: str, message: bytes, timeout: float) -> asyncio.Future[bytes]:
        """Return the future of the answer; ``timeout`` is not kept: the outcome of a write on a slow disk is known."""
        if self.live:
            return self._store.call(path, message)
        answer: asyncio.Future[bytes] = self._loop.create_future()
        answer.set_exception(faults.closed())
        return answer

    def stream(
        self, path: str, on_message: Callable[[bytes], None], on_end: Callable[[EtcdError], None]
    ) -> WatchStream:
        """Open a stream of watches; EtcdError on a connection that was closed."""
        if not self.live:
            raise faults.closed()
        self._streams = {stream for stream in self._streams if stream.open}
        stream = WatchStream(self._store, on_message, on_end)
        self._streams.add(stream)
        if path != messages.WATCH:
            self._loop.call_soon(stream.end, EtcdError(UNIMPLEMENTED, f"unknown stream {path}"))
        return stream

    def set_token(self, token: str) -> None:
        """Do nothing: the store has no users."""

    def drain(self) -> None:
        """Take no new calls and end the streams."""
        self.live = False
        for stream in list(self._streams):
            stream.end(faults.closed())
        for future in (self.lost, self.gone):
            if not future.done():
                future.set_result(None)

    abort = drain


def dialer(store: Store) -> Dial:
    """Return what makes connections to a store."""

    async def dial(_endpoint: Endpoint, _tls: TLS, _spawn: Spawn) -> Transport:
        return Connection(store)

    return dial
