"""Merge types: how the values at a place may look, who owns them as one and who piece by piece (SSA-010)."""

from collections.abc import Iterable, Mapping
from typing import Any

import orjson
from msgspec import Struct, field

from apiext.documents.quotes import go_quote
from apiext.managedfields import path

STRING, NUMERIC, BOOLEAN, UNTYPED = "string", "numeric", "boolean", "untyped"
MISSING: Any = object()
"""The value of a member that is not there, which is not null."""
LEAF: dict[str, Any] = {}
"""The node of a member with nothing below; shared, as sets are never changed."""


_CLASSES: Mapping[str, frozenset[type]] = {
    "": frozenset((type(None),)),
    STRING: frozenset((type(None), str)),
    NUMERIC: frozenset((type(None), int, float)),
    BOOLEAN: frozenset((type(None), bool)),
    UNTYPED: frozenset((type(None), str, int, float, bool)),
}


class Type(Struct, eq=False):
    """What may be at a place: a scalar, a list, a map, or any of several; which one a value is shows in the value.

    ``simple`` are the classes of the values that are a leaf here and fit.
    """

    scalar: str = ""
    list: "ListType | None" = None
    map: "MapType | None" = None
    simple: frozenset[type] = frozenset()  # computed from ``scalar``

    def __post_init__(self) -> None:
        self.simple = _CLASSES[self.scalar]


class ListType(Struct, eq=False):
    """A list: owned as one, or item by item. Items without ``keys`` are their own names (sets)."""

    item: Type
    granular: bool = False
    keys: tuple[str, ...] = ()
    defaults: Mapping[str, Any] = field(default_factory=dict)  # of key fields, by name


class _Elements(dict[str, str]):
    """Path elements by the names of fields; those of declared fields are made once, at their first use."""

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
    """A map or an object: owned as one, or member by member. ``element`` is the type of undeclared members, if any."""

    fields: Mapping[str, Type] = field(default_factory=dict)
    element: Type | None = None
    granular: bool = True
    deduced: bool = False  # no member is declared, and any scalar may be one: its type is never reconciled
    elements: Mapping[str, str] = field(default_factory=dict)  # computed from ``fields``

    def __post_init__(self) -> None:
        self.elements = _Elements(self.fields)

    def leaves(self, names: Iterable[str]) -> dict[str, Any]:
        """Return the set of these members with nothing below them; no code of ours runs for each."""
        return dict.fromkeys(map(self.elements.__getitem__, names), LEAF)

    def member(self, name: str) -> Type | None:
        """Return the type of a member, None when it may not be there."""
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
"""Anything, owned as one."""
DEDUCED = _deduced()
"""Anything: maps member by member, lists as one (upstream: __untyped_deduced_)."""
NOTHING = Type()
"""The type of what no schema declares."""


class ItemError(ValueError):
    """An item of a granular list that has no name."""


def item_element(of: ListType, item: Any) -> str:
    """Return the path element of an item of a granular list; ItemError with upstream's text."""
    if not of.keys:
        return _set_element(item)
    if item.__class__ is not dict:
        text = "a null element" if item is None else "non-map elements"
        raise ItemError(f"associative list with keys may not have {text}")
    found = {}
    for name in of.keys:
        if name in item:
            found[name] = item[name]
        elif of.defaults.get(name) is not None:
            found[name] = of.defaults[name]
    if not found:
        names = "[" + " ".join(go_quote(name) for name in of.keys) + "]"
        raise ItemError(
            f"associative list with keys has an element that omits all key fields {names} "
            "(and doesn't have default values for any key fields)"
        )
    return path.key(found)


def element_unchecked(of: ListType, item: Any) -> str:
    """Return the path element of an item, empty for one without a name: pruning leaves null where keys are defaults."""
    try:
        return item_element(of, item)
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


def is_granular_map(of: Type, value: Any) -> bool:
    """Tell whether a value is a map that is owned member by member, and has any."""
    return value.__class__ is dict and bool(value) and of.map is not None and of.map.granular


def is_granular_list(of: Type, value: Any) -> bool:
    """Tell whether a value is a list that is owned item by item, and has any."""
    return value.__class__ is list and bool(value) and of.list is not None and of.list.granular


def alike(left: Any, right: Any) -> bool:
    """Tell whether two containers are written alike, which is quick; equal ones may be written differently."""
    return left is right or (left.__class__ is right.__class__ and orjson.dumps(left) == orjson.dumps(right))


def equal(left: Any, right: Any) -> bool:
    """Tell whether two JSON values are equal as upstream sees them: 1 is 1.0, and neither is true."""
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
