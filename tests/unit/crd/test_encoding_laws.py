"""Encoding to the stored form and decoding loses no field of any definition."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiext.crd.decoding import decode_v1
from apiext.crd.empties import without_empty
from apiext.crd.encoding import V1, V1BETA1, from_storage, from_stored_form, to_storage
from apiext.documents.document import clone
from apiext.documents.encoding import decode_yaml
from tests.support.shared import shared
from tests.unit.crd.samples import BASE, definition

pytestmark = pytest.mark.rows("CRD-005", "CRD-006", "CRD-007", "ETC-003", "B1-006")

_schemas = st.sampled_from(
    [
        {"openAPIV3Schema": {"type": "object"}},
        {"openAPIV3Schema": {"type": "object", "properties": {"a": {"type": "string", "default": "x"}}}},
        {},
    ]
)
_subresources = st.sampled_from(
    [
        {},
        {"status": {}},
        {"scale": {"specReplicasPath": ".spec.a", "statusReplicasPath": ".status.a", "labelSelectorPath": ""}},
    ]
)
_columns = st.lists(
    st.fixed_dictionaries(
        {"name": st.text(max_size=3), "type": st.just("string"), "jsonPath": st.just(".a")},
        optional={"priority": st.integers(-3, 3), "description": st.text(max_size=3)},
    ),
    max_size=2,
)
_versions = st.lists(
    st.fixed_dictionaries(
        {"name": st.sampled_from(["v1", "v2", "v1beta1"]), "served": st.booleans(), "storage": st.booleans()},
        optional={
            "schema": _schemas,
            "subresources": _subresources,
            "additionalPrinterColumns": _columns,
            "selectableFields": st.lists(st.just({"jsonPath": ".spec.a"}), max_size=1),
            "deprecated": st.booleans(),
            "deprecationWarning": st.text(max_size=3),
        },
    ),
    min_size=1,
    max_size=3,
)
_clients = st.sampled_from([{"url": "https://a.b"}, {"service": {"name": "a", "namespace": "b"}, "caBundle": "Zm9v"}])
_conversions = st.one_of(
    st.just({"strategy": "None"}),
    st.fixed_dictionaries(
        {
            "strategy": st.just("Webhook"),
            "webhook": st.fixed_dictionaries(
                {"conversionReviewVersions": st.lists(st.sampled_from(["v1", "v1beta1"]), min_size=1, max_size=2)},
                optional={"clientConfig": _clients},
            ),
        }
    ),
)


@st.composite
def definitions(draw: st.DrawFn) -> dict[str, Any]:
    body = clone(BASE)
    body["spec"]["versions"] = draw(_versions)
    if draw(st.booleans()):
        body["spec"]["conversion"] = draw(_conversions)
    if draw(st.booleans()):
        body["spec"]["preserveUnknownFields"] = draw(st.booleans())
    return without_empty(decode_v1(body)[0])  # in the stored form


@given(definitions())
def test_stored_form_decodes_to_same_definition(document: dict[str, Any]) -> None:
    before = orjson.dumps(document)
    stored = to_storage(document)
    assert stored["apiVersion"] == V1BETA1
    assert from_stored_form(stored) == document
    assert from_storage(orjson.loads(orjson.dumps(stored))) == document
    assert orjson.dumps(document) == before


@given(definitions())
def test_fields_equal_in_all_versions_are_hoisted(document: dict[str, Any]) -> None:
    spec = to_storage(document)["spec"]
    versions = document["spec"]["versions"]
    pairs = (("schema", "validation"), ("subresources", "subresources"), ("selectableFields", "selectableFields"))
    for below, above in pairs:
        values = [version.get(below) for version in versions]
        if all(value == values[0] for value in values):
            assert spec.get(above) == values[0]
            assert all(below not in version for version in spec["versions"])
        else:
            assert above not in spec
            assert [version.get(below) for version in spec["versions"]] == values


@given(definitions())
def test_decoding_is_idempotent(document: dict[str, Any]) -> None:
    assert decode_v1(document) == (document, [])


def test_definition_stored_as_v1_is_read() -> None:
    document = definition()
    assert from_storage({**document, "apiVersion": V1}) == document


def test_definition_stored_in_old_form_is_read() -> None:
    stored = {
        "apiVersion": V1BETA1,
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "widgets.example.com"},
        "spec": {
            "group": "example.com",
            "version": "v1",
            "names": {"plural": "widgets", "kind": "Widget"},
            "validation": {"openAPIV3Schema": {"properties": {"a": {"type": "string"}}}},
            "additionalPrinterColumns": [{"name": "A", "type": "string", "JSONPath": ".a"}],
        },
    }
    spec = from_storage(stored)["spec"]
    assert spec["preserveUnknownFields"] is True
    assert spec["scope"] == "Namespaced"
    assert spec["versions"] == [
        {
            "name": "v1",
            "served": True,
            "storage": True,
            "schema": {"openAPIV3Schema": {"properties": {"a": {"type": "string"}}}},
            "additionalPrinterColumns": [{"name": "A", "type": "string", "jsonPath": ".a"}],
        }
    ]


@pytest.mark.rows("CRD-005")
def test_real_definitions_round_trip_through_stored_form() -> None:
    folder = shared("data/real/definitions", cases=402)
    for file in sorted(folder.glob("*/*.yaml")) if folder else ():
        document, unknown = decode_v1(decode_yaml(file.read_bytes())[0])
        assert from_stored_form(to_storage(document)) == document, file.name
        assert decode_v1(document)[0] == document, file.name
        assert all(path.startswith(("metadata.", "spec.", "status")) for path in unknown), (file.name, unknown)
