"""Decode the FieldsV1 that clients send, with bounds (SSA-002).

A FieldSet needs no encoding, since it has the same form as FieldsV1.
"""

from typing import Any

from apiext.managedfields import limits
from apiext.managedfields.fieldset import FieldSet
from apiext.managedfields.path import SELF, ElementError, check

MAX_DEPTH = 240  # levels of a set, so that the object has fewer than 254 levels, orjson's limit (upstream: no limit)


_CANONICAL = {SELF}
"""Cache of elements such as ``f:spec`` that are in canonical form."""


class FieldsError(ValueError):
    """The error of a fieldsV1 that cannot be decoded."""


def decode(tree: Any, depth: int = 0) -> FieldSet:
    """Return the FieldSet of a fieldsV1 value, with elements in canonical form.

    Raise FieldsError.
    """
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise FieldsError("fieldsV1 must be an object")
    if depth > MAX_DEPTH:
        raise FieldsError(f"fieldsV1 is nested deeper than {MAX_DEPTH} levels")
    if depth and len(tree) > 1 and _CANONICAL.issuperset(tree) and [*tree.values()].count({}) == len(tree):
        return tree  # it is in canonical form: all elements are in the cache, and all nodes are leaves
    result: dict[str, Any] = {}
    for element, below in tree.items():
        if element[:2] == "f:" and below.__class__ is dict:  # the usual element, which is in canonical form
            result[element] = decode(below, depth + 1) if below else {}
            if len(_CANONICAL) < limits.FIELD_ELEMENTS:
                _CANONICAL.add(element)
            continue
        if element == SELF:
            if depth:
                result[SELF] = {}
            continue
        if element[1:2] == ":" and element[0] not in "fkvi":
            continue  # upstream also ignores unknown kinds of elements: later versions may define them
        try:
            result[check(element)] = decode(below, depth + 1)
        except ElementError as error:
            raise FieldsError(str(error)) from error
    if len(result) == 1 and SELF in result:
        return {}
    return result


def is_too_deep(paths: FieldSet, levels: int = MAX_DEPTH) -> bool:
    """Return whether a node at a level deeper than ``levels`` has children.

    The root has level 0.
    """
    for below in filter(None, paths.values()):  # noqa: SIM110 (any would be one more frame for each level)
        if levels < 1 or is_too_deep(below, levels - 1):
            return True
    return False
