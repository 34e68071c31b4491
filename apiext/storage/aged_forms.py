"""Cache of entries in another form with ages, such as table rows: each read replaces only the ages (TAB-003).

An entry is encoded once, with a placeholder for each age. To replace the placeholders costs a tenth of another
encoding, for example for a list that a client reads every second.
"""

import secrets
from array import array
from collections.abc import Sequence
from itertools import accumulate, count
from operator import add
from typing import NamedTuple

from apiext.meta.time import Ages

_PLACEHOLDER = f"age {secrets.token_hex(16)}"  # random, so that no stored string is equal
_ENCODED = f'"{_PLACEHOLDER}"'.encode()


class Placeholders(Ages):
    """Returns a placeholder for each age, and collects the timestamps of the ages."""

    __slots__ = ("stamps",)

    def __init__(self) -> None:
        super().__init__(0.0)
        self.stamps: list[str] = []

    def of(self, stamp: str) -> str:
        """Return the placeholder."""
        self.stamps.append(stamp)
        return _PLACEHOLDER


class Filled(NamedTuple):
    """Entries joined by commas, with the offset behind each. The ages are valid while since <= now < until."""

    since: float
    until: float
    joined: bytes
    ends: "array[int]"

    def part(self, start: int, stop: int) -> bytes:
        """Return some of the entries."""
        ends = self.ends
        return self.joined[ends[start - 1] + 1 if start else 0 : ends[stop - 1]]


class AgedForm:
    """Entries in another form, with the ages of the last read.

    ``items`` are the entries with placeholders. ``counts`` are the numbers of placeholders up to the end of each entry.
    """

    __slots__ = ("_between", "_counts", "_distinct", "_ends", "_last", "_stamps")

    def __init__(self, items: Sequence[bytes], counts: Sequence[int], stamps: Sequence[str]) -> None:
        joined, ends = b",".join(items), ends_of(items)
        self._between = joined.split(_ENCODED) if stamps else [joined]
        self._stamps = stamps
        self._distinct = tuple(dict.fromkeys(stamps))
        self._counts = counts
        self._ends = array("I", [end - marks * len(_ENCODED) for end, marks in zip(ends, counts, strict=True)])
        self._last: Filled | None = None

    def at(self, now: float) -> Filled:
        """Return the entries with their ages at ``now``, in seconds of the epoch."""
        last = self._last
        if last is None or not last.since <= now < last.until:
            last = self._last = self._filled(Ages(now))
        return last

    def _filled(self, ages: Ages) -> Filled:
        written = {stamp: f'"{ages.of(stamp)}"'.encode() for stamp in self._distinct}
        filled = [written[stamp] for stamp in self._stamps]
        parts = [b""] * (2 * len(filled) + 1)
        parts[::2], parts[1::2] = self._between, filled
        sizes = [0, *accumulate(map(len, filled))]
        ends = array("I", [end + sizes[marks] for end, marks in zip(self._ends, self._counts, strict=True)])
        return Filled(ages.since, ages.until, b"".join(parts), ends)


def ends_of(items: Sequence[bytes]) -> "array[int]":
    """Return the offset behind each item once they are joined by commas."""
    return array("I", map(add, accumulate(map(len, items)), count()))  # a comma before each but the first
