"""Merge types: the values that a field may have, and the ownership of their parts.

Parts of a value may have separate owners (SSA-010). A path element is a step of a field path, such as ``f:spec``
(path.py). In this module, "set" means a set of field paths (fieldset.py), except for lists of type set.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import orjson
from msgspec import Struct, field

from apiext.managedfields import path
from apiext.text.quotes import go_quote

STRING, NUMERIC, BOOLEAN, UNTYPED = "string", "numeric", "boolean", "untyped"
MISSING: Any = object()
"""The value of an absent field, which differs from null."""
LEAF: dict[str, Any] = {}
"""The node of a path without longer paths in the set. Sets may share this object, since sets never change."""


_CLASSES: Mapping[str, frozenset[type]] = {
    "": frozenset((type(None),)),
    STRING: frozenset((type(None), str)),
    NUMERIC: frozenset((type(None), int, float)),
    BOOLEAN: frozenset((type(None), bool)),
    UNTYPED: frozenset((type(None), str, int, float, bool)),
}


class Type(Struct, eq=False):
    """The type of a field: a scalar, a list, a map, or several of these types.

    If there are several types, a value has one of them. ``simple`` are the classes of the scalar values that fit the
    type.
    """

    scalar: str = ""
    list: "ListType | None" = None
    map: "MapType | None" = None
    simple: frozenset[type] = frozenset()  # computed from ``scalar``

    def __post_init__(self) -> None:
        self.simple = _CLASSES[self.scalar]


class ListType(Struct, eq=False):
    """A list: atomic (owned only as a whole), or granular (each item has owners of its own).

    The items of a granular list without ``keys`` (a list of type set) are identified by their values.
    """

    item: Type
    granular: bool = False
    keys: tuple[str, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)  # name of a key field → its default


class _Elements(dict[str, str]):
    """Cache: field name → path element, for declared fields."""

    __slots__ = ("_declared",)

    def __init__(self, declared: Mapping[str, Type]) -> None:
        super().__init__()
        self._declared = declared

    def __missing__(self, name: str) -> str:
        element = path.field(name)
        if name in self._declared:
            self[name] = element
        return element


class MapType(Struct, eq=False):
    """A map or an object: atomic (owned only as a whole), or granular (each field has owners).

    ``element`` is the type of undeclared fields, if they are allowed.
    """

    fields: Mapping[str, Type] = field(default_factory=dict)
    element: Type | None = None
    granular: bool = True
    deduced: bool = False  # no field is declared, any scalar is allowed, and older sets are not adapted to it
    elements: Mapping[str, str] = field(default_factory=dict)  # computed from ``fields``

    def __post_init__(self) -> None:
        self.elements = _Elements(self.fields)

    def leaves(self, names: Iterable[str]) -> dict[str, Any]:
        """Return the set that contains the paths of these fields. A loop in Python would be slower."""
        return dict.fromkeys(map(self.elements.__getitem__, names), LEAF)

    def member(self, name: str) -> Type | None:
        """Return the type of a field, or None if it is not allowed."""
        return self.fields.get(name) or self.element


def _untyped() -> Type:
    found = Type(UNTYPED)
    found.list, found.map = ListType(found), MapType(element=found, granular=False)
    return found


def _deduced() -> Type:
    found = Type(UNTYPED, ListType(ATOMIC))
    found.map = MapType(element=found, deduced=True)
    return found


ATOMIC = _untyped()
"""Any value, owned only as a whole."""
DEDUCED = _deduced()
"""Any value: maps are granular, lists atomic (upstream: __untyped_deduced_)."""
NOTHING = Type()
"""The type of a value that no schema declares."""


class ItemError(ValueError):
    """The error of an item that a granular list may not contain, for example without its keys."""


def item_element(type_: ListType, item: Any) -> str:
    """Return the path element of an item of a granular list.

    Raise ItemError with upstream's text.
    """
    if not type_.keys:
        return _set_element(item)
    if item.__class__ is not dict:
        text = "a null element" if item is None else "non-map elements"
        raise ItemError(f"associative list with keys may not have {text}")
    found = {}
    for name in type_.keys:
        if name in item:
            found[name] = item[name]
        elif type_.defaults.get(name) is not None:
            found[name] = type_.defaults[name]
    if not found:
        names = "[" + " ".join(go_quote(name) for name in type_.keys) + "]"
        raise ItemError(
            f"associative list with keys has an element that omits all key fields {names} "
            "(and doesn't have default values for any key fields)"
        )
    return path.key(found)


def element_unchecked(type_: ListType, item: Any) -> str:
    """Return the path element of an item of a granular list.

    Return an empty string for an invalid item. An item may be invalid after pruning: an item becomes null if no field
    remains.
    """
    try:
        return item_element(type_, item)
    except ItemError:
        return ""


def _set_element(item: Any) -> str:
    if item.__class__ is str:
        return path.value(item)
    if item.__class__ is dict:
        raise ItemError("associative list without keys has an element that's a map type")
    if item.__class__ is list:
        raise ItemError("not supported: associative list with lists as elements")
    if item is None:
        raise ItemError("associative list without keys has an element that's an explicit null")
    return path.value(item)


def is_granular_map(type_: Type, value: Any) -> bool:
    """Return whether a value is a map that is not empty, and its type is granular."""
    return value.__class__ is dict and bool(value) and type_.map is not None and type_.map.granular


def is_granular_list(type_: Type, value: Any) -> bool:
    """Return whether a value is a list that is not empty, and its type is granular."""
    return value.__class__ is list and bool(value) and type_.list is not None and type_.list.granular


def same_json(left: Any, right: Any) -> bool:
    """Return whether two containers have the same JSON.

    The test is fast, but returns False for some equal containers, such as those whose keys have another order.
    """
    return left is right or (left.__class__ is right.__class__ and orjson.dumps(left) == orjson.dumps(right))


def equal(left: Any, right: Any) -> bool:
    """Return whether two JSON values are equal for upstream.

    1 equals 1.0, but 1 does not equal true.
    """
    if left is right:
        return True
    if left.__class__ is not right.__class__:
        return {left.__class__, right.__class__} == {int, float} and bool(left == right)
    if left.__class__ is dict:
        return len(left) == len(right) and all(
            name in right and equal(item, right[name]) for name, item in left.items()
        )
    if left.__class__ is list:
        return len(left) == len(right) and all(map(equal, left, right))
    return bool(left == right)
