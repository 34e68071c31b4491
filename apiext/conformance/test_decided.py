"""Answers about which Kubernetes' documents and kube-apiserver disagree (rows DIS-…).

The module also tests other decisions about answers.
"""

from __future__ import annotations

from typing import Any

import pytest

from apiext.conformance.support.definitions import Resource, condition, definition, establish, fresh_group, serve
from apiext.conformance.support.http_client import DEFINITIONS, JSON_PATCH, MERGE, Client
from apiext.conformance.support.waiting import until

OLD_DEFINITIONS = "/apis/apiextensions.k8s.io/v1beta1/customresourcedefinitions"


def schema(**spec: Any) -> dict[str, Any]:
    """Return a version's schema whose spec has these properties."""
    properties = {"spec": {"type": "object", "properties": spec}, "status": {"type": "object", **ANYTHING}}
    return {"openAPIV3Schema": {"type": "object", "properties": properties}}


ANYTHING = {"x-kubernetes-preserve-unknown-fields": True}
SCALE = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}


def put_status(widgets: Resource, name: str, **status: Any) -> Any:
    """Replace the status of an object; return the answer."""
    stored = widgets.api.get(widgets.path(name)).expect(200)
    return widgets.api.put(f"{widgets.path(name)}/status", {**stored, "status": status})


@pytest.mark.rows("DIS-05")
def test_the_condition_is_called_non_structural_schema(api: Client) -> None:
    wanted = definition(fresh_group())
    spec = {**wanted["spec"], "validation": {"openAPIV3Schema": {"properties": {"spec": {"type": "object"}}}}}
    spec["versions"] = [{"name": "v1", "served": True, "storage": True}]
    old = {**wanted, "apiVersion": "apiextensions.k8s.io/v1beta1", "spec": spec}
    created = api.post(OLD_DEFINITIONS, old)
    if created.status == 404:
        pytest.skip("the server does not serve v1beta1 definitions, which alone can be non-structural")
    name = created.expect(201)["metadata"]["name"]
    found = until(lambda: condition(api.get(f"{DEFINITIONS}/{name}").expect(200), "NonStructuralSchema"), "condition")
    assert (found["status"], found["reason"]) == ("True", "Violations")
    assert condition(api.get(f"{DEFINITIONS}/{name}").expect(200), "NonStructural") is None


@pytest.mark.rows("DIS-08", "DIS-10", "DIS-15")
def test_subresources_have_their_final_form(api: Client) -> None:
    scale = {**SCALE, "labelSelectorPath": ".status.selector"}
    widgets = serve(api, schema=schema(replicas={"type": "integer"}), subresources={"status": {}, "scale": scale})
    widgets.create("a", replicas=2)
    put_status(widgets, "a", replicas=1, selector="app=a").expect(200)
    shown = api.get(f"{widgets.path('a')}/scale").expect(200)
    assert (shown["spec"], shown["status"]) == ({"replicas": 2}, {"replicas": 1, "selector": "app=a"})
    merge = {"Content-Type": MERGE}
    for subresource, patch in (("scale", {"spec": {"replicas": 3}}), ("status", {"status": {"replicas": 3}})):
        path = f"{widgets.path('a')}/{subresource}"
        assert api.request("PATCH", path, patch, headers=merge).expect(200)
        assert api.get(f"{widgets.path()}/{subresource}").status == 404  # the path lacks the name of an object
    found = api.get(widgets.path("a")).expect(200)
    assert (found["spec"]["replicas"], found["status"]["replicas"]) == (3, 3)


@pytest.mark.rows("DIS-08")
def test_the_field_sub_resources_of_the_proposal_is_unknown(api: Client) -> None:
    wanted = definition(fresh_group())
    wanted["spec"]["subResources"] = {"status": {}}
    created = api.post(DEFINITIONS, wanted)
    assert created.status == 201
    assert any("spec.subResources" in warning for warning in created.warnings)


@pytest.mark.rows("DIS-14", "CEL-017")
def test_a_status_update_checks_its_values_and_every_rule(api: Client) -> None:
    group = fresh_group()
    wanted = definition(group, schema=schema(size={"type": "integer"}), subresources={"status": {}})
    establish(api, wanted)
    widgets = Resource(api, group, "widgets", "Widget")
    widgets.create("a", size=7)
    path = f"{DEFINITIONS}/widgets.{group}"
    stored = api.get(path).expect(200)
    root = stored["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    root["properties"]["spec"]["properties"]["size"]["maximum"] = 5
    api.put(path, stored).expect(200)
    put_status(widgets, "a", phase="spec is not looked at").expect(200)
    stored = api.get(path).expect(200)
    root = stored["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    root["x-kubernetes-validations"] = [{"rule": "self.spec.size <= 5", "message": "too big"}]
    api.put(path, stored).expect(200)
    phase = "rules see the whole object"
    until(lambda: put_status(widgets, "a", phase=phase).status == 422, "the rule is in force", 10)
    assert "too big" in put_status(widgets, "a", phase=phase).expect(422)["message"]


@pytest.mark.rows("DIS-16", "UPD-010")
def test_every_field_of_a_rule_is_kept_and_works(api: Client) -> None:
    rule = {
        "rule": "!oldSelf.hasValue() || self.size >= oldSelf.value().size",
        "messageExpression": "self.size == 2 ? 'not 2' : 'not so'",
        "reason": "FieldValueForbidden",
        "fieldPath": ".size",
        "optionalOldSelf": True,
    }
    shape = schema(size={"type": "integer"}, color={"type": "string"})
    shape["openAPIV3Schema"]["properties"]["spec"]["x-kubernetes-validations"] = [rule]
    widgets = serve(api, schema=shape, selectableFields=[{"jsonPath": ".spec.color"}])
    version = api.get(f"{DEFINITIONS}/widgets.{widgets.group}").expect(200)["spec"]["versions"][0]
    assert version["selectableFields"] == [{"jsonPath": ".spec.color"}]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert spec["x-kubernetes-validations"] == [rule]
    widgets.create("a", size=3)
    refused = api.request("PATCH", widgets.path("a"), {"spec": {"size": 2}}, headers={"Content-Type": MERGE})
    cause = refused.expect(422)["details"]["causes"][0]
    assert cause == {"reason": "FieldValueForbidden", "message": "Forbidden: not 2", "field": "spec.size"}


@pytest.mark.rows("DIS-17", "VER-015")
def test_stored_objects_get_the_defaults_of_the_version_they_are_stored_in(api: Client) -> None:
    group = fresh_group()
    wanted = definition(group, schema=schema(size={"type": "integer"}))
    newer = {**wanted["spec"]["versions"][0], "name": "v2", "storage": False}
    wanted["spec"]["versions"].append(newer)
    establish(api, wanted)
    widgets = Resource(api, group, "widgets", "Widget")
    widgets.create("a")
    path = f"{DEFINITIONS}/widgets.{group}"
    stored = api.get(path).expect(200)
    for version, size in zip(stored["spec"]["versions"], (1, 2), strict=True):
        version["schema"] = schema(size={"type": "integer", "default": size})
        version["storage"] = version["name"] == "v2"
    api.put(path, stored).expect(200)
    second = Resource(api, group, "widgets", "Widget", "v2")
    seen = until(lambda: api.get(second.path("a")).expect(200)["spec"].get("size"), "defaults are filled in")
    assert seen == 1
    api.post(second.path(), second.make("b")).expect(201)
    assert api.get(widgets.path("b")).expect(200)["spec"]["size"] == 2


@pytest.mark.rows("DIS-18")
@pytest.mark.parametrize(
    ("written", "rule", "accepted"),
    [
        ("date-time", "self.at.getFullYear() > 2000", True),
        ("date-time", "self.at.size() > 0", False),
        ("datetime", "self.at.size() > 0", True),
        ("datetime", "self.at.getFullYear() > 2000", False),
    ],
)
def test_only_the_format_with_a_dash_is_a_timestamp_in_rules(
    api: Client, written: str, rule: str, accepted: bool
) -> None:
    shape = schema(at={"type": "string", "format": written, "maxLength": 40})
    shape["openAPIV3Schema"]["properties"]["spec"] |= {
        "x-kubernetes-validations": [{"rule": rule}],
        "required": ["at"],
    }
    wanted = definition(fresh_group(), schema=shape)
    answer = api.post(DEFINITIONS, wanted, dryRun="All")
    assert answer.status == (201 if accepted else 422), answer.text
    if not accepted:
        assert "found no matching overload" in answer.json["message"]


@pytest.mark.rows("ERR-10")
def test_paths_of_errors_are_written_as_upstream_does(api: Client) -> None:
    number = {"type": "integer"}
    shape = schema(
        list={"type": "array", "items": {"type": "object", "properties": {"n": number}}},
        map={"type": "object", "additionalProperties": number},
    )
    shape["openAPIV3Schema"]["x-kubernetes-validations"] = [{"rule": "has(self.spec)"}]
    widgets = serve(api, schema=shape)
    refused = api.post(widgets.path(), widgets.make("a", list=[{}, {"n": "x"}], map={"b.c": "y"})).expect(422)
    fields = [cause["field"] for cause in refused["details"]["causes"]]
    assert (sorted(fields[:2]), fields[-1]) == (["spec.list[1].n", "spec.map.b.c"], "<nil>")


@pytest.mark.rows("ERR-23")
@pytest.mark.differs("the order of validation errors is random")
def test_errors_come_in_the_order_of_the_body(api: Client) -> None:
    names = ("a", "b", "c", "d")
    widgets = serve(api, schema=schema(**{name: {"type": "integer"} for name in names}))
    for order in (names, names[::-1]):
        refused = api.post(widgets.path(), widgets.make("w", **dict.fromkeys(order, "x"))).expect(422)
        assert [cause["field"] for cause in refused["details"]["causes"]] == [f"spec.{name}" for name in order]


@pytest.mark.rows("WRI-008")
@pytest.mark.differs("a write in one version removes the fields that only another version has")
def test_a_patch_sees_the_object_in_its_own_version(api: Client) -> None:
    group, text = fresh_group(), {"type": "string"}
    wanted = definition(group, schema=schema(size={"type": "integer", "default": 1}, color=text, old=text))
    newer = {**wanted["spec"]["versions"][0], "name": "v2", "storage": False}
    newer["schema"] = schema(size={"type": "integer"}, color={**text, "default": "red"})
    wanted["spec"]["versions"].append(newer)
    establish(api, wanted)
    first = Resource(api, group, "widgets", "Widget")
    second = Resource(api, group, "widgets", "Widget", "v2")
    first.create("a", old="kept by v1 only")
    headers = {"Content-Type": JSON_PATCH}
    unseen = api.request("PATCH", second.path("a"), [{"op": "test", "path": "/spec/old", "value": ""}], headers=headers)
    assert unseen.status == 422
    seen = [{"op": "test", "path": "/spec/size", "value": 1}, {"op": "add", "path": "/spec/junk", "value": 1}]
    patched = api.request("PATCH", second.path("a"), seen, headers=headers).expect(200)
    assert patched["spec"] == {"size": 1, "color": "red"}
    kept = {"size": 1, "color": "red", "old": "kept by v1 only"}
    assert api.get(first.path("a")).expect(200)["spec"] == kept


@pytest.mark.rows("RV-022")
def test_shards_are_ignored(api: Client) -> None:
    widgets = serve(api)
    widgets.create("a")
    found = api.get(widgets.path(), shardSelector="shardRange(object.metadata.uid, '0x0', '0x1')").expect(200)
    assert [item["metadata"]["name"] for item in found["items"]] == ["a"]
    assert "shardInfo" not in found["metadata"]


@pytest.mark.rows("VAL-012")
def test_a_status_without_a_schema_may_have_any_fields(api: Client) -> None:
    shape = schema(size={"type": "integer"})
    shape["openAPIV3Schema"] |= ANYTHING
    del shape["openAPIV3Schema"]["properties"]["status"]
    widgets = serve(api, schema=shape, subresources={"status": {}})
    widgets.create("a")
    anything = {"deep": [{"er": 1.5}], "text": "x"}
    assert put_status(widgets, "a", **anything).expect(200)["status"] == anything
