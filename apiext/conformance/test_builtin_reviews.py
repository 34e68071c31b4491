"""Access reviews and user reviews, which the server answers but never stores; impersonation."""

from __future__ import annotations

from typing import Any

import pytest

from apiext.conformance.support.http_client import TABLE, Client

AUTHORIZATION = "/apis/authorization.k8s.io/v1"
AUTHENTICATION = "/apis/authentication.k8s.io/v1"
JSON = "application/json"
PROTOBUF = "application/vnd.kubernetes.protobuf"
ASKED = {"verb": "get", "resource": "secrets", "namespace": "default"}


def ask(api: Client, path: str, kind: str, spec: dict[str, Any]) -> Any:
    return api.post(path, {"kind": kind, "spec": spec})


def enforces_roles(api: Client) -> bool:
    """Return whether the server forbids a user without roles to read the metrics."""
    spec = {"nonResourceAttributes": {"path": "/metrics", "verb": "get"}, "user": "no-roles"}
    found = ask(api, f"{AUTHORIZATION}/subjectaccessreviews", "SubjectAccessReview", spec).expect(201)
    return not found["status"]["allowed"]


def status_of(review: dict[str, Any]) -> dict[str, Any]:
    """Return the status of a review without the reason.

    The reason names the binding that allows the action.
    """
    return {name: value for name, value in review["status"].items() if name != "reason"}


@pytest.mark.rows("KUB-004", "AUT-003")
def test_access_reviews_are_answered(api: Client) -> None:
    of_others = {"allowed": not enforces_roles(api)}
    own = ask(
        api, f"{AUTHORIZATION}/selfsubjectaccessreviews", "SelfSubjectAccessReview", {"resourceAttributes": ASKED}
    )
    assert status_of(own.expect(201)) == {"allowed": True}
    assert own.json["spec"] == {"resourceAttributes": ASKED}
    path = {"nonResourceAttributes": {"path": "/metrics", "verb": "get"}, "user": "joe", "groups": ["a"]}
    others = ask(api, f"{AUTHORIZATION}/subjectaccessreviews", "SubjectAccessReview", path).expect(201)
    assert others["status"] == of_others
    local = f"{AUTHORIZATION}/namespaces/default/localsubjectaccessreviews"
    here = ask(api, local, "LocalSubjectAccessReview", {"resourceAttributes": ASKED, "user": "joe"}).expect(201)
    (owner,) = here["metadata"].pop("managedFields")
    assert "f:resourceAttributes" in owner["fieldsV1"]["f:spec"]
    assert (here["status"], here["metadata"]) == (of_others, {"namespace": "default"})


@pytest.mark.rows("KUB-004", "AUT-003")
def test_the_rules_of_an_administrator_are_reviewed(api: Client) -> None:
    rules = ask(api, f"{AUTHORIZATION}/selfsubjectrulesreviews", "SelfSubjectRulesReview", {"namespace": "default"})
    status = rules.expect(201)["status"]
    every = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
    paths = {"verbs": ["*"], "nonResourceURLs": ["*"]}
    if enforces_roles(api):  # the answer also has the rules of bindings for all users
        assert every in status["resourceRules"]
        assert paths in status["nonResourceRules"]
        assert status["incomplete"] is False
    else:
        assert status == {"resourceRules": [every], "nonResourceRules": [paths], "incomplete": False}
    assert (rules.json["metadata"], rules.json["spec"]) == ({}, {}), (
        "the answer is a new object without the sent metadata and spec"
    )


WRONG = [
    ("selfsubjectaccessreviews", "SelfSubjectAccessReview", {}, 422,
     "is invalid: spec: Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must be"),
    ("selfsubjectaccessreviews", "SelfSubjectAccessReview",
     {"resourceAttributes": ASKED, "nonResourceAttributes": {"path": "/x"}}, 422,
     'spec: Invalid value: {"Path":"/x","Verb":""}: exactly one of nonResourceAttributes or resourceAttributes'),
    ("subjectaccessreviews", "SubjectAccessReview", {"resourceAttributes": ASKED}, 422,
     'spec.user: Invalid value: "": at least one of user or group must be specified'),
    ("namespaces/other/localsubjectaccessreviews", "LocalSubjectAccessReview",
     {"resourceAttributes": ASKED, "user": "a"}, 422,
     'spec.resourceAttributes.namespace: Invalid value: "default": must match metadata.namespace'),
    ("namespaces/other/localsubjectaccessreviews", "LocalSubjectAccessReview",
     {"resourceAttributes": {}, "user": "a"}, 422,
     'spec.resourceAttributes.namespace: Invalid value: "": must match metadata.namespace'),
    ("namespaces/default/localsubjectaccessreviews", "LocalSubjectAccessReview",
     {"nonResourceAttributes": {"path": "/x"}, "user": "a"}, 422, "disallowed on this kind of request"),
    ("selfsubjectaccessreviews", "SelfSubjectAccessReview",
     {"resourceAttributes": {"fieldSelector": {"rawSelector": "a=b", "requirements": [{"key": "a", "operator": "X"}]}}},
     422, 'is invalid: spec.resourceAttributes.fieldSelector.rawSelector: Invalid value: "a=b": may not specified at'
     " the same time as requirements"),
    ("subjectaccessreviews", "SubjectAccessReview", {"user": "a", "resourceAttributes": {"labelSelector": {}}}, 422,
     "is invalid: spec.resourceAttributes.labelSelector.requirements: Required value: when"
     " spec.resourceAttributes.labelSelector is specified, requirements or rawSelector is required"),
    ("selfsubjectaccessreviews", "SelfSubjectAccessReview", {"resourceAttributes": {"fieldSelector": {"requirements": [
        {"key": "", "operator": "Exists", "values": ["x"]}, {"key": "a b", "operator": "NotIn"}]}}}, 422,
     "is invalid: [spec.resourceAttributes.fieldSelector.requirements[0].key: Required value: must be specified,"
     " spec.resourceAttributes.fieldSelector.requirements[0].values: Forbidden: may not be specified when `operator` is"
     " 'Exists' or 'DoesNotExist', spec.resourceAttributes.fieldSelector.requirements[1].values: Required value: must"
     " be specified when `operator` is 'In' or 'NotIn']"),
    ("subjectaccessreviews", "SubjectAccessReview", {"resourceAttributes": {"labelSelector": {"requirements": [
        {"key": "a/b/c", "operator": "Nope"}, {"key": "a", "operator": "In", "values": ["b c"]}]}}}, 422,
     'is invalid: [spec.user: Invalid value: "": at least one of user or group must be specified,'
     ' spec.resourceAttributes.labelSelector.requirements[0].key: Invalid value: "a/b/c": a valid label key must'),
    ("selfsubjectrulesreviews", "SelfSubjectRulesReview", {}, 400, "no namespace on request"),
    ("selfsubjectaccessreviews", "SelfSubjectAccessReview", {"resourceAttributes": 1}, 400,
     "json: cannot unmarshal number into Go struct field SelfSubjectAccessReviewSpec.spec.resourceAttributes"),
]  # fmt: skip


@pytest.mark.rows("ERR-09", "ERR-11")
@pytest.mark.parametrize(("path", "kind", "spec", "code", "says"), WRONG, ids=[f"{it[1]}-{it[4][:30]}" for it in WRONG])
def test_invalid_access_reviews(api: Client, path: str, kind: str, spec: dict[str, Any], code: int, says: str) -> None:
    assert says in ask(api, f"{AUTHORIZATION}/{path}", kind, spec).expect(code)["message"]


FIELDS, LABELS = "fieldSelector", "labelSelector"
MISFITS: list[tuple[dict[str, Any], str]] = [
    ({"extra": "x"}, "string into Go struct field SubjectAccessReviewSpec.spec.extra of type map[string]v1.ExtraValue"),
    ({"extra": {"k": "x"}}, "string into Go struct field SubjectAccessReviewSpec.spec.extra of type v1.ExtraValue"),
    ({"extra": {"k": [1]}}, "number into Go struct field SubjectAccessReviewSpec.spec.extra of type string"),
    ({FIELDS: {"requirements": ["x"]}}, "string into Go struct field FieldSelectorAttributes.spec.resourceAttributes."
     "fieldSelector.requirements of type v1.FieldSelectorRequirement"),
    ({FIELDS: {"requirements": [{"operator": 1}]}}, "number into Go struct field FieldSelectorRequirement."
     "spec.resourceAttributes.fieldSelector.requirements.operator of type v1.FieldSelectorOperator"),
    ({LABELS: {"requirements": [{"operator": 1}]}}, "number into Go struct field LabelSelectorRequirement."
     "spec.resourceAttributes.labelSelector.requirements.operator of type v1.LabelSelectorOperator"),
]  # fmt: skip


@pytest.mark.rows("ERR-09")
@pytest.mark.parametrize(("given", "says"), MISFITS, ids=[it[1][-40:] for it in MISFITS])
def test_type_errors_name_the_go_types(api: Client, given: dict[str, Any], says: str) -> None:
    spec = given if "extra" in given else {"resourceAttributes": given}
    refused = ask(api, f"{AUTHORIZATION}/subjectaccessreviews", "SubjectAccessReview", spec).expect(400)
    assert refused["message"].endswith(f"json: cannot unmarshal {says}")


IGNORED = "spec.resourceAttributes.{} ignored due to parse error"
PARTLY = "spec.resourceAttributes.{} partially ignored due to parse error"
SELECTORS: list[tuple[dict[str, Any], str]] = [
    ({FIELDS: {"rawSelector": "a=b"}, LABELS: {"rawSelector": "a in (b)"}}, ""),
    ({FIELDS: {"rawSelector": "a=b=c"}}, IGNORED.format(FIELDS)),
    ({FIELDS: {"rawSelector": "a"}}, IGNORED.format(FIELDS)),
    ({FIELDS: {"requirements": [{"key": "a", "operator": "NotIn", "values": ["x"]}]}}, ""),
    ({FIELDS: {"requirements": [{"key": "a", "operator": "Exists"}]}}, IGNORED.format(FIELDS)),
    ({FIELDS: {"requirements": [{"key": "a", "operator": "Nope", "values": ["x"]}]}}, IGNORED.format(FIELDS)),
    ({FIELDS: {"requirements": [{"key": "a", "operator": "In", "values": ["x", "y"]}]}}, IGNORED.format(FIELDS)),
    ({FIELDS: {"requirements": [{"key": "a", "operator": "In", "values": ["x"]}, {"key": "a", "operator": "Exists"}]}},
     PARTLY.format(FIELDS)),
    ({LABELS: {"requirements": [{"key": "a", "operator": "Exists"}]}}, ""),
    ({LABELS: {"requirements": [{"key": "a", "operator": "Nope"}]}}, IGNORED.format(LABELS)),
    ({LABELS: {"requirements": [{"key": "a", "operator": "In", "values": ["x"]}, {"key": "a", "operator": "Nope"}]}},
     PARTLY.format(LABELS)),
    ({LABELS: {"rawSelector": "a b"}, FIELDS: {"rawSelector": "a=\\b"}},
     f"{IGNORED.format(FIELDS)}; {IGNORED.format(LABELS)}"),
]  # fmt: skip


@pytest.mark.rows("AUT-003")
@pytest.mark.parametrize(("selectors", "error"), SELECTORS)
def test_selectors_with_errors_are_ignored_and_reported(api: Client, selectors: dict[str, Any], error: str) -> None:
    own, of_users = f"{AUTHORIZATION}/selfsubjectaccessreviews", f"{AUTHORIZATION}/subjectaccessreviews"
    spec = {"resourceAttributes": {**ASKED, **selectors}}
    reported = {"evaluationError": error} if error else {}
    assert status_of(ask(api, own, "SelfSubjectAccessReview", spec).expect(201)) == {"allowed": True, **reported}
    plain = ask(api, of_users, "SubjectAccessReview", {"resourceAttributes": ASKED, "user": "joe"}).expect(201)
    of_joe = ask(api, of_users, "SubjectAccessReview", {**spec, "user": "joe"}).expect(201)
    assert of_joe["status"] == {**plain["status"], **reported}


# upstream: objects that are never stored, such as reviews, have no Table
@pytest.mark.rows("KUB-004", "ERR-11")
@pytest.mark.parametrize(
    ("path", "kind"),
    [
        (f"{AUTHORIZATION}/selfsubjectaccessreviews", "SelfSubjectAccessReview"),
        ("/api/v1/namespaces/default/serviceaccounts/tabled/token", "TokenRequest"),
    ],
)
def test_objects_that_are_never_stored_have_no_table(api: Client, path: str, kind: str) -> None:
    api.post("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "tabled"}})
    body = {"kind": kind, "spec": {"resourceAttributes": ASKED} if "Access" in kind else {"audiences": ["a"]}}
    answer = api.request("POST", path, body, {"Content-Type": JSON, "Accept": TABLE})
    assert "only the following media types are accepted" in answer.expect(406)["message"]
    answer = api.request("POST", path, body, {"Content-Type": JSON, "Accept": f"{TABLE},{JSON}"})
    assert answer.expect(201)["kind"] == kind


@pytest.mark.rows("AUT-003", "ERR-14")
def test_nothing_of_a_review_is_stored(api: Client) -> None:
    path = f"{AUTHORIZATION}/selfsubjectaccessreviews"
    for method in ("GET", "DELETE", "PUT"):
        assert api.request(method, path).status == 405, method
        assert api.request(method, f"{path}/a").expect(404)["details"] == {}, method
    named = {"kind": "SelfSubjectAccessReview", "metadata": {"name": "a"}, "spec": {"resourceAttributes": ASKED}}
    refused = api.post(path, named).expect(422)
    assert refused["message"].startswith('.authorization.k8s.io "" is invalid: metadata: Invalid value: {')
    assert "kind" not in refused["details"]  # upstream: this error names no kind
    own = refused["message"].partition("Invalid value: ")[2]
    assert own.startswith('{"name":"a","managedFields":[{"manager":"')
    assert own.endswith(
        '"fieldsV1":{"f:spec":{"f:resourceAttributes":{".":{},"f:namespace":{},"f:resource":{},'
        '"f:verb":{}}}}}]}: must be empty'
    )
    local = {**named, "kind": "LocalSubjectAccessReview", "spec": {"resourceAttributes": ASKED, "user": "a"}}
    refused = api.post(f"{AUTHORIZATION}/namespaces/default/localsubjectaccessreviews", local).expect(422)
    assert refused["message"].endswith(": must be empty except for namespace")
    entry = {it["name"]: it for it in api.get(AUTHORIZATION).expect(200)["resources"]}["selfsubjectaccessreviews"]
    assert entry["verbs"] == ["create"]


@pytest.mark.rows("NEG-002", "KUB-004")
def test_reviews_in_protobuf(api: Client) -> None:
    # SelfSubjectAccessReview{metadata{}, spec{resourceAttributes{verb: get}}, status{}} in its envelope
    raw = b"\x0a\x00" + b"\x12\x07" + b"\x0a\x05" + b"\x12\x03get" + b"\x1a\x00"
    meta = b"\x0a\x17authorization.k8s.io/v1" + b"\x12\x17SelfSubjectAccessReview"
    body = b"k8s\x00" + b"\x0a" + bytes([len(meta)]) + meta + b"\x12" + bytes([len(raw)]) + raw
    path = f"{AUTHORIZATION}/selfsubjectaccessreviews"
    shown = api.request("POST", path, body, {"Content-Type": PROTOBUF}).expect(201)
    assert (shown["spec"], shown["status"]) == ({"resourceAttributes": {"verb": "get"}}, {"allowed": True})
    answer = api.request("POST", path, body, {"Content-Type": PROTOBUF, "Accept": PROTOBUF})
    assert answer.raw.startswith(b"k8s\x00")
    assert b"\x08\x01" in answer.raw, "status.allowed, field 1, is true"


@pytest.mark.rows("AUT-005")
def test_self_subject_reviews_and_impersonation(api: Client) -> None:
    path = f"{AUTHENTICATION}/selfsubjectreviews"
    body = {"kind": "SelfSubjectReview"}
    own = api.post(path, body).expect(201)
    assert own["status"]["userInfo"]["username"]
    assert "system:authenticated" in own["status"]["userInfo"]["groups"]
    assert own["metadata"]["creationTimestamp"]
    as_joe = {
        "Impersonate-User": "joe",
        "Impersonate-Group": "devs",
        "Impersonate-Uid": "7",
        "Impersonate-Extra-A%2fb": "c",
    }
    assert api.request("POST", path, body, as_joe).expect(201)["status"]["userInfo"] == {
        "username": "joe",
        "uid": "7",
        "groups": ["devs", "system:authenticated"],
        "extra": {"a/b": ["c"]},
    }
    account = api.request("POST", path, body, {"Impersonate-User": "system:serviceaccount:default:sa"}).expect(201)
    assert account["status"]["userInfo"]["groups"] == [
        "system:serviceaccounts",
        "system:serviceaccounts:default",
        "system:authenticated",
    ]
    refused = api.request("POST", path, body, {"Impersonate-Group": "devs"}).expect(400)
    assert "without impersonating a user" in refused["message"]


@pytest.mark.rows("AUT-001")
def test_a_token_review_needs_a_token(api: Client) -> None:
    path = f"{AUTHENTICATION}/tokenreviews"
    empty = ask(api, path, "TokenReview", {}).expect(400)
    assert empty["message"] == "token is required for TokenReview in authentication"


@pytest.mark.rows("KUB-004", "WRI-001")
def test_reviews_drop_uid_and_deletion_fields_of_the_client(api: Client) -> None:
    past = {"uid": "x", "deletionTimestamp": "2020-01-01T00:00:00Z", "deletionGracePeriodSeconds": 3}
    question = {"metadata": past, "spec": {"resourceAttributes": ASKED, "user": "joe"}}
    answered = api.post(f"{AUTHORIZATION}/subjectaccessreviews", question).expect(201)["metadata"]
    assert past.keys().isdisjoint(answered)
    accounts, account = "/api/v1/namespaces/default/serviceaccounts", {"metadata": {"generateName": "asked-"}}
    place = f"{accounts}/{api.post(accounts, account).expect(201)['metadata']['name']}"
    refused = api.post(f"{place}/token", {"metadata": {"uid": "x"}, "spec": {}})
    api.delete(place).expect(200)
    # the URL selects the account; the server compares the uid in the request with the uid of this account
    assert (
        "the UID in the token request (x) does not match the UID of the service account"
        in refused.expect(409)["message"]
    )
