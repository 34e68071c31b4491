"""Check the types and rules of built-in kinds for unknown keys, types, fields and functions."""

from collections.abc import Iterator, Mapping
from typing import Any

from apiext.go_types import filling
from apiext.go_types.sources import KIND, RULES
from apiext.go_types.tables import INLINE, SCALARS, Types, split
from apiext.meta import objectmeta, syntax

TYPE_KEYS = frozenset((
    "doc", "fields", "required", "defaults", "lists", "atomic", "zero", KIND, "message", "model", "union",
    "holds_empty", "fill", RULES,
))  # fmt: skip
"""Keys of a type; types/README.md describes them."""
LIST_KEYS = frozenset(("keys", "set", "merge", "patch", "atomic", "granular"))
"""Keys of an entry below the key ``lists`` of a type."""
_NAMES_OF_FIELDS = ("required", "defaults", "lists", "zero")
_EACH = ("[]", "{}")


def type_errors(types: Types) -> Iterator[str]:
    """Yield ``<type>: <error>`` for each error in the types of a file.

    Errors are wrong keys, wrong types and wrong protobuf numbers.
    """
    for name in types.own:
        yield from (f"{name}: {error}" for error in _entry_errors(types, types.table[name]))


def reference_errors(types: Types) -> Iterator[str]:
    """Yield ``<type>: <error>`` for each unknown field to which the types of a file refer.

    Call this only if ``type_errors`` finds nothing.
    """
    for name in types.own:
        if types.is_struct(name):
            yield from (f"{name}: {error}" for error in _reference_errors(types, name, types.table[name]))


def rule_errors(types: Types, name: str, rules: Any, ruled: frozenset[str]) -> Iterator[str]:
    """Yield the errors in the validation rules of the type ``name``.

    ``ruled`` are the types that have rules.
    """
    for rule in rules:
        path = rule.get("path")
        if not path:
            yield f"the rule {rule} has no path"
            continue
        error = _path_error(types, name, path)
        if error:
            yield f"rule of {path}: {error}"
        if "type" in rule and rule["type"] not in ruled:
            yield f"rule of {path}: the type {rule['type']} has no rules"
        if "format" in rule and not hasattr(syntax, rule["format"]):
            yield f"rule of {path}: apiext/meta/syntax.py has no function {rule['format']}"


def _entry_errors(types: Types, entry: Any) -> Iterator[str]:
    """Yield the errors of one type that can be found without the fields of other types."""
    if isinstance(entry, str):
        if not _is_type(types, entry.split()[0]):
            yield f"there is no type {entry.split()[0]}"
        return
    if not isinstance(entry, Mapping) or not isinstance(entry.get("fields"), Mapping):
        yield "a type is the name of a scalar, or has `fields`"
        return
    for key in sorted(entry.keys() - TYPE_KEYS, key=str):
        yield f"unknown key {key}; there are {', '.join(sorted(TYPE_KEYS))}"
    if "fill" in entry and not hasattr(filling, entry["fill"]):
        yield f"apiext/go_types/filling.py has no function {entry['fill']}"
    for field, semantics in (entry.get("lists") or {}).items():
        for key in sorted(semantics.keys() - LIST_KEYS, key=str):
            yield f"lists of {field}: unknown key {key}; there are {', '.join(sorted(LIST_KEYS))}"
    numbers = {1: "metadata"} if KIND in entry else {}
    for field, text in entry["fields"].items():
        try:
            type_, flags, number, _ = split(str(text))
        except ValueError as error:
            yield f"{field}: {error}"
            continue
        if not _is_type(types, type_) or (flags == INLINE and not types.is_struct(type_)):
            yield f"{field}: there is no {'struct' if flags == INLINE else 'type'} {type_} in this file or its `uses`"
        if number and number in numbers:
            yield f"{field}: {numbers[number]} has the number {number}"
        numbers[number] = field


def _is_type(types: Types, name: str) -> bool:
    while name.endswith(_EACH):
        name = name[:-2]
    return name in SCALARS or name in types.table


def _reference_errors(types: Types, name: str, entry: Mapping[str, Any]) -> Iterator[str]:
    """Yield an error for each unknown field to which a type refers.

    A type refers to fields in ``required``, ``defaults``, ``lists`` and ``zero``. Fields of embedded structs are
    known, too.
    """
    fields = types.row(name)["fields"]
    known = {*fields, "metadata"} if KIND in entry else fields
    for key in _NAMES_OF_FIELDS:
        yield from (f"{key}: there is no field {field}" for field in entry.get(key) or () if field not in known)
    for field, semantics in (entry.get("lists") or {}).items():
        merge = semantics.get("merge")
        item = types.resolved(split(fields[field]).type).removesuffix("[]") if field in fields else ""
        for key in {*semantics.get("keys", ()), *([merge] if merge else [])}:
            if types.is_struct(item) and key not in types.row(item)["fields"]:
                yield f"lists of {field}: {item} has no field {key}"


def _path_error(types: Types, name: str, path: str) -> str:
    """Return an error if the type ``name`` has no field at this path, else an empty string."""
    here = name
    for number, step in enumerate(path.split(".")):
        each = step[-2:] if step.endswith(_EACH) else ""
        field = step.removesuffix(each)
        if here == "ObjectMeta":
            return f"metadata has no field {field}" if objectmeta.coerce({field: None})[1] else ""
        fields = types.row(here)["fields"] if types.is_struct(here) else {}
        if not number and field == "metadata" and KIND in types.table[name]:
            here = "ObjectMeta"
            continue
        if field not in fields:
            return f"{here} has no field {field}"
        here = types.resolved(split(fields[field]).type)
        if each and not here.endswith(each):
            return f"the type of {field} is {here}, not a {'list' if each == '[]' else 'map'}"
        here = types.resolved(here[:-2]) if each else here
    return ""
