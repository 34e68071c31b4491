"""Putting an applied object into the live one, and taking fields out again (SSA-009; upstream: Merge, RemoveItems)."""

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


def merge(of: Type, live: Any, applied: Any) -> Any:
    """Return the live value with the applied one laid over it; both fit the type, neither is changed.

    MISSING when nothing is left of either. Lists keep the order of what was applied, with the other items in between.
    """
    if applied is MISSING:
        return live
    if live is MISSING:
        return applied
    if is_granular_map(of, applied) or (is_granular_map(of, live) and applied in (None, {})):
        assert of.map is not None
        return _merge_maps(of.map, live if live.__class__ is dict else {}, applied or {})
    if is_granular_list(of, applied) or (is_granular_list(of, live) and applied in (None, [])):
        assert of.list is not None
        return _merge_lists(of.list, live if live.__class__ is list else [], applied or [])
    return applied


def _merge_maps(of: MapType, live: dict[str, Any], applied: dict[str, Any]) -> Any:
    found = dict(live)
    for name, item in applied.items():
        if item.__class__ in _PLAIN:  # a scalar stands for itself, whatever is there
            found[name] = item
            continue
        merged = merge(of.member(name) or NOTHING, live.get(name, MISSING), item)
        if merged is not MISSING:
            found[name] = merged
    return found


def _merge_lists(of: ListType, live: list[Any], applied: list[Any]) -> list[Any]:
    """Return the items of both: shared ones once, in the order applied; the rest of the live ones where they were."""
    left, right = [item_element(of, item) for item in live], [item_element(of, item) for item in applied]
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
                found.append(merge(of.item, before[left[i]], after[left[i]]))
                i, j, wanted = i + 1, j + 1, next(shared, None)
                continue
            if left[i] in after and wanted is not None and wanted != left[i]:
                i += 1  # shared, but not the one whose turn it is
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
            found.append(merge(of.item, before.get(element, MISSING), after[element]))
            j += 1
            if wanted == element:
                wanted = next(shared, None)
    return found


def remove(of: Type, value: Any, gone: FieldSet) -> Any:
    """Return the value without these paths; null for a container of which nothing is left, as upstream has it."""
    if value.__class__ is dict:
        return _remove_members(of.map, value, gone) if of.map is not None and of.map.granular else None
    if value.__class__ is list:
        return _remove_items(of.list, value, gone) if of.list is not None and of.list.granular else None
    return value


def with_emptied(of: Type, config: Any, pruned: Any) -> Any:
    """Return the pruned object with an empty container where ``remove`` left null and the configuration has one.

    upstream: null, which most schemas refuse, so that an applier could not empty a container that it owns alone
    """
    if config.__class__ is dict and of.map is not None and of.map.granular:
        found = {} if pruned is None or pruned is MISSING else pruned
        if found.__class__ is not dict:
            return pruned
        for name, item in config.items():
            if item.__class__ is dict or item.__class__ is list:
                before = found.get(name, MISSING)
                after = with_emptied(of.map.member(name) or NOTHING, item, before)
                if after is not before:
                    found = {**found, name: after}
        return found
    if config.__class__ is list and of.list is not None and of.list.granular:
        if pruned is None or pruned is MISSING:
            return []
        if pruned.__class__ is not list or not of.list.keys:
            return pruned
        given = {element_unchecked(of.list, item): item for item in config}
        return [
            with_emptied(of.list.item, given.get(element_unchecked(of.list, item)), item) if item is not None else None
            for item in pruned
        ]
    return pruned


def _remove_members(of: MapType, value: dict[str, Any], gone: FieldSet) -> dict[str, Any] | None:
    found: dict[str, Any] = {}
    for name, item in value.items():
        node = gone.get(f"f:{name}")
        if node is None:
            found[name] = item
        elif not is_member(node):
            found[name] = remove(of.member(name) or NOTHING, item, node)
    return found or None


def _remove_items(of: ListType, value: list[Any], gone: FieldSet) -> list[Any] | None:
    found: list[Any] = []
    for item in value:
        node = gone.get(item_element(of, item))
        if node is None:
            found.append(item)
        elif not is_member(node):
            found.append(remove(of.item, item, node))
    return found or None
