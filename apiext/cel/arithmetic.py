"""Operators on numbers, times, strings, bytes and lists.

Results out of the range of 64-bit integers are overflow errors.
"""

import math
from collections.abc import Callable

from apiext.cel.effort import spend, spend_copy
from apiext.cel.values import (
    COMPARABLE,
    INT_MAX,
    INT_MIN,
    SECOND,
    TIME_MAX,
    TIME_MIN,
    UINT_MAX,
    Duration,
    Fault,
    Timestamp,
    Uint,
    Value,
    View,
    compare,
    elements,
    is_list,
    no_overload,
    unlike,
)

_INT_OVERFLOW = "integer overflow"
_UINT_OVERFLOW = "unsigned integer overflow"
_TIME_OVERFLOW = "timestamp overflow"


def _int(number: int) -> Value:
    return number if INT_MIN <= number <= INT_MAX else Fault(_INT_OVERFLOW)


def _uint(number: int) -> Value:
    return Uint(number) if 0 <= number <= UINT_MAX else Fault(_UINT_OVERFLOW)


def _time(ns: int, offset: int) -> Value:
    return Timestamp(ns, offset) if TIME_MIN <= ns <= TIME_MAX else Fault(_TIME_OVERFLOW)


def _duration(ns: int) -> Value:
    return Duration(ns) if INT_MIN <= ns <= INT_MAX else Fault(_INT_OVERFLOW)


def add(one: Value, other: Value) -> Value:
    """Return the sum of numbers or durations, or of a time and a duration.

    Strings, bytes and lists are concatenated.
    """
    kind, second = type(one), type(other)
    if kind is second:
        if kind is int:
            return _int(one + other)
        if kind is float:
            return one + other
        if kind is str or kind is bytes:
            spend_copy(one, other)  # CEL costs bound this copy only if both types are known
            return one + other
        if kind is Uint:
            return _uint(int(one) + int(other))
        if kind is Duration:
            return _duration(one.ns + other.ns)
    if (kind is Timestamp and second is Duration) or (kind is Duration and second is Timestamp):
        return _time(one.ns + other.ns, one.offset if kind is Timestamp else other.offset)
    if is_list(one) and is_list(other):
        if isinstance(one, View):
            return one.add(other)  # type: ignore[attr-defined]
        if not len(one) or not len(other):
            return one if len(one) else other
        spend(len(one) + len(other))
        return [*one, *elements(other)]
    return no_overload() if is_list(one) else unlike(one, "_+_", int, Uint, float, bytes)


def subtract(one: Value, other: Value) -> Value:
    """Return the difference of two numbers, durations or times, or a time minus a duration."""
    kind, second = type(one), type(other)
    if kind is second:
        if kind is int:
            return _int(one - other)
        if kind is float:
            return one - other
        if kind is Uint:
            return _uint(int(one) - int(other))
        if kind is Duration:
            return _duration(one.ns - other.ns)
        if kind is Timestamp:
            seconds = (one.ns // SECOND - other.ns // SECOND) * SECOND
            return _duration(one.ns - other.ns) if INT_MIN <= seconds <= INT_MAX else Fault(_INT_OVERFLOW)
    if kind is Timestamp and second is Duration:
        return _time(one.ns - other.ns, one.offset) if other.ns != INT_MIN else Fault(_INT_OVERFLOW)
    return unlike(one, "_-_", int, Uint, float)


def multiply(one: Value, other: Value) -> Value:
    """Return the product of two numbers of the same type."""
    kind = type(one)
    if kind is type(other):
        if kind is int:
            return _int(one * other)
        if kind is float:
            return one * other
        if kind is Uint:
            return _uint(int(one) * int(other))
    return unlike(one, "_*_", int, Uint, float)


def divide(one: Value, other: Value) -> Value:
    """Return the quotient of two numbers of the same type.

    Truncate integer quotients towards zero.
    """
    kind = type(one)
    if kind is type(other):
        if kind is float:
            if other == 0:
                return (
                    math.nan if one == 0 or math.isnan(one) else math.copysign(math.inf, one) * math.copysign(1, other)
                )
            return one / other
        if kind is int or kind is Uint:
            if other == 0:
                return Fault("division by zero")
            quotient = abs(int(one)) // abs(int(other))
            if kind is Uint:
                return Uint(quotient)
            return _int(-quotient if (one < 0) != (other < 0) else quotient)
    return unlike(one, "_/_", int, Uint, float)


def modulo(one: Value, other: Value) -> Value:
    """Return the remainder of an integer division; it has the sign of the dividend."""
    kind = type(one)
    if kind is type(other) and (kind is int or kind is Uint):
        if other == 0:
            return Fault("modulus by zero")
        if kind is int and one == INT_MIN and other == -1:
            return Fault(_INT_OVERFLOW)
        rest = abs(int(one)) % abs(int(other))
        return Uint(rest) if kind is Uint else -rest if one < 0 else rest
    return unlike(one, "_%_", int, Uint)


def negate(one: Value) -> Value:
    """Return a number or duration with the opposite sign."""
    kind = type(one)
    if kind is int:
        return _int(-one)
    if kind is float:
        return -one
    if kind is Duration:
        return _duration(-one.ns)
    return unlike(one, "-_", bool)


def negation(one: Value) -> Value:
    """Return the negation of a boolean."""
    return (not one) if type(one) is bool else no_overload()


def not_strictly_false(one: Value) -> Value:
    """Return a boolean unchanged, and true for any other value."""
    return one if type(one) is bool else True


def _order(function: str, *allowed: int) -> Callable[[Value, Value], Value]:
    def ordered(one: Value, other: Value) -> Value:
        if type(one) not in COMPARABLE:
            return Fault(f"no such overload: {function}")
        found = compare(one, other)
        return found if type(found) is Fault else found in allowed

    return ordered


less = _order("_<_", -1)
less_equals = _order("_<=_", -1, 0)
greater = _order("_>_", 1)
greater_equals = _order("_>=_", 0, 1)
