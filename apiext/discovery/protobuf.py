"""Discovery documents as Kubernetes' protobuf (DIS-101, DIS-106)."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from apiext.discovery.gnostic import message_class
from apiext.documents.document import View

_PREFIX = b"k8s\x00"
_GO_LISTS: Mapping[tuple[str, str], str] = {("APIResource", "verbs"): "items"}
"""Lists that have a type of their own, with the field that holds them."""


def encode(document: View) -> bytes:
    """Return the enveloped message of a discovery document; LookupError for a kind that is none."""
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
    """Set the fields of a message; Go writes structs and texts of its own always, empty or not."""
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
