"""Joined bytes of listed objects: one copy for lists, from which single objects are cut out again."""

from array import array
from bisect import bisect_left
from collections.abc import Callable, Sequence

from apiext import limits as server_limits

_MEMBER = b'"resourceVersion":"%d",'


class Shelf:
    """The views of some entries, joined by commas. ``left`` counts the entries that have their bytes nowhere else.

    Neither the text nor the keys ever change; an entry finds its place by its key.
    """

    __slots__ = ("_last", "ends", "keys", "left", "text", "viewer")

    def __init__(
        self, viewer: Callable[[bytes, int], bytes], keys: Sequence[str], text: bytes, ends: "array[int]"
    ) -> None:
        """``ends`` are the offsets behind each view."""
        self.viewer = viewer
        self.keys = keys
        self.text = text
        self.ends = ends
        self.left = 0
        self._last: tuple[str, bytes] = "", b""  # a write looks at the object before several times

    @property
    def is_worth_it(self) -> bool:
        """True if at least half of the views still belong to entries."""
        return 2 * self.left >= len(self.keys)

    def view(self, key: str) -> bytes:
        """Return the view of the entry with this key."""
        start, end = self._place(key)
        return self.text[start:end]

    def stored(self, key: str, revision: int) -> bytes:
        """Return the stored bytes of the entry with this key, which was written at this revision."""
        last, raw = self._last
        if last == key:
            return raw
        start, end = self._place(key)
        text, member = self.text, _MEMBER % revision
        place = text.find(member, start, end)
        raw = b"%b%b\n" % (text[start:place], text[place + len(member) : end])
        if len(raw) < server_limits.WORK_INLINE:
            self._last = key, raw
        return raw

    def size(self, key: str, revision: int) -> int:
        """Return the length of ``stored``."""
        start, end = self._place(key)
        return end - start - len(_MEMBER % revision) + 1

    def _place(self, key: str) -> tuple[int, int]:
        at = bisect_left(self.keys, key)
        return self.ends[at - 1] + 1 if at else 0, self.ends[at]


def can_be_shelved(raw: bytes, view: bytes, revision: int) -> bool:
    """Report whether a shelf can cut exactly the stored bytes out of the view again."""
    head, found, tail = view.partition(_MEMBER % revision)
    return bool(found) and raw == b"%b%b\n" % (head, tail)
