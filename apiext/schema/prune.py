"""Removes fields that the schema does not know, and says which (PRU rows)."""

from collections.abc import Callable
from typing import Any

from apiext.documents.places import short
from apiext.schema.deeply import deeply
from apiext.schema.removed import Removed, add_item, fields
from apiext.schema.structural import META_FIELDS, Structural

Pruner = Callable[[Any], Removed | None]
"""Prunes a dict or list in place; returns what was removed below it, None for nothing."""


def prune_unknown(value: Any) -> Removed | None:
    """Prune a value without a schema: objects lose every field, lists are searched (PRU-004)."""
    if value.__class__ is dict:
        return _all(value)
    # of each open list: its index in the one around it, its items that are left, and what was removed below it
    stack: list[tuple[int, Any, Removed]] = [(0, enumerate(value), [])]
    while True:
        place, items, removed = stack[-1]
        for index, item in items:
            if item.__class__ is dict:
                if below := _all(item):
                    add_item(removed, index, below)
            elif item.__class__ is list:
                stack.append((index, enumerate(item), []))
                break
        else:
            stack.pop()
            if not stack:
                return removed or None
            if removed:
                add_item(stack[-1][2], place, removed)


def _all(value: dict[str, Any]) -> Removed | None:
    removed = fields(value)
    value.clear()
    return removed or None


FEW = 8  # members that are as quickly looked at one by one
_CONTAINERS = frozenset((dict, list))


def leave(value: Any) -> Removed | None:
    """Prune nothing."""
    return None


def pruner(node: Structural, *, skip: bool = False, root: bool = False) -> Pruner:
    """Return the pruner of a node.

    ``skip`` keeps unknown fields of this node (an item of a list that preserves them, PRU-003); ``root`` leaves
    apiVersion, kind and metadata alone, as embedded resources do (PRU-002).
    """
    name = "prune root" if root else "prune skip" if skip or node.preserve else "prune"
    found = node.compiled.get(name)
    if found is None:
        with deeply(root):
            found = node.compiled[name] = _make(node, skip or node.preserve, root or node.embedded)
    made: Pruner = found
    return made


def members(node: Structural, meta: bool) -> dict[str, Structural | None]:
    """Return the property schemas of a node; None for the fields that are left alone."""
    found: dict[str, Structural | None] = dict(node.properties)
    if meta:
        found.update(dict.fromkeys(META_FIELDS))
    return found


def list_pruner(items: Pruner) -> Pruner:
    """Return the pruner of a list whose items are pruned so."""

    def walk(value: Any) -> Removed | None:
        removed: Removed | None = None
        for index, item in enumerate(value):
            if item.__class__ is dict or item.__class__ is list:
                below = items(item)
                if below:
                    if removed is None:
                        removed = []
                    add_item(removed, index, below)
        return removed

    return walk


def _items(node: Structural, keep: bool) -> Pruner:
    if node.items is None:
        return leave if keep else list_pruner(prune_unknown)
    return list_pruner(pruner(node.items, skip=keep))


def _make(node: Structural, keep: bool, meta: bool) -> Pruner:
    table = {name: pruner(child) if child is not None else leave for name, child in members(node, meta).items()}
    get = table.get
    known = table.keys()
    extra: Pruner | None = leave if keep else None
    if node.additional is not None:
        extra = pruner(node.map_values) if node.map_values is not None else prune_unknown
    items = _items(node, keep)

    def walk(value: Any) -> Removed | None:
        if value.__class__ is list:
            return items(value)
        if len(value) > FEW and value.keys() <= known and _CONTAINERS.isdisjoint(map(type, value.values())):
            return None  # the same as below, but quickly
        removed: Removed | None = None
        unknown: list[str] | None = None
        for key, item in value.items():
            child = get(key, extra)
            if child is None:
                if unknown is None:
                    unknown = []
                unknown.append(key)
            elif item.__class__ is dict or item.__class__ is list:
                below = child(item)
                if below:
                    if removed is None:
                        removed = []
                    removed.append((short(key), below))
        if unknown is not None:
            for key in unknown:
                del value[key]
            removed = [*(removed or ()), *fields(unknown)]
        return removed

    return walk
