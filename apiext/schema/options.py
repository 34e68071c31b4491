"""Options for the checks of a definition (UPD-002).

An update skips checks that the stored definition fails.
"""

from collections.abc import Iterable

from msgspec import Struct

from apiext.documents.document import View
from apiext.schema.traverse import subschemas

TYPES = ("array", "boolean", "integer", "number", "object", "string")
_EXTENSIONS = (
    "x-kubernetes-embedded-resource",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-validations",
)
_MARKS = ("x-kubernetes-preserve-unknown-fields", "x-kubernetes-list-type")


class Options(Struct, frozen=True):
    """The checks of a definition; all are enabled for a new definition.

    ``limited_rules`` is false for an unchanged schema. Then the total cost of its rules is limited, but not their
    number, their text, the cost of one rule, or the patterns of the schema. ``known_expressions`` are the expressions
    of the stored definition; they may use functions that new expressions may not use (UPD-003).
    """

    structural: bool = True
    valid_types: bool = True
    pruned_defaults: bool = True
    atomic_sets: bool = True
    map_keys: bool = True
    limited_rules: bool = True
    known_expressions: frozenset[str] = frozenset()


STRICT = Options()


def has_defaults(schema: View | None) -> bool:
    """Return whether a schema has a default anywhere (CRD-028, STR-001)."""
    return any(found.get("default") is not None for found in subschemas(schema))


def has_extensions(schema: View | None) -> bool:
    """Return whether a schema uses an extension that requires structural schemas (STR-001)."""
    return any(
        any(found.get(name) for name in _EXTENSIONS) or any(found.get(name) is not None for name in _MARKS)
        for found in subschemas(schema)
    )


def has_invalid_types(schemas: Iterable[View | None]) -> bool:
    """Return whether any schema or schema inside it has an unknown type."""
    return any(found.get("type") and found["type"] not in TYPES for schema in schemas for found in subschemas(schema))


def has_rules(schema: View | None) -> bool:
    """Return whether a schema has rules (x-kubernetes-validations) anywhere."""
    return any(found.get("x-kubernetes-validations") for found in subschemas(schema))


def expressions(schemas: Iterable[View | None]) -> frozenset[str]:
    """Return the expressions of all rules of the schemas (UPD-003)."""
    found: set[str] = set()
    for schema in schemas:
        for node in subschemas(schema):
            for rule in node.get("x-kubernetes-validations") or ():
                found.update(text for text in (rule.get("rule"), rule.get("messageExpression")) if text)
    return frozenset(found)
