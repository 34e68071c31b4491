"""The documented examples of the subresources status and scale.

They are from the proposal for subresources and from the Kubernetes documentation.
"""

from __future__ import annotations

from typing import Any

import pytest

from apiext.conformance.support.definitions import Resource, definition, fresh_group, serve
from apiext.conformance.support.http_client import DEFINITIONS, JSON_PATCH, MERGE, TABLE, Client

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "spec": {
            "type": "object",
            "properties": {
                "cronSpec": {"type": "string"},
                "image": {"type": "string"},
                "replicas": {"type": "integer", "maximum": 100},
            },
        },
        "status": {
            "type": "object",
            "properties": {"replicas": {"type": "integer"}, "labelSelector": {"type": "string"}},
        },
    },
}
SCALE = {
    "specReplicasPath": ".spec.replicas",
    "statusReplicasPath": ".status.replicas",
    "labelSelectorPath": ".status.labelSelector",
}


@pytest.fixture
def crontabs(api: Client) -> Resource:
    return serve(api, "crontabs", schema={"openAPIV3Schema": SCHEMA}, subresources={"status": {}, "scale": SCALE})


def create(crontabs: Resource, **spec: Any) -> dict[str, Any]:
    return crontabs.create("my-new-cron-object", cronSpec="* * * * */5", image="my-awesome-cron-image", **spec)


def at(crontabs: Resource, subresource: str = "") -> str:
    path = crontabs.path("my-new-cron-object")
    return f"{path}/{subresource}" if subresource else path


@pytest.mark.rows("SRV-007", "SRV-008", "SRV-001")
def test_scale_reads_and_writes_replicas_of_the_object(crontabs: Resource) -> None:
    api = crontabs.api
    created = create(crontabs, replicas=3)
    scale = api.get(at(crontabs, "scale")).expect(200)
    metadata = {
        name: created["metadata"][name] for name in ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    }
    assert scale == {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": metadata,
        "spec": {"replicas": 3},
        "status": {"replicas": 0},
    }
    scaled = api.patch(at(crontabs, "scale"), {"spec": {"replicas": 5}}, MERGE).expect(200)
    assert (scaled["kind"], scaled["spec"]) == ("Scale", {"replicas": 5})
    whole = api.get(at(crontabs)).expect(200)
    assert whole["spec"] == {"cronSpec": "* * * * */5", "image": "my-awesome-cron-image", "replicas": 5}
    assert whole["metadata"]["resourceVersion"] == scaled["metadata"]["resourceVersion"]
    assert whole["metadata"]["generation"] == 2
    full = {"replicas": 4, "labelSelector": "app=cron,tier in (a,b)"}
    api.patch(at(crontabs, "status"), {"status": full}, MERGE).expect(200)
    assert api.get(at(crontabs, "scale")).expect(200)["status"] == {"replicas": 4, "selector": full["labelSelector"]}
    rows = api.get(at(crontabs, "scale"), {"Accept": TABLE}).expect(200)
    assert [column["name"] for column in rows["columnDefinitions"]] == ["Name", "Desired", "Available", "Age"]
    assert rows["rows"][0]["cells"][:3] == ["my-new-cron-object", 5, 4]


@pytest.mark.rows("SRV-008", "WRI-005")
def test_put_of_scale_writes_only_replicas(crontabs: Resource) -> None:
    api = crontabs.api
    create(crontabs, replicas=1)
    scale = api.get(at(crontabs, "scale")).expect(200)
    changed = {**scale, "spec": {"replicas": 2}, "status": {"replicas": 9, "selector": "a=b"}}
    changed["metadata"] = {**scale["metadata"], "labels": {"a": "b"}, "annotations": {"a": "b"}}
    answer = api.put(at(crontabs, "scale"), changed).expect(200)
    whole = api.get(at(crontabs)).expect(200)
    assert (whole["spec"]["replicas"], answer["status"]) == (2, {"replicas": 0})
    assert "status" not in whole
    assert not {"labels", "annotations"} & whole["metadata"].keys()
    stale = api.put(at(crontabs, "scale"), {**scale, "spec": {"replicas": 7}})
    assert stale.expect(409)["reason"] == "Conflict"
    loose = {**scale, "metadata": {"name": scale["metadata"]["name"], "namespace": "default"}, "spec": {"replicas": 6}}
    assert api.put(at(crontabs, "scale"), loose).expect(200)["spec"] == {"replicas": 6}
    same = api.put(at(crontabs, "scale"), loose).expect(200)
    assert same["metadata"]["resourceVersion"] == api.get(at(crontabs)).expect(200)["metadata"]["resourceVersion"]


@pytest.mark.rows("SRV-008", "WRI-013")
def test_scale_ignores_content_of_unknown_fields(crontabs: Resource) -> None:
    create(crontabs, replicas=1)
    raw = rb'{"kind":"Scale","metadata":{"name":"my-new-cron-object"},"spec":{"replicas":2},"a\"b":{"c":1,"c":2}}'
    answer = crontabs.api.request("PUT", at(crontabs, "scale"), raw)
    assert answer.expect(200)["spec"] == {"replicas": 2}
    (warning,) = answer.warnings
    assert "unknown field" in warning


@pytest.mark.rows("SRV-007", "SRV-008", "SRV-009")
def test_scale_validates_replicas(crontabs: Resource) -> None:
    api = crontabs.api
    create(crontabs)
    text = 'Internal error occurred: the spec replicas field ".spec.replicas" does not exist'
    assert api.get(at(crontabs, "scale")).expect(500)["message"] == text
    api.patch(at(crontabs), {"spec": {"replicas": 1}}, MERGE).expect(200)
    for replicas, wrong in (
        (-1, "should be a non-negative integer"),
        (2**31, "should be less than or equal to 2147483647"),
    ):
        refused = api.patch(at(crontabs, "scale"), {"spec": {"replicas": replicas}}, MERGE)
        assert refused.expect(422)["reason"] == "Invalid"
        whole = api.patch(at(crontabs), {"spec": {"replicas": replicas}}, MERGE).expect(422)
        assert wrong in whole["message"]
    above = api.patch(at(crontabs, "scale"), {"spec": {"replicas": 101}}, MERGE).expect(422)
    assert "spec.replicas in body should be less than or equal to 100" in above["message"]
    wrong_type = api.patch(at(crontabs, "status"), {"status": {"replicas": "many"}}, MERGE).expect(422)
    assert "status.replicas" in wrong_type["message"]
    assert api.get(at(crontabs, "scale")).expect(200)["spec"] == {"replicas": 1}


@pytest.mark.rows("SRV-008", "SRV-009")
def test_scale_cannot_set_replicas_below_a_null(api: Client) -> None:
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    scale = {"specReplicasPath": ".spec.a.b.replicas", "statusReplicasPath": ".status.replicas"}
    widgets = serve(api, schema={"openAPIV3Schema": anything}, subresources={"scale": scale})
    widgets.create("x", a={"b": None})
    refused = api.patch(f"{widgets.path('x')}/scale", {"spec": {"replicas": -1}}, MERGE).expect(500)
    assert refused["message"] == "value cannot be set because .spec.a.b is not a map[string]interface{}"
    assert "reason" not in refused
    widgets.create("y", a={})
    api.patch(f"{widgets.path('y')}/scale", {"spec": {"replicas": 2}}, MERGE).expect(200)


@pytest.mark.rows("SRV-008", "ERR-11")
def test_scale_of_an_older_api_version_is_refused(crontabs: Resource) -> None:
    create(crontabs, replicas=3)
    for version in ("extensions/v1beta1", "apps/v1beta1", "apps/v1beta2"):
        body = {"apiVersion": version, "spec": {"replicas": 4}}
        refused = crontabs.api.patch(at(crontabs, "scale"), body, MERGE).expect(422)["message"]
        assert refused.endswith(f"converting ({version.rpartition('/')[2]}.Scale) to (v1.Scale): unknown conversion")


@pytest.mark.rows("SRV-004", "SRV-005", "SRV-006", "DIS-10")
def test_status_and_main_resource_ignore_fields_of_each_other(crontabs: Resource) -> None:
    api = crontabs.api
    made = api.post(crontabs.path(), {**crontabs.make("my-new-cron-object", replicas=1), "status": {"replicas": 5}})
    assert "status" not in made.expect(201)
    first = made.json
    ignored = api.put(at(crontabs), {**first, "status": {"replicas": 5}}).expect(200)
    assert ignored == first  # nothing changed: no write, and the same generation
    told = {**first, "spec": {"replicas": 50}, "status": {"replicas": 2}}
    told["metadata"] = {**first["metadata"], "labels": {"a": "b"}, "finalizers": ["example.com/x"]}
    second = api.put(at(crontabs, "status"), told).expect(200)
    assert (second["spec"], second["status"]) == ({"replicas": 1}, {"replicas": 2})
    assert not {"labels", "finalizers"} & second["metadata"].keys()
    assert second["metadata"]["generation"] == first["metadata"]["generation"]
    assert int(second["metadata"]["resourceVersion"]) > int(first["metadata"]["resourceVersion"])
    stale = api.put(at(crontabs, "status"), {**first, "status": {"replicas": 3}})
    assert stale.expect(409)["reason"] == "Conflict"
    gone = api.patch(at(crontabs, "status"), [{"op": "remove", "path": "/status"}], JSON_PATCH).expect(200)
    assert "status" not in gone
    labelled = api.patch(at(crontabs), {"metadata": {"labels": {"a": "b"}}}, MERGE).expect(200)
    assert labelled["metadata"]["generation"] == 1
    assert api.patch(at(crontabs), {"spec": {"replicas": 2}}, MERGE).expect(200)["metadata"]["generation"] == 2


@pytest.mark.rows("SRV-006", "DIS-14")
def test_status_update_ignores_invalid_spec(api: Client) -> None:
    loose = serve(api, "crontabs", schema={"openAPIV3Schema": SCHEMA}, subresources={"status": {}})
    loose.create("my-new-cron-object", replicas=90)
    strict = {**SCHEMA["properties"]["spec"]["properties"]["replicas"], "maximum": 10}
    change = [
        {"op": "replace", "path": "/spec/versions/0/schema/openAPIV3Schema/properties/spec/properties/replicas",
         "value": strict}
    ]  # fmt: skip
    api.patch(f"{DEFINITIONS}/crontabs.{loose.group}", change, JSON_PATCH).expect(200)
    refused = api.patch(at(loose), {"spec": {"replicas": 91}}, MERGE)
    while refused.status == 200:  # until the server uses the new schema
        refused = api.patch(at(loose), {"spec": {"replicas": 91}}, MERGE)
    assert "less than or equal to 10" in refused.expect(422)["message"]
    assert api.patch(at(loose, "status"), {"status": {"replicas": 1}}, MERGE).expect(200)["status"] == {"replicas": 1}


@pytest.mark.rows("CRD-033", "DIS-08")
@pytest.mark.parametrize(
    ("scale", "texts"),
    [
        ({"statusReplicasPath": ".status.replicas"}, ["scale.specReplicasPath: Required value"]),
        ({"specReplicasPath": ".spec.replicas"}, ["scale.statusReplicasPath: Required value"]),
        ({**SCALE, "specReplicasPath": ".status.replicas"}, ["should be a json path under .spec"]),
        ({**SCALE, "statusReplicasPath": ".spec.replicas"}, ["should be a json path under .status"]),
        ({**SCALE, "labelSelectorPath": ".metadata.labels"}, ["should be a json path under either .spec or .status"]),
        ({**SCALE, "labelSelectorPath": "status.x"}, ["labelSelectorPath"]),
    ],
)
def test_scale_paths_outside_spec_and_status_are_refused(api: Client, scale: dict[str, str], texts: list[str]) -> None:
    body = definition(fresh_group(), schema={"openAPIV3Schema": SCHEMA}, subresources={"status": {}, "scale": scale})
    message = api.post(DEFINITIONS, body).expect(422)["message"]
    assert [text for text in texts if text not in message] == [], message


@pytest.mark.rows("CRD-030")
@pytest.mark.parametrize("key", ["oneOf", "anyOf", "allOf", "not"])
def test_root_schema_with_status_forbids_junctors(api: Client, key: str) -> None:
    branch: Any = {"required": ["spec"]}
    schema = {**SCHEMA, key: branch if key == "not" else [branch]}
    body = definition(fresh_group(), schema={"openAPIV3Schema": schema}, subresources={"status": {}})
    message = api.post(DEFINITIONS, body).expect(422)["message"]
    assert "fields are allowed at the root of the schema if the status subresource is enabled" in message


@pytest.mark.rows("SRV-003")
def test_undeclared_subresources_are_not_found(api: Client) -> None:
    widgets = serve(api)
    widgets.create("a")
    for subresource in ("status", "scale"):
        for method in ("GET", "PUT", "PATCH"):
            headers = {"Content-Type": MERGE} if method == "PATCH" else {}
            answer = api.request(method, f"{widgets.path('a')}/{subresource}", None if method == "GET" else {}, headers)
            assert answer.expect(404)["reason"] == "NotFound"
