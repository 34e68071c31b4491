"""Validate every node of a definition's schema, structural or not (SCH-001…014)."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from apiext.documents.document import View
from apiext.meta.fields import (
    INVALID,
    FieldError,
    as_many_as_shown,
    child,
    forbidden,
    invalid,
    item,
    not_supported,
    required,
)
from apiext.schema.field_paths import PathError, follow
from apiext.schema.forms import Forms
from apiext.schema.internal_text import items_text
from apiext.schema.options import STRICT, TYPES, Options
from apiext.schema.structural import META_FIELDS, Structural

_SUSPECT = frozenset((
    "default", "id", "additionalItems", "patternProperties", "definitions", "dependencies", "$ref", "uniqueItems",
    "additionalProperties", "items", "x-kubernetes-preserve-unknown-fields", "x-kubernetes-embedded-resource",
    "x-kubernetes-map-type", "x-kubernetes-list-type", "x-kubernetes-list-map-keys", "x-kubernetes-validations",
))  # fmt: skip
"""Keywords that can cause a violation, that is, an error of a function in ``_RULES``.

A node without these keywords and with a known type has no violation.
"""

_LEAF = frozenset((
    "type", "description", "title", "format", "nullable", "example", "enum", "maximum", "minimum", "maxLength",
    "minLength", "pattern", "required",
))  # fmt: skip
"""Keywords that contain no schema. Only ``type`` can cause a violation, if the type is unknown."""

_FINE_TYPES = frozenset(("", None, *TYPES))
_REASONS = ("FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired")
_NEWLINE = re.compile(r"[\n\r]")
_LIST_TYPE, _MAP_TYPE = "x-kubernetes-list-type", "x-kubernetes-map-type"
_KEYS = "x-kubernetes-list-map-keys"


class _Context(Struct, frozen=True):
    """The context of a node.

    ``no_defaults`` is the reason why a default is not allowed, or empty. ``in_metadata`` is true inside apiVersion,
    kind and metadata of the root and of embedded resources. ``forms`` is the cache of structural forms for the whole
    document.
    """

    forms: Forms
    no_defaults: str = ""
    in_metadata: bool = False


def errors(schema: View, path: str, options: Options = STRICT, broken: list[str] | None = None) -> list[FieldError]:
    """Return the violations of all nodes.

    The errors of a node precede the errors of the schemas inside it. Return at most one error more than fits into a
    response. Append the path of each node with a returned error to ``broken``; the path of the error itself may be
    longer.
    """
    return list(as_many_as_shown(_errors(schema, path, options, [] if broken is None else broken)))


def _errors(schema: View, path: str, options: Options, broken: list[str]) -> Iterator[FieldError]:
    first: tuple[Any, str, _Context, bool] = (schema, path, _Context(Forms()), True)
    stack = [iter([first])]  # contains iterators, since a list of all nodes with paths would need much memory
    while stack:
        for node, where, context, root in stack[-1]:
            if not isinstance(node, Mapping):
                continue
            if not (_SUSPECT.isdisjoint(node) and node.get("type") in _FINE_TYPES):
                fine = True
                for rule in _RULES:
                    for error in rule(node, where, context, options):
                        if fine:
                            broken.append(where)
                            fine = False
                        yield error
            stack.append(_inside(node, where, context, root))
            break
        else:
            stack.pop()


def _inside(node: View, path: str, context: _Context, root: bool) -> Iterator[tuple[Any, str, _Context, bool]]:
    """Yield (schema, path, context, is root) of each schema directly inside a node.

    Omit properties that cannot cause a violation. The caller must ignore yielded values that are not schemas.
    """
    if isinstance(node.get("additionalProperties"), Mapping):
        below = context
        if context.in_metadata:
            below = replace(context, no_defaults="inside additionalProperties applying to object metadata")
        yield node["additionalProperties"], child(path, "additionalProperties"), below, False
    base = child(path, "properties")
    for name, schema in (node.get("properties") or {}).items():
        if schema and schema.keys() <= _LEAF and schema.get("type") in _FINE_TYPES:
            continue
        below = context
        if name in META_FIELDS and (root or node.get("x-kubernetes-embedded-resource")):
            reason = f"in top-level {name}" if root else context.no_defaults
            below = _Context(context.forms, reason, in_metadata=True)
        yield schema, item(base, name), below, False
    yield node.get("not"), child(path, "not"), context, False
    for name in ("allOf", "oneOf", "anyOf", "items"):
        if isinstance(node.get(name), list):
            for index, schema in enumerate(node[name]):
                yield schema, item(child(path, name), index), context, False
    yield node.get("items"), child(path, "items"), context, False
    for name in ("definitions", "dependencies"):
        for key, schema in (node.get(name) or {}).items():
            yield schema, item(child(path, name), key), context, False


def _standard(node: View, path: str, context: _Context, options: Options) -> Iterator[FieldError]:
    kind = node.get("type")
    if options.valid_types and kind and kind not in TYPES:
        yield not_supported(child(path, "type"), kind, TYPES)
    if node.get("default") is not None and context.no_defaults:
        yield forbidden(child(path, "default"), f"must not be set {context.no_defaults}")
    for name, broken in _UNSUPPORTED.items():
        if name in node and broken(node[name]):
            yield forbidden(child(path, name), f"{name} is not supported")
    if kind == "null":
        yield forbidden(child(path, "type"), "type cannot be set to null, use nullable as an alternative")
    if isinstance(node.get("items"), list) and node["items"]:
        yield forbidden(child(path, "items"), "items must be a schema object and not an array")
    if context.in_metadata and node.get("x-kubernetes-embedded-resource"):
        yield forbidden(child(path, "x-kubernetes-embedded-resource"), "must not be used inside of resource meta")


def _given(value: Any) -> bool:
    return value is not None


_UNSUPPORTED: Mapping[str, Callable[[Any], bool]] = {
    "id": bool,
    "additionalItems": _given,
    "patternProperties": bool,
    "definitions": bool,
    "dependencies": _given,
    "$ref": _given,
}


def _forms(node: View, path: str, context: _Context, options: Options) -> Iterator[FieldError]:
    if node.get("uniqueItems"):
        text = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        yield forbidden(child(path, "uniqueItems"), text)
    additional = node.get("additionalProperties")
    if additional is not None and additional is not True and node.get("properties"):
        yield forbidden(child(path, "additionalProperties"), "additionalProperties and properties are mutual exclusive")
    if node.get("x-kubernetes-preserve-unknown-fields") is False:
        yield invalid(child(path, "x-kubernetes-preserve-unknown-fields"), False, "must be true or undefined")


def _map_type(node: View, path: str, context: _Context, options: Options) -> Iterator[FieldError]:
    map_type = node.get(_MAP_TYPE)
    if map_type is None:
        return
    yield from _wrong_type(node, path, "object", _MAP_TYPE)
    if map_type not in ("atomic", "granular"):
        yield not_supported(child(path, _MAP_TYPE), map_type, ("atomic", "granular"))


def _wrong_type(node: View, path: str, wanted: str, keyword: str) -> Iterator[FieldError]:
    kind = node.get("type") or ""
    text = f"must be {wanted} if {keyword} is specified"
    if not kind:
        yield required(child(path, "type"), text)
    elif kind != wanted:
        yield invalid(child(path, "type"), kind, text)


def _list_type(node: View, path: str, context: _Context, options: Options) -> Iterator[FieldError]:
    list_type, keys = node.get(_LIST_TYPE), node.get(_KEYS) or []
    if list_type is not None:
        wrong = list(_wrong_type(node, path, "array", _LIST_TYPE))
        yield from wrong or (non_atomic_items(node, path) if options.atomic_sets else ())
        if list_type not in ("atomic", "set", "map"):
            yield not_supported(child(path, _LIST_TYPE), list_type, ("atomic", "set", "map"))
    if keys and list_type != "map":
        text = "must be map if x-kubernetes-list-map-keys is non-empty"
        where = child(path, _LIST_TYPE)
        yield required(where, text) if list_type is None else invalid(where, list_type, text)


def non_atomic_items(node: View, path: str) -> list[FieldError]:
    """Return the violations of a set whose items are not atomic (SCH-008)."""
    items = node.get("items")
    if node.get(_LIST_TYPE) != "set" or not isinstance(items, Mapping):
        return []
    text = "must be atomic as item of a list with x-kubernetes-list-type=set"
    where, shown = child(path, "items"), items.get(_LIST_TYPE)
    if items.get("type") == "array" and shown is not None and shown != "atomic":
        return [invalid(child(where, _LIST_TYPE), shown, text)]
    if items.get("type") == "object" and items.get(_MAP_TYPE) != "atomic":
        # the error is about the map type of the items, but contains their list type
        return [invalid(child(where, _MAP_TYPE), shown, text)]  # upstream: prints the list type
    return []


def _list_map(node: View, path: str, context: _Context, options: Options) -> Iterator[FieldError]:
    if node.get(_LIST_TYPE) != "map":
        return
    keys, items = node.get(_KEYS) or [], node.get("items")
    where = child(path, "items")
    if not keys:
        yield required(child(path, _KEYS), "must not be empty if x-kubernetes-list-type is map")
    if items is None:
        yield required(where, "must have a schema if x-kubernetes-list-type is map")
    elif not isinstance(items, Mapping):
        text = "must only have a single schema if x-kubernetes-list-type is map"
        yield FieldError(INVALID, where, f"Invalid value: {items_text(items)}: {text}")
    elif items.get("type") != "object":
        text = "must be object if parent array's x-kubernetes-list-type is map"
        yield invalid(child(where, "type"), items.get("type") or "", text)
    else:
        yield from _keys(keys, items, path)


def _keys(keys: list[str], items: View, path: str) -> Iterator[FieldError]:
    properties = items.get("properties") or {}
    seen: set[str] = set()
    by_text: dict[str, FieldError] = {}  # text of an error → error; cached, since each error quotes all keys

    def wrong(text: str) -> FieldError:
        if text not in by_text:
            by_text[text] = invalid(child(path, _KEYS), keys, text)
        return by_text[text]

    for key in keys:
        if key not in properties:
            yield wrong("entries must all be names of item properties")
        elif (properties[key] or {}).get("type") in ("array", "object"):
            where = child(item(child(child(path, "items"), "properties"), key), "type")
            text = "must be a scalar type if parent array's x-kubernetes-list-type is map"
            # the error is about the type of the key, but always contains "object"
            yield invalid(where, "object", text)  # upstream: prints the type of the items
        if key in seen:
            yield wrong("must not contain duplicate entries")
        seen.add(key)


def map_key_errors(node: View, path: str) -> list[FieldError]:
    """Return the violations of the rules for keys and items of x-kubernetes-list-type (SCH-010).

    Keys must be required or have a default. Keys and items must not be nullable.
    """
    list_type, items = node.get(_LIST_TYPE), node.get("items")
    if list_type not in ("set", "map") or not isinstance(items, Mapping):
        return []
    where = child(path, "items")
    found: list[FieldError] = []
    if items.get("nullable"):
        found.append(forbidden(child(where, "nullable"), f"cannot be nullable when {_LIST_TYPE} is {list_type}"))
    if list_type == "set":
        return found
    must, properties = frozenset(items.get("required") or ()), items.get("properties") or {}
    text = "this property is in x-kubernetes-list-map-keys, so it "
    for key in node.get(_KEYS) or []:
        schema = properties.get(key)
        if schema is None:
            continue
        context = item(child(where, "properties"), key)
        if key not in must and schema.get("default") is None:
            found.append(required(child(context, "default"), text + "must have a default or be a required property"))
        if schema.get("nullable"):
            found.append(forbidden(child(context, "nullable"), text + "cannot be nullable"))
    return found


def _map_keys(node: View, path: str, context: _Context, options: Options) -> list[FieldError]:
    return map_key_errors(node, path) if options.map_keys else []


def _validations(node: View, path: str, context: _Context, options: Options) -> Iterator[FieldError]:
    for index, rule in enumerate(node.get("x-kubernetes-validations") or []):
        where = item(child(path, "x-kubernetes-validations"), index)
        yield from _rule_text(rule, where)
        if (rule.get("messageExpression") or "x").strip() == "":
            yield required(child(where, "messageExpression"), "messageExpression must be non-empty if specified")
        if rule.get("reason") is not None and rule["reason"] not in _REASONS:
            yield not_supported(child(where, "reason"), rule["reason"], _REASONS)
        if rule.get("fieldPath"):
            yield from _field_path(context.forms.of(node), rule["fieldPath"], child(where, "fieldPath"))


def _rule_text(rule: View, where: str) -> Iterator[FieldError]:
    text, message = rule.get("rule") or "", rule.get("message") or ""
    if not text.strip():
        yield required(child(where, "rule"), "rule is not specified")
    elif message and not message.strip():
        yield invalid(child(where, "message"), message, "must be non-empty if specified")
    elif _NEWLINE.search(message.strip()):
        yield invalid(child(where, "message"), message, "must not contain line breaks")
    elif _NEWLINE.search(text.strip()) and not message.strip():
        yield required(child(where, "message"), "message must be specified if rule contains line breaks")


def _field_path(node: Structural | None, path: str, where: str) -> Iterator[FieldError]:
    if not path.strip():
        yield invalid(where, path, "must be non-empty if specified")
    if _NEWLINE.search(path):
        yield invalid(where, path, "must not contain line breaks")
    if node is None:  # upstream: the fieldPath of a rule is not validated in a schema without a structural form
        return
    try:
        follow(path, node)
    except PathError:
        yield invalid(where, path, "must be a valid path")


_RULES = (_standard, _forms, _map_type, _list_type, _list_map, _map_keys, _validations)
