"""Limits of all connections together: descriptors, and memory of unauthenticated clients.

Without the limit of file descriptors, the event loop would accept and drop connections silently once no descriptor is
left. Connections to etcd and webhooks would fail, too, and files could not be opened.

A connection needs memory before its first request is authenticated: about 50 KiB for TLS, and two to three times the
bytes of an unfinished request head. If all unfinished heads together need too much memory, the server closes the
connections with the largest heads. If too many connections are unauthenticated, it closes the oldest idle one. A client
that sends complete requests has an unfinished head or an unauthenticated connection only briefly. Unfinished heads of
authenticated clients count, too, since a head must be complete before its credentials are checked.
"""

import asyncio
import logging
import os
import resource
from collections.abc import Callable
from time import monotonic
from typing import Protocol, cast

import orjson

from apiext.http import limits
from apiext.meta import status
from apiext.telemetry import Slot

# Smallest number of file descriptors that are reserved for other uses than client connections.
FILES_RESERVED = 32
# Seconds between counts of the open files while no descriptor is left for a connection.
FILES_COUNT_EVERY = 0.05
# Seconds between log lines about refused connections.
FILES_LOG_EVERY = 60.0

log = logging.getLogger(__name__)

_OPEN = "/proc/self/fd"
_BODY = orjson.dumps(status.unavailable("the server has no file descriptors left for new connections").document())
_REFUSAL = (
    b"HTTP/1.1 503 Service Unavailable\r\nCache-Control: no-cache, private\r\nContent-Type: application/json\r\n"
    b"Retry-After: 1\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(_BODY), _BODY)
)
_GROWTH = 3  # bytes of memory for each parsed byte of an unfinished head
_PIECE = 100  # bytes of memory that a received piece needs besides its text
_FIELD = 400  # bytes of memory that a header needs besides its text


# --- file descriptors ---


def raise_limit() -> int:
    """Raise the soft limit of open files to the hard limit, and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def reserve(limit: int) -> int:
    """Return the number of descriptors for other uses than clients: an eighth, within bounds."""
    return max(FILES_RESERVED, min(limit // 8, limits.FILES_RESERVED_AT_MOST))


def used() -> int:
    """Return the number of open file descriptors, 0 if the system does not report it."""
    try:
        return len(os.listdir(_OPEN)) - 1  # without the descriptor of the directory itself
    except OSError:
        return 0


class Descriptors:
    """The number of file descriptors that are left for connections.

    If none is left, the open files are counted again, at most once in FILES_COUNT_EVERY seconds. ``refused`` counts the
    refused connections. ``count`` returns the number of open files.
    """

    __slots__ = ("_count", "_left", "_limit", "_logged", "_missed", "_refused", "_until")

    def __init__(self, limit: int, refused: Slot, count: Callable[[], int] = used) -> None:
        self._limit = limit
        self._refused = refused
        self._count = count
        self._left = 0
        self._until = 0.0  # the open files are not counted again before this time
        self._logged: float | None = None  # time of the last log line
        self._missed = 0  # connections refused since the last log line

    def take(self) -> bool:
        """Take a descriptor for a connection; return False if none is left."""
        if self._left <= 0 and monotonic() >= self._until:
            self._left = self._limit - reserve(self._limit) - self._count()
            self._until = monotonic() + FILES_COUNT_EVERY
        self._left -= 1
        if self._left >= 0:
            return True
        self._left = 0
        self._refuse()
        return False

    def _refuse(self) -> None:
        self._refused.value += 1
        self._missed += 1
        now = monotonic()
        if self._logged is not None and now < self._logged + FILES_LOG_EVERY:
            return
        log.warning(
            "new connections are refused, most of %d file descriptors are open (%d refused since the last such line): "
            "raise the limit of the process (ulimit -n, LimitNOFILE of systemd)",
            self._limit,
            self._missed,
        )
        self._logged, self._missed = now, 0


class Refusal(asyncio.Protocol):
    """A connection that gets a 503 for its first bytes, and is closed."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait a short time for the request.

        Some clients ignore a response that arrives before their request is sent.
        """
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transport is not of this class
        self._timer = asyncio.get_running_loop().call_later(limits.REFUSAL_WAIT, self._transport.abort)

    def data_received(self, data: bytes) -> None:
        """Send the response, and close the connection."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(_REFUSAL)
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the timer."""
        if self._timer is not None:
            self._timer.cancel()


# --- clients that have not authenticated ---


class Pending(Protocol):
    """A connection without an authenticated request, or with an unfinished head."""

    @property
    def is_idle(self) -> bool:
        """Report whether the connection has no running request."""

    def cut_off(self) -> None:
        """Close the connection immediately, without sending the rest of a response."""


class Unauthenticated:
    """The connections without an authenticated request, and those with an unfinished head.

    Connections without an authenticated request are in order, oldest first. ``memory`` is the memory in bytes that this
    process may use (``Memory.given``).
    """

    __slots__ = ("_heads", "_most", "_pending", "_total")

    def __init__(self, memory: int) -> None:
        self._most = min(limits.UNFINISHED_HEADS, memory // 16)
        self._total = 0
        self._heads: dict[Pending, int] = {}  # connection → memory of its unfinished head in bytes
        self._pending: dict[Pending, None] = {}

    def add(self, connection: Pending) -> None:
        """Add a new connection.

        If there are more than limits.UNAUTHENTICATED, close the oldest idle connection, or this one if none is idle.
        """
        self._pending[connection] = None
        if len(self._pending) > limits.UNAUTHENTICATED:
            oldest = next((one for one in self._pending if one.is_idle), connection)
            self.remove(oldest)
            oldest.cut_off()

    def remove(self, connection: Pending) -> None:
        """Remove a connection whose client is authenticated, or that is lost."""
        self._pending.pop(connection, None)

    def add_head(self, connection: Pending, data: bytes, *, parsed: bool) -> None:
        """Add a piece of an unfinished head.

        ``parsed`` is true if the HTTP parser holds the piece, and false if the piece waits for the parser. If all
        unfinished heads together need too much memory, close the connections with the largest heads, until the rest
        needs at most half of the limit.
        """
        size = len(data) + _PIECE
        if parsed:
            lines = len(data) - len(data.replace(b"\n", b""))  # ten times as fast as count for long lines
            size = len(data) * _GROWTH + lines * _FIELD
        self._heads[connection] = self._heads.get(connection, 0) + size
        self._total += size
        if self._total <= self._most:
            return
        for largest in sorted(self._heads, key=self._heads.__getitem__, reverse=True):
            self.remove_head(largest)
            largest.cut_off()
            if self._total <= self._most // 2:
                return

    def remove_head(self, connection: Pending) -> None:
        """Remove the head of a connection: it is complete, or the connection is lost."""
        self._total -= self._heads.pop(connection, 0)
