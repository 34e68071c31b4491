"""Validate values against merge types, and collect the fields of applied objects.

See SSA-009…012. A merge type (types.py) describes the values of a field. The parts of a granular list or map have their
own owners; an atomic list or map has owners only as a whole. A leaf is a scalar or null. A FieldSet (fieldset.py) is a
tree of path elements, such as ``f:spec``; its members are the paths in the set.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

from apiext.documents.paths import short
from apiext.managedfields import limits, path
from apiext.managedfields.fieldset import FieldSet, is_member
from apiext.managedfields.path import SELF
from apiext.managedfields.types import (
    BOOLEAN,
    LEAF,
    NOTHING,
    NUMERIC,
    STRING,
    ItemError,
    ListType,
    MapType,
    Type,
    element_unchecked,
    is_granular_map,
    item_element,
    same_json,
)
from apiext.meta import limits as meta_limits
from apiext.meta.fields import go_print, has_room
from apiext.text.quotes import go_quote

_PLAIN = frozenset((str, int, float, bool))
_NOTHING_SIMPLE: frozenset[type] = frozenset()
FEW = 8  # up to this number of fields, a loop is as fast as set operations


class Faults:
    """The errors at and below a value.

    ``parts`` are pairs (step to a part, its Faults or error text). Only ``lines`` joins the steps to paths, since the
    paths of all errors could need much memory.
    """

    __slots__ = ("count", "parts")

    def __init__(self, text: str = "") -> None:
        self.count = 1 if text else 0
        self.parts: list[tuple[str, Faults | str]] = [("", text)] if text else []

    def add(self, step: str, wrong: "Faults | str") -> bool:
        """Add the errors of a part; return whether the number of errors exceeds the limit."""
        self.count += 1 if isinstance(wrong, str) else wrong.count
        self.parts.append((step, wrong))
        return self.count > meta_limits.MAX_FIELD_ERRORS

    def lines(self, steps: list[str]) -> Iterator[str]:
        """Yield the text of each error; ``steps`` is the path of this value."""
        for step, wrong in self.parts:
            steps.append(step)
            if isinstance(wrong, str):
                where = "".join(steps)
                yield f"{where}: {wrong}" if where else wrong
            else:
                yield from wrong.lines(steps)
            steps.pop()


class TypeFault(ValueError):
    """The error of a value that does not fit its type.

    The text is upstream's, truncated to the limit of a response.
    """

    def __init__(self, faults: Faults) -> None:
        lines: list[str] = []
        size = 0
        for line in faults.lines([]):
            size += len(line)
            if not has_room(len(lines) + 1, size):
                lines.append("too many errors: the rest is not shown")
                break
            lines.append(line)
        super().__init__(lines[0] if len(lines) == 1 else "\n  ".join(["errors:", *lines]))


def check(type_: Type, value: Any, *, duplicates: bool = True, checked: Any = None) -> None:
    """Raise TypeFault if the value does not fit the type.

    If ``duplicates`` is true, granular lists may contain several items with equal keys, or for sets several equal
    items. ``checked`` is a value that fits; the check skips lists that are equal in ``value`` and ``checked``.
    """
    faults = _faults(type_, value, duplicates, checked)
    if faults is not None:
        raise TypeFault(faults)


def leaves_fit(type_: MapType | None, value: Any, paths: FieldSet) -> bool:
    """Return True only if the parts of a value at these paths are leaves that fit the type.

    False means unknown.
    """
    if type_ is None or not type_.granular or value.__class__ is not dict or is_member(paths):
        return False
    for element, below in paths.items():
        name = element[2:]
        item, member = value.get(name), type_.fields.get(name, type_.element)
        if member is None or (item.__class__ not in member.simple and not leaves_fit(member.map, item, below)):
            return False
    return True


def part_at(type_: Type, value: Any, paths: FieldSet) -> Any:
    """Return the parts of a value at or below these paths, with complete lists and atomic maps."""
    if type_.map is None or not is_granular_map(type_, value) or is_member(paths):
        return value
    found = {}
    for element, below in paths.items():
        name = element[2:]
        if name in value:
            item = value[name]
            found[name] = part_at(type_.map.member(name) or NOTHING, item, below) if below else item
    return found


def _faults(type_: Type, value: Any, duplicates: bool, checked: Any = None) -> Faults | None:
    kind = value.__class__
    if kind in type_.simple:
        return None
    if kind is dict and type_.map is not None:
        return _map_faults(type_.map, value, duplicates, checked if checked.__class__ is dict else None)
    if kind is list and type_.list is not None:
        return _list_faults(type_.list, value, duplicates)
    return Faults(_unexpected(type_, value))


def _map_faults(
    type_: MapType, value: dict[str, Any], duplicates: bool, checked: dict[str, Any] | None
) -> Faults | None:
    found: Faults | None = None
    fields, element = type_.fields, type_.element
    for name in value if len(value) <= FEW else _unchecked_fields(type_, value):
        item, member = value[name], fields.get(name, element)
        if member is None:
            found = found or Faults()
            found.add(f".{short(name)}", "field not declared in schema")
            return found  # as upstream: stop at the first error
        if item.__class__ in member.simple:
            continue
        other = checked.get(name) if checked is not None else None
        # Only lists that are equal to a checked list are skipped: the check of a map is as fast as a comparison.
        if other is not None and item.__class__ is list and same_json(item, other):
            continue
        if item.__class__ is dict and member.map is not None:  # a case of ``_faults``, repeated here to save a call
            faults = _map_faults(member.map, item, duplicates, other if other.__class__ is dict else None)
        else:
            faults = _faults(member, item, duplicates, other)
        if faults is not None:
            found = found or Faults()
            if found.add(f".{short(name)}", faults):
                break
    return found


def _unchecked_fields(type_: MapType, value: dict[str, Any]) -> Iterable[str]:
    """Return the field names of a large map that need a check: all except leaves that fit."""
    if type_.element is not None:
        return value
    try:
        return _not_leaves(type_, (*value,), (*map(type, value.values()),))
    except KeyError:
        return value


@lru_cache(limits.SHAPES_SEEN)
def _not_leaves(type_: MapType, names: Sequence[str], kinds: Sequence[type]) -> Sequence[str]:
    """Return the names of values that are not leaves of their declared types.

    Raise KeyError for an undeclared field. The result is cached, since most objects of a resource have the same fields.
    """
    return [name for name, kind in zip(names, kinds, strict=True) if kind not in type_.fields[name].simple]


def _list_faults(type_: ListType, value: list[Any], duplicates: bool) -> Faults | None:
    found: Faults | None = None
    seen: set[str] = set()
    simple = type_.item.simple if not type_.granular else _NOTHING_SIMPLE
    for position, item in enumerate(value):
        if item.__class__ in simple:
            continue
        element = f"i:{position}"
        if type_.granular:
            try:
                element = item_element(type_, item)
            except ItemError as error:
                found = found or Faults()
                found.add("", f"element {position}: {error}")
                return found
            if element in seen and not duplicates:
                found = found or Faults()
                found.add("", f"duplicate entries for key {path.printed((element,))}")
            seen.add(element)
        faults = _faults(type_.item, item, duplicates)
        if faults is not None:
            found = found or Faults()
            found.add(path.printed((element,)), faults)
        if found is not None and found.count > meta_limits.MAX_FIELD_ERRORS:
            break
    return found


def _unexpected(type_: Type, value: Any) -> str:
    if type_.map is not None:
        return f"expected map, got &{{{go_print(value)}}}"
    if type_.scalar == NUMERIC:
        return f"expected numeric (int or float), got {_go_type(value)}"
    if type_.scalar == STRING:
        return f"expected string, got &value.valueUnstructured{{Value:{go_syntax(value)}}}"
    if type_.scalar:
        wanted = "boolean" if type_.scalar == BOOLEAN else "any scalar"
        return f"expected {wanted}, got &{{{go_print(value)}}}"
    if type_.list is not None:
        return f"expected list, got &{{{go_print(value)}}}"
    return "schema error: invalid atom: inlined"


def _go_type(value: Any) -> str:
    names = {str: "string", bool: "bool", int: "int64", float: "float64", list: "[]interface {}"}
    return names.get(value.__class__) or str(getattr(value, "go_name", "map[string]interface {}"))


def go_syntax(value: Any) -> str:
    """Return a JSON value as Go's %#v prints it.

    Values that are not JSON have the text as attribute ``go_syntax``.
    """
    if isinstance(value, dict):
        members = ", ".join(f"{go_quote(name)}:{go_syntax(value[name])}" for name in sorted(value))
        return f"map[string]interface {{}}{{{members}}}"
    if isinstance(value, list):
        return f"[]interface {{}}{{{', '.join(map(go_syntax, value))}}}"
    if isinstance(value, str):
        return go_quote(value)
    return "interface {}(nil)" if value is None else getattr(value, "go_syntax", None) or go_print(value)


def fields_of(type_: Type, value: Any) -> FieldSet:
    """Return the paths that an applied object sets (upstream: ToFieldSet).

    The object must fit its type.
    """
    return _mentioned(type_, value)[1]


def _mentioned(type_: Type, value: Any) -> tuple[bool, dict[str, Any]]:
    """Return whether the value itself is a member of the set, and the paths below it."""
    kind = value.__class__
    if kind is dict and type_.map is not None:
        return (False, _of_map(type_.map, value)) if type_.map.granular else (True, {})
    if kind is list and type_.list is not None:
        return (False, _of_list(type_.list, value)) if type_.list.granular else (True, {})
    if value is None and type_.map is not None:
        return not type_.map.granular, {}
    if value is None and not type_.scalar and type_.list is not None:
        return not type_.list.granular, {}
    return True, {}


def _of_map(type_: MapType, value: dict[str, Any]) -> dict[str, Any]:
    if _PLAIN.issuperset(map(type, value.values())):
        return type_.leaves(value)
    found: dict[str, Any] = {}
    for name, item in value.items():
        if item.__class__ in _PLAIN:
            found[f"f:{name}"] = LEAF
            continue
        declared = type_.fields.get(name)
        member, below = _mentioned(declared or type_.element or NOTHING, item)
        if declared is None or item is None or item == {}:
            member = True
        if below:
            found[f"f:{name}"] = {SELF: LEAF, **below} if member else below
        elif member:
            found[f"f:{name}"] = LEAF
    return found


def _of_list(type_: ListType, value: list[Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    repeated: set[str] = set()
    for item in value:
        element = element_unchecked(type_, item)
        if element in found:
            repeated.add(element)
            continue
        below = _mentioned(type_.item, item)[1]
        found[element] = {SELF: LEAF, **below} if below else LEAF
    for element in repeated:
        found[element] = LEAF
    return found


def with_named_fields(tree: FieldSet, type_: Type) -> FieldSet:
    """Return the set and, as further members, all declared fields on the paths to its members."""
    found: dict[str, Any] = {}
    for element, node in tree.items():
        if element == SELF or not node:
            found[element] = node
            continue
        declared = False
        below = NOTHING
        if type_.map is not None and element.startswith("f:"):
            declared = element[2:] in type_.map.fields
            below = type_.map.member(element[2:]) or NOTHING
        elif type_.list is not None and element.startswith("k:"):
            below = type_.list.item
        inner = with_named_fields(node, below)
        found[element] = {**inner, SELF: LEAF} if declared and not is_member(node) else inner
    return found


def reconciled(tree: FieldSet, type_: Type) -> FieldSet:
    """Return the set for the current type: a field that became atomic replaces paths below it.

    Upstream's term is "SSA schema change". If the root became atomic, the set stays unchanged, since the root has no
    owner.
    """
    found: dict[str, Any] | None = None
    if type_.map is not None and not type_.map.granular:
        return tree
    for element, node in tree.items() if any(tree.values()) else ():
        if element == SELF or not node:
            continue
        below = _below(type_, element)
        if below is None:
            continue
        atomic = below.list is not None and not below.list.granular
        if below.map is not None:
            if below.map.deduced:
                continue
            atomic = not below.map.granular
        elif below.scalar:
            continue
        changed = LEAF if atomic else reconciled(node, below)
        if changed is not node:
            if found is None:
                found = {**tree}
            found[element] = changed
    return tree if found is None else found


def _below(type_: Type, element: str) -> Type | None:
    if type_.map is not None:
        return type_.map.member(element[2:]) if element.startswith("f:") else type_.map.element
    return type_.list.item if type_.list is not None and not type_.scalar else None


def elements_of(type_: ListType, values: Iterable[Any]) -> list[str]:
    """Return the path element of each item of a granular list that fits its type."""
    return [item_element(type_, item) for item in values]
