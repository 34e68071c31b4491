"""Delete null fields that are neither nullable nor have a default (NUL-001)."""

from collections.abc import Callable
from typing import Any

from apiext.schema.prune import FEW, members
from apiext.schema.recursion import deep_recursion
from apiext.schema.structural import Structural

Dropper = Callable[[Any], bool]
"""Deletes null fields below a dict or list in place; returns whether it deleted any."""

_OF_INTEREST = frozenset((dict, list, type(None)))


def drops_null(node: Structural | None) -> bool:
    """Return whether a null field of this schema must be deleted before defaulting."""
    return node is not None and not node.nullable and node.default is None


def null_dropper(node: Structural, *, root: bool = False) -> Dropper | None:
    """Return the function that deletes null fields below a node.

    Return None if the node declares neither properties, additionalProperties nor items. ``root`` is true for the root
    of the schema: then the function does not search apiVersion, kind and metadata.
    """
    name = "nulls root" if root else "nulls"
    if name not in node.compiled:
        with deep_recursion(root):
            node.compiled[name] = _make(node, root)
    found: Dropper | None = node.compiled[name]
    return found


def _make(node: Structural, root: bool) -> Dropper | None:
    table = members(node, root)
    extra = node.map_values
    items = null_dropper(node.items) if node.items is not None else None
    if not table and extra is None and items is None:
        return None
    walkers = {name: null_dropper(child) for name, child in table.items() if child is not None}
    walk_extra = null_dropper(extra) if extra is not None else None
    droppable = frozenset(name for name, child in table.items() if drops_null(child))
    drop_extra = drops_null(extra)

    def walk(value: Any) -> bool:
        changed = False
        if value.__class__ is list:
            if items is not None:
                for item in value:
                    if item.__class__ is dict or item.__class__ is list:
                        changed = items(item) or changed
            return changed
        if len(value) > FEW and _OF_INTEREST.isdisjoint(map(type, value.values())):
            return False  # fast path of the loop below
        gone: list[str] | None = None
        for key, item in value.items():
            if item is None:
                if key in droppable or (drop_extra and key not in table):
                    gone = gone or []
                    gone.append(key)
            elif item.__class__ is dict or item.__class__ is list:
                child = walkers.get(key) if key in table else walk_extra
                if child is not None:
                    changed = child(item) or changed
        for key in gone or ():
            del value[key]
        return changed or gone is not None

    return walk
