"""The first events of watches that begin at the same state: made once for all of them, as far as they fit."""

from apiext import limits
from apiext.storage.snapshot import Piece


class Beginnings:
    """The frames made of pieces of a state, the oldest first; together at most limits.INITIAL_BYTES.

    ``second`` is the one in which frames are made or wanted, where they show ages, else 0.
    """

    __slots__ = ("_bytes", "_known")

    def __init__(self) -> None:
        self._bytes = 0
        # the piece keeps its id from being used again
        self._known: dict[tuple[int, int, int], tuple[Piece, int, tuple[int, bytes]]] = {}

    def find(self, piece: Piece, second: int = 0) -> tuple[int, bytes] | None:
        """Return where in a piece its cached frames end, and those; None where they are not cached for the second."""
        known = self._known.get(_key(piece))
        return None if known is None or known[1] != second else known[2]

    def keep(self, piece: Piece, made: tuple[int, bytes], second: int = 0) -> None:
        """Cache the frames of a piece, in place of those of another second."""
        known = self._known
        self._drop(known.pop(_key(piece), None))
        known[_key(piece)] = piece, second, made
        self._bytes += len(made[1])
        while self._bytes > limits.INITIAL_BYTES:
            self._drop(known.pop(next(iter(known))))

    def _drop(self, known: tuple[Piece, int, tuple[int, bytes]] | None) -> None:
        if known is not None:
            self._bytes -= len(known[2][1])

    def clear(self) -> None:
        """Forget everything."""
        self._known.clear()
        self._bytes = 0


def _key(piece: Piece) -> tuple[int, int, int]:
    return id(piece.chunk), piece.start, piece.stop
