"""Laws of published schemas, in OpenAPI v3 and reduced to v2."""

from collections.abc import Iterator
from typing import Any

import orjson
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from apiext.discovery import openapi_v2, openapi_v3
from apiext.documents.yaml_text import yaml_in_order
from tests.unit.discovery.messages import open_api, v2_schemas, v3_schemas
from tests.unit.discovery.served import GROUP, catalog, definition

PATH, VERSION, NAME = f"apis/{GROUP}/v1", "1.37", "com.example.stable.v1.A"
BRANCHES = [{"type": "integer"}, {"type": "string"}]

words = st.text("abcXYZ-_ é", min_size=1, max_size=6)
names = st.text("abcdef", min_size=1, max_size=3)
bounds = st.dictionaries(st.sampled_from(["minimum", "maximum", "multipleOf"]), st.integers(0, 9), max_size=2)
scalars = st.one_of(
    st.builds(lambda extra: {"type": "integer", **extra}, bounds),
    st.builds(lambda extra: {"type": "number", **extra}, bounds),
    st.builds(lambda text, size: {"type": "string", "description": text, "maxLength": size}, words, st.integers(0, 9)),
    st.builds(lambda values: {"type": "string", "enum": values, "default": values[0]}, st.lists(words, min_size=1)),
    st.just({"x-kubernetes-int-or-string": True}),
    st.just({"x-kubernetes-int-or-string": True, "anyOf": [{"minimum": 1}]}),
    st.just({"type": "boolean", "default": False, "example": True}),
)
junctors = st.sampled_from(
    [{}, {}, {"not": {"required": ["a"]}}, {"oneOf": [{"required": ["a"]}, {"maxProperties": 2}]}]
)


def _object(members: dict[str, Any], required: bool, more: dict[str, Any]) -> dict[str, Any]:
    listed = {"required": sorted(members)} if required and members else {}
    return {"type": "object", "properties": members, **listed, **more}


def _nullable(schema: dict[str, Any], nullable: bool) -> dict[str, Any]:
    return {**schema, "nullable": True} if nullable and "type" in schema else schema


def _deeper(inner: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    anything = {"x-kubernetes-preserve-unknown-fields": True}
    more = st.one_of(junctors, st.just(anything), st.just({**anything, "x-kubernetes-embedded-resource": True}))
    return st.builds(
        _nullable,
        st.one_of(
            st.builds(_object, st.dictionaries(names, inner, max_size=3), st.booleans(), more),
            st.builds(lambda values: {"type": "object", "additionalProperties": values}, inner),
            st.builds(lambda item: {"type": "array", "items": item, "x-kubernetes-list-type": "atomic"}, inner),
        ),
        st.booleans(),
    )


schemas = st.recursive(scalars, _deeper, max_leaves=8)


def all_schemas(schema: Any) -> Iterator[dict[str, Any]]:
    """Yield the schema and all schemas below it."""
    if not isinstance(schema, dict):
        return
    yield schema
    for inner in schema.get("properties", {}).values():
        yield from all_schemas(inner)
    for key in ("items", "additionalProperties", "not"):
        yield from all_schemas(schema.get(key))
    for key in ("allOf", "anyOf", "oneOf"):
        for inner in schema.get(key, ()):
            yield from all_schemas(inner)


def catalog_with(schema: dict[str, Any]) -> Any:
    root = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"x": schema}}}}
    return catalog(definition("as", "A", [{"name": "v1", "schema": {"openAPIV3Schema": root}}]))


def schema_of_x(kind: dict[str, Any]) -> Any:
    return kind["properties"]["spec"]["properties"]["x"]


@pytest.mark.rows("OAS-005")
@given(schemas)
def test_v2_schema_omits_keywords_unknown_to_v2(schema: dict[str, Any]) -> None:
    document = orjson.loads(openapi_v2.document(catalog_with(schema), VERSION).body)
    for found in all_schemas(schema_of_x(document["definitions"][NAME])):
        assert not {"allOf", "anyOf", "oneOf", "not", "nullable", "default"} & found.keys()
        assert found.get("type") != "array" or "items" in found
        if found.get("x-kubernetes-preserve-unknown-fields"):
            assert not {"properties", "items"} & found.keys()
            assert found.get("type") != "object"


@pytest.mark.rows("OAS-004", "OAS-010")
@given(schemas)
def test_v3_schema_keeps_keywords_and_expands_extensions(schema: dict[str, Any]) -> None:
    document = openapi_v3.document(catalog_with(schema), PATH, VERSION)
    assert document is not None
    published = schema_of_x(orjson.loads(document.body)["components"]["schemas"][NAME])
    for given_, found in zip(walk(schema), walk(published), strict=False):
        for key in ("type", "nullable", "default", "enum", "x-kubernetes-list-type", "oneOf", "not"):
            assert found.get(key) == given_.get(key)
    for found in all_schemas(published):
        if found.get("x-kubernetes-int-or-string"):
            assert found["anyOf"] == BRANCHES or found["allOf"][0]["anyOf"] == BRANCHES
        if found.get("x-kubernetes-embedded-resource"):
            assert {"apiVersion", "kind", "metadata"} <= found["properties"].keys()
            assert {"apiVersion", "kind"} <= set(found["required"])


def walk(schema: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the schema and those below it that the test gave, always in the same order."""
    yield schema
    for name, inner in sorted(schema.get("properties", {}).items()):
        if name not in ("apiVersion", "kind", "metadata"):
            yield from walk(inner)
    for key in ("items", "additionalProperties"):
        if isinstance(schema.get(key), dict):
            yield from walk(schema[key])


@pytest.mark.rows("OAS-001", "OAS-002")
@given(schemas)
def test_protobuf_schemas_equal_json_schemas(schema: dict[str, Any]) -> None:
    found = catalog_with(schema)
    v2 = orjson.loads(openapi_v2.document(found, VERSION).body)["definitions"]
    assert v2_schemas(open_api("v2", openapi_v2.protobuf(found, VERSION).body))[NAME] == v2[NAME]
    v3, protobuf = openapi_v3.document(found, PATH, VERSION), openapi_v3.protobuf(found, PATH, VERSION)
    assert v3 is not None
    assert protobuf is not None
    assert v3_schemas(open_api("v3", protobuf.body)) == orjson.loads(v3.body)["components"]["schemas"]


@pytest.mark.rows("OAS-009")
@given(schemas, schemas)
def test_different_documents_have_different_etags(one: dict[str, Any], other: dict[str, Any]) -> None:
    documents = [openapi_v3.document(catalog_with(schema), PATH, VERSION) for schema in (one, other)]
    assert documents[0] is not None
    assert documents[1] is not None
    if documents[0].body != documents[1].body:
        assert documents[0].etag != documents[1].etag


@pytest.mark.rows("OAS-002")
@pytest.mark.parametrize(
    ("default", "which"), [(1.5, "number"), (True, "boolean"), ("x", "string"), ({"a": "b"}, None), ({}, None)]
)
def test_protobuf_defaults_hold_scalars_only(default: Any, which: str | None) -> None:
    """The protobuf message of a default has a field for numbers, booleans and strings.

    It is empty for objects and lists.
    """
    forms: dict[type, dict[str, Any]] = {
        float: {"type": "number"},
        bool: {"type": "boolean"},
        str: {"type": "string"},
        dict: {"type": "object", "additionalProperties": {"type": "string"}},
    }
    found = openapi_v3.protobuf(catalog_with({**forms[type(default)], "default": default}), PATH, VERSION)
    assert found is not None
    schemas = open_api("v3", found.body).components.schemas.additional_properties
    at: Any = next(entry.value for entry in schemas if entry.name == NAME)
    for name in ("spec", "x"):
        at = next(entry.value for entry in at.schema.properties.additional_properties if entry.name == name)
    assert at.schema.HasField("default")
    assert at.schema.default.WhichOneof("oneof") == which
    assert which is None or getattr(at.schema.default, which) == default


@pytest.mark.rows("OAS-001")
@pytest.mark.parametrize(
    ("value", "text"),
    [
        ([{"fieldPath": "spec.a"}, {"fieldPath": "spec.b"}], "- fieldPath: spec.a\n- fieldPath: spec.b\n"),
        ({"kind": "K", "group": ""}, 'kind: K\ngroup: ""\n'),
        ([[1, [2]], [], {}], "- - 1\n  - - 2\n- []\n- {}\n"),
        ("Cluster", "Cluster\n"),
        (["a: b", "a #", "- x", "-x", "it's: ", " x", "", "*"],
         "- 'a: b'\n- 'a #'\n- '- x'\n- -x\n- 'it''s: '\n- ' x'\n- \"\"\n- '*'\n"),
        (["a\tb", "\x07", "\U0001f4a5", "\u00e9", "a \nb"],
         '- "a\\tb"\n- "\\a"\n- "\\U0001F4A5"\n- \u00e9\n- "a \\nb"\n'),
        ([1e21, -1, True, None], "- 1e+21\n- -1\n- true\n- null\n"),
    ],
)  # fmt: skip
def test_protobuf_values_are_block_yaml(value: Any, text: str) -> None:
    assert yaml_in_order(value) == text


texts = st.one_of(st.text(), st.text("a \n\t:#-?'\"\\0.,[]{}&*!|>%@`\x85\u2028\ufeff", max_size=8))
values = st.recursive(texts, lambda inner: st.one_of(st.lists(inner), st.dictionaries(texts, inner)), max_leaves=8)


@pytest.mark.rows("OAS-001")
@given(values)
def test_protobuf_values_round_trip_as_yaml(value: Any) -> None:
    assert yaml.load(yaml_in_order(value), yaml.BaseLoader) == value  # BaseLoader reads all values as strings
