"""The first events of watches that begin at the same state: made once for all of them, as far as they fit."""

from apiext import limits
from apiext.storage.snapshot import Piece


class Beginnings:
    """What was made of pieces of a state lately, the oldest first; together at most limits.INITIAL_BYTES."""

    __slots__ = ("_bytes", "_known")

    def __init__(self) -> None:
        self._bytes = 0
        # the piece keeps its id from being used again
        self._known: dict[tuple[int, int, int], tuple[Piece, tuple[int, bytes]]] = {}

    def find(self, piece: Piece) -> tuple[int, bytes] | None:
        """Return where in a piece what was made of it ends, and that; None if that is not known any more."""
        known = self._known.get((id(piece.chunk), piece.start, piece.stop))
        return None if known is None else known[1]

    def keep(self, piece: Piece, made: tuple[int, bytes]) -> None:
        """Remember what was made of a piece."""
        known = self._known
        known[id(piece.chunk), piece.start, piece.stop] = piece, made
        self._bytes += len(made[1])
        while self._bytes > limits.INITIAL_BYTES:
            self._bytes -= len(known.pop(next(iter(known)))[1][1])

    def clear(self) -> None:
        """Forget everything."""
        self._known.clear()
        self._bytes = 0
