"""Compiled functions equal their models and are idempotent.

Validation does not change values.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiext.documents.document import clone
from apiext.schema import report, validate
from apiext.schema.compile import compile_schema
from apiext.schema.parse import parse
from tests.unit.schema import naive
from tests.unit.schema.strategies import DOCUMENTS, ROOTS, VALUES, schemas


@pytest.mark.rows("PRU-001", "PRU-003", "PRU-004", "PRU-005", "PRU-008")
@given(ROOTS, DOCUMENTS)
def test_pruning_equals_its_model(schema: dict[str, Any], document: dict[str, Any]) -> None:
    expected = clone(document)
    removed = sorted(naive.prune(expected, parse(schema), root=True))
    assert compile_schema(schema).prune(document) == removed
    assert document == expected
    assert compile_schema(schema).prune(document) == []


@pytest.mark.rows("NUL-001")
@given(ROOTS, DOCUMENTS)
def test_dropping_nulls_equals_its_model(schema: dict[str, Any], document: dict[str, Any]) -> None:
    expected = clone(document)
    naive.drop_nulls(expected, parse(schema), root=True)
    changed = document != expected
    assert compile_schema(schema).drop_nulls(document) == changed
    assert document == expected


@pytest.mark.rows("NUL-002", "NUL-003", "NUL-004", "DEF-005")
@given(ROOTS, DOCUMENTS)
def test_defaulting_equals_its_model(schema: dict[str, Any], document: dict[str, Any]) -> None:
    expected = clone(document)
    naive.default(expected, parse(schema), root=True)
    changed = document != expected
    assert compile_schema(schema).default(document) == changed
    assert document == expected
    assert not compile_schema(schema).default(document)
    assert document == expected


@pytest.mark.rows("PRU-007", "NUL-005")
@given(ROOTS, DOCUMENTS)
def test_normalize_and_from_storage_equal_their_parts(schema: dict[str, Any], document: dict[str, Any]) -> None:
    compiled, parts = compile_schema(schema), clone(document)
    unknown = compiled.prune(parts)
    compiled.drop_nulls(parts)
    compiled.default(parts)
    stored = clone(document)
    changed = compiled.from_storage(stored)
    assert compiled.normalize(document) == unknown
    assert document == parts == stored
    assert changed or not compiled.from_storage(document)


@pytest.mark.rows("VAL-001", "VAL-003", "VAL-004", "VAL-009", "VAL-011")
@given(schemas(), VALUES)
def test_validation_fast_path_equals_model_and_report(schema: dict[str, Any], value: Any) -> None:
    node, before = parse(schema), clone(value)
    passes = validate.passes(node, value)
    assert passes == naive.valid(node, value)
    assert passes == (not report.errors(node, value))
    counted = report.Reporter("").report(node, value, "", None, counted=True)
    assert passes == (not counted.errors)
    assert value == before


@pytest.mark.rows("RAT-001", "RAT-004", "LST-003")
@given(ROOTS, DOCUMENTS, DOCUMENTS)
def test_ratcheting_never_adds_errors(schema: dict[str, Any], new: dict[str, Any], old: dict[str, Any]) -> None:
    compiled = compile_schema(schema)
    fresh = compiled.validate(new, None)
    assert set(compiled.validate(new, old)) <= set(fresh)
    assert (compiled.validate(new, None) == []) == (not fresh)


@pytest.mark.rows("RAT-001")
@given(ROOTS, DOCUMENTS, st.sampled_from("abc"))
def test_unchanged_field_is_not_validated_again(schema: dict[str, Any], document: dict[str, Any], name: str) -> None:
    known = {"type": "object", "properties": {"keep": schema["properties"].get(name, {"type": "string"})}}
    value = {"keep": document.get(name)}
    compiled = compile_schema(known)
    compiled.normalize(value)  # fields without a schema never count as unchanged
    if not _has_fields_without_schema(compiled.root, value):
        assert compiled.validate({**clone(value), "new": 1}, value) == []


def _has_fields_without_schema(node: Any, value: Any) -> bool:
    """Report whether a nested object has fields without a schema."""
    if node is None:
        return True
    if isinstance(value, dict):
        return any(_has_fields_without_schema(node.member(key), item) for key, item in value.items())
    return False
