"""Joined bytes of listed objects.

Lists and entries share them, so that an object is usually in memory once.
"""

from array import array
from bisect import bisect_left
from collections.abc import Callable, Sequence

from apiext import limits as server_limits

_FIELD = b'"resourceVersion":"%d",'


class JoinedViews:
    """The views of some entries, joined by commas.

    A view is the JSON of an object as clients of one version get it. Usually this is the stored JSON with the
    resourceVersion inserted; then an entry may refer to its JoinedViews, and need not have stored bytes of its own.
    ``users`` is the number of these entries. ``text`` and ``keys`` never change. ``keys`` is sorted, and the n-th view
    in ``text`` belongs to the n-th key.
    """

    __slots__ = ("_last", "ends", "keys", "text", "users", "viewer")

    def __init__(
        self, viewer: Callable[[bytes, int], bytes], keys: Sequence[str], text: bytes, ends: "array[int]"
    ) -> None:
        """``ends`` has the offset of the end of each view."""
        self.viewer = viewer
        self.keys = keys
        self.text = text
        self.ends = ends
        self.users = 0
        # (key, result) of the last call of ``stored``, since a write reads an object several times
        self._last: tuple[str, bytes] = "", b""

    @property
    def is_mostly_used(self) -> bool:
        """True if entries use at least half of the views."""
        return 2 * self.users >= len(self.keys)

    def view(self, key: str) -> bytes:
        """Return the view of the entry with this key."""
        start, end = self._bounds(key)
        return self.text[start:end]

    def stored(self, key: str, revision: int) -> bytes:
        """Return the stored bytes of the entry with this key and revision.

        These are the view without the resourceVersion, and a newline.
        """
        last, raw = self._last
        if last == key:
            return raw
        start, end = self._bounds(key)
        text, field = self.text, _FIELD % revision
        at = text.find(field, start, end)
        raw = b"%b%b\n" % (text[start:at], text[at + len(field) : end])
        if len(raw) < server_limits.WORK_INLINE:
            self._last = key, raw
        return raw

    def size(self, key: str, revision: int) -> int:
        """Return the length of ``stored``."""
        start, end = self._bounds(key)
        return end - start - len(_FIELD % revision) + 1

    def _bounds(self, key: str) -> tuple[int, int]:
        at = bisect_left(self.keys, key)
        return self.ends[at - 1] + 1 if at else 0, self.ends[at]


def can_be_cut_out(raw: bytes, view: bytes, revision: int) -> bool:
    """Report whether the stored bytes are the view without its resourceVersion.

    The stored bytes have a newline at the end.
    """
    head, found, tail = view.partition(_FIELD % revision)
    return bool(found) and raw == b"%b%b\n" % (head, tail)
