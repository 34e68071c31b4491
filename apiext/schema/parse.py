"""Parse a JSONSchemaProps document of apiextensions v1 into structural nodes."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from apiext.documents.document import View
from apiext.schema import formats
from apiext.schema.structural import EMPTY, Rule, Structural, intern


def parse(schema: View | None, *, strip_formats: bool = True) -> Structural:
    """Return the structural form of a schema document, or of the empty schema for None.

    The document must be the result of decoding a definition by its Go types. Omit formats without effect on values.
    Keep them if ``strip_formats`` is false, as upstream does when it validates defaults (VAL-005).
    """
    return _node(schema or {}, strip_formats)


def _node(schema: View, strip: bool) -> Structural:
    values: dict[str, Any] = {}
    for name, value in schema.items():
        row = _KEYWORDS.get(name)
        if row is not None and value is not None:
            target, read = row
            values[target] = read(value, strip)
    text = values.get("format")
    if text and strip and not formats.has_effect(_types(values), text):
        del values["format"]
    return intern(**values)


def _members(properties: View, strip: bool) -> Mapping[str, Structural]:
    found: dict[str, Structural] = {}
    for name, schema in properties.items():
        found[name] = _node(schema or {}, strip)
    return MappingProxyType(found) if found else EMPTY


def _branches(schemas: Sequence[View], strip: bool) -> tuple[Structural, ...]:
    return tuple([_node(schema or {}, strip) for schema in schemas])


def _below(schema: Any, strip: bool) -> Structural | None:
    return _node(schema, strip) if isinstance(schema, Mapping) else None


def _map_values(schema: Any, strip: bool) -> Structural | bool:
    return _node(schema, strip) if isinstance(schema, Mapping) else bool(schema)


def _as_is(value: Any, _: bool) -> Any:
    return value


def _float(value: Any, _: bool) -> float:
    return float(value)


def _tuple(value: Sequence[Any], _: bool) -> tuple[Any, ...]:
    return tuple(value)


def _rules(rules: Sequence[View], _: bool) -> tuple[Rule, ...]:
    return tuple([_rule(rule) for rule in rules])


def _rule(rule: View) -> Rule:
    return Rule(
        rule=rule.get("rule") or "",
        message=rule.get("message") or "",
        message_expression=rule.get("messageExpression") or "",
        reason=rule.get("reason"),
        field_path=rule.get("fieldPath") or "",
        optional_old_self=rule.get("optionalOldSelf"),
    )


_KEYWORDS: Mapping[str, tuple[str, Callable[[Any, bool], Any]]] = {
    "type": ("type", _as_is),
    "nullable": ("nullable", _as_is),
    "x-kubernetes-int-or-string": ("int_or_string", _as_is),
    "x-kubernetes-preserve-unknown-fields": ("preserve", _as_is),
    "x-kubernetes-embedded-resource": ("embedded", _as_is),
    "x-kubernetes-list-type": ("list_type", _as_is),
    "x-kubernetes-list-map-keys": ("list_keys", _tuple),
    "x-kubernetes-map-type": ("map_type", _as_is),
    "properties": ("properties", _members),
    "additionalProperties": ("additional", _map_values),
    "items": ("items", _below),
    "default": ("default", _as_is),
    "enum": ("enum", _tuple),
    "format": ("format", _as_is),
    "maximum": ("maximum", _float),
    "exclusiveMaximum": ("exclusive_maximum", _as_is),
    "minimum": ("minimum", _float),
    "exclusiveMinimum": ("exclusive_minimum", _as_is),
    "multipleOf": ("multiple_of", _float),
    "maxLength": ("max_length", _as_is),
    "minLength": ("min_length", _as_is),
    "pattern": ("pattern", _as_is),
    "maxItems": ("max_items", _as_is),
    "minItems": ("min_items", _as_is),
    "maxProperties": ("max_properties", _as_is),
    "minProperties": ("min_properties", _as_is),
    "required": ("required", _tuple),
    "allOf": ("all_of", _branches),
    "anyOf": ("any_of", _branches),
    "oneOf": ("one_of", _branches),
    "not": ("not_", _below),
    "x-kubernetes-validations": ("rules", _rules),
}
"""Keyword → (field of a node, function that converts the value)."""


def _types(values: Mapping[str, Any]) -> tuple[str, ...]:
    if values.get("int_or_string"):
        return ("integer", "string")
    return (values["type"],) if values.get("type") else ()
