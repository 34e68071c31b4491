"""Bounds for clients that have not proved who they are: idle connections, and bytes of unfinished request heads.

A connection takes memory before its first request is authenticated: some 50 KiB for TLS, and two to three times the
bytes of a head that is not complete. Each connection has its own limits; these are the limits for all of them together.
The largest unfinished heads, and the oldest idle connections, are closed first: clients that send whole requests have
neither for longer than a moment. Heads of authenticated clients count as well, since a head tells nothing before its
end.
"""

from typing import Protocol

from apiext.http import limits

_GROWTH = 3  # bytes of memory for each byte of an unfinished head that was parsed
_PIECE = 100  # bytes of memory that a piece takes besides its text
_FIELD = 400  # bytes of memory that a field of a head takes besides its text


class Stranger(Protocol):
    """A connection."""

    @property
    def is_idle(self) -> bool:
        """Whether no request is under way on it."""

    def cut_off(self) -> None:
        """Close it at once, whatever is not sent yet."""


class Strangers:
    """The connections without an authenticated request, oldest first, and those with an unfinished head.

    ``memory`` are the bytes of memory that a control group or the machine gives.
    """

    __slots__ = ("_heads", "_most", "_total", "_unknown")

    def __init__(self, memory: int) -> None:
        self._most = min(limits.UNFINISHED_HEADS, memory // 16)
        self._total = 0
        self._heads: dict[Stranger, int] = {}
        self._unknown: dict[Stranger, None] = {}

    def came(self, connection: Stranger) -> None:
        """Note a new connection; the oldest idle one of strangers is closed when there are too many."""
        self._unknown[connection] = None
        if len(self._unknown) > limits.UNAUTHENTICATED:
            oldest = next((one for one in self._unknown if one.is_idle), connection)
            self.known(oldest)
            oldest.cut_off()

    def known(self, connection: Stranger) -> None:
        """Note that a client has proved who it is, or that its connection is lost."""
        self._unknown.pop(connection, None)

    def began(self, connection: Stranger, data: bytes, *, parsed: bool) -> None:
        """Note a piece of an unfinished head; the largest are closed when they take too much memory together."""
        size = len(data) + _PIECE
        if parsed:
            lines = len(data) - len(data.replace(b"\n", b""))  # of long lines ten times as fast as count
            size = len(data) * _GROWTH + lines * _FIELD
        self._heads[connection] = self._heads.get(connection, 0) + size
        self._total += size
        if self._total <= self._most:
            return
        for largest in sorted(self._heads, key=self._heads.__getitem__, reverse=True):
            self.ended(largest)
            largest.cut_off()
            if self._total <= self._most // 2:
                return

    def ended(self, connection: Stranger) -> None:
        """Note that the head of a connection is complete, or the connection lost."""
        self._total -= self._heads.pop(connection, 0)
