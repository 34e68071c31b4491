"""Convert types and values of the test cases of CEL's specification to those of this engine."""

from __future__ import annotations

import base64
from typing import Any

from apiext.cel import types, values
from apiext.cel.times import parse_duration, parse_rfc3339
from apiext.cel.types import Type
from apiext.cel.values import Duration, Map, Timestamp, Uint

_PRIMITIVES = {
    "INT64": types.INT, "UINT64": types.UINT, "DOUBLE": types.DOUBLE, "STRING": types.STRING, "BYTES": types.BYTES,
    "BOOL": types.BOOL,
}  # fmt: skip
_WELL_KNOWN = {"google.protobuf.Timestamp": types.TIMESTAMP, "google.protobuf.Duration": types.DURATION}
_NAMED = {"TIMESTAMP": types.TIMESTAMP, "DURATION": types.DURATION}


class Foreign(Exception):
    """A type or value that needs protobuf messages."""


def type_from(told: dict[str, Any]) -> Type:
    (kind, inner), *_ = told.items()
    if kind == "primitive":
        return _PRIMITIVES[inner]
    if kind == "list_type":
        return types.list_of(type_from(inner["elem_type"]) if inner else types.DYN)
    if kind == "map_type":
        return types.map_of(type_from(inner["key_type"]), type_from(inner["value_type"]))
    if kind == "abstract_type":
        return types.make("opaque", inner["name"], *(type_from(p) for p in inner.get("parameter_types", [])))
    if kind == "type":
        return types.type_of(type_from(inner)) if inner else types.TYPE
    if kind == "message_type" and inner in _WELL_KNOWN:
        return _WELL_KNOWN[inner]
    if kind == "well_known" and inner in _NAMED:
        return _NAMED[inner]
    if kind == "wrapper":
        return types.wrapper_of(_PRIMITIVES[inner])
    if kind in ("dyn", "null"):
        return types.DYN if kind == "dyn" else types.NULL
    raise Foreign(kind)


_SIMPLE: dict[str, Any] = {
    "int64_value": int, "uint64_value": lambda text: Uint(int(text)), "double_value": float, "string_value": str,
    "bytes_value": base64.b64decode, "bool_value": bool, "null_value": lambda _: None,
    "type_value": lambda name: types.make("opaque", name),
}  # fmt: skip


def value_from(told: dict[str, Any]) -> Any:
    ((kind, inner),) = told.items()
    if kind in _SIMPLE:
        return _SIMPLE[kind](inner)
    if kind == "list_value":
        return [value_from(value) for value in inner.get("values", [])]
    if kind == "map_value":
        made = Map()
        for entry in inner.get("entries", []):
            made.set(value_from(entry["key"]), value_from(entry["value"]))
        return made
    name = inner.get("@type", "").rpartition("/")[2]
    if name == types.DURATION.name:
        return Duration(_nanoseconds(inner) if "value" not in inner else parse_duration(inner["value"]) or 0)
    if name == types.TIMESTAMP.name:
        return Timestamp(_nanoseconds(inner) if "value" not in inner else (parse_rfc3339(inner["value"]) or (0, 0))[0])
    raise Foreign(kind)


def _nanoseconds(told: dict[str, Any]) -> int:
    return int(told.get("seconds", 0)) * 10**9 + int(told.get("nanos", 0))


def same(one: Any, other: Any) -> bool:
    """Return whether two values are equal including the types of numbers; NaN equals NaN."""
    if isinstance(other, float) and other != other:
        return isinstance(one, float) and one != one
    if isinstance(other, Type) or isinstance(one, Type):
        return isinstance(one, Type) and isinstance(other, Type) and one.name == other.name
    if values.type_name(one) != values.type_name(other):
        return False
    if values.is_list(one):
        return len(one) == len(other) and all(
            same(a, b) for a, b in zip(values.elements(one), values.elements(other), strict=True)
        )
    if values.is_map(one):
        return len(one) == len(other) and all(
            other.find(key) is not None and same(one.find(key)[1], other.find(key)[1]) for key in values.elements(one)
        )
    return values.equal(one, other) is True
