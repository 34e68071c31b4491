"""Types and equality of JSON values as Go sees them: 1, 1.0 and true are three different things."""

from typing import Any

from apiext.schema.numbers import is_json_integer, to_int64
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
    """Return the JSON type and the format of a value, as type errors name them."""
    return _NAMES[value.__class__]


def go_equal(one: Any, other: Any) -> bool:
    """Tell whether two JSON values are deeply equal with the same dynamic types (RAT-004)."""
    if one is other:
        return True
    if one.__class__ is not other.__class__:
        return False
    if one.__class__ is dict:
        return len(one) == len(other) and all(
            name in other and go_equal(item, other[name]) for name, item in one.items()
        )
    if one.__class__ is list:
        return len(one) == len(other) and all(map(go_equal, one, other))
    return bool(one == other)


def _converted(value: Any, wanted: Any) -> bool:
    """Tell whether the value converted to the type of the enum item equals it."""
    if value.__class__ is int and wanted.__class__ is float:
        return float(value) == wanted
    if value.__class__ is float and wanted.__class__ is int:
        return to_int64(value) == wanted
    if value.__class__ is int and wanted.__class__ is str:  # upstream: Go converts an integer to its character
        return wanted == (chr(value) if 0 <= value < 0x110000 and not 0xD800 <= value < 0xE000 else "\ufffd")
    return go_equal(value, wanted)


def in_enum(enum: tuple[Any, ...], value: Any) -> bool:
    """Tell whether a value is one of an enumeration, numbers after conversion (VAL-009)."""
    return value is not None and any(wanted is not None and _converted(value, wanted) for wanted in enum)


def type_fault(node: Structural, value: Any) -> tuple[str, str] | None:
    """Return the type expected and the one met when the type of a value is wrong (VAL-004, VAL-005)."""
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
        return None  # upstream: the format check takes over, for lists nothing does
    return None if fits else (",".join(types), kind)
