"""Stored bytes that need nothing but their resourceVersion to be shown, and where it goes."""

import re
from collections import deque
from collections.abc import Sequence
from typing import Any

from apiext.catalog import limits
from apiext.catalog.converted import place_of

_NEGATIVE_ZERO = re.compile(rb"-0[],}]")


class Splices:
    """Where the resourceVersion goes in stored bytes that need nothing else, by their hash; bounded, oldest first.

    What is no object any more is forgotten a little later: watchers that are behind ask for it still.
    """

    __slots__ = ("_order", "_places", "_replaced")

    def __init__(self) -> None:
        self._places: dict[int, int] = {}
        self._order: deque[int] = deque()  # to look for a dict's first key takes longer with each that was removed
        self._replaced: deque[int] = deque()

    def note(self, raw: bytes, uid: Any, *, floats: bool = True) -> None:
        """Remember bytes whose object has this uid, if its place is certain: ``"uid":"…"}`` ends metadata.

        Not those with a negative zero: it is written as -0, which reads as the integer 0. ``floats``: there may be one.
        """
        place = place_of(raw, uid)
        if place < 0 or (floats and raw.find(b"-0") >= 0 and _NEGATIVE_ZERO.search(raw)):
            return
        key = hash(raw)
        if key not in self._places:
            self._order.append(key)
            if len(self._order) > limits.SPLICES:
                self._places.pop(self._order.popleft(), None)  # a thread may have been faster
        self._places[key] = place

    def evict(self, raw: bytes) -> None:
        """Take note that the object with these bytes was written anew or deleted."""
        key = hash(raw)
        if key not in self._places:
            return
        self._replaced.append(key)
        if len(self._replaced) > limits.SPLICES_REPLACED:
            self._places.pop(self._replaced.popleft(), None)
            if len(self._order) > 2 * (len(self._places) + limits.SPLICES_REPLACED):
                self._order = deque(filter(self._places.__contains__, self._order))

    def view(self, raw: bytes, revision: int) -> bytes | None:
        """Return the bytes with their resourceVersion, None when they are not known."""
        place = self._places.get(hash(raw))
        return splice(raw, place, revision) if place is not None else None

    def place(self, raw: bytes) -> int | None:
        """Return where the resourceVersion goes, None when these bytes are not known."""
        return self._places.get(hash(raw))

    def places(self, hashes: Sequence[int]) -> list[int | None]:
        """Return that of each of several bytes."""
        return [*map(self._places.get, hashes)]

    def has(self, raw: bytes) -> bool:
        """Return whether these bytes are known to need only a resourceVersion."""
        return hash(raw) in self._places


def splice(raw: bytes, place: int, revision: int) -> bytes:
    """Return stored bytes with the resourceVersion put in at its sorted place, without their newline."""
    end = -1 if raw.endswith(b"\n") else len(raw)
    return b"".join((raw[:place], b'"resourceVersion":"', str(revision).encode(), b'",', raw[place:end]))
