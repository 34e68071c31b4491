"""Options of a delete in body or query: grace period, propagation policy, preconditions."""

from __future__ import annotations

import json
from typing import Any

import pytest

from apiext.conformance.support.definitions import Resource, serve
from apiext.conformance.support.http_client import DEFINITIONS, MERGE, Client
from apiext.conformance.support.waiting import until


@pytest.fixture
def widgets(api: Client) -> Resource:
    return serve(api)


def held(widgets: Resource, name: str = "a") -> dict[str, Any]:
    """Create an object with a finalizer, so that a delete only sets its deletionTimestamp."""
    body = widgets.make(name, color="red")
    body["metadata"]["finalizers"] = ["example.com/hold"]
    made: dict[str, Any] = widgets.api.post(widgets.path(), body).expect(201)
    return made


def release(widgets: Resource, name: str = "a") -> None:
    widgets.api.patch(widgets.path(name), {"metadata": {"finalizers": None}}, MERGE).expect(200)


BODY = {"kind": "DeleteOptions", "apiVersion": "v1"}


@pytest.mark.rows("WRI-016", "WRI-017", "WRI-020")
@pytest.mark.parametrize("way", ["body", "query", "yaml", "group's own version"])
def test_the_grace_period_of_custom_objects_is_zero(widgets: Resource, way: str) -> None:
    made = held(widgets)
    path, body = widgets.path("a"), {**BODY, "gracePeriodSeconds": 30}
    if way == "query":
        answer = widgets.api.delete(path, gracePeriodSeconds=30)
    elif way == "yaml":
        text = b"kind: DeleteOptions\napiVersion: v1\ngracePeriodSeconds: 30\n"
        answer = widgets.api.request("DELETE", path, text, {"Content-Type": "application/yaml"})
    else:
        answer = widgets.api.delete(path, body if way == "body" else {**body, "apiVersion": f"{widgets.group}/v1"})
    going = answer.expect(200)
    assert going["metadata"]["deletionGracePeriodSeconds"] == 0
    assert going["metadata"]["deletionTimestamp"]
    assert going["metadata"]["generation"] == made["metadata"]["generation"] + 1
    assert widgets.api.delete(path).expect(200) == going  # a second delete changes nothing
    release(widgets)
    assert widgets.api.get(path).status == 404


@pytest.mark.rows("WRI-018")
@pytest.mark.parametrize(
    ("options", "finalizers", "code"),
    [
        ({"propagationPolicy": "Foreground"}, ["example.com/hold", "foregroundDeletion"], 200),
        ({"propagationPolicy": "Orphan"}, ["example.com/hold", "orphan"], 200),
        ({"propagationPolicy": "Background"}, ["example.com/hold"], 200),
        ({"orphanDependents": True}, ["example.com/hold", "orphan"], 200),
        ({"orphanDependents": False}, ["example.com/hold"], 202),
        ({}, ["example.com/hold"], 200),
    ],
)
def test_propagation(widgets: Resource, options: dict[str, Any], finalizers: list[str], code: int) -> None:
    held(widgets)
    assert widgets.api.delete(widgets.path("a"), {**BODY, **options, "dryRun": ["All"]}).status == code
    answer = widgets.api.delete(widgets.path("a"), {**BODY, **options})
    assert answer.status == code
    assert answer.json["metadata"]["finalizers"] == finalizers
    release(widgets)
    until(lambda: widgets.api.get(widgets.path("a")).status == 404, "it is gone", within=10)


@pytest.mark.rows("WRI-018")
def test_finalizers_that_stay_keep_their_order(widgets: Resource) -> None:
    body = widgets.make("a", color="red")
    body["metadata"]["finalizers"] = given = ["orphan", "example.com/hold"]
    widgets.api.post(widgets.path(), body).expect(201)
    # upstream: a delete that neither adds nor removes finalizers keeps their order
    assert widgets.api.delete(widgets.path("a"), dryRun="All").expect(200)["metadata"]["finalizers"] == given
    changed = widgets.api.delete(widgets.path("a"), propagationPolicy="Foreground").expect(200)
    assert changed["metadata"]["finalizers"] == ["example.com/hold", "foregroundDeletion"]
    release(widgets)


@pytest.mark.rows("WRI-018")
@pytest.mark.parametrize(
    "policy",
    [*(pytest.param(it, marks=pytest.mark.has("garbage collector")) for it in ("Foreground", "Orphan")), "Background"],
)
def test_objects_without_finalizers_are_deleted(widgets: Resource, policy: str, foreign: bool) -> None:
    widgets.create("a")
    widgets.api.delete(widgets.path("a"), propagationPolicy=policy).expect(200)
    within = 90 if foreign else 10  # kube-controller-manager finds new resources every 30 seconds
    until(lambda: widgets.api.get(widgets.path("a")).status == 404, "it is gone", within=within)


@pytest.mark.rows("WRI-018", "WRI-011", "WRI-019")
@pytest.mark.parametrize(
    ("options", "code", "text"),
    [
        ({"propagationPolicy": "Sideways"}, 422, 'propagationPolicy: Unsupported value: "Sideways"'),
        ({"propagationPolicy": "Orphan", "orphanDependents": True}, 422, "cannot be both set"),
        ({"dryRun": ["Some"]}, 422, "dryRun: Unsupported value"),
        (
            {"preconditions": {"uid": "other"}},
            409,
            "the UID in the precondition (other) does not match the UID in record",
        ),
        (
            {"preconditions": {"resourceVersion": "1"}},
            409,
            "the ResourceVersion in the precondition (1) does not match",
        ),
        ({"gracePeriodSeconds": "soon"}, 400, ""),
        ({"kind": "Widget"}, 400, ""),
    ],
)
def test_invalid_delete_options(widgets: Resource, options: dict[str, Any], code: int, text: str) -> None:
    made = widgets.create("a")
    answer = widgets.api.request(
        "DELETE", widgets.path("a"), json.dumps({**BODY, **options}), {"Content-Type": "application/json"}
    )
    assert text in answer.expect(code)["message"]
    assert widgets.api.get(widgets.path("a")).expect(200) == made


@pytest.mark.rows("WRI-020")
@pytest.mark.parametrize(
    ("body", "code", "text"),
    [
        ('{"kind": 5, "kind": "DeleteOptions"}', 400, "number into Go struct field .kind of type string"),
        ('{"dryRun": 5, "dryRun": ["All"]}', 400, "number into Go struct field DeleteOptions.dryRun of type []string"),
        ('{"preconditions": 5, "preconditions": {}}', 400, "DeleteOptions.preconditions of type v1.Preconditions"),
        ('{"kind": "X", "kind": "DeleteOptions", "dryRun": ["All"]}', 200, ""),
        ('{"apiVersion": "a/b/c", "apiVersion": "v1", "dryRun": ["x"], "dryRun": ["All"]}', 200, ""),
    ],
)
def test_duplicate_delete_options_are_decoded_twice(widgets: Resource, body: str, code: int, text: str) -> None:
    made = widgets.create("a")
    for path in (widgets.path("a"), widgets.path()):
        answer = widgets.api.request("DELETE", path, body, {"Content-Type": "application/json"})
        assert text in answer.expect(code).get("message", "")
    assert widgets.api.get(widgets.path("a")).expect(200) == made


@pytest.mark.rows("WRI-012", "WRI-019")
def test_a_dry_run_of_a_delete_deletes_nothing(widgets: Resource) -> None:
    made = widgets.create("a")
    right = {"uid": made["metadata"]["uid"], "resourceVersion": made["metadata"]["resourceVersion"]}
    told = widgets.api.delete(widgets.path("a"), {**BODY, "dryRun": ["All"], "preconditions": right}).expect(200)
    assert (told["status"], told["details"]["uid"]) == ("Success", right["uid"])
    assert widgets.api.get(widgets.path("a")).expect(200) == made
    widgets.api.delete(widgets.path("a"), {**BODY, "preconditions": right}).expect(200)
    assert widgets.api.get(widgets.path("a")).status == 404


@pytest.mark.rows("WRI-019", "WRI-021")
def test_preconditions_apply_to_each_object_of_a_deletecollection(widgets: Resource) -> None:
    made = widgets.create("a")
    answer = widgets.api.delete(widgets.path(), {**BODY, "preconditions": {"uid": "other"}})
    assert "the UID in the precondition (other) does not match" in answer.expect(409)["message"]
    assert widgets.api.get(widgets.path("a")).expect(200) == made


@pytest.mark.rows("WRI-021", "SEL-005")
@pytest.mark.parametrize(
    ("query", "body", "code", "text"),
    [
        ({"fieldSelector": "spec.x=1"}, '{"dryRun": [5]}', 400, "field label not supported: spec.x"),
        ({"labelSelector": "x y"}, '{"dryRun": [5]}', 400, "unable to parse requirement"),
        ({"resourceVersionMatch": "Exact"}, "{", 422, "resourceVersionMatch: Forbidden"),
        ({"fieldSelector": "metadata.name=a"}, '{"dryRun": [5]}', 400, "json: cannot unmarshal number"),
    ],
)
def test_selectors_are_validated_before_the_body(
    widgets: Resource, query: Any, body: str, code: int, text: str
) -> None:
    headers = {"Content-Type": "application/json"}
    answer = widgets.api.request("DELETE", widgets.path(), body, headers, **query)
    assert text in answer.expect(code)["message"]


@pytest.mark.rows("WRI-012", "DEL-001")
def test_a_dry_run_of_a_delete_of_a_definition_deletes_nothing(api: Client) -> None:
    widgets = serve(api)
    path = f"{DEFINITIONS}/widgets.{widgets.group}"
    before = api.get(path).expect(200)
    told = api.delete(path, dryRun="All").expect(200)
    assert told["metadata"]["deletionTimestamp"]
    widgets.create("a")
    assert api.get(path).expect(200) == before
