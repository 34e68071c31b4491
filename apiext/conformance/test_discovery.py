"""Discovery: the first requests of kubectl and client libraries."""

from __future__ import annotations

import re
import threading
from typing import Any

import pytest
import yaml

from apiext.conformance.support.definitions import definition, establish, fresh_group, serve
from apiext.conformance.support.http_client import DEFINITIONS, Client
from apiext.conformance.support.waiting import until

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
KUBECTL = f"{AGGREGATED},application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"
ANY_METHOD = pytest.mark.differs("the aggregator sends its documents for any HTTP method")
PROTOBUF = "application/vnd.kubernetes.protobuf"
IN_PROTOBUF = AGGREGATED.replace("application/json", PROTOBUF)


@pytest.mark.rows("DIS-101", "DIS-108")
@pytest.mark.parametrize("slash", ["", "/"])
def test_the_root_documents_of_discovery(api: Client, slash: str) -> None:
    assert api.get(f"/api{slash}").expect(200)["versions"] == ["v1"]
    groups = api.get(f"/apis{slash}").expect(200)
    assert groups["kind"] == "APIGroupList"
    assert "apiextensions.k8s.io" in [group["name"] for group in groups["groups"]]
    core = api.get(f"/api/v1{slash}").expect(200)
    assert core["kind"] == "APIResourceList"
    assert "namespaces" in [resource["name"] for resource in core["resources"]]


@pytest.mark.parametrize(("root", "group", "resource", "kind"), [
    ("/api", "", "namespaces", "Namespace"),
    ("/apis", "coordination.k8s.io", "leases", "Lease"),
    ("/apis", "apiextensions.k8s.io", "customresourcedefinitions", "CustomResourceDefinition"),
])  # fmt: skip
def test_response_kinds_of_built_in_kinds_have_no_group_and_version(
    api: Client, root: str, group: str, resource: str, kind: str
) -> None:
    # upstream: the responseKind of a built-in kind has no group and version
    groups = api.get(root, {"Accept": AGGREGATED}).expect(200)["items"]
    (versions,) = [each["versions"] for each in groups if each["metadata"].get("name", "") == group]
    (found,) = [each for each in versions[0]["resources"] if each["resource"] == resource]
    for each in (found, *found.get("subresources", [])):
        assert each["responseKind"] == {"group": "", "version": "", "kind": kind}


OWN = [
    "events.k8s.io", "authentication.k8s.io", "authorization.k8s.io", "rbac.authorization.k8s.io",
    "admissionregistration.k8s.io", "apiextensions.k8s.io", "coordination.k8s.io",
]  # fmt: skip


@pytest.mark.rows("DIS-107", "DIS-108")
@pytest.mark.needs("/apis")
def test_groups_are_sorted_by_priority(api: Client) -> None:
    first = establish(api, definition(f"aaa.{fresh_group()}"))["spec"]["group"]
    until(lambda: first in api.get("/apis").text, "its group is listed", 10)
    listed = [each["name"] for each in api.get("/apis").expect(200)["groups"]]
    assert [name for name in listed if name in OWN] == OWN
    assert listed.index(first) > listed.index(OWN[-1])
    items = api.get("/apis", {"Accept": AGGREGATED}).expect(200)["items"]
    assert [name for each in items if (name := each["metadata"]["name"]) in OWN] == OWN


@pytest.mark.rows("DIS-102", "DIS-105")
@pytest.mark.parametrize(("path", "resource", "shown", "below"), [
    ("/api/v1", "namespaces", "Q3oi5N2YM8M=", ["finalize", "status"]),
    # recorded: an apiextensions-apiserver without kube-apiserver publishes no storageVersionHash of definitions
    ("/apis/apiextensions.k8s.io/v1", "customresourcedefinitions", "", ["status"]),
])  # fmt: skip
def test_resources_of_the_server_itself(api: Client, path: str, resource: str, shown: str, below: list[str]) -> None:
    listed = api.get(path).expect(200)["resources"]
    (found,) = [each for each in listed if each["name"] == resource]
    assert not shown or found["storageVersionHash"] == shown
    assert [each["name"] for each in listed if "/" in each["name"] and each["name"].startswith(resource)] == [
        f"{resource}/{name}" for name in below
    ]


@pytest.mark.rows("DIS-109")
@pytest.mark.parametrize("path", ["/version", "/version/"])
def test_version(api: Client, path: str) -> None:
    version = api.get(path).expect(200)
    assert version["major"] == "1"
    assert version["minor"].isdigit()
    if version["gitVersion"].startswith("v0.0.0-"):
        pytest.skip("the server was built without a version")
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


IN_ORDER = [
    "v10", "v02", "v1", "v0", "v3beta1", "v2beta1", "v1beta2", "v1beta01", "v1beta0", "v0beta1", "v11alpha2",
    "v1alpha1", "a", "foo1", "foo10", "v-1", "v1a", "v1alpha", "v1beta99999999999999999999",
    "v9999999999999999999999", "vv1", "x",
]  # fmt: skip


@pytest.mark.rows("DIS-104", "DIS-107", "VER-001")
@pytest.mark.needs("/apis")
def test_versions_are_sorted_by_priority(api: Client, foreign: bool) -> None:
    wanted = definition(fresh_group())
    (one,) = wanted["spec"]["versions"]
    wanted["spec"]["versions"] = [{**one, "name": name, "storage": name == "x"} for name in sorted(IN_ORDER)]
    group = establish(api, wanted)["spec"]["group"]

    def listed() -> list[str]:
        return [it["version"] for it in api.get(f"/apis/{group}").expect(200)["versions"]]

    until(lambda: len(listed()) == len(IN_ORDER), "discovery lists every version", 30 if foreign else 0)
    # Numbers in versions are 64-bit integers.
    # upstream: a version with a greater number is sorted like any other name
    assert listed() == IN_ORDER
    assert api.get(f"/apis/{group}").json["preferredVersion"]["version"] == IN_ORDER[0]
    (found,) = [it for it in _everything(api) if it["metadata"]["name"] == group]
    assert [it["version"] for it in found["versions"]] == IN_ORDER


@pytest.mark.rows("DIS-106", "DIS-107")
def test_the_aggregated_document(api: Client) -> None:
    widgets = serve(api)
    answer = api.get("/apis", {"Accept": KUBECTL})
    assert answer.headers["content-type"] == AGGREGATED
    assert "accept" in answer.headers["vary"].lower()
    assert re.fullmatch('"[0-9A-F]{128}"', answer.headers["etag"])
    document = answer.expect(200)
    names = [it["metadata"]["name"] for it in document["items"]]
    assert len(set(names)) == len(names)
    for group in document["items"]:
        for version in group["versions"]:
            assert version["freshness"] == "Current"
            listed = [it["resource"] for it in version["resources"]]
            assert listed == sorted(listed)
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


@pytest.mark.rows("DIS-106")
@pytest.mark.parametrize(("path", "kind"), [
    ("/api", "APIGroupDiscoveryList"), ("/api/", "APIGroupDiscoveryList"), ("/apis", "APIGroupDiscoveryList"),
    ("/apis/", "APIGroupList"), ("/apis/apiextensions.k8s.io", "APIGroup"),
])  # fmt: skip
def test_paths_of_the_aggregated_document(api: Client, path: str, kind: str) -> None:
    # upstream: /apis/ has another handler than /apis, and this handler does not know the aggregated document
    # So the answer for /apis/ is an APIGroupList.
    assert api.get(path, {"Accept": KUBECTL}).expect(200)["kind"] == kind


@pytest.mark.rows("DIS-101")
@pytest.mark.parametrize("host", [b"\xfc", b"a b", b"a/b", "é".encode(), b'"'])
def test_an_invalid_host_header_is_refused(api: Client, host: bytes) -> None:
    with api.dial() as connection:
        connection.sendall(b"GET /api HTTP/1.1\r\nHost: " + host + b"\r\nConnection: close\r\n" + api.fields + b"\r\n")
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert answer.endswith(b"400 Bad Request: malformed Host header")


@pytest.mark.rows("DIS-107")
def test_an_unchanged_document_is_not_sent_again(api: Client) -> None:
    serve(api)
    tag = api.get("/apis", {"Accept": KUBECTL}).headers["etag"]
    same = api.get("/apis", {"Accept": KUBECTL, "If-None-Match": tag})
    if same.status == 200:  # another test may have changed the served groups meanwhile
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


@pytest.mark.rows("DIS-101", "DIS-102")
@pytest.mark.parametrize("path", ["/api", "/apis", "/apis/apiextensions.k8s.io", "/apis/apiextensions.k8s.io/v1"])
def test_old_documents_exist_in_three_encodings(api: Client, path: str) -> None:
    json = api.get(path).expect(200)
    yaml_answer = api.get(path, {"Accept": "application/yaml"})
    assert (yaml_answer.status, yaml_answer.headers["content-type"]) == (200, "application/yaml")
    assert yaml.safe_load(yaml_answer.text)["kind"] == json["kind"]
    protobuf = api.get(path, {"Accept": PROTOBUF})
    assert (protobuf.status, protobuf.headers["content-type"]) == (200, PROTOBUF)
    assert protobuf.raw.startswith(b"k8s\0\n")
    assert json["kind"].encode() in protobuf.raw


@pytest.mark.rows("DIS-106", "DIS-107")
@pytest.mark.parametrize("root", ["/api", "/apis"])
def test_the_aggregated_document_exists_in_three_encodings(api: Client, root: str) -> None:
    for encoding in ("application/json", "application/yaml", PROTOBUF):
        wanted = AGGREGATED.replace("application/json", encoding)
        answer = api.get(root, {"Accept": wanted})
        assert (answer.status, answer.headers["content-type"]) == (200, wanted)
        assert answer.headers["cache-control"] == "public"
        assert "accept" in answer.headers["vary"].lower()
        assert b"APIGroupDiscoveryList" in answer.raw
    assert answer.raw.startswith(b"k8s\0\n")
    assert api.get(root, {"Accept": f"{IN_PROTOBUF},{KUBECTL}"}).headers["content-type"] == IN_PROTOBUF


@pytest.mark.rows("DIS-106", "NEG-001")
@pytest.mark.parametrize(
    ("accept", "kind"),
    [
        (AGGREGATED + ";profile=nopeer", "APIGroupDiscoveryList"),
        ("application/json;q=0.9," + AGGREGATED + ";q=0.8", "APIGroupDiscoveryList"),
        (AGGREGATED.replace("v=v2", "v=v2beta1") + ",application/json", "APIGroupList"),
        (AGGREGATED.replace("v=v2", "v=v9") + ",*/*", "APIGroupList"),
        (AGGREGATED.replace("APIGroupDiscoveryList", "Table") + ",application/json", "APIGroupList"),
        (";;;=,,application/json", "APIGroupList"),
    ],
)
def test_unsupported_forms_in_accept_are_skipped(api: Client, accept: str, kind: str) -> None:
    assert api.get("/apis", {"Accept": accept}).expect(200)["kind"] == kind


@pytest.mark.rows("DIS-106", "ERR-15")
@pytest.mark.parametrize("accept", ["text/html", "image/*", AGGREGATED.replace("v=v2", "v=v9"), "application/cbor"])
@pytest.mark.parametrize("path", ["/api", "/apis", "/apis/apiextensions.k8s.io", "/apis/apiextensions.k8s.io/v1"])
def test_unsupported_media_types_are_not_acceptable(api: Client, path: str, accept: str) -> None:
    status = api.get(path, {"Accept": accept}).expect(406)
    assert status["reason"] == "NotAcceptable"
    assert "application/json, application/yaml, application/vnd.kubernetes.protobuf" in status["message"]


@pytest.mark.rows("DIS-101", "ERR-15")
@pytest.mark.parametrize("path", ["/api", "/api/v1", "/apis/apiextensions.k8s.io/v1"])
def test_discovery_requests_with_an_unsupported_content_type_are_refused(api: Client, path: str) -> None:
    for told in ("application/json", "application/yaml;a=b", PROTOBUF, "text/html,application/json"):
        assert api.get(path, {"Content-Type": told}).status == 200
    for told in ("text/plain", "application/merge-patch+json", "*/*", "APPLICATION/JSON"):
        refused = api.get(path, {"Content-Type": told, "Accept": "text/html"}).expect(415)
        assert (refused["reason"], refused["message"]) == ("UnsupportedMediaType", "415: Unsupported Media Type")


@pytest.mark.rows("DIS-101", "DIS-105")
def test_an_unserved_version_is_a_404_before_headers_are_validated(api: Client) -> None:
    path = "/apis/apiextensions.k8s.io/v9"
    for method, headers in (
        ("GET", {}),
        ("POST", {}),
        ("GET", {"Accept": "text/html"}),
        ("GET", {"Content-Type": "x/y"}),
    ):
        answer = api.request(method, path, None, headers).expect(404)
        assert answer["message"] == "the server could not find the requested resource"


@pytest.mark.rows("DIS-101", "DIS-105")
@pytest.mark.parametrize(
    "path", ["/api/v2", "/api/v1/x/y/z/z", "/apis/none.example.com", "/apis/none.example.com/v1", "/apis//v1"]
)
def test_unserved_groups_are_not_found(api: Client, path: str) -> None:
    for accept in ("application/json", KUBECTL, IN_PROTOBUF):
        assert api.get(path, {"Accept": accept}).status == 404


@pytest.mark.rows("DIS-107")
@pytest.mark.parametrize("tag", ["", "x", '"', '"x"', ",,,", 'W/"x"', '"x", "y"', "\u00e9".encode().decode("latin-1")])
def test_an_invalid_etag_is_ignored(api: Client, tag: str) -> None:
    assert api.get("/apis", {"Accept": KUBECTL, "If-None-Match": tag}).status == 200


@pytest.mark.rows("DIS-107")
@pytest.mark.differs("If-None-Match works only with exactly one strong ETag")
def test_if_none_match_may_be_a_list_or_have_weak_etags(api: Client) -> None:
    def known() -> bool:
        tag = api.get("/apis", {"Accept": KUBECTL}).headers["etag"]
        forms = (tag, f"W/{tag}", f'"x", {tag}', "*")
        return all(api.get("/apis", {"Accept": KUBECTL, "If-None-Match": form}).status == 304 for form in forms)

    until(known, "every form of the ETag is known", within=5)  # other tests change the served groups meanwhile


@pytest.mark.rows("DIS-101", "DIS-107")
@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE"])
@pytest.mark.parametrize(
    "path",
    [
        "/api",
        "/apis/apiextensions.k8s.io/v1",
        *(pytest.param(path, marks=ANY_METHOD) for path in ("/apis", "/openapi/v2", "/openapi/v3")),
    ],
)
def test_documents_are_only_read(api: Client, path: str, method: str) -> None:
    assert api.request(method, path).expect(405)["reason"] == "MethodNotAllowed"


@pytest.mark.rows("DIS-104", "DIS-105", "DIS-111", "OAS-009", "OAS-012")
def test_documents_while_definitions_come_and_go(api: Client, foreign: bool) -> None:
    over, codes = threading.Event(), set[int]()
    lag = 30.0 if foreign else 0.0  # seconds after which an aggregator has a change in its documents
    paths = ["/apis", "/openapi/v2", "/openapi/v3"]

    def ask(path: str) -> None:
        while not over.is_set():
            for accept in ("application/json", KUBECTL):
                codes.add(api.get(path, {"Accept": accept}).status)

    askers = [threading.Thread(target=ask, args=(path,)) for path in paths]
    for asker in askers:
        asker.start()
    try:
        for _ in range(6):
            group = establish(api, definition(fresh_group()))["spec"]["group"]
            until(lambda its=group: _everywhere(api, its) == [True] * 5, "every document has it", lag)  # type: ignore[misc]
            api.delete(f"{DEFINITIONS}/widgets.{group}").expect(200)
            until(lambda its=group: its not in _groups(api), "the group is gone", within=15)  # type: ignore[misc]
            until(lambda its=group: not any(_everywhere(api, its)), "no document has it", lag)  # type: ignore[misc]
    finally:
        over.set()
        for asker in askers:
            asker.join(30)
    assert codes <= {200, 406}


def _groups(api: Client) -> list[str]:
    return [group["name"] for group in api.get("/apis").expect(200)["groups"]]


def _everywhere(api: Client, group: str) -> list[bool]:
    """Return for each document of discovery and OpenAPI whether the document contains the group."""
    return [
        group in _groups(api),
        group in [item["metadata"].get("name") for item in _everything(api)],
        api.get(f"/openapi/v3/apis/{group}/v1").status == 200,
        f"apis/{group}/v1" in api.get("/openapi/v3").expect(200)["paths"],
        f"/apis/{group}/v1/" in api.get("/openapi/v2").text,
    ]


def _everything(api: Client) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = api.get("/apis", {"Accept": KUBECTL}).expect(200)["items"]
    return items
