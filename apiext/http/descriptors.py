"""File descriptors: each connection takes one, and a process may have a limited number of them.

Without a bound of our own the event loop accepts connections and drops them without a word when none is left, and
etcd, webhooks and files get none either.
"""

import asyncio
import logging
import os
import resource
from collections.abc import Callable
from time import monotonic
from typing import cast

import orjson

from apiext.http import limits
from apiext.meta import status
from apiext.telemetry import Slot

# File descriptors, at least, that are not for clients.
FILES_RESERVED = 32
# Seconds between looks at the open files while none is left for a connection.
FILES_LOOK = 0.05
# Seconds between log lines about missing file descriptors.
FILES_TOLD_EVERY = 60.0

log = logging.getLogger(__name__)

_OPEN = "/proc/self/fd"
_BODY = orjson.dumps(status.unavailable("the server has no file descriptors left for new connections").document())
_REFUSAL = (
    b"HTTP/1.1 503 Service Unavailable\r\nCache-Control: no-cache, private\r\nContent-Type: application/json\r\n"
    b"Retry-After: 1\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%b" % (len(_BODY), _BODY)
)


def raise_limit() -> int:
    """Allow as many open files as the system lets this process have, and return that number."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard


def reserve(limit: int) -> int:
    """Return how many of so many file descriptors are no client's: an eighth, within bounds."""
    return max(FILES_RESERVED, min(limit // 8, limits.FILES_RESERVED_AT_MOST))


def used() -> int:
    """Return how many file descriptors are open, 0 where the system does not tell."""
    try:
        return len(os.listdir(_OPEN)) - 1  # the directory itself is open meanwhile
    except OSError:
        return 0


class Descriptors:
    """Counts what is left for connections; looks at what is open only when that may be used up.

    ``refused`` counts the connections that get none.
    """

    __slots__ = ("_count", "_left", "_limit", "_missed", "_refused", "_told", "_until")

    def __init__(self, limit: int, refused: Slot, count: Callable[[], int] = used) -> None:
        self._limit = limit
        self._refused = refused
        self._count = count
        self._left = 0
        self._until = 0.0  # no look before this time
        self._told: float | None = None  # when a line was logged last
        self._missed = 0  # connections refused since

    def take(self) -> bool:
        """Take a descriptor for a connection; return False when none is left for one."""
        if self._left <= 0 and monotonic() >= self._until:
            self._left = self._limit - reserve(self._limit) - self._count()
            self._until = monotonic() + FILES_LOOK
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
        if self._told is not None and now < self._told + FILES_TOLD_EVERY:
            return
        log.warning(
            "new connections are refused, most of %d file descriptors are open (%d refused since this was said last): "
            "raise the limit of the process (ulimit -n, LimitNOFILE of systemd)",
            self._limit,
            self._missed,
        )
        self._told, self._missed = now, 0


class Refusal(asyncio.Protocol):
    """A connection that is answered with 503 and closed, whatever it asks."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the request, but not for long: an answer before it might be lost."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is not of that class
        self._timer = asyncio.get_running_loop().call_later(limits.REFUSAL_WAIT, self._transport.abort)

    def data_received(self, data: bytes) -> None:
        """Answer, and hang up."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(_REFUSAL)
            self._transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop waiting."""
        if self._timer is not None:
            self._timer.cancel()
