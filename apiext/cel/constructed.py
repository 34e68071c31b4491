"""Objects that expressions construct as ``Type{field: value}``.

They are open objects and JSON patches. Upstream (pkg/cel/mutation) converts an open object to Go values (Go data, see
``natural``) at each access to a field, and converts the field back to a CEL value. So the value of a field can change
its type: for example, the field ``f`` of ``Object{f: int}`` is the string "int". Upstream compares open objects as Go
compares data (``alike``). So two objects with equal lists can be unequal.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from msgspec import Struct

from apiext.cel import types
from apiext.cel.arithmetic import add
from apiext.cel.conversions import shortest
from apiext.cel.dynamic import dynamic
from apiext.cel.effort import spend
from apiext.cel.go_values import go_type, show
from apiext.cel.quotes import go_quote
from apiext.cel.raw import Native, go_name
from apiext.cel.types import Type
from apiext.cel.values import (
    Fault,
    Map,
    Optional,
    Special,
    Timestamp,
    Uint,
    Value,
    View,
    elements,
    equal,
    equal_directly,
    is_list,
)

# Go data of an empty list that an expression constructs: in upstream, a nil slice. Callers recognise it with ``is``.
NO_SLICE: list[Any] = []
# Type of a field whose name JSONPatch does not define. The type check reports no undefined field, but accepts only
# values of type dyn for the field.
UNNAMED = types.make("unspecified", "")
_TEXTS = ("from", "op", "path")


class Constructed(Special):
    """A constructed object.

    ``type_name`` is the name of its type in the expression. ``fields`` maps the names of fields to values, without
    optional fields that are not set. A patch always has op, path and from ("" if not set), and value only if it is set.
    """

    __slots__ = ("fields", "type_name")
    tells_type = False

    def __init__(self, type_name: str, fields: dict[str, Value]) -> None:
        self.type_name = type_name
        self.fields = fields


class Open(Constructed):
    """An open object: it may have any fields."""

    __slots__ = ()
    go_type = "*dynamic.ObjectVal"

    def __str__(self) -> str:
        fields = " ".join(f"{name}:{show(self.fields[name])}" for name in sorted(self.fields))
        return f"&{{{self.type_name} map[{fields}]}}"  # upstream prints a memory address in place of the type's name

    def same(self, other: Value) -> bool | Fault:
        """Compare type and fields as Go compares data."""
        return type(other) is Open and alike(self, other)


class Patch(Constructed):
    """One operation of a JSON patch."""

    __slots__ = ()
    go_type = "*mutation.JSONPatchVal"

    def __str__(self) -> str:
        value = show(self.fields["value"]) if "value" in self.fields else "<nil>"
        return f"&{{{self.fields['op']} {self.fields['from']} {self.fields['path']} {value}}}"

    def same(self, other: Value) -> bool | Fault:
        """Compare field by field."""
        if type(other) is not Patch or any(self.fields[name] != other.fields[name] for name in _TEXTS):
            return False
        if "value" not in self.fields or "value" not in other.fields:
            return ("value" in self.fields) == ("value" in other.fields)
        return equal_directly(self.fields["value"], other.fields["value"])

    def find(self, key: Value) -> Value:
        """Return a field by its name; ``value`` is null if it is not set."""
        if type(key) is str and key in _PATCH_FIELDS:
            return self.fields.get(key)
        return Fault(f"unsupported indexer: {_as_text(key)}")

    def has(self, key: Value) -> bool | Fault:
        """Return whether a field is set; an empty op, path or from counts as not set."""
        if type(key) is str and key in _PATCH_FIELDS:
            return key in self.fields if key == "value" else bool(self.fields[key])
        return Fault(f"unsupported field: {_as_text(key)}")


class Joined(View):
    """The concatenation of two lists, in environments for expressions that construct objects.

    As in upstream, ``alike`` and the operator ``in`` use the two lists one by one.
    """

    __slots__ = ("one", "other", "values")
    is_list, is_map = True, False
    go_type = "*types.concatList"

    def __init__(self, one: Value, other: Value, values: list[Value]) -> None:
        self.one = one
        self.other = other
        self.values = values

    def __len__(self) -> int:
        return len(self.values)

    def items(self) -> Iterator[Value]:
        """Yield the elements."""
        return iter(self.values)

    def get(self, index: int) -> Value:
        """Return an element; the index is in range."""
        return self.values[index]

    def same(self, other: Value) -> bool | Fault:
        """Compare element by element."""
        return equal(self.values, other)

    def add(self, other: Value) -> Value:
        """Return the concatenation of both lists."""
        spend(len(self.values) + len(other))
        return [*self.values, *elements(other)]

    def __str__(self) -> str:
        return show(self.values)


def join(one: Value, other: Value) -> Value:
    """Return the sum of two values, or a Joined of two lists that are not empty."""
    if not is_list(one) or not is_list(other):
        return add(one, other)
    if not len(one) or not len(other):
        return one if len(one) else other
    made = add(one, other)
    return made if type(made) is Fault else Joined(one, other, list(elements(made)))


# Types

Make: TypeAlias = Callable[[str, dict[str, Value]], Value]  # (name of a type, fields) → an object or a Fault


class Shape(Struct, frozen=True):
    """A type of objects that expressions construct.

    ``fields`` are the types of its fields, or None if it may have any fields. If ``closed`` is true, any other field is
    an error of the type check; else it has the type UNNAMED.
    """

    make: Make
    fields: Mapping[str, Type] | None = None
    closed: bool = False

    def field(self, name: str) -> Type:
        """Return the type of a field."""
        return types.DYN if self.fields is None else self.fields.get(name, UNNAMED)


Resolve: TypeAlias = Callable[[str], Shape | None]  # name of a type → its shape, or None for an unknown type


def _patch(type_name: str, fields: dict[str, Value]) -> Value:
    made: dict[str, Value] = dict.fromkeys(_TEXTS, "")
    for name in sorted(fields):
        if name == "value":
            made[name] = fields[name]
            continue
        if name not in _TEXTS:
            return Fault(f"unexpected JSONPatchType field: {name}")
        raw = natural(fields[name])
        if type(raw) is not str:
            return Fault(f"unexpected type {name_of(raw)} for JSONPatchType '{name}' field")
        made[name] = raw
    return Patch(type_name, made)


_PATCH_FIELDS: Mapping[str, Type] = {**dict.fromkeys(_TEXTS, types.STRING), "value": types.DYN}
OPEN = Shape(Open)
PATCH = Shape(_patch, _PATCH_FIELDS)


def unknown(type_name: str, fields: dict[str, Value]) -> Fault:
    """Return the fault of an object whose type is declared but cannot be constructed."""
    return Fault(f"unknown type '{type_name}'")


# Fields of open objects

_FOREIGN = {
    "cel.IP": "netip.Addr", "cel.CIDR": "netip.Prefix", "cel.URL": "*url.URL", "cel.Semver": "semver.Version",
    "cel.Quantity": "*resource.Quantity", "*cel.Quantity": "*resource.Quantity",
}  # fmt: skip


class Foreign(Native):
    """Go data of a type that exists only in upstream.

    ``value`` is the CEL value that an expression reads.
    """

    __slots__ = ("name",)

    def __init__(self, name: str, value: Value) -> None:
        super().__init__(value)
        self.name = name

    @property
    def go_name(self) -> str:
        """Return the name of the Go type."""
        return self.name


def field(value: Value, name: str) -> tuple[Value] | Fault | None:
    """Return a tuple with a field of an open object, None if it is absent, or upstream's fault."""
    raw = natural(value)
    if type(raw) is not dict:
        return Fault(f'cannot get field "{name}"')
    return (dynamic(raw[name]),) if name in raw else None


def natural(value: Value) -> Any:
    """Return the Go data of a value (upstream: Value()).

    Go data is decoded JSON, or a Native (a wrapper of the value) if JSON has no equivalent. A list or map that an
    expression has made becomes a Native whose elements stay CEL values; only a Joined becomes a list of Go data.
    ``natural_fields`` also converts the elements of the lists and maps that are fields of an open object.
    """
    kind = type(value)
    if kind in (str, int, bool, float):
        return value
    if isinstance(value, Type):
        return value.name
    if kind is Optional:
        return natural(value.value) if value.present else None
    if kind is Joined:
        return [natural(inner) for inner in value.values]
    if isinstance(value, View):
        return getattr(value, "raw", None)
    if kind is Open:
        try:
            return natural_fields(value)
        except ValueError as wrong:
            return Foreign("*types.Err", Fault(str(wrong)))
    if type(value) is Patch:
        return Foreign(value.go_type, value)
    native = _FOREIGN.get(value.go_type) if isinstance(value, Special) else None
    if native is None:
        return Foreign(go_type(value), value) if isinstance(value, Special) else Native(value)
    return Foreign(native, Fault(f"unsupported conversion to ref.Val: ({native}){value}"))


def name_of(raw: Any) -> str:
    """Return the name of the Go type of Go data."""
    return raw.go_name if isinstance(raw, Native) else go_name(raw)


def natural_fields(value: Constructed) -> dict[str, Any]:
    """Return the Go data of an open object.

    Raise ValueError with upstream's text if a map has a key that is not a string.
    """
    spend(len(value.fields) + 1)
    made: dict[str, Any] = {}
    for name in sorted(value.fields):
        inner = value.fields[name]
        if type(inner) is list:
            spend(len(inner))
            made[name] = [natural(element) for element in inner] or NO_SLICE
        elif type(inner) is Map:
            made[name] = _natural_map(name, inner)
        else:
            made[name] = natural(inner)
    return made


def _natural_map(name: str, entries: Map) -> dict[str, Any]:
    spend(len(entries))
    made = {}
    for key, value in entries.entries.values():
        text = natural(key)
        if type(text) is not str:
            shown = f"map key {_quoted(key)} is of type {go_type(key)}, not string"
            raise ValueError(f"fail to convert field {go_quote(name)}: {shown}")
        made[text] = natural(value)
    return made


def _quoted(key: Value) -> str:
    """Return a map's key as Go's %q prints it."""
    if type(key) not in (int, Uint):
        return f"%!q({go_type(key)}={show(key)})"
    if not 0 <= key <= 0x10FFFF or 0xD800 <= key <= 0xDFFF:
        return "'\ufffd'"
    char = chr(key)
    if char in "'\"":
        return "'\\''" if char == "'" else "'\"'"
    return f"'{go_quote(char)[1:-1]}'"


def _as_text(key: Value) -> str:
    """Return an index as Go's %s prints it."""
    if type(key) is str:
        return key
    return f"%!s({go_type(key)}={shortest(key) if type(key) is float else show(key)})"


# Equality of Go data


def alike(one: Value, other: Value) -> bool:
    """Return whether two values are equal by Go's reflect.DeepEqual.

    Numbers of different types differ. Lists differ unless they are the same object: upstream's lists contain functions,
    which DeepEqual never regards as equal. For a Joined, this applies to each of its two lists.
    """
    if type(one) is not type(other):
        return isinstance(one, View) and isinstance(other, View) and _alike_views(one, other)
    if isinstance(one, Constructed):
        return one is other or (one.type_name == other.type_name and _alike_fields(one.fields, other.fields))
    if type(one) is Map:
        return one is other or _alike_entries(one, other)
    if type(one) is Joined:
        return one is other or (alike(one.one, other.one) and alike(one.other, other.other))
    if isinstance(one, View):
        return _alike_views(one, other)
    if type(one) is list:
        return one is other
    if type(one) is Optional:
        return one.present is other.present and (not one.present or alike(one.value, other.value))
    if type(one) is Timestamp:
        return bool(one.ns == other.ns and one.offset == other.offset)
    if isinstance(one, Special):
        slots: tuple[str, ...] = type(one).__slots__
        return one is other or all(getattr(one, slot) == getattr(other, slot) for slot in slots)
    return bool(one == other)


def _alike_fields(one: dict[str, Value], other: dict[str, Value]) -> bool:
    spend(len(one) + 1)
    return one.keys() == other.keys() and all(alike(value, other[name]) for name, value in one.items())


def _alike_entries(one: Map, other: Map) -> bool:
    spend(len(one) + 1)
    if one.entries.keys() != other.entries.keys():
        return False
    theirs = other.entries
    return all(
        type(key) is type(theirs[place][0]) and alike(value, theirs[place][1])
        for place, (key, value) in one.entries.items()
    )


def _alike_views(one: View, other: View) -> bool:
    if one.is_list or other.is_list:
        return one is other
    return alike_raw(getattr(one, "raw", None), getattr(other, "raw", None))


def alike_raw(one: Any, other: Any) -> bool:
    """Return whether two decoded documents are equal, including the types of all numbers."""
    if type(one) is not type(other):
        return False
    if type(one) is dict:
        spend(len(one) + 1)
        return one.keys() == other.keys() and all(alike_raw(value, other[name]) for name, value in one.items())
    if type(one) is list:
        spend(len(one) + 1)
        return len(one) == len(other) and all(map(alike_raw, one, other))
    if isinstance(one, Native):
        return alike(one.value, other.value)
    return bool(one == other)
