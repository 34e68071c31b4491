"""Iterate over all schemas inside a schema document, below every keyword."""

from collections.abc import Iterator, Mapping
from typing import Any

from apiext.documents.document import View
from apiext.schema import limits

_ONE = ("not", "items", "additionalProperties", "additionalItems")
_MANY = ("allOf", "anyOf", "oneOf", "items")
_NAMED = ("properties", "patternProperties", "definitions", "dependencies")


_INNER = frozenset((*_ONE, *_MANY, *_NAMED))


def subschemas(schema: View | None) -> Iterator[View]:
    """Yield the schema and every schema inside it (SCH-014)."""
    stack: list[Any] = [schema]
    while stack:
        found = stack.pop()
        if not isinstance(found, Mapping):
            continue
        yield found
        if _INNER.isdisjoint(found):
            continue
        stack.extend(found.get(name) for name in _ONE)
        for name in _MANY:
            if isinstance(found.get(name), list):
                stack.extend(found[name])
        for name in _NAMED:
            if isinstance(found.get(name), Mapping):
                stack.extend(found[name].values())


def too_deep(schema: View) -> bool:
    """Return whether objects and arrays are nested deeper than MAX_SCHEMA_NESTING."""
    level: list[Any] = [schema]
    for _ in range(limits.MAX_SCHEMA_NESTING):
        below: list[Any] = []
        for found in level:
            parts = found.values() if isinstance(found, Mapping) else found
            below.extend(part for part in parts if part.__class__ is dict or part.__class__ is list)
        if not below:
            return False
        level = below
    return True


def is_set(value: Any) -> bool:
    """Return whether the value of a keyword counts as set: it is not null, false, or empty."""
    return value is not None and value is not False and value not in ("", [], {})
