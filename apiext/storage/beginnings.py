"""The first events of watches that begin at the same state: made once for all of them, as far as they fit."""

from apiext import limits
from apiext.storage.snapshot import Piece


class Beginnings:
    """What was made of pieces of a state lately, the oldest first; together at most limits.INITIAL_BYTES."""

    __slots__ = ("_bytes", "_known")

    def __init__(self) -> None:
        self._bytes = 0
        # the piece keeps its id from being used again
        self._known: dict[tuple[int, int, int], tuple[Piece, bytes]] = {}

    def find(self, piece: Piece) -> bytes | None:
        """Return what was made of a piece, None if that is not known any more."""
        known = self._known.get((id(piece.chunk), piece.start, piece.stop))
        return None if known is None else known[1]

    def keep(self, piece: Piece, data: bytes) -> bytes:
        """Remember what was made of a piece; returns it."""
        known = self._known
        known[id(piece.chunk), piece.start, piece.stop] = piece, data
        self._bytes += len(data)
        while self._bytes > limits.INITIAL_BYTES:
            self._bytes -= len(known.pop(next(iter(known)))[1])
        return data

    def clear(self) -> None:
        """Forget everything."""
        self._known.clear()
        self._bytes = 0
