"""Keep those fields of a stored object that the API version of a write does not have."""

from collections import defaultdict, deque
from collections.abc import Sequence
from typing import Any

from apiext.documents.document import Document, View
from apiext.documents.encoding import encode
from apiext.managedfields.fieldset import EMPTY, FieldSet, Node, is_member
from apiext.managedfields.types import NOTHING, Type, element_unchecked, is_granular_list, is_granular_map

_OF_THE_SERVER = frozenset(("apiVersion", "kind", "metadata"))
_NONE: dict[str, Any] = {}


def restore(type_: Type, stored: View, shown: View, new: View, deleted: FieldSet) -> Document:
    """Return the new object with the hidden fields of the stored object.

    Hidden fields are those that ``shown`` lacks. ``shown`` is the stored object in the version of the write. ``new``
    is the object after the write, in this version. ``type_`` is the merge type of the stored object. A hidden field
    stays if ``new`` still has the object around the field, or if this object is empty in ``shown``. The metadata of
    ``new`` stays unchanged. ``deleted`` are the paths of hidden fields to delete. The function changes no argument.
    """
    before, seen, wanted = (
        {name: item for name, item in document.items() if name not in _OF_THE_SERVER}
        for document in (stored, shown, new)
    )
    return {**new, **_members(type_, before, seen, wanted, deleted)}


def _value(type_: Type, stored: Any, shown: Any, new: Any, deleted: Node) -> Any:
    """Return a new value with the hidden fields of the stored value."""
    kind = stored.__class__
    if kind is not shown.__class__ or kind is not new.__class__ or stored == shown:
        return new
    if kind is dict:
        return _members(type_, stored, shown, new, deleted)
    if kind is list and len(stored) == len(shown):
        return _items(type_, stored, shown, new, deleted)
    return new


def _members(
    type_: Type, stored: dict[str, Any], shown: dict[str, Any], new: dict[str, Any], deleted: Node
) -> dict[str, Any]:
    found = {**new}
    for name, item in stored.items():
        node = deleted.get(f"f:{name}")
        below = (type_.map.member(name) if type_.map is not None else None) or NOTHING
        if name in new:
            seen = shown.get(name, _NONE if item.__class__ is dict else None)
            found[name] = _value(below, item, seen, new[name], node or EMPTY)
        elif name not in shown:
            kept = _kept(below, item, node)
            if kept is not _NOTHING_LEFT:
                found[name] = kept
        elif shown[name] == {} and type_.map is not None and name in type_.map.fields:
            # many clients omit an object that is empty for them, although the stored object has hidden fields
            kept = _kept(below, item, node)
            if kept is not _NOTHING_LEFT and kept != {}:
                found[name] = kept
    return found


_NOTHING_LEFT: Any = object()


def _kept(type_: Type, value: Any, deleted: Node | None) -> Any:
    """Return a hidden value without its deleted parts.

    Return _NOTHING_LEFT if all parts are deleted. A field that is not in ``deleted`` stays, even if its container is
    in ``deleted``.
    """
    if deleted is None:
        return value
    kept: Any
    if is_granular_map(type_, value):
        assert type_.map is not None
        members = {
            name: _kept(type_.map.member(name) or NOTHING, item, deleted.get(f"f:{name}"))
            for name, item in value.items()
        }
        kept = {name: item for name, item in members.items() if item is not _NOTHING_LEFT}
    elif is_granular_list(type_, value):
        assert type_.list is not None
        items = [_kept(type_.list.item, item, deleted.get(element_unchecked(type_.list, item))) for item in value]
        kept = [item for item in items if item is not _NOTHING_LEFT]
    else:
        return _NOTHING_LEFT if is_member(deleted) else value
    return kept or _NOTHING_LEFT


def _items(type_: Type, stored: list[Any], shown: list[Any], new: list[Any], deleted: Node) -> list[Any]:
    """Return the items of a new list with the hidden fields of the corresponding stored items.

    In an associative list, an item corresponds to the stored item with the same keys. In another list, it corresponds
    to a stored item that ``shown`` has in an equal form, preferably at the same index. Without such an item, it
    corresponds to the item at the same index, if the lengths are equal and no other item corresponds to that item.
    """
    of_list = type_.list
    named = of_list is not None and of_list.granular and bool(of_list.keys)
    item_type = of_list.item if of_list is not None else NOTHING

    def name_of(item: Any) -> str | bytes:
        return element_unchecked(of_list, item) if named and of_list is not None else encode(item)

    origins = _origins([*map(name_of, shown)], [*map(name_of, new)], by_place=not named)
    result = []
    for item, place in zip(new, origins, strict=True):
        node = deleted.get(element_unchecked(of_list, item)) if named and of_list is not None else None
        result.append(item if place < 0 else _value(item_type, stored[place], shown[place], item, node or EMPTY))
    return result


def _origins(before: Sequence[str | bytes], after: Sequence[str | bytes], *, by_place: bool) -> list[int]:
    """Return, for each name in ``after``, its index in ``before``, or -1 for a new name.

    No index occurs twice. If ``by_place`` is true and both lengths are equal, a new name gets its index in ``after``,
    unless another name has this index.
    """
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
