"""Encoder of OpenAPI v3 documents as protobuf, with the message types of gnostic (OAS-002)."""

from collections.abc import Mapping
from functools import cache, partial
from typing import Any

from apiext.discovery.gnostic import (
    COMMON,
    METHODS,
    Keywords,
    message_class,
    properties_by,
    set_extensions,
    set_keywords,
)
from apiext.documents.document import View


@cache
def _document_class() -> Any:
    return message_class("openapi_v3.binpb", "openapi.v3.Document")


def head(title: str, version: str) -> bytes:
    """Return a serialized Document that has only title and version."""
    message = _document_class()(openapi="3.0.0")
    message.info.title, message.info.version = title, version
    serialised: bytes = message.SerializeToString()
    return serialised


def document(paths: Mapping[str, View], schemas: Mapping[str, View]) -> bytes:
    """Return a serialized Document with paths and schemas.

    The caller appends the bytes to those of ``head``.
    """
    message = _document_class()()
    for name, item in paths.items():
        _path_item(message.paths.path.add(name=name).value, item)
    for name, schema in schemas.items():
        _schema_or_reference(message.components.schemas.additional_properties.add(name=name).value, schema)
    serialised: bytes = message.SerializeToString(deterministic=True)
    return serialised


def _path_item(message: Any, item: View) -> None:
    for method in METHODS:
        if method in item:
            _operation(getattr(message, method), item[method])
    _parameters(message.parameters, item)


def _operation(message: Any, operation: View) -> None:
    message.tags.extend(operation["tags"])
    message.description = operation["description"]
    message.operation_id = operation["operationId"]
    _parameters(message.parameters, operation)
    if "requestBody" in operation:
        body = message.request_body.request_body
        _content(body.content, operation["requestBody"]["content"])
        body.required = operation["requestBody"].get("required", False)
    for code, response in operation["responses"].items():
        found = message.responses.response_or_reference.add(name=code).value.response
        found.description = response["description"]
        if "content" in response:
            _content(found.content, response["content"])
    set_extensions(message.specification_extension, operation)


def _parameters(messages: Any, holder: View) -> None:
    for parameter in holder.get("parameters", ()):
        found = messages.add().parameter
        found.name, found.description = parameter["name"], parameter["description"]
        setattr(found, "in", parameter["in"])
        found.required = parameter.get("required", False)
        _schema_or_reference(found.schema, parameter["schema"])


def _content(message: Any, content: Mapping[str, View]) -> None:
    for media_type, value in content.items():
        _schema_or_reference(message.additional_properties.add(name=media_type).value.schema, value["schema"])


def _schema_or_reference(message: Any, schema: View) -> None:
    if "$ref" in schema:
        setattr(message.reference, "_ref", schema["$ref"])  # noqa: B010  # a field name that looks private
    else:
        message.schema.SetInParent()
        _schema(message.schema, schema)


def _schema(message: Any, schema: View) -> None:
    set_keywords(message, schema, _NESTED)
    set_extensions(message.specification_extension, schema)


def _text(field: str, message: Any, value: Any) -> None:
    setattr(message, field, value)


def _branches(field: str, message: Any, branches: list[View]) -> None:
    for branch in branches:
        _schema_or_reference(getattr(message, field).add(), branch)


def _not(message: Any, branch: View) -> None:
    found = getattr(message, "not")
    found.SetInParent()
    _schema(found, branch)


def _items(message: Any, items: View) -> None:
    _schema_or_reference(message.items.schema_or_reference.add(), items)


def _additional(message: Any, values: Any) -> None:
    if isinstance(values, bool):
        message.additional_properties.boolean = values
    else:
        _schema_or_reference(message.additional_properties.schema_or_reference, values)


def _default(message: Any, value: Any) -> None:
    message.default.SetInParent()  # as upstream, where the default of an object or array is an empty message
    if isinstance(value, bool):
        message.default.boolean = value
    elif isinstance(value, int | float):
        message.default.number = value
    elif isinstance(value, str):
        message.default.string = value


_NESTED: Keywords = {
    **COMMON,
    "type": partial(_text, "type"),
    "nullable": partial(_text, "nullable"),
    "allOf": partial(_branches, "all_of"),
    "anyOf": partial(_branches, "any_of"),
    "oneOf": partial(_branches, "one_of"),
    "not": _not,
    "properties": properties_by(_schema_or_reference),
    "items": _items,
    "additionalProperties": _additional,
    "default": _default,
}
