"""Webhooks and policies apply to token requests, but never to reviews."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any

import pytest

from apiext.conformance.support.admission import (
    BINDINGS,
    MUTATING,
    POLICIES,
    VALIDATING,
    configured,
    document,
    settled,
    stored,
    webhook,
)
from apiext.conformance.support.admission_webhook import Webhook, deny, fixtures, patch
from apiext.conformance.support.http_client import Client

ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"
ASKED = {"resourceAttributes": {"verb": "get", "resource": "secrets", "namespace": "default"}}
QUESTIONS = [
    ("authorization.k8s.io", "selfsubjectaccessreviews", "SelfSubjectAccessReview", ASKED),
    ("authorization.k8s.io", "subjectaccessreviews", "SubjectAccessReview", {**ASKED, "user": "joe"}),
    ("authorization.k8s.io", "localsubjectaccessreviews", "LocalSubjectAccessReview", {**ASKED, "user": "joe"}),
    ("authorization.k8s.io", "selfsubjectrulesreviews", "SelfSubjectRulesReview", {"namespace": "default"}),
    ("authentication.k8s.io", "tokenreviews", "TokenReview", {"token": "x"}),
    ("authentication.k8s.io", "selfsubjectreviews", "SelfSubjectReview", None),
]
OF_ALL = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"]}


def about(*names: str) -> dict[str, Any]:
    return {**OF_ALL, "resources": list(names)}


def ask(api: Client, group: str, plural: str, kind: str, spec: Any) -> Any:
    place = "namespaces/default/" if plural.startswith("local") else ""
    body = {"kind": kind} if spec is None else {"kind": kind, "spec": spec}
    return api.post(f"/apis/{group}/v1/{place}{plural}", body)


running, hook = fixtures()


@pytest.fixture
def account(api: Client) -> Iterator[str]:
    name = f"sa-{secrets.token_hex(4)}"
    api.post(ACCOUNTS, {"metadata": {"name": name}}).expect(201)
    yield name
    api.delete(f"{ACCOUNTS}/{name}").expect(200)


@pytest.mark.rows("ADM-001", "KUB-004")
@pytest.mark.parametrize("path", [MUTATING, VALIDATING], ids=["mutating", "validating"])
def test_no_webhook_is_called_for_a_review(api: Client, hook: Webhook, path: str) -> None:
    hook.answer = deny("never")
    rules = about(*(plural for _, plural, _, _ in QUESTIONS))
    with configured(api, path, webhook("v", hook.client_config(), rules)):
        for question in QUESTIONS:
            ask(api, *question).expect(201)
    assert hook.requests() == []


@pytest.mark.rows("ADM-001")
@pytest.mark.parametrize("path", [MUTATING, VALIDATING], ids=["mutating", "validating"])
@pytest.mark.parametrize(("groups", "resources", "told"), [
    (["authorization.k8s.io"], ["subjectaccessreviews"], ["subjectaccessreviews.authorization.k8s.io"]),
    (["authorization.k8s.io", "authentication.k8s.io"], ["tokenreviews", "selfsubjectaccessreviews", "tokenreviews"],
     ["selfsubjectaccessreviews.authorization.k8s.io", "tokenreviews.authentication.k8s.io"]),
    (["*"], ["subjectaccessreviews"], []),
    (["authorization.k8s.io"], ["*"], []),
    (["authorization.k8s.io"], ["*/*"], []),
    (["example.com"], ["subjectaccessreviews"], []),
])  # fmt: skip
def test_webhook_rule_for_reviews_returns_a_warning(
    api: Client, hook: Webhook, path: str, groups: list[str], resources: list[str], told: list[str]
) -> None:
    rules = [about("configmaps"), {**OF_ALL, "apiGroups": groups, "resources": resources}]
    body = document(path, f"w-{secrets.token_hex(4)}", webhooks=[webhook("v", hook.client_config(), *rules)])
    made = api.post(path, body, dryRun="All")
    made.expect(201)
    says = "is excluded from admission webhooks; this rule will have no effect"
    assert made.warnings == [f'299 - "webhooks[0].rules[1]: {name} {says}"' for name in told]


@pytest.mark.rows("ADM-001", "AUT-002")
def test_webhooks_mutate_and_deny_token_requests(api: Client, hook: Webhook, account: str) -> None:
    body = {"kind": "TokenRequest", "spec": {"audiences": []}}
    path = f"{ACCOUNTS}/{account}/token"
    uid = api.get(f"{ACCOUNTS}/{account}").expect(200)["metadata"]["uid"]
    hook.answer = patch({"op": "add", "path": "/spec/audiences", "value": ["others"]})
    with configured(api, MUTATING, webhook("m", hook.client_config(), about("serviceaccounts/token"))):
        assert api.post(path, body).expect(201)["spec"]["audiences"] == ["others"]
    hook.forget()
    hook.answer = deny("no tokens")
    with configured(api, VALIDATING, webhook("v", hook.client_config(), about("serviceaccounts/token"))):
        assert api.post(path, {**body, "spec": {"expirationSeconds": 1}}).status == 422
        refused = api.post(path, body).expect(400)
    assert refused["message"] == 'admission webhook "v.example.com" denied the request: no tokens'
    (told,) = hook.requests()
    assert told["kind"] == {"group": "authentication.k8s.io", "version": "v1", "kind": "TokenRequest"}
    assert (told["resource"]["resource"], told["subResource"], told["name"]) == ("serviceaccounts", "token", account)
    shown = told["object"]["metadata"]
    assert (shown["name"], shown["namespace"], shown["uid"]) == (account, "default", uid)
    assert told["object"]["spec"]["audiences"], "not the audiences that the token would have"


@pytest.mark.rows("ADM-007", "AUT-002", "SSA-006")
@pytest.mark.parametrize(("more", "owned"), [
    ({"spec": {}}, {"f:spec": {"f:expirationSeconds": {}}}),
    ({"spec": {"audiences": ["a"], "expirationSeconds": 700}},
     {"f:spec": {"f:audiences": {}, "f:expirationSeconds": {}}}),
    ({"metadata": {"labels": {"a": "b"}}, "spec": {}, "status": {"token": "x"}},
     {"f:metadata": {"f:labels": {".": {}, "f:a": {}}}, "f:spec": {"f:expirationSeconds": {}},
      "f:status": {"f:token": {}}}),
    ({"metadata": {"managedFields": [{"manager": "z", "operation": "Update", "apiVersion": "v1"}]}, "spec": {}},
     {"f:spec": {"f:expirationSeconds": {}}}),
])  # fmt: skip
def test_managed_fields_of_a_token_request(
    api: Client, hook: Webhook, account: str, more: dict[str, Any], owned: dict[str, Any]
) -> None:
    with configured(api, MUTATING, webhook("m", hook.client_config(), about("serviceaccounts/token"))):
        made = api.post(f"{ACCOUNTS}/{account}/token", {"kind": "TokenRequest", **more}, fieldManager="me").expect(201)
    (told,) = hook.requests()
    (owner,) = made["metadata"]["managedFields"]
    assert told["object"]["metadata"]["managedFields"] == [owner]
    del owner["time"]
    assert owner == {
        "manager": "me",
        "operation": "Update",
        "apiVersion": "authentication.k8s.io/v1",
        "fieldsType": "FieldsV1",
        "fieldsV1": owned,
        "subresource": "token",
    }


@pytest.mark.rows("ADM-004", "AUT-002")
def test_token_request_is_validated_after_webhooks(api: Client, hook: Webhook, account: str) -> None:
    path, body = f"{ACCOUNTS}/{account}/token", {"kind": "TokenRequest", "spec": {}}
    with configured(api, MUTATING, webhook("m", hook.client_config(), about("serviceaccounts/token"))):
        hook.answer = patch({"op": "add", "path": "/metadata/namespace", "value": "x"})
        assert api.post(path, body).expect(422)["message"] == (
            f'TokenRequest.authentication.k8s.io "{account}" is invalid: metadata.namespace: Invalid value: "x": '
            "must match the service account namespace if specified"
        )
        hook.answer = patch({"op": "add", "path": "/metadata/managedFields", "value": [{"operation": "Nope"}]})
        answer = api.post(path, body)
        assert [it["operation"] for it in answer.expect(201)["metadata"]["managedFields"]] == ["Update"]
        assert any("managedFields" in told for told in answer.warnings)
        owner = {"apiVersion": "v1", "kind": "A", "name": "n", "uid": "u"}
        hook.answer = patch({"op": "add", "path": "/metadata/ownerReferences", "value": [owner, owner]})
        answer = api.post(path, body)
        assert answer.expect(201)["metadata"]["ownerReferences"] == [owner]
        assert any("duplicate entries after mutating admission happens" in told for told in answer.warnings)


@pytest.mark.rows("ADM-020")
def test_policies_apply_to_token_requests_but_not_reviews(api: Client, account: str) -> None:
    name = f"p-{secrets.token_hex(4)}"
    rules = [about("serviceaccounts/token", *(plural for _, plural, _, _ in QUESTIONS))]
    spec = {"matchConstraints": {"resourceRules": rules}, "validations": [{"expression": "false"}]}
    bound = {"policyName": name, "validationActions": ["Deny"]}
    with (
        stored(api, POLICIES, document(POLICIES, name, spec=spec)),
        stored(api, BINDINGS, document(BINDINGS, name, spec=bound)),
    ):
        settled(api, POLICIES)
        for question in QUESTIONS:
            ask(api, *question).expect(201)
        refused = api.post(f"{ACCOUNTS}/{account}/token", {"kind": "TokenRequest", "spec": {}}).expect(422)
    settled(api, POLICIES)
    assert refused["message"].startswith(f'serviceaccounts "{account}" is forbidden: ValidatingAdmissionPolicy')


@pytest.mark.rows("NSP-003", "NSP-004")
def test_token_request_needs_a_namespace_and_review_does_not(api: Client) -> None:
    place, name = f"nosuch-{secrets.token_hex(4)}", f"going-{secrets.token_hex(4)}"
    local = f"/apis/authorization.k8s.io/v1/namespaces/{place}/localsubjectaccessreviews"
    asked = {"resourceAttributes": {**ASKED["resourceAttributes"], "namespace": place}, "user": "joe"}
    # access reviews are allowed in all namespaces, so that they do not reveal whether a namespace exists
    api.post(local, {"kind": "LocalSubjectAccessReview", "spec": asked}).expect(201)
    token = {"kind": "TokenRequest", "spec": {}}
    missing = api.post(f"/api/v1/namespaces/{place}/serviceaccounts/x/token", token).expect(404)
    assert missing["message"] == f'namespaces "{place}" not found'
    held = {"metadata": {"name": "held", "finalizers": ["example.com/hold"]}}
    path = f"/api/v1/namespaces/{name}"
    api.post("/api/v1/namespaces", {"metadata": {"name": name}}).expect(201)
    api.post(f"{path}/serviceaccounts", held).expect(201)
    api.delete(path).expect(200)
    refused = api.post(f"{path}/serviceaccounts/held/token", token).expect(403)
    assert refused["message"] == (
        f'serviceaccounts "held" is forbidden: unable to create new content in namespace {name} '
        "because it is being terminated"
    )
    api.patch(f"{path}/serviceaccounts/held", {"metadata": {"finalizers": None}}).expect(200)


@pytest.mark.rows("AUT-002")
def test_token_request_with_another_uid_conflicts(api: Client, account: str) -> None:
    uid = api.get(f"{ACCOUNTS}/{account}").expect(200)["metadata"]["uid"]
    path = f"{ACCOUNTS}/{account}/token"
    labelled = {"uid": uid, "labels": {"a": "b"}, "generateName": "x"}
    answer = api.post(path, {"kind": "TokenRequest", "metadata": labelled, "spec": {}}).expect(201)
    assert (answer["metadata"]["labels"], answer["metadata"]["generateName"]) == ({"a": "b"}, "x")
    refused = api.post(path, {"kind": "TokenRequest", "metadata": {"uid": "other"}, "spec": {}}).expect(409)
    text = f"the UID in the token request (other) does not match the UID of the service account ({uid})"
    # upstream: conflicts name the kind, not a resource
    what = f'Operation cannot be fulfilled on TokenRequest.authentication.k8s.io "{account}"'
    assert refused["message"] == f"{what}: {text}"
