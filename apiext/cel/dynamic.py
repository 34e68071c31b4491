"""CEL values for decoded JSON without a declared type.

Each part is converted when an expression reads it.
"""

from collections.abc import Iterator
from typing import Any

from apiext.cel.effort import spend, spend_equality
from apiext.cel.go_values import show, show_raw
from apiext.cel.raw import Native
from apiext.cel.values import Fault, Value, View, count_views, elements, equal, is_list, is_map

# Types that need no conversion. A Fault is the result of a composed variable (of a policy) whose evaluation failed.
_PLAIN = frozenset((str, int, bool, float, type(None), Fault))


def dynamic(raw: Any) -> Value:
    """Return decoded JSON, or a Native, as a CEL value."""
    if type(raw) in _PLAIN:
        return raw
    if isinstance(raw, list):
        return DynamicList(raw)
    return raw.value if isinstance(raw, Native) else DynamicMap(raw)


class DynamicList(View):
    """A list whose elements may have any type."""

    __slots__ = ("raw",)
    is_list, is_map = True, False

    def __init__(self, raw: list[Any]) -> None:
        self.raw = raw

    def __len__(self) -> int:
        return len(self.raw)

    def items(self) -> Iterator[Value]:
        """Yield the elements."""
        return map(dynamic, self.raw)

    def get(self, index: int) -> Value:
        """Return an element; the index is in range."""
        return dynamic(self.raw[index])

    def __str__(self) -> str:
        return f"[{', '.join(map(show_raw, self.raw))}]"

    def same(self, other: Value) -> bool | Fault:
        """Compare element by element."""
        if not is_list(other):
            return False
        if len(self.raw) != len(other):
            return False
        spend_equality(len(self.raw))
        return all(equal(a, b) is True for a, b in zip(self.items(), elements(other), strict=True))

    def add(self, other: Value) -> Value:
        """Return the concatenation of both lists."""
        spend(len(self.raw) + len(other))
        return count_views([*self.items(), *elements(other)])


class DynamicMap(View):
    """A map with strings as keys, whose values may have any type."""

    __slots__ = ("raw",)

    def __init__(self, raw: dict[str, Any]) -> None:
        self.raw = raw

    def __len__(self) -> int:
        return len(self.raw)

    def items(self) -> Iterator[Value]:
        """Yield the keys."""
        return iter(self.raw)

    def find(self, key: Value) -> tuple[Value, Value] | Fault | None:
        """Return (key, value) of an entry, or None if the map lacks the key."""
        if type(key) is not str:
            return None
        return (key, dynamic(self.raw[key])) if key in self.raw else None

    def __str__(self) -> str:
        return f"{{{', '.join(f'{key}: {show(dynamic(inner))}' for key, inner in self.raw.items())}}}"

    def same(self, other: Value) -> bool | Fault:
        """Compare entry by entry."""
        if not is_map(other) or len(self) != len(other):
            return False
        spend_equality(len(self.raw))
        for key in self.raw:
            theirs = other.find(key)
            if theirs is None or type(theirs) is Fault or equal(dynamic(self.raw[key]), theirs[1]) is not True:
                return False
        return True
