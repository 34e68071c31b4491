"""Validate bounds, multiples and format ranges of numbers, with Go's conversions.

See VAL-007, VAL-008.
"""

import math
import struct
from collections.abc import Callable
from typing import Any

from apiext.documents.floats import go_float
from apiext.meta.fields import FieldError, invalid
from apiext.schema.structural import Structural

_MIN_INT64 = -(2**63)
_MAX_INT64 = 2**63 - 1
_SAFE = float(2**53 - 1)
_INTEGERS = {"int32": (-(2**31), 2**31 - 1)}


def to_int64(value: float) -> int:
    """Convert a float to an int64 as Go does on amd64.

    A float out of range gives the smallest int64.
    """
    if not -9.3e18 < value < 9.3e18:
        return _MIN_INT64
    cut = int(value)
    return cut if _MIN_INT64 <= cut <= _MAX_INT64 else _MIN_INT64


def to_float(value: float) -> float:
    """Return the number as a float; return infinity if it exceeds the range of floats."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def is_json_integer(value: float) -> bool:
    """Return whether a float counts as an integer (VAL-004).

    Its absolute value must be below 2^53. It must be integral, or slightly above a positive integer.
    """
    if not -_SAFE <= value <= _SAFE:
        return False
    cut = float(int(value))
    return value == cut or (cut > 0 and (value - cut) / (value + cut) < 1e-9)


def _number_type(node: Structural) -> tuple[str, str]:
    """Return the type and format that determine the range of valid numbers.

    Both are empty if there is no range.
    """
    kind = node.type if not node.int_or_string else ""
    if kind == "integer":
        return kind, node.format if node.format in ("int32", "int64") else ""
    if kind == "number":
        return kind, node.format if node.format in ("float", "double") else ""
    return "", ""


def in_range(value: float, kind: str, name: str) -> bool:
    """Return whether a number is in the range of the type ``kind`` and the format ``name``.

    For the type integer, a float with a fraction is out of range.
    """
    if kind == "integer":
        if isinstance(value, float) and not (value.is_integer() and _MIN_INT64 < value < 2**63):
            return False
        low, high = _INTEGERS.get(name, (_MIN_INT64, _MAX_INT64))
        return low <= int(value) <= high
    if name == "float" and isinstance(value, float):
        try:
            struct.pack("<f", value)
        except OverflowError:
            return False
    return True


def _range_error(prefix: str, kind: str, name: str, path: str, base: str) -> FieldError:
    what = f"with format {name}" if name else "(default format)"
    return invalid(base, "", f"{prefix} value must be of type {kind} {what} in {path}")


def _show(value: float) -> str:
    return go_float(value) if isinstance(value, float) else str(value)


def _multiple(path: str, field: str, value: float, factor: float) -> FieldError | None:
    if factor <= 0:
        return invalid(field, factor, f"factor MultipleOf declared for {path} must be positive: {_show(factor)}")
    if isinstance(value, int):
        fits = value % int(factor) == 0
    else:
        fits = is_json_integer(1 / factor * value if factor < 1 else value / factor)
    return None if fits else invalid(field, value, f"{path} in body should be a multiple of {_show(factor)}")


def _maximum(path: str, field: str, value: float, bound: float, exclusive: bool) -> FieldError | None:
    if not (value >= bound if exclusive else value > bound):
        return None
    words = "less than" if exclusive else "less than or equal to"
    return invalid(field, value, f"{path} in body should be {words} {_show(bound)}")


def _minimum(path: str, field: str, value: float, bound: float, exclusive: bool) -> FieldError | None:
    if not (value <= bound if exclusive else value < bound):
        return None
    words = "greater than" if exclusive else "greater than or equal to"
    return invalid(field, value, f"{path} in body should be {words} {_show(bound)}")


def errors(node: Structural, value: float, path: str, field: str, base: str = "") -> list[FieldError]:
    """Return the errors of an int or float, in upstream's order.

    ``path`` is the path of the number in texts, ``field`` its path as the field of errors. ``base`` is the field of
    errors about the range of the type and format.
    """
    bounds = node.numbers
    kind, name = _number_type(node)
    found: list[FieldError | None] = []
    if not in_range(value, kind, name):
        found.append(_range_error("Checked", kind, name, path, base))
    for prefix, bound, check in (
        ("MultipleOf", bounds.multiple_of, _multiple),
        ("Minimum boundary", bounds.minimum, _with(_minimum, bounds.exclusive_minimum)),
        ("Maximum boundary", bounds.maximum, _with(_maximum, bounds.exclusive_maximum)),
    ):
        if bound is None:
            continue
        if not in_range(bound, kind, name):
            found.append(_range_error(prefix, kind, name, path, base))
            found.append(check(path, field, to_float(value), bound))
        else:
            native = to_int64(bound) if isinstance(value, int) else bound
            found.append(check(path, field, value, native))
    return [error for error in found if error is not None]


def _with(check: Callable[[str, str, Any, Any, bool], FieldError | None], exclusive: bool) -> Any:
    return lambda path, field, value, bound: check(path, field, value, bound, exclusive)


def integer_test(node: Structural) -> Callable[[int], bool] | None:
    """Return a fast test of ints that returns ``not errors(…)``, or None if every int is valid."""
    kind, name = _number_type(node)
    bounds = node.numbers
    given = [bound for bound in (bounds.multiple_of, bounds.minimum, bounds.maximum) if bound is not None]
    if not all(in_range(bound, kind, name) for bound in given):
        return lambda _: False
    low, high = _INTEGERS.get(name, (_MIN_INT64, _MAX_INT64)) if kind == "integer" else (_MIN_INT64, _MAX_INT64)
    if bounds.minimum is not None:
        low = max(low, to_int64(bounds.minimum) + bounds.exclusive_minimum)
    if bounds.maximum is not None:
        high = min(high, to_int64(bounds.maximum) - bounds.exclusive_maximum)
    if bounds.multiple_of is not None:
        return lambda value: not errors(node, value, "", "")
    if (low, high) == (_MIN_INT64, _MAX_INT64):
        return None
    if high == _MAX_INT64:
        return lambda value: value >= low
    if low == _MIN_INT64:
        return lambda value: value <= high
    return lambda value: low <= value <= high


def float_test(node: Structural) -> Callable[[float], bool] | None:
    """Return a fast test of floats that returns ``not errors(…)``.

    Return None if every float is valid.
    """
    bounds = node.numbers
    if bounds.multiple_of is bounds.minimum is bounds.maximum is None and _number_type(node) in (
        ("", ""),
        ("number", ""),
        ("number", "double"),
    ):
        return None
    return lambda value: not errors(node, value, "", "")
