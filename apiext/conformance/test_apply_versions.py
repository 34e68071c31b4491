"""Applies, scales and several versions, as recorded from kube-apiserver.

Random tests found these requests.
"""

from __future__ import annotations

from typing import Any

import pytest

from apiext.conformance.support.definitions import Resource, definition, establish, fresh_group, serve
from apiext.conformance.support.http_client import APPLY, DEFINITIONS, TABLE, Answer, Client
from apiext.conformance.support.waiting import until

ROOT = "/spec/versions/0/schema/openAPIV3Schema"
TEXT, NUMBER = {"type": "string"}, {"type": "integer"}
FREE = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
SCALE = {"scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}}


def schema(spec: dict[str, Any], **more: Any) -> dict[str, Any]:
    """Return the schema of an object whose spec has these properties."""
    return {
        "openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object", "properties": spec}, **more}}
    }


def versions(api: Client, *of: dict[str, Any]) -> tuple[Resource, ...]:
    """Define a kind with these versions (the first is the storage version).

    Return a Resource for each version.
    """
    wanted = definition(fresh_group())
    wanted["spec"]["versions"] = [{"served": True, "storage": not index, **it} for index, it in enumerate(of)]
    group = establish(api, wanted)["spec"]["group"]
    return tuple(Resource(api, group, "widgets", "Widget", it["name"]) for it in of)


@pytest.mark.rows("SRV-007", "DEF-001")
def test_a_scale_of_another_version_adds_no_defaults(api: Client) -> None:
    plain, early = {"replicas": NUMBER, "a": TEXT}, {"replicas": NUMBER, "a": {**TEXT, "default": "x"}}
    v1, v2 = versions(
        api,
        {"name": "v1", "schema": schema(plain), "subresources": SCALE},
        {"name": "v2", "schema": schema(early), "subresources": SCALE},
    )
    v1.create("x", replicas=1)
    scale = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "x", "namespace": "default"}}
    api.put(f"{v2.path('x')}/scale", scale | {"spec": {"replicas": 2}}).expect(200)
    assert [api.get(it.path("x")).expect(200)["spec"] for it in (v1, v2)] == [{"replicas": 2}] * 2


@pytest.mark.rows("SSA-005")
def test_invalid_utf_8_in_a_user_agent_becomes_replacement_characters(api: Client) -> None:
    widgets = serve(api)
    made = api.post(widgets.path(), widgets.make("x"), {"User-Agent": "\xe9t\xe9/1"}).expect(201)
    # upstream: Go decodes each byte that is not UTF-8 as U+FFFD
    assert made["metadata"]["managedFields"][0]["manager"] == "\ufffdt\ufffd"


@pytest.mark.rows("SRV-007", "TAB-002")
def test_the_table_of_a_scale_with_zero_replicas_has_an_empty_cell(api: Client) -> None:
    (widgets,) = versions(api, {"name": "v1", "schema": schema({"replicas": NUMBER}), "subresources": SCALE})
    for count, cell in ((0, None), (2, 2)):
        widgets.create(f"x{count}", replicas=count)
        (row,) = api.get(f"{widgets.path(f'x{count}')}/scale", {"Accept": TABLE}).expect(200)["rows"]
        assert row["cells"][:3] == [f"x{count}", cell, 0]  # upstream: the spec of a Scale omits zero


@pytest.mark.rows("SRV-008", "PRU-007")
def test_replicas_outside_the_schema_are_pruned_but_raise_the_generation(api: Client) -> None:
    settings = {"schema": schema({"a": TEXT}), "subresources": SCALE}
    v1, v2 = versions(api, {"name": "v1", **settings}, {"name": "v2", "schema": schema({"replicas": NUMBER})})
    v1.create("x", a="x")
    # upstream: the replicas are pruned before the object is stored, so each patch adds them again: a new generation
    for generation in (2, 3):
        scale = api.patch(f"{v1.path('x')}/scale", {"spec": {"replicas": 3}}).expect(200)
        assert (scale["spec"], scale["status"]) == ({}, {"replicas": 0})
        found = [api.get(it.path("x")).expect(200) for it in (v1, v2)]
        assert [it["spec"] for it in found] == [{"a": "x"}, {}]
        assert [it["metadata"]["generation"] for it in found] == [generation] * 2


@pytest.mark.rows("SSA-008", "SSA-014")
def test_an_apply_reports_fields_missing_in_the_version_of_another_owner(api: Client) -> None:
    v1, v2 = versions(
        api,
        {"name": "v1", "schema": schema({"a": TEXT, "n": NUMBER})},
        {"name": "v2", "schema": schema({"a": TEXT})},
    )
    v2.create("x", a="x")
    assert applied(v1, a="x").status == 200
    # upstream: an apply runs its prune step, in the versions of all managers, even if it removes no fields
    refused = applied(v1, a="x", n=1).expect(500)["message"]
    assert refused == (
        "failed to prune fields: failed add back owned items: failed to convert merged object at version "
        f"{v2.group}/v2: .spec.n: field not declared in schema"
    )


@pytest.mark.rows("SSA-010")
def test_an_apply_of_an_earlier_applier_is_refused_after_the_root_became_atomic(api: Client) -> None:
    (widgets,) = versions(api, {"name": "v1", "schema": schema({"a": TEXT, "n": NUMBER})})
    assert applied(widgets, a="x").status == 201
    change = [{"op": "add", "path": f"{ROOT}/x-kubernetes-map-type", "value": "atomic"}]
    headers = {"Content-Type": "application/json-patch+json"}
    api.request("PATCH", f"{DEFINITIONS}/widgets.{widgets.group}", change, headers).expect(200)
    refused = (
        "failed to prune fields: failed add back owned items: failed to convert pruned object at version "
        f"{widgets.group}/v1: failed to convert value to unstructured for type <nil>"
    )
    # upstream: the prune step of the apply removes an atomic root completely, and fails. Until the server uses the new
    # schema, the apply succeeds.
    until(lambda: applied(widgets, a="x").json.get("message") == refused, "the apply is refused", within=20)


def applied(widgets: Resource, **spec: Any) -> Answer:
    """Apply to the object x with ``force``."""
    headers = {"Content-Type": APPLY}
    return widgets.api.request(
        "PATCH", widgets.path("x"), widgets.make("x", **spec), headers, fieldManager="m", force="true"
    )
