"""Merge an applied object into the live object, and delete fields.

See SSA-009; upstream: Merge, RemoveItems.
"""

from collections import Counter
from typing import Any

from apiext.managedfields.fieldset import FieldSet, is_member
from apiext.managedfields.types import (
    MISSING,
    NOTHING,
    ListType,
    MapType,
    Type,
    element_unchecked,
    is_granular_list,
    is_granular_map,
    item_element,
)

_PLAIN = frozenset((str, int, float, bool))


def merge(type_: Type, live: Any, applied: Any) -> Any:
    """Return the live value merged with the applied value.

    Both values must fit the type; the function changes neither. If one value is MISSING, return the other. A merged
    list has the applied items in their order, and the other live items between them.
    """
    if applied is MISSING:
        return live
    if live is MISSING:
        return applied
    if is_granular_map(type_, applied) or (is_granular_map(type_, live) and applied in (None, {})):
        assert type_.map is not None
        return _merge_maps(type_.map, live if live.__class__ is dict else {}, applied or {})
    if is_granular_list(type_, applied) or (is_granular_list(type_, live) and applied in (None, [])):
        assert type_.list is not None
        return _merge_lists(type_.list, live if live.__class__ is list else [], applied or [])
    return applied


def _merge_maps(type_: MapType, live: dict[str, Any], applied: dict[str, Any]) -> Any:
    found = dict(live)
    for name, item in applied.items():
        if item.__class__ in _PLAIN:  # a scalar replaces every live value
            found[name] = item
            continue
        merged = merge(type_.member(name) or NOTHING, live.get(name, MISSING), item)
        if merged is not MISSING:
            found[name] = merged
    return found


def _merge_lists(type_: ListType, live: list[Any], applied: list[Any]) -> list[Any]:
    """Return the items of both lists.

    The applied items are in their order. An item of both lists occurs once, merged. The other live items keep their
    order.
    """
    left, right = [item_element(type_, item) for item in live], [item_element(type_, item) for item in applied]
    times = Counter(left)
    before = {element: item if times[element] == 1 else None for element, item in zip(left, live, strict=True)}
    after = dict(zip(right, applied, strict=True))
    shared = iter([element for element in right if element in before])
    wanted = next(shared, None)
    done: set[str] = set()
    found: list[Any] = []
    i = j = 0
    while i < len(left) or j < len(right):
        if i < len(left) and j < len(right):
            if left[i] == right[j]:
                done.add(left[i])
                found.append(merge(type_.item, before[left[i]], after[left[i]]))
                i, j, wanted = i + 1, j + 1, next(shared, None)
                continue
            if left[i] in after and wanted is not None and wanted != left[i]:
                i += 1  # an item of both lists, but not the next one in the applied order
                continue
        if i < len(left):
            if left[i] not in after:
                found.append(live[i])
                i += 1
                continue
            if left[i] in done:
                i += 1
        if j < len(right):
            element = right[j]
            done.add(element)
            found.append(merge(type_.item, before.get(element, MISSING), after[element]))
            j += 1
            if wanted == element:
                wanted = next(shared, None)
    return found


def remove(type_: Type, value: Any, deleted: FieldSet) -> Any:
    """Return the value without the paths in ``deleted``.

    As upstream, null replaces a map or list if nothing remains in it, or if it is atomic and ``deleted`` has a path
    below it.
    """
    if value.__class__ is dict:
        return _remove_members(type_.map, value, deleted) if type_.map is not None and type_.map.granular else None
    if value.__class__ is list:
        return _remove_items(type_.list, value, deleted) if type_.list is not None and type_.list.granular else None
    return value


def with_emptied(type_: Type, config: Any, pruned: Any) -> Any:
    """Return the pruned value, with empty maps and lists in place of nulls of ``remove``.

    ``pruned`` is a result of ``remove``, ``config`` is the applied configuration. Where ``config`` has a granular map
    or list, and ``pruned`` has null or nothing, the result has an empty map or list. Null items of lists stay. Upstream
    leaves all nulls. Most schemas refuse null, so an applier could not empty a map or list that no other manager owns.
    """
    if config.__class__ is dict and type_.map is not None and type_.map.granular:
        found = {} if pruned is None or pruned is MISSING else pruned
        if found.__class__ is not dict:
            return pruned
        for name, item in config.items():
            if item.__class__ is dict or item.__class__ is list:
                before = found.get(name, MISSING)
                after = with_emptied(type_.map.member(name) or NOTHING, item, before)
                if after is not before:
                    found = {**found, name: after}
        return found
    if config.__class__ is list and type_.list is not None and type_.list.granular:
        if pruned is None or pruned is MISSING:
            return []
        if pruned.__class__ is not list or not type_.list.keys:
            return pruned
        given = {element_unchecked(type_.list, item): item for item in config}
        return [
            with_emptied(type_.list.item, given.get(element_unchecked(type_.list, item)), item)
            if item is not None
            else None
            for item in pruned
        ]
    return pruned


def _remove_members(type_: MapType, value: dict[str, Any], deleted: FieldSet) -> dict[str, Any] | None:
    found: dict[str, Any] = {}
    for name, item in value.items():
        node = deleted.get(f"f:{name}")
        if node is None:
            found[name] = item
        elif not is_member(node):
            found[name] = remove(type_.member(name) or NOTHING, item, node)
    return found or None


def _remove_items(type_: ListType, value: list[Any], deleted: FieldSet) -> list[Any] | None:
    found: list[Any] = []
    for item in value:
        node = deleted.get(item_element(type_, item))
        if node is None:
            found.append(item)
        elif not is_member(node):
            found.append(remove(type_.item, item, node))
    return found or None
