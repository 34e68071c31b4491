"""The two types of a decoded JSON object: a Document belongs to one owner, a View is shared."""

from collections.abc import Mapping
from typing import Any

Document = dict[str, Any]
"""A decoded JSON object that its owner may change."""

View = Mapping[str, Any]
"""A decoded JSON object that is shared. Code must never change it, only a clone of it."""


def clone(value: Any) -> Any:
    """Return a deep copy of a JSON value; scalars are shared."""
    if isinstance(value, dict):
        if len(value) > _FEW and _CONTAINERS.isdisjoint(map(type, value.values())):
            return value.copy()
        return {
            key: (clone(item) if item else item.__class__()) if item.__class__ in _CONTAINERS else item
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [clone(item) if item.__class__ in _CONTAINERS else item for item in value]
    return value


_CONTAINERS = frozenset((dict, list))
_FEW = 8  # up to this number of fields, a loop is as fast as set operations
