"""FieldsV1 on the wire: reads what clients send, with bounds; a set is written as it is (SSA-002)."""

from typing import Any

from apiext.managedfields import limits
from apiext.managedfields.fieldset import FieldSet
from apiext.managedfields.path import SELF, ElementError, check

MAX_DEPTH = 240  # levels of a set: with what is around it, JSON writers end at 254 (upstream has no bound)


_SEEN = {SELF}
"""Elements of fields that were met before, and were in canonical form."""


class FieldsError(ValueError):
    """A fieldsV1 that cannot be read."""


def decode(tree: Any, depth: int = 0) -> FieldSet:
    """Return the set of a decoded fieldsV1, elements in canonical form; FieldsError otherwise."""
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise FieldsError("fieldsV1 must be an object")
    if depth > MAX_DEPTH:
        raise FieldsError(f"fieldsV1 is nested deeper than {MAX_DEPTH} levels")
    if depth and len(tree) > 1 and _SEEN.issuperset(tree) and [*tree.values()].count({}) == len(tree):
        return tree  # leaves only, by names that need not be looked at one by one again
    result: dict[str, Any] = {}
    for element, below in tree.items():
        if element[:2] == "f:" and below.__class__ is dict:  # most of all elements, and in canonical form as they are
            result[element] = decode(below, depth + 1) if below else {}
            if len(_SEEN) < limits.FIELD_ELEMENTS:
                _SEEN.add(element)
            continue
        if element == SELF:
            if depth:
                result[SELF] = {}
            continue
        if element[1:2] == ":" and element[0] not in "fkvi":
            continue  # as upstream: a later version may know what it is
        try:
            result[check(element)] = decode(below, depth + 1)
        except ElementError as error:
            raise FieldsError(str(error)) from error
    if len(result) == 1 and SELF in result:
        return {}
    return result


def is_too_deep(paths: FieldSet, levels: int = MAX_DEPTH) -> bool:
    """Tell whether a set has more levels than can be stored."""
    for below in filter(None, paths.values()):  # noqa: SIM110 (any would be one more frame for each level)
        if levels < 1 or is_too_deep(below, levels - 1):
            return True
    return False
