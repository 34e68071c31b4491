"""Decoded JSON of the caller seen as values of declared types, converted when it is read."""

from collections.abc import Iterable, Iterator
from typing import Any

from apiext.cel.declared import Declared
from apiext.cel.dynamic import dynamic
from apiext.cel.effort import spend
from apiext.cel.escaping import escape, unescape
from apiext.cel.times import parse_date, parse_date_time, parse_go_or_word_duration
from apiext.cel.values import Duration, Fault, Timestamp, Value, View, elements, equal, is_list, is_map

_GO_NAMES: dict[type, str] = {
    bool: "bool", int: "int64", float: "float64", str: "string", list: "[]interface {}", dict: "map[string]interface {}"
}  # fmt: skip


def _go(raw: Any) -> str:
    return _GO_NAMES.get(type(raw), "<nil>")


def view(raw: Any, declared: Declared) -> Value:
    """Return decoded JSON as a value of its declared type, or the fault of data that does not fit."""
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
    return raw if type(raw) is str else Fault(f"invalid data, expected string, got {_go(raw)}")


def _bytes(raw: Any, declared: Declared) -> Value:
    if type(raw) is not str:
        return Fault(f"invalid data, expected string, got {_go(raw)}")
    import base64  # only data of this format needs it
    import binascii

    try:
        return base64.b64decode(raw, validate=True)
    except (binascii.Error, ValueError):
        return Fault(f"Invalid byte formatted string {raw}: illegal base64 data at input byte 0")


def _timestamp(raw: Any, declared: Declared) -> Value:
    if type(raw) is not str:
        return Fault(f"invalid data, expected string, got {_go(raw)}")
    read = parse_date(raw) if declared.format == "date" else parse_date_time(raw)
    if read is None:
        return Fault(f"Invalid {declared.format} formatted string {raw}: parsing failed")
    return Timestamp(*read)


def _duration(raw: Any, declared: Declared) -> Value:
    if type(raw) is not str:
        return Fault(f"invalid data, expected string, got {_go(raw)}")
    ns = parse_go_or_word_duration(raw)
    return Fault(f'Invalid duration {raw}: unable to parse "{raw}" as duration') if ns is None else Duration(ns)


def _double(raw: Any, declared: Declared) -> Value:
    return float(raw) if type(raw) in (float, int) else Fault(f"invalid data, expected float, got {_go(raw)}")


def _int(raw: Any, declared: Declared) -> Value:
    return raw if type(raw) is int else Fault(f"invalid data, expected int, got {_go(raw)}")


def _bool(raw: Any, declared: Declared) -> Value:
    return raw if type(raw) is bool else Fault(f"invalid data, expected bool, got {_go(raw)}")


def _dyn(raw: Any, declared: Declared) -> Value:
    return dynamic(raw)


_READ = {
    "int_or_string": _int_or_string, "object": _object, "map": _map, "list": _list, "string": _string, "bytes": _bytes,
    "timestamp": _timestamp, "duration": _duration, "double": _double, "int": _int, "bool": _bool,
    "dyn": _dyn,
}  # fmt: skip


class Preserved(View):
    """Data that no type describes; it can only be compared."""

    __slots__ = ("raw",)
    type_name = "unknown"

    def __init__(self, raw: Any) -> None:
        self.raw = raw

    def same(self, other: Value) -> bool | Fault:
        """Compare the data as decoded."""
        return isinstance(other, Preserved) and bool(self.raw == other.raw)


class ListView(View):
    """A list of declared elements; the order counts."""

    __slots__ = ("declared", "raw")
    is_list = True

    def __init__(self, raw: list[Any], declared: Declared) -> None:
        self.raw = raw
        self.declared = declared

    def __len__(self) -> int:
        return len(self.raw)

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
            return Fault("no such overload")
        if len(self.raw) != len(other):
            return False
        spend(len(other) + 1)
        for one, two in zip(self.items(), elements(other), strict=True):
            found = one if type(one) is Fault else equal(one, two)
            if found is not True:
                return found
        return True

    def add(self, other: Value) -> Value:
        """Return both lists as one."""
        spend(len(self) + len(other))
        return [*self.items(), *elements(other)]


class _SetLike(View):
    """A list in which the order does not count; its elements are scalars."""

    __slots__ = ()
    is_list = True

    def same(self, other: Value) -> bool | Fault:
        """Compare as sets of the same size."""
        if not is_list(other):
            return Fault("no such overload")
        if len(self) != len(other):
            return False
        spend(len(other) + 1)
        mine = _set_keys(self.items())
        if type(mine) is Fault:
            return mine
        theirs = _set_keys(elements(other))
        return theirs if type(theirs) is Fault else mine == theirs

    def add(self, other: Value) -> Value:
        """Return this list and what the other has more."""
        spend(len(self) + len(other))
        made = list(self.items())
        seen = _set_keys(made)
        if type(seen) is Fault:
            return seen
        assert isinstance(seen, set)
        for value in elements(other):
            key = _set_key(value)
            if type(key) is Fault:
                return key
            if key not in seen:
                seen.add(key)
                made.append(value)
        return MadeSet(made)


def _set_key(value: Value) -> object:
    if type(value) is Fault:
        return value
    if is_list(value) or is_map(value):
        return Fault("listSet operations are only supported on lists of scalar values")
    return (type(value), value)


def _set_keys(values: Iterable[Value]) -> "set[object] | Fault":
    found: set[object] = set()
    for value in values:
        key = _set_key(value)
        if type(key) is Fault:
            return key
        found.add(key)
    return found


class SetView(_SetLike, ListView):
    """A list of declared elements in which the order does not count."""

    __slots__ = ()


class _Made(View):
    """A list that an expression made of declared ones."""

    __slots__ = ("values",)
    is_list = True

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


class MadeSet(_SetLike, _Made):
    """The union of lists in which the order does not count."""

    __slots__ = ()


class _Keyed(View):
    """A list of objects known by some of their fields."""

    __slots__ = ()
    is_list = True

    def keys(self) -> tuple[str, ...]:
        """Return the names of the fields that objects are known by."""
        raise NotImplementedError

    def same(self, other: Value) -> bool | Fault:
        """Compare objects of the same keys, in any order."""
        if not is_list(other):
            return Fault("no such overload")
        if len(self) != len(other):
            return False
        spend(len(other) + 1)
        names = self.keys()
        mine = {_object_key(value, names): value for value in self.items()}
        seen = set()
        for value in elements(other):
            key = _object_key(value, names)
            if key not in mine:
                return False
            found = mine[key] if type(mine[key]) is Fault else equal(mine[key], value)
            if found is not True:
                return found
            seen.add(key)
        return len(seen) == len(mine)

    def add(self, other: Value) -> Value:
        """Return this list with the other's objects in place of those of the same keys, the rest behind."""
        spend(len(self) + len(other))
        made = list(self.items())
        names = self.keys()
        places = {_object_key(value, names): at for at, value in enumerate(made)}
        for value in elements(other):
            key = _object_key(value, names)
            if key in places:
                made[places[key]] = value
            else:
                places[key] = len(made)
                made.append(value)
        return MadeKeyed(made, names)


def _object_key(value: Value, names: tuple[str, ...]) -> object:
    """Return what an object is known by: the values of its key fields, None for those that are missing."""
    if not is_map(value):
        return ("other", id(value))
    found = []
    for name in names:
        entry = value.find(name)
        inner = entry[1] if type(entry) is tuple else None
        found.append((type(inner), inner if not isinstance(inner, View) else id(inner)))
    return tuple(found)


class KeyedView(_Keyed, ListView):
    """A list of declared objects known by some of their fields."""

    __slots__ = ()

    def keys(self) -> tuple[str, ...]:
        """Return the names of the fields that objects are known by."""
        return tuple(escape(name) or name for name in self.declared.list_keys)


class MadeKeyed(_Keyed, _Made):
    """What two lists of keyed objects make together."""

    __slots__ = ("names",)

    def __init__(self, values: list[Value], names: tuple[str, ...]) -> None:
        super().__init__(values)
        self.names = names

    def keys(self) -> tuple[str, ...]:
        """Return the names of the fields that objects are known by."""
        return self.names


_LISTS = {"set": SetView, "map": KeyedView}


class MapView(View):
    """A map of declared values."""

    __slots__ = ("declared", "raw")

    def __init__(self, raw: dict[str, Any], declared: Declared) -> None:
        self.raw = raw
        self.declared = declared

    def __len__(self) -> int:
        return len(self.raw)

    def items(self) -> Iterator[Value]:
        """Yield the keys."""
        return iter(self.raw)

    def find(self, key: Value) -> tuple[Value, Value] | Fault | None:
        """Return the entry of a key."""
        if type(key) is not str:
            return Fault("no such overload")
        if key not in self.raw:
            return None
        assert self.declared.element is not None
        return key, view(self.raw[key], self.declared.element)

    def same(self, other: Value) -> bool | Fault:
        """Compare entry by entry."""
        if not is_map(other):
            return Fault("no such overload")
        if len(self) != len(other):
            return False
        spend(len(other) + 1)
        for key in self.raw:
            mine, theirs = self.find(key), other.find(key)
            if type(theirs) is Fault or theirs is None:
                return False
            assert type(mine) is tuple
            found = mine[1] if type(mine[1]) is Fault else equal(mine[1], theirs[1])
            if found is not True:
                return found
        return True


class ObjectView(View):
    """An object of declared fields."""

    __slots__ = ("declared", "raw")

    def __init__(self, raw: dict[str, Any], declared: Declared) -> None:
        self.raw = raw
        self.declared = declared

    def __len__(self) -> int:
        return len(self.raw)

    def items(self) -> Iterator[Value]:
        """Yield the names of fields that are declared and there."""
        known = self.declared.properties
        return iter([escape(name) or name for name, raw in self.raw.items() if raw is not None and name in known])

    def find(self, key: Value) -> tuple[Value, Value] | Fault | None:
        """Return the field of a name; one that is null counts as missing."""
        if type(key) is not str:
            return Fault("no such overload")
        name = unescape(key)
        raw = self.raw.get(name) if name is not None else None
        if raw is None or name is None:
            return None
        declared = self.declared.properties.get(name)
        return None if declared is None else (key, view(raw, declared))

    def same(self, other: Value) -> bool | Fault:
        """Compare declared fields by their types, others as decoded."""
        if not is_map(other):
            return Fault("no such overload")
        if len(self) != len(other):
            return False
        spend(len(other) + 1)
        known = self.declared.properties
        for name, raw in self.raw.items():
            if name not in known:
                if not isinstance(other, ObjectView):
                    return Fault("no such overload")
                if name in other.raw and raw != other.raw[name]:
                    return False
                continue
            # upstream looks fields up by their bare names here
            mine, theirs = self.find(name), other.find(name)
            if (mine is None) != (theirs is None):
                return False
            if mine is None:
                continue
            assert type(mine) is tuple
            assert type(theirs) is tuple
            found = mine[1] if type(mine[1]) is Fault else equal(mine[1], theirs[1])
            if found is not True:
                return found
        return True
