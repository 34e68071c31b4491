"""Kubernetes' protobuf: the ``k8s\\0`` envelope, and messages to JSON documents and back (NEG-003, clients.md §6.2)."""

import base64
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.message import DecodeError as MessageDecodeError

from apiext.documents.document import Document, View
from apiext.documents.errors import DecodeError

PREFIX = b"k8s\x00"

KINDS: Mapping[tuple[str, str], str] = {
    ("v1", "Namespace"): "Namespace",
    ("v1", "NamespaceList"): "NamespaceList",
    ("v1", "Status"): "Status",
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition"): "CustomResourceDefinition",
    ("apiextensions.k8s.io/v1", "CustomResourceDefinitionList"): "CustomResourceDefinitionList",
    ("meta.k8s.io/v1", "PartialObjectMetadata"): "PartialObjectMetadata",
    ("meta.k8s.io/v1", "PartialObjectMetadataList"): "PartialObjectMetadataList",
    ("meta.k8s.io/v1beta1", "PartialObjectMetadata"): "PartialObjectMetadata",
    ("meta.k8s.io/v1beta1", "PartialObjectMetadataList"): "PartialObjectMetadataList",
}
"""apiVersion and kind → message."""

_RENAMED: Mapping[tuple[str, str], str] = {
    ("JSONSchemaProps", "ref"): "$ref",
    ("JSONSchemaProps", "schema"): "$schema",
}


def _load() -> descriptor_pool.DescriptorPool:
    # private: another library in the process may register the same names in the default pool
    pool = descriptor_pool.DescriptorPool()
    raw = (Path(__file__).parent / "pb" / "k8s.binpb").read_bytes()
    for file in descriptor_pb2.FileDescriptorSet.FromString(raw).file:
        pool.Add(file)
    return pool


_POOL = _load()


def _class(name: str) -> Any:
    return message_factory.GetMessageClass(_POOL.FindMessageTypeByName(f"k8s.{name}"))


_UNKNOWN = _class("Unknown")
_DELETE_OPTIONS = _class("DeleteOptions")
_WATCH_EVENT = _class("WatchEvent")


def knows(api_version: str, kind: str) -> bool:
    """Whether objects of a kind can be written in protobuf."""
    return (api_version, kind) in KINDS


# --- reading ---


def decode(raw: bytes) -> Document:
    """Return the JSON document of an enveloped object; raises DecodeError for bytes or kinds that are none of ours."""
    unknown = _open(raw)
    api_version, kind = unknown.typeMeta.apiVersion, unknown.typeMeta.kind
    name = KINDS.get((api_version, kind))
    if name is None:
        raise DecodeError(f'no kind "{kind}" is registered for version "{api_version}" in protobuf')
    return {"apiVersion": api_version, "kind": kind, **_parsed(_class(name), unknown.raw)}


def decode_delete_options(raw: bytes) -> Document:
    """Return DeleteOptions, which clients send under any apiVersion; an empty message asks for nothing."""
    unknown = _open(raw)
    if unknown.typeMeta.kind != "DeleteOptions":
        raise DecodeError(f'no kind "{unknown.typeMeta.kind}" can be read as DeleteOptions')
    return {"apiVersion": "v1", "kind": "DeleteOptions", **_parsed(_DELETE_OPTIONS, unknown.raw)}


def to_json(raw: bytes) -> bytes:
    """Return the JSON text of an enveloped object: how values that another server wrote to etcd are read (ETC-004)."""
    return orjson.dumps(decode(raw), option=orjson.OPT_SORT_KEYS)


def _open(raw: bytes) -> Any:
    if not raw.startswith(PREFIX):
        raise DecodeError(
            "provided data does not appear to be a protobuf message, expected prefix "
            + str(list(PREFIX)).replace(",", "")
        )
    return _message(_UNKNOWN, raw[len(PREFIX) :])


def _message(message_class: Any, raw: bytes) -> Any:
    try:
        return message_class.FromString(raw)
    except MessageDecodeError as error:
        raise DecodeError("proto: wrong wire data") from error


def _parsed(message_class: Any, raw: bytes) -> Document:
    found = _document(_message(message_class, raw))
    assert isinstance(found, dict)
    return found


def _document(message: Any) -> Any:
    """Return the JSON value of a message; fields without presence and with zero values are left out."""
    special = _READ.get(message.DESCRIPTOR.name)
    if special is not None:
        return special(message)
    found: Document = {}
    for field, value in message.ListFields():
        shown = _shown(field, value)
        if shown is not None:
            found[_json_name(field)] = shown
    return found


def _shown(field: Any, value: Any) -> Any:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        of_messages = field.message_type.fields_by_name["value"].message_type is not None
        return {key: _document(value[key]) if of_messages else value[key] for key in sorted(value)}
    if field.is_repeated:
        return [_document(item) for item in value] if field.message_type is not None else list(value)
    if field.message_type is not None:
        return _document(value)
    if field.type == field.TYPE_BYTES:
        return base64.b64encode(value).decode()
    return value


def _json_name(field: Any) -> str:
    name: str = field.name
    renamed = _RENAMED.get((field.containing_type.name, name))
    if renamed is not None:
        return renamed
    if not name.startswith("xKubernetes"):
        return name
    return "x-kubernetes" + "".join(f"-{c.lower()}" if c.isupper() else c for c in name[len("xKubernetes") :])


def _read_time(message: Any) -> str | None:
    if not message.seconds and not message.nanos:
        return None
    try:
        moment = datetime.fromtimestamp(message.seconds, UTC)
    except (ValueError, OverflowError, OSError) as error:
        raise DecodeError("Time.MarshalJSON: year outside of range [0,9999]") from error
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def _read_json(message: Any) -> Any:
    raw = message.Raw if message.DESCRIPTOR.name == "FieldsV1" else message.raw
    try:
        return orjson.loads(raw or b"null")
    except orjson.JSONDecodeError as error:
        raise DecodeError(f"json: {error}") from error


def _read_or_array(message: Any) -> Any:
    if message.jSONSchemas:
        return [_document(schema) for schema in message.jSONSchemas]
    return _document(message.schema)


def _read_or_bool(message: Any) -> Any:
    return _document(message.schema) if message.HasField("schema") else message.allows


def _read_or_strings(message: Any) -> Any:
    return _document(message.schema) if message.HasField("schema") else list(message.property)


_READ: Mapping[str, Callable[[Any], Any]] = {
    "Time": _read_time,
    "FieldsV1": _read_json,
    "JSON": _read_json,
    "JSONSchemaPropsOrArray": _read_or_array,
    "JSONSchemaPropsOrBool": _read_or_bool,
    "JSONSchemaPropsOrStringArray": _read_or_strings,
}


# --- writing ---


def encode(document: View) -> bytes:
    """Return the enveloped message of a document; raises KeyError for a kind that has no message."""
    api_version, kind = document.get("apiVersion", ""), document.get("kind", "")
    message = _class(KINDS[(api_version, kind)])()
    _fill(message, document)
    unknown = _UNKNOWN(raw=message.SerializeToString(deterministic=True))
    unknown.typeMeta.apiVersion, unknown.typeMeta.kind = api_version, kind
    raw: bytes = unknown.SerializeToString(deterministic=True)
    return PREFIX + raw


def encode_list(api_version: str, kind: str, metadata: View, items: Sequence[bytes]) -> list[bytes]:
    """Return the enveloped message of a list in parts; ``items`` are messages without an envelope (``encode_item``)."""
    head = _class("ListMeta")()
    _fill(head, metadata)
    raw: bytes = head.SerializeToString(deterministic=True)
    body = [b"\x0a", _varint(len(raw)), raw]  # field 1: the metadata
    for item in items:
        body += (b"\x12", _varint(len(item)), item)  # field 2, once per item
    unknown = _UNKNOWN()
    unknown.typeMeta.apiVersion, unknown.typeMeta.kind = api_version, kind
    return [PREFIX, unknown.SerializeToString(), b"\x12", _varint(sum(map(len, body))), *body]


def encode_item(kind: str, document: View) -> bytes:
    """Return the message of an object, without an envelope."""
    message = _class(kind)()
    _fill(message, document)
    raw: bytes = message.SerializeToString(deterministic=True)
    return raw


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def encode_event(kind: str, raw: bytes) -> bytes:
    """Return a watch event around an enveloped object, with its length in front (RV-010)."""
    event = _WATCH_EVENT(type=kind)
    event.object.raw = raw
    message: bytes = event.SerializeToString()
    return len(message).to_bytes(4, "big") + message


def _fill(message: Any, value: Any) -> None:
    """Set the fields of a message from a JSON value; members without a field are left out."""
    special = _WRITE.get(message.DESCRIPTOR.name)
    if special is not None:
        special(message, value)
        return
    for field in message.DESCRIPTOR.fields:
        item = value.get(_json_name(field))
        if item is not None:
            _set(message, field, item)


def _set(message: Any, field: Any, item: Any) -> None:
    target: Any = getattr(message, field.name) if field.message_type is not None or field.is_repeated else None
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        of_messages = field.message_type.fields_by_name["value"].message_type is not None
        for key, member in item.items():
            if of_messages:
                _fill(target[key], member)
            else:
                target[key] = member
    elif field.is_repeated:
        _extend(target, field, item)
    elif field.message_type is not None:
        target.SetInParent()
        _fill(target, item)
    else:
        setattr(message, field.name, base64.b64decode(item) if field.type == field.TYPE_BYTES else item)


def _extend(target: Any, field: Any, items: Iterable[Any]) -> None:
    if field.message_type is None:
        target.extend(items)
        return
    for item in items:
        _fill(target.add(), item)


def _write_time(message: Any, value: Any) -> None:
    message.seconds = int(datetime.fromisoformat(value).timestamp())


def _write_json(message: Any, value: Any) -> None:
    name = "Raw" if message.DESCRIPTOR.name == "FieldsV1" else "raw"
    setattr(message, name, orjson.dumps(value))


def _write_or_array(message: Any, value: Any) -> None:
    if isinstance(value, list):
        for item in value:
            _fill(message.jSONSchemas.add(), item)
        return
    message.schema.SetInParent()
    _fill(message.schema, value)


def _write_or_bool(message: Any, value: Any) -> None:
    message.allows = value is not False
    if isinstance(value, dict):
        message.schema.SetInParent()
        _fill(message.schema, value)


def _write_or_strings(message: Any, value: Any) -> None:
    if isinstance(value, list):
        message.property.extend(value)
        return
    message.schema.SetInParent()
    _fill(message.schema, value)


_WRITE: Mapping[str, Callable[[Any, Any], None]] = {
    "Time": _write_time,
    "FieldsV1": _write_json,
    "JSON": _write_json,
    "JSONSchemaPropsOrArray": _write_or_array,
    "JSONSchemaPropsOrBool": _write_or_bool,
    "JSONSchemaPropsOrStringArray": _write_or_strings,
}
