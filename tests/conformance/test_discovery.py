"""Discovery: what kubectl and the libraries ask before anything else."""

from __future__ import annotations

import pytest

from tests.support.definitions import definition, establish, fresh_group, serve
from tests.support.http_client import DEFINITIONS, Client
from tests.support.waiting import until

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
KUBECTL = f"{AGGREGATED},application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"
PROTOBUF_V2 = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"


@pytest.mark.rows("DIS-101", "DIS-108")
@pytest.mark.parametrize("slash", ["", "/"])
def test_the_roots(api: Client, slash: str) -> None:
    assert api.get(f"/api{slash}").expect(200)["versions"] == ["v1"]
    groups = api.get(f"/apis{slash}").expect(200)
    assert groups["kind"] == "APIGroupList"
    assert "apiextensions.k8s.io" in [group["name"] for group in groups["groups"]]
    core = api.get(f"/api/v1{slash}").expect(200)
    assert core["kind"] == "APIResourceList"
    assert "namespaces" in [resource["name"] for resource in core["resources"]]


@pytest.mark.rows("DIS-109")
@pytest.mark.parametrize("path", ["/version", "/version/"])
def test_version(api: Client, path: str) -> None:
    version = api.get(path).expect(200)
    assert version["major"] == "1"
    assert version["minor"].isdigit()
    assert version["gitVersion"].startswith(f"v1.{version['minor']}.")
    assert {"gitCommit", "gitTreeState", "buildDate", "goVersion", "compiler", "platform"} <= version.keys()


@pytest.mark.rows("DIS-102", "DIS-104", "DIS-110", "DIS-112")
def test_a_definition_is_in_every_document(api: Client) -> None:
    wanted = definition(
        fresh_group(),
        subresources={"status": {}, "scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"}},
    )
    wanted["spec"]["names"] |= {"shortNames": ["wg"], "categories": ["all"]}
    group = establish(api, wanted)["spec"]["group"]
    listed = next(it for it in api.get("/apis").expect(200)["groups"] if it["name"] == group)
    assert listed["preferredVersion"] == {"groupVersion": f"{group}/v1", "version": "v1"}
    resources = api.get(f"/apis/{group}/v1").expect(200)["resources"]
    assert [resource["name"] for resource in resources] == ["widgets", "widgets/status", "widgets/scale"]
    main = resources[0]
    assert (main["kind"], main["singularName"], main["namespaced"]) == ("Widget", "widget", True)
    assert (main["shortNames"], main["categories"]) == (["wg"], ["all"])
    assert resources[2] | {"verbs": None} == resources[2] | {
        "kind": "Scale",
        "group": "autoscaling",
        "version": "v1",
        "verbs": None,
    }


@pytest.mark.rows("DIS-106", "DIS-107")
def test_the_aggregated_document(api: Client) -> None:
    widgets = serve(api)
    answer = api.get("/apis", {"Accept": KUBECTL})
    assert answer.headers["content-type"] == AGGREGATED
    assert "accept" in answer.headers["vary"].lower()
    document = answer.expect(200)
    assert document["kind"] == "APIGroupDiscoveryList"
    group = next(it for it in document["items"] if it["metadata"]["name"] == widgets.group)
    resource = group["versions"][0]["resources"][0]
    assert (resource["resource"], resource["scope"], resource["singularResource"]) == (
        "widgets",
        "Namespaced",
        "widget",
    )
    assert resource["responseKind"] == {"group": widgets.group, "version": "v1", "kind": "Widget"}
    core = api.get("/api", {"Accept": KUBECTL}).expect(200)
    assert [it["metadata"].get("name", "") for it in core["items"]] == [""]


@pytest.mark.rows("DIS-107")
def test_an_unchanged_document_is_not_sent_again(api: Client) -> None:
    serve(api)
    tag = api.get("/apis", {"Accept": KUBECTL}).headers["etag"]
    same = api.get("/apis", {"Accept": KUBECTL, "If-None-Match": tag})
    if same.status == 200:  # another test may have changed what is served in between
        same = api.get("/apis", {"Accept": KUBECTL, "If-None-Match": same.headers["etag"]})
    assert (same.status, same.raw) == (304, b"")
    serve(api)
    assert api.get("/apis", {"Accept": KUBECTL, "If-None-Match": tag}).status == 200


@pytest.mark.rows("DIS-104", "DIS-105", "DIS-111")
def test_discovery_follows_the_definition(api: Client) -> None:
    widgets = serve(api)
    assert api.get(f"/apis/{widgets.group}/v2").status == 404
    name = f"{DEFINITIONS}/widgets.{widgets.group}"
    wanted = api.get(name).expect(200)
    wanted["spec"]["names"]["shortNames"] = ["wdg"]
    api.put(name, wanted).expect(200)

    def short_names() -> bool:
        return api.get(f"/apis/{widgets.group}/v1").expect(200)["resources"][0].get("shortNames") == ["wdg"]

    until(short_names, "discovery shows the new short name", within=5)
    api.delete(name).expect(200)
    until(lambda: api.get(f"/apis/{widgets.group}").status == 404, "the group is gone", within=15)


@pytest.mark.rows("OAS-002", "OAS-003", "OAS-006", "OAS-008")
def test_openapi_v3_tells_kubectl_what_it_needs(api: Client) -> None:
    widgets = serve(api)
    key = f"apis/{widgets.group}/v1"

    def listed() -> str | None:
        paths = api.get("/openapi/v3").expect(200)["paths"]
        return str(paths[key]["serverRelativeURL"]) if key in paths else None

    document = api.get(until(listed, "the group version is in the index", within=5)).expect(200)
    reverse = ".".join(reversed(widgets.group.split(".")))
    schema = document["components"]["schemas"][f"{reverse}.v1.Widget"]
    assert schema["x-kubernetes-group-version-kind"] == [{"group": widgets.group, "version": "v1", "kind": "Widget"}]
    assert schema["properties"]["spec"]["properties"]["size"] == {"type": "integer", "minimum": 0}
    patch = document["paths"][f"/apis/{widgets.group}/v1/namespaces/{{namespace}}/widgets/{{name}}"]["patch"]
    assert "fieldValidation" in [it.get("name") for it in patch["parameters"]]
    assert patch["x-kubernetes-group-version-kind"]["kind"] == "Widget"


@pytest.mark.rows("OAS-001")
def test_openapi_v2_is_there_for_old_kubectls(api: Client) -> None:
    widgets = serve(api)
    name = f"{'.'.join(reversed(widgets.group.split('.')))}.v1.Widget"

    def as_json() -> bool:
        return name in api.get("/openapi/v2").expect(200)["definitions"]

    until(as_json, "the definition is in the JSON document", within=5)
    answer = api.get("/openapi/v2", {"Accept": PROTOBUF_V2})
    assert answer.status == 200
    assert answer.headers["content-type"] == "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
    assert name.encode() in answer.raw
    assert api.get("/openapi/v2", {"Accept": "text/html"}).status == 406
