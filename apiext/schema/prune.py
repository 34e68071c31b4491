"""Prune: delete the fields that a schema does not declare, and return their paths.

See PRU-001…008.
"""

from collections.abc import Callable, Collection, Iterator
from heapq import heappop, heappush
from itertools import count
from typing import Any

from apiext.documents.paths import short
from apiext.go_types import limits as go_types_limits
from apiext.schema import limits
from apiext.schema.recursion import deep_recursion
from apiext.schema.structural import META_FIELDS, Structural

Removed = list[Any]
"""The deleted fields of an object or array, never empty.

An item is the name of a deleted field, or (name or index, Removed) for an inner value with deleted fields. This is a
tree, since all paths as strings could need memory in proportion to the square of the body's size.
"""


_MANY = 4 * go_types_limits.MAX_UNKNOWN


def fields(names: Collection[str]) -> Removed:
    """Return the shortened names of the unknown fields of one object.

    Of more than _MANY names, return only the alphabetically first MAX_UNKNOWN.
    """
    return [short(name) for name in (names if len(names) <= _MANY else sorted(names)[: go_types_limits.MAX_UNKNOWN])]


def add_item(removed: Removed, index: int, below: Removed) -> None:
    """Add the deleted fields of an array item.

    If ``removed`` then has more than _MANY items, keep only the MAX_UNKNOWN items whose paths sort first.
    """
    removed.append((index, below))
    if len(removed) > _MANY:
        removed.sort(key=_key)
        del removed[go_types_limits.MAX_UNKNOWN :]


def _key(entry: Any) -> str:
    if entry.__class__ is str:
        return str(entry)
    return f"{entry[0]}]" if entry[0].__class__ is int else str(entry[0])


def sorted_paths(removed: Removed | None) -> list[str]:
    """Return the sorted paths of deleted fields, as many as a response shows (PRU-008)."""
    found: list[str] = []
    if not removed:
        return found
    size = 0
    # One heap entry for each object or array: the path of its next field, and an iterator over later fields. A path
    # sorts before all paths below it.
    heap: list[tuple[str, int, Any, str | None, Iterator[Any]]] = []
    number = count()  # makes entries with equal paths comparable

    def push(holder: str | None, entries: Iterator[Any]) -> None:
        for entry in entries:
            step, below = (entry, None) if entry.__class__ is str else entry
            path = f"{holder}[{step}]" if step.__class__ is int else step if holder is None else f"{holder}.{step}"
            heappush(heap, (path, next(number), below, holder, entries))
            return

    push(None, iter(sorted(removed, key=_key)))
    while heap and len(found) < go_types_limits.MAX_UNKNOWN and size < limits.MAX_UNKNOWN_TEXT:
        path, _, below, holder, entries = heappop(heap)
        push(holder, entries)
        if below is None:
            found.append(path)
            size += len(path)
        else:
            push(path, iter(sorted(below, key=_key)))
    return found


Pruner = Callable[[Any], Removed | None]
"""Prunes a dict or list in place; returns the fields that it deleted, or None."""


def prune_unknown(value: Any) -> Removed | None:
    """Prune a value without a schema (PRU-004).

    Delete all fields of an object, or of all objects in an array.
    """
    if value.__class__ is dict:
        return _all(value)
    # for each list of the current path: its index in the outer list, its remaining items, and their deleted fields
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


FEW = 8  # up to this number of fields, a loop is as fast as set operations
_CONTAINERS = frozenset((dict, list))


def leave(value: Any) -> Removed | None:
    """Delete no field and return None: the pruner of values whose fields all stay."""
    return None


def pruner(node: Structural, *, skip: bool = False, root: bool = False) -> Pruner:
    """Return the pruner of a node.

    If ``skip`` is true, keep unknown fields of this node, for an item of a list that preserves unknown fields
    (PRU-003). If ``root`` is true, keep apiVersion, kind and metadata, as in an embedded resource (PRU-002).
    """
    name = "prune root" if root else "prune skip" if skip or node.extensions.preserve else "prune"
    found = node.compiled.get(name)
    if found is None:
        with deep_recursion(root):
            found = node.compiled[name] = _make(
                node, skip or node.extensions.preserve, root or node.extensions.embedded
            )
    made: Pruner = found
    return made


def members(node: Structural, meta: bool) -> dict[str, Structural | None]:
    """Return the property schemas of a node.

    If ``meta`` is true, apiVersion, kind and metadata have None instead of a schema.
    """
    found: dict[str, Structural | None] = dict(node.properties)
    if meta:
        found.update(dict.fromkeys(META_FIELDS))
    return found


def list_pruner(items: Pruner) -> Pruner:
    """Return the pruner of a list, given the pruner of its items."""

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
            return None  # fast path of the loop below
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
