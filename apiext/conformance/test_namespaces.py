"""Namespaces: initial namespaces, defaults, conditions, deletion with all objects."""

from __future__ import annotations

import secrets
from typing import Any

import pytest

from apiext.conformance.support.definitions import serve
from apiext.conformance.support.http_client import MERGE, TABLE, Client
from apiext.conformance.support.waiting import until

NAMESPACES = "/api/v1/namespaces"
EMPTIED = pytest.mark.has("namespace controller")


def fresh(api: Client) -> str:
    name = f"ns-{secrets.token_hex(4)}"
    api.post(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}).expect(201)
    return name


@pytest.mark.rows("NSP-003")
def test_the_initial_namespaces_exist_and_cannot_be_deleted(api: Client) -> None:
    names = {item["metadata"]["name"] for item in api.get(NAMESPACES).expect(200)["items"]}
    assert {"default", "kube-system", "kube-public"} <= names
    api.delete(f"{NAMESPACES}/{fresh(api)}").expect(200)  # other namespaces may be deleted
    for name in ("default", "kube-system", "kube-public"):
        refused = api.delete(f"{NAMESPACES}/{name}").expect(403)
        assert refused["message"] == f'namespaces "{name}" is forbidden: this namespace may not be deleted'


@pytest.mark.rows("NSP-003", "SSA-006")
@pytest.mark.parametrize("name", ["kube-system", "kube-node-lease"])
def test_the_labels_of_initial_namespaces_have_an_owner(api: Client, name: str) -> None:
    metadata = api.get(f"{NAMESPACES}/{name}").expect(200)["metadata"]
    owner = metadata["managedFields"][0]
    assert (owner["operation"], owner["time"]) == ("Update", metadata["creationTimestamp"])
    assert owner["fieldsV1"] == {"f:metadata": {"f:labels": {".": {}, "f:kubernetes.io/metadata.name": {}}}}


@pytest.mark.rows("NSP-001", "NSP-002")
def test_a_namespace_gets_its_defaults(api: Client) -> None:
    name = fresh(api)
    made = api.get(f"{NAMESPACES}/{name}").expect(200)
    assert made["spec"] == {"finalizers": ["kubernetes"]}
    assert made["status"] == {"phase": "Active"}
    assert made["metadata"]["labels"] == {"kubernetes.io/metadata.name": name}
    assert "generation" not in made["metadata"]  # upstream: namespaces have no generation
    relabelled = api.request(
        "PATCH", f"{NAMESPACES}/{name}", {"metadata": {"labels": {"team": "a"}}}, {"Content-Type": MERGE}
    ).expect(200)
    assert relabelled["metadata"]["labels"]["team"] == "a"
    table = api.get(f"{NAMESPACES}/{name}", {"Accept": TABLE}).expect(200)
    assert [column["name"] for column in table["columnDefinitions"]] == ["Name", "Status", "Age"]
    resources = {it["name"]: it for it in api.get("/api/v1").expect(200)["resources"]}
    assert resources["namespaces"]["shortNames"] == ["ns"]
    assert {"namespaces/status", "namespaces/finalize"} <= resources.keys()


@pytest.mark.rows("NSP-002", "WRI-002")
@pytest.mark.parametrize("query", [{}, {"dryRun": "All"}])
def test_a_generated_name_is_the_label_too(api: Client, query: dict[str, str]) -> None:
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": "ns-", "labels": {"a": "b"}}}
    made = api.post(NAMESPACES, body, **query).expect(201)["metadata"]
    assert made["labels"] == {"a": "b", "kubernetes.io/metadata.name": made["name"]}
    (owner,) = made["managedFields"]  # the client owns only the label in its request
    assert owner["fieldsV1"]["f:metadata"]["f:labels"] == {".": {}, "f:a": {}}
    if not query:
        assert api.get(f"{NAMESPACES}/{made['name']}").expect(200)["metadata"] == made
        api.delete(f"{NAMESPACES}/{made['name']}").expect(200)


@EMPTIED
@pytest.mark.rows("NSP-005", "WRI-018", "ERR-06")
def test_how_a_namespace_is_deleted(api: Client) -> None:
    place = f"{NAMESPACES}/{fresh(api)}"
    for meant, says in ({"uid": "x"}, "UID in precondition: x"), ({"resourceVersion": "1"}, "ResourceVersion in"):
        refused = api.request("DELETE", place, {"preconditions": meant}).expect(409)
        assert f"Precondition failed: {says}" in refused["message"]
    api.patch(place, {"metadata": {"finalizers": ["example.com/hold"]}}).expect(200)
    marked = api.request("DELETE", place, {"propagationPolicy": "Orphan"}).expect(200)
    assert set(marked["metadata"]["finalizers"]) == {"example.com/hold", "orphan"}
    assert "deletionGracePeriodSeconds" not in marked["metadata"]
    api.patch(place, {"metadata": {"finalizers": None}}).expect(200)
    until(lambda: api.get(place).status == 404, "the namespace is gone")


@EMPTIED
@pytest.mark.rows("NSP-006")
@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("other", [True, False])
def test_conditions_of_a_terminating_namespace_with_finalizers(api: Client, full: bool, other: bool) -> None:
    name = fresh(api)
    place = f"{NAMESPACES}/{name}"
    hold = {"metadata": {"finalizers": ["example.com/hold"]}}
    if other:  # upstream: also with other finalizers in the spec, the controller deletes the objects
        spec = {"finalizers": ["example.com/other"]}
        api.put(f"{place}/finalize", {"metadata": {"name": name}, "spec": spec}).expect(200)
    else:
        spec = {}
        api.patch(place, hold).expect(200)
    if full:
        api.post(f"{place}/configmaps", {"metadata": {"name": "a", **hold["metadata"]}}).expect(201)
    api.delete(place).expect(200)

    def told() -> list[tuple[str, str]]:
        conditions = api.get(place).expect(200)["status"].get("conditions", ())
        return [(one["reason"], one["status"]) for one in conditions]

    if full:
        until(lambda: ("SomeResourcesRemain", "True") in told(), "a condition reports the object")
        api.patch(f"{place}/configmaps/a", {"metadata": {"finalizers": None}}).expect(200)
    reasons = ["ResourcesDiscovered", "ParsedGroupVersions", "ContentDeleted", "ContentRemoved"]
    fine = [(reason, "False") for reason in [*reasons, "ContentHasNoFinalizers"]]
    until(lambda: told() == fine, "the conditions report that no object remains", within=60)
    assert api.get(place).expect(200)["spec"] == spec
    if other:
        api.put(f"{place}/finalize", {"metadata": {"name": name}, "spec": {}}).expect(200)
    else:
        api.patch(place, {"metadata": {"finalizers": None}}).expect(200)
    until(lambda: api.get(place).status == 404, "the namespace is gone")


@EMPTIED
@pytest.mark.rows("NSP-006")
def test_conditions_about_remaining_objects_of_a_namespace(api: Client) -> None:
    place = f"{NAMESPACES}/{fresh(api)}"
    for path, name in (("secrets", "a"), ("configmaps", "b"), ("configmaps", "c")):
        held = {"metadata": {"name": name, "finalizers": ["example.com/hold"]}}
        api.post(f"{place}/{path}", held).expect(201)
    api.delete(place).expect(200)

    def told() -> dict[str, str]:
        conditions = api.get(place).expect(200)["status"].get("conditions", ())
        return {one["type"]: one["message"] for one in conditions}

    until(lambda: "NamespaceContentRemaining" in told(), "a condition reports the objects")
    assert told() == {
        "NamespaceDeletionDiscoveryFailure": "All resources successfully discovered",
        "NamespaceDeletionGroupVersionParsingFailure": "All legacy kube types successfully parsed",
        "NamespaceDeletionContentFailure": "All content successfully deleted, may be waiting on finalization",
        "NamespaceContentRemaining": "Some resources are remaining: configmaps. has 2 resource instances, "
        "secrets. has 1 resource instances",
        "NamespaceFinalizersRemaining": "Some content in the namespace has finalizers remaining: "
        "example.com/hold in 3 resource instances",
    }
    api.patch(f"{place}/configmaps/b", {"metadata": {"finalizers": None}}).expect(200)
    fewer = "Some resources are remaining: configmaps. has 1 resource instances, secrets. has 1 resource instances"
    until(lambda: told()["NamespaceContentRemaining"] == fewer, "the condition reports fewer objects", within=60)
    assert told()["NamespaceFinalizersRemaining"].endswith("example.com/hold in 2 resource instances")
    for path in ("secrets/a", "configmaps/c"):
        api.patch(f"{place}/{path}", {"metadata": {"finalizers": None}}).expect(200)
    until(lambda: api.get(place).status == 404, "the namespace is gone", within=60)


@pytest.mark.rows("NSP-001", "ERR-09")
def test_errors_of_namespace_finalizers_in_a_create_have_no_index(api: Client) -> None:
    body = {"metadata": {"name": "never"}, "spec": {"finalizers": ["a"]}}
    assert [cause["field"] for cause in api.post(NAMESPACES, body).expect(422)["details"]["causes"]] == [
        "spec.finalizers"
    ]


@pytest.mark.rows("NSP-001", "NSP-002")
def test_fields_that_finalize_changes(api: Client) -> None:
    name = fresh(api)
    place = f"{NAMESPACES}/{name}"

    def finalize(*finalizers: str, **parts: dict[str, Any]) -> Any:
        body = {"metadata": {"name": name}, "spec": {"finalizers": list(finalizers)}, **parts}
        return api.put(f"{place}/finalize", body)

    # upstream: the field of an error has an index only in an update
    # A PUT of /finalize is an update.
    refused = finalize("kubernetes", "x", "a/b/c").expect(422)
    assert {cause["field"] for cause in refused["details"]["causes"]} == {"spec.finalizers[1]", "spec.finalizers[2]"}
    assert 'spec.finalizers[1]: Invalid value: "x": name is neither a standard finalizer name' in refused["message"]
    labelled = {"metadata": {"name": name, "labels": {"a": "b"}}, "status": {"phase": "Terminating"}}
    taken = finalize("kubernetes", "example.com/x", **labelled).expect(200)
    assert taken["spec"]["finalizers"] == ["kubernetes", "example.com/x"]
    assert (taken["status"], taken["metadata"]["labels"]["a"]) == ({"phase": "Active"}, "b")
    for method in ("GET", "POST", "PATCH", "DELETE"):
        assert api.request(method, f"{place}/finalize", {}, {"Content-Type": MERGE}).status == 405
    assert finalize().expect(200)["spec"] == {}
    assert (
        api.put(place, {"metadata": {"name": name}, "spec": {"finalizers": ["kubernetes"]}}).expect(200)["spec"] == {}
    )
    # upstream: the first delete only sets deletionTimestamp, although no finalizer holds the namespace
    for more in {"dryRun": "All"}, {}:
        marked = api.delete(place, **more).expect(200)
        assert marked["metadata"]["deletionTimestamp"]
        assert marked["status"] == {"phase": "Terminating"}
    # upstream: without finalizers, only another delete removes the namespace
    until(lambda: api.delete(place).status == 404, "the namespace is gone")


@pytest.mark.rows("NSP-001", "VAL-013")
@pytest.mark.parametrize("name", ["Upper", "a.b", "-a", "x" * 64])
def test_a_namespace_name_is_a_label(api: Client, name: str) -> None:
    body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    assert api.post(NAMESPACES, body).expect(422)["reason"] == "Invalid"


@pytest.mark.rows("NSP-004", "KUB-005")
def test_objects_need_their_namespace(api: Client) -> None:
    widgets = serve(api)
    refused = api.post(widgets.path("", "nowhere"), widgets.make("a")).expect(404)
    assert refused["message"] == 'namespaces "nowhere" not found'


@EMPTIED
@pytest.mark.rows("NSP-005", "NSP-004")
def test_deleting_a_namespace_empties_it_first(api: Client) -> None:
    widgets, gadgets = serve(api), serve(api, "gadgets")
    name = fresh(api)
    for number in range(10):
        widgets.create(f"w{number}", name)
        gadgets.create(f"g{number}", name)
    held = widgets.make("held")
    held["metadata"]["finalizers"] = ["example.com/hold"]
    api.post(widgets.path("", name), held).expect(201)
    widgets.create("elsewhere", "default")
    going = api.delete(f"{NAMESPACES}/{name}").expect(200)
    assert going["status"]["phase"] == "Terminating"
    assert going["metadata"]["deletionTimestamp"]
    refused = api.post(widgets.path("", name), widgets.make("late")).expect(403)
    why = f"unable to create new content in namespace {name} because it is being terminated"
    assert refused["message"] == f'widgets.{widgets.group} "late" is forbidden: {why}'
    assert refused["details"]["causes"] == [
        {
            "reason": "NamespaceTerminating",
            "message": f"namespace {name} is being terminated",
            "field": "metadata.namespace",
        }
    ]
    # updates are allowed in a terminating namespace
    changed = api.patch(widgets.path("held", name), {"spec": {"color": "red"}}).expect(200)
    assert changed["spec"]["color"] == "red"

    def emptied() -> bool:
        left = [item["metadata"]["name"] for item in api.get(widgets.path("", name)).expect(200)["items"]]
        return left == ["held"] and not api.get(gadgets.path("", name)).expect(200)["items"]

    until(emptied, "all but the held object are gone", within=20)
    again = api.delete(f"{NAMESPACES}/{name}").expect(200)
    assert (again["status"]["phase"], again["spec"]) == ("Terminating", {"finalizers": ["kubernetes"]})
    left = api.get(f"{NAMESPACES}/{name}").expect(200)["metadata"]  # the namespace stays while it contains an object
    assert left["uid"] == going["metadata"]["uid"]
    api.patch(widgets.path("held", name), {"metadata": {"finalizers": None}}).expect(200)
    until(lambda: api.get(f"{NAMESPACES}/{name}").status == 404, "the namespace is gone", within=30)
    assert [it["metadata"]["name"] for it in api.get(widgets.path()).expect(200)["items"]] == ["elsewhere"]


LEVELS = [
    ({"enforce": "restricted", "enforce-version": "latest", "warn-version": "v1.24"}, []),
    ({"enforce": "strict"}, [("enforce", '"strict": must be one of privileged, baseline, restricted')]),
    ({"audit": ""}, [("audit", '"": must be one of privileged, baseline, restricted')]),
    ({"warn-version": "1.24"}, [("warn-version", '"1.24": must be "latest" or "v1.x"')]),
    (
        {"warn": "x", "audit-version": "v1.07", "enforce-version": "v2.0"},
        [
            ("enforce-version", '"v2.0": must be "latest" or "v1.x"'),
            ("audit-version", '"v1.07": must be "latest" or "v1.x"'),
            ("warn", '"x": must be one of privileged, baseline, restricted'),
        ],
    ),
]


@pytest.mark.rows("ADM-001")
@pytest.mark.parametrize(("labels", "faults"), LEVELS)
def test_levels_of_pod_security(api: Client, labels: dict[str, str], faults: list[tuple[str, str]]) -> None:
    name, other = f"ns-{secrets.token_hex(4)}", f"ns-{secrets.token_hex(4)}"
    given = {f"pod-security.kubernetes.io/{label}": value for label, value in labels.items()}
    made = api.post("/api/v1/namespaces", {"metadata": {"name": name, "labels": given}})
    api.post("/api/v1/namespaces", {"metadata": {"name": other}}).expect(201)
    changed = api.patch(f"/api/v1/namespaces/{other}", {"metadata": {"labels": given}})
    if not faults:
        assert (made.status, changed.status) == (201, 200)
        return
    texts = [f"metadata.labels[pod-security.kubernetes.io/{label}]: Invalid value: {text}" for label, text in faults]
    listed = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    assert made.expect(422)["message"] == f'Namespace "{name}" is invalid: {listed}'
    assert changed.expect(422)["message"] == f'Namespace "{other}" is invalid: {listed}'
