"""Decode JSON as Go's decoder fills structs, and return it as Go prints them.

- The decoder drops an unknown field, and records its path.
- A value of a wrong type does not end the decoding. As in Go, only the first such error is reported
  (``json: cannot unmarshal …``).
- A type with its own decoder (Go's UnmarshalJSON) ends the decoding at its first error.
"""

import base64
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

import msgspec

from apiext.cel.base64_url import read_base64
from apiext.documents.document import Document
from apiext.documents.encoding import Nulled, json_kind
from apiext.documents.errors import DecodeError
from apiext.documents.floats import json_float
from apiext.documents.paths import Key, Path, written
from apiext.go_types import limits
from apiext.meta import time

_EXACT = 2**53  # up to here, a float64 represents all integers exactly
# from the standard base64 alphabet to the URL alphabet, whose own characters become invalid
_TO_URL = str.maketrans("+/-_", "-_!!")
ABSENT: Any = object()
"""The result of a decoder for a value that it ignores."""


class Unknown(str):
    """The path of an unknown field.

    ``restored`` is the path that Go prints if it decodes an unstructured object instead of JSON; this path has no map
    keys.
    """

    __slots__ = ("restored",)
    restored: str

    @classmethod
    def at(cls, path: Path) -> "Unknown":
        """Return the Unknown for a path."""
        found = cls(written(path))
        found.restored = written(path, keys=False)
        return found


class Mismatch(DecodeError):
    """A JSON value of the wrong type for its path."""

    def __init__(self, found: str, go: str, owner: str, fields: tuple[str, ...]) -> None:
        path = f"struct field {owner}.{'.'.join(fields)}" if owner else "value"
        super().__init__(f"json: cannot unmarshal {found} into Go {path} of type {go}")
        self.found = found
        self.go = go
        self.fields = fields


class Decoding(msgspec.Struct):
    """State of decoding one body: the current field, the unknown fields, the first error."""

    owner: str = ""  # name of the struct that contains the current field
    fields: tuple[str, ...] = ()  # path of the current field as in Go's errors, without indices and map keys
    unknown: list[str] = msgspec.field(default_factory=list)
    fault: DecodeError | None = None
    silent: bool = False  # true inside a type with its own decoder: as in upstream, unknown fields are not recorded
    custom_decoded: list[Path] = msgspec.field(default_factory=list)  # paths of values whose type has its own decoder

    def mismatch(self, value: Any, go: str, form: str, *, shown: str = "") -> None:
        """Record the error for a value of a wrong type if it is the first error.

        For ``form``, see DecodeError.misfit.
        """
        if self.fault is None:
            self.fault = Mismatch(shown or json_kind(value), go, self.owner, self.fields).misfit(value, go, form)

    def note(self, path: Path) -> None:
        """Record an unknown field, unless limits.MAX_UNKNOWN fields are recorded."""
        if not self.silent and len(self.unknown) < limits.MAX_UNKNOWN:
            self.unknown.append(Unknown.at(path))


class GoType(Protocol):
    """A Go type that decodes JSON values."""

    @property
    def go(self) -> str:
        """The type's name in Go's errors."""

    @property
    def zero(self) -> Any:
        """The printed value of an absent field."""

    def decode(self, value: Any, path: Path, into: Decoding) -> Any:
        """Return the value as Go prints it; record errors and unknown fields in ``into``.

        A type with its own decoder raises DecodeError instead of recording the error.
        """


class Text(msgspec.Struct, frozen=True):
    """A string, or a named string type."""

    go: str = "string"
    zero: Any = ""

    def decode(self, value: Any, path: Path, into: Decoding) -> Any:
        """Return the string."""
        if value.__class__ is str:
            return value
        if value is not None:
            into.mismatch(value, self.go, "string")
        return ""


class Bool(msgspec.Struct, frozen=True):
    """A boolean."""

    go: str = "bool"
    zero: Any = False

    def decode(self, value: Any, path: Path, into: Decoding) -> Any:
        """Return the boolean."""
        if value.__class__ is bool:
            return value
        if value is not None:
            into.mismatch(value, self.go, "bool")
        return False


class Integer(msgspec.Struct, frozen=True):
    """An integer between ``low`` and ``high``."""

    go: str = "int64"
    low: int = -(2**63)
    high: int = 2**63 - 1
    zero: Any = 0

    def decode(self, value: Any, path: Path, into: Decoding) -> Any:
        """Return the integer; the error for a float or a number out of range contains the number."""
        if value.__class__ is int and self.low <= value <= self.high:
            return value
        if value is not None:
            shown = str(value) if value.__class__ is int else json_float(value) if value.__class__ is float else ""
            into.mismatch(value, self.go, self.go, shown=shown and f"number {shown}")
        return 0


INT32 = Integer("int32", -(2**31), 2**31 - 1)
_INT64 = Integer()
_BYTE = Integer("uint8", 0, 255)


class Float(msgspec.Struct, frozen=True):
    """A 64-bit float.

    A float that Go prints as an integer becomes an int, as after printing the JSON and reading it again.
    """

    go: str = "float64"
    zero: Any = 0

    def decode(self, value: Any, path: Path, into: Decoding) -> Any:
        """Return the number."""
        if value.__class__ is int:
            if -_EXACT <= value <= _EXACT:
                return value
            try:
                return _as_printed(float(value))
            except OverflowError:
                into.mismatch(value, self.go, "float64", shown=f"number {value}")
                return 0
        if value.__class__ is float:
            return _as_printed(value) if value.is_integer() else value
        if value is not None:
            into.mismatch(value, self.go, "float64")
        return 0


def _as_printed(value: float) -> int | float:
    """Return a whole float as the int that Go prints; return a float beyond int64 unchanged."""
    if abs(value) > -_INT64.low:
        return value
    printed = int(json_float(value))
    return printed if _INT64.low <= printed <= _INT64.high else value


class Bytes(msgspec.Struct, frozen=True):
    """A byte slice, which is base64 in JSON."""

    go: str = "[]uint8"
    zero: Any = None

    def decode(self, value: Any, path: Path, into: Decoding) -> Any:
        """Return the base64 text in the standard alphabet."""
        if value is None:
            return None
        if value.__class__ is list:
            return base64.b64encode(bytes(_BYTE.decode(item, path, into) for item in value)).decode()
        if value.__class__ is not str:
            into.mismatch(value, self.go, "slice")
            return None
        read = read_base64(value.translate(_TO_URL))
        if isinstance(read, bytes):
            return base64.b64encode(read).decode()
        fault = DecodeError(f"illegal base64 data at input byte {read}")
        fault.restored = f"error decoding from json: {fault}"
        into.fault = into.fault or fault
        return None


class Json(msgspec.Struct, frozen=True):
    """Any JSON value, unchanged; null means absent."""

    go: str = "v1.JSON"
    zero: Any = None

    def decode(self, value: Any, path: Path, into: Decoding) -> Any:
        """Return the value."""
        into.custom_decoded.append(path)
        return value


class Time(msgspec.Struct, frozen=True):
    """A metav1.Time: RFC 3339 in UTC with whole seconds, null if unset.

    ``read`` normalizes the text of a time.
    """

    go: str = "v1.Time"
    zero: Any = None
    read: Callable[[str], str] = time.normalize

    def decode(self, value: Any, path: Path, into: Decoding) -> Any:
        """Return the time in UTC; raises DecodeError with Go's message."""
        if value is None:
            return None
        if value.__class__ is not str:
            fault = Mismatch(json_kind(value), "string", into.owner, into.fields)
            fault.restored = f"json: cannot unmarshal {fault.found} into Go value of type string"
            raise fault
        try:
            return self.read(value) or None
        except ValueError as error:
            raise DecodeError(str(error)) from error


class List(msgspec.Struct, frozen=True):
    """A slice."""

    item: GoType
    go: str = ""
    zero: Any = None

    def __post_init__(self) -> None:
        if not self.go:
            msgspec.structs.force_setattr(self, "go", f"[]{self.item.go}")

    def decode(self, value: Any, path: Path, into: Decoding) -> Any:
        """Return the list with each item decoded; a null item becomes the zero value."""
        if value.__class__ is not list:
            if value is not None:
                into.mismatch(value, self.go, "slice")
            return None
        if self.item.__class__ is Json:
            into.custom_decoded.append(path)
            return value.copy()
        decode = self.item.decode
        return [decode(item, (path, index), into) for index, item in enumerate(value)]


class Map(msgspec.Struct, frozen=True):
    """A map with string keys."""

    item: GoType
    go: str = ""
    zero: Any = None

    def __post_init__(self) -> None:
        if not self.go:
            msgspec.structs.force_setattr(self, "go", f"map[string]{self.item.go}")

    def decode(self, value: Any, path: Path, into: Decoding) -> Any:
        """Return the map with each value decoded."""
        if value.__class__ is not dict:
            if value is not None:
                into.mismatch(value, self.go, "map")
            return None
        decode = self.item.decode
        found = {key: decode(item, (path, Key(key)), into) for key, item in _without_nulled(value)}
        if self.item.__class__ is Bytes:  # upstream: a null value is stored as an empty string
            found = {key: item or "" for key, item in found.items()}
        return found


def _without_nulled(value: Document) -> Iterable[tuple[str, Any]]:
    """Return the entries of a map, with None for each ``Nulled``.

    A ``Nulled`` is a null that follows an entry of the same key. As upstream, this null replaces the earlier entry. For
    fields of a struct, see _left_by_null.
    """
    if not any(item.__class__ is Nulled for item in value.values()):
        return value.items()
    return [(key, None if item.__class__ is Nulled else item) for key, item in value.items()]


class Field(msgspec.Struct, frozen=True):
    """A field of a struct.

    It is printed if it is not zero (omitempty), or if it is set (``pointer``), or always (``always``). ``within`` are
    the names of the embedded structs around the field, outermost first; Go's errors contain these names. ``keys`` are
    the keys of a list map (x-kubernetes-list-map-keys); catalog/merge_types.py treats an absent key as an empty string.
    """

    type: GoType
    always: bool = False
    pointer: bool = False
    within: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()


def _left_by_null(known: Field, before: Any) -> Any:
    """Return the value of a duplicate field whose last value is null.

    As upstream, null sets the field to None if it is a pointer, or if its zero value is null, as for a list. Another
    field keeps its previous value.
    """
    return None if known.pointer or known.type.zero is None else before


def _plain_class(known: Field) -> type[Any] | None:
    """Return the class of JSON values that need no decoding for this field.

    Return None if there is none.
    """
    classes: dict[type[Any], type[Any]] = {Text: str, Bool: bool}
    return classes.get(known.type.__class__)


class Struct:
    """A struct with its fields in Go's order.

    ``define`` replaces the fields, so that the struct can contain itself. If ``holds_empty`` is true, ``finish`` keeps
    empty lists and maps: Go distinguishes them from absent fields until it encodes the object.
    """

    __slots__ = ("_always", "_holds_empty", "_order", "_plain", "fields", "go", "name")

    def __init__(
        self, name: str, fields: Mapping[str, Field], *, package: str = "v1", holds_empty: bool = False
    ) -> None:
        self.name = name
        self.go = f"{package}.{name}"
        self._holds_empty = holds_empty
        self.define(fields)

    def define(self, fields: Mapping[str, Field]) -> None:
        """Set the fields of the struct."""
        self.fields = fields
        self._order = {name: index for index, name in enumerate(fields)}.__getitem__
        self._always = [name for name, known in fields.items() if known.always]
        self._plain = {name: _plain_class(known) for name, known in fields.items()}

    @property
    def zero(self) -> Any:
        """The empty struct, which has only the fields that are always printed."""
        return self.finish({})

    def decode(self, value: Any, path: Path, into: Decoding) -> Any:
        """Return the struct; decode its fields in the order of the body."""
        found: Document = {}
        if value.__class__ is not dict:
            if value is not None:
                into.mismatch(value, self.go, "struct")
            return self.finish(found)
        owner, above = into.owner, into.fields
        fields, plain = self.fields, self._plain
        for key, item in value.items():
            if key in plain and plain[key] is item.__class__:
                found[key] = item
                continue
            known = fields.get(key)
            here = (path, key)
            if known is None:
                into.note(here)
                continue
            given = item if item.__class__ is not Nulled else _left_by_null(known, item.before)
            if given is None and known.pointer:
                continue
            into.owner, into.fields = self.name, (*above, *known.within, key)
            decoded = known.type.decode(given, here, into)
            if decoded is not ABSENT:
                found[key] = decoded
        into.owner, into.fields = owner, above
        return self.finish(found)

    def finish(self, found: Document) -> Document:
        """Return the fields in Go's order.

        Drop zero values unless the field is a pointer or always printed.
        """
        for name in self._always:
            if name not in found:
                found[name] = None if self.fields[name].pointer else self.fields[name].type.zero
        shown: Document = {}
        for name in sorted(found, key=self._order):
            known, value = self.fields[name], found[name]
            kept = self._holds_empty and value.__class__ in (list, dict)
            if kept or known.pointer or known.always or not _is_empty(value):
                shown[name] = value
        return shown


def _is_empty(value: Any) -> bool:
    return value is None or value is False or (value.__class__ in (str, list, dict, int, float) and not value)


class Special(msgspec.Struct, frozen=True):
    """A type with its own decoder ``read``.

    ``read`` returns the value as Go prints it, or raises DecodeError.
    """

    go: str
    read: Callable[[Any, Decoding], Any]
    zero: Any = None

    def decode(self, value: Any, path: Path, into: Decoding) -> Any:
        """Return the result of the type's own decoder; None for null."""
        if value is None:
            return None
        into.custom_decoded.append(path)
        return self.read(value, into)


def nested(type_: GoType, value: Any, into: Decoding) -> Any:
    """Decode a value inside a type with its own decoder.

    Drop unknown fields without recording them. Raises DecodeError with the first error; as in Go, the path of this
    error begins at the body.
    """
    inner = Decoding(silent=True)
    try:
        decoded = type_.decode(value, None, inner)
        if inner.fault is not None:
            raise inner.fault
    except Mismatch as fault:
        whole = Mismatch(fault.found, fault.go, into.owner, (*into.fields, *fault.fields))
        whole.restored = str(fault)  # upstream: the path begins at the type with its own decoder
        raise whole from fault
    return decoded


def decode(type_: GoType, value: Any) -> tuple[Any, list[str]]:
    """Return a body as Go prints it, and the paths of unknown fields in the order of the body.

    Raises DecodeError with the message of Go's first error.
    """
    into = Decoding()
    try:
        decoded = type_.decode(value, None, into)
    except RecursionError as error:  # a schema exceeds schema/limits.py: MAX_SCHEMA_NESTING
        raise DecodeError("exceeded max depth") from error
    if into.fault is not None:
        raise into.fault
    return decoded, into.unknown


def custom_decoded(type_: GoType, value: Any) -> list[str]:
    """Return the paths of the values in a body that types with their own decoder have decoded."""
    into = Decoding()
    type_.decode(value, None, into)
    return list(map(written, into.custom_decoded))
