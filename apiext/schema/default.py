"""Fill in the defaults of a schema (NUL-002…004)."""

from collections.abc import Callable
from copy import copy
from typing import Any

import orjson

from apiext.documents.document import clone
from apiext.meta import objectmeta
from apiext.schema import coerce, limits
from apiext.schema.budget import DEFAULTS, OverBudget
from apiext.schema.prune import members, pruner
from apiext.schema.recursion import deep_recursion
from apiext.schema.structural import Structural

Defaulter = Callable[[Any], bool]
"""Fills defaults into a dict or list in place; returns whether it changed the value."""


class Default:
    """The prepared default of a node: pruned, and with the defaults of its inner fields.

    An object may get at most MAX_DEFAULTED bytes of defaults; each copy of ``value`` counts as ``size`` bytes.
    ``max_size`` is the maximal number of bytes of a copy after all inner defaults are filled in. Inner defaults can
    multiply the size. If they add more than MAX_KEPT_DEFAULT bytes, they are not cached, but filled into each copy
    (``fill_later``), and count against the limit of the object. ``pruned`` is true if the default had unknown fields,
    which are errors in a new definition (DEF-002).
    """

    __slots__ = ("fill_later", "is_container", "max_size", "nullable", "pruned", "size", "value")

    def __init__(self, node: Structural) -> None:
        value = clone(node.default)
        self.pruned = False
        self.nullable = node.nullable
        self.is_container = isinstance(value, (dict, list))
        if self.is_container:
            if coerce.applies_to(node):
                coerce.coerce(node, value, drop_invalid=True)
            self.pruned = bool(pruner(node)(value))  # DEF-005
        self._keep(node, value)

    def _keep(self, node: Structural, value: Any) -> None:
        """Set ``value`` to the value with its inner defaults.

        If the inner defaults are too large, set ``fill_later`` instead.
        """
        fill = defaulter(node) if self.is_container else None
        self.fill_later: Defaulter | None = None
        self.value = value
        if fill is not None:
            try:
                with DEFAULTS.separate(limits.MAX_KEPT_DEFAULT):
                    fill(full := clone(value))
                self.value = full
            except OverBudget:
                self.fill_later = fill
        self.size = _size(self.value)
        self.max_size = self.size if self.fill_later is None else limits.MAX_DEFAULTED

    def for_metadata(self, node: Structural) -> "Default":
        """Return this default of the metadata of an embedded resource with only valid fields.

        See DEF-005.
        """
        made = copy(self)
        if isinstance(node.default, dict):
            made._keep(node, objectmeta.repair(node.default))
        return made

    def copy(self) -> Any:
        """Return a copy of the value for one field of an object, and count its bytes.

        Raise OverBudget if the defaults of the object have more than MAX_DEFAULTED bytes.
        """
        DEFAULTS.left -= self.size
        if DEFAULTS.left < 0:
            DEFAULTS.spend(0)
        if not self.is_container:
            return self.value
        value = clone(self.value)
        if self.fill_later is not None:
            self.fill_later(value)
        return value


def _size(value: Any) -> int:
    try:
        return 8 + len(orjson.dumps(value))
    except TypeError:  # nested deeper than orjson supports
        return 1 << 20


def default_of(node: Structural | None) -> Default | None:
    """Return the prepared default of a node, or None if the node has no default."""
    if node is None or node.default is None:
        return None
    found = node.compiled.get("default value")
    if found is None:
        found = node.compiled["default value"] = Default(node)
    made: Default = found
    return made


def defaulter(node: Structural, *, root: bool = False) -> Defaulter | None:
    """Return the function that fills defaults below a node.

    Return None if no default is below the node.
    """
    name = "defaults root" if root else "defaults"
    if name not in node.compiled:
        with deep_recursion(root):
            node.compiled[name] = _make(node, root)
    found: Defaulter | None = node.compiled[name]
    return found


def _make(node: Structural, root: bool) -> Defaulter | None:
    table = members(node, root)
    extra, items = node.map_values, node.items
    values = {name: made for name, child in table.items() if (made := default_of(child)) is not None}
    if node.extensions.embedded and "metadata" in values:
        values["metadata"] = values["metadata"].for_metadata(node.properties["metadata"])
    walkers = {name: fill for name, child in table.items() if child is not None and (fill := defaulter(child))}
    extra_value, item_value = default_of(extra), default_of(items)
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
    """Return the maximal number of bytes that defaults add to one list item or map value.

    A default that replaces a null item or value does not count.
    """
    return _max_sizes(node)[1]


def _max_sizes(node: Structural) -> tuple[int, int]:
    """Return the maximal bytes of defaults in a node.

    The result is (bytes in its fields, bytes in one list item or map value below it).
    """
    found = node.compiled.get("default weights")
    if found is None:
        own = max_size = 0
        for child in node.properties.values():
            default = default_of(child)
            inner, below = _max_sizes(child)
            own += inner + (default.max_size if default is not None else 0)
            max_size = max(max_size, below)
        for each in (node.items, node.map_values):
            if each is not None:
                inner, below = _max_sizes(each)
                max_size = max(max_size, below, inner)
        found = node.compiled["default weights"] = (own, max_size)
    weights: tuple[int, int] = found
    return weights
