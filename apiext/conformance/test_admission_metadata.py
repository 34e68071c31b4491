"""Metadata that webhooks change: owners, managedFields, the revision that a write replaces."""

from __future__ import annotations

import json
import secrets

import pytest

from apiext.conformance.support.admission import MUTATING, VALIDATING, configured, rule, webhook
from apiext.conformance.support.admission_webhook import Review, Webhook, allow, fixtures, patch
from apiext.conformance.support.definitions import Resource, fresh_group, serve
from apiext.conformance.support.http_client import APPLY, MERGE, Client

running, hook = fixtures()


@pytest.fixture
def widgets(api: Client) -> Resource:
    return serve(api)


OWNER = {"apiVersion": "v1", "kind": "K", "name": "n", "uid": "u"}


@pytest.mark.rows("ADM-014", "WRI-015")
def test_duplicate_owners_of_a_webhook_are_merged(api: Client, hook: Webhook, widgets: Resource) -> None:
    hook.answer = patch({"op": "add", "path": "/metadata/ownerReferences", "value": [OWNER, OWNER]})
    with configured(api, MUTATING, webhook("m", hook.client_config(), rule(widgets))):
        made = api.post(widgets.path(), widgets.make("a"), dryRun="All")
    assert made.expect(201)["metadata"]["ownerReferences"] == [OWNER]
    (told,) = made.warnings
    assert "contains duplicate entries after mutating admission happens; " in told
    assert "duplicate UID(s) observed: u" in told


@pytest.mark.rows("ADM-014", "WRI-005")
def test_duplicate_owners_are_warned_of_even_if_the_write_is_refused(api: Client, widgets: Resource) -> None:
    widgets.create("a")
    wrong = {"metadata": {"resourceVersion": "1", "ownerReferences": [OWNER, OWNER]}}
    refused = api.patch(widgets.path("a"), json.dumps(wrong), MERGE)
    assert refused.status == 409
    (told,) = refused.warnings
    assert "contains duplicate entries after mutating admission happens; " in told


ELSEWHERE = {"op": "replace", "path": "/metadata/namespace", "value": "zz"}


@pytest.mark.rows("ADM-014", "ERR-13")
@pytest.mark.parametrize("content_type", [MERGE, APPLY])
def test_a_webhook_must_not_change_the_namespace_in_an_update(
    api: Client, hook: Webhook, widgets: Resource, content_type: str
) -> None:
    widgets.create("a")
    body = json.dumps(widgets.make("a", color="blue"))
    options = {"fieldManager": "me", **({"force": "true"} if content_type == APPLY else {})}
    text = "the namespace of the provided object does not match the namespace sent on the request"
    hook.answer = patch(ELSEWHERE)
    with configured(api, MUTATING, webhook("m", hook.client_config(), rule(widgets))):
        refused = api.patch(widgets.path("a"), body, content_type, **options).expect(400)
        assert refused["message"] == text
        hook.answer = patch({"op": "remove", "path": "/metadata/namespace"})
        made = api.patch(widgets.path("a"), body, content_type, **options).expect(200)
    assert (made["metadata"]["namespace"], made["spec"]["color"]) == ("default", "blue")


@pytest.mark.rows("ADM-014", "ERR-13")
def test_a_webhook_may_change_the_namespace_of_a_scale(api: Client, hook: Webhook) -> None:
    widgets = serve(api, subresources={"scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.s"}})
    widgets.create("a", size=1)
    hook.answer = patch(ELSEWHERE)
    with configured(api, MUTATING, webhook("m", hook.client_config(), rule(widgets, "widgets/scale"))):
        api.patch(widgets.path("a/scale"), {"spec": {"replicas": 3}}).expect(200)
    # upstream: the comparison of namespaces in rest.BeforeUpdate gets the object, not the Scale
    # So the write succeeds although the webhook has changed the namespace of the Scale.
    assert api.get(widgets.path("a")).expect(200)["spec"]["size"] == 3


@pytest.mark.rows("ADM-016", "SSA-017")
def test_ownership_after_a_webhook(api: Client, hook: Webhook, widgets: Resource) -> None:
    hook.answer = patch({"op": "add", "path": "/spec/size", "value": 4})
    with configured(api, MUTATING, webhook("m", hook.client_config(), rule(widgets))):
        body = json.dumps(widgets.make("a", color="red"))
        made = api.patch(widgets.path("a"), body, APPLY, fieldManager="me").expect(201)
    (entry,) = made["metadata"]["managedFields"]
    assert entry["manager"] == "me"
    assert "f:color" in entry["fieldsV1"]["f:spec"]
    assert made["spec"]["size"] == 4


@pytest.mark.rows("ADM-016", "SSA-017")
@pytest.mark.parametrize("verb", ["create", "update"])
def test_ownership_that_a_webhook_breaks_is_repaired(api: Client, hook: Webhook, widgets: Resource, verb: str) -> None:
    broken = [{"manager": "x", "operation": "Nonsense", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": {}}]
    hook.answer = patch({"op": "replace", "path": "/metadata/managedFields", "value": broken})
    if verb == "update":
        api.post(widgets.path(), widgets.make("a"), fieldManager="me").expect(201)
    with configured(api, MUTATING, webhook("m", hook.client_config(), rule(widgets))):
        if verb == "create":
            answer = api.post(widgets.path(), widgets.make("a", color="red"), fieldManager="me")
        else:
            answer = api.patch(widgets.path("a"), {"spec": {"color": "red"}}, fieldManager="me")
    made = answer.expect(201 if verb == "create" else 200)
    assert [entry["manager"] for entry in made["metadata"]["managedFields"]] == ["me"]
    assert ".metadata.managedFields was in an invalid state after admission" in answer.warnings[0]


@pytest.mark.rows("ADM-007", "UPD-004")
def test_reviews_of_a_put_without_a_revision_have_the_stored_revision(api: Client, hook: Webhook) -> None:
    maps = Resource(api, "", "configmaps", "ConfigMap")
    place, label = "/api/v1/namespaces/default/configmaps", {"judged": fresh_group()}
    body = {"metadata": {"name": label["judged"], "labels": label}}
    made = api.post(place, body).expect(201)
    named = webhook("v", hook.client_config(), rule(maps), objectSelector={"matchLabels": label})
    with configured(api, VALIDATING, named):
        api.put(f"{place}/{label['judged']}", {**body, "data": {"a": "b"}}).expect(200)
    (asked,) = hook.requests()
    for one in ("object", "oldObject"):
        assert asked[one]["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
    api.delete(f"{place}/{label['judged']}").expect(200)


@pytest.mark.rows("ADM-014", "WRI-001")
@pytest.mark.parametrize("form", ["application/json", "application/yaml", "application/vnd.kubernetes.protobuf"])
def test_a_create_is_decoded_again_if_its_namespace_changes_meanwhile(api: Client, hook: Webhook, form: str) -> None:
    namespace, name = (f"n-{secrets.token_hex(4)}" for _ in range(2))
    api.post("/api/v1/namespaces", {"metadata": {"name": namespace}}).expect(201)
    leases = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
    body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": name, "namespace": namespace},
            "spec": {"holderIdentity": "me"}}  # fmt: skip
    sent = api.request("POST", leases, body, {"Accept": form}, dryRun="All").raw
    asked = 0

    def changing(review: Review) -> Review:
        nonlocal asked
        asked += 1
        if asked == 1:
            api.patch(f"/api/v1/namespaces/{namespace}", {"metadata": {"labels": {"a": "b"}}}, MERGE).expect(200)
        return allow(review)

    hook.answer = changing
    meant = {"apiGroups": ["coordination.k8s.io"], "apiVersions": ["v1"], "resources": ["leases"], "operations": ["*"]}
    selected = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}
    with configured(api, VALIDATING, webhook("v", hook.client_config(), meant, **selected)):
        made = api.request("POST", leases, sent, {"Content-Type": form})
    shown = made.expect(201)
    assert shown["spec"] == {"holderIdentity": "me"}
    api.delete(f"/api/v1/namespaces/{namespace}")


@pytest.mark.rows("ADM-007", "ADM-014")
@pytest.mark.parametrize("kind", ["Role", "ClusterRole"])
def test_a_review_shows_an_empty_list_of_rules_as_sent(api: Client, hook: Webhook, kind: str) -> None:
    group, key = "rbac.authorization.k8s.io", fresh_group()
    inside = "namespaces/default/roles" if kind == "Role" else "clusterroles"
    place, resource = f"/apis/{group}/v1/{inside}", f"{kind.lower()}s"
    meant = {"apiGroups": [group], "apiVersions": ["v1"], "resources": [resource], "operations": ["*"]}
    label = {"judged": key}
    body = {"metadata": {"name": key, "labels": label}, "rules": []}
    with configured(api, VALIDATING, webhook("v", hook.client_config(), meant, objectSelector={"matchLabels": label})):
        made = [api.post(place, body, dryRun="All").expect(201), api.post(place, body).expect(201)]
        made.append(
            api.put(f"{place}/{key}", {**body, "metadata": {**body["metadata"], "annotations": label}}).expect(200)
        )
        made.append(api.patch(f"{place}/{key}", {"rules": None, "metadata": {"annotations": None}}, MERGE).expect(200))
        api.delete(f"{place}/{key}").expect(200)
    assert [one["rules"] for one in made] == [None] * 4, (
        "upstream stores protobuf, in which an empty list is a missing list"
    )
    seen = [
        (ask["object"] and ask["object"]["rules"], ask["oldObject"] and ask["oldObject"]["rules"])
        for ask in hook.requests()
    ]
    assert seen == [([], None), ([], None), ([], None), (None, None), (None, None)]


@pytest.mark.rows("ADM-014")
@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        ("", 3, "3: expected map[string]interface{}, got int64"),
        ("/labels/a", 1, "}: cannot convert int64 to string"),
        ("/labels", "x", "}: cannot restore map from string"),
        ("/annotations", {"a": True}, "}: unrecognized type: string"),
        ("/finalizers", [1], "}: cannot convert int64 to string"),
        ("/generateName", 5, "}: cannot convert int64 to string"),
        ("/ownerReferences", {"a": "b"}, "}: cannot restore slice from map"),
        ("/managedFields", "x", "}: cannot restore slice from string"),
    ],
)
def test_metadata_of_a_wrong_type_from_a_webhook_is_refused(
    api: Client, hook: Webhook, widgets: Resource, path: str, value: object, says: str
) -> None:
    stored = widgets.make("a", color="red")
    stored["metadata"]["labels"] = {"keep": "1"}
    api.post(widgets.path(), stored).expect(201)
    hook.answer = patch({"op": "add", "path": f"/metadata{path}", "value": value})
    with configured(api, MUTATING, webhook("m", hook.client_config(), rule(widgets))):
        for answer in (
            api.patch(widgets.path("a"), {"spec": {"color": "blue"}}),
            api.post(widgets.path(), {**stored, "metadata": {**stored["metadata"], "name": "b"}}),
        ):
            (cause,) = answer.expect(422)["details"]["causes"]
            assert (cause["reason"], cause["field"]) == ("FieldValueInvalid", "metadata")
            assert cause["message"].endswith(says)
    found = api.get(widgets.path("a")).expect(200)
    assert (found["metadata"]["labels"], found["spec"]["color"]) == ({"keep": "1"}, "red")
