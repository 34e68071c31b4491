"""Check the types of objects that a mutation constructed, and convert them to JSON.

An open object, such as ``Object{spec: Object.spec{}}``, may have any fields. A Native (raw.py) holds a value that JSON
cannot represent. Go data is decoded JSON that may contain Natives.
"""

import math
from base64 import b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from apiext.cel.constructed import NO_SLICE, Constructed, Joined, Open, Patch, name_of, natural, natural_fields
from apiext.cel.conversions import seconds_text, shortest
from apiext.cel.dynamic import dynamic
from apiext.cel.effort import Cancelled, room_for, spend
from apiext.cel.go_values import go_type
from apiext.cel.library.network import Ip, Network
from apiext.cel.library.semver import Version
from apiext.cel.library.urls import Url
from apiext.cel.quotes import go_quote
from apiext.cel.raw import Native
from apiext.cel.times import format_timestamp
from apiext.cel.types import Type
from apiext.cel.values import (
    INT_MAX,
    INT_MIN,
    Duration,
    Fault,
    Map,
    Optional,
    Timestamp,
    Uint,
    Value,
    elements,
    is_list,
    is_map,
)

__all__ = [
    "NO_SLICE",
    "Constructed",
    "applied",
    "json_of",
    "json_within",
    "key_text",
    "mismatches",
    "present",
]

_SAFE = (1 << 53) - 1  # larger integers become strings in JSON
_NESTED = 10_000  # expression length passed to ``room_for``, which gives enough room for values of maximal nesting
_EXPONENT = 1e21  # doubles from this number on are printed with an exponent


def mismatches(value: Constructed) -> list[str]:
    """Return upstream's texts about inner objects whose types do not match their field paths.

    The texts are in the order of field names. The search ignores optionals, concatenated lists and patches. If the
    search exceeds the budget of the thread, return the error text of an evaluation that exceeds its limit. (upstream:
    CheckTypeNamesMatchFieldPathNames)
    """
    try:
        with _bounded():
            return list(_mismatches(value, value.type_name))
    except ValueError as wrong:
        return [str(wrong)]


@contextmanager
def _bounded() -> Iterator[None]:
    """Limit the block to the budget of the thread. Raise ValueError if it exceeds the budget."""
    try:
        with room_for(_NESTED):
            yield
    except Cancelled as wrong:
        raise ValueError(str(wrong)) from None


def _mismatches(value: Value, path: str) -> Iterator[str]:
    spend(1)
    if type(value) is Open:
        if value.type_name != path:
            shown = f"unexpected type name {go_quote(value.type_name)}, expected {go_quote(path)}"
            yield f"{shown}, which matches field name path from root Object type"
        for name in sorted(value.fields):
            yield from _mismatches(value.fields[name], f"{path}.{name}")
    elif type(value) is list:
        for element in value:
            yield from _mismatches(element, path)
    elif type(value) is Map:
        for _, element in value.entries.values():
            yield from _mismatches(element, path)


# Values of JSON patches


def json_of(value: Value) -> Any:
    """Convert the value of a JSON patch to JSON as upstream does with structpb.Value.

    Integers with an absolute value of at least 2^53 become strings. Integral doubles that are smaller than 1e21 and fit
    into 64 bits become ints. Times, durations and bytes become strings. In open objects, all numbers are first
    converted to doubles. Raise ValueError with upstream's text, for example for times in open objects.
    """
    with _bounded():
        return json_within(value)


def json_within(value: Value) -> Any:
    """Do the same as ``json_of``, but during an evaluation, whose budget limits the work."""
    spend(1)
    write = _JSON.get(type(value))
    if write is not None:
        return write(value)
    if is_list(value):
        return [json_within(element) for element in elements(value)]
    if is_map(value):
        return {key_text(key): json_within(value.find(key)[1]) for key in elements(value)}
    raise ValueError(_refusal(value, "*structpb.Value"))


def _refusal(value: Value, wanted: str) -> str:
    """Return upstream's error text about an unsupported conversion."""
    if isinstance(value, Type):
        return "type conversion not supported for 'type'"
    if type(value) is Fault:
        return value.message
    return f"type conversion error from '{go_type(value).rpartition('.')[2]}' to '{wanted}'"


def key_text(key: Value) -> str:
    """Return the key of a map as a string.

    Raise ValueError for a key that upstream cannot convert.
    """
    if type(key) is str:
        return key
    if type(key) is Optional:
        return key_text(present(key))
    known = _NO_KEYS.get(type(key))
    if known is not None or is_list(key) or is_map(key):
        raise ValueError(known or f"type conversion error from {'list' if is_list(key) else 'map'} to 'string'")
    if isinstance(key, _TEXTUAL):
        return str(key)
    raise ValueError(_refusal(key, "string"))


_TEXTUAL = (Ip, Network, Url, Version)  # types whose values become keys as strings
_NO_KEYS: dict[type, str] = {
    int: "unsupported type conversion from 'int' to string", Uint: "unsupported type conversion from 'uint' to string",
    bool: "type conversion error from bool to 'string'", float: "type conversion error from Double to 'string'",
    bytes: "type conversion error from Bytes to 'string'",
    type(None): "type conversion error from 'null_type' to 'string'",
    Open: "unable to convert to string", Patch: "cannot convert to native type: string",
}  # fmt: skip


def present(value: Optional) -> Value:
    """Return the value of an optional. Raise ValueError if the optional is empty."""
    if not value.present:
        raise ValueError("optional.none() dereference")
    return value.value


def _itself(value: Value) -> Any:
    return value


def _whole(value: int) -> int | str:
    return int(value) if -_SAFE <= value <= _SAFE else str(int(value))


def _double(value: float) -> int | float:
    if not math.isfinite(value):
        why = f"google.protobuf.Value.number_value: invalid {shortest(value)} value"
        raise ValueError(f"json: error calling MarshalJSON for type *structpb.Value: proto: {why}")
    if value == int(value) and abs(value) < _EXPONENT and INT_MIN <= int(value) <= INT_MAX:
        return int(value)
    return value


def _base64(value: bytes) -> str:
    return b64encode(value).decode()


def _refuse_patch(value: Value) -> Any:
    raise ValueError("cannot convert to native type: *structpb.Value")


def _json_of_joined(value: Joined) -> list[Any]:
    """Return the JSON of concatenated lists.

    As in upstream, an open object in them first becomes a map.
    """
    return [json_within(dynamic(natural(element))) for element in value.values]


def _json_of_open(value: Open) -> dict[str, Any]:
    return {name: _json_of_natural(raw) for name, raw in natural_fields(value).items()}


def _json_of_natural(raw: Any) -> Any:
    """Return the JSON of Go data (upstream: structpb.NewValue)."""
    spend(1)
    kind = type(raw)
    if kind in (str, bool) or raw is None:
        return raw
    if kind is dict:
        return {name: _json_of_natural(inner) for name, inner in raw.items()}
    if kind is list:
        return [_json_of_natural(inner) for inner in raw]
    value = raw.value if type(raw) is Native else raw
    if type(value) in (int, Uint, float):
        return _double(float(value))
    if type(value) is bytes:
        return _base64(value)
    raise ValueError(f"proto: invalid type: {name_of(raw)}")


_JSON: dict[type, Callable[[Any], Any]] = {
    str: _itself, bool: _itself, type(None): _itself, int: _whole, Uint: _whole, float: _double, bytes: _base64,
    Timestamp: lambda value: format_timestamp(value.ns, value.offset), Duration: lambda value: seconds_text(value.ns),
    Optional: lambda value: json_within(present(value)), Open: _json_of_open, Patch: _refuse_patch,
    Joined: _json_of_joined,
}  # fmt: skip


# Apply configurations


def applied(value: Constructed) -> Any:
    """Return an open object as the document of an apply configuration.

    Upstream: ObjectVal.Value(). Ints stay ints, and doubles stay doubles. Go data without an equivalent in JSON (times,
    durations, bytes, lists in lists, maps in lists) are Native. An empty optional becomes None. NO_SLICE stands for an
    empty list that the expression constructed, which is null in upstream's JSON. Raise ValueError if a map has a key
    that is not a string, or if the work exceeds the budget of the thread.
    """
    with _bounded():
        try:
            return natural_fields(value)
        except ValueError:
            raise ValueError(f"invalid return type: {value.go_type}") from None
