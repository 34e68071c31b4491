"""Definitions in unusual states: names, conditions, deletions, scales, warnings about sets."""

from __future__ import annotations

from http.client import RemoteDisconnected
from typing import Any

import pytest

from apiext.conformance.support.definitions import (
    Resource,
    condition,
    definition,
    establish,
    fresh_group,
    is_true,
    serve,
)
from apiext.conformance.support.http_client import APPLY, DEFINITIONS, JSON_PATCH, MERGE, Client
from apiext.conformance.support.waiting import until


def named(group: str, plural: str, **names: Any) -> dict[str, Any]:
    """Return a definition in a group with these further names."""
    wanted = definition(group, plural)
    wanted["spec"]["names"].update(names)
    return wanted


def rename(api: Client, wanted: dict[str, Any], **names: Any) -> None:
    """Change the names in the spec of a definition."""
    api.patch(f"{DEFINITIONS}/{wanted['metadata']['name']}", {"spec": {"names": names}}, MERGE).expect(200)


def told(api: Client, wanted: dict[str, Any], kind: str, reason: str) -> dict[str, Any]:
    """Wait until a condition of a definition has this reason; return the condition."""
    path = f"{DEFINITIONS}/{wanted['metadata']['name']}"

    def found() -> dict[str, Any] | None:
        seen = condition(api.get(path).expect(200), kind)
        return seen if seen is not None and seen["reason"] == reason else None

    return until(found, f"{kind} of {path} is {reason}", within=10)


def accepted(api: Client, wanted: dict[str, Any]) -> dict[str, Any]:
    """Return the accepted names of a definition."""
    found: dict[str, Any] = api.get(f"{DEFINITIONS}/{wanted['metadata']['name']}").expect(200)["status"]
    return found["acceptedNames"]  # type: ignore[no-any-return]


@pytest.mark.rows("CND-001", "CND-002", "CND-003")
@pytest.mark.differs("the condition NamesAccepted keeps reporting a conflict that has ended")
def test_a_conflict_ends_when_the_spec_no_longer_has_the_names(api: Client) -> None:
    group = fresh_group()
    first, second = named(group, "widgets", shortNames=["w"]), named(group, "gadgets")
    for wanted in (first, second):
        establish(api, wanted)
    rename(api, second, shortNames=["g", "w", "w"])
    assert told(api, second, "NamesAccepted", "ShortNamesConflict")["message"] == '"w" is already in use'
    assert is_true(api.get(f"{DEFINITIONS}/gadgets.{group}").expect(200), "Established")
    rename(api, second, shortNames=None)
    assert told(api, second, "NamesAccepted", "NoConflicts")["message"] == "no conflicts found"
    assert "shortNames" not in accepted(api, second)


@pytest.mark.rows("CND-003", "DEL-004")
def test_a_definition_that_is_being_deleted_may_get_other_names(api: Client) -> None:
    wanted = named(fresh_group(), "widgets")
    wanted["metadata"]["finalizers"] = ["example.com/hold"]
    establish(api, wanted)
    path = f"{DEFINITIONS}/{wanted['metadata']['name']}"
    api.delete(path).expect(200)
    rename(api, wanted, shortNames=["w"])
    until(lambda: accepted(api, wanted).get("shortNames") == ["w"], "the name is accepted")
    api.patch(path, {"metadata": {"finalizers": None}}, MERGE)


@pytest.mark.rows("CND-010", "CND-008")
@pytest.mark.differs("two controllers add these conditions, in a random order")
def test_the_approval_comes_after_names_and_establishment(api: Client) -> None:
    wanted = definition(f"{fresh_group()}.k8s.io")
    wanted["metadata"]["annotations"] = {"api-approved.kubernetes.io": "unapproved, a test"}
    establish(api, wanted)
    told(api, wanted, "KubernetesAPIApprovalPolicyConformant", "UnapprovedAnnotation")
    conditions = api.get(f"{DEFINITIONS}/{wanted['metadata']['name']}").expect(200)["status"]["conditions"]
    kinds = [it["type"] for it in conditions]
    assert kinds == ["NamesAccepted", "Established", "KubernetesAPIApprovalPolicyConformant"]


@pytest.mark.rows("CND-004", "CND-010")
def test_deleting_a_definition_of_a_built_in_resource_deletes_no_objects(api: Client) -> None:
    leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
    name = fresh_group()
    lease = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name}}
    api.post(leases, lease).expect(201)
    wanted = named("coordination.k8s.io", "leases", kind="Lease")
    wanted["metadata"]["annotations"] = {"api-approved.kubernetes.io": "unapproved, a test"}
    api.post(DEFINITIONS, wanted).expect(201)
    path = f"{DEFINITIONS}/{wanted['metadata']['name']}"
    told(api, wanted, "Established", "InitialNamesAccepted")
    api.delete(path).expect(200)
    until(lambda: api.get(path).status == 404, "the definition is gone")
    api.delete(f"{leases}/{name}").expect(200)


@pytest.mark.rows("DEL-001", "DEL-002", "ERR-06")
def test_each_delete_of_a_definition_reports_preconditions_alike(api: Client) -> None:
    widgets = serve(api)
    held = widgets.make("held")
    held["metadata"]["finalizers"] = ["example.com/hold"]
    api.post(widgets.path(), held).expect(201)
    path = f"{DEFINITIONS}/widgets.{widgets.group}"
    prefix = (
        f'Operation cannot be fulfilled on customresourcedefinitions.apiextensions.k8s.io "widgets.{widgets.group}": '
    )
    for turn in range(2):
        stored = api.get(path).expect(200)["metadata"]
        for name, given, words in (("uid", "x", "UID"), ("resourceVersion", "1", "ResourceVersion")):
            refused = api.delete(path, {"preconditions": {name: given}}).expect(409)
            text = f"precondition failed: {words} in precondition: {given}, {words} in object meta: {stored[name]}"
            assert refused["message"] == prefix + text, turn
            assert refused["details"]["kind"] == "customresourcedefinitions"
        assert api.delete(path, {"preconditions": {"uid": stored["uid"]}}).status == 200
        told(api, definition(widgets.group), "Terminating", "InstanceDeletionInProgress")
    api.patch(widgets.path("held"), {"metadata": {"finalizers": None}}, MERGE).expect(200)


@pytest.mark.rows("DEL-004", "CND-009")
@pytest.mark.differs("objects created during the deletion of their definition stay in etcd")
def test_nothing_is_created_while_other_finalizers_hold_a_definition(api: Client) -> None:
    wanted = definition(fresh_group())
    wanted["metadata"]["finalizers"] = ["example.com/hold"]
    widgets = Resource(api, establish(api, wanted)["spec"]["group"], "widgets", "Widget")
    widgets.create("a")
    path = f"{DEFINITIONS}/widgets.{widgets.group}"
    api.delete(path).expect(200)
    assert told(api, wanted, "Terminating", "InstanceDeletionCompleted")["message"] == "removed all instances"
    refused = api.post(widgets.path(), widgets.make("b")).expect(403)
    assert refused["message"].endswith("create not allowed while custom resource definition is terminating")
    assert api.get(widgets.path()).expect(200)["items"] == []
    api.patch(path, {"metadata": {"finalizers": None}}, MERGE).expect(200)
    until(lambda: api.get(path).status == 404, "it is gone", within=10)


# upstream: a definition whose accepted names were removed is decided before definitions that wait for these names
# So the definition gets the names again. In this test, a client removes the names by a write of the status.
@pytest.mark.rows("CND-001", "CND-002")
@pytest.mark.parametrize(
    ("contested", "taken"),
    [
        ({"shortNames": ["x"]}, {"shortNames": None}),
        ({"shortNames": ["x", "y"]}, {"shortNames": ["y"]}),
        ({"shortNames": ["x"]}, {"shortNames": ["z"]}),
        ({"listKind": "Things"}, {"listKind": "Others"}),
        ({"singular": "thing"}, {"singular": "other"}),
        ({"kind": "Thing", "listKind": "ThingList"}, {"kind": "Other", "listKind": "OtherList"}),
        ({"kind": "Thing", "listKind": "ThingList", "shortNames": ["x"]}, {"kind": "Other", "shortNames": []}),
    ],
)
def test_removed_accepted_names_return_to_their_definition(
    api: Client, contested: dict[str, Any], taken: dict[str, Any]
) -> None:
    group = fresh_group()
    holder, rival = named(group, "widgets", **contested), named(group, "gadgets", **contested)
    establish(api, holder)
    api.post(DEFINITIONS, rival).expect(201)
    until(
        lambda: condition(api.get(f"{DEFINITIONS}/gadgets.{group}").expect(200), "NamesAccepted"),
        "its names are decided",
    )
    before, waiting = accepted(api, holder), accepted(api, rival)
    path = f"{DEFINITIONS}/widgets.{group}"
    for _ in range(3):
        api.patch(f"{path}/status", {"status": {"acceptedNames": taken}}, MERGE).expect(200)
        until(lambda: accepted(api, holder) == before, "its names are accepted again", within=10)
        assert accepted(api, rival) == waiting
        assert not is_true(api.get(f"{DEFINITIONS}/gadgets.{group}").expect(200), "NamesAccepted")


# upstream: a cluster-scoped kind has metadata.namespace only if it is built in and selects no fields of its own
# So definitions have the field selector metadata.namespace; namespaces do not, since they have status.phase.
@pytest.mark.rows("UPD-012", "SEL-002")
@pytest.mark.parametrize(
    ("path", "text"),
    [
        (DEFINITIONS, ""),
        ("/api/v1/namespaces", "field label not supported: metadata.namespace"),
    ],
)
def test_namespace_selectors_of_cluster_scoped_kinds(api: Client, path: str, text: str) -> None:
    found = api.get(path, fieldSelector="metadata.namespace=x")
    if text:
        assert found.expect(400)["message"] == text
    else:
        assert found.expect(200)["items"] == []


MAP = "map[string]interface{}"
ANYTHING = {"x-kubernetes-preserve-unknown-fields": True}


@pytest.mark.rows("SRV-008", "SRV-009", "ERR-22")
@pytest.mark.parametrize(
    ("parts", "told"),
    [
        ({"spec": "x"}, f".spec.n accessor error: x is of the type string, expected {MAP}"),
        ({"spec": {"n": "x"}}, ".spec.n accessor error: x is of the type string, expected int64"),
        ({"spec": {"n": 1}, "status": 5}, f".status.n accessor error: 5 is of the type int64, expected {MAP}"),
    ],
)
def test_a_scale_of_objects_older_than_the_subresource(
    api: Client, parts: dict[str, Any], told: str, foreign: bool
) -> None:
    shape = {"type": "object", "properties": {"spec": ANYTHING, "status": ANYTHING}}
    widgets = serve(api, schema={"openAPIV3Schema": shape})
    api.post(widgets.path(), widgets.make("a") | parts).expect(201)
    settings = {"scale": {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"}}
    path = f"{DEFINITIONS}/widgets.{widgets.group}"
    change = [{"op": "add", "path": "/spec/versions/0/subresources", "value": settings}]
    api.patch(path, change, JSON_PATCH).expect(200)
    scale = f"{widgets.path('a')}/scale"

    def is_served() -> bool:
        try:
            return api.get(scale).status != 404
        except RemoteDisconnected:  # apiextensions-apiserver 0.37 may panic after a definition changed
            if not foreign:
                raise
            return False

    until(is_served, "the scale is served", within=10)
    body = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "a"}, "spec": {"replicas": 2}}
    answers = [
        api.get(scale),
        api.put(scale, body | {"metadata": {"name": "a", "namespace": "default"}}),
        api.patch(scale, {"spec": {"replicas": 3}}, MERGE),
        api.patch(scale, [{"op": "add", "path": "/spec/replicas", "value": 3}], JSON_PATCH),
        api.patch(scale, body, APPLY, fieldManager="m", force="true"),
    ]
    assert {(answer.status, answer.json["message"]) for answer in answers} == {(500, told)}
    assert not any("reason" in answer.json for answer in answers)


@pytest.mark.rows("CRD-002")
def test_an_empty_list_of_review_versions_is_dropped(api: Client) -> None:
    wanted = definition(fresh_group())
    path = f"{DEFINITIONS}/{wanted['metadata']['name']}"
    wanted["spec"]["conversion"] = {"strategy": "None", "webhook": {"conversionReviewVersions": []}}
    made = api.post(DEFINITIONS, wanted).expect(201)
    assert made["spec"]["conversion"] == {"strategy": "None"}
    assert api.get(path).expect(200)["spec"]["conversion"] == {"strategy": "None"}
    patch = {"spec": {"conversion": {"webhook": {"conversionReviewVersions": []}}}}
    changed = api.patch(path, patch, MERGE).expect(200)
    assert changed["spec"]["conversion"] == {"strategy": "None"}
    assert changed["metadata"]["generation"] == 1
    patch["spec"]["conversion"] |= {"strategy": "Webhook"}  # type: ignore[dict-item]
    patch["spec"]["conversion"]["webhook"] |= {"clientConfig": {"url": "https://127.0.0.1:1/"}}  # type: ignore[dict-item]
    refused = api.patch(path, patch, MERGE).expect(422)
    assert "spec.conversion.conversionReviewVersions: Required value" in refused["message"]


ITEMS: dict[str, dict[str, Any]] = {
    "string": {"type": "string"},
    "object": {"type": "object", "x-kubernetes-map-type": "atomic"},
    "array": {"type": "array", "x-kubernetes-list-type": "atomic", "items": {"type": "string"}},
}


def with_sets(**kinds: str) -> dict[str, Any]:
    """Return a schema with set lists; ``kinds`` is name of a list → type of its items."""
    sets = {
        name: {"type": "array", "x-kubernetes-list-type": "set", "items": ITEMS[kind]} for name, kind in kinds.items()
    }
    return {"openAPIV3Schema": {"type": "object", "properties": sets}}


@pytest.mark.rows("UPD-009")
def test_an_update_warns_of_new_sets_of_objects_or_arrays_only(api: Client) -> None:
    text = '299 - "x-kubernetes-list-type: set for items of type \\"{}\\" is not supported by server-side apply or CEL'
    wanted = definition(fresh_group(), schema=with_sets(a="object", b="object", c="string"))
    made = api.post(DEFINITIONS, wanted)
    made.expect(201)
    assert made.warnings == [text.format("object") + ' validation rules"']
    path, (version,) = f"{DEFINITIONS}/{wanted['metadata']['name']}", wanted["spec"]["versions"]
    for sets, kinds in (({"a": "object", "d": "array"}, ["array"]), ({"a": "object", "e": "object"}, []), ({}, [])):
        changed = api.patch(path, {"spec": {"versions": [{**version, "schema": with_sets(**sets)}]}}, MERGE)
        changed.expect(200)
        assert changed.warnings == [text.format(kind) + ' validation rules"' for kind in kinds], sets
    again = api.patch(path, {"spec": {"versions": [version]}}, MERGE)
    again.expect(200)
    assert again.warnings == [text.format("object") + ' validation rules"']
