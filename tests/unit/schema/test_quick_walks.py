"""The fast path for objects with many fields has the same result as a visit of each field."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiext.documents.document import clone
from apiext.schema import nulls, prune, validate
from apiext.schema.compile import compile_schema
from apiext.schema.parse import parse

NAMES = [f"p{number}" for number in range(6)]
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "p0": {"type": "string", "maxLength": 1},
                "p1": {"type": "string", "nullable": True},
                "p2": {"type": "string", "default": "x", "maxLength": 1},
                "p3": {"type": "object", "properties": {"p0": {"type": "string"}}},
                "p4": {"type": "object", "additionalProperties": {"type": "string"}},
                "p5": {
                    "type": "object",
                    "properties": {"p0": {"type": "string"}, "p1": {"type": "integer", "default": 1}},
                    "default": {"p0": "x"},
                },
            },
        },
    },
}
VALUES = st.recursive(
    st.none() | st.integers() | st.text(max_size=2),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=6),
)


@given(st.dictionaries(st.sampled_from(NAMES), VALUES))
def test_prune_and_drop_nulls_equal_for_few_and_many_fields(spec: dict[str, Any]) -> None:
    shape = compile_schema(SCHEMA)
    found = []
    for few in (-1, 1_000):
        document: dict[str, Any] = {"spec": clone(spec)}
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(prune, "FEW", few)
            patched.setattr(nulls, "FEW", few)
            found.append((shape.prune(document), shape.drop_nulls(document), document))
    assert found[0] == found[1]


@given(st.dictionaries(st.sampled_from(NAMES), st.text(max_size=4), min_size=1))
def test_passes_checks_max_length_of_each_string(spec: dict[str, str]) -> None:
    most = {name: number for number, name in enumerate(NAMES)}
    properties = {name: {"type": "string", "maxLength": length} for name, length in most.items()}
    node = parse({"type": "object", "properties": properties})
    assert validate.passes(node, spec) is all(len(text) <= most[name] for name, text in spec.items())


def test_normalize_keeps_unknown_fields_in_preserving_list() -> None:
    items = {"type": "object", "properties": {"a": {"type": "string"}}}
    kept = {"type": "array", "x-kubernetes-preserve-unknown-fields": True, "items": items}
    document = {"spec": [{"a": "x", "zz": {"y": 1}}]}
    found = clone(document)
    assert compile_schema({"type": "object", "properties": {"spec": kept}}).normalize(found) == []
    assert found == document
