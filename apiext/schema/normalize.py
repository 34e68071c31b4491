"""Prune, drop nulls and default in one walk: the road of every request body without embedded resources."""

from collections.abc import Callable, Mapping
from itertools import filterfalse
from typing import Any

from apiext.documents.places import short
from apiext.schema.budget import DEFAULTS
from apiext.schema.deeply import deeply
from apiext.schema.default import Default, ready
from apiext.schema.nulls import drops_null
from apiext.schema.prune import FEW, leave, list_pruner, members, prune_unknown
from apiext.schema.removed import Removed, fields
from apiext.schema.structural import Structural

Normalizer = Callable[[Any], Removed | None]
"""Normalizes a dict or list in place; returns what was removed as a pruner does."""


def normalizer(node: Structural, *, skip: bool = False, root: bool = False) -> Normalizer:
    """Return the function that prunes, drops nulls and fills defaults below a node.

    Equal to the pruner, the null dropper and the defaulter one after the other, for nodes without embedded resources.
    """
    name = "normalize root" if root else "normalize skip" if skip or node.preserve else "normalize"
    found = node.compiled.get(name)
    if found is None:
        with deeply(root):
            found = node.compiled[name] = _make(node, skip or node.preserve, root)
    made: Normalizer = found
    return made


def _lists(node: Structural, keep: bool) -> Normalizer:
    if node.items is None:
        return leave if keep else list_pruner(prune_unknown)
    walk = list_pruner(normalizer(node.items, skip=keep))
    default = ready(node.items)
    if default is None or default.nullable:
        return walk

    def fill(value: Any) -> Removed | None:
        removed = walk(value)
        for index, item in enumerate(value):
            if item is None:
                value[index] = default.copy()
        return removed

    return fill


def _make(node: Structural, keep: bool, root: bool) -> Normalizer:
    table = members(node, root)
    known = {name: normalizer(child) if child is not None else leave for name, child in table.items()}
    get = known.get
    defaults = {name: made for name, child in table.items() if (made := ready(child)) is not None}
    nulls = frozenset(name for name, child in table.items() if drops_null(child))
    extra: Normalizer | None = leave if keep else None
    if node.additional is not None:
        extra = normalizer(node.map_values) if node.map_values is not None else prune_unknown
    null_extra = _null_of_maps(node)
    lists = _lists(node, keep)
    knows = frozenset(known).issuperset
    fill = _filler(defaults)

    def walk(value: Any) -> Removed | None:
        if value.__class__ is list:
            return lists(value)
        removed: Removed | None = None
        gone: list[str] | None = None
        unknown: list[str] | None = None
        flat = _is_flat(value, knows)
        for key, item in () if flat else value.items():
            if item.__class__ in _SCALARS and key in known:
                continue
            child = get(key, extra)
            if child is None:
                unknown = unknown or []
                unknown.append(key)
            elif item is None:
                if key in nulls or (null_extra is _DROP and key not in table):
                    gone = gone or []
                    gone.append(key)
                elif null_extra.__class__ is Default and key not in table:
                    value[key] = null_extra.copy()
            elif item.__class__ not in _SCALARS:
                below = child(item)
                if below:
                    if removed is None:
                        removed = []
                    removed.append((short(key), below))
        if unknown is not None or gone is not None:
            removed = _lose(value, removed, unknown or [], gone or [])
        if defaults:
            fill(value, flat)
        return removed

    return walk


def _is_flat(value: Any, knows: Callable[[Any], bool]) -> bool:
    """Tell quickly that a larger object has nothing but declared scalars."""
    return len(value) > FEW and _SCALARS.issuperset(map(type, value.values())) and knows(value)


def _filler(defaults: Mapping[str, Default]) -> Callable[[Any, bool], None]:
    """Return what sets the defaults that an object lacks; it is told whether there are no nulls."""
    shared = {name: made.value for name, made in defaults.items()}.__getitem__
    weight = {name: made.weight for name, made in defaults.items()}.__getitem__
    fresh = frozenset(name for name, made in defaults.items() if made.fresh)

    def fill(value: Any, flat: bool) -> None:
        missing = [*filterfalse(value.__contains__, defaults)]
        if not flat:
            missing += [key for key, made in defaults.items() if value.get(key, key) is None and not made.nullable]
        if not missing:
            return
        value.update(zip(missing, map(shared, missing), strict=True))
        for key in fresh.intersection(missing):
            value[key] = defaults[key].again()
        DEFAULTS.spend(sum(map(weight, missing)))

    return fill


def _lose(value: Any, removed: Removed | None, unknown: list[str], gone: list[str]) -> Removed | None:
    """Delete members, and add those that are unknown to what was removed."""
    for key in unknown:
        del value[key]
    for key in gone:
        del value[key]
    return [*(removed or ()), *fields(unknown)] if unknown else removed


_DROP = object()
_SCALARS = frozenset((str, int, float, bool))


def _null_of_maps(node: Structural) -> Any:
    """Return what a null map value becomes: _DROP, a default, or None for nothing."""
    child = node.map_values
    if drops_null(child):
        return _DROP
    default = ready(child)
    return default if default is not None and not default.nullable else None
