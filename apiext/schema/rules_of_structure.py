"""Validate that a schema is structural (STR-001…012)."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from apiext.documents.document import View
from apiext.meta.fields import FieldError, child, first_by_text, forbidden, invalid, item, required
from apiext.schema.patterns import refusal
from apiext.schema.traverse import is_set

_EMBEDDED = "x-kubernetes-embedded-resource"
_PRESERVE = "x-kubernetes-preserve-unknown-fields"
_EITHER = "x-kubernetes-int-or-string"
_EMPTY_TYPE = {
    "root": "must not be empty at the root",
    "items": "must not be empty for specified array items",
    "field": "must not be empty for specified object fields",
}
_INT_OR_STRING = [{"type": "integer"}, {"type": "string"}]
_PLAIN = frozenset((
    "type", "description", "title", "format", "nullable", "default", "example", "enum", "maximum", "minimum",
    "exclusiveMaximum", "exclusiveMinimum", "multipleOf", "maxLength", "minLength", "maxItems", "minItems",
    "maxProperties", "minProperties", "required", "externalDocs", "x-kubernetes-list-type",
    "x-kubernetes-list-map-keys", "x-kubernetes-map-type", "x-kubernetes-validations",
))  # fmt: skip
"""Keywords that are always valid in a structural schema with a type other than array, outside of junctors.

The junctors are allOf, anyOf, oneOf and not.
"""


def errors(schema: View, path: str) -> list[FieldError]:
    """Return the structural violations of a schema, sorted by text (STR-011).

    Call it only if ``unsupported`` returned "". Return at most one error more than fits into a response.
    """
    return first_by_text(_errors(schema, path))


def _errors(schema: View, path: str) -> Iterator[FieldError]:
    # The stack contains iterators, since a list of all nodes with their paths would need much memory.
    stack = [iter([(schema, path, "root")])]
    while stack:
        for node, where, level in stack[-1]:
            for rule in _RULES:
                yield from rule(node, where, level)
            stack.append(_inside(node, where))
            break
        else:
            stack.pop()
    yield from _completeness(schema, schema, path, path)


def is_structural(schema: View) -> bool:
    """Return whether a schema is structural."""
    return not unsupported(schema) and next(_errors(schema, ""), None) is None


def _inside(node: View, path: str) -> Iterator[tuple[View, str, str]]:
    if isinstance(node.get("items"), Mapping):
        yield node["items"], child(path, "items"), "items"
    base = child(path, "properties")
    for name, schema in (node.get("properties") or {}).items():
        kind = schema.get("type") if schema else None
        if not (kind and kind != "array" and schema.keys() <= _PLAIN):
            yield schema or {}, item(base, name), "field"
    if isinstance(node.get("additionalProperties"), Mapping):
        yield node["additionalProperties"], child(path, "additionalProperties"), "field"


def _types(node: View, path: str, level: str) -> Iterator[FieldError]:
    kind = node.get("type") or ""
    where = child(path, "type")
    if kind == "array" and node.get("items") is None:
        yield required(child(path, "items"), "must be specified")
    if node.get(_EMBEDDED) and kind != "object":
        text = "must be object if x-kubernetes-embedded-resource is true"
        yield invalid(where, kind, text) if kind else required(where, text)
    elif not kind and not node.get(_EITHER) and not node.get(_PRESERVE):
        yield required(where, _EMPTY_TYPE[level])
    if level == "root" and kind and kind != "object":
        yield invalid(where, kind, "must be object at the root")


def _forms(node: View, path: str, level: str) -> Iterator[FieldError]:
    additional = node.get("additionalProperties")
    where = child(path, "additionalProperties")
    if additional is not None and level == "root":
        yield forbidden(where, "must not be used at the root")
    if node.get(_EITHER):
        for name in (_PRESERVE, _EMBEDDED):
            if node.get(name):
                yield invalid(child(path, name), True, "must be false if x-kubernetes-int-or-string is true")
    if node.get(_EMBEDDED):
        if additional is not None:
            yield forbidden(where, "must not be used if x-kubernetes-embedded-resource is set")
        if not node.get(_PRESERVE) and not node.get("properties"):
            text = f"must not be empty if {_EMBEDDED} is true without {_PRESERVE}"
            yield required(child(path, "properties"), text)


def _metadata(node: View, path: str, level: str) -> Iterator[FieldError]:
    properties = node.get("properties") or {}
    resource = level == "root" or node.get(_EMBEDDED)
    base = child(path, "properties")
    for name, wanted in (("kind", "string"), ("apiVersion", "string"), ("metadata", "object")):
        kind = (properties.get(name) or {}).get("type") or ""
        if name in properties and resource and kind != wanted:
            yield invalid(child(item(base, name), "type"), kind, f"must be {wanted}")
    if level == "root" and "metadata" in properties:
        metadata = properties["metadata"] or {}
        members = metadata.get("properties") or {}
        named = not members or members.keys() <= {"name", "generateName"}
        more = [name for name, value in metadata.items() if name not in _METADATA and _has_effect(name, value)]
        if not named or more:
            text = "must not specify anything other than name and generateName, but metadata is implicitly specified"
            yield forbidden(item(base, "metadata"), text)


_METADATA = frozenset(("type", "default", "properties"))
_HELD = frozenset((
    "items", "not", "example", "externalDocs", "required", "x-kubernetes-list-map-keys", "x-kubernetes-list-type",
    "x-kubernetes-map-type", "x-kubernetes-validations",
))  # fmt: skip


def _has_effect(name: str, value: Any) -> bool:
    """Return whether a keyword affects the structural form.

    Some keywords do so even if they are empty.
    """
    return is_set(value) or name == "additionalProperties" or (name in _HELD and value is not None)


def _values(node: View, path: str, level: str) -> Iterator[FieldError]:
    yield from _value_rules(node, path, _is_int_or_string(node), _starts_int_or_string(node))


_RULES: tuple[Callable[[View, str, str], Iterator[FieldError]], ...] = (_types, _forms, _metadata, _values)


def _is_int_or_string(node: View) -> bool:
    branches = node.get("anyOf") or []
    return len(branches) == 2 and [_set_only(branch) for branch in branches] == _INT_OR_STRING


def _starts_int_or_string(node: View) -> bool:
    branches = node.get("allOf") or []
    return bool(branches) and _is_int_or_string(branches[0])


def _set_only(node: View) -> dict[str, Any]:
    return {
        name: value
        for name, value in node.items()
        if _has_effect(name, value) or (name == "properties" and value is not None)
    }


def _value_rules(node: View, path: str, skip_any: bool, skip_first: bool) -> Iterator[FieldError]:
    """Yield the violations of a node's allOf, anyOf, oneOf, not and pattern.

    ``skip_any`` is true if the anyOf is the allowed form of int-or-string. ``skip_first`` is true if the first branch
    of allOf has this anyOf (STR-007).
    """
    for name, index, branch in _branches(node):
        where = child(path, name) if index is None else item(child(path, name), index)
        if name == "anyOf" and skip_any:
            continue
        yield from _nested(branch, where, name == "allOf" and index == 0 and skip_first)
    pattern = node.get("pattern")
    if pattern and (reason := refusal(pattern)):
        text = f"must be a valid regular expression, but isn't: {reason}"
        yield invalid(child(path, "pattern"), pattern, text)


def _branches(node: View) -> Iterator[tuple[str, int | None, View]]:
    for name in ("anyOf", "allOf", "oneOf"):
        for index, branch in enumerate(node.get(name) or ()):
            yield name, index, branch or {}
    if node.get("not") is not None:
        yield "not", None, node["not"]


_FORBIDDEN: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
    ("type", bool, "must be empty to be structural"),
    (
        "additionalProperties",
        lambda value: value is not None and value is not False,
        "must be undefined to be structural",
    ),
    ("default", lambda value: value is not None, "must be undefined to be structural"),
    ("title", bool, "must be empty to be structural"),
    ("description", bool, "must be empty to be structural"),
    ("nullable", bool, "must be false to be structural"),
    (_PRESERVE, bool, "must be false to be structural"),
    (_EMBEDDED, bool, "must be false to be structural"),
    (_EITHER, bool, "must be false to be structural"),
    ("x-kubernetes-list-map-keys", bool, "must be empty to be structural"),
    ("x-kubernetes-list-type", lambda value: value is not None, "must be undefined to be structural"),
    ("x-kubernetes-map-type", lambda value: value is not None, "must be undefined to be structural"),
    ("x-kubernetes-validations", bool, "must be empty to be structural"),
)


def _nested(node: View, path: str, skip_any: bool) -> Iterator[FieldError]:
    """Yield the violations of a schema inside allOf, anyOf, oneOf or not (STR-005)."""
    yield from _value_rules(node, path, skip_any, False)
    for name, broken, text in _FORBIDDEN:
        if name in node and broken(node[name]):
            yield forbidden(child(path, name), text)
    if isinstance(node.get("items"), Mapping):
        yield from _nested(node["items"], child(path, "items"), False)
    base = child(path, "properties")
    for name, schema in (node.get("properties") or {}).items():
        yield from _nested(schema or {}, item(base, name), False)
        if name == "metadata":
            yield forbidden(item(base, name), "must not be specified in a nested context")


def _completeness(node: View, outside: View, path: str, junctor: str) -> Iterator[FieldError]:
    """Yield an error for each field or ``items`` that exists only inside junctors (STR-006)."""
    for name, index, branch in _branches(node):
        where = child(junctor, name) if index is None else item(child(junctor, name), index)
        yield from _covered(branch, outside, path, where)


def _covered(node: View, outside: Any, path: str, junctor: str) -> Iterator[FieldError]:
    if not isinstance(outside, Mapping):
        yield required(path, f"because it is defined in {junctor}")
        return
    yield from _completeness(node, outside, path, junctor)
    if isinstance(node.get("items"), Mapping):
        yield from _covered(node["items"], outside.get("items"), child(path, "items"), child(junctor, "items"))
    properties = outside.get("properties") or {}
    for name, schema in (node.get("properties") or {}).items():
        where, inside = item(child(path, "properties"), name), item(child(junctor, "properties"), name)
        yield from _covered(schema or {}, (properties[name] or {}) if name in properties else None, where, inside)


_UNSUPPORTED: tuple[tuple[str, str, Callable[[Any], bool]], ...] = (
    ("id", "id", bool),
    ("$schema", "schema", bool),
    ("$ref", "$ref", bool),
    ("patternProperties", "patternProperties", bool),
    ("dependencies", "dependencies", bool),
    ("additionalItems", "additionalItems", lambda value: value is not None),
    ("definitions", "definitions", bool),
)


def unsupported(schema: View) -> str:
    """Return the reason why a schema has no structural form, or an empty string (STR-012)."""
    stack: list[Any] = [schema]
    while stack:
        node = stack.pop()
        if not isinstance(node, Mapping):
            continue
        if reason := unsupported_here(node):
            return reason
        stack += inner(node)
    return ""


def unsupported_here(node: View) -> str:
    """Return the reason why a schema has no structural form, or an empty string.

    Ignore inner schemas.
    """
    for name, shown, given in _UNSUPPORTED:
        if name in node and given(node[name]):
            return f"OpenAPIV3Schema '{shown}' is not supported"
    if node.get(_PRESERVE) is False:
        return "internal error: 'x-kubernetes-preserve-unknown-fields' must be true or undefined"
    if isinstance(node.get("items"), list) and node["items"]:
        return "OpenAPIV3Schema 'items' must be a schema, but is an array"
    return ""


def inner(node: View) -> list[Any]:
    """Return the inner schemas that are part of a structural form.

    The caller must ignore values other than objects.
    """
    below = [*(node.get("properties") or {}).values(), node.get("items"), node.get("additionalProperties")]
    return below + [branch for _, _, branch in _branches(node)]
