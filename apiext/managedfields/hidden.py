"""Keep the fields of a stored object that the version of a write does not show."""

from collections import defaultdict, deque
from collections.abc import Sequence
from typing import Any

from apiext.documents.document import Document, View
from apiext.documents.encoding import encode
from apiext.managedfields.fieldset import EMPTY, FieldSet, Node, is_member
from apiext.managedfields.types import NOTHING, Type, element_unchecked, is_granular_list, is_granular_map

_OF_THE_SERVER = frozenset(("apiVersion", "kind", "metadata"))
_NONE: dict[str, Any] = {}


def restore(of: Type, stored: View, shown: View, new: View, gone: FieldSet) -> Document:
    """Return the new object with the fields of the stored one that ``shown`` lacks.

    ``shown`` is what a version shows of the stored object, ``new`` is the object that a client made of that, ``of`` is
    the type of the stored object. A hidden field is kept as long as the field around it is. Metadata stay as they are.
    ``gone`` are paths of hidden fields that are removed all the same. No argument is changed.
    """
    before, seen, wanted = (
        {name: item for name, item in document.items() if name not in _OF_THE_SERVER}
        for document in (stored, shown, new)
    )
    return {**new, **_members(of, before, seen, wanted, gone)}


def _value(of: Type, stored: Any, shown: Any, new: Any, gone: Node) -> Any:
    """Return a new value with the hidden fields of the stored one."""
    kind = stored.__class__
    if kind is not shown.__class__ or kind is not new.__class__ or stored == shown:
        return new
    if kind is dict:
        return _members(of, stored, shown, new, gone)
    if kind is list and len(stored) == len(shown):
        return _items(of, stored, shown, new, gone)
    return new


def _members(
    of: Type, stored: dict[str, Any], shown: dict[str, Any], new: dict[str, Any], gone: Node
) -> dict[str, Any]:
    found = {**new}
    for name, item in stored.items():
        node = gone.get(f"f:{name}")
        below = (of.map.member(name) if of.map is not None else None) or NOTHING
        if name in new:
            seen = shown.get(name, _NONE if item.__class__ is dict else None)
            found[name] = _value(below, item, seen, new[name], node or EMPTY)
        elif name not in shown:
            kept = _left(below, item, node)
            if kept is not _NOTHING_LEFT:
                found[name] = kept
        elif shown[name] == {} and of.map is not None and name in of.map.fields:
            # many clients leave an empty object out, and this one is not empty
            kept = _left(below, item, node)
            if kept is not _NOTHING_LEFT and kept != {}:
                found[name] = kept
    return found


_NOTHING_LEFT: Any = object()


def _left(of: Type, value: Any, gone: Node | None) -> Any:
    """Return what is left of a hidden value, _NOTHING_LEFT when it or all of it is gone.

    A container that is gone keeps what other writers have put into it.
    """
    if gone is None:
        return value
    kept: Any
    if is_granular_map(of, value):
        assert of.map is not None
        members = {
            name: _left(of.map.member(name) or NOTHING, item, gone.get(f"f:{name}")) for name, item in value.items()
        }
        kept = {name: item for name, item in members.items() if item is not _NOTHING_LEFT}
    elif is_granular_list(of, value):
        assert of.list is not None
        items = [_left(of.list.item, item, gone.get(element_unchecked(of.list, item))) for item in value]
        kept = [item for item in items if item is not _NOTHING_LEFT]
    else:
        return _NOTHING_LEFT if is_member(gone) else value
    return kept or _NOTHING_LEFT


def _items(of: Type, stored: list[Any], shown: list[Any], new: list[Any], gone: Node) -> list[Any]:
    """Return the items of a new list with hidden fields: each has those of the stored item that it was made of.

    That is the one with the same keys in an associative list. In another list it is an equal one, best in the same
    place, else the one in the same place of a list that has as many items as before.
    """
    of_list = of.list
    named = of_list is not None and of_list.granular and bool(of_list.keys)
    item_type = of_list.item if of_list is not None else NOTHING

    def name_of(item: Any) -> str | bytes:
        return element_unchecked(of_list, item) if named and of_list is not None else encode(item)

    origins = _origins([*map(name_of, shown)], [*map(name_of, new)], by_place=not named)
    result = []
    for item, place in zip(new, origins, strict=True):
        node = gone.get(element_unchecked(of_list, item)) if named and of_list is not None else None
        result.append(item if place < 0 else _value(item_type, stored[place], shown[place], item, node or EMPTY))
    return result


def _origins(before: Sequence[str | bytes], after: Sequence[str | bytes], *, by_place: bool) -> list[int]:
    """Return for each name its place among the names of before, -1 for a new one; no place twice."""
    found = [index if index < len(before) and before[index] == name else -1 for index, name in enumerate(after)]
    left: dict[str | bytes, deque[int]] = defaultdict(deque)
    for index in sorted({*range(len(before))}.difference(found)):
        left[before[index]].append(index)
    for index, name in enumerate(after):
        if found[index] < 0 and left.get(name):
            found[index] = left[name].popleft()
    if by_place and len(before) == len(after):
        taken = set(found)
        found = [index if place < 0 and index not in taken else place for index, place in enumerate(found)]
    return found
