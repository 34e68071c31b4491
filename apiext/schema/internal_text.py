"""Schemas as upstream's internal types print in errors (DIS-04)."""

from collections.abc import Mapping
from typing import Any

from apiext.documents.document import View
from apiext.documents.go_json import FLAG, POINTER, TEXT, Render, by_name, go_json, in_order, many, optional, struct


def internal_schema(schema: View) -> dict[str, Any]:
    """Return a schema with the names of the internal JSONSchemaProps."""
    return {go: show(schema.get(name)) for go, name, show in _SCHEMA}


def _or_bool(value: Any) -> Any:
    if value is None:
        return None
    if isinstance(value, Mapping):
        return {"Allows": True, "Schema": internal_schema(value)}
    return {"Allows": value, "Schema": None}


def _or_list(name: str, render: Render) -> Render:
    def show(value: Any) -> Any:
        if value is None:
            return None
        if isinstance(value, Mapping):
            return {"Schema": internal_schema(value), name: None}
        return {"Schema": None, name: [render(item) for item in value]}

    return show


_ITEMS = _or_list("JSONSchemas", internal_schema)
_RULE = struct(
    ("Rule", "rule", TEXT),
    ("Message", "message", TEXT),
    ("MessageExpression", "messageExpression", TEXT),
    ("Reason", "reason", POINTER),
    ("FieldPath", "fieldPath", TEXT),
    ("OptionalOldSelf", "optionalOldSelf", POINTER),
)
_SCHEMA: tuple[tuple[str, str, Render], ...] = (
    ("ID", "id", TEXT),
    ("Schema", "$schema", TEXT),
    ("Ref", "$ref", POINTER),
    ("Description", "description", TEXT),
    ("Type", "type", TEXT),
    ("Nullable", "nullable", FLAG),
    ("Format", "format", TEXT),
    ("Title", "title", TEXT),
    ("Default", "default", in_order),
    ("Maximum", "maximum", POINTER),
    ("ExclusiveMaximum", "exclusiveMaximum", FLAG),
    ("Minimum", "minimum", POINTER),
    ("ExclusiveMinimum", "exclusiveMinimum", FLAG),
    ("MaxLength", "maxLength", POINTER),
    ("MinLength", "minLength", POINTER),
    ("Pattern", "pattern", TEXT),
    ("MaxItems", "maxItems", POINTER),
    ("MinItems", "minItems", POINTER),
    ("UniqueItems", "uniqueItems", FLAG),
    ("MultipleOf", "multipleOf", POINTER),
    ("Enum", "enum", many(in_order)),
    ("MaxProperties", "maxProperties", POINTER),
    ("MinProperties", "minProperties", POINTER),
    ("Required", "required", many(TEXT)),
    ("Items", "items", _ITEMS),
    ("AllOf", "allOf", many(internal_schema)),
    ("OneOf", "oneOf", many(internal_schema)),
    ("AnyOf", "anyOf", many(internal_schema)),
    ("Not", "not", optional(internal_schema)),
    ("Properties", "properties", by_name(internal_schema)),
    ("AdditionalProperties", "additionalProperties", _or_bool),
    ("PatternProperties", "patternProperties", by_name(internal_schema)),
    ("Dependencies", "dependencies", by_name(_or_list("Property", TEXT))),
    ("AdditionalItems", "additionalItems", _or_bool),
    ("Definitions", "definitions", by_name(internal_schema)),
    (
        "ExternalDocs",
        "externalDocs",
        optional(struct(("Description", "description", TEXT), ("URL", "url", TEXT))),
    ),
    ("Example", "example", in_order),
    ("XPreserveUnknownFields", "x-kubernetes-preserve-unknown-fields", POINTER),
    ("XEmbeddedResource", "x-kubernetes-embedded-resource", FLAG),
    ("XIntOrString", "x-kubernetes-int-or-string", FLAG),
    ("XListMapKeys", "x-kubernetes-list-map-keys", many(TEXT)),
    ("XListType", "x-kubernetes-list-type", POINTER),
    ("XMapType", "x-kubernetes-map-type", POINTER),
    ("XValidations", "x-kubernetes-validations", many(_RULE)),
)
SCHEMA_FIELDS = tuple((go, name) for go, name, _ in _SCHEMA)
"""Go name and JSON name of each schema field, in Go's order."""


def schema_text(schema: View) -> str:
    """Return the JSON of a schema."""
    return go_json(internal_schema(schema))


def items_text(items: Any) -> str:
    """Return the JSON of ``items``, a schema or a list of them."""
    return go_json(_ITEMS(items))
