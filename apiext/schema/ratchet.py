"""Find the old value that corresponds to each new value of an update, and compare the two.

See RAT-001, RAT-004. The comparison is for ratcheting: an update may keep an invalid value that it does not change.
"""

from time import perf_counter
from typing import Any, Union

from apiext.documents.equality import same
from apiext.schema import timing
from apiext.schema.structural import Structural

_SCALARS = frozenset((bool, int, float, str))


class Link:
    """A pair of a new value and the corresponding old value, with their schema."""

    __slots__ = ("children", "equal", "keyed", "new", "node", "old")

    def __init__(self, node: Structural, new: Any, old: Any) -> None:
        self.node = node
        self.new = new
        self.old = old
        self.equal: bool | None = None
        self.keyed: dict[Any, Any] | None = None
        self.children: dict[Any, Link | None] = {}

    def member(self, name: str) -> Union["Link", None]:
        """Return the link of a field, or None if the field is new or has no schema."""
        if name not in self.children:
            self.children[name] = self._member(name)
        return self.children[name]

    def _member(self, name: str) -> Union["Link", None]:
        if self.new.__class__ is not dict or self.old.__class__ is not dict:
            return None
        if name not in self.new or name not in self.old:
            return None
        child = self.node.member(name)
        return Link(child, self.new[name], self.old[name]) if child is not None else None

    def index(self, index: int) -> Union["Link", None]:
        """Return the link to the old item with the same keys.

        Return None if the list is not of type map, or if the old list has no such item.
        """
        if index not in self.children:
            self.children[index] = self._index(index)
        return self.children[index]

    def _index(self, index: int) -> Union["Link", None]:
        if self.new.__class__ is not list or self.old.__class__ is not list or self.node.extensions.list_type != "map":
            return None
        if self.keyed is None:
            self.keyed = self._by_keys()
        item = self.new[index]
        old = self.keyed.get(keys_of(self.node.extensions.list_keys, item))
        return Link(self.node.items, item, old) if old is not None and self.node.items is not None else None

    def _by_keys(self) -> dict[Any, Any]:
        found: dict[Any, Any] = {}
        if self.node.type == "array" and self.node.extensions.list_keys:
            for item in self.old:
                keys = keys_of(self.node.extensions.list_keys, item)
                if keys is not None:
                    found.setdefault(keys, item)
        return found

    def unchanged(self) -> bool:
        """Return whether the new value equals the old value.

        As upstream, return False for an object with fields outside the schema. Also return False for a list of type map
        if an item has no old item with the same keys.
        """
        if self.equal is not None:
            return self.equal
        began = perf_counter()
        equal = self._compared()
        timing.comparisons.observe(perf_counter() - began)
        return equal

    def _compared(self) -> bool:
        if self.equal is None:
            self.equal = self._unchanged()
        return self.equal

    def _unchanged(self) -> bool:
        new, old = self.new, self.old
        if new.__class__ is not old.__class__:
            return False
        if new.__class__ is dict:
            if len(new) != len(old):
                return False
            for name in new:
                below = self.member(name)
                if below is None or not below._compared():
                    return False
            return True
        if new.__class__ is list:
            return self._list_unchanged()
        return same(new, old)

    def _list_unchanged(self) -> bool:
        if len(self.new) != len(self.old):
            return False
        if self.node.extensions.list_type != "map":
            return same(self.new, self.old)
        for index in range(len(self.new)):
            below = self.index(index)
            if below is None or not below._compared():
                return False
        return True


def keys_of(names: tuple[str, ...], item: Any) -> tuple[Any, ...] | None:
    """Return (class, value) of each key of an item of a list of type map.

    Return None if the item is not an object, or if one of its keys is missing or not a scalar.
    """
    if item.__class__ is not dict:
        return None
    found: list[Any] = []
    for name in names:
        key = item.get(name)
        if key.__class__ not in _SCALARS:
            return None
        found.append((key.__class__, key))
    return tuple(found)
