"""An immutable mapping whose changed copies share almost all memory with the original.

The catalog of resources uses it.
"""

from collections.abc import Hashable, ItemsView, Iterator, Mapping, ValuesView
from typing import TypeVar, overload

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
D = TypeVar("D")

PARTS = 256  # with 5,000 keys, a change copies one part of about 20 entries


class FrozenMap(Mapping[K, V]):
    """A mapping in insertion order, like a dict; any thread may read it.

    ``put`` and ``without`` return a copy that shares all parts, except the part that contains the key.
    """

    __slots__ = ("_following", "_ordered", "_parts", "_size")

    def __init__(self) -> None:
        self._parts: list[dict[K, tuple[int, V]]] = [{}] * PARTS
        self._size = 0
        self._following = 0  # the sequence number for the next new key
        self._ordered: dict[K, V] | None = None  # all entries in order, built by the first iteration

    def put(self, key: K, value: V) -> "FrozenMap[K, V]":
        """Return a copy in which the key has this value.

        An existing key keeps its position in the order.
        """
        index = hash(key) % PARTS
        part = self._parts[index]
        known = part.get(key)
        copy = self._with_part(index, {**part, key: (self._following if known is None else known[0], value)})
        if known is None:
            copy._size += 1
            copy._following += 1
        return copy

    def without(self, key: K) -> "FrozenMap[K, V]":
        """Return a copy without the key, or this mapping itself if the key is absent."""
        index = hash(key) % PARTS
        part = self._parts[index]
        if key not in part:
            return self
        copy = self._with_part(index, {other: entry for other, entry in part.items() if other != key})
        copy._size -= 1
        return copy

    def __getitem__(self, key: K) -> V:
        return self._parts[hash(key) % PARTS][key][1]

    @overload
    def get(self, key: K, /) -> V | None: ...
    @overload
    def get(self, key: K, /, default: V | D) -> V | D: ...
    def get(self, key: K, /, default: V | D | None = None) -> V | D | None:
        """Return the value of a key, else the default.

        Overrides the base class, which is slower for absent keys.
        """
        found = self._parts[hash(key) % PARTS].get(key)
        return default if found is None else found[1]

    def __iter__(self) -> Iterator[K]:
        return iter(self._entries())

    def values(self) -> ValuesView[V]:
        """Return all values in insertion order."""
        return self._entries().values()

    def items(self) -> ItemsView[K, V]:
        """Return all keys and values in insertion order."""
        return self._entries().items()

    def __len__(self) -> int:
        return self._size

    def _entries(self) -> dict[K, V]:
        if self._ordered is None:
            numbered = {number: (key, value) for part in self._parts for key, (number, value) in part.items()}
            self._ordered = dict(map(numbered.__getitem__, sorted(numbered)))
        return self._ordered

    def _with_part(self, index: int, part: dict[K, tuple[int, V]]) -> "FrozenMap[K, V]":
        copy = FrozenMap[K, V].__new__(FrozenMap)
        copy._parts = self._parts.copy()
        copy._parts[index] = part
        copy._size, copy._following, copy._ordered = self._size, self._following, None
        return copy
