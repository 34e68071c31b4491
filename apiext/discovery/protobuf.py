"""Encoder of discovery documents as Kubernetes' protobuf (DIS-101, DIS-106)."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from apiext.discovery.gnostic import message_class
from apiext.documents.document import View

_PREFIX = b"k8s\x00"
_GO_LISTS: Mapping[tuple[str, str], str] = {("APIResource", "verbs"): "items"}
"""(message, field) whose value is a message with a single field, a list → the name of this single field."""


def encode(document: View) -> bytes:
    """Return a discovery document in a runtime.Unknown envelope.

    Raise LookupError for a document of another kind.
    """
    kind = document["kind"]
    message = _class(kind)()
    _fill(message, document)
    unknown = _class("Unknown")(raw=message.SerializeToString(), contentEncoding="", contentType="")
    unknown.typeMeta.apiVersion, unknown.typeMeta.kind = document.get("apiVersion", ""), kind
    raw: bytes = unknown.SerializeToString()
    return _PREFIX + raw


@cache
def _class(name: str) -> Any:
    return message_class("discovery.binpb", f"discovery.{name}")


def _fill(message: Any, values: View) -> None:
    """Set the fields of a message. As Go does, write single values even if they are empty."""
    for field in message.DESCRIPTOR.fields:
        value = values.get(field.name)
        if field.is_repeated:
            _extend(getattr(message, field.name), field, value or ())
        elif field.message_type is not None:
            part = getattr(message, field.name)
            part.SetInParent()
            inner = _GO_LISTS.get((message.DESCRIPTOR.name, field.name))
            _fill(part, {inner: value} if inner else value or {})
        elif field.has_presence:
            setattr(message, field.name, field.default_value if value is None else value)


def _extend(target: Any, field: Any, values: Any) -> None:
    if field.message_type is None:
        target.extend(values)
        return
    for value in values:
        _fill(target.add(), value)
