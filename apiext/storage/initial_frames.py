"""Cache of encoded initial events, for watches of a group that begin with the same state.

A piece is a range of the entries of a state (snapshot.py). Frames are the encoded events of a piece.
"""

from collections import OrderedDict

from apiext.storage import limits
from apiext.storage.snapshot import Piece

_Key = tuple[int, int, int]


class InitialFrames:
    """The cache of one group: piece of a state → frames.

    All groups together cache at most limits.INITIAL_BYTES. Frames of Tables contain ages, so they are valid for only
    one ``second`` of the wall clock. For frames without ages, ``second`` is 0.
    """

    __slots__ = ("_cached",)

    def __init__(self) -> None:
        # (id of the chunk, start, stop) → (piece, second, frames); the piece keeps the chunk alive, so its id is unique
        self._cached: dict[_Key, tuple[Piece, int, tuple[int, bytes]]] = {}

    def find(self, piece: Piece, second: int = 0) -> tuple[int, bytes] | None:
        """Return (index in the chunk after the last encoded entry, frames) of a piece.

        Return None if the frames are not cached for this second.
        """
        cached = self._cached.get(_key(piece))
        return None if cached is None or cached[1] != second else cached[2]

    def keep(self, piece: Piece, frames: tuple[int, bytes], second: int = 0) -> None:
        """Cache the frames of a piece, as ``find`` returns them.

        The frames replace those of another second.
        """
        key = _key(piece)
        self._cached[key] = piece, second, frames
        _ALL.keep(self, key, len(frames[1]))

    def drop(self, key: _Key) -> None:
        """Evict the frames of a piece."""
        del self._cached[key]

    def clear(self) -> None:
        """Evict all frames."""
        for key in self._cached:
            _ALL.forget(self, key)
        self._cached.clear()


class _All:
    """The sizes of the cached frames of all groups, oldest first."""

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
