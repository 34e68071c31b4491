"""Connections to an embedded store: the Transport protocol of the etcd client."""

import asyncio
from collections import deque
from collections.abc import Callable
from math import inf
from weakref import ref

from apiext.embedded import faults, limits
from apiext.embedded.store import Store
from apiext.embedded.watches import WatchStream
from apiext.etcd import messages
from apiext.etcd.errors import DEADLINE_EXCEEDED, UNIMPLEMENTED, EtcdError
from apiext.etcd.transport import TLS, Dial, Endpoint, Spawn, Transport

SWEEP = 1.0  # seconds between two checks for calls that have timed out


class Connection:
    """A connection, which ends only when its owner closes it.

    Then the store stays open, and running calls finish.
    """

    def __init__(self, store: Store) -> None:
        self._loop = asyncio.get_running_loop()
        self._store = store
        self._streams: set[WatchStream] = set()
        # (deadline, weak reference to the future of the response, which may be large)
        self._open: deque[tuple[float, ref[asyncio.Future[bytes]]]] = deque()
        self._sweeping = False
        self.live = True
        # ``inf``, so that the client never considers a store in this process as unresponsive
        self.last_byte_at = self.last_response_at = inf
        self.lost: asyncio.Future[None] = self._loop.create_future()
        self.closed: asyncio.Future[None] = self._loop.create_future()

    def unary(self, path: str, message: bytes, timeout: float) -> asyncio.Future[bytes]:
        """Return the future of the response.

        The future fails after ``timeout`` or limits.HUNG seconds, whichever is longer. A shorter time would leave the
        outcome of a write on a slow disk unknown.
        """
        if self.live:
            answer = self._store.call(path, message)
            self._open.append((self._loop.time() + max(timeout, limits.HUNG), ref(answer)))
            if not self._sweeping:
                self._sweeping = True
                self._loop.call_later(SWEEP, self._sweep)
            return answer
        failed: asyncio.Future[bytes] = self._loop.create_future()
        failed.set_exception(faults.closed())
        return failed

    def _sweep(self) -> None:
        """Fail the calls that have timed out. Drop the calls that have a response."""
        now, left = self._loop.time(), deque[tuple[float, ref[asyncio.Future[bytes]]]]()
        for deadline, weak in self._open:
            answer = weak()
            if answer is None or answer.done():
                continue
            if deadline <= now:
                answer.set_exception(EtcdError(DEADLINE_EXCEEDED, "the disk of the store does not respond"))
            else:
                left.append((deadline, weak))
        self._open = left
        self._sweeping = bool(left)
        if left:
            self._loop.call_later(SWEEP, self._sweep)

    def stream(
        self, path: str, on_message: Callable[[bytes], None], on_end: Callable[[EtcdError], None]
    ) -> WatchStream:
        """Open a stream of watches; raise EtcdError on a closed connection."""
        if not self.live:
            raise faults.closed()
        self._streams = {stream for stream in self._streams if stream.open}
        stream = WatchStream(self._store, on_message, on_end)
        self._streams.add(stream)
        if path != messages.WATCH:
            self._loop.call_soon(stream.end, EtcdError(UNIMPLEMENTED, f"unknown stream {path}"))
        return stream

    def set_token(self, token: str) -> None:
        """Do nothing, since the store has no users."""

    def drain(self) -> None:
        """Refuse new calls, and end the streams."""
        self.live = False
        for stream in list(self._streams):
            stream.end(faults.closed())
        for future in (self.lost, self.closed):
            if not future.done():
                future.set_result(None)

    abort = drain


def dialer(store: Store) -> Dial:
    """Return the function that opens connections to a store."""

    async def dial(_endpoint: Endpoint, _tls: TLS, _spawn: Spawn) -> Transport:
        return Connection(store)

    return dial
