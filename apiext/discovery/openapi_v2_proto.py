"""Encoder of OpenAPI v2 documents as protobuf, with the message types of gnostic (OAS-001)."""

from collections.abc import Mapping
from functools import cache
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
    return message_class("openapi_v2.binpb", "openapi.v2.Document")


def document(
    paths: Mapping[str, View],
    definitions: Mapping[str, View],
    parameters: Mapping[str, View],
    *,
    title: str = "",
    version: str = "",
) -> bytes:
    """Return a serialized Document with these parts, which are in JSON form.

    Without ``title``, the result is a part that the caller appends to another serialized Document.
    """
    message = _document_class()()
    if title:
        message.swagger = "2.0"
        message.info.title, message.info.version = title, version
    for name, item in paths.items():
        found = message.paths.path.add(name=name)
        _path_item(found.value, item)
    for name, schema in definitions.items():
        found = message.definitions.additional_properties.add(name=name)
        _schema(found.value, schema)
    for name, parameter in parameters.items():
        found = message.parameters.additional_properties.add(name=name)
        _parameter(found.value, parameter)
    serialised: bytes = message.SerializeToString(deterministic=True)
    return serialised


def _path_item(message: Any, item: View) -> None:
    for method in METHODS:
        if method in item:
            _operation(getattr(message, method), item[method])
    for parameter in item.get("parameters", ()):
        _parameters_item(message.parameters.add(), parameter)


def _operation(message: Any, operation: View) -> None:
    message.description = operation["description"]
    message.operation_id = operation["operationId"]
    for name in ("tags", "produces", "consumes", "schemes"):
        getattr(message, name).extend(operation[name])
    for parameter in operation.get("parameters", ()):
        _parameters_item(message.parameters.add(), parameter)
    for code, response in operation["responses"].items():
        value = message.responses.response_code.add(name=code).value.response
        value.description = response["description"]
        if "schema" in response:
            _schema(value.schema.schema, response["schema"])
    set_extensions(message.vendor_extension, operation)


def _parameters_item(message: Any, parameter: View) -> None:
    if "$ref" in parameter:
        setattr(message.json_reference, "_ref", parameter["$ref"])  # noqa: B010  # a field name that looks private
    else:
        _parameter(message.parameter, parameter)


def _parameter(message: Any, parameter: View) -> None:
    if parameter["in"] == "body":
        body = message.body_parameter
        _schema(body.schema, parameter["schema"])
    elif parameter["in"] == "path":
        body = message.non_body_parameter.path_parameter_sub_schema
    else:
        body = message.non_body_parameter.query_parameter_sub_schema
    if parameter["in"] != "body":
        body.description, body.type, body.unique_items = parameter["description"], parameter["type"], True
    body.name = parameter["name"]
    setattr(body, "in", parameter["in"])
    if parameter.get("required"):
        body.required = True


def _schema(message: Any, schema: View) -> None:
    message.SetInParent()
    set_keywords(message, schema, _NESTED)
    set_extensions(message.vendor_extension, schema)


def _reference(message: Any, reference: str) -> None:
    setattr(message, "_ref", reference)  # noqa: B010  # a field name that looks private


def _items(message: Any, items: View) -> None:
    _schema(message.items.schema.add(), items)


def _additional(message: Any, values: Any) -> None:
    if isinstance(values, bool):
        message.additional_properties.boolean = values
    else:
        message.additional_properties.schema.SetInParent()
        _schema(message.additional_properties.schema, values)


def _type(message: Any, name: str) -> None:
    message.type.value.append(name)


_NESTED: Keywords = {
    **COMMON,
    "$ref": _reference,
    "properties": properties_by(_schema),
    "items": _items,
    "additionalProperties": _additional,
    "type": _type,
}
