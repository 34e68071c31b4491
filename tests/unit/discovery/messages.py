"""Convert messages of discovery and OpenAPI to JSON by their field names."""

from functools import cache
from typing import Any

import yaml

from apiext.discovery.gnostic import message_class

_class = cache(message_class)

PLAIN = {
    "multiple_of": "multipleOf", "exclusive_maximum": "exclusiveMaximum", "exclusive_minimum": "exclusiveMinimum",
    "max_length": "maxLength", "min_length": "minLength", "max_items": "maxItems", "min_items": "minItems",
    "unique_items": "uniqueItems", "max_properties": "maxProperties", "min_properties": "minProperties",
}  # fmt: skip
ZEROS = {
    "multipleOf",
    "maximum",
    "minimum",
    "maxLength",
    "minLength",
    "maxItems",
    "minItems",
    "maxProperties",
    "minProperties",
}
"""Fields whose zero a message cannot contain."""


def open_api(version: str, body: bytes) -> Any:
    """Return the Document message of an OpenAPI document; the version is v2 or v3."""
    return _class(f"openapi_{version}.binpb", f"openapi.{version}.Document").FromString(body)


def discovery(body: bytes) -> tuple[str, str, Any]:
    """Return the apiVersion, kind and message of a discovery document in an envelope."""
    unknown = _class("discovery.binpb", "discovery.Unknown").FromString(body.removeprefix(b"k8s\0"))
    kind = unknown.typeMeta.kind
    return unknown.typeMeta.apiVersion, kind, _class("discovery.binpb", f"discovery.{kind}").FromString(unknown.raw)


def named(entries: Any, read: Any) -> dict[str, Any]:
    """Return entries of name and value as a dict of ``read(value)`` by name."""
    return {entry.name: read(entry.value) for entry in entries}


def any_value(message: Any) -> Any:
    """Return the value of a message's YAML."""
    return yaml.safe_load(message.yaml)


def v2_schemas(message: Any) -> dict[str, Any]:
    """Return the definitions of an OpenAPI v2 document.

    They are equal to schemas with zeros as bounds.
    """
    return named(message.definitions.additional_properties, _v2)


def v3_schemas(message: Any) -> dict[str, Any]:
    """Return the schemas of an OpenAPI v3 document."""
    return named(message.components.schemas.additional_properties, _v3)


class Zeros(dict[str, Any]):
    """A schema of a message, equal to a schema with values that a message cannot contain.

    Such values are further zeros, and a list or object as default.
    """

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, dict):
            return False
        lost = {key for key, value in other.items() if key in ZEROS and value == 0}
        if isinstance(other.get("default"), dict | list):
            lost.add("default")
        return dict(self) == {key: value for key, value in other.items() if key not in lost}

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = None  # type: ignore[assignment]  # as dict


def _v2(message: Any) -> Zeros:
    found = _common(message, "vendor_extension")
    for field, value in message.ListFields():
        if field.name == "type":
            found["type"] = value.value[0]
        elif field.name == "items":
            found["items"] = _v2(value.schema[0])
        elif field.name == "properties":
            found["properties"] = named(value.additional_properties, _v2)
        elif field.name == "additional_properties":
            found["additionalProperties"] = _v2(value.schema) if value.HasField("schema") else value.boolean
    return found


def _v3(message: Any) -> Zeros:
    if message.WhichOneof("oneof") == "reference":
        return Zeros({"$ref": message.reference._ref})
    return _v3_schema(message.schema)


def _v3_schema(message: Any) -> Zeros:
    found = _common(message, "specification_extension")
    for field, value in message.ListFields():
        if field.name in ("all_of", "any_of", "one_of"):
            found[field.name.replace("_of", "Of")] = [_v3(branch) for branch in value]
        elif field.name == "not":
            found["not"] = _v3_schema(value)
        elif field.name == "items":
            found["items"] = _v3(value.schema_or_reference[0])
        elif field.name == "properties":
            found["properties"] = named(value.additional_properties, _v3)
        elif field.name == "additional_properties":
            which = value.WhichOneof("oneof")
            found["additionalProperties"] = _v3(value.schema_or_reference) if which != "boolean" else value.boolean
        elif field.name == "default" and value.WhichOneof("oneof"):
            found["default"] = getattr(value, value.WhichOneof("oneof"))
    return found


def _common(message: Any, extensions: str) -> Zeros:
    found = Zeros(named(getattr(message, extensions), any_value))
    for field, value in message.ListFields():
        name = PLAIN.get(field.name, field.name)
        if field.name == "_ref":
            found["$ref"] = value
        elif field.name == "required":
            found["required"] = list(value)
        elif field.name == "enum":
            found["enum"] = [any_value(each) for each in value]
        elif field.name == "example":
            found["example"] = any_value(value)
        elif field.message_type is None and not field.is_repeated:
            found[name] = value
    return found
