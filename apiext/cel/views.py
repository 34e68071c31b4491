"""Views: CEL lists, maps and objects that wrap decoded JSON.

An example is the object that a rule validates. A view converts an element or field to a value of its declared type
each time an expression reads it. A fault (values.Fault) is an error as a CEL value.
"""

from collections.abc import Callable, Iterator
from math import isnan
from typing import Any

from apiext.cel.base64_url import read_base64
from apiext.cel.constructed import alike_raw
from apiext.cel.declared import Declared
from apiext.cel.dynamic import dynamic
from apiext.cel.effort import spend, spend_equality
from apiext.cel.escaping import escape, unescape
from apiext.cel.raw import go_name, key_of_object, raw_of
from apiext.cel.times import (
    parse_date,
    parse_date_time,
    parse_go_or_word_duration,
    refusal_of_date,
    refusal_of_date_time,
)
from apiext.cel.values import (
    Duration,
    Fault,
    Timestamp,
    Uint,
    Value,
    View,
    elements,
    equal_directly,
    is_list,
    is_map,
    no_overload,
)


def view(raw: Any, declared: Declared) -> Value:
    """Return decoded JSON as a value of its declared type.

    Return a fault if the JSON does not have this type.
    """
    if raw is None:
        return None if declared.nullable else Fault("invalid data, got null for schema with nullable=false")
    read = _READ.get(declared.kind)
    return Preserved(raw) if read is None else read(raw, declared)


def _int_or_string(raw: Any, declared: Declared) -> Value:
    if type(raw) in (str, int):
        return raw
    return Fault("invalid data, expected XIntOrString value to be either a string or integer")


def _object(raw: Any, declared: Declared) -> Value:
    if type(raw) is not dict:
        return Fault("invalid data, expected a map for the provided schema with type=object")
    return ObjectView(raw, declared)


def _map(raw: Any, declared: Declared) -> Value:
    if type(raw) is not dict:
        return Fault("invalid data, expected a map for the provided schema with type=object")
    return MapView(raw, declared)


def _list(raw: Any, declared: Declared) -> Value:
    if type(raw) is not list:
        return Fault("invalid data, expected an array for the provided schema with type=array")
    return _LISTS.get(declared.list_type, ListView)(raw, declared)


def _string(raw: Any, declared: Declared) -> Value:
    return raw if type(raw) is str else Fault(f"invalid data, expected string, got {go_name(raw)}")


def _bytes(raw: Any, declared: Declared) -> Value:
    if type(raw) is not str:
        return Fault(f"invalid data, expected string, got {go_name(raw)}")
    read = read_base64(raw)
    if isinstance(read, int):
        return Fault(f"Invalid byte formatted string {raw}: illegal base64 data at input byte {read}")
    return read


def _timestamp(raw: Any, declared: Declared) -> Value:
    if type(raw) is not str:
        return Fault(f"invalid data, expected string, got {go_name(raw)}")
    if not declared.format:
        return raw
    read = parse_date(raw) if declared.format == "date" else parse_date_time(raw)
    if read is None:
        why = refusal_of_date(raw) if declared.format == "date" else refusal_of_date_time(raw)
        return Fault(f"Invalid {declared.format} formatted string {raw}: {why}")
    return Timestamp(*read)


def _duration(raw: Any, declared: Declared) -> Value:
    if type(raw) is not str:
        return Fault(f"invalid data, expected string, got {go_name(raw)}")
    ns = parse_go_or_word_duration(raw)
    return Fault(f"Invalid duration {raw}: unable to parse {raw} as duration") if ns is None else Duration(ns)


def _double(raw: Any, declared: Declared) -> Value:
    return float(raw) if type(raw) in (float, int) else Fault(f"invalid data, expected float, got {go_name(raw)}")


def _int(raw: Any, declared: Declared) -> Value:
    return raw if type(raw) is int else Fault(f"invalid data, expected int, got {go_name(raw)}")


def _bool(raw: Any, declared: Declared) -> Value:
    return raw if type(raw) is bool else Fault(f"invalid data, expected bool, got {go_name(raw)}")


def _dyn(raw: Any, declared: Declared) -> Value:
    return dynamic(raw)


_READ = {
    "int_or_string": _int_or_string, "object": _object, "map": _map, "list": _list, "string": _string, "bytes": _bytes,
    "timestamp": _timestamp, "duration": _duration, "double": _double, "int": _int, "bool": _bool,
    "dyn": _dyn,
}  # fmt: skip


class Preserved(View):
    """Data without a declared type.

    Expressions can only compare it, or match it with a constant pattern.
    """

    __slots__ = ("raw",)
    is_map = False
    type_name = "unknown"
    go_type = "*common.unknownPreserved"

    def __init__(self, raw: Any) -> None:
        self.raw = raw

    def same(self, other: Value) -> bool | Fault:
        """Return whether the decoded data are equal; numbers of different types differ."""
        return alike_raw(self.raw, raw_of(other))


class DeclaredView(View):
    """A list, map or object of a declared type."""

    __slots__ = ("declared", "raw")

    def __init__(self, raw: Any, declared: Declared) -> None:
        self.raw = raw
        self.declared = declared

    def __len__(self) -> int:
        return len(self.raw)


class ListView(DeclaredView):
    """A list whose elements have a declared type; their order matters."""

    __slots__ = ()
    is_list, is_map = True, False
    go_type = "*common.unstructuredList"

    def items(self) -> Iterator[Value]:
        """Yield the elements."""
        element = self.declared.element
        assert element is not None
        return (view(raw, element) for raw in self.raw)

    def get(self, index: int) -> Value:
        """Return an element; the index is in range."""
        assert self.declared.element is not None
        return view(self.raw[index], self.declared.element)

    def same(self, other: Value) -> bool | Fault:
        """Compare element by element."""
        if not is_list(other):
            return no_overload()
        if len(self.raw) != len(other):
            return False
        spend_equality(len(other))
        for one, two in zip(self.items(), elements(other), strict=True):
            found = equal_directly(one, two)
            if found is not True:
                return found
        return True

    def add(self, other: Value) -> Value:
        """Return a plain list with the elements of both lists."""
        spend(len(self) + len(other))
        return [*self.items(), *elements(other)]


_NO_SCALARS = "listSet operations are only supported on lists of scalar values"


def _key_of_element(value: Value) -> object:
    """Return the key of an element of a set, or the fault of an element that is a list or a map.

    Two elements are equal if their keys are equal. A new ``object()`` stands for an element that equals no other.
    """
    kind = type(value)
    if kind is str or kind is int:
        return value
    # Go also compares zones by identity, and creates a new zone for each time whose offset is not whole hours
    if kind is Timestamp:
        return object() if value.offset % 3600 else (kind, value.ns, value.offset)
    if kind is float:
        return object() if isnan(value) else (kind, value)
    if kind in (bool, bytes, Duration, Uint) or value is None:
        return kind, value
    return Fault(_NO_SCALARS) if is_list(value) or is_map(value) else object()


def _same_sets(mine: Iterator[Value], other: Value) -> bool | Fault:
    known, seen = set(), set()
    for value in mine:
        key = _key_of_element(value)
        if type(key) is Fault:
            return key
        known.add(key)
    for value in elements(other):
        key = _key_of_element(value)
        if type(key) is Fault:
            return key
        if key not in known:
            return False
        seen.add(key)
    return len(seen) == len(known)


def _union(mine: Iterator[Value], other: Value) -> "SetValues | Fault":
    made, seen = list(mine), set()
    for value in made:
        key = _key_of_element(value)
        if type(key) is Fault:
            return key
        seen.add(key)
    for value in elements(other):
        key = _key_of_element(value)
        if type(key) is Fault:
            return key
        if key not in seen:
            seen.add(key)
            made.append(value)
    return SetValues(made)


class _Set(View):
    """Equality and sum of lists of type set."""

    __slots__ = ()

    def same(self, other: Value) -> bool | Fault:
        """Return whether both lists have the same size and, as sets, the same elements."""
        if not is_list(other):
            return no_overload()
        if len(self) != len(other):
            return False
        spend_equality(len(other))
        return _same_sets(self.items(), other)

    def add(self, other: Value) -> Value:
        """Return the elements of this list, followed by the elements that only the other list has."""
        spend(len(self) + len(other))
        return _union(self.items(), other)


class SetView(_Set, ListView):
    """A list of type set, whose elements have a declared type."""

    __slots__ = ()
    go_type = "*common.unstructuredSetList"


class KeyedView(ListView):
    """A list of type map; as in upstream, key fields are looked up by their escaped names."""

    __slots__ = ()
    go_type = "*common.unstructuredMapList"

    @property
    def _names(self) -> tuple[str, ...]:
        return tuple(escape(name) or name for name in self.declared.list_keys)

    def same(self, other: Value) -> bool | Fault:
        """Compare the objects with equal keys, in any order.

        Raise values.Broken for an unhashable key.
        """
        if not is_list(other):
            return no_overload()
        if len(self.raw) != len(other):
            return False
        spend_equality(len(other))
        assert self.declared.element is not None
        names, seen = self._names, set()
        mine = {key_of_object(raw, names): raw for raw in self.raw}
        for value in elements(other):
            key = key_of_object(raw_of(value), names)
            if key not in mine:
                return False
            one = view(mine[key], self.declared.element)
            found = equal_directly(one, value)
            if found is not True:
                return found
            seen.add(key)
        return len(seen) == len(mine)

    def add(self, other: Value) -> Value:
        """Return this list merged with another: replace objects with equal keys, append the rest."""
        spend(len(self) + len(other))
        return _merged(self.items(), other, self._names)


def _merged(mine: Iterator[Value], other: Value, names: tuple[str, ...]) -> "KeyedValues":
    made = list(mine)
    places = {_key_of_fields(value, names): at for at, value in enumerate(made)}
    for value in elements(other):
        at = places.get(_key_of_fields(value, names))  # as in upstream, an appended object is never replaced
        if at is None:
            made.append(value)
        else:
            made[at] = value
    return KeyedValues(made, names)


def _key_of_fields(value: Value, names: tuple[str, ...]) -> object:
    """Return the values of the key fields of an item of a list of type map.

    A missing field has the value None.
    """
    found = [value.find(name) if is_map(value) else None for name in names]
    keys = [_key_of_element(entry[1]) if type(entry) is tuple else None for entry in found]
    return tuple(object() if type(key) is Fault else key for key in keys)


class ValueList(View):
    """The sum of two lists; it keeps the list type (set or map) of the first list."""

    __slots__ = ("values",)
    is_list, is_map = True, False

    def __init__(self, values: list[Value]) -> None:
        self.values = values

    def __len__(self) -> int:
        return len(self.values)

    def items(self) -> Iterator[Value]:
        """Yield the elements."""
        return iter(self.values)

    def get(self, index: int) -> Value:
        """Return an element; the index is in range."""
        return self.values[index]


class SetValues(_Set, ValueList):
    """The sum of two sets."""

    __slots__ = ()
    go_type = "*common.refValSetList"


class KeyedValues(ValueList):
    """The sum of two lists of type map; ``names`` are the escaped names of the key fields."""

    __slots__ = ("names",)
    go_type = "*common.refValMapList"

    def __init__(self, values: list[Value], names: tuple[str, ...]) -> None:
        super().__init__(values)
        self.names = names

    def same(self, other: Value) -> bool | Fault:
        """Compare the objects with equal keys, in any order."""
        if not is_list(other):
            return no_overload()
        if len(self) != len(other):
            return False
        spend_equality(len(other))
        seen = set()
        mine = {_key_of_fields(value, self.names): value for value in self.values}
        for value in elements(other):
            key = _key_of_fields(value, self.names)
            if key not in mine:
                return False
            found = equal_directly(mine[key], value)
            if found is not True:
                return found
            seen.add(key)
        return len(seen) == len(mine)

    def add(self, other: Value) -> Value:
        """Return this list merged with another: replace objects with equal keys, append the rest."""
        spend(len(self) + len(other))
        return _merged(self.items(), other, self.names)


_LISTS: dict[str, type[ListView]] = {"set": SetView, "map": KeyedView}


_PLAIN = {"string": str, "int": int, "bool": bool}  # kinds whose decoded data are the CEL values


def _kind_of_values(value: Value) -> str:
    """Return the kind of a declared map's values, or "" for other values."""
    element = value.declared.element if type(value) is MapView else None
    return element.kind if element is not None else ""


class MapView(DeclaredView):
    """A map whose values have a declared type."""

    __slots__ = ()
    go_type = "*common.unstructuredMap"

    def items(self) -> Iterator[Value]:
        """Yield the keys."""
        return iter(self.raw)

    def find(self, key: Value) -> tuple[Value, Value] | Fault | None:
        """Return (key, value) of an entry.

        Return None if the map lacks the key, or a fault if the key is not a string.
        """
        if type(key) is not str:
            return no_overload()
        if key not in self.raw:
            return None
        assert self.declared.element is not None
        return key, view(self.raw[key], self.declared.element)

    def same(self, other: Value) -> bool | Fault:
        """Compare entry by entry."""
        if not is_map(other):
            return no_overload()
        if len(self) != len(other):
            return False
        spend_equality(len(other))
        plain = _PLAIN.get(_kind_of_values(self)) if _kind_of_values(self) == _kind_of_values(other) else None
        for key, raw in self.raw.items():
            if plain is not None and type(raw) is plain and type(other.raw.get(key)) is plain:
                if raw != other.raw[key]:
                    return False
                continue
            mine, theirs = self.find(key), other.find(key)
            if type(theirs) is Fault or theirs is None:
                return False
            assert type(mine) is tuple
            found = equal_directly(mine[1], theirs[1])
            if found is not True:
                return found
        return True


class ObjectView(DeclaredView):
    """An object with declared fields."""

    __slots__ = ()
    go_type = "*common.unstructuredMap"

    def items(self) -> Iterator[Value]:
        """Return the escaped names of the present declared fields, then a null for each other field.

        Upstream does the same.
        """
        known = self.declared.properties
        names: list[Value] = [escape(name) or name for name in self.raw if name in known]
        return iter(names + [None] * (len(self.raw) - len(names)))

    def traversal(self, cost: Callable[[Value], int]) -> int:
        """Return the cost of reading all fields.

        An undeclared field costs 2. The cost of a declared field is that of its name plus that of its value, which is 1
        for null.
        """
        total = 0
        for name, raw in self.raw.items():
            declared = self.declared.properties.get(name)
            if declared is None:
                total += 2
            else:
                total += cost(escape(name) or name) + (1 if raw is None else cost(view(raw, declared)))
        return total

    def find(self, key: Value) -> tuple[Value, Value] | Fault | None:
        """Return (key, value) of a field, or None if it is missing, null or undeclared.

        ``key`` is an escaped name. Return a fault if the key is not a string.
        """
        if type(key) is not str:
            return no_overload()
        name = unescape(key)
        raw = self.raw.get(name) if name is not None else None
        if raw is None or name is None:
            return None
        declared = self.declared.properties.get(name)
        return None if declared is None else (key, view(raw, declared))

    def same(self, other: Value) -> bool | Fault:
        """Compare declared fields by their types, and all other fields as decoded JSON.

        An undeclared field that only this object has does not count.
        """
        if not is_map(other):
            return no_overload()
        if len(self) != len(other):
            return False
        spend_equality(len(other))
        known = self.declared.properties
        for name, raw in self.raw.items():
            if name not in known:
                if not isinstance(other, ObjectView):
                    return no_overload()
                if name in other.raw and not alike_raw(raw, other.raw[name]):
                    return False
                continue
            # as upstream, look up the name of the JSON, although ``find`` expects an escaped name
            mine, theirs = self.find(name), other.find(name)
            if (mine is None) != (theirs is None):
                return False
            if mine is None:
                continue
            assert type(mine) is tuple
            assert type(theirs) is tuple
            found = equal_directly(mine[1], theirs[1])
            if found is not True:
                return found
        return True
