"""What changed between two values: paths removed, modified and added (SSA-006, SSA-008; upstream: Compare)."""

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
    alike,
    equal,
    is_granular_list,
    is_granular_map,
    item_element,
)

SIMPLE = frozenset((str, int, bool, float, type(None)))


class Comparison(Struct, frozen=True):
    """Three disjoint sets."""

    removed: FieldSet
    modified: FieldSet
    added: FieldSet

    def without(self, ignored: FieldSet) -> "Comparison":
        """Return the comparison without what is at or below the ignored paths."""
        if ignored.keys().isdisjoint((*self.removed, *self.modified, *self.added)):
            return self
        return Comparison(
            recursive_difference(self.removed, ignored),
            recursive_difference(self.modified, ignored),
            recursive_difference(self.added, ignored),
        )


_Changes = tuple[dict[str, Any], dict[str, Any], dict[str, Any]]
"""What is below a place: removed, modified, added."""
_NONE: _Changes = ({}, {}, {})


def compare(of: Type, left: Any, right: Any) -> Comparison:
    """Return what changed from left to right; both fit the type."""
    return Comparison(*_changes(of, left, right)[1])


def _changes(of: Type, left: Any, right: Any) -> tuple[bool, _Changes]:
    """Return whether the place itself was modified, and the changes below; both values are there."""
    if left is right:
        return False, _NONE
    if is_granular_map(of, left) or is_granular_map(of, right):
        if left.__class__ is dict and right.__class__ is dict and of.map is not None:
            return False, _map_changes(of.map, left, right)
    elif is_granular_list(of, left) or is_granular_list(of, right):
        if left.__class__ is list and right.__class__ is list and of.list is not None:
            return False, _list_changes(of.list, left, right)
    else:
        return not equal(left, right), _NONE
    gone, come = _below(of, left), _below(of, right)
    modified = bool((not gone and left is not None) or (not come and right is not None))
    return modified, (gone, {}, come)


def _map_changes(of: MapType, left: dict[str, Any], right: dict[str, Any]) -> _Changes:
    removed: dict[str, Any] = {}
    modified: dict[str, Any] = {}
    added: dict[str, Any] = {}
    fields, element = of.fields, of.element
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
            removed[f"f:{name}"] = appearing(fields.get(name) or element or NOTHING, old)
        elif kind in SIMPLE and new.__class__ in SIMPLE:
            if not equal(old, new):
                modified[f"f:{name}"] = LEAF
        elif old != new or not alike(old, new):  # what differs is seen at its first difference
            below = fields.get(name) or element or NOTHING
            if kind is dict is new.__class__ and old and new and below.map is not None and below.map.granular:
                found = False, _map_changes(below.map, old, new)  # what _changes does
            else:
                found = _changes(below, old, new)
            _note(f"f:{name}", found, removed, modified, added)
    added |= _added(of, left, right, both)
    return removed, modified, added


def _added(of: MapType, left: dict[str, Any], right: dict[str, Any], both: int) -> dict[str, Any]:
    """Return what is below members that only the right value has; ``both`` is how many it shares with the left."""
    if len(right) == both:
        return {}
    names = filterfalse(left.__contains__, right)
    return {f"f:{name}": appearing(of.fields.get(name) or of.element or NOTHING, right[name]) for name in names}


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


def _list_changes(of: ListType, left: list[Any], right: list[Any]) -> _Changes:
    removed: dict[str, Any] = {}
    modified: dict[str, Any] = {}
    added: dict[str, Any] = {}
    before, after = _by_element(of, left), _by_element(of, right)
    nothing: list[Any] = []
    for element in {**before, **after}:
        old, new = before.get(element, nothing), after.get(element, nothing)
        if len(old) == 1 and len(new) == 1:
            _note(element, _changes(of.item, old[0], new[0]), removed, modified, added)
        elif len(old) > 1 and len(new) > 1:
            if not equal(old, new):
                modified[element] = LEAF
        elif len(old) > 1:
            removed[element] = LEAF
            if new:
                added[element] = appearing(of.item, new[0])
        elif len(new) > 1:
            added[element] = LEAF
            if old:
                removed[element] = appearing(of.item, old[0])
        elif new:
            added[element] = appearing(of.item, new[0])
        else:
            removed[element] = appearing(of.item, old[0])
    return removed, modified, added


def _by_element(of: ListType, values: list[Any]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for element, item in zip(elements_of(of, values), values, strict=True):
        found.setdefault(element, []).append(item)
    return found


def appearing(of: Type, value: Any) -> dict[str, Any]:
    """Return the node of a place where nothing was: itself and all below (the same for one that goes away)."""
    if value.__class__ in SIMPLE:
        return LEAF
    below = _below(of, value)
    if not below:
        return LEAF
    below[SELF] = LEAF
    return below


def _below(of: Type, value: Any) -> dict[str, Any]:
    """Return what is below a place that appears, a dictionary of the caller's own; empty for leaves."""
    found: dict[str, Any] = {}
    if value.__class__ is dict:
        if of.map is None or not of.map.granular:
            return {}
        if SIMPLE.issuperset(map(type, value.values())):
            return of.map.leaves(value)
        fields, element = of.map.fields, of.map.element
        for name, item in value.items():  # no comprehension: it would be one more frame for each level
            simple = item.__class__ in SIMPLE
            found[f"f:{name}"] = LEAF if simple else appearing(fields.get(name) or element or NOTHING, item)
        return found
    if value.__class__ is not list or of.list is None or not of.list.granular:
        return {}
    for item in value:
        name = item_element(of.list, item)
        found[name] = LEAF if name in found else appearing(of.list.item, item)
    return found
