"""Stored objects that are shown with only the resourceVersion inserted, and the offset for it."""

import re
from collections import deque
from collections.abc import Sequence
from typing import Any

from apiext.catalog import limits
from apiext.catalog.converted import place_of

_NEGATIVE_ZERO = re.compile(rb"-0[],}]")


class Splices:
    """Hash of stored bytes → offset for the resourceVersion; the oldest entries are evicted above limits.SPLICES.

    The last limits.SPLICES_REPLACED replaced objects are kept, since slow watchers still read them.
    """

    __slots__ = ("_order", "_places", "_replaced")

    def __init__(self) -> None:
        self._places: dict[int, int] = {}
        self._order: deque[int] = deque()  # finding the first key of a dict becomes slower with each removed key
        self._replaced: deque[int] = deque()

    def add(self, raw: bytes, uid: Any, *, floats: bool = True) -> None:
        """Add the bytes of an object with this uid, if ``"uid":"…"}``, the end of metadata, occurs exactly once.

        Bytes with a negative zero are not added: a float -0.0 may be stored as -0, which is read as the integer 0.
        ``floats``: the object may contain floats.
        """
        place = place_of(raw, uid)
        if place < 0 or (floats and raw.find(b"-0") >= 0 and _NEGATIVE_ZERO.search(raw)):
            return
        key = hash(raw)
        if key not in self._places:
            self._order.append(key)
            if len(self._order) > limits.SPLICES:
                self._places.pop(self._order.popleft(), None)  # another thread may have removed it
        self._places[key] = place

    def evict(self, raw: bytes) -> None:
        """Evict these bytes some time later: a write or delete has replaced them."""
        key = hash(raw)
        if key not in self._places:
            return
        self._replaced.append(key)
        if len(self._replaced) > limits.SPLICES_REPLACED:
            self._places.pop(self._replaced.popleft(), None)
            if len(self._order) > 2 * (len(self._places) + limits.SPLICES_REPLACED):
                self._order = deque(filter(self._places.__contains__, self._order))

    def view(self, raw: bytes, revision: int) -> bytes | None:
        """Return the bytes with the resourceVersion inserted, None if they are not here."""
        place = self._places.get(hash(raw))
        return splice(raw, place, revision) if place is not None else None

    def place(self, raw: bytes) -> int | None:
        """Return the offset for the resourceVersion, None if the bytes are not here."""
        return self._places.get(hash(raw))

    def places(self, hashes: Sequence[int]) -> list[int | None]:
        """Return the offset for each hash of stored bytes, None for bytes that are not here."""
        return [*map(self._places.get, hashes)]

    def has(self, raw: bytes) -> bool:
        """Report whether these bytes need only a resourceVersion to be shown."""
        return hash(raw) in self._places


def splice(raw: bytes, place: int, revision: int) -> bytes:
    """Return stored bytes with the resourceVersion inserted at an offset, without the final newline."""
    end = -1 if raw.endswith(b"\n") else len(raw)
    return b"".join((raw[:place], b'"resourceVersion":"', str(revision).encode(), b'",', raw[place:end]))
