"""Nested values of a document, found by a path of field names.

Errors are those of upstream's package unstructured.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from apiext.documents import limits as documents_limits
from apiext.documents.document import Document, View
from apiext.meta.fields import go_print

_GO_TYPES: Mapping[type, str] = {
    str: "string",
    bool: "bool",
    int: "int64",
    float: "float64",
    dict: "map[string]interface {}",
    list: "[]interface {}",
    type(None): "<nil>",
}


class AccessorError(ValueError):
    """A value on the path has the wrong type; the message is upstream's."""


def split_path(path: str) -> tuple[str, ...]:
    """Return the field names of a scale path: ``.spec.replicas`` → (spec, replicas).

    Brackets have no meaning: they are part of a name.
    """
    return tuple(path.removeprefix(".").split("."))


def nested(document: View, fields: Sequence[str], expected: type) -> Any:
    """Return the value at the path; raise AccessorError for a value of a wrong type (SRV-009).

    Return None if the value or an object above it is absent, or if an object above it is null. A null at the end of the
    path has a wrong type.
    """
    value: Any = document
    for index, name in enumerate(fields):
        if value is None:
            return None
        if not isinstance(value, Mapping):
            raise _wrong(fields[: index + 1], value, "map[string]interface{}")
        if name not in value:
            return None
        value = value[name]
    if value.__class__ is not expected:
        raise _wrong(fields, value, _GO_TYPES[expected])
    return value


def with_nested(document: View, fields: Sequence[str], value: Any) -> Document:
    """Return a copy of the document with this value at the path.

    It copies only the maps on the path. Raises AccessorError if a value on the path is not a map; null is not a map.
    Raises ValueError if the path is longer than documents.limits.MAX_DEPTH.
    """
    if len(fields) > documents_limits.MAX_DEPTH:
        raise ValueError(f"value cannot be set because it is nested deeper than {documents_limits.MAX_DEPTH} levels")
    made = inner = {**document}
    for index, name in enumerate(fields[:-1]):
        below = inner.get(name, {})
        if not isinstance(below, Mapping):
            path = ".".join(fields[: index + 1])
            raise AccessorError(f"value cannot be set because .{path} is not a map[string]interface{{}}")
        inner[name] = {**below}
        inner = inner[name]
    inner[fields[-1]] = value
    return made


def _wrong(fields: Sequence[str], value: Any, expected: str) -> AccessorError:
    path = "".join(f".{name}" for name in fields)
    found = _GO_TYPES.get(value.__class__, value.__class__.__name__)
    return AccessorError(f"{path} accessor error: {go_print(value)} is of the type {found}, expected {expected}")
