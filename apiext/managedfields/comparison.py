"""Compare two values; return the removed, modified and added paths.

See SSA-006, SSA-008; upstream: Compare.
"""

from itertools import filterfalse
from typing import Any

from msgspec import Struct

from apiext.managedfields.fieldset import FieldSet, recursive_difference
from apiext.managedfields.path import SELF
from apiext.managedfields.typed import elements_of
from apiext.managedfields.types import (
    LEAF,
    MISSING,
    NOTHING,
    ListType,
    MapType,
    Type,
    equal,
    is_granular_list,
    is_granular_map,
    item_element,
    same_json,
)

SIMPLE = frozenset((str, int, bool, float, type(None)))


class Comparison(Struct, frozen=True):
    """The sets of removed, modified and added paths."""

    removed: FieldSet
    modified: FieldSet
    added: FieldSet

    def without(self, ignored: FieldSet) -> "Comparison":
        """Return the comparison without the ignored paths and all paths below them."""
        if ignored.keys().isdisjoint((*self.removed, *self.modified, *self.added)):
            return self
        return Comparison(
            recursive_difference(self.removed, ignored),
            recursive_difference(self.modified, ignored),
            recursive_difference(self.added, ignored),
        )


_Changes = tuple[dict[str, Any], dict[str, Any], dict[str, Any]]
"""Trees of the removed, modified and added paths below a value."""
_NONE: _Changes = ({}, {}, {})


def compare(type_: Type, left: Any, right: Any) -> Comparison:
    """Return the changes from the left value to the right value; both values must fit the type."""
    return Comparison(*_changes(type_, left, right)[1])


def _changes(type_: Type, left: Any, right: Any) -> tuple[bool, _Changes]:
    """Return whether the value itself was modified, and the changes below it.

    Neither value may be MISSING.
    """
    if left is right:
        return False, _NONE
    if is_granular_map(type_, left) or is_granular_map(type_, right):
        if left.__class__ is dict and right.__class__ is dict and type_.map is not None:
            return False, _map_changes(type_.map, left, right)
    elif is_granular_list(type_, left) or is_granular_list(type_, right):
        if left.__class__ is list and right.__class__ is list and type_.list is not None:
            return False, _list_changes(type_.list, left, right)
    else:
        return not equal(left, right), _NONE
    gone, come = _below(type_, left), _below(type_, right)
    modified = bool((not gone and left is not None) or (not come and right is not None))
    return modified, (gone, {}, come)


def _map_changes(type_: MapType, left: dict[str, Any], right: dict[str, Any]) -> _Changes:
    removed: dict[str, Any] = {}
    modified: dict[str, Any] = {}
    added: dict[str, Any] = {}
    fields, element = type_.fields, type_.element
    both = len(left)
    for name, old in left.items():
        new = right.get(name, MISSING)
        if new is old:
            continue
        kind = old.__class__
        if kind in SIMPLE and kind is new.__class__:
            if old != new:
                modified[f"f:{name}"] = LEAF
        elif new is MISSING:
            both -= 1
            removed[f"f:{name}"] = new_node(fields.get(name) or element or NOTHING, old)
        elif kind in SIMPLE and new.__class__ in SIMPLE:
            if not equal(old, new):
                modified[f"f:{name}"] = LEAF
        elif old != new or not same_json(old, new):  # ``!=`` is fast, since it stops at the first difference
            below = fields.get(name) or element or NOTHING
            if kind is dict is new.__class__ and old and new and below.map is not None and below.map.granular:
                found = False, _map_changes(below.map, old, new)  # as _changes does, without a further call
            else:
                found = _changes(below, old, new)
            _note(f"f:{name}", found, removed, modified, added)
    added |= _added(type_, left, right, both)
    return removed, modified, added


def _added(type_: MapType, left: dict[str, Any], right: dict[str, Any], both: int) -> dict[str, Any]:
    """Return the nodes of fields that only the right value has.

    ``both`` is the number of common fields.
    """
    if len(right) == both:
        return {}
    names = filterfalse(left.__contains__, right)
    return {f"f:{name}": new_node(type_.fields.get(name) or type_.element or NOTHING, right[name]) for name in names}


def _note(
    element: str,
    found: tuple[bool, _Changes],
    removed: dict[str, Any],
    modified: dict[str, Any],
    added: dict[str, Any],
) -> None:
    changed, (gone, other, come) = found
    if gone:
        removed[element] = gone
    if changed:
        modified[element] = {SELF: LEAF, **other} if other else LEAF
    elif other:
        modified[element] = other
    if come:
        added[element] = come


def _list_changes(type_: ListType, left: list[Any], right: list[Any]) -> _Changes:
    removed: dict[str, Any] = {}
    modified: dict[str, Any] = {}
    added: dict[str, Any] = {}
    before, after = _by_element(type_, left), _by_element(type_, right)
    nothing: list[Any] = []
    for element in {**before, **after}:
        old, new = before.get(element, nothing), after.get(element, nothing)
        if len(old) == 1 and len(new) == 1:
            _note(element, _changes(type_.item, old[0], new[0]), removed, modified, added)
        elif len(old) > 1 and len(new) > 1:
            if not equal(old, new):
                modified[element] = LEAF
        elif len(old) > 1:
            removed[element] = LEAF
            if new:
                added[element] = new_node(type_.item, new[0])
        elif len(new) > 1:
            added[element] = LEAF
            if old:
                removed[element] = new_node(type_.item, old[0])
        elif new:
            added[element] = new_node(type_.item, new[0])
        else:
            removed[element] = new_node(type_.item, old[0])
    return removed, modified, added


def _by_element(type_: ListType, values: list[Any]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for element, item in zip(elements_of(type_, values), values, strict=True):
        found.setdefault(element, []).append(item)
    return found


def new_node(type_: Type, value: Any) -> dict[str, Any]:
    """Return the node of an added or removed value: the value itself and all paths below it."""
    if value.__class__ in SIMPLE:
        return LEAF
    below = _below(type_, value)
    if not below:
        return LEAF
    below[SELF] = LEAF
    return below


def _below(type_: Type, value: Any) -> dict[str, Any]:
    """Return the paths below an added or removed value, as a new dictionary.

    The dictionary is empty for leaves.
    """
    found: dict[str, Any] = {}
    if value.__class__ is dict:
        if type_.map is None or not type_.map.granular:
            return {}
        if SIMPLE.issuperset(map(type, value.values())):
            return type_.map.leaves(value)
        fields, element = type_.map.fields, type_.map.element
        for name, item in value.items():  # no comprehension: it would need one more stack frame for each level
            simple = item.__class__ in SIMPLE
            found[f"f:{name}"] = LEAF if simple else new_node(fields.get(name) or element or NOTHING, item)
        return found
    if value.__class__ is not list or type_.list is None or not type_.list.granular:
        return {}
    for item in value:
        name = item_element(type_.list, item)
        found[name] = LEAF if name in found else new_node(type_.list.item, item)
    return found
