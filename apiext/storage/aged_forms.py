"""Cache of entries in a form that contains ages, such as table rows.

Each read replaces only the ages (TAB-003). An entry is encoded once, with a placeholder for each age. Replacing the
placeholders takes a tenth of the time of a new encoding, which helps for example if a client reads a list every second.
"""

import secrets
from array import array
from collections.abc import Sequence
from itertools import accumulate, count
from operator import add
from typing import NamedTuple

from apiext.meta.time import Ages

_PLACEHOLDER = f"age {secrets.token_hex(16)}"  # random, so that no stored string contains it
_ENCODED = f'"{_PLACEHOLDER}"'.encode()


class Placeholders(Ages):
    """Returns a placeholder for each age, and collects the timestamps of the ages."""

    __slots__ = ("stamps",)

    def __init__(self) -> None:
        super().__init__(0.0)
        self.stamps: list[str] = []

    def of(self, stamp: str) -> str:
        """Collect the timestamp, and return the placeholder."""
        self.stamps.append(stamp)
        return _PLACEHOLDER


class Filled(NamedTuple):
    """Entries joined by commas, and the offset of the end of each.

    The ages are valid from ``since`` until just before ``until``.
    """

    since: float
    until: float
    joined: bytes
    ends: "array[int]"

    def part(self, start: int, stop: int) -> bytes:
        """Return the entries from ``start`` up to, not including, ``stop``."""
        ends = self.ends
        return self.joined[ends[start - 1] + 1 if start else 0 : ends[stop - 1]]


class AgedForm:
    """Encoded entries in a form that contains ages.

    ``items`` are the entries with placeholders. ``counts`` has, for each entry, the number of placeholders up to its
    end. ``stamps`` are the timestamps of all placeholders, in order.
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
        """Return the entries with their ages at ``now`` (seconds since the epoch)."""
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
    """Return the offset of the end of each item after the items are joined by commas."""
    return array("I", map(add, accumulate(map(len, items)), count()))  # each item except the first follows a comma
