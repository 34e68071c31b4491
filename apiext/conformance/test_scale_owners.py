"""Owners of replicas: server-side apply to a Scale, and managedFields of a Scale.

The managedFields are those in patches and in webhook reviews.
"""

from __future__ import annotations

from typing import Any

import pytest

from apiext.conformance.support.admission import MUTATING, VALIDATING, configured, rule, webhook
from apiext.conformance.support.admission_webhook import Webhook, fixtures
from apiext.conformance.support.definitions import Resource, definition, establish, fresh_group, serve
from apiext.conformance.support.http_client import APPLY, JSON_PATCH, MERGE, Answer, Client

running, hook = fixtures()
INTEGER = {"type": "integer"}
PATHS = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}
SCALE = {"apiVersion": "autoscaling/v1", "kind": "Scale"}
INVALID_VERSION = "to proper version: request to convert CR to an invalid group/version: autoscaling/v1"
UNOWNED = (
    "failed to create manager for existing fields: "
    f"failed to convert live object (/; autoscaling/v1, Kind=Scale) {INVALID_VERSION}"
)


def schema(**spec: Any) -> dict[str, Any]:
    return {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": spec}}}}


@pytest.fixture
def widgets(api: Client) -> Resource:
    return serve(api, schema=schema(replicas=INTEGER), subresources={"scale": PATHS})


def make(widgets: Resource, name: str, **spec: Any) -> None:
    widgets.api.post(widgets.path(), widgets.make(name, **spec), fieldManager="maker").expect(201)


def apply(widgets: Resource, name: str, manager: str, spec: Any, force: bool = False, **more: Any) -> Answer:
    force_ = str(force).lower()
    body = {**SCALE, "spec": spec, **more}
    return widgets.api.patch(f"{widgets.path(name)}/scale", body, APPLY, fieldManager=manager, force=force_)


def owners(widgets: Resource, name: str) -> list[tuple[str, str, str, Any]]:
    entries = widgets.api.get(widgets.path(name)).expect(200)["metadata"].get("managedFields", [])
    return [(it["manager"], it["operation"], it.get("subresource", ""), it["fieldsV1"]) for it in entries]


REPLICAS: dict[str, Any] = {"f:spec": {"f:replicas": {}}}


@pytest.mark.rows("SRV-010", "SSA-008")
def test_an_apply_to_a_scale_that_changes_nothing(widgets: Resource) -> None:
    make(widgets, "a", replicas=2)
    before = widgets.api.get(widgets.path("a")).expect(200)["metadata"]["generation"]
    assert apply(widgets, "a", "other", {"replicas": 2}).expect(200)["spec"] == {"replicas": 2}
    assert owners(widgets, "a") == [
        ("other", "Apply", "scale", REPLICAS),
        ("maker", "Update", "", REPLICAS),
        ("maker", "Update", "", {"f:spec": {}}),
    ]
    assert widgets.api.get(widgets.path("a")).expect(200)["metadata"]["generation"] == before


@pytest.mark.rows("SRV-010", "SSA-008")
def test_an_apply_to_a_scale_that_would_change_it(widgets: Resource) -> None:
    make(widgets, "a", replicas=2)
    lost = apply(widgets, "a", "other", {"replicas": 3}).expect(409)
    assert lost["message"] == (
        'Apply failed with 1 conflict: conflict with "maker" using autoscaling/v1: .spec.replicas'
    )
    changed = f"failed to convert new object (/; autoscaling/v1, Kind=Scale) {INVALID_VERSION}"
    assert apply(widgets, "a", "other", {"replicas": 3}, force=True).expect(500)["message"] == changed
    labels = apply(widgets, "a", "other", {}, metadata={"name": "a", "labels": {"a": "b"}}).expect(500)
    assert labels["message"] == changed.replace("/;", "/a;")
    assert owners(widgets, "a")[0][0] == "maker"


@pytest.mark.rows("SRV-010", "SSA-006")
def test_an_apply_to_a_scale_without_owners(widgets: Resource) -> None:
    make(widgets, "a", replicas=0)
    widgets.api.put(f"{widgets.path('a')}/scale", {**SCALE, "metadata": {"name": "a"}, "spec": {}}).expect(200)
    assert apply(widgets, "a", "other", {}).expect(500)["message"] == UNOWNED
    wrong = widgets.api.patch(f"{widgets.path('a')}/scale", {**SCALE, "kind": "Foo"}, APPLY, fieldManager="m")
    assert wrong.expect(400)["message"] == "invalid object type: autoscaling/v1, Kind=Foo"


@pytest.mark.rows("SRV-010", "SSA-001")
@pytest.mark.parametrize(
    ("body", "code", "text"),
    [
        ({"spec": {"foo": 1}}, 400, ".spec.foo: field not declared in schema"),
        ({"spec": {"replicas": "x"}}, 400, ".spec.replicas: expected numeric (int or float), got string"),
        ({"metadata": {"managedFields": [{}]}}, 400, "metadata.managedFields must be nil"),
    ],
)
def test_invalid_applies_of_a_scale(widgets: Resource, body: Any, code: int, text: str) -> None:
    make(widgets, "a", replicas=2)
    refused = widgets.api.patch(f"{widgets.path('a')}/scale", {**SCALE, **body}, APPLY, fieldManager="m")
    assert refused.expect(code)["message"].endswith(text)


@pytest.mark.rows("SRV-010", "WRI-007")
def test_patches_see_the_owners_of_a_scale(widgets: Resource) -> None:
    make(widgets, "a", replicas=2)
    path = f"{widgets.path('a')}/scale"
    test = {"op": "test", "path": "/metadata/managedFields/0/apiVersion", "value": "autoscaling/v1"}
    write = {"op": "replace", "path": "/spec/replicas", "value": 3}
    assert "managedFields" not in widgets.api.patch(path, [test, write], JSON_PATCH).expect(200)["metadata"]
    wrong = widgets.api.patch(path, {"spec": {"replicas": "x"}}, MERGE).expect(422)["message"]
    assert '\\"managedFields\\":[{\\"manager\\":\\"unknown\\",\\"operation\\":\\"Update\\"' in wrong


@pytest.mark.rows("SRV-007", "VER-001")
def test_replicas_that_the_storage_version_does_not_have(api: Client) -> None:
    wanted = definition(fresh_group(), schema=schema(replicas=INTEGER), subresources={"scale": PATHS}, storage=False)
    other = {"name": "v2", "served": True, "storage": True, "schema": schema(size=INTEGER)}
    wanted["spec"]["versions"].append(other)
    widgets = Resource(api, establish(api, wanted)["spec"]["group"], "widgets", "Widget")
    make(widgets, "a")
    path = f"{widgets.path('a')}/scale"
    for dry in ({"dryRun": "All"}, {}):
        assert api.patch(path, {"spec": {"replicas": 3}}, MERGE, **dry).expect(200)["spec"] == {}
    assert api.get(path).status == 500


@pytest.mark.rows("SRV-010", "ADM-007")
def test_managed_fields_of_a_scale_in_reviews(widgets: Resource, hook: Webhook) -> None:
    make(widgets, "a", replicas=2)
    api, path = widgets.api, f"{widgets.path('a')}/scale"

    def told(of: str) -> list[Any]:
        named = webhook("w", hook.client_config("/w"), rule(widgets, "widgets/scale"))
        with configured(api, of, named):
            hook.forget()
            api.patch(path, {"spec": {"replicas": 3 if of == MUTATING else 4}}, MERGE, fieldManager="k").expect(200)
            (request,) = hook.requests("/w")
            return [request[name]["metadata"].get("managedFields") for name in ("oldObject", "object")]

    # Mutating webhooks see the Scales of the request. For validating webhooks, the server makes new Scales from the old
    # and the new object.
    # upstream: validating admission gets a Scale without managedFields
    (before,), (after,) = told(MUTATING)
    assert [(it["manager"], it["apiVersion"]) for it in (before, after)] == [
        ("maker", "autoscaling/v1"),
        ("k", "autoscaling/v1"),
    ]
    assert told(VALIDATING) == [None, None]
