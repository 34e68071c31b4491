"""The protobuf messages that expressions may construct.

A construction returns the equivalent CEL value at once. ``google.protobuf.Int64Value{value: 1}`` becomes an int. A
Struct becomes a map, a ListValue becomes a list, and a Value becomes the value of its field. Numbers in a Struct or
ListValue become doubles, but integers whose absolute value is 2^53 or more become strings.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping
from typing import Any

from apiext.cel import types
from apiext.cel.constructed import Joined, Shape
from apiext.cel.effort import spend
from apiext.cel.objects import json_within, key_text, present
from apiext.cel.types import Type
from apiext.cel.values import (
    INT_MAX,
    INT_MIN,
    SECOND,
    TIME_MAX,
    TIME_MIN,
    Duration,
    Fault,
    Map,
    Optional,
    Timestamp,
    Uint,
    Value,
    View,
    elements,
    is_list,
    is_map,
    type_name,
)

_PREFIX = "google.protobuf."
CONSTANTS: Mapping[str, int] = {"google.protobuf.NullValue.NULL_VALUE": 0}

_INT32, _UINT32 = (-(1 << 31), (1 << 31) - 1), (0, (1 << 32) - 1)
_SCALARS: Mapping[str, tuple[type, tuple[int, int] | None]] = {  # name of a Go type → (class, bounds or None)
    "bool": (bool, None), "string": (str, None), "[]uint8": (bytes, None), "float64": (float, None),
    "float32": (float, None), "int64": (int, None), "int32": (int, _INT32), "protoreflect.EnumNumber": (int, _INT32),
    "uint64": (Uint, None), "uint32": (Uint, _UINT32),
}  # fmt: skip
_REFUSALS: Mapping[type, str] = {
    bool: "type conversion error from bool to '{}'", bytes: "type conversion error from Bytes to '{}'",
    float: "type conversion error from Double to '{}'", str: "unsupported native conversion from string to '{}'",
    int: "unsupported type conversion from 'int' to {}", Uint: "unsupported type conversion from 'uint' to {}",
    type(None): "type conversion error from 'null_type' to '{}'", list: "type conversion error from list to '{}'",
    Duration: "type conversion error from 'Duration' to '{}'", Map: "type conversion error from map to '{}'",
    Timestamp: "type conversion error from 'Timestamp' to '{}'", Joined: "type conversion error from list to '{}'",
}  # fmt: skip


def _refusal(value: Value, go: str) -> ValueError:
    if isinstance(value, Type):
        return ValueError("type conversion not supported for 'type'")
    if isinstance(value, View) and type(value) is not Joined:
        return ValueError(f"type conversion error from '{_shown(value)}' to '{go}'")
    return ValueError(
        _REFUSALS.get(type(value), f"type conversion error from '{type_name(value)}' to '{{}}'").format(go)
    )


def _shown(value: Value) -> str:
    return "list(dyn)" if is_list(value) else "map(dyn, dyn)" if is_map(value) else type_name(value)


def _scalar(go: str) -> Callable[[Value], Value]:
    """Return the function that converts a value to a field of a Go type.

    The converter raises ValueError with upstream's text.
    """
    kind, bounds = _SCALARS[go]

    def convert(value: Value) -> Value:
        found = present(value) if type(value) is Optional else value
        if type(found) is not kind:
            raise _refusal(found, go)
        if bounds is not None and isinstance(found, int) and not bounds[0] <= found <= bounds[1]:
            raise ValueError(f"{'unsigned ' if kind is Uint else ''}integer overflow")
        return _single(found) if type(found) is float and go == "float32" else found

    return convert


def _single(value: float) -> float:
    """Return a double rounded to a float of 32 bits."""
    try:
        return float(struct.unpack("<f", struct.pack("<f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def _json(value: Value) -> Value:
    """Return the CEL value of a value after its conversion to a structpb.Value.

    Raise ValueError.
    """
    spend(5)  # counts the copy of the value
    if isinstance(value, View) and type(value) is not Joined:
        raise _refusal(value, "*structpb.Value")
    if type(value) is Optional:
        return _json(present(value))
    if is_list(value):
        return [_json(element) for element in elements(value)]
    if is_map(value):
        return _map(value, "*structpb.Struct")
    found = value if type(value) is float else json_within(value)
    return float(found) if type(found) is int else found


def _map(value: Value, go: str = "") -> Value:
    if not is_map(value):
        raise _refusal(value, go) if go else ValueError
    made = Map()
    for key in elements(value):
        entry = value.find(key)
        made.set(key_text(key), _json(entry[1]))
    return made


def _list(value: Value, go: str = "") -> Value:
    if not is_list(value):
        raise _refusal(value, go) if go else ValueError
    return [_json(element) for element in elements(value)]


_Field = tuple[Type, Callable[[Value], Value]]
_DYNAMIC = types.map_of(types.STRING, types.DYN)
_INT64: _Field = (types.INT, _scalar("int64"))
_TIME: Mapping[str, _Field] = {"seconds": _INT64, "nanos": (types.INT, _scalar("int32"))}


def _shape(fields: Mapping[str, _Field], become: Callable[[dict[str, Any]], Value]) -> Shape:
    """Return the Shape (constructed.py) with which expressions construct a message.

    ``become`` converts the set fields, in the order of the message, to a CEL value.
    """

    def make(name: str, given: dict[str, Value]) -> Value:
        found: dict[str, Any] = {}
        for field, (_, convert) in fields.items():
            if field not in given:
                continue
            try:
                found[field] = convert(given[field])
            except ValueError as wrong:
                if not wrong.args:
                    return Fault(f"unsupported field type for {name}.{field}: {_shown(given[field])}")
                return Fault(f"field type conversion error for {name}.{field} value type: {wrong}")
        return become(found)

    return Shape(make, {field: kind for field, (kind, _) in fields.items()}, closed=True)


def _timestamp(found: dict[str, Any]) -> Value:
    ns = found.get("seconds", 0) * SECOND + found.get("nanos", 0)
    # upstream reports this error only at a later use of the value, or never
    return Timestamp(ns) if TIME_MIN <= ns <= TIME_MAX else Fault("timestamp overflow")


def _duration(found: dict[str, Any]) -> Value:
    ns = found.get("seconds", 0) * SECOND + found.get("nanos", 0)
    return Duration(max(INT_MIN, min(ns, INT_MAX)))


def _value(found: dict[str, Any]) -> Value:
    """Return the value of the last set field in the order of the message.

    Upstream uses a random set field. Return None if no field is set, or only null_value.
    """
    return None if "null_value" in found and len(found) == 1 else next(reversed(found.values()), None)


_WRAPPERS: Mapping[str, tuple[Type, str, Value]] = {
    "Bool": (types.BOOL, "bool", False), "Bytes": (types.BYTES, "[]uint8", b""), "String": (types.STRING, "string", ""),
    "Double": (types.DOUBLE, "float64", 0.0), "Float": (types.DOUBLE, "float32", 0.0),
    "Int32": (types.INT, "int32", 0), "Int64": (types.INT, "int64", 0), "UInt32": (types.UINT, "uint32", Uint(0)),
    "UInt64": (types.UINT, "uint64", Uint(0)),
}  # fmt: skip


def _wrapper(inner: Type, go: str, zero: Value) -> tuple[Type, Shape]:
    return types.wrapper_of(inner), _shape({"value": (inner, _scalar(go))}, lambda found: found.get("value", zero))


_KNOWN: Mapping[str, tuple[Type, Shape]] = {
    **{f"{_PREFIX}{name}Value": _wrapper(*wrapped) for name, wrapped in _WRAPPERS.items()},
    types.TIMESTAMP.name: (types.TIMESTAMP, _shape(_TIME, _timestamp)),
    types.DURATION.name: (types.DURATION, _shape(_TIME, _duration)),
    f"{_PREFIX}Struct": (_DYNAMIC, _shape({"fields": (_DYNAMIC, _map)}, lambda found: found.get("fields", Map()))),
    f"{_PREFIX}ListValue": (
        types.list_of(types.DYN),
        _shape({"values": (types.list_of(types.DYN), _list)}, lambda found: found.get("values", [])),
    ),
    f"{_PREFIX}Value": (
        types.DYN,
        _shape(
            {
                "null_value": (types.INT, _scalar("protoreflect.EnumNumber")),
                "number_value": (types.DOUBLE, _scalar("float64")),
                "string_value": (types.STRING, _scalar("string")),
                "bool_value": (types.BOOL, _scalar("bool")),
                "struct_value": (_DYNAMIC, lambda value: _map(value, "*structpb.Struct")),
                "list_value": (types.list_of(types.DYN), lambda value: _list(value, "*structpb.ListValue")),
            },
            _value,
        ),
    ),
}
TYPES: Mapping[str, Type] = {name: kind for name, (kind, _) in _KNOWN.items()}
SHAPES: Mapping[str, Shape] = {name: shape for name, (_, shape) in _KNOWN.items()}
# Type → the message that an expression constructs if it uses a name of this type that is not in SHAPES.
_BY_TYPE: Mapping[Type, str] = {
    **{kind: name for name, kind in TYPES.items()},
    types.NULL: f"{_PREFIX}NullValue",
}


def message_of(named: Type, name: str) -> str | None:
    """Return the name of the message that ``NAME{…}`` constructs.

    ``name`` is a name of the type ``named``. Return None if the type is not a protobuf message.
    """
    return None if named not in _BY_TYPE else name if name in SHAPES else _BY_TYPE[named]
