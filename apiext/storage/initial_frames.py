"""Cache of the frames of initial events, for watches of a group that begin with the same state."""

from collections import OrderedDict

from apiext.storage import limits
from apiext.storage.snapshot import Piece

_Key = tuple[int, int, int]


class InitialFrames:
    """The cached frames of one group, by piece of a state. All groups together have at most limits.INITIAL_BYTES.

    Frames with ages are valid for one ``second`` of the clock; for other frames it is 0.
    """

    __slots__ = ("_cached",)

    def __init__(self) -> None:
        # each value refers to its piece, so that no other chunk gets the same id
        self._cached: dict[_Key, tuple[Piece, int, tuple[int, bytes]]] = {}

    def find(self, piece: Piece, second: int = 0) -> tuple[int, bytes] | None:
        """Return the cached frames of a piece, after their end in the piece; None if not cached for the second."""
        cached = self._cached.get(_key(piece))
        return None if cached is None or cached[1] != second else cached[2]

    def keep(self, piece: Piece, frames: tuple[int, bytes], second: int = 0) -> None:
        """Cache the frames of a piece, in place of frames of another second."""
        key = _key(piece)
        self._cached[key] = piece, second, frames
        _ALL.keep(self, key, len(frames[1]))

    def drop(self, key: _Key) -> None:
        """Evict the frames of a piece."""
        del self._cached[key]

    def clear(self) -> None:
        """Evict everything."""
        for key in self._cached:
            _ALL.forget(self, key)
        self._cached.clear()


class _All:
    """The sizes of the cached frames of all groups, the oldest first."""

    def __init__(self) -> None:
        self._sizes: OrderedDict[tuple[InitialFrames, _Key], int] = OrderedDict()
        self.bytes = 0

    def keep(self, owner: InitialFrames, key: _Key, size: int) -> None:
        self.forget(owner, key)
        self._sizes[owner, key] = size
        self.bytes += size
        while self.bytes > limits.INITIAL_BYTES:
            (old, piece), freed = self._sizes.popitem(last=False)
            self.bytes -= freed
            old.drop(piece)

    def forget(self, owner: InitialFrames, key: _Key) -> None:
        self.bytes -= self._sizes.pop((owner, key), 0)


_ALL = _All()


def cached_bytes() -> int:
    """Return the number of bytes of frames that are cached for all groups."""
    return _ALL.bytes


def _key(piece: Piece) -> _Key:
    return id(piece.chunk), piece.start, piece.stop
