"""Paths and operations of resources and of the server's other endpoints."""

import functools
import json
from typing import Any

import orjson
import pytest

from apiext.catalog.builtin.resources import builtin_resources
from apiext.catalog.compile import compile_definition
from apiext.catalog.served import Catalog
from apiext.conformance.support.cases import Case, case_name, load
from apiext.discovery import openapi_v2, openapi_v3, types
from apiext.discovery.operations import path_items
from tests.unit.discovery.served import GADGETS, GROUP, WIDGETS, catalog, definition

VERSION = "1.37"
ROOTS = {
    "custom": f"apis/{GROUP}/v1",
    "cluster": f"apis/{GROUP}/v2",
    "typed": "api/v1",
    "review": "apis/authorization.k8s.io/v1",
}
LISTING = [
    "allowWatchBookmarks", "continue", "fieldSelector", "labelSelector", "limit", "resourceVersion",
    "resourceVersionMatch", "sendInitialEvents", "shardSelector", "timeoutSeconds", "watch",
]  # fmt: skip


@functools.cache
def everything() -> Catalog:
    served = catalog(WIDGETS, GADGETS)
    for resource in builtin_resources():
        served = served.with_resource(resource)
    return served


@functools.cache
def documents() -> tuple[dict[str, Any], dict[str, Any]]:
    """Return all v3 documents by path, and the v2 document."""
    index = orjson.loads(openapi_v3.index(everything(), VERSION).body)["paths"]
    v3 = {path: openapi_v3.document(everything(), path, VERSION) for path in index}
    v2 = orjson.loads(openapi_v2.document(everything(), VERSION).body)
    return {path: orjson.loads(found.body) for path, found in v3.items() if found is not None}, v2


@pytest.mark.rows("OAS-007", "OAS-008")
@pytest.mark.parametrize("case", load(__file__, "operations"), ids=case_name)
def test_operations_have_expected_ids_and_content(case: Case) -> None:
    documents_v3, v2 = documents()
    root = ROOTS[case["served"]]
    path = f"/{root}{case['path']}"
    item, item_v2 = documents_v3[root]["paths"][path], v2["paths"][path]
    found, found_v2 = item[case["method"]], item_v2[case["method"]]
    assert found["operationId"] == found_v2["operationId"] == case["name"]
    assert found["x-kubernetes-action"] == found_v2["x-kubernetes-action"] == case["action"]
    assert found["description"].startswith(case.get("description", "watch "))
    assert [int(code) for code in found["responses"]] == case["codes"] == [int(code) for code in found_v2["responses"]]
    answer = found["responses"]["200"]
    assert {each["schema"]["$ref"].rpartition("/")[2] for each in answer["content"].values()} == {
        found_v2["responses"]["200"]["schema"]["$ref"].rpartition("/")[2]
    }
    if "model" in case:
        assert answer["content"]["application/json"]["schema"]["$ref"] == f"#/components/schemas/{case['model']}"
    if "gives" in case:
        assert sorted(answer["content"]) == case["gives"] == sorted(found_v2["produces"])
    if "body" in case:
        content = found["requestBody"]["content"]
        assert {each["schema"]["$ref"].rpartition("/")[2] for each in content.values()} == {case["body"]}
        assert found["requestBody"].get("required", False) is not case.get("optional", False)
    if "takes" in case:
        assert sorted(found["requestBody"]["content"]) == case["takes"] == sorted(found_v2["consumes"])
    if "parameters" in case:
        assert [each["name"] for each in found.get("parameters", ())] == case["parameters"]
    named = {each["name"] for each in item["parameters"]}
    assert named >= {"pretty"} | ({"namespace"} if "{namespace}" in path else set())
    assert ("name" in named) is ("{name}" in path)


@pytest.mark.rows("OAS-007")
def test_common_parameters_are_published_on_path() -> None:
    item = documents()[0][ROOTS["custom"]]["paths"][f"/{ROOTS['custom']}/widgets"]
    assert [each["name"] for each in item["parameters"]] == sorted([*LISTING, "pretty"])
    assert "parameters" not in item["get"]


@pytest.mark.rows("OAS-007")
@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("Widget", "create a Widget"),
        ("Apple", "create an Apple"),
        ("Class", "create a Class"),
        ("Prometheus", "create Prometheus"),
    ],
)
def test_descriptions_use_article_of_kind(kind: str, words: str) -> None:
    served = compile_definition(definition("things", kind, [{"name": "v1"}])).versions["v1"]
    described = [one.description for item in path_items(served) for one in item.operations]
    assert words in described
    assert words.replace("create", "delete") in described


@pytest.mark.rows("OAS-007")
def test_operation_ids_have_no_punctuation() -> None:
    served = compile_definition(definition("things", "Foo-bar-2x", [{"name": "v1"}])).versions["v1"]
    identities = {one.operation_id for item in path_items(served) for one in item.operations}
    assert "readStableExampleComV1NamespacedFooBar2x" in identities
    assert all(map(str.isalnum, identities))


@pytest.mark.rows("OAS-002")
@pytest.mark.parametrize(
    ("name", "path", "identity", "model"),
    [
        ("api", "/api/", "getCoreAPIVersions", "meta.v1.APIVersions"),
        ("apis", "/apis/", "getAPIVersions", "meta.v1.APIGroupList"),
        ("version", "/version/", "getCodeVersion", "version.Info"),
        ("apis/apiextensions.k8s.io", "/apis/apiextensions.k8s.io/", "getApiextensionsAPIGroup", "meta.v1.APIGroup"),
        ("api/v1", "/api/v1/", "getCoreV1APIResources", "meta.v1.APIResourceList"),
        (
            "apis/rbac.authorization.k8s.io/v1",
            "/apis/rbac.authorization.k8s.io/v1/",
            "getRbacAuthorizationV1APIResources",
            "meta.v1.APIResourceList",
        ),
    ],
)
def test_discovery_endpoints_are_published(name: str, path: str, identity: str, model: str) -> None:
    v3, v2 = documents()
    found = v3[name]["paths"][path]["get"]
    assert found["operationId"] == v2["paths"][path]["get"]["operationId"] == identity
    assert found["responses"]["200"]["content"]["application/json"]["schema"]["$ref"].endswith(model)
    assert "x-kubernetes-action" not in found
    assert v3[name]["info"] == {"title": "Generic API Server", "version": VERSION} == v2["info"]


@pytest.mark.rows("OAS-002", "OAS-006", "OAS-011")
def test_references_resolve_in_all_documents() -> None:
    v3, v2 = documents()
    for document in v3.values():
        for reference in references(document):
            assert reference.removeprefix("#/components/schemas/") in document["components"]["schemas"]
    for reference in references(v2):
        _, place, name = reference.split("/")
        assert name in v2[place]


@pytest.mark.rows("OAS-001", "OAS-002")
def test_objects_of_documents_have_no_duplicate_fields() -> None:
    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        assert len(found) == len(pairs), sorted(name for name, _ in pairs)
        return found

    bodies = [openapi_v2.document(everything(), VERSION).body]
    for path in documents()[0]:
        found = openapi_v3.document(everything(), path, VERSION)
        assert found is not None
        bodies.append(found.body)
    for body in bodies:
        json.loads(body, object_pairs_hook=unique)


@pytest.mark.rows("OAS-007")
def test_operation_ids_are_unique() -> None:
    v3, v2 = documents()
    for document in (*v3.values(), v2):
        identities = [
            one["operationId"]
            for item in document["paths"].values()
            for method, one in item.items()
            if method != "parameters"
        ]
        assert len(set(identities)) == len(identities)


@pytest.mark.rows("OAS-002", "OAS-012")
def test_only_built_in_groups_have_group_document() -> None:
    assert f"apis/{GROUP}" not in documents()[0]
    assert f"apis/{GROUP}/v1" in documents()[0]


@pytest.mark.rows("OAS-006", "OAS-011")
def test_built_in_models_are_named_by_package() -> None:
    names = {
        name for document in documents()[0].values() for name in document["components"]["schemas"] if "api." in name
    }
    assert {
        "io.k8s.api.core.v1.Namespace",
        "io.k8s.api.core.v1.SecretList",
        "io.k8s.api.coordination.v1.Lease",
        "io.k8s.api.rbac.v1.ClusterRole",
        "io.k8s.api.authorization.v1.SelfSubjectAccessReview",
    } <= names
    assert "io.k8s.api.authorization.v1.SelfSubjectAccessReviewList" not in names


@pytest.mark.rows("OAS-006", "OAS-010")
def test_built_in_lists_publish_patch_strategy() -> None:
    v3, v2 = documents()
    name = "io.k8s.api.admissionregistration.v1.MutatingWebhookConfiguration"
    for schemas in (v3["apis/admissionregistration.k8s.io/v1"]["components"]["schemas"], v2["definitions"]):
        webhooks = schemas[name]["properties"]["webhooks"]
        assert webhooks["x-kubernetes-patch-strategy"] == "merge"
        assert webhooks["x-kubernetes-patch-merge-key"] == "name"
        assert "x-kubernetes-patch-merge-key" in webhooks["items"]["properties"]["matchConditions"]


@pytest.mark.rows("OAS-007", "OAS-011")
def test_token_subresource_publishes_token_request_kind() -> None:
    core = documents()[0]["api/v1"]
    path = "/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
    create = core["paths"][path]["post"]
    assert create["operationId"] == "createCoreV1NamespacedServiceAccountToken"
    assert create["description"] == "create token of a ServiceAccount"
    assert create["x-kubernetes-group-version-kind"]["kind"] == "TokenRequest"
    shown = core["components"]["schemas"]["io.k8s.api.authentication.v1.TokenRequest"]
    assert shown["x-kubernetes-group-version-kind"][0]["group"] == "authentication.k8s.io"


@pytest.mark.rows("OAS-011")
def test_definition_cannot_take_model_name_of_built_in_kind() -> None:
    greedy = definition("secrets", "Secret", [{"name": "v1"}], group="core.api.k8s.io")
    served = compile_definition(greedy).versions["v1"]
    assert types.model_name(served, "Secret") == "io.k8s.api.core.v1.Secret_v2"


def references(value: Any) -> list[str]:
    if isinstance(value, list):
        return [found for item in value for found in references(item)]
    if not isinstance(value, dict):
        return []
    own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
    return own + [found for item in value.values() for found in references(item)]
