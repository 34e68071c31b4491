"""Simple models of the compiled functions."""

from __future__ import annotations

from typing import Any

from apiext.documents.document import clone
from apiext.schema.structural import META_FIELDS, Structural
from apiext.schema.values import enum_of, type_fault


def prune(value: Any, node: Structural | None, path: str = "", *, skip: bool = False, root: bool = False) -> list[str]:
    """Remove unknown fields; return their paths."""
    keep = node is not None and (skip or node.extensions.preserve)
    removed: list[str] = []
    if isinstance(value, dict):
        for key in list(value):
            where = f"{path}.{key}" if path else key
            if node is not None and (root or node.extensions.embedded) and key in META_FIELDS:
                continue
            if node is not None and key in node.properties:
                removed += prune(value[key], node.properties[key], where)
            elif node is not None and node.additional is not None:
                removed += prune(value[key], node.map_values, where)
            elif not keep:
                del value[key]
                removed.append(where)
    elif isinstance(value, list) and not (keep and node is not None and node.items is None):
        for index, item in enumerate(value):
            removed += prune(item, node.items if node is not None else None, f"{path}[{index}]", skip=keep)
    return removed


def drop_nulls(value: Any, node: Structural | None, root: bool = False) -> None:
    """Remove null members that are neither nullable nor defaulted."""
    if isinstance(value, dict):
        for key in list(value):
            child = None if node is None or (root and key in META_FIELDS) else node.member(key)
            if value[key] is None and child is not None and not child.nullable and child.default is None:
                del value[key]
            else:
                drop_nulls(value[key], child)
    elif isinstance(value, list):
        for item in value:
            drop_nulls(item, node.items if node is not None else None)


def default(value: Any, node: Structural | None, root: bool = False) -> None:
    """Set defaults."""
    if node is None:
        return
    if isinstance(value, dict):
        for key, child in node.properties.items():
            missing = key not in value or (value[key] is None and not child.nullable)
            if child.default is not None and missing and not (root and key in META_FIELDS):
                value[key] = clone(child.default)
                prune(value[key], child)
        for key in value:
            if root and key in META_FIELDS:
                continue
            of_maps = node.map_values if key not in node.properties else None
            if value[key] is None and of_maps is not None and not of_maps.nullable:
                value[key] = clone(of_maps.default)
                prune(value[key], of_maps)
            default(value[key], node.member(key))
    elif isinstance(value, list) and node.items is not None:
        for index, item in enumerate(value):
            if item is None and not node.items.nullable:
                value[index] = clone(node.items.default)
                prune(value[index], node.items)
            default(value[index], node.items)


def valid(node: Structural, value: Any) -> bool:
    """Report whether a value is valid, for schemas without formats, patterns and float bounds."""
    if type_fault(node, value) is not None or (node.enum and not enum_of(node).has(value)):
        return False
    if value is None:
        return True
    for branches, wanted in ((node.junctors.all_of, len(node.junctors.all_of)), (node.junctors.one_of, 1)):
        if branches and sum(valid(branch, value) for branch in branches) != wanted:
            return False
    if node.junctors.any_of and not any(valid(branch, value) for branch in node.junctors.any_of):
        return False
    if node.junctors.not_ is not None and valid(node.junctors.not_, value):
        return False
    bounds = {
        str: (node.strings.min_length, node.strings.max_length),
        list: (node.sizes.min_items, node.sizes.max_items),
        dict: (node.sizes.min_properties, node.sizes.max_properties),
        int: (node.numbers.minimum, node.numbers.maximum),
        float: (node.numbers.minimum, node.numbers.maximum),
    }
    if value.__class__ in bounds:
        low, high = bounds[value.__class__]
        measure = value if isinstance(value, (int, float)) else len(value)
        if (low is not None and measure < low) or (high is not None and measure > high):
            return False
    if isinstance(value, list):
        return node.items is None or all(valid(node.items, item) for item in value)
    if isinstance(value, dict):
        if node.additional is False and not node.properties.keys() >= value.keys():
            return False
        members = ((node.member(key), item) for key, item in value.items())
        return set(node.required) <= value.keys() and all(
            child is None or valid(child, item) for child, item in members
        )
    return True
