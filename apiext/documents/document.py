"""The two types of decoded JSON: a document that its holder owns, and a view that is shared."""

from collections.abc import Mapping
from typing import Any

Document = dict[str, Any]
"""A decoded JSON object that its holder may change."""

View = Mapping[str, Any]
"""A decoded JSON object that is shared: never changed, only cloned."""


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
_FEW = 8  # fields up to which a loop is as fast as set operations
