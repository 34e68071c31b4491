"""Types of expressions: their names, and the rules of assignability."""

from collections.abc import Mapping

from apiext.cel import limits
from apiext.cel.source import TooLarge

_KNOWN: "dict[tuple[str, str, tuple[Type, ...]], Type]" = {}
_MAX_KNOWN = 50_000  # maximal number of types in the cache


class Type:
    """A type. Equal types are usually the same object, which ``make`` caches.

    ``kind`` is bool, int, uint, double, string, bytes, null, timestamp, duration, dyn, list, map, type, object, opaque,
    parameter or error. ``ground`` is true if the type contains no type parameter. ``parts`` is the number of types in
    the printed type.
    """

    __slots__ = ("_hash", "ground", "kind", "name", "params", "parts")

    kind: str
    name: str
    params: "tuple[Type, ...]"
    ground: bool
    parts: int
    _hash: int

    def __str__(self) -> str:
        """Return the type as error messages print it (upstream: FormatCELType)."""
        if not self.params:
            return _SHOWN.get(self.kind, self.name)
        return f"{self.name}({', '.join(map(str, self.params))})"

    __repr__ = __str__

    def __eq__(self, other: object) -> bool:
        return self is other or (
            isinstance(other, Type)
            and self.name == other.name
            and self.kind == other.kind
            and self.params == other.params
        )

    def __hash__(self) -> int:
        return self._hash


_SHOWN = {"timestamp": "timestamp", "duration": "duration", "null": "null", "error": "!error!"}


def make(kind: str, name: str, *params: Type) -> Type:
    """Return the type with this kind, name and parameters.

    Raise TooLarge if it has more than MAX_PARTS ``parts``.
    """
    key = (kind, name, params)
    known = _KNOWN.get(key)
    if known is None:
        if len(_KNOWN) > _MAX_KNOWN:
            _KNOWN.clear()  # most of these types belong to definitions that no longer exist
        known = Type()
        known.kind, known.name, known.params = kind, name, params
        known._hash = hash(key)
        known.parts = 1 + sum(param.parts for param in params)
        if known.parts > limits.MAX_PARTS:
            raise TooLarge(f"expression size exceeds limit: a type names more than {limits.MAX_PARTS} others")
        known.ground = kind != "parameter" and all(param.ground for param in params)
        _KNOWN[key] = known
    return known


BOOL = make("bool", "bool")
INT = make("int", "int")
UINT = make("uint", "uint")
DOUBLE = make("double", "double")
STRING = make("string", "string")
BYTES = make("bytes", "bytes")
NULL = make("null", "null_type")
TIMESTAMP = make("timestamp", "google.protobuf.Timestamp")
DURATION = make("duration", "google.protobuf.Duration")
DYN = make("dyn", "dyn")
ERROR = make("error", "*error*")
TYPE = make("type", "type")
IP = make("opaque", "net.IP")
CIDR = make("opaque", "net.CIDR")
QUANTITY = make("object", "kubernetes.Quantity")
SEMVER = make("object", "kubernetes.Semver")
URL = make("object", "kubernetes.URL")
FORMAT = make("object", "kubernetes.NamedFormat")


def list_of(element: Type) -> Type:
    """Return the type of a list with this element type."""
    return make("list", "list", element)


def map_of(key: Type, value: Type) -> Type:
    """Return the type of a map with these types of keys and values."""
    return make("map", "map", key, value)


def wrapper_of(value: Type) -> Type:
    """Return the wrapper type of a type: its values are those of the type, and null.

    The wrapper type and the inner type are assignable to each other.
    """
    return make(value.kind, "wrapper", value)


def optional_of(value: Type) -> Type:
    """Return the type of an optional value."""
    return make("opaque", "optional_type", value)


def type_of(type: Type) -> Type:
    """Return the type of a type."""
    return make("type", "type", type)


def object_named(name: str) -> Type:
    """Return the object type with this name."""
    return make("object", name)


def parameter(name: str) -> Type:
    """Return a type parameter."""
    return make("parameter", name)


SIMPLE: Mapping[str, Type] = {
    "bool": BOOL, "int": INT, "uint": UINT, "double": DOUBLE, "string": STRING, "bytes": BYTES, "null": NULL,
    "timestamp": TIMESTAMP, "duration": DURATION, "dyn": DYN, "type": TYPE, "ip": IP, "cidr": CIDR,
    "quantity": QUANTITY, "semver": SEMVER, "url": URL, "format": FORMAT,
}  # fmt: skip
_NULLABLE = ("opaque", "object", "timestamp", "duration")
_SCALARS = ("bool", "double", "duration", "int", "timestamp", "uint")


def unwrap_optional(type: Type) -> tuple[Type, bool]:
    """Return (inner type, true) for the type of an optional, and (type, false) for other types."""
    if type.name == "optional_type" and type.kind == "opaque":
        return type.params[0], True
    return type, False


def is_scalar(type: Type) -> bool:
    """Return whether cost estimates use the size 1 for all values of a type."""
    inner, _ = unwrap_optional(type)
    return inner.kind in _SCALARS


class Substitution:
    """The types that the checker has found for type parameters so far."""

    __slots__ = ("found", "number")

    def __init__(self) -> None:
        self.found: dict[Type, Type] = {}
        self.number = 0

    def fresh(self) -> Type:
        """Return a new type parameter without a substitute."""
        self.number += 1
        return parameter(f"_var{self.number - 1}")

    def assignable(self, wanted: Type, given: Type) -> bool:
        """Return whether ``given`` is assignable to ``wanted``.

        If so, record the substitutes of type parameters.
        """
        if wanted == given:
            return True
        if wanted.ground and given.ground:
            return self._fits(wanted, given)
        before = dict(self.found)
        if self._fits(wanted, given):
            return True
        self.found = before
        return False

    def all_assignable(self, wanted: tuple[Type, ...], given: tuple[Type, ...]) -> bool:
        """Return whether each given type is assignable to the wanted type at its index.

        All types share the same substitutes of type parameters.
        """
        if len(wanted) != len(given):
            return False
        before = dict(self.found)
        if all(self._fits(one, other) for one, other in zip(wanted, given, strict=True)):
            return True
        self.found = before
        return False

    def _fits(self, one: Type, other: Type) -> bool:
        if other.kind == "parameter":
            fits, known = self._stands_for(one, other)
            if fits:
                return True
            if known:
                return False
        if one.kind == "parameter":
            return self._stands_for(other, one)[0]
        if one == other or one.kind in ("dyn", "error") or other.kind in ("dyn", "error"):
            return True
        if one.kind == "null":
            return other.kind in _NULLABLE or other.name == "wrapper"
        if other.kind == "null":
            return one.kind in _NULLABLE or one.name == "wrapper"
        if one.kind != other.kind:
            return False
        if one.kind == "type":
            return True
        if one.kind in ("opaque", "list", "map"):
            if one.name != other.name or len(one.params) != len(other.params):
                return False
            return all(self._fits(a, b) for a, b in zip(one.params, other.params, strict=True))
        return one.name == other.name or "wrapper" in (one.name, other.name)

    def _stands_for(self, type: Type, param: Type) -> tuple[bool, bool]:
        """Return whether a type can substitute a parameter, and whether a substitute was known.

        If the type can, record it as the substitute, or keep the known substitute if that is more general. Both values
        are true for the parameter itself.
        """
        if type == param:
            return True, True
        known = self.found.get(param)
        if known is not None:
            if type == known:
                return True, True
            if self._fits(type, known):
                general = type if less_specific(type, known) else known
                if not self._occurs(param, general):
                    self.found[param] = general
                return True, True
            return False, True
        if not self._occurs(param, type):
            self.found[param] = type
            return True, False
        return False, False

    def _occurs(self, param: Type, within: Type) -> bool:
        if param == within:
            return True
        if within.kind == "parameter":
            known = self.found.get(within)
            return known is not None and self._occurs(param, known)
        return any(self._occurs(param, inner) for inner in within.params)

    def apply(self, type: Type, to_dyn: bool = False) -> Type:
        """Replace the parameters of a type by their substitutes.

        With ``to_dyn``, other parameters become dyn.
        """
        return type if type.ground else self._applied(type, to_dyn, {})

    def _applied(self, type: Type, to_dyn: bool, made: dict[Type, Type]) -> Type:
        if type.ground:
            return type
        found = made.get(type)
        if found is None:
            known = self.found.get(type)
            if known is not None:
                found = self._applied(known, to_dyn, made)
            elif type.kind == "parameter":
                found = DYN if to_dyn else type
            else:
                found = make(type.kind, type.name, *[self._applied(param, to_dyn, made) for param in type.params])
            made[type] = found
        return found


def less_specific(one: Type, other: Type) -> bool:
    """Return whether the first type equals the second type or is more general.

    A type and its wrapper count as equal, and so do all types of types.
    """
    if one.kind in ("dyn", "parameter"):
        return True
    if other.kind in ("dyn", "parameter") or one.kind != other.kind:
        return False
    if one.kind in ("opaque", "list", "map"):
        if one.name != other.name or len(one.params) != len(other.params):
            return False
        return all(less_specific(a, b) for a, b in zip(one.params, other.params, strict=True))
    return one == other or one.kind == "type" or "wrapper" in (one.name, other.name)


def replace(type: Type, by: Mapping[str, Type]) -> Type:
    """Replace the type parameters whose names are in ``by``."""
    if type.ground:
        return type
    if type.kind == "parameter":
        return by.get(type.name, type)
    return make(type.kind, type.name, *(replace(param, by) for param in type.params))
