"""Sets of field paths and their operations.

A set has the form of FieldsV1, a tree of dictionaries. A node is a dictionary: ``{}`` is a member without children,
``{".": {}, …}`` is a member with children. Any other node is not a member, but has members below it. The root is never
a member; the empty set is ``{}``. Code must not change a set.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from apiext.managedfields.path import SELF

FieldSet = Mapping[str, Any]
Node = Mapping[str, Any]

EMPTY: FieldSet = {}


def is_member(node: Node) -> bool:
    """Return whether the path of a node is in the set."""
    return not node or SELF in node


def _children(node: Node) -> dict[str, Any]:
    return {element: child for element, child in node.items() if element != SELF}


def _node(member: bool, children: Node) -> Node | None:
    """Return a node, or None if neither the node nor a node below it is a member."""
    if not children:
        return {} if member else None
    return {SELF: {}, **children} if member else children


def union(left: FieldSet, right: FieldSet) -> FieldSet:
    """Return the paths that are in at least one of the two sets."""
    if not left or not right:
        return left or right
    result = {**right, **left}
    for element in left.keys() & right.keys():
        a, b = left[element], right[element]
        if a is not b and element != SELF:
            if a and b:
                result[element] = union(a, b)
            elif a or b:
                result[element] = {SELF: {}, **a, **b}
    return result


def union_of(sets: Sequence[FieldSet]) -> FieldSet:
    """Return the paths that are in at least one of the sets.

    Unite the sets in pairs, repeatedly. Uniting them one after another would copy the growing result each time.
    """
    while len(sets) > 1:
        pairs = [union(right, left) for left, right in zip(sets[::2], sets[1::2], strict=False)]
        sets = [*pairs, sets[-1]] if len(sets) % 2 else pairs
    return sets[0] if sets else EMPTY


def intersection(left: FieldSet, right: FieldSet) -> FieldSet:
    """Return the paths in both sets."""
    result: dict[str, Any] = {}
    for element in left.keys() & right.keys():
        if element == SELF:
            continue
        a, b = left[element], right[element]
        both = (not a or SELF in a) and (not b or SELF in b)
        if not a or not b:
            if both:
                result[element] = {}
            continue
        node = a if a is b else _node(both, intersection(a, b))
        if node is not None:
            result[element] = node
    return result


def difference(left: FieldSet, right: FieldSet) -> FieldSet:
    """Return the paths in left that are not in right."""
    shared = left.keys() & right.keys()
    if not shared:
        return left
    result = {**left}
    for element in shared:
        a, b = left[element], right[element]
        taken = not b or SELF in b
        if element == SELF or (not a and not taken):
            continue
        node = None
        if a:
            remainder = difference(a, b)
            node = _node(SELF in a and not taken, _children(remainder) if SELF in remainder else remainder)
        if node is None:
            del result[element]
        else:
            result[element] = node
    result.pop(SELF, None)
    return result


def recursive_difference(left: FieldSet, right: FieldSet) -> FieldSet:
    """Return the paths in left that are neither in right nor below a member of right."""
    shared = left.keys() & right.keys()
    if not shared:
        return left
    result = {**left}
    for element in shared:
        node, other = left[element], right[element]
        kept = None
        if not is_member(other):
            kept = _node(is_member(node), recursive_difference(_children(node), other))
        if kept is None:
            del result[element]
        else:
            result[element] = kept
    return result


def contains(paths: FieldSet, path: Sequence[str]) -> bool:
    """Return whether a path is in the set."""
    node: Node = paths
    for element in path:
        found = node.get(element)
        if found is None:
            return False
        node = found
    return bool(path) and is_member(node)


def size(paths: FieldSet) -> int:
    """Return the number of paths in the set."""
    return sum(is_member(node) + size(node) for element, node in paths.items() if element != SELF)


def includes(paths: FieldSet, others: FieldSet) -> bool:
    """Return whether the set contains all paths of another set."""
    for element, node in others.items():
        if element == SELF:
            continue
        found = paths.get(element)
        if found is None or (is_member(node) and not is_member(found)) or not includes(found, node):
            return False
    return True


def of(paths: Sequence[Sequence[str]]) -> dict[str, Any]:
    """Return the set of these paths."""
    root: dict[str, Any] = {}
    for path in paths:
        node, fresh = root, True
        for depth, element in enumerate(path):
            child = node.get(element)
            if child is None:
                child = node[element] = {}
                fresh = True
            else:
                if not child and depth < len(path) - 1:
                    child[SELF] = {}
                fresh = False
            node = child
        if path and not fresh and node:
            node[SELF] = {}
    return root
