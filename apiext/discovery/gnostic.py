"""Common code of the protobuf forms of OpenAPI v2 and v3.

Both forms use the message types of the library gnostic.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from apiext.documents.document import View
from apiext.system.descriptors import class_of, pool_of

METHODS = ("get", "put", "post", "delete", "patch")
PLAIN: Mapping[str, str] = {  # keyword of a schema → field of the message
    "format": "format",
    "title": "title",
    "description": "description",
    "multipleOf": "multiple_of",
    "maximum": "maximum",
    "exclusiveMaximum": "exclusive_maximum",
    "minimum": "minimum",
    "exclusiveMinimum": "exclusive_minimum",
    "maxLength": "max_length",
    "minLength": "min_length",
    "pattern": "pattern",
    "maxItems": "max_items",
    "minItems": "min_items",
    "uniqueItems": "unique_items",
    "maxProperties": "max_properties",
    "minProperties": "min_properties",
}
Setter = Callable[[Any, Any], None]
"""(message, value): sets the value of a keyword in a message."""
Keywords = Mapping[str, Setter]
_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1


def message_class(file: str, name: str) -> Any:
    """Return the class of a message from the descriptor set ``pb/<file>``."""
    pool = pool_of(Path(__file__).parent / "pb" / file)
    return class_of(pool.FindMessageTypeByName(name))


def set_plain(message: Any, keyword: str, value: Any) -> None:
    """Set the field of a keyword in PLAIN.

    Clamp minimum and maximum sizes to the range of int64.
    """
    field = PLAIN[keyword]
    if field.startswith(("min_", "max_")):
        value = max(_INT64_MIN, min(int(value), _INT64_MAX))
    setattr(message, field, value)


def set_extensions(entries: Any, values: View) -> None:
    """Add the values whose names begin with ``x-``."""
    for name, value in values.items():
        if name.startswith("x-"):
            entries.add(name=name).value.yaml = _yaml(value)


def set_external_docs(message: Any, value: View) -> None:
    """Set a reference to external documentation."""
    message.external_docs.SetInParent()
    message.external_docs.description = value.get("description") or ""
    message.external_docs.url = value.get("url") or ""


def set_keywords(message: Any, schema: View, nested: Keywords) -> None:
    """Set the fields of a message for the keywords of a schema.

    The keywords are those in PLAIN, and those with a setter in ``nested``.
    """
    for keyword, value in schema.items():
        if keyword in PLAIN:
            set_plain(message, keyword, value)
        elif keyword in nested:
            nested[keyword](message, value)


def _set_required(message: Any, names: list[str]) -> None:
    message.required.extend(names)


def _set_enum(message: Any, values: list[Any]) -> None:
    for value in values:
        message.enum.add(yaml=_yaml(value))


def _set_example(message: Any, value: Any) -> None:
    message.example.yaml = _yaml(value)


def _yaml(value: Any) -> str:
    # imported here, since only a thread that encodes a document needs it (decision 36)
    from apiext.documents.yaml_text import yaml_in_order

    return yaml_in_order(value)


COMMON: Keywords = {
    "required": _set_required,
    "enum": _set_enum,
    "example": _set_example,
    "externalDocs": set_external_docs,
}
"""Setters of keywords that have the same form in OpenAPI v2 and v3."""


def properties_by(schema: Setter) -> Setter:
    """Return the setter of the keyword ``properties``. ``schema`` is the setter of one schema."""

    def set_properties(message: Any, properties: Mapping[str, View]) -> None:
        message.properties.SetInParent()
        for name in sorted(properties):
            schema(message.properties.additional_properties.add(name=name).value, properties[name])

    return set_properties
