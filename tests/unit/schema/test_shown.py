"""Values in expressions have the types of their declarations."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiext.schema.cel_types import Types, is_shown
from apiext.schema.compile import compile_schema

LEAVES = [{"type": it} for it in ("string", "integer", "number", "boolean", "object", "array")]
ODD = [{}, {"x-kubernetes-int-or-string": True}, {"x-kubernetes-preserve-unknown-fields": True}]


def inside(schemas: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    """Return a strategy for schemas that contain other schemas, with matching and other types."""
    types = st.sampled_from([*LEAVES[4:], *ODD])
    parts = st.one_of(
        st.fixed_dictionaries({"items": schemas}),
        st.fixed_dictionaries({"additionalProperties": schemas}),
        st.fixed_dictionaries({"properties": st.fixed_dictionaries({"a": schemas})}),
    )
    return st.builds(lambda kind, part: {**kind, **part}, types, parts)


@pytest.mark.rows("CEL-002")
@given(st.recursive(st.sampled_from([*LEAVES, *ODD]), inside, max_leaves=5))
def test_is_shown_equals_having_a_declared_cel_type(schema: dict[str, Any]) -> None:
    node = compile_schema(schema).root
    assert is_shown(node) == (Types().declare(node) is not None)
