"""Kubernetes' protobuf: the ``k8s\\0`` envelope, and conversion to and from JSON (NEG-003)."""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import orjson

from apiext.documents import limits as documents_limits
from apiext.documents.document import Document, View
from apiext.documents.errors import DecodeError, UndecodableMessage
from apiext.documents.json_errors import check_depth
from apiext.go_types.rows import rows
from apiext.http import protobuf_errors
from apiext.http.messages import descriptor, document, encode_message, message_class, parse, varint
from apiext.storage.values import json_object
from apiext.text.quotes import go_quote

PREFIX = b"k8s\x00"
LENGTH = 4
"""The number of bytes before each watch event that contain the length of the event."""

KINDS: Mapping[tuple[str, str], str] = {
    ("v1", "Namespace"): "Namespace",
    ("v1", "Status"): "Status",
    ("apiextensions.k8s.io/v1", "CustomResourceDefinition"): "CustomResourceDefinition",
    ("meta.k8s.io/v1", "PartialObjectMetadata"): "PartialObjectMetadata",
    ("meta.k8s.io/v1beta1", "PartialObjectMetadata"): "PartialObjectMetadata",
}
"""(apiVersion, kind) → name of the message; ``messages`` adds those of the built-in kinds."""

_LIST = "List"


@cache
def messages() -> Mapping[tuple[str, str], str]:
    """Return (apiVersion, kind) → name of the message, for all kinds with a message."""
    actions = {
        (f"{below['accepts']['group']}/v1", below["accepts"]["kind"]): below["accepts"]["kind"]
        for row in rows()
        for below in row.subresources
        if "accepts" in below
    }
    own = {(one.api_version, one.kind): one.message or one.kind for row in rows() for one in row.all_versions()}
    return {**KINDS, **actions, **own}


def has_message(api_version: str, kind: str) -> bool:
    """Report whether a kind has a protobuf message."""
    return (api_version, kind) in messages()


def _item_message(api_version: str, kind: str) -> str | None:
    """Return the message name of a list's items.

    Return None for an unknown kind, or a kind that is not a list.
    """
    return messages().get((api_version, kind.removesuffix(_LIST))) if kind.endswith(_LIST) else None


# --- decoding ---


def decode(raw: bytes, wanted: tuple[str, str] = ("", "")) -> Document:
    """Decode an object in an envelope; raise DecodeError.

    ``wanted`` is (apiVersion, kind): the values for an envelope that lacks them.
    """
    unknown = _open(raw)
    api_version, kind = unknown.typeMeta.apiVersion, unknown.typeMeta.kind or wanted[1]
    # upstream: an apiVersion with two slashes, or with nothing after the slash, counts as absent
    if api_version.count("/") > 1 or not api_version.rpartition("/")[2]:
        api_version = wanted[0]
    name, item = messages().get((api_version, kind)), _item_message(api_version, kind)
    version = api_version.rpartition("/")[2]
    try:
        if name is not None:
            return {"apiVersion": api_version, "kind": kind, **_read(name, unknown.raw)}
        if item is None:
            registered = f"no kind {go_quote(kind)} is registered for version {go_quote(api_version)}"
            raise DecodeError(f'{registered} in scheme "pkg/runtime/scheme.go:111"')
        found = parse(_LIST, unknown.raw)
        items = [_read(item, one) for one in found.items]
    except DecodeError as error:
        raise UndecodableMessage(str(error), kind, version) from error
    return {"apiVersion": api_version, "kind": kind, "metadata": document(found.metadata), "items": items}


def _read(name: str, raw: bytes) -> Document:
    """Return the document of a message.

    Raise DecodeError if the message is malformed, or nested too deeply, also in a field that contains JSON.
    """
    found: Document = document(parse(name, raw))
    try:
        check_depth(orjson.dumps(found), documents_limits.MAX_DEPTH)
    except orjson.JSONEncodeError as error:  # nested deeper than orjson supports
        raise DecodeError("exceeded max depth") from error
    return found


def decode_delete_options(raw: bytes) -> Document:
    """Decode DeleteOptions, which clients send with any apiVersion; raise DecodeError.

    An empty kind means DeleteOptions. For another kind, the document has only apiVersion and kind, so that the caller
    can reject it.
    """
    unknown = _open(raw)
    kind = unknown.typeMeta.kind or "DeleteOptions"
    if kind != "DeleteOptions":
        return {"apiVersion": unknown.typeMeta.apiVersion, "kind": kind}
    return {"apiVersion": "v1", "kind": kind, **document(parse(kind, unknown.raw))}


def to_json(raw: bytes) -> bytes:
    """Return an object in an envelope as JSON."""
    return orjson.dumps(decode(raw), option=orjson.OPT_SORT_KEYS)


def stored_json(raw: bytes) -> bytes:
    """Return a stored value as JSON; another server may have written it in protobuf (ETC-004).

    Raises ValueError.
    """
    return to_json(raw) if raw.startswith(PREFIX) else json_object(raw)


def _open(raw: bytes) -> Any:
    if not raw:
        raise DecodeError("empty data")
    if not raw.startswith(PREFIX):
        raise DecodeError(
            "provided data does not appear to be a protobuf message, expected prefix "
            + str(list(PREFIX)).replace(",", "")
        )
    if len(raw) == len(PREFIX):
        raise DecodeError("empty body")
    envelope = raw[len(PREFIX) :]
    # the library would skip a field of a wrong type as unknown, but Go reports an error
    wrong = protobuf_errors.fault(descriptor("Unknown"), envelope)
    if wrong != protobuf_errors.UNKNOWN:
        raise DecodeError(wrong)
    return parse("Unknown", envelope)


# --- encoding ---


def encode(value: View) -> bytes:
    """Encode a document to a message in an envelope.

    Raise KeyError for a kind without a message.
    """
    api_version, kind = value.get("apiVersion", ""), value.get("kind", "")
    item = _item_message(api_version, kind)
    if item is not None:
        items = [encode_message(item, one) for one in value.get("items") or ()]
        return b"".join(encode_list(api_version, kind, value.get("metadata") or {}, items))
    raw = encode_message(messages()[(api_version, kind)], value)
    return b"".join((PREFIX, _type_of(api_version, kind), _RAW, varint(len(raw)), raw))


def encode_list(api_version: str, kind: str, metadata: View, items: Sequence[bytes]) -> list[bytes]:
    """Encode a list to a message in an envelope, in parts.

    ``items`` are messages of ``encode_item``.
    """
    raw = encode_message("ListMeta", metadata)
    body = [b"\x0a", varint(len(raw)), raw]  # field 1: the metadata
    for item in items:
        body += (b"\x12", varint(len(item)), item)  # field 2, once per item
    return [PREFIX, _type_of(api_version, kind), _RAW, varint(sum(map(len, body))), *body]


def encode_item(api_version: str, kind: str, value: View) -> bytes:
    """Return the message of an object, without an envelope."""
    return encode_message(messages()[(api_version, kind)], value)


_RAW = b"\x12"  # field 2 of the envelope


@cache
def _type_of(api_version: str, kind: str) -> bytes:
    raw: bytes = message_class("Unknown")(typeMeta={"apiVersion": api_version, "kind": kind}).SerializeToString()
    return raw


def encode_event(kind: str, raw: bytes) -> bytes:
    """Return a watch event of type ``kind``, preceded by the length of the event (RV-010).

    ``raw`` is the object of the event, in an envelope.
    """
    event = message_class("WatchEvent")(type=kind)
    event.object.raw = raw
    message: bytes = event.SerializeToString()
    return len(message).to_bytes(LENGTH, "big") + message
