"""Name the types of JSON values as Go does, and compare values with enums."""

from typing import Any

from apiext.documents.equality import same
from apiext.schema.budget import STEPS
from apiext.schema.numbers import is_json_integer, to_float, to_int64
from apiext.schema.structural import Structural

_NAMES: dict[type, tuple[str, str]] = {
    bool: ("boolean", ""),
    str: ("string", ""),
    int: ("integer", "int64"),
    float: ("number", "float64"),
    list: ("array", ""),
    dict: ("object", ""),
}


def kind_of(value: Any) -> tuple[str, str]:
    """Return the (JSON type, format) of a value that type errors print."""
    return _NAMES[value.__class__]


class Enum:
    """The items of an enum, grouped by class for look-up.

    As in Go, a number is converted to the type of an item before the comparison (VAL-009). An int is even converted to
    a string: the character with this code point.
    """

    __slots__ = ("containers", "flags", "floats", "integers", "texts")

    def __init__(self, items: tuple[Any, ...]) -> None:
        of_class: dict[type, list[Any]] = {}
        for item in items:
            of_class.setdefault(item.__class__, []).append(item)
        self.texts = frozenset(of_class.get(str, ()))
        self.flags = frozenset(of_class.get(bool, ()))
        self.integers = frozenset(of_class.get(int, ()))
        self.floats = frozenset(of_class.get(float, ()))
        self.containers = [*of_class.get(list, ()), *of_class.get(dict, ())]

    def has(self, value: Any) -> bool:
        """Return whether a value is an item of the enum; false for null.

        May raise OverBudget or BudgetExhausted.
        """
        if value.__class__ is str:
            return value in self.texts
        if value.__class__ is int:
            return value in self.integers or to_float(value) in self.floats or _character(value) in self.texts
        if value.__class__ is float:
            return value in self.floats or to_int64(value) in self.integers
        if value.__class__ is bool:
            return value in self.flags
        if value is None or not self.containers:
            return False
        STEPS.spend(len(self.containers))
        return any(same(value, item) for item in self.containers)


def _character(code: int) -> str:
    # upstream: Go converts an integer to the character with this code point
    return chr(code) if 0 <= code < 0x110000 and not 0xD800 <= code < 0xE000 else "\ufffd"


def enum_of(node: Structural) -> Enum:
    """Return the enum of a node."""
    found = node.compiled.get("enum")
    if found is None:
        found = node.compiled["enum"] = Enum(node.enum)
    made: Enum = found
    return made


def type_fault(node: Structural, value: Any) -> tuple[str, str] | None:
    """Return (expected type, actual type) if a value has a wrong type, else None.

    See VAL-004, VAL-005. If the schema has a format, there are two exceptions for values of a wrong type. For a value
    that is neither a string nor an array, return (expected format, actual format) if these differ. For a string or an
    array, return None unless the schema allows numbers or integers.
    """
    types, name = node.types, node.format
    if value is None:
        return (",".join(types), "null") if types and not node.nullable else None
    if not types and not name:
        return None
    kind, value_format = kind_of(value)
    fits = (
        kind in types
        or (kind == "integer" and "number" in types)
        or (kind == "number" and "integer" in types and is_json_integer(value))
    )
    texts = kind in ("string", "array")
    if name and not texts and not fits and value_format != name:
        return name, value_format
    if name and texts and "number" not in types and "integer" not in types:
        return None  # upstream: the check of the format reports a string of a wrong type; no check reports such a list
    return None if fits else (",".join(types), kind)
