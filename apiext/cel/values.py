"""CEL values as Python values: type names, equality, order and size.

Booleans, ints, doubles, strings, bytes, null and lists are plain Python values. This module defines classes for types
that Python lacks. The caller's data is the decoded JSON that an expression reads, such as ``self``. Its lists, maps and
objects stay decoded JSON inside a view (module ``views``).
"""

import math
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

from apiext.cel.effort import spend, spend_equality, spend_scan
from apiext.cel.types import Type

Scalar: TypeAlias = "bool | int | Uint | float | str | bytes | None"
Value: TypeAlias = Any  # a CEL value, or a Fault

INT_MIN, INT_MAX, UINT_MAX = -(1 << 63), (1 << 63) - 1, (1 << 64) - 1
SECOND = 1_000_000_000  # nanoseconds
NIL = "runtime error: invalid memory address or nil pointer dereference"
TIME_MIN, TIME_MAX = -62_135_596_800 * SECOND, 253_402_300_799 * SECOND + SECOND - 1


class Fault:
    """The result of a failed evaluation, instead of a value."""

    __slots__ = ("message",)

    def __init__(self, message: str) -> None:
        self.message = message

    def __repr__(self) -> str:
        return f"Fault({self.message!r})"


class Broken(Exception):
    """The error of an input on which upstream's code panics, such as an unhashable key.

    This error ends the evaluation.
    """


def no_overload(*_: Value) -> Fault:
    """Return the fault of operands that no overload accepts."""
    return Fault("no such overload")


def unlike(value: Value, function: str, *kinds: type) -> Fault:
    """Return the fault of an operand with an unsupported type.

    For the types in ``kinds``, and for strings, timestamps and durations, the text does not contain the name of the
    function.
    """
    known = type(value) in kinds or type(value) in (str, Timestamp, Duration)
    return no_overload() if known else Fault(f"no such overload: {function}")


class Uint(int):
    """An unsigned integer; it equals an int of the same value, but has another type."""

    __slots__ = ()


class Timestamp:
    """A point in time in the years 1 to 9999: nanoseconds since 1970 in UTC.

    ``offset`` is the offset from UTC in seconds, for the printed time.
    """

    __slots__ = ("ns", "offset")

    def __init__(self, ns: int, offset: int = 0) -> None:
        self.ns = ns
        self.offset = offset

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Timestamp) and self.ns == other.ns

    def __hash__(self) -> int:
        return hash((1, self.ns))


class Duration:
    """A span of time in nanoseconds, in the range of int64."""

    __slots__ = ("ns",)

    def __init__(self, ns: int) -> None:
        self.ns = ns

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Duration) and self.ns == other.ns

    def __hash__(self) -> int:
        return hash((2, self.ns))


class Optional:
    """An optional value."""

    __slots__ = ("present", "value")

    def __init__(self, present: bool, value: Value = None) -> None:
        self.present = present
        self.value = value


NONE = Optional(False)


class Map:
    """A map that an expression constructed; equal numbers of different types are the same key."""

    __slots__ = ("entries",)

    def __init__(self) -> None:
        self.entries: dict[object, tuple[Value, Value]] = {}

    def set(self, key: Value, value: Value) -> None:
        """Add or replace an entry."""
        self.entries[key_of(key)] = (key, value)

    def find(self, key: Value) -> "tuple[Value, Value] | None":
        """Return (key, value) of an entry, or None."""
        return self.entries.get(key_of(key)) if self.entries else None

    def remove(self, key: Value) -> None:
        """Remove an entry if it exists."""
        self.entries.pop(key_of(key), None)

    def __len__(self) -> int:
        return len(self.entries)

    def keys(self) -> Iterator[Value]:
        """Return the original keys."""
        return (key for key, _ in self.entries.values())


def key_of(key: Value) -> object:
    """Return the lookup key of a map key. Raise Broken for keys on which upstream panics.

    A boolean differs from a number. Lists and maps are equal by identity, other keys by Python's equality.
    """
    if key is True or key is False:
        return ("bool", key)
    if type(key) is bytes:
        raise Broken("runtime error: hash of unhashable type types.Bytes")
    if isinstance(key, Special) and not key.hashed:
        raise Broken(f"runtime error: hash of unhashable type {key.go_type}")
    if type(key) is list or type(key) is Map:
        return ("other", id(key))
    return key


class Special:
    """A value of a type that a library defines.

    ``go_type`` is the name of upstream's type. ``hashed`` is true if the value can be the key of a map.
    """

    __slots__ = ()
    type_name = ""
    go_type = ""
    hashed = True
    tells_type = True  # if false, CEL's ``type(value)`` is not the type T of the value, but the type of T

    def same(self, other: Value) -> "bool | Fault":
        """Return whether another value is equal, or a fault if the values cannot be compared."""
        raise NotImplementedError

    def size(self) -> int | None:
        """Return the size of the value for costs, or None if its type has no size.

        Costs then use the size 1.
        """
        return None


class View:
    """A list, map or object that is not a plain list or Map, such as the caller's data.

    Data without a declared type is also a view, which is neither a list nor a map.

    The modules ``views``, ``dynamic`` and ``constructed`` define the classes.
    """

    __slots__ = ()
    is_list, is_map = False, True

    def __len__(self) -> int:
        raise NotImplementedError

    def same(self, other: Value) -> "bool | Fault":
        """Return whether another value is equal, or a fault if the values cannot be compared."""
        raise NotImplementedError

    def items(self) -> Iterator[Value]:
        """Yield the elements of a list, or the keys of a map or an object."""
        raise NotImplementedError

    def find(self, key: Value) -> "tuple[Value, Value] | Fault | None":
        """Return (key, value) of an entry of a map or an object.

        Return None if there is no such entry, or return a fault.
        """
        raise NotImplementedError

    def get(self, index: int) -> Value:
        """Return an element of a list; the index is in range."""
        raise NotImplementedError


_NAMES: dict[type, str] = {
    bool: "bool", int: "int", Uint: "uint", float: "double", str: "string", bytes: "bytes", type(None): "null_type",
    list: "list", Map: "map", Timestamp: "google.protobuf.Timestamp", Duration: "google.protobuf.Duration",
    Type: "type", Optional: "optional_type", Fault: "error",
}  # fmt: skip


def type_name(value: Value) -> str:
    """Return the name of a value's type."""
    known = _NAMES.get(type(value))
    if known is not None:
        return known
    if is_list(value) or is_map(value):
        return "list" if value.is_list else "map"
    return str(value.type_name)


def is_list(value: Value) -> bool:
    """Return whether a value is a list of any class."""
    return type(value) is list or (isinstance(value, View) and value.is_list)


def is_map(value: Value) -> bool:
    """Return whether a value is a map or an object of any class."""
    return type(value) is Map or (isinstance(value, View) and value.is_map)


def is_unknown(value: Value) -> bool:
    """Return whether a value is part of the caller's data without a declared type.

    Upstream: unknownPreserved.
    """
    return isinstance(value, View) and not (value.is_list or value.is_map)


def elements(value: Value) -> Iterator[Value]:
    """Yield the elements of a list or the keys of a map."""
    if type(value) is list:
        return iter(value)
    if type(value) is Map:
        return value.keys()
    found: Iterator[Value] = value.items()
    return found


def element(value: Value, index: int) -> Value:
    """Return an element of a list of any class; the index is in range."""
    return value[index] if type(value) is list else value.get(index)


_VIEW = 6  # a view in a list takes as much memory as this number of additional elements


def count_views(made: list[Value]) -> list[Value]:
    """Count the memory of the views in a new list; return the list.

    Raise Cancelled if the budget is exhausted.
    """
    spend(_VIEW * sum(isinstance(value, View) for value in made))
    return made


def size(value: Value) -> int | None:
    """Return the size of a value, or None if its type has no size."""
    kind = type(value)
    if kind in (str, bytes, list, Map) or is_list(value) or is_map(value):
        return len(value)
    return value.size() if isinstance(value, Special) else None


def cost_size(value: Value) -> int:
    """Return the size of a value for costs (upstream: actualSize)."""
    kind = type(value)
    if kind is str or kind is list:
        return len(value)
    if kind is Optional and value.present:
        return cost_size(value.value)
    counted = size(value)
    return 1 if counted is None else counted


def is_number(value: Value) -> bool:
    """Return whether a value is an int, a uint or a double."""
    return type(value) in (int, float, Uint)


def equal(one: Value, other: Value) -> "bool | Fault":
    """Return whether two values are equal, or a fault if their types cannot be compared."""
    kind = type(one)
    if kind is type(other) and kind in _DIRECT:
        if (kind is str or kind is bytes) and len(one) == len(other):
            spend_scan(len(one))
        return bool(one == other)
    if one is None or other is None:
        return one is None and other is None
    compare = _EQUAL.get(kind)
    if type(other) is Fault and kind is not Fault:
        return False if compare is not None else other
    if compare is not None:
        return compare(one, other)
    found: bool | Fault = one.same(other)
    return found


_DIRECT = frozenset((str, int, bool, float, bytes, Uint, Timestamp, Duration))


def _equal_numbers(one: Value, other: Value) -> bool:
    if not is_number(other) or math.isnan(one) or math.isnan(other):
        return False
    return bool(one == other or (float in (type(one), type(other)) and order_of(one, other) == 0))


def order_of(one: Value, other: Value) -> int:
    """Return -1, 0 or 1: ``one`` is less, equal or greater.

    As upstream, an integer is rounded to compare it with a double.
    """
    if type(one) is float and type(other) is not float:
        return -order_of(other, one)
    if type(other) is float and type(one) is not float:
        low, high = (0, UINT_MAX) if type(one) is Uint else (INT_MIN, INT_MAX)
        if other < low or other > float(high):
            return 1 if other < low else -1
        one = float(one)
    return bool(one > other) - bool(one < other)


def _equal_lists(one: Value, other: Value) -> bool:
    if not is_list(other) or len(one) != len(other):
        return False
    spend_equality(len(one))
    return all(equal(a, b) is not False for a, b in zip(one, elements(other), strict=True))


def _equal_maps(one: Value, other: Value) -> bool:
    if not is_map(other) or len(one) != len(other):
        return False
    spend_equality(len(one))
    for key, value in one.entries.values():
        found = other.find(key)
        if found is None or type(found) is Fault or equal(value, found[1]) is False:
            return False
    return True


def _equal_optionals(one: Value, other: Value) -> "bool | Fault":
    if type(other) is not Optional:
        return False
    if not one.present:
        return not other.present
    return other.present and equal(one.value, other.value)


def _equal_never(one: Value, other: Value) -> bool:
    return False


def _equal_fault(one: Value, other: Value) -> Fault:
    return one if type(one) is Fault else other


def _equal_types(one: Value, other: Value) -> bool:
    return isinstance(other, Type) and one.name == other.name


_EQUAL: "dict[type, Callable[[Value, Value], bool | Fault]]" = {
    int: _equal_numbers, Uint: _equal_numbers, float: _equal_numbers, list: _equal_lists, Map: _equal_maps,
    Optional: _equal_optionals, Type: _equal_types, bool: _equal_never, str: _equal_never, bytes: _equal_never,
    Timestamp: _equal_never, Duration: _equal_never, Fault: _equal_fault,
}  # fmt: skip


def equal_directly(one: Value, other: Value) -> "bool | Fault":
    """Return whether two values are equal, as upstream's Equal of the first value decides.

    If only ``other`` is null, ``equal`` returns False. This function then calls ``one.same(None)`` if ``one`` is a View
    or Special; ``same`` may return a fault.
    """
    if type(one) is Fault:
        return one
    if other is None and isinstance(one, (View, Special)):
        return one.same(other)
    return equal(one, other)


COMPARABLE = (int, Uint, float, str, bytes, bool, Timestamp, Duration)  # types of values that have an order


def compare(one: Value, other: Value) -> "int | Fault":
    """Return -1, 0 or 1: ``one`` is less, equal or greater.

    Return the fault of values without an order.
    """
    kind = type(one)
    if is_number(one) and is_number(other):
        if math.isnan(one) or math.isnan(other):
            return Fault("NaN values cannot be ordered")
        return order_of(one, other)
    if kind is not type(other):
        return Fault("no such overload")
    if kind is str or kind is bytes:
        spend_scan(2 * min(len(one), len(other)))
    if kind in (str, bytes, bool):
        return bool(one > other) - bool(one < other)
    if kind in (Timestamp, Duration):
        return bool(one.ns > other.ns) - bool(one.ns < other.ns)
    return Fault("no such overload")
