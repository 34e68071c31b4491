"""A dict that grows without a long pause."""

from collections.abc import Iterator
from itertools import chain
from typing import Generic, TypeVar, overload

K = TypeVar("K")
V = TypeVar("V")
D = TypeVar("D")

PART = 512  # average number of keys in a part; when it is exceeded, one part is split


class GrowingDict(Generic[K, V]):
    """Keys and values in many small dicts ("parts"), in no order.

    A dict copies all its entries when it grows: 30 ms for 175,000 entries, in which the event loop does nothing else.
    Here, an insertion splits at most one part ("linear hashing"): about 0.1 ms.
    """

    __slots__ = ("_mask", "_parts", "_size")

    def __init__(self) -> None:
        self._parts: list[dict[K, V]] = [{}]
        self._mask = 0  # the number of parts, rounded up to a power of two, minus one
        self._size = 0

    def _part(self, key: object) -> dict[K, V]:
        at = hash(key) & self._mask
        parts = self._parts
        # The keys of a part that does not exist yet are in the part that will be split to make it.
        return parts[at] if at < len(parts) else parts[at & self._mask >> 1]

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[K]:
        return chain.from_iterable(self._parts)

    def __contains__(self, key: object) -> bool:
        return key in self._part(key)

    def __getitem__(self, key: K) -> V:
        return self._part(key)[key]

    @overload
    def get(self, key: K) -> V | None: ...
    @overload
    def get(self, key: K, default: D) -> V | D: ...
    def get(self, key: K, default: D | None = None) -> V | D | None:
        """Return the value of a key, ``default`` for an unknown key."""
        return self._part(key).get(key, default)

    def items(self) -> Iterator[tuple[K, V]]:
        """Return pairs of key and value. Do not insert or remove keys meanwhile."""
        return chain.from_iterable(part.items() for part in self._parts)

    def values(self) -> Iterator[V]:
        """Return the values. Do not insert or remove keys meanwhile."""
        return chain.from_iterable(part.values() for part in self._parts)

    def __setitem__(self, key: K, value: V) -> None:
        part = self._part(key)
        before = len(part)
        part[key] = value
        if len(part) != before:
            self._size += 1
            if self._size > PART * len(self._parts):
                self._split()

    def __delitem__(self, key: K) -> None:
        del self._part(key)[key]
        self._size -= 1

    def pop(self, key: K, default: D) -> V | D:
        """Remove a key. Return its value, ``default`` for an unknown key."""
        part = self._part(key)
        before = len(part)
        found = part.pop(key, default)
        self._size -= before - len(part)
        return found

    def _split(self) -> None:
        """Add a part, and move those keys to it that belong there."""
        parts = self._parts
        number = len(parts)
        if number > self._mask:
            self._mask = 2 * self._mask + 1
        old = number & self._mask >> 1
        kept: dict[K, V] = {}
        moved: dict[K, V] = {}
        for key, value in parts[old].items():
            (moved if hash(key) & self._mask == number else kept)[key] = value
        parts[old] = kept
        parts.append(moved)
