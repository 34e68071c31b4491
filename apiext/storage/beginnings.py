"""The first events of watches that begin at the same state: made once for a group, as far as they fit."""

from collections import OrderedDict

from apiext.storage import limits
from apiext.storage.snapshot import Piece

_Key = tuple[int, int, int]


class Beginnings:
    """The frames that a group made of pieces of a state; those of all groups are at most limits.INITIAL_BYTES.

    ``second`` is the one in which frames are made or wanted, where they show ages, else 0.
    """

    __slots__ = ("_known",)

    def __init__(self) -> None:
        # the piece keeps its id from being used again
        self._known: dict[_Key, tuple[Piece, int, tuple[int, bytes]]] = {}

    def find(self, piece: Piece, second: int = 0) -> tuple[int, bytes] | None:
        """Return where in a piece its cached frames end, and those; None where they are not cached for the second."""
        known = self._known.get(_key(piece))
        return None if known is None or known[1] != second else known[2]

    def keep(self, piece: Piece, made: tuple[int, bytes], second: int = 0) -> None:
        """Cache the frames of a piece, in place of those of another second."""
        key = _key(piece)
        self._known[key] = piece, second, made
        _ALL.keep(self, key, len(made[1]))

    def drop(self, key: _Key) -> None:
        """Evict the frames of a piece."""
        del self._known[key]

    def clear(self) -> None:
        """Evict everything."""
        for key in self._known:
            _ALL.forget(self, key)
        self._known.clear()


class _All:
    """How many bytes each group has cached of each piece, the oldest first."""

    def __init__(self) -> None:
        self._sizes: OrderedDict[tuple[Beginnings, _Key], int] = OrderedDict()
        self.bytes = 0

    def keep(self, owner: Beginnings, key: _Key, size: int) -> None:
        self.forget(owner, key)
        self._sizes[owner, key] = size
        self.bytes += size
        while self.bytes > limits.INITIAL_BYTES:
            (old, piece), freed = self._sizes.popitem(last=False)
            self.bytes -= freed
            old.drop(piece)

    def forget(self, owner: Beginnings, key: _Key) -> None:
        self.bytes -= self._sizes.pop((owner, key), 0)


_ALL = _All()


def kept() -> int:
    """Return how many bytes of frames are cached for all groups."""
    return _ALL.bytes


def _key(piece: Piece) -> _Key:
    return id(piece.chunk), piece.start, piece.stop
