"""Decoded data that contains CEL values.

An example is the concatenation of a list of the evaluated object and a CEL list.
"""

from typing import Any

from apiext.cel.values import Broken, Duration, Fault, Timestamp, Uint, Value, View

_GO_NAMES: dict[type, str] = {
    bool: "bool", int: "int64", float: "float64", str: "string", list: "[]interface {}",
    dict: "map[string]interface {}",
    Timestamp: "time.Time", Duration: "time.Duration", bytes: "[]uint8", Uint: "uint64", Fault: "*errors.errorString",
}  # fmt: skip
_UNHASHABLE = frozenset((list, dict, bytes))


class Native:
    """A CEL value without an equivalent in JSON, inside decoded data."""

    __slots__ = ("value",)

    def __init__(self, value: Value) -> None:
        self.value = value

    @property
    def go_name(self) -> str:
        """Return the name of the Go type that upstream uses for the value."""
        value = self.value
        if value is None:
            return "structpb.NullValue"
        if type(value) is list:
            return "[]ref.Val"
        return _GO_NAMES.get(type(value), "map[ref.Val]ref.Val")


def go_name(raw: Any) -> str:
    """Return the name of the Go type that upstream uses for decoded data."""
    return raw.go_name if type(raw) is Native else _GO_NAMES.get(type(raw), "<nil>")


def raw_of(value: Value) -> Any:
    """Return a CEL value as decoded data: a scalar as it is, the data of a view, else a Native.

    Return None for a view without decoded data, such as the sum of two sets.
    """
    if type(value) in (str, int, float, bool):
        return value
    if isinstance(value, View):
        return getattr(value, "raw", None)
    return Native(value)


def key_of_raw(raw: Any) -> object:
    """Return a hashable key, equal for two values that are the same map key in Go.

    Raise Broken for unhashable data.
    """
    value = raw.value if type(raw) is Native else raw
    if type(value) in _UNHASHABLE:
        raise Broken(f"runtime error: hash of unhashable type {go_name(raw)}")
    if type(value) is Timestamp and value.offset:
        return object()  # as upstream, where a time with an offset has its own zone object, and equals no other time
    return type(raw), type(value), value


def key_of_object(raw: Any, names: tuple[str, ...]) -> object:
    """Return the values of the key fields of an item of a list of type map.

    Raise Broken for unhashable values.
    """
    if type(raw) is not dict:
        return object()  # as upstream, where the key is an error value, which equals no other value
    values = [raw.get(name) for name in names]
    if len(values) > 3:
        return repr(values)  # like Go's %#v, which prints every value
    return tuple(map(key_of_raw, values))
