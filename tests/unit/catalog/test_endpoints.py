"""The functions of each endpoint: project, embed and prepare."""

from __future__ import annotations

import re
from typing import Any

import pytest

from apiext.catalog import endpoints
from apiext.catalog.accessors import AccessorError, nested, with_nested
from apiext.catalog.served import Model
from apiext.conformance.support.cases import Case, case_name, load
from apiext.documents.document import clone
from apiext.documents.equality import same
from tests.unit.catalog.samples import SCALE, widget

MODEL = Model("example.com/v1", "Widget", lambda document: (document, []))
ENDPOINTS = {
    "main": endpoints.main(MODEL, False),
    "main with status": endpoints.main(MODEL, True),
    "status": endpoints.status(MODEL),
    "scale": endpoints.scale(SCALE),
}


@pytest.mark.rows("SRV-004", "SRV-005", "SRV-008", "DIS-09")
@pytest.mark.parametrize("case", load(__file__, "prepare"), ids=case_name)
def test_prepare_of_each_endpoint(case: Case) -> None:
    endpoint = ENDPOINTS[case.endpoint]
    old = widget(metadata=case.old.pop("metadata", {}), **case.old) if case.old is not None else None
    new = widget(metadata=case.new.pop("metadata", {}), **case.new)
    before = clone(old)
    prepared = endpoint.prepare(new, old)
    assert {name: prepared.get(name) for name in ("spec", "status")} == {"spec": case.spec, "status": case.status}
    assert prepared["metadata"]["generation"] == case.generation
    for name, value in (case.metadata or {}).items():
        assert prepared["metadata"].get(name) == value
    assert old == before


@pytest.mark.rows("SRV-007")
def test_scale_is_projected_from_the_object() -> None:
    scale = ENDPOINTS["scale"]
    metadata = {"creationTimestamp": "2026-01-01T00:00:00Z", "resourceVersion": "4", "labels": {"a": "b"}}
    stored = widget(metadata=metadata, spec={"replicas": 3}, status={"replicas": 2, "selector": "a=b"})
    assert scale.project(stored) == {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {
            "name": "x",
            "namespace": "n",
            "uid": stored["metadata"]["uid"],
            "resourceVersion": "4",
            "creationTimestamp": "2026-01-01T00:00:00Z",
        },
        "spec": {"replicas": 3},
        "status": {"replicas": 2, "selector": "a=b"},
    }
    assert scale.unreadable(stored) == ""
    assert scale.project(widget(spec={"replicas": 0}))["spec"] == {}
    assert scale.project(widget(spec={"replicas": 1}))["status"] == {"replicas": 0}
    assert (scale.model.group, scale.model.version, scale.model.kind) == ("autoscaling", "v1", "Scale")


@pytest.mark.rows("SRV-007")
@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ({}, 'Internal error occurred: the spec replicas field ".spec.replicas" does not exist'),
        ({"spec": {"replicas": None}}, ".spec.replicas accessor error: <nil> is of the type <nil>, expected int64"),
        ({"spec": {"replicas": "3"}}, ".spec.replicas accessor error: 3 is of the type string, expected int64"),
        ({"spec": 5}, ".spec.replicas accessor error: 5 is of the type int64, expected map[string]interface{}"),
        (
            {"spec": {"replicas": 1}, "status": {"selector": [1, "a"]}},
            ".status.selector accessor error: [1 a] is of the type []interface {}, expected string",
        ),
    ],
)
def test_unreadable_scale_returns_the_error(parts: dict[str, Any], text: str) -> None:
    assert ENDPOINTS["scale"].unreadable(widget(**parts)) == text


@pytest.mark.rows("SRV-008")
def test_scale_is_embedded_into_the_object() -> None:
    scale = ENDPOINTS["scale"]
    stored = widget(spec={"replicas": 3, "other": {"a": 1}})
    before = clone(stored)
    taken = scale.embed(stored, {"spec": {"replicas": 5}, "status": {"replicas": 99}, "metadata": {"labels": {}}})
    assert taken == {**stored, "spec": {"replicas": 5, "other": {"a": 1}}}
    assert stored == before
    assert scale.embed(widget(), {"spec": {}})["spec"] == {"replicas": 0}
    assert scale.project(widget())["spec"] == {}
    untouched = endpoints.with_replicas(scale, scale.project(widget()), widget())
    with pytest.raises(ValueError, match=r'the spec replicas field ".spec.replicas" cannot be empty'):
        scale.embed(widget(), untouched)


def test_scale_paths_are_names_between_dots() -> None:
    odd = endpoints.scale({"specReplicasPath": ".spec.replicas[0]", "statusReplicasPath": ".status.a"})
    stored = widget(spec={"replicas[0]": 4})
    assert odd.project(stored)["spec"] == {"replicas": 4}
    assert odd.embed(stored, {"spec": {"replicas": 7}})["spec"] == {"replicas[0]": 7}


def test_scale_body_is_decoded_without_unknown_fields() -> None:
    body = {"metadata": {"name": "a"}, "spec": {"replicas": 5, "zz": 1}, "extra": 1}
    shown, unknown = endpoints.decode_scale(body)
    assert shown == {"metadata": {"name": "a"}, "spec": {"replicas": 5}, "status": {"replicas": 0}}
    assert unknown == ["spec.zz", "extra"]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (
            {"spec": {"replicas": "5"}},
            "cannot unmarshal string into Go struct field ScaleSpec.spec.replicas of type int32",
        ),
        (
            {"spec": {"replicas": 2**31}},
            "cannot unmarshal number 2147483648 into Go struct field ScaleSpec.spec.replicas",
        ),
        ({"spec": []}, "cannot unmarshal array into Go struct field Scale.spec of type v1.ScaleSpec"),
        ({"kind": "Widget"}, 'no kind "Widget" is registered for version "autoscaling/v1" in scheme'),
        ({"apiVersion": "v1"}, 'no kind "Scale" is registered for version "v1" in scheme'),
        ({"apiVersion": "apps/v1beta2"}, "converting (v1beta2.Scale) to (v1.Scale): unknown conversion"),
    ],
)
def test_invalid_scale_body_is_refused(body: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        endpoints.decode_scale(body)


def test_nested_fields_are_read_and_set() -> None:
    document = {"a": {"b": {"c": 1.5}}}
    assert nested(document, ("a", "x", "y"), int) is None
    assert nested({"a": None}, ("a", "b"), int) is None
    with pytest.raises(AccessorError, match=r"\.a\.b\.c accessor error: 1.5 is of the type float64, expected int64"):
        nested(document, ("a", "b", "c"), int)
    assert with_nested(document, ("a", "d"), 2) == {"a": {"b": {"c": 1.5}, "d": 2}}
    with pytest.raises(AccessorError, match=r"value cannot be set because \.a\.b is not a map"):
        with_nested({"a": {"b": None}}, ("a", "b", "c"), 2)
    deepest = with_nested({}, ("a",) * 250, 2)
    assert nested(deepest, ("a",) * 250, int) == 2
    with pytest.raises(ValueError, match=r"^value cannot be set because it is nested deeper than 250 levels$"):
        with_nested({}, ("a",) * 2000, 2)


@pytest.mark.parametrize(
    ("left", "right", "equal"),
    [
        (1, 1.0, False),
        (1, True, False),
        ({"a": [1, {"b": None}]}, {"a": [1, {"b": None}]}, True),
        ({"a": 1}, {"b": 1}, False),
        ([1], [1, 2], False),
        ("a", "a", True),
        (None, {}, False),
    ],
)
def test_same_compares_values_and_types(left: Any, right: Any, equal: bool) -> None:
    assert same(left, right) is equal
    one, other = {"metadata": {"name": "a"}, "spec": left}, {"metadata": {"name": "b"}, "spec": right}
    assert endpoints.same_content(one, other) is equal
