"""Hypothesis strategies for schemas, and for documents that match or violate them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

NAMES = st.sampled_from(["a", "b", "c", "metadata", "kind", "x.y"])
SCALARS = st.none() | st.booleans() | st.integers(-3, 5) | st.sampled_from([0.5, 1.0, 2.0]) | st.sampled_from("abé")
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3), max_leaves=12
)
DOCUMENTS = st.dictionaries(NAMES, VALUES, max_size=4)
_COUNT = st.integers(0, 3)


def _limits(kind: str) -> st.SearchStrategy[dict[str, Any]]:
    names = {
        "string": ("minLength", "maxLength"),
        "integer": ("minimum", "maximum"),
        "array": ("minItems", "maxItems"),
        "object": ("minProperties", "maxProperties"),
    }.get(kind, ())
    return st.fixed_dictionaries({}, optional=dict.fromkeys(names, _COUNT))


@st.composite
def schemas(draw: st.DrawFn, depth: int = 3, junctors: bool = True) -> dict[str, Any]:
    """Return a structural schema, whose defaults may be invalid."""
    kinds = ["string", "integer", "boolean", "number"] + (["object", "object", "array"] if depth else [])
    kind = draw(st.sampled_from(kinds))
    schema: dict[str, Any] = {"type": kind, **draw(_limits(kind))}
    if draw(st.integers(0, 3)) == 0:
        schema["nullable"] = True
    if draw(st.integers(0, 3)) == 0:
        schema["default"] = draw(VALUES.filter(lambda value: value is not None))
    if draw(st.integers(0, 5)) == 0:
        schema["enum"] = draw(st.lists(SCALARS, min_size=1, max_size=3))
    if kind == "array":
        schema["items"] = draw(schemas(depth - 1, junctors))
    elif kind == "object":
        _object(draw, schema, depth, junctors)
    if junctors and draw(st.integers(0, 4)) == 0:
        name = draw(st.sampled_from(["allOf", "anyOf", "oneOf"]))
        schema[name] = draw(st.lists(schemas(1, False), min_size=1, max_size=3))
    if junctors and draw(st.integers(0, 8)) == 0:
        schema["not"] = draw(schemas(1, False))
    return schema


def _object(draw: st.DrawFn, schema: dict[str, Any], depth: int, junctors: bool) -> None:
    if draw(st.integers(0, 3)) == 0:
        schema["additionalProperties"] = draw(st.booleans() | schemas(depth - 1, junctors))
    else:
        schema["properties"] = draw(st.dictionaries(NAMES, schemas(depth - 1, junctors), max_size=3))
    if draw(st.integers(0, 3)) == 0:
        schema["x-kubernetes-preserve-unknown-fields"] = True
    if draw(st.integers(0, 4)) == 0:
        schema["required"] = draw(st.lists(NAMES, max_size=2))


ROOTS = st.builds(
    lambda properties: {"type": "object", "properties": properties},
    st.dictionaries(st.sampled_from("abc"), schemas(), min_size=1, max_size=3),
)
