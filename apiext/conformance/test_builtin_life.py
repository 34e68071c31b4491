"""Deletion of built-in objects, definitions in their groups, and selectors of names.

Built-in objects are deleted with their namespace or owner.
"""

from __future__ import annotations

import secrets

import pytest

from apiext.conformance.support.definitions import definition, serve
from apiext.conformance.support.http_client import DEFINITIONS, Client
from apiext.conformance.support.waiting import until

NAMESPACES = "/api/v1/namespaces"
OBJECTS = {
    "/api/v1/namespaces/{}/secrets": {"data": {"a": "eA=="}},
    "/api/v1/namespaces/{}/events": {"reason": "R"},
    "/apis/coordination.k8s.io/v1/namespaces/{}/leases": {"spec": {"holderIdentity": "one"}},
    "/apis/rbac.authorization.k8s.io/v1/namespaces/{}/roles": {"rules": []},
}


@pytest.mark.rows("NSP-004", "NSP-005")
@pytest.mark.has("namespace controller")
def test_objects_are_deleted_with_their_namespace(api: Client) -> None:
    name = f"life-{secrets.token_hex(4)}"
    for path, body in OBJECTS.items():
        about = {"involvedObject": {"namespace": name}} if path.endswith("events") else {}
        made = {"metadata": {"name": "a"}, **body, **about}
        refused = api.post(path.format(name), made).expect(404)
        assert refused["message"] == f'namespaces "{name}" not found'
    api.post(NAMESPACES, {"metadata": {"name": name}}).expect(201)
    for path, body in OBJECTS.items():
        about = {"involvedObject": {"namespace": name}} if path.endswith("events") else {}
        api.post(path.format(name), {"metadata": {"name": "a"}, **body, **about}).expect(201)
    api.delete(f"{NAMESPACES}/{name}").expect(200)
    until(lambda: api.get(f"{NAMESPACES}/{name}").status == 404, "the namespace is gone")
    for path in OBJECTS:
        assert api.get(f"{path.format(name)}/a").status == 404
    other = {"kind": "LocalSubjectAccessReview", "spec": {"resourceAttributes": {"namespace": name}, "user": "joe"}}
    asked = f"/apis/authorization.k8s.io/v1/namespaces/{name}/localsubjectaccessreviews"
    api.post(asked, other).expect(201)


@pytest.mark.rows("WRI-018")
@pytest.mark.has("garbage collector")
def test_objects_are_deleted_with_their_owner(api: Client) -> None:
    widgets = serve(api)
    owner = widgets.create("owner")
    reference = {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": "owner",
        "uid": owner["metadata"]["uid"],
    }
    path, name = "/api/v1/namespaces/default/configmaps", f"life-{secrets.token_hex(4)}"
    api.post(path, {"metadata": {"name": name, "ownerReferences": [reference]}}).expect(201)
    leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
    chained = api.get(f"{path}/{name}").expect(200)["metadata"]["uid"]
    below = {"apiVersion": "v1", "kind": "ConfigMap", "name": name, "uid": chained}
    api.post(leases, {"metadata": {"name": name, "ownerReferences": [below]}}).expect(201)
    api.delete(widgets.path("owner")).expect(200)
    until(lambda: api.get(f"{path}/{name}").status == 404, "the ConfigMap is gone")
    until(lambda: api.get(f"{leases}/{name}").status == 404, "the lease of the ConfigMap is gone")


@pytest.mark.rows("CND-003")
def test_a_definition_does_not_take_over_a_built_in_kind(api: Client) -> None:
    name = "leases.coordination.k8s.io"
    versions = [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}]
    names = {"plural": "leases", "singular": "lease", "kind": "Lease", "listKind": "LeaseList"}
    approved = {"api-approved.kubernetes.io": "https://github.com/kubernetes/kubernetes/pull/1"}
    wanted = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": name, "annotations": approved},
        "spec": {"group": "coordination.k8s.io", "scope": "Namespaced", "names": names, "versions": versions},
    }
    place, mine = "/apis/coordination.k8s.io/v1/namespaces/default/leases", f"life-{secrets.token_hex(4)}"
    api.post(place, {"metadata": {"name": mine}}).expect(201)
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    api.post(path, wanted).expect(201)

    def accepted() -> bool:
        conditions = api.get(f"{path}/{name}").expect(200)["status"]["conditions"] or []
        return any(it["type"] == "NamesAccepted" and it["status"] == "True" for it in conditions)

    until(accepted, "the names are accepted")
    wrong = api.post(place, {"metadata": {"name": "x"}, "spec": {"leaseDurationSeconds": 0}}).expect(422)
    assert wrong["details"]["causes"][0]["field"] == "spec.leaseDurationSeconds", "it is still the built-in kind"
    api.delete(f"{path}/{name}").expect(200)
    until(lambda: api.get(f"{path}/{name}").status == 404, "the definition is gone")
    api.get(f"{place}/{mine}").expect(200)
    api.delete(f"{place}/{mine}").expect(200)


@pytest.mark.rows("CND-003")
def test_a_definition_adds_no_kind_to_a_version_of_built_in_kinds(api: Client) -> None:
    plural, group = f"t{secrets.token_hex(4)}", "coordination.k8s.io"
    wanted = definition(group, plural)
    wanted["metadata"]["annotations"] = {
        "api-approved.kubernetes.io": "https://github.com/kubernetes/kubernetes/pull/1"
    }
    more = f"v{secrets.randbelow(9**9) + 9}"
    wanted["spec"]["versions"].append(wanted["spec"]["versions"][0] | {"name": more, "storage": False})
    api.post(DEFINITIONS, wanted).expect(201)
    aggregated = {"Accept": "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"}

    def told() -> dict[str, list[str]]:
        (found,) = [it for it in api.get("/apis", aggregated).expect(200)["items"] if it["metadata"]["name"] == group]
        return {each["version"]: [it["resource"] for it in each["resources"]] for each in found["versions"]}

    until(lambda: told().get(more) == [plural], "discovery has the other version", 20)
    assert "leases" in told()["v1"]
    assert plural not in told()["v1"]
    assert plural not in [it["name"] for it in api.get(f"/apis/{group}/v1").expect(200)["resources"]]
    place = f"/apis/{group}/v1/namespaces/default/{plural}"
    assert api.get(place).status == 404
    assert api.post(place, {"metadata": {"name": "a"}}).status == 404
    api.delete(f"{DEFINITIONS}/{plural}.{group}").expect(200)


# The first namespace contains the objects {name} and {name}-b, the second namespace only {name}.
# Each row: field selector → (names that it selects in the first namespace, names that it selects in the second one).
SELECTORS = {
    "metadata.name={name}": (["{name}"], ["{name}"]),
    "metadata.name={name},metadata.namespace={first}": (["{name}"], []),
    "metadata.name!={name},metadata.namespace={first}": (["{name}-b"], []),
    "metadata.name={name},metadata.name={name}-b": ([], []),
    "metadata.name={name},metadata.namespace=nowhere-{name}": ([], []),
    "metadata.namespace={second}": ([], ["{name}"]),
    "metadata.name=": ([], []),
}


@pytest.mark.rows("RV-011", "SEL-001")
@pytest.mark.parametrize("kind", OBJECTS)
def test_objects_are_selected_by_name_in_all_namespaces(api: Client, kind: str) -> None:
    """Test the selectors with which informers follow one object.

    Upstream: TestNameInFieldSelector.
    """
    name = f"life-{secrets.token_hex(4)}"
    first, second = f"{name}-1", f"{name}-2"
    for namespace in (first, second):
        api.post(NAMESPACES, {"metadata": {"name": namespace}}).expect(201)
    for namespace, its in ((first, name), (second, name), (first, f"{name}-b")):
        about = {"involvedObject": {"namespace": namespace}} if kind.endswith("events") else {}
        api.post(kind.format(namespace), {"metadata": {"name": its}, **OBJECTS[kind], **about}).expect(201)
    everywhere = kind.replace("/namespaces/{}", "")
    for selector, found in SELECTORS.items():
        asked = {"fieldSelector": selector.format(name=name, first=first, second=second)}
        wanted = [
            (namespace, one.format(name=name))
            for namespace, names in zip((first, second), found, strict=True)
            for one in names
        ]
        page = api.get(everywhere, **asked).expect(200)
        assert [(one["metadata"]["namespace"], one["metadata"]["name"]) for one in page["items"]] == wanted, selector
        with api.watch(everywhere, **asked) as watch:
            for namespace, one in wanted:
                metadata = watch.next("ADDED")["object"]["metadata"]
                assert (metadata["namespace"], metadata["name"]) == (namespace, one), selector
    for namespace in (first, second):
        api.delete(f"{NAMESPACES}/{namespace}").expect(200)
