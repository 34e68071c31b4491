"""Compare JSON values as Go does: 1, 1.0 and true are different values.

Python's == finds them equal.
"""

from collections.abc import Mapping
from typing import Any

_PLAIN = frozenset((str, int, bool, float, type(None)))


def same(left: Any, right: Any) -> bool:
    """Return whether two JSON values are deeply equal with the same dynamic types (RAT-004)."""
    if left is right:
        return True
    if left.__class__ is not right.__class__:
        return isinstance(left, dict) and isinstance(right, dict) and _same_members(left, right)
    if isinstance(left, dict):
        return _same_members(left, right)
    if isinstance(left, list):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


def _same_members(left: Mapping[str, Any], right: Mapping[str, Any]) -> bool:
    if len(left) != len(right):
        return False
    for name, value in left.items():
        if name not in right:
            return False
        other = right[name]
        if value.__class__ in _PLAIN and value.__class__ is other.__class__:
            if value != other:
                return False
        elif not same(value, other):
            return False
    return True
