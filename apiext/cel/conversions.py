"""Convert CEL values between types; parse and print numbers and times as Go does.

A function ``to_…`` returns a Fault for a value that it cannot convert.
"""

import math
import re

from apiext.cel.effort import spend_copy, spend_text, spend_work
from apiext.cel.times import format_timestamp, parse_duration, parse_rfc3339
from apiext.cel.types import BOOL, BYTES, DOUBLE, DURATION, INT, NULL, STRING, TIMESTAMP, UINT, Type, make
from apiext.cel.values import (
    INT_MAX,
    INT_MIN,
    SECOND,
    TIME_MAX,
    TIME_MIN,
    UINT_MAX,
    Duration,
    Fault,
    Special,
    Timestamp,
    Uint,
    Value,
    is_unknown,
    size,
    type_name,
    unlike,
)

_INTEGER = re.compile(r"[+-]?[0-9]+\Z")
_NATURAL = re.compile(r"[0-9]+\Z")
_NUMBER = r"[0-9]+(?:_[0-9]+)*"  # Go accepts single underscores between digits
_FLOAT = re.compile(rf"[+-]?(?:{_NUMBER}(?:\.(?:{_NUMBER})?)?|\.{_NUMBER})(?:[eE][+-]?{_NUMBER})?\Z")
_DIGITS = r"[0-9a-fA-F]+(?:_[0-9a-fA-F]+)*"
_HEX_FLOAT = re.compile(rf"[+-]?0[xX](?:_?{_DIGITS}(?:\.(?:{_DIGITS})?)?|\.{_DIGITS})[pP][+-]?{_NUMBER}\Z")
_SPECIAL = re.compile(r"[+-]?(?:inf|infinity|nan)\Z", re.I)
_READ = 64  # parsing a time counts as one element for each 64 characters
_DURATION_PART = 4  # parsing one part of a duration, such as ``5m``, counts as four elements
_TRUE = frozenset(("1", "t", "T", "TRUE", "true", "True"))
_FALSE = frozenset(("0", "f", "F", "FALSE", "false", "False"))


def _cannot(value: Value, wanted: str) -> Fault:
    return Fault(f"type conversion error from '{type_name(value)}' to '{wanted}'")


def to_int(value: Value) -> Value:
    """Convert a number, a string, a time (seconds) or a duration (nanoseconds) to an int."""
    kind = type(value)
    if kind is Uint:
        return int(value) if value <= INT_MAX else Fault("integer overflow")
    if kind is float:
        if math.isnan(value) or not -9223372036854775808.0 < value < 9223372036854775808.0:
            return Fault("integer overflow")
        return int(value)
    if kind is str:
        if len(value) < 30 and _INTEGER.match(value) and INT_MIN <= int(value) <= INT_MAX:
            return int(value)
        return _cannot(value, "int")
    if kind is Timestamp:
        return value.ns // SECOND
    return value.ns if kind is Duration else _cannot(value, "int")


def to_uint(value: Value) -> Value:
    """Convert a number or a string to a uint."""
    kind = type(value)
    if kind is int:
        return Uint(value) if value >= 0 else Fault("unsigned integer overflow")
    if kind is float:
        if math.isnan(value) or not 0 <= value < 18446744073709551616.0:
            return Fault("unsigned integer overflow")
        return Uint(int(value))
    if kind is str and len(value) < 30 and _NATURAL.match(value) and int(value) <= UINT_MAX:
        return Uint(int(value))
    return _cannot(value, "uint")


def to_double(value: Value) -> Value:
    """Convert a number or a string to a double."""
    kind = type(value)
    if kind is int or kind is Uint:
        return float(value)
    if kind is str:
        spend_text(len(value))
        spend_work(len(value) // 2)
        if _SPECIAL.match(value):
            return float(value)
        if _FLOAT.match(value):
            number = float(value)
            return number if math.isfinite(number) else _cannot(value, "double")
        if _HEX_FLOAT.match(value):
            try:
                return float.fromhex(value.replace("_", ""))
            except OverflowError:
                return _cannot(value, "double")
    return _cannot(value, "double")


def to_bool(value: Value) -> Value:
    """Convert a string to a boolean."""
    if type(value) is str and (value in _TRUE or value in _FALSE):
        return value in _TRUE
    return _cannot(value, "bool")


def to_bytes(value: Value) -> Value:
    """Convert a string to its UTF-8 bytes."""
    if type(value) is not str:
        return _cannot(value, "bytes")
    spend_copy(value)
    return value.encode("utf-8", "surrogatepass")


def to_string(value: Value) -> Value:
    """Convert a value to a string."""
    kind = type(value)
    if kind is str:
        return value
    if kind is bool:
        return "true" if value else "false"
    if kind is int or kind is Uint:
        return str(int(value))
    if kind is float:
        return shortest(value)
    if kind is bytes:
        spend_copy(value)
        try:
            return value.decode()
        except UnicodeDecodeError:
            return Fault("invalid UTF-8 in bytes, cannot convert to string")
    if kind is Timestamp:
        return format_timestamp(value.ns, value.offset)
    if kind is Duration:
        return seconds_text(value.ns)
    return value.name if isinstance(value, Type) else _cannot(value, "string")


def to_timestamp(value: Value) -> Value:
    """Convert a string, or seconds since 1970, to a timestamp."""
    read: tuple[int, int] | None = None
    if type(value) is int:
        read = value * SECOND, 0
    elif type(value) is str:
        spend_work(len(value) // _READ)
        read = parse_rfc3339(value)
    if read is None:
        return _cannot(value, "google.protobuf.Timestamp")
    return Timestamp(*read) if TIME_MIN <= read[0] <= TIME_MAX else Fault("timestamp overflow")


def to_duration(value: Value) -> Value:
    """Convert a string to a duration."""
    if type(value) is str:
        spend_text(len(value))
        spend_work(sum(map(value.count, "hms")) * _DURATION_PART + len(value) // 4)
    ns = parse_duration(value) if type(value) is str else None
    return Duration(ns) if ns is not None else _cannot(value, "google.protobuf.Duration")


def identity(value: Value) -> Value:
    """Return the value unchanged."""
    return value


_UNKNOWN = "not supported for values preserved by x-kubernetes-preserve-unknown-fields"
_TYPES: dict[type, Type] = {
    str: STRING, bytes: BYTES, int: INT, float: DOUBLE, Timestamp: TIMESTAMP, Duration: DURATION, type(None): NULL,
    bool: BOOL, Uint: UINT,
}  # fmt: skip


def type_of_value(value: Value) -> Value:
    """Return the type of a value, or a fault for data without a declared type.

    An object has such data where its schema has x-kubernetes-preserve-unknown-fields.
    """
    known = _TYPES.get(type(value))
    if known is not None:
        return known
    if isinstance(value, Type):
        return TYPE_VALUE
    if is_unknown(value):
        return Fault(f"type conversion to 'type' {_UNKNOWN}")
    found = make("opaque", type_name(value))
    return found if getattr(value, "tells_type", True) else make("type", "type", found)


TYPE_VALUE = make("type", "type")


def size_of(value: Value) -> Value:
    """Return the size of a string, bytes, a list or a map; return a fault for other values."""
    # values of library types have a size only for the calculation of costs
    found = None if isinstance(value, Special) else size(value)
    return unlike(value, "size") if found is None else found


def shortest(number: float) -> str:
    """Return a double as Go's %g prints it with the fewest digits."""
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "+Inf" if number > 0 else "-Inf"
    digits, exponent = _digits(number)
    sign = "-" if math.copysign(1, number) < 0 else ""
    if exponent < -4 or exponent >= 6:
        rest = "." + digits[1:] if len(digits) > 1 else ""
        return f"{sign}{digits[0]}{rest}e{'-' if exponent < 0 else '+'}{abs(exponent):02d}"
    return sign + plain(digits, exponent)


def _digits(number: float) -> tuple[str, int]:
    """Return the significant digits of a double, and the exponent of the first digit."""
    mantissa, _, exponent = f"{abs(number)!r}".partition("e")
    whole, _, part = mantissa.partition(".")
    part = "" if part == "0" else part
    digits = (whole + part).lstrip("0")
    if not digits:
        return "0", 0
    leading = len(whole + part) - len(digits)
    first = len(whole) - 1 - leading + int(exponent or "0")
    return digits.rstrip("0") or "0", first


def fixed(number: float) -> str:
    """Return a double without exponent, with the fewest digits that identify it."""
    if number == 0:
        return "-0" if math.copysign(1, number) < 0 else "0"
    return ("-" if number < 0 else "") + plain(*_digits(number))


def seconds_text(ns: int) -> str:
    """Return a duration in seconds with the suffix s.

    As upstream, the number of seconds is a double.
    """
    whole = abs(ns) // SECOND * (-1 if ns < 0 else 1)
    return fixed(float(whole) + float(ns - whole * SECOND) / 1e9) + "s"


def plain(digits: str, exponent: int) -> str:
    """Return digits with a decimal point; ``exponent`` is the exponent of the first digit."""
    if exponent < 0:
        return "0." + "0" * (-exponent - 1) + digits
    if len(digits) <= exponent + 1:
        return digits + "0" * (exponent + 1 - len(digits))
    return digits[: exponent + 1] + "." + digits[exponent + 1 :]
