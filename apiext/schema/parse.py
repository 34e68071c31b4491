"""Reads a v1 JSONSchemaProps document into structural nodes."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from apiext.documents.document import View
from apiext.schema import formats
from apiext.schema.structural import EMPTY, Structural, intern

_PLAIN: tuple[tuple[str, str], ...] = (
    ("type", "type"),
    ("nullable", "nullable"),
    ("x-kubernetes-int-or-string", "int_or_string"),
    ("x-kubernetes-preserve-unknown-fields", "preserve"),
    ("x-kubernetes-embedded-resource", "embedded"),
    ("x-kubernetes-list-type", "list_type"),
    ("x-kubernetes-map-type", "map_type"),
    ("exclusiveMaximum", "exclusive_maximum"),
    ("exclusiveMinimum", "exclusive_minimum"),
    ("pattern", "pattern"),
)
_OPTIONAL: tuple[tuple[str, str], ...] = (
    ("maxLength", "max_length"),
    ("minLength", "min_length"),
    ("maxItems", "max_items"),
    ("minItems", "min_items"),
    ("maxProperties", "max_properties"),
    ("minProperties", "min_properties"),
    ("default", "default"),
)
_FLOATS: tuple[tuple[str, str], ...] = (
    ("maximum", "maximum"),
    ("minimum", "minimum"),
    ("multipleOf", "multiple_of"),
)
_LISTS: tuple[tuple[str, str], ...] = (
    ("required", "required"),
    ("enum", "enum"),
    ("x-kubernetes-list-map-keys", "list_keys"),
)
_JUNCTORS: tuple[tuple[str, str], ...] = (("allOf", "all_of"), ("anyOf", "any_of"), ("oneOf", "one_of"))


def parse(schema: View | None, *, strip_formats: bool = True) -> Structural:
    """Return the structural form of a schema document; None gives the empty schema.

    Formats that have no effect on values are left out unless ``strip_formats`` is false, as upstream does for the
    values of defaults (VAL-005). The document must have passed the typed decoding of definitions.
    """
    return _node(schema or {}, strip_formats)


def _node(schema: View, strip: bool) -> Structural:
    values: dict[str, Any] = {}
    for name, target in _PLAIN:
        if schema.get(name):
            values[target] = schema[name]
    for name, target in _OPTIONAL:
        if schema.get(name) is not None:
            values[target] = schema[name]
    for name, target in _FLOATS:
        if schema.get(name) is not None:
            values[target] = float(schema[name])
    for name, target in _LISTS:
        if schema.get(name):
            values[target] = tuple(schema[name])
    for name, target in _JUNCTORS:
        if schema.get(name):
            values[target] = tuple(_node(branch, strip) for branch in schema[name])
    if isinstance(schema.get("not"), Mapping):
        values["not_"] = _node(schema["not"], strip)
    if isinstance(schema.get("items"), Mapping):
        values["items"] = _node(schema["items"], strip)
    properties = schema.get("properties")
    if properties:
        values["properties"] = _members(properties, strip)
    additional = schema.get("additionalProperties")
    if additional is not None:
        values["additional"] = _node(additional, strip) if isinstance(additional, Mapping) else bool(additional)
    text = schema.get("format")
    if text and (not strip or formats.has_effect(_types(values), text)):
        values["format"] = text
    return intern(**values)


def _members(properties: View, strip: bool) -> Mapping[str, Structural]:
    found: dict[str, Structural] = {}
    for name, schema in properties.items():
        found[name] = _node(schema, strip)
    return MappingProxyType(found) if found else EMPTY


def _types(values: Mapping[str, Any]) -> tuple[str, ...]:
    if values.get("int_or_string"):
        return ("integer", "string")
    return (values["type"],) if values.get("type") else ()
