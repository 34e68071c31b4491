"""Errors below long names: a response has room for few of them (VAL-001, CEL-006).

The server builds no more errors than that.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from apiext.crd import validation
from apiext.documents.document import Document
from apiext.meta import fields, limits, status
from apiext.meta.fields import FieldError, first_by_text, invalid
from apiext.meta.names import GroupKind
from apiext.schema import report
from apiext.schema.compile import compile_schema
from apiext.schema.definitions import definition_errors
from tests.unit.crd.samples import definition

pytestmark = pytest.mark.rows("VAL-001", "SCH-014")
KEEP = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
LEVELS, NAME = 100, "k" * 1_000  # 100 KB of names in the path of a leaf
PATH = len(f"[{NAME}]") * LEVELS
Judge = Callable[[Any, Document], list[FieldError]]


def validation_errors(schema: Any, document: Document) -> list[FieldError]:
    return compile_schema(schema).validate(document, None)


def rule_errors(schema: Any, document: Document) -> list[FieldError]:
    return compile_schema(schema).rules(document, None)[0]


def nested(leaf: Any, wrap: Callable[[Any], Any]) -> Any:
    for _ in range(LEVELS):
        leaf = wrap(leaf)
    return leaf


@pytest.mark.parametrize(
    ("judge", "leaf", "value", "noted"),
    [
        (validation_errors, {"type": "string"}, 1, True),
        (
            validation_errors,
            {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            ["", ""],
            True,
        ),
        (validation_errors, {**KEEP, "x-kubernetes-embedded-resource": True}, {"kind": "K"}, True),
        (validation_errors, {"anyOf": [{"minimum": 1}, {"maximum": -1}], "type": "integer"}, 0, True),
        (rule_errors, {"type": "integer", "x-kubernetes-validations": [{"rule": "self < 5"}]}, 9, False),
    ],
    ids=["types", "list types", "embedded", "junctors", "rules"],
)
def test_object_errors_with_long_paths_are_limited_in_bytes(judge: Judge, leaf: Any, value: Any, noted: bool) -> None:
    schema = nested(
        {"type": "object", "additionalProperties": leaf}, lambda of: {"type": "object", "additionalProperties": of}
    )
    document = nested({f"a{number:03}": value for number in range(400)}, lambda below: {NAME: below})
    found = judge({"type": "object", "properties": {"s": schema}}, {"s": document})
    size = sum(error.size for error in found)
    assert limits.MAX_FIELD_ERROR_BYTES - 2 * PATH < size <= limits.MAX_FIELD_ERROR_BYTES + 3 * PATH
    assert ("too many errors: the rest is not shown" in found[-1].body) == noted
    told = status.invalid(GroupKind("g", "K"), "n", found)
    assert len(told.message) < 3 * limits.MAX_FIELD_ERROR_BYTES


def test_ratcheting_warnings_with_long_paths_are_limited() -> None:
    leaf = {"type": "integer", "x-kubernetes-validations": [{"rule": "self < 5"}]}
    schema = nested(
        {"type": "object", "additionalProperties": leaf}, lambda of: {"type": "object", "additionalProperties": of}
    )
    document = {"s": nested({f"a{number:03}": 9 for number in range(100)}, lambda below: {NAME: below})}
    errors, warnings = compile_schema({"type": "object", "properties": {"s": schema}}).rules(document, document)
    assert errors == []
    assert 8 < len(warnings) < 13


def test_too_many_errors_note_appears_only_above_the_limit() -> None:
    texts = {"type": "object", "additionalProperties": {"type": "string"}}
    schema = {"type": "object", "properties": {"m": texts}}
    found = validation_errors(schema, {"m": {f"{'k' * 500}{number:03}": 1 for number in range(900)}})
    assert [error.field[-3:] for error in found] == [f"{number:03}" for number in range(900)]
    found = validation_errors(schema, {"m": {f"{'k' * 500}{number:03}": 1 for number in range(999)}})
    assert len(found) < 999
    assert found[-1].body == "Invalid value: too many errors: the rest is not shown"


@pytest.mark.parametrize("leaf", [{}, {"type": "string", "uniqueItems": True}], ids=["structure", "schema"])
def test_definition_errors_with_long_paths_are_limited(leaf: Document) -> None:
    properties = {f"a{number:04}": leaf for number in range(2_000)}
    schema = {"type": "object", "properties": {"s": {"type": "object", "properties": properties}}}
    flat = definition_errors(schema, "S")
    assert len(flat) == limits.MAX_FIELD_ERRORS + 1
    assert str(flat[-1]) == "S: Forbidden: too many errors: the rest is not shown"
    assert [error.field.split("[")[-1][:5] for error in flat[:-1]] == [f"a{number:04}" for number in range(1_000)]
    schema = nested(schema, lambda of: {"type": "object", "properties": {NAME: of}})
    found = definition_errors(schema, "S")
    assert 8 < len(found) < 12
    assert str(found[-1]) == "S: Forbidden: too many errors: the rest is not shown"
    schemas = [{"openAPIV3Schema": {**schema, "description": str(number)}} for number in range(4)]
    versions = [
        {"name": f"v{number}", "served": True, "storage": not number, "schema": own}
        for number, own in enumerate(schemas)
    ]
    found = validation.validate(definition({"spec.versions": versions}), None)
    assert sum(error.size for error in found) < 2 * limits.MAX_FIELD_ERROR_BYTES


@pytest.mark.parametrize("count", [5, limits.MAX_FIELD_ERRORS, 3 * limits.MAX_FIELD_ERRORS + 7])
def test_first_by_text_returns_sorted_errors_up_to_the_limit(count: int) -> None:
    errors = [invalid(f"p{number * 7919 % count:05}", number, "x" * (number % 5_000)) for number in range(count)]
    found = first_by_text(errors)
    assert found == sorted(errors, key=str)[: len(found)]
    assert len(found) == count or sum(error.size for error in found) > limits.MAX_FIELD_ERROR_BYTES


def test_one_error_over_the_byte_limit_is_reported() -> None:
    long = {"type": "object", "additionalProperties": {"type": "array", "x-kubernetes-list-type": "set"}}
    twice = ["x" * (limits.MAX_FIELD_ERROR_BYTES + 1)] * 2
    found = validation_errors({"type": "object", "properties": {"m": long}}, {"m": {"a": twice}})
    assert [error.field for error in found] == ["m[a][1]"]
    found = validation_errors({"type": "object", "properties": {"m": long}}, {"m": {"a": twice, "b": ["", ""]}})
    assert [error.field for error in found] == ["m[a][1]", ""]


@pytest.mark.slow
@pytest.mark.parametrize(("rule", "count"), [("self != 'x'", 0), ("self !=", 11), ("self == oldSelf", 6)])
def test_only_rule_paths_of_reported_errors_are_built(rule: str, count: int) -> None:
    leaf = {"type": "string", "x-kubernetes-validations": [{"rule": rule}]}
    listed = {
        "type": "array",
        "maxItems": 1,
        "items": {"type": "object", "properties": {f"a{n:03}": leaf for n in range(500)}},
    }
    schema = nested(listed, lambda of: {"type": "object", "properties": {NAME: of}})
    tracemalloc.start()
    found = definition_errors(schema, "S")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    way = f".properties[{NAME}]" * LEVELS
    assert len(found) == count
    if found:
        assert found[0].field == f"S{way}.items.properties[a000].x-kubernetes-validations[0].rule"
        assert str(found[-1]) == "S: Forbidden: too many errors: the rest is not shown"
    assert peak < 20 * 1024 * 1024


@pytest.mark.parametrize("kind", ["types", "lists"])
def test_only_names_in_error_paths_are_shortened(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []

    def count(name: str) -> str:
        told.append(name)
        return name

    unique = {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}}
    leaf: Any
    good: Any
    bad: Any
    if kind == "types":
        leaf, good, bad = {"type": "string"}, "a", 1
    else:
        leaf, good, bad = unique, ["a", "b"], ["a", "a"]
    monkeypatch.setattr(report if kind == "types" else fields, "short", count)
    mapped = {"type": "object", "additionalProperties": leaf}
    values = {"type": "object", "properties": {"m": mapped, "l": {"type": "array", "items": mapped}, "u": unique}}
    compiled = compile_schema({"type": "object", "properties": {"spec": values}})
    document: Any = {"spec": {"m": {f"n{number}": good for number in range(500)}, "l": [{"b": good}], "u": ["a", "b"]}}
    assert compiled.validate(document, None) == []
    assert told == []
    document["spec"]["m"]["n7"] = bad
    (error,) = compiled.validate(document, None)
    assert error.field.startswith("spec.m")
    assert told == (["n7"] if kind == "types" else ["spec", "m", "n7"])
