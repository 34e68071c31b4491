"""Removes fields that the schema does not know, and says which (PRU rows)."""

from collections.abc import Callable, Collection
from typing import Any

from apiext import limits
from apiext.documents.places import short
from apiext.schema.deeply import deeply
from apiext.schema.structural import META_FIELDS, Structural

Pruner = Callable[[Any], list[str] | None]
"""Prunes a dict or list in place; returns the paths removed, each relative and starting with ``.`` or ``[``."""


def prune_unknown(value: Any) -> list[str] | None:
    """Prune a value without a schema: objects lose every field, lists are searched (PRU-004)."""
    removed: list[str] | None = None
    stack: list[tuple[str, Any]] = [("", value)]
    while stack:
        path, found = stack.pop()
        if found.__class__ is dict:
            removed = gathered(removed, [f"{path}.{short(key)}" for key in first_names(found)])
            found.clear()
        else:
            stack.extend(
                (f"{path}[{index}]", item)
                for index, item in enumerate(found)
                if item.__class__ is dict or item.__class__ is list
            )
    return removed or None


def gathered(removed: list[str] | None, more: list[str]) -> list[str]:
    """Return both lists of paths as one; of very many only those that come first by name."""
    if removed is None:
        removed = []
    removed += more
    if len(removed) > _MANY:
        removed.sort()
        del removed[limits.MAX_UNKNOWN :]
    return removed


def first_names(names: Collection[str]) -> Collection[str]:
    """Return names of unknown fields; of very many only the first."""
    return names if len(names) <= _MANY else sorted(names)[: limits.MAX_UNKNOWN]


FEW = 8  # members that are as quickly looked at one by one
_CONTAINERS = frozenset((dict, list))
_MANY = 4 * limits.MAX_UNKNOWN


def leave(value: Any) -> list[str] | None:
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

    def walk(value: Any) -> list[str] | None:
        removed: list[str] | None = None
        for index, item in enumerate(value):
            if item.__class__ is dict or item.__class__ is list:
                paths = items(item)
                if paths:
                    removed = gathered(removed, [f"[{index}]{path}" for path in paths])
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

    def walk(value: Any) -> list[str] | None:
        if value.__class__ is list:
            return items(value)
        if len(value) > FEW and value.keys() <= known and _CONTAINERS.isdisjoint(map(type, value.values())):
            return None  # the same as below, but quickly
        removed: list[str] | None = None
        unknown: list[str] | None = None
        for key, item in value.items():
            child = get(key, extra)
            if child is None:
                if unknown is None:
                    unknown = []
                unknown.append(key)
            elif item.__class__ is dict or item.__class__ is list:
                paths = child(item)
                if paths:
                    name = short(key)
                    removed = gathered(removed, [f".{name}{path}" for path in paths])
        if unknown is not None:
            for key in unknown:
                del value[key]
            removed = gathered(removed, [f".{short(key)}" for key in first_names(unknown)])
        return removed

    return walk


def sorted_paths(paths: list[str] | None) -> list[str]:
    """Return the paths of a root pruner without the leading dot, sorted (PRU-008)."""
    return sorted(path[1:] for path in paths)[: limits.MAX_UNKNOWN] if paths else []
