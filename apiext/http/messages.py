"""Convert Kubernetes' protobuf messages (proto/k8s.proto) to JSON values and back.

The protobuf library decodes messages, and validates their bytes. This module encodes messages itself: the library would
visit all fields of a message, while a document has few of them.
"""

import base64
import struct
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import orjson
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError as MessageDecodeError

from apiext.documents import limits as documents_limits
from apiext.documents.document import Document
from apiext.documents.encoding import decode_json
from apiext.documents.encoding import encode as encode_json
from apiext.documents.errors import DecodeError
from apiext.http import protobuf_errors
from apiext.system.descriptors import Pool, class_of, pool_of

EMBEDDED = ""
"""The JSON name of an embedded Go struct: its fields are fields of the object itself in JSON."""
_ZERO_TIME = -62135596800  # seconds of 0001-01-01, Go's zero time
_LENGTHS = bytes(set(range(0x20)) - set(b"\t\n\r"))  # lengths of short messages; strings have few of these bytes
_VARINT, _DOUBLE, _LENGTH = 0, 1, 2  # wire types

Reader = Callable[[Any], Any]
Writer = Callable[[Any], bytes]
Put = Callable[[list[bytes], Any], None]
"""Appends a field with its tag to the parts of a message."""


@cache
def _pool() -> Pool:
    return pool_of(Path(__file__).parent / "pb" / "k8s.binpb")


@cache
def descriptor(name: str) -> Any:
    """Return the descriptor of a message of proto/k8s.proto."""
    return _pool().FindMessageTypeByName(f"k8s.{name}")


@cache
def message_class(name: str) -> Any:
    """Return the class of a message of proto/k8s.proto."""
    return class_of(descriptor(name))


def short_messages(raw: bytes) -> int:
    """Return about the greatest possible number of messages with fewer than 32 bytes.

    This is the number of bytes that may be the length of such a message. The lengths 9, 10 and 13 do not count, since
    these bytes are also tab, line feed and carriage return, of which a string may have many.
    """
    return len(raw) - len(raw.translate(None, _LENGTHS))


def parse(name: str, raw: bytes) -> Any:
    """Decode a message; raises DecodeError."""
    if len(raw) > documents_limits.MAX_CONTAINERS and short_messages(raw) > documents_limits.MAX_CONTAINERS:
        raise DecodeError(f"more than {documents_limits.MAX_CONTAINERS} messages and lists")
    try:
        return message_class(name).FromString(raw)
    except MessageDecodeError as error:
        raise DecodeError(protobuf_errors.fault(descriptor(name), raw)) from error


def json_fields(name: str) -> dict[str, Any]:
    """Return the descriptor of each field of a message by JSON name.

    The fields of an embedded struct are included.
    """
    found: dict[str, Any] = {}
    for field in descriptor(name).fields:
        if field.json_name == EMBEDDED:
            found |= json_fields(field.message_type.name)
        else:
            found[field.json_name] = field
    return found


def _is_map(field: Any) -> bool:
    return bool(field.message_type is not None and field.message_type.GetOptions().map_entry)


# --- decoding ---


def document(message: Any) -> Any:
    """Return the JSON value of a message without zero values.

    Zero values remain if protobuf records their presence.
    """
    return _reader(message.DESCRIPTOR.name)(message)


@cache
def _reader(name: str) -> Reader:
    special = _READ.get(name)
    if special is not None:
        return special
    plan = {field.number: (field.json_name, _converter_of(field)) for field in descriptor(name).fields}

    def read(message: Any) -> Document:
        found: Document = {}
        for field, value in message.ListFields():
            key, show = plan[field.number]
            shown = show(value) if show is not None else value
            if shown is None:
                continue
            if key != EMBEDDED:
                found[key] = shown
            else:
                found |= shown
        return found

    return read


def _converter_of(field: Any) -> Reader | None:
    """Return the function that converts a field's value to JSON.

    Return None if the value is valid JSON already.
    """
    if _is_map(field):
        one = _one(field.message_type.fields_by_name["value"])
        return lambda value: {key: one(value[key]) for key in sorted(value)} if one is not None else dict(value)
    one = _one(field)
    if field.is_repeated:
        return (lambda value: [one(item) for item in value]) if one is not None else list
    return one


def _one(field: Any) -> Reader | None:
    if field.message_type is not None:
        name = field.message_type.name
        return _READ.get(name) or (lambda value: _reader(name)(value))  # noqa: PLW0108 - types may contain themselves
    return _text_of_bytes if field.type == FieldDescriptor.TYPE_BYTES else None


def _text_of_bytes(value: bytes) -> str:
    return base64.b64encode(value).decode()


def _read_time(message: Any) -> str | None:
    moment = _moment(message)
    return _text(moment) + "Z" if moment is not None else None


def _read_micro_time(message: Any) -> str | None:
    moment = _moment(message)
    if moment is None:
        return None
    return f"{_text(moment)}.{message.nanos % 10**9 // 1000:06d}Z"


def _text(moment: datetime) -> str:
    return moment.replace(tzinfo=None).isoformat(timespec="seconds")


def _moment(message: Any) -> datetime | None:
    if not message.seconds and not message.nanos:
        return None
    if message.seconds == _ZERO_TIME:  # gogo-proto writes Go's zero time for a missing time
        return None
    try:
        return datetime.fromtimestamp(message.seconds, UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise DecodeError("Time.MarshalJSON: year outside of range [0,9999]") from error


def _read_json(message: Any) -> Any:
    raw = message.Raw if message.DESCRIPTOR.name == "FieldsV1" else message.raw
    return decode_json(raw or b"null")[0]


def _read_or_array(message: Any) -> Any:
    if message.jSONSchemas:
        return [document(schema) for schema in message.jSONSchemas]
    return document(message.schema)


def _read_or_bool(message: Any) -> Any:
    return document(message.schema) if message.HasField("schema") else message.allows


def _read_or_strings(message: Any) -> Any:
    return document(message.schema) if message.HasField("schema") else list(message.property)


def _read_int_or_string(message: Any) -> int | str:
    found: int | str = message.strVal if message.type else message.intVal
    return found


def _read_items(message: Any) -> list[str]:
    return list(message.items)


_READ: Mapping[str, Reader] = {
    "Time": _read_time,
    "MicroTime": _read_micro_time,
    "IntOrString": _read_int_or_string,
    "Quantity": lambda message: message.string,
    "ExtraValue": _read_items,
    "AttestationValue": _read_items,
    "FieldsV1": _read_json,
    "JSON": _read_json,
    "RawExtension": _read_json,
    "JSONSchemaPropsOrArray": _read_or_array,
    "JSONSchemaPropsOrBool": _read_or_bool,
    "JSONSchemaPropsOrStringArray": _read_or_strings,
}
"""Name of a message whose JSON is not an object of its fields → function that returns this JSON."""


# --- encoding ---


def encode_message(name: str, value: Any) -> bytes:
    """Return the bytes of a message.

    Fields of the JSON value that the message does not have are ignored.
    """
    return _writer(name)(value)


def varint(number: int) -> bytes:
    """Return the varint of a number; a negative number has 64 bits."""
    if 0 <= number < 0x80:
        return _SMALL[number]
    number &= 0xFFFFFFFFFFFFFFFF
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


_SMALL = [bytes((number,)) for number in range(0x80)]


@cache
def _writer(name: str) -> Writer:
    shape = _WRITE.get(name)
    puts = {field.json_name: _put(field) for field in descriptor(name).fields}
    embedded = puts.pop(EMBEDDED, None)

    def write(value: Any) -> bytes:
        if shape is not None:
            value = shape(value)
        parts: list[bytes] = []
        for key, item in value.items():
            if item is not None and (put := puts.get(key)) is not None:
                put(parts, item)
        if embedded is not None:
            embedded(parts, value)
        return b"".join(parts)

    return write


def _put(field: Any) -> Put:
    if _is_map(field):
        return _put_map(field)
    if field.message_type is not None:
        return _put_messages(field) if field.is_repeated else _put_message(field)
    put = _SCALARS[field.type](field)
    if not field.is_repeated:
        return put

    def put_each(parts: list[bytes], items: Any) -> None:
        for item in items:
            put(parts, item)

    return put_each


def _tag(field: Any, wire: int) -> bytes:
    return varint(field.number << 3 | wire)


def _put_map(field: Any) -> Put:
    tag = _tag(field, _LENGTH)
    key_put, value_put = (_put(field.message_type.fields_by_name[name]) for name in ("key", "value"))

    def put(parts: list[bytes], members: Any) -> None:
        for key in sorted(members):
            entry: list[bytes] = []
            key_put(entry, key)
            value_put(entry, members[key])
            raw = b"".join(entry)
            parts += (tag, varint(len(raw)), raw)

    return put


def _put_message(field: Any) -> Put:
    tag, name = _tag(field, _LENGTH), field.message_type.name

    def put(parts: list[bytes], item: Any) -> None:
        raw = _writer(name)(item)
        parts += (tag, varint(len(raw)), raw)

    return put


def _put_messages(field: Any) -> Put:
    put, special = _put_message(field), field.message_type.name in _WRITE

    def put_each(parts: list[bytes], items: Any) -> None:
        for item in items:
            put(parts, {} if item is None and not special else item)

    return put_each


def _put_text(field: Any) -> Put:
    tag, always = _tag(field, _LENGTH), field.has_presence or field.is_repeated

    def put(parts: list[bytes], item: str) -> None:
        if item or always:
            raw = item.encode()
            parts += (tag, varint(len(raw)), raw)

    return put


def _put_bytes(field: Any) -> Put:
    tag, always = _tag(field, _LENGTH), field.has_presence or field.is_repeated

    def put(parts: list[bytes], item: Any) -> None:
        raw = item if isinstance(item, bytes) else base64.b64decode(item)
        if raw or always:
            parts += (tag, varint(len(raw)), raw)

    return put


def _put_number(field: Any) -> Put:
    tag, always = _tag(field, _VARINT), field.has_presence

    def put(parts: list[bytes], item: int) -> None:
        if item or always:
            parts += (tag, varint(int(item)))

    return put


def _put_double(field: Any) -> Put:
    tag, always = _tag(field, _DOUBLE), field.has_presence

    def put(parts: list[bytes], item: float) -> None:
        if item or always:
            parts += (tag, struct.pack("<d", item))

    return put


_SCALARS: Mapping[int, Callable[[Any], Put]] = {
    FieldDescriptor.TYPE_STRING: _put_text,
    FieldDescriptor.TYPE_BYTES: _put_bytes,
    FieldDescriptor.TYPE_BOOL: _put_number,
    FieldDescriptor.TYPE_INT32: _put_number,
    FieldDescriptor.TYPE_INT64: _put_number,
    FieldDescriptor.TYPE_DOUBLE: _put_double,
}


def _time(value: str | None) -> Document:
    if value is None:  # null as a value of a map is Go's zero time
        return {}
    return {"seconds": int(datetime.fromisoformat(value).timestamp())}


def _micro_time(value: str | None) -> Document:
    if value is None:
        return {}
    moment = datetime.fromisoformat(value)
    return {"seconds": int(moment.replace(microsecond=0).timestamp()), "nanos": moment.microsecond * 1000}


def _or_bool(value: Any) -> Document:
    return {"allows": value is not False, "schema": value if isinstance(value, dict) else None}


_WRITE: Mapping[str, Callable[[Any], Document]] = {
    "Time": _time,
    "MicroTime": _micro_time,
    "IntOrString": lambda value: {"type": 1, "strVal": value} if isinstance(value, str) else {"intVal": value},
    "Quantity": lambda value: {"string": value},
    "ExtraValue": lambda value: {"items": value},
    "AttestationValue": lambda value: {"items": value},
    "FieldsV1": lambda value: {"Raw": orjson.dumps(value)},
    # upstream: null becomes an empty message
    "JSON": lambda value: {} if value is None else {"raw": encode_json(value)},
    "RawExtension": lambda value: {"raw": encode_json(value)},
    "JSONSchemaPropsOrArray": lambda value: {"jSONSchemas" if isinstance(value, list) else "schema": value},
    "JSONSchemaPropsOrBool": _or_bool,
    "JSONSchemaPropsOrStringArray": lambda value: {"property" if isinstance(value, list) else "schema": value},
}
"""Name of a message whose JSON is not an object of its fields → function from this JSON to the fields."""
