"""Values against their merge types: what does not fit, and which fields a value mentions (SSA-009…012)."""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

from apiext.documents.paths import short
from apiext.documents.quotes import go_quote
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
    alike,
    element_unchecked,
    is_granular_map,
    item_element,
)
from apiext.meta import limits as meta_limits
from apiext.meta.fields import go_print, has_room

_PLAIN = frozenset((str, int, float, bool))
_NOTHING_SIMPLE: frozenset[type] = frozenset()
FEW = 8  # members that are as quickly looked at one by one


class Faults:
    """What does not fit at and below a place: the steps to it with the text, or with what does not fit below them.

    Paths are put together in the end, for as many as are told: each is as long as all the names on its way.
    """

    __slots__ = ("count", "parts")

    def __init__(self, text: str = "") -> None:
        self.count = 1 if text else 0
        self.parts: list[tuple[str, Faults | str]] = [("", text)] if text else []

    def add(self, step: str, wrong: "Faults | str") -> bool:
        """Add what is wrong below a step; return whether that is enough."""
        self.count += 1 if isinstance(wrong, str) else wrong.count
        self.parts.append((step, wrong))
        return self.count > meta_limits.MAX_FIELD_ERRORS

    def lines(self, way: list[str]) -> Iterator[str]:
        """Yield what is told of each fault; ``way`` are the steps to here."""
        for step, wrong in self.parts:
            way.append(step)
            if isinstance(wrong, str):
                where = "".join(way)
                yield f"{where}: {wrong}" if where else wrong
            else:
                yield from wrong.lines(way)
            way.pop()


class TypeFault(ValueError):
    """A value that its type does not allow; the text is upstream's, as far as there is room for it."""

    def __init__(self, faults: Faults) -> None:
        told: list[str] = []
        size = 0
        for line in faults.lines([]):
            size += len(line)
            if not has_room(len(told) + 1, size):
                told.append("too many errors: the rest is not shown")
                break
            told.append(line)
        super().__init__(told[0] if len(told) == 1 else "\n  ".join(["errors:", *told]))


def check(of: Type, value: Any, *, duplicates: bool = True, checked: Any = None) -> None:
    """Raise TypeFault when the value does not fit.

    ``duplicates`` allows items of the same name in granular lists. ``checked`` is a value that is known to fit: what is
    the same in it needs no look.
    """
    faults = _faults(of, value, duplicates, checked)
    if faults is not None:
        raise TypeFault(faults)


def leaves_fit(of: MapType | None, value: Any, paths: FieldSet) -> bool:
    """Tell whether what a value has at these paths are leaves that fit; False means that one has to look closer."""
    if of is None or not of.granular or value.__class__ is not dict or is_member(paths):
        return False
    for element, below in paths.items():
        name = element[2:]
        item, member = value.get(name), of.fields.get(name, of.element)
        if member is None or (item.__class__ not in member.simple and not leaves_fit(member.map, item, below)):
            return False
    return True


def part_at(of: Type, value: Any, paths: FieldSet) -> Any:
    """Return what a value has at or below these paths; lists, and maps that are owned as one, are whole."""
    if of.map is None or not is_granular_map(of, value) or is_member(paths):
        return value
    found = {}
    for element, below in paths.items():
        name = element[2:]
        if name in value:
            item = value[name]
            found[name] = part_at(of.map.member(name) or NOTHING, item, below) if below else item
    return found


def _faults(of: Type, value: Any, duplicates: bool, checked: Any = None) -> Faults | None:
    kind = value.__class__
    if kind in of.simple:
        return None
    if kind is dict and of.map is not None:
        return _map_faults(of.map, value, duplicates, checked if checked.__class__ is dict else None)
    if kind is list and of.list is not None:
        return _list_faults(of.list, value, duplicates)
    return Faults(_unexpected(of, value))


def _map_faults(of: MapType, value: dict[str, Any], duplicates: bool, checked: dict[str, Any] | None) -> Faults | None:
    found: Faults | None = None
    fields, element = of.fields, of.element
    for name in value if len(value) <= FEW else _to_look_at(of, value):
        item, member = value[name], fields.get(name, element)
        if member is None:
            found = found or Faults()
            found.add(f".{short(name)}", "field not declared in schema")
            return found  # upstream stops at the first such
        if item.__class__ in member.simple:
            continue
        other = checked.get(name) if checked is not None else None
        if other is not None and item.__class__ is list and alike(item, other):  # maps are as quickly walked
            continue
        if item.__class__ is dict and member.map is not None:  # what _faults does
            faults = _map_faults(member.map, item, duplicates, other if other.__class__ is dict else None)
        else:
            faults = _faults(member, item, duplicates, other)
        if faults is not None:
            found = found or Faults()
            if found.add(f".{short(name)}", faults):
                break
    return found


def _to_look_at(of: MapType, value: dict[str, Any]) -> Iterable[str]:
    """Return the names of members of a large map that may not fit: those that are no leaves that fit."""
    if of.element is not None:
        return value
    try:
        return _no_leaves(of, (*value,), (*map(type, value.values()),))
    except KeyError:
        return value


@lru_cache(limits.SHAPES_SEEN)
def _no_leaves(of: MapType, names: Sequence[str], kinds: Sequence[type]) -> Sequence[str]:
    """Return the names of values of other classes than leaves have here; KeyError for one that is not declared.

    Remembered: most objects of a resource have the same members, and to look at these takes long.
    """
    return [name for name, kind in zip(names, kinds, strict=True) if kind not in of.fields[name].simple]


def _list_faults(of: ListType, value: list[Any], duplicates: bool) -> Faults | None:
    found: Faults | None = None
    seen: set[str] = set()
    simple = of.item.simple if not of.granular else _NOTHING_SIMPLE
    for position, item in enumerate(value):
        if item.__class__ in simple:
            continue
        element = f"i:{position}"
        if of.granular:
            try:
                element = item_element(of, item)
            except ItemError as error:
                found = found or Faults()
                found.add("", f"element {position}: {error}")
                return found
            if element in seen and not duplicates:
                found = found or Faults()
                found.add("", f"duplicate entries for key {path.shown((element,))}")
            seen.add(element)
        faults = _faults(of.item, item, duplicates)
        if faults is not None:
            found = found or Faults()
            found.add(path.shown((element,)), faults)
        if found is not None and found.count > meta_limits.MAX_FIELD_ERRORS:
            break
    return found


def _unexpected(of: Type, value: Any) -> str:
    if of.map is not None:
        return f"expected map, got &{{{go_print(value)}}}"
    if of.scalar == NUMERIC:
        return f"expected numeric (int or float), got {_go_type(value)}"
    if of.scalar == STRING:
        return f"expected string, got &value.valueUnstructured{{Value:{go_syntax(value)}}}"
    if of.scalar:
        wanted = "boolean" if of.scalar == BOOLEAN else "any scalar"
        return f"expected {wanted}, got &{{{go_print(value)}}}"
    if of.list is not None:
        return f"expected list, got &{{{go_print(value)}}}"
    return "schema error: invalid atom: inlined"


def _go_type(value: Any) -> str:
    names = {str: "string", bool: "bool", int: "int64", float: "float64", list: "[]interface {}"}
    return names.get(value.__class__) or str(getattr(value, "go_name", "map[string]interface {}"))


def go_syntax(value: Any) -> str:
    """Return a JSON value as Go's %#v prints it; other values tell that themselves."""
    if isinstance(value, dict):
        members = ", ".join(f"{go_quote(name)}:{go_syntax(value[name])}" for name in sorted(value))
        return f"map[string]interface {{}}{{{members}}}"
    if isinstance(value, list):
        return f"[]interface {{}}{{{', '.join(map(go_syntax, value))}}}"
    if isinstance(value, str):
        return go_quote(value)
    return "interface {}(nil)" if value is None else getattr(value, "go_syntax", None) or go_print(value)


def fields_of(of: Type, value: Any) -> FieldSet:
    """Return the paths that an applied object mentions (upstream: ToFieldSet); the object fits its type."""
    return _mentioned(of, value)[1]


def _mentioned(of: Type, value: Any) -> tuple[bool, dict[str, Any]]:
    """Return whether the value is a member itself, and what is below."""
    kind = value.__class__
    if kind is dict and of.map is not None:
        return (False, _of_map(of.map, value)) if of.map.granular else (True, {})
    if kind is list and of.list is not None:
        return (False, _of_list(of.list, value)) if of.list.granular else (True, {})
    if value is None and of.map is not None:
        return not of.map.granular, {}
    if value is None and not of.scalar and of.list is not None:
        return not of.list.granular, {}
    return True, {}


def _of_map(of: MapType, value: dict[str, Any]) -> dict[str, Any]:
    if _PLAIN.issuperset(map(type, value.values())):
        return of.leaves(value)
    found: dict[str, Any] = {}
    for name, item in value.items():
        if item.__class__ in _PLAIN:
            found[f"f:{name}"] = LEAF
            continue
        declared = of.fields.get(name)
        member, below = _mentioned(declared or of.element or NOTHING, item)
        if declared is None or item is None or item == {}:
            member = True
        if below:
            found[f"f:{name}"] = {SELF: LEAF, **below} if member else below
        elif member:
            found[f"f:{name}"] = LEAF
    return found


def _of_list(of: ListType, value: list[Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    repeated: set[str] = set()
    for item in value:
        element = element_unchecked(of, item)
        if element in found:
            repeated.add(element)
            continue
        below = _mentioned(of.item, item)[1]
        found[element] = {SELF: LEAF, **below} if below else LEAF
    for element in repeated:
        found[element] = LEAF
    return found


def with_named_fields(tree: FieldSet, of: Type) -> FieldSet:
    """Return the set with every declared field on the way to a member a member, too."""
    found: dict[str, Any] = {}
    for element, node in tree.items():
        if element == SELF or not node:
            found[element] = node
            continue
        declared = False
        below = NOTHING
        if of.map is not None and element.startswith("f:"):
            declared = element[2:] in of.map.fields
            below = of.map.member(element[2:]) or NOTHING
        elif of.list is not None and element.startswith("k:"):
            below = of.list.item
        inner = with_named_fields(node, below)
        found[element] = {**inner, SELF: LEAF} if declared and not is_member(node) else inner
    return found


def reconciled(tree: FieldSet, of: Type) -> FieldSet:
    """Return the set as the type of today would have it: what became atomic is owned as one (upstream: SSA schema
    changes). A whole object that did stays as it is: nothing owns the root."""
    found: dict[str, Any] | None = None
    if of.map is not None and not of.map.granular:
        return tree
    for element, node in tree.items() if any(tree.values()) else ():
        if element == SELF or not node:
            continue
        below = _below(of, element)
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


def _below(of: Type, element: str) -> Type | None:
    if of.map is not None:
        return of.map.member(element[2:]) if element.startswith("f:") else of.map.element
    return of.list.item if of.list is not None and not of.scalar else None


def elements_of(of: ListType, values: Iterable[Any]) -> list[str]:
    """Return the path element of each item of a granular list that fits its type."""
    return [item_element(of, item) for item in values]
