"""If the quick check accepts an object, pruning and defaulting do not change it.

Such an object has no float to be written.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from apiext.documents.document import clone
from apiext.schema.compile import compile_schema
from tests.unit.schema.strategies import DOCUMENTS, ROOTS

META = frozenset(("apiVersion", "kind", "metadata"))
TEXT = {"type": "string"}


def has_float(value: Any) -> bool:
    """Report whether a value contains a float."""
    if isinstance(value, dict):
        return any(map(has_float, value.values()))
    return any(map(has_float, value)) if isinstance(value, list) else isinstance(value, float)


@pytest.mark.rows("PRU-001", "PRU-003", "PRU-004", "NUL-001", "MET-004")
@given(ROOTS, DOCUMENTS)
def test_normal_object_is_unchanged_by_normalization(schema: dict[str, Any], document: dict[str, Any]) -> None:
    shape = compile_schema(schema)
    assert not shape.is_normal(document)
    shape.prepare(quickly=True)
    before = clone(document)
    if not shape.is_normal(document):
        return
    assert document == before
    assert shape.prune(document) == []
    assert not shape.drop_nulls(document)
    assert shape.coerce_embedded(document) == []
    assert document == before
    assert not any(has_float(value) for name, value in document.items() if name not in META)


@pytest.mark.parametrize(
    ("schema", "value", "settled"),
    [
        (TEXT, "x", True),
        (TEXT, 1, True),  # though it is invalid
        (TEXT, None, False),
        (TEXT, 1.0, False),
        (TEXT, {}, False),
        ({"type": "object", "properties": {"a": TEXT}}, {"a": "x"}, True),
        ({"type": "object", "properties": {"a": TEXT}}, {"a": "x", "b": 1}, False),
        ({"type": "object", "properties": {"a": TEXT}}, {"a": None}, False),
        (
            {"type": "object", "properties": {"a": {"type": "object", "properties": {"b": TEXT}}}},
            {"a": {"b": ""}},
            True,
        ),
        ({"type": "object", "additionalProperties": TEXT}, {"any": "x"}, True),
        ({"type": "object", "additionalProperties": {"type": "array", "items": TEXT}}, {"any": ["x", True]}, True),
        ({"type": "object", "additionalProperties": True}, {"any": {"x": 1}}, False),
        ({"type": "array", "items": {"type": "object", "properties": {"a": TEXT}}}, [{"a": "x"}, {}, "z"], True),
        ({"type": "array", "items": {"type": "object", "properties": {"a": TEXT}}}, [{"a": "x"}, {"b": 1}], False),
        ({"type": "array", "items": {"type": "object", "properties": {"a": TEXT}}}, ["x", 1, True, {"b": 1}], False),
        ({"type": "array", "items": TEXT}, ["x", 0.5], False),
        ({"type": "object", "x-kubernetes-preserve-unknown-fields": True}, {"any": "x"}, True),
        ({"type": "object", "x-kubernetes-preserve-unknown-fields": True}, {"any": {"x": 1.0}}, False),
        ({"type": "object", "x-kubernetes-embedded-resource": True, "properties": {"a": TEXT}}, {"a": "x"}, False),
    ],
)
def test_is_normal_accepts_only_normal_objects(schema: dict[str, Any], value: Any, settled: bool) -> None:
    shape = compile_schema({"type": "object", "properties": {"spec": schema}})
    shape.prepare(quickly=True)
    metadata = {"name": "x", "weight": 0.5, "none": None}
    assert shape.is_normal({"apiVersion": "v1", "kind": "K", "metadata": metadata, "spec": value}) is settled
    legacy = compile_schema({"type": "object", "properties": {"spec": schema}}, preserve_unknown_fields=True)
    legacy.prepare(quickly=True)
    assert not legacy.is_normal({"spec": value})


@pytest.mark.rows("NUL-001")
@pytest.mark.parametrize("place", ["a", "b", "c"])
def test_drop_nulls_reports_a_dropped_null_at_any_place(place: str) -> None:
    inner = {"type": "object", "properties": {"x": TEXT}}
    shape = compile_schema({"type": "object", "properties": {"spec": {"type": "array", "items": {
        "type": "object", "properties": dict.fromkeys("abc", inner)}}}})  # fmt: skip
    document: dict[str, Any] = {"spec": [{name: {"x": "y"} for name in "abc"} for _ in range(3)]}
    assert not shape.drop_nulls(document)
    for at in range(3):
        document["spec"][at][place]["x"] = None
        assert shape.drop_nulls(document)
        assert document["spec"][at][place] == {}


def test_is_normal_does_not_reuse_the_result_of_other_objects() -> None:
    names = [f"m{number:02}" for number in range(12)]
    shape = compile_schema({"type": "object", "properties": dict.fromkeys(names, TEXT)})
    shape.prepare(quickly=True)
    plain: dict[str, Any] = {"apiVersion": "v1", "kind": "X", "metadata": {}, **dict.fromkeys(names, "x")}
    others = ({"m03": None}, {"m03": 0.5}, {"unknown": "x"}, {"m03": {}}, {"m03": ["x", None]})
    for other in others:
        assert shape.is_normal(plain)
        assert shape.is_normal({**plain, "m01": 1})
        assert not shape.is_normal({**plain, **other}), other
    inner = compile_schema(
        {"type": "object", "properties": {"spec": {"type": "object", "properties": dict.fromkeys(names, TEXT)}}}
    )
    inner.prepare(quickly=True)
    held = dict.fromkeys(names, "x")
    for other in ({}, *others):
        assert inner.is_normal({"spec": held})
        assert inner.is_normal({"spec": {**held, **other}}) is (not other), other
