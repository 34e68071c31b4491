"""Definitions as upstream's internal types print in errors: JSON with Go's field names and zero values (DIS-04)."""

from collections.abc import Callable, Mapping
from typing import Any

from apiext.documents.document import View
from apiext.documents.encoding import encode_in_order

Render = Callable[[Any], Any]
_HTML = (("<", "\\u003c"), (">", "\\u003e"), ("&", "\\u0026"), ("\u2028", "\\u2028"), ("\u2029", "\\u2029"))


def go_json(value: Any) -> str:
    """Return compact JSON as Go's encoder writes it: keys in their order, ``<``, ``>`` and ``&`` escaped."""
    text = encode_in_order(value).decode()
    for char, escape in _HTML:
        text = text.replace(char, escape)
    return text


def _plain(zero: Any) -> Render:
    return lambda value: zero if value is None else value


def _sorted(value: Any) -> Any:
    """Return a JSON value with the keys of its maps in order, as Go writes them."""
    if isinstance(value, Mapping):
        return {name: _sorted(value[name]) for name in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value


_POINTER: Render = _plain(None)
_TEXT: Render = _plain("")
_FLAG: Render = _plain(False)
_NUMBER: Render = _plain(0)


def _many(render: Render) -> Render:
    return lambda value: None if value is None else [render(item) for item in value]


def _by_name(render: Render) -> Render:
    return lambda value: None if value is None else {name: render(value[name]) for name in sorted(value)}


def _struct(*members: tuple[str, str, Render]) -> Render:
    def render(value: Any) -> Any:
        return {go: show(value.get(name)) for go, name, show in members}

    return render


def _optional(render: Render) -> Render:
    return lambda value: None if value is None else render(value)


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


_RULE = _struct(
    ("Rule", "rule", _TEXT),
    ("Message", "message", _TEXT),
    ("MessageExpression", "messageExpression", _TEXT),
    ("Reason", "reason", _POINTER),
    ("FieldPath", "fieldPath", _TEXT),
    ("OptionalOldSelf", "optionalOldSelf", _POINTER),
)
_SCHEMA: tuple[tuple[str, str, Render], ...] = (
    ("ID", "id", _TEXT),
    ("Schema", "$schema", _TEXT),
    ("Ref", "$ref", _POINTER),
    ("Description", "description", _TEXT),
    ("Type", "type", _TEXT),
    ("Nullable", "nullable", _FLAG),
    ("Format", "format", _TEXT),
    ("Title", "title", _TEXT),
    ("Default", "default", _sorted),
    ("Maximum", "maximum", _POINTER),
    ("ExclusiveMaximum", "exclusiveMaximum", _FLAG),
    ("Minimum", "minimum", _POINTER),
    ("ExclusiveMinimum", "exclusiveMinimum", _FLAG),
    ("MaxLength", "maxLength", _POINTER),
    ("MinLength", "minLength", _POINTER),
    ("Pattern", "pattern", _TEXT),
    ("MaxItems", "maxItems", _POINTER),
    ("MinItems", "minItems", _POINTER),
    ("UniqueItems", "uniqueItems", _FLAG),
    ("MultipleOf", "multipleOf", _POINTER),
    ("Enum", "enum", _many(_sorted)),
    ("MaxProperties", "maxProperties", _POINTER),
    ("MinProperties", "minProperties", _POINTER),
    ("Required", "required", _many(_TEXT)),
    ("Items", "items", _or_list("JSONSchemas", internal_schema)),
    ("AllOf", "allOf", _many(internal_schema)),
    ("OneOf", "oneOf", _many(internal_schema)),
    ("AnyOf", "anyOf", _many(internal_schema)),
    ("Not", "not", _optional(internal_schema)),
    ("Properties", "properties", _by_name(internal_schema)),
    ("AdditionalProperties", "additionalProperties", _or_bool),
    ("PatternProperties", "patternProperties", _by_name(internal_schema)),
    ("Dependencies", "dependencies", _by_name(_or_list("Property", _TEXT))),
    ("AdditionalItems", "additionalItems", _or_bool),
    ("Definitions", "definitions", _by_name(internal_schema)),
    (
        "ExternalDocs",
        "externalDocs",
        _optional(_struct(("Description", "description", _TEXT), ("URL", "url", _TEXT))),
    ),
    ("Example", "example", _sorted),
    ("XPreserveUnknownFields", "x-kubernetes-preserve-unknown-fields", _POINTER),
    ("XEmbeddedResource", "x-kubernetes-embedded-resource", _FLAG),
    ("XIntOrString", "x-kubernetes-int-or-string", _FLAG),
    ("XListMapKeys", "x-kubernetes-list-map-keys", _many(_TEXT)),
    ("XListType", "x-kubernetes-list-type", _POINTER),
    ("XMapType", "x-kubernetes-map-type", _POINTER),
    ("XValidations", "x-kubernetes-validations", _many(_RULE)),
)
SCHEMA_FIELDS = tuple((go, name) for go, name, _ in _SCHEMA)
"""Go name and JSON name of each schema field, in Go's order."""

_SCALE = _struct(
    ("SpecReplicasPath", "specReplicasPath", _TEXT),
    ("StatusReplicasPath", "statusReplicasPath", _TEXT),
    ("LabelSelectorPath", "labelSelectorPath", _POINTER),
)
_COLUMN = _struct(
    ("Name", "name", _TEXT),
    ("Type", "type", _TEXT),
    ("Format", "format", _TEXT),
    ("Description", "description", _TEXT),
    ("Priority", "priority", _NUMBER),
    ("JSONPath", "JSONPath", _TEXT),
)
_VERSION = _struct(
    ("Name", "name", _TEXT),
    ("Served", "served", _FLAG),
    ("Storage", "storage", _FLAG),
    ("Deprecated", "deprecated", _FLAG),
    ("DeprecationWarning", "deprecationWarning", _POINTER),
    (
        "Schema",
        "schema",
        _optional(_struct(("OpenAPIV3Schema", "openAPIV3Schema", _optional(internal_schema)))),
    ),
    (
        "Subresources",
        "subresources",
        _optional(_struct(("Status", "status", _optional(_struct())), ("Scale", "scale", _optional(_SCALE)))),
    ),
    ("AdditionalPrinterColumns", "additionalPrinterColumns", _many(_COLUMN)),
    ("SelectableFields", "selectableFields", _many(_struct(("JSONPath", "jsonPath", _TEXT)))),
)


def versions_text(versions: Any) -> str:
    """Return the JSON of ``spec.versions`` of the stored form: null when it was never given."""
    return go_json(None if versions is None else [_VERSION(version) for version in versions])


def schema_text(schema: View) -> str:
    """Return the JSON of a schema."""
    return go_json(internal_schema(schema))
