"""Fills in the defaults of a schema (NUL-002…004)."""

from collections.abc import Callable
from copy import copy
from typing import Any

import orjson

from apiext.documents.document import clone
from apiext.meta import objectmeta
from apiext.schema import coerce, limits
from apiext.schema.budget import DEFAULTS, OverBudget
from apiext.schema.deeply import deeply
from apiext.schema.prune import members, pruner
from apiext.schema.structural import Structural

Defaulter = Callable[[Any], bool]
"""Fills defaults into a dict or list in place; returns whether any were missing."""


class Default:
    """A default made ready: pruned, with the defaults below it filled in, and its size in bytes.

    ``weight`` are the bytes that it takes by itself, ``most`` those with what is filled in later: defaults of items
    and members multiply, so what is long is not kept but filled in for each object, which has a bound.
    ``pruned`` tells whether it had unknown fields, which a definition may no longer have (DEF-002).
    """

    __slots__ = ("fresh", "late", "most", "nullable", "pruned", "value", "weight")

    def __init__(self, node: Structural) -> None:
        value = clone(node.default)
        self.pruned = False
        self.nullable = node.nullable
        self.fresh = isinstance(value, (dict, list))
        if self.fresh:
            if coerce.matters(node):
                coerce.coerce(node, value, drop_invalid=True)
            self.pruned = bool(pruner(node)(value))  # DEF-005
        self._keep(node, value)

    def _keep(self, node: Structural, value: Any) -> None:
        """Keep a value with the defaults below it, or how they are filled in when they are many."""
        fill = defaulter(node) if self.fresh else None
        self.late: Defaulter | None = None
        self.value = value
        if fill is not None:
            try:
                with DEFAULTS.aside(limits.MAX_KEPT_DEFAULT):
                    fill(full := clone(value))
                self.value = full
            except OverBudget:
                self.late = fill
        self.weight = _size(self.value)
        self.most = self.weight if self.late is None else limits.MAX_DEFAULTED

    def of_metadata(self, node: Structural) -> "Default":
        """Return this default of an embedded resource's metadata with what metadata has, not its schema (DEF-005)."""
        made = copy(self)
        if isinstance(node.default, dict):
            made._keep(node, objectmeta.repair(node.default))
        return made

    def copy(self) -> Any:
        """Return the value for one place, and count its bytes."""
        DEFAULTS.left -= self.weight
        if DEFAULTS.left < 0:
            DEFAULTS.spend(0)
        if not self.fresh:
            return self.value
        value = clone(self.value)
        if self.late is not None:
            self.late(value)
        return value


def _size(value: Any) -> int:
    try:
        return 8 + len(orjson.dumps(value))
    except TypeError:  # nested deeper than orjson goes
        return 1 << 20


def ready(node: Structural | None) -> Default | None:
    """Return the default of a node made ready, or None when it has none."""
    if node is None or node.default is None:
        return None
    found = node.compiled.get("default value")
    if found is None:
        found = node.compiled["default value"] = Default(node)
    made: Default = found
    return made


def defaulter(node: Structural, *, root: bool = False) -> Defaulter | None:
    """Return the function that fills defaults below a node; None when the schema has none there."""
    name = "defaults root" if root else "defaults"
    if name not in node.compiled:
        with deeply(root):
            node.compiled[name] = _make(node, root)
    found: Defaulter | None = node.compiled[name]
    return found


def _make(node: Structural, root: bool) -> Defaulter | None:
    table = members(node, root)
    extra, items = node.map_values, node.items
    values = {name: made for name, child in table.items() if (made := ready(child)) is not None}
    if node.embedded and "metadata" in values:
        values["metadata"] = values["metadata"].of_metadata(node.properties["metadata"])
    walkers = {name: fill for name, child in table.items() if child is not None and (fill := defaulter(child))}
    extra_value, item_value = ready(extra), ready(items)
    walk_extra = defaulter(extra) if extra is not None else None
    walk_items = defaulter(items) if items is not None else None
    fill_map = _map_filler(table, extra_value, walk_extra) if extra_value or walk_extra else None
    fill_list = _list_filler(item_value, walk_items) if item_value or walk_items else None
    if not (values or walkers or fill_map or fill_list):
        return None

    def walk(value: Any) -> bool:
        if value.__class__ is list:
            return fill_list(value) if fill_list is not None else False
        changed = False
        for key, fill in walkers.items():
            item = value.get(key)
            if item.__class__ is dict or item.__class__ is list:
                changed = fill(item) or changed
        if fill_map is not None:
            changed = fill_map(value) or changed
        for key, default in values.items():
            if key not in value or (value[key] is None and not default.nullable):
                value[key] = default.copy()
                changed = True
        return changed

    return walk


def _map_filler(table: dict[str, Structural | None], default: Default | None, fill: Defaulter | None) -> Defaulter:
    def walk(value: Any) -> bool:
        changed = False
        for key, item in value.items():
            if key in table:
                continue
            if item is None:
                if default is not None and not default.nullable:
                    value[key] = default.copy()
                    changed = True
            elif fill is not None and (item.__class__ is dict or item.__class__ is list):
                changed = fill(item) or changed
        return changed

    return walk


def _list_filler(default: Default | None, fill: Defaulter | None) -> Defaulter:
    def walk(value: Any) -> bool:
        changed = False
        for index, item in enumerate(value):
            if item is None:
                if default is not None and not default.nullable:
                    value[index] = default.copy()
                    changed = True
            elif fill is not None and (item.__class__ is dict or item.__class__ is list):
                changed = fill(item) or changed
        return changed

    return walk


def growth(node: Structural) -> int:
    """Return the most bytes of defaults that one list item or map value below a node may get."""
    return _weights(node)[1]


def _weights(node: Structural) -> tuple[int, int]:
    """Return the bytes of defaults that a node itself may get, and the most that one item or value below gets."""
    found = node.compiled.get("default weights")
    if found is None:
        own = most = 0
        for child in node.properties.values():
            default = ready(child)
            inner, below = _weights(child)
            own += inner + (default.most if default is not None else 0)
            most = max(most, below)
        for each in (node.items, node.map_values):
            if each is not None:
                inner, below = _weights(each)
                most = max(most, below, inner)
        found = node.compiled["default weights"] = (own, most)
    weights: tuple[int, int] = found
    return weights
