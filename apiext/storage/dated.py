"""Entries in another form, in which ages are filled in for the moment of each read (TAB-003).

A form is written once, with a mark in place of each age. Filling in costs a tenth of writing the form again, which
matters for a list that is read every second.
"""

import secrets
from array import array
from collections.abc import Sequence
from itertools import accumulate, count
from operator import add
from typing import NamedTuple

from apiext.meta.time import Ages

_MARK = f"age {secrets.token_hex(16)}"  # random: no stored text is equal to it
_WRITTEN = f'"{_MARK}"'.encode()


class Marks(Ages):
    """Writes a mark in place of each age, and lists the times that stand behind the marks."""

    __slots__ = ("stamps",)

    def __init__(self) -> None:
        super().__init__(0.0)
        self.stamps: list[str] = []

    def of(self, stamp: str) -> str:
        """Return the mark."""
        self.stamps.append(stamp)
        return _MARK


class Shown(NamedTuple):
    """Entries joined by commas, with the offset behind each; right while since <= now < until."""

    since: float
    until: float
    joined: bytes
    ends: "array[int]"

    def part(self, start: int, stop: int) -> bytes:
        """Return some of the entries."""
        ends = self.ends
        return self.joined[ends[start - 1] + 1 if start else 0 : ends[stop - 1]]


class Formed:
    """Entries in another form, as they were shown last.

    ``items`` are the entries with marks, ``counts`` how many marks there are up to the end of each.
    """

    __slots__ = ("_bare", "_counts", "_distinct", "_shown", "_stamps", "_texts")

    def __init__(self, items: Sequence[bytes], counts: Sequence[int], stamps: Sequence[str]) -> None:
        joined, ends = b",".join(items), ends_of(items)
        self._texts = joined.split(_WRITTEN) if stamps else [joined]
        self._stamps = stamps
        self._distinct = tuple(dict.fromkeys(stamps))
        self._counts = counts
        self._bare = array("I", [end - marks * len(_WRITTEN) for end, marks in zip(ends, counts, strict=True)])
        self._shown: Shown | None = None

    def at(self, now: float) -> Shown:
        """Return the entries with the ages of a moment, in seconds of the epoch."""
        shown = self._shown
        if shown is None or not shown.since <= now < shown.until:
            shown = self._shown = self._filled(Ages(now))
        return shown

    def _filled(self, ages: Ages) -> Shown:
        written = {stamp: f'"{ages.of(stamp)}"'.encode() for stamp in self._distinct}
        filled = [written[stamp] for stamp in self._stamps]
        parts = [b""] * (2 * len(filled) + 1)
        parts[::2], parts[1::2] = self._texts, filled
        sizes = [0, *accumulate(map(len, filled))]
        ends = array("I", [end + sizes[marks] for end, marks in zip(self._bare, self._counts, strict=True)])
        return Shown(ages.since, ages.until, b"".join(parts), ends)


def ends_of(items: Sequence[bytes]) -> "array[int]":
    """Return the offset behind each item once they are joined by commas."""
    return array("I", map(add, accumulate(map(len, items)), count()))  # a comma before each but the first
