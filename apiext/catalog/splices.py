"""Cache of the offsets for the resourceVersion in stored JSON.

With such an offset, a read can send the stored JSON undecoded.
"""

import re
from collections import deque
from collections.abc import Sequence
from typing import Any

from apiext.catalog import limits
from apiext.catalog.converted import place_of

_NEGATIVE_ZERO = re.compile(rb"-0[],}]")


class Splices:
    """Hash of stored bytes → offset for the resourceVersion.

    Above limits.SPLICES, the oldest entry is evicted. An entry means that clients see these bytes unchanged, except for
    the resourceVersion. The cache keeps the last limits.SPLICES_REPLACED replaced objects, since slow watchers still
    read them.
    """

    __slots__ = ("_order", "_places", "_replaced")

    def __init__(self) -> None:
        self._places: dict[int, int] = {}
        # The keys in order. In a dict, the search for the first key takes longer after each removal of a first key.
        self._order: deque[int] = deque()
        self._replaced: deque[int] = deque()

    def add(self, raw: bytes, uid: Any, *, floats: bool = True) -> None:
        """Add the bytes of an object, unless the offset for the resourceVersion is unknown.

        It is known if the end of metadata, ``"uid":"…"}`` with this uid, occurs exactly once in the bytes.

        Do not add bytes with a negative zero: a float -0.0 may be stored as -0, but a read would return the integer 0.
        ``floats`` is true if the object may contain floats.
        """
        place = place_of(raw, uid)
        if place < 0 or (floats and raw.find(b"-0") >= 0 and _NEGATIVE_ZERO.search(raw)):
            return
        key = hash(raw)
        if key not in self._places:
            self._order.append(key)
            if len(self._order) > limits.SPLICES:
                self._places.pop(self._order.popleft(), None)  # another thread may have removed the key
        self._places[key] = place

    def evict(self, raw: bytes) -> None:
        """Mark these bytes as replaced or deleted.

        They are evicted after limits.SPLICES_REPLACED further calls.
        """
        key = hash(raw)
        if key not in self._places:
            return
        self._replaced.append(key)
        if len(self._replaced) > limits.SPLICES_REPLACED:
            self._places.pop(self._replaced.popleft(), None)
            if len(self._order) > 2 * (len(self._places) + limits.SPLICES_REPLACED):
                self._order = deque(filter(self._places.__contains__, self._order))

    def view(self, raw: bytes, revision: int) -> bytes | None:
        """Return the bytes with the resourceVersion inserted, None on a cache miss."""
        place = self._places.get(hash(raw))
        return splice(raw, place, revision) if place is not None else None

    def place(self, raw: bytes) -> int | None:
        """Return the offset for the resourceVersion, None on a cache miss."""
        return self._places.get(hash(raw))

    def places(self, hashes: Sequence[int]) -> list[int | None]:
        """Return the offset for each hash of stored bytes, None on a cache miss."""
        return [*map(self._places.get, hashes)]

    def has(self, raw: bytes) -> bool:
        """Report whether a read of these bytes needs only to insert the resourceVersion.

        False means "unknown".
        """
        return hash(raw) in self._places


def splice(raw: bytes, place: int, revision: int) -> bytes:
    """Return stored bytes with the resourceVersion inserted at this offset.

    A final newline of the stored bytes is dropped.
    """
    end = -1 if raw.endswith(b"\n") else len(raw)
    return b"".join((raw[:place], b'"resourceVersion":"', str(revision).encode(), b'",', raw[place:end]))
