"""The audit log: the events of each kind of request, as kube-apiserver v1.37 writes them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from apiext.conformance.support.admission import BINDINGS, MUTATING, POLICIES, VALIDATING, document, rule, webhook
from apiext.conformance.support.admission_webhook import deny, page, patch, running_webhook
from apiext.conformance.support.definitions import Resource, definition, establish, fresh_group, serve
from apiext.conformance.support.http_client import APPLY, JSON_PATCH, MERGE, TABLE
from apiext.conformance.support.waiting import until
from tests.support.audit import Audited, write_policy
from tests.support.processes import Etcd, running_server

pytestmark = [
    pytest.mark.rows("AUD-001"),
    pytest.mark.differs("the log is a file of a server that the test starts"),
]

ALLOWED = {"authorization.k8s.io/decision": "allow", "authorization.k8s.io/reason": ""}
SEVEN = ["kind", "apiVersion", "level", "auditID", "stage", "requestURI", "verb"]


@pytest.fixture(scope="module")
def audited(tmp_path_factory: pytest.TempPathFactory, own_etcd: Etcd) -> Iterator[Audited]:
    """A server with an audit log with the level RequestResponse for all requests."""
    directory = tmp_path_factory.mktemp("audited")
    flags = [
        "--insecure", "--port=0", f"--etcd-servers={own_etcd.url}", "--etcd-prefix=/audited",
        f"--audit-policy-file={write_policy(directory, {'level': 'RequestResponse'})}",
        f"--audit-log-path={directory / 'logs' / 'audit.log'}",
    ]  # fmt: skip
    with running_server(flags, directory) as server:
        yield Audited(server, directory / "logs" / "audit.log")


@pytest.fixture(scope="module")
def widgets(audited: Audited) -> Resource:
    return serve(audited.api, subresources={"status": {}})


# --- contents of events ---


def test_create_event_has_request_and_response_objects(audited: Audited, widgets: Resource) -> None:
    sent = widgets.make("one", color="<red> & green", unknown=1)
    answer, events = audited.ask("POST", f"{widgets.path()}?fieldManager=me&pretty=false", sent)
    made = answer.expect(201)
    assert list(events) == ["RequestReceived", "ResponseComplete"]
    first, last = events.values()
    assert list(first) == [
        *SEVEN,
        "user",
        "sourceIPs",
        "objectRef",
        "requestReceivedTimestamp",
        "stageTimestamp",
    ]
    assert list(last) == [
        *SEVEN,
        "user",
        "sourceIPs",
        "objectRef",
        "responseStatus",
        "requestObject",
        "responseObject",
        "requestReceivedTimestamp",
        "stageTimestamp",
        "annotations",
    ]
    assert first["stageTimestamp"] == first["requestReceivedTimestamp"] == last["requestReceivedTimestamp"]
    assert last["stageTimestamp"] > first["stageTimestamp"]
    assert (last["kind"], last["apiVersion"], last["level"]) == ("Event", "audit.k8s.io/v1", "RequestResponse")
    assert last["requestURI"] == f"{widgets.path()}?fieldManager=me&pretty=false"
    assert last["verb"] == "create"
    assert last["user"] == {"username": "admin", "groups": ["system:masters", "system:authenticated"]}
    assert last["sourceIPs"] == ["127.0.0.1"]
    where = {"resource": "widgets", "namespace": "default", "apiGroup": widgets.group, "apiVersion": "v1"}
    assert first["objectRef"] == where
    assert last["objectRef"] == {**where, "name": "one"}
    assert last["responseStatus"] == {"metadata": {}, "code": 201}
    # the decoded object: pruned and with defaults
    assert last["requestObject"] == {**sent, "spec": {"color": "<red> & green", "note": "none"}}
    assert last["responseObject"] == made
    assert last["annotations"] == ALLOWED
    raw = next(line for line in audited.log.read_bytes().splitlines() if b'"POST-' in line and b"color" in line)
    assert b"\\u003cred\\u003e \\u0026 green" in raw


def test_update_event_has_object_uid_and_resource_version(audited: Audited, widgets: Resource) -> None:
    made = widgets.create("updated")
    made["spec"]["size"] = 5
    last = audited.last("PUT", widgets.path("updated"), made)
    assert last["objectRef"] == {
        "resource": "widgets",
        "namespace": "default",
        "name": "updated",
        "uid": made["metadata"]["uid"],
        "apiGroup": widgets.group,
        "apiVersion": "v1",
        "resourceVersion": made["metadata"]["resourceVersion"],
    }
    assert last["requestObject"] == made
    stale = audited.last("PUT", widgets.path("updated") + "/status", made)
    assert stale["objectRef"]["subresource"] == "status"
    assert stale["responseStatus"]["reason"] == "Conflict"
    assert stale["responseObject"]["kind"] == "Status"


@pytest.mark.parametrize(
    ("kind", "body", "then"),
    [
        (MERGE, '{"spec": {"size":  1}}\n', {"spec": {"size": 1}}),
        (
            JSON_PATCH,
            '[{"op": "test", "path": "/kind", "value": "x"}]',
            [{"op": "test", "path": "/kind", "value": "x"}],
        ),
        (APPLY, '{"kind": "Other"}', {"kind": "Other"}),
        (APPLY, "kind: Other\nspec: {a: [1]}\n", {"kind": "Other", "spec": {"a": [1]}}),
        (APPLY, "just words", "just words"),
    ],
)
def test_a_patch_is_logged_as_json(audited: Audited, widgets: Resource, kind: str, body: str, then: Any) -> None:
    last = audited.last("PATCH", widgets.path("patched") + "?fieldManager=me", body, Content_Type=kind)
    assert last["verb"] == "patch"
    assert last["requestObject"] == then


@pytest.mark.parametrize(("kind", "body"), [(MERGE, "not json"), (JSON_PATCH, "["), (APPLY, "[a")])
def test_a_malformed_patch_is_not_logged(audited: Audited, widgets: Resource, kind: str, body: str) -> None:
    last = audited.last("PATCH", widgets.path("patched") + "?fieldManager=me", body, Content_Type=kind)
    assert "requestObject" not in last
    assert last["responseStatus"]["code"] == 400


def test_patch_of_unsupported_media_type_is_not_logged(audited: Audited, widgets: Resource) -> None:
    last = audited.last("PATCH", widgets.path("patched"), "{}", Content_Type="application/strategic-merge-patch+json")
    assert "requestObject" not in last
    assert last["responseStatus"]["code"] == 415


def test_delete_events_have_options_and_status(audited: Audited, widgets: Resource) -> None:
    made = widgets.create("deleted")
    options = {"apiVersion": "v1", "kind": "DeleteOptions", "gracePeriodSeconds": 0, "preconditions": {"uid": "wrong"}}
    refused = audited.last("DELETE", widgets.path("deleted"), options)
    told = {"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/__internal"}
    assert refused["requestObject"] == {**told, "gracePeriodSeconds": 0, "preconditions": {"uid": "wrong"}}
    assert refused["responseStatus"]["code"] == 409
    wrong = audited.last("DELETE", widgets.path("deleted"), {"propagationPolicy": "Nope"})
    assert wrong["requestObject"] == {**told, "propagationPolicy": "Nope"}
    gone = audited.last("DELETE", widgets.path("deleted"))
    details = {"name": "deleted", "group": widgets.group, "kind": "widgets", "uid": made["metadata"]["uid"]}
    assert gone["responseStatus"] == {"metadata": {}, "status": "Success", "details": details, "code": 200}
    assert "requestObject" not in gone
    every = audited.last("DELETE", widgets.path() + "?labelSelector=a%3Db")
    assert (every["verb"], every["responseStatus"]) == ("deletecollection", {"metadata": {}, "code": 200})
    assert every["responseObject"]["items"] == []


@pytest.mark.parametrize(
    ("query", "accept"),
    [
        ("", ""),
        ("?pretty=true", ""),
        ("", "application/yaml"),
        ("", TABLE),
        ("", "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"),
    ],
)
def test_response_object_is_logged_as_json_of_the_requested_kind(
    audited: Audited, widgets: Resource, query: str, accept: str
) -> None:
    if audited.api.get(widgets.path("shown")).status == 404:
        widgets.create("shown", color="<a>")
    answer, events = audited.ask("GET", widgets.path("shown") + query, Accept=accept)
    shown = yaml.safe_load(answer.raw) if "yaml" in accept else answer.json
    if "yaml" in accept:  # in YAML this is a time, in JSON a string
        shown["metadata"]["creationTimestamp"] = answer.text.partition('creationTimestamp: "')[2].partition('"')[0]
        for entry in shown["metadata"]["managedFields"]:
            entry["time"] = shown["metadata"]["creationTimestamp"]
    assert events["ResponseComplete"]["responseObject"] == shown
    assert events["ResponseComplete"]["verb"] == "get"


def test_protobuf_response_is_logged_as_json(audited: Audited) -> None:
    path = "/api/v1/namespaces/default/configmaps"
    audited.api.post(path, {"metadata": {"name": "told"}, "data": {"a": "1"}}).expect(201)
    for where in (path + "/told", path):
        last = audited.last("GET", where, Accept="application/vnd.kubernetes.protobuf")
        assert last["responseObject"] == audited.api.get(where).json
    missing = audited.last("GET", path + "/missing", Accept="application/vnd.kubernetes.protobuf")
    assert missing["responseObject"]["reason"] == missing["responseStatus"]["reason"] == "NotFound"


def test_list_event_has_name_of_field_selector(audited: Audited, widgets: Resource) -> None:
    answer, events = audited.ask("GET", widgets.path() + "?fieldSelector=metadata.name%3Done&limit=1")
    last = events["ResponseComplete"]
    assert (last["verb"], last["objectRef"]["name"]) == ("list", "one")
    assert last["responseObject"] == answer.json
    across = audited.last("GET", widgets.path("", None))
    assert "namespace" not in across["objectRef"]


def test_large_response_is_logged_completely(audited: Audited) -> None:
    large = serve(audited.api, "larges")
    for number in range(2):
        large.create(f"large-{number}", note="x" * 150_000)
    last = audited.last("GET", large.path(), Accept_Encoding="gzip")
    assert [len(item["spec"]["note"]) for item in last["responseObject"]["items"]] == [150_000] * 2


def test_watch_logs_response_started_and_complete(audited: Audited, widgets: Resource) -> None:
    with audited.api.watch(widgets.path(), headers={"Audit-Id": "watched"}) as watch:
        assert watch.status == 200
        until(lambda: len(audited.events("watched")) > 1, "the start is told")
        events = audited.events("watched")
        assert list(events) == ["RequestReceived", "ResponseStarted"]
        assert events["ResponseStarted"]["responseStatus"] == {"metadata": {}, "code": 200}
        assert events["ResponseStarted"]["verb"] == "watch"
        assert "responseObject" not in events["ResponseStarted"]
    until(lambda: "ResponseComplete" in audited.events("watched"), "the end is told")
    assert "apiserver.latency.k8s.io/total" not in audited.events("watched")["ResponseComplete"]["annotations"]


def test_refused_watch_logs_response_started_and_complete(audited: Audited, widgets: Resource) -> None:
    _, events = audited.ask("GET", widgets.path() + "?watch=1&labelSelector=a+in")
    assert list(events) == ["RequestReceived", "ResponseStarted", "ResponseComplete"]
    for stage in ("ResponseStarted", "ResponseComplete"):
        assert events[stage]["responseStatus"]["code"] == 400
        assert events[stage]["responseObject"]["kind"] == "Status"


@pytest.mark.parametrize(
    ("method", "path", "code", "shown"),
    [
        ("GET", "/version", 200, ""),
        ("GET", "/healthz", 200, ""),
        ("GET", "/", 200, ""),
        ("GET", "/metrics", 200, ""),
        ("GET", "/openapi/v3", 200, ""),
        ("GET", "/nothing", 404, ""),
        ("GET", "/apis/none.example.com/v1", 404, ""),
        ("GET", "/a%20b?q=%20+x", 404, ""),
        ("GET", "/api", 200, "APIVersions"),
        ("GET", "/apis", 200, "APIGroupList"),
        ("GET", "/api/v1", 200, "APIResourceList"),
        ("POST", "/version", 405, "Status"),
    ],
)
def test_events_of_non_resource_paths_have_no_object_ref(
    audited: Audited, method: str, path: str, code: int, shown: str
) -> None:
    last = audited.last(method, path)
    assert (last["requestURI"], last["verb"]) == (path, method.lower())
    assert last["responseStatus"]["code"] == code
    assert last.get("responseObject", {}).get("kind", "") == shown
    assert "objectRef" not in last


def test_event_of_unknown_resource_has_object_ref(audited: Audited) -> None:
    last = audited.last("GET", "/apis/none.example.com/v1/things/a")
    assert last["objectRef"] == {"resource": "things", "name": "a", "apiGroup": "none.example.com", "apiVersion": "v1"}
    assert last["responseStatus"] == {"metadata": {}, "code": 404}


def test_event_of_406_response_has_only_the_code(audited: Audited, widgets: Resource) -> None:
    last = audited.last("GET", widgets.path("one"), Accept="application/nothing")
    assert last["responseStatus"] == {"metadata": {}, "code": 406}
    assert "responseObject" not in last


def test_object_ref_of_namespace_has_its_name_as_namespace(audited: Audited) -> None:
    last = audited.last("GET", "/api/v1/namespaces/default")
    assert last["objectRef"] == {
        "resource": "namespaces",
        "namespace": "default",
        "name": "default",
        "apiVersion": "v1",
    }


def test_request_object_is_logged_only_if_decodable(audited: Audited, widgets: Resource) -> None:
    broken = audited.last("POST", widgets.path(), '{"apiVersion":', Content_Type="application/json")
    assert "requestObject" not in broken
    wrong = audited.last("POST", widgets.path(), widgets.make("wrong", size=-1))
    assert wrong["requestObject"]["spec"]["size"] == -1
    assert wrong["responseStatus"]["reason"] == "Invalid"
    assert wrong["responseStatus"]["details"]["causes"] == wrong["responseObject"]["details"]["causes"]


def test_event_has_source_ips_and_user_agent(audited: Audited) -> None:
    last = audited.last(
        "GET", "/version", X_Forwarded_For="10.0.0.1, 10.0.0.2", X_Real_Ip="10.0.0.3", User_Agent="a" * 1030
    )
    assert last["sourceIPs"] == ["10.0.0.1", "10.0.0.2", "10.0.0.3", "127.0.0.1"]
    assert last["userAgent"] == "a" * 1024 + "...TRUNCATED"


def test_impersonated_users_in_events(audited: Audited, widgets: Resource) -> None:
    _, events = audited.ask("GET", widgets.path(), Impersonate_User="alice", Impersonate_Group="devs")
    assert not {"impersonatedUser", "authenticationMetadata"} & events["RequestReceived"].keys()
    last = events["ResponseComplete"]
    assert last["user"]["username"] == "admin"
    groups = ["devs", "system:authenticated"]
    assert last["impersonatedUser"] == {"username": "alice", "groups": groups}
    assert last["authenticationMetadata"] == {"impersonationConstraint": "impersonate:user-info"}
    older = audited.last("GET", widgets.path(), Impersonate_User="alice", Impersonate_Extra_Scopes="view")
    assert older["impersonatedUser"]["extra"] == {"scopes": ["view"]}
    assert "authenticationMetadata" not in older, "the oldest mode"


def test_event_of_deprecated_version_is_annotated(audited: Audited) -> None:
    made = establish(audited.api, definition(fresh_group(), deprecated=True))
    last = audited.last("GET", f"/apis/{made['spec']['group']}/v1/widgets")
    assert last["annotations"] == {**ALLOWED, "k8s.io/deprecated": "true"}
    path = f"/apis/{made['spec']['group']}/v1/widgets"
    with audited.api.watch(path, headers={"Audit-Id": "old"}, timeoutSeconds=1) as watch:
        assert not list(watch)
    until(lambda: "ResponseComplete" in audited.events("old"), "the end is told")
    watched = audited.events("old")
    assert "k8s.io/deprecated" not in watched["ResponseStarted"]["annotations"], "it is counted at the end"
    assert watched["ResponseComplete"]["annotations"]["k8s.io/deprecated"] == "true"


def test_events_of_access_reviews_and_token_requests(audited: Audited) -> None:
    asked = {"resourceAttributes": {"verb": "get", "resource": "pods"}}
    last = audited.last("POST", "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", {"spec": asked})
    assert last["requestObject"]["spec"] == asked
    assert last["responseObject"]["status"]["allowed"] is True
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    audited.api.post(accounts, {"metadata": {"name": "told"}}).expect(201)
    made = audited.last("POST", f"{accounts}/told/token", {"spec": {}})
    assert made["annotations"]["authentication.kubernetes.io/issued-credential-id"].startswith("JTI=")
    assert made["requestObject"]["spec"]["boundObjectRef"] is None, "Go shows it whatever it is"
    elsewhere = audited.last("POST", f"{accounts}/told/token", {"spec": {"audiences": ["vault"]}})
    assert elsewhere["responseStatus"]["code"] == 201, "a token that does not count here"
    assert elsewhere["annotations"]["authentication.kubernetes.io/issued-credential-id"].startswith("JTI=")


def test_annotations_of_webhooks_and_policies(audited: Audited, tmp_path: Path) -> None:
    api = audited.api
    things = serve(api, "things")
    with running_webhook(tmp_path) as hook:
        value = {"op": "add", "path": "/spec/color", "value": "red"}
        hook.answers["/m"] = patch(value, auditAnnotations={"why": "because"})
        hook.answers["/v"] = lambda _: {"allowed": True, "auditAnnotations": {"seen": "yes"}}
        hook.answers["/broken"] = lambda _: page(500, b"")
        where = rule(things)
        hooks = [
            webhook("m", hook.client_config("/m"), where),
            webhook("broken", hook.client_config("/broken"), where, failurePolicy="Ignore"),
        ]
        mutating = document(MUTATING, "audit-m", webhooks=hooks)
        validating = document(VALIDATING, "audit-v", webhooks=[webhook("v", hook.client_config("/v"), where)])
        api.post(MUTATING, mutating).expect(201)
        api.post(VALIDATING, validating).expect(201)
        try:
            dry = f"{things.path()}?dryRun=All"
            until(lambda: "v.example.com/seen" in audited.last("POST", dry, things.make("a"))["annotations"], "called")
            told = audited.last("POST", things.path(), things.make("a"))["annotations"]
            hook.answers["/v"] = deny("no")
            refused = audited.last("POST", things.path(), things.make("b"))
        finally:
            api.delete(f"{MUTATING}/audit-m")
            api.delete(f"{VALIDATING}/audit-v")
    names = {"configuration": "audit-m", "webhook": "m.example.com"}
    mutation, added = "mutation.webhook.admission.k8s.io/", "patch.webhook.admission.k8s.io/"
    assert json.loads(told.pop(f"{added}round_0_index_0")) == {**names, "patch": [value], "patchType": "JSONPatch"}
    assert json.loads(told.pop(f"{mutation}round_0_index_0")) == {**names, "mutated": True}
    assert json.loads(told.pop(f"{mutation}round_0_index_1"))["mutated"] is False
    assert told == {
        **ALLOWED,
        "m.example.com/why": "because",
        "v.example.com/seen": "yes",
        "failed-open.mutation.webhook.admission.k8s.io/round_0_index_1": "broken.example.com",
    }
    assert "m.example.com/why" in refused["annotations"], "also of what is refused"
    assert refused["responseStatus"]["code"] == 400


def test_event_has_audit_annotations_of_policies(audited: Audited) -> None:
    api = audited.api
    things = serve(api, "things")
    content = {
        "matchConstraints": {"resourceRules": [rule(things)]},
        "validations": [{"expression": "object.spec.size < 5", "message": "too many"}],
        "auditAnnotations": [{"key": "size", "valueExpression": "'size ' + string(object.spec.size)"}],
    }
    api.post(POLICIES, document(POLICIES, "audit-p", spec=content)).expect(201)
    bound = {"policyName": "audit-p", "validationActions": ["Audit"]}
    api.post(BINDINGS, document(BINDINGS, "audit-b", spec=bound)).expect(201)
    try:
        dry = f"{things.path()}?dryRun=All"
        until(lambda: "audit-p/size" in audited.last("POST", dry, things.make("a", size=1))["annotations"], "judged")
        told = audited.last("POST", things.path(), things.make("a", size=7))["annotations"]
    finally:
        api.delete(f"{BINDINGS}/audit-b")
        api.delete(f"{POLICIES}/audit-p")
    failure = "validation.policy.admission.k8s.io/validation_failure"
    assert json.loads(told.pop(failure)) == [
        {
            "message": "too many",
            "policy": "audit-p",
            "binding": "audit-b",
            "expressionIndex": 0,
            "validationActions": ["Audit"],
        }
    ]
    assert told == {**ALLOWED, "audit-p/size": "size 7"}


def test_annotation_lists_at_most_50_validation_failures(audited: Audited) -> None:
    api = audited.api
    things = serve(api, "things")
    content = {
        "matchConstraints": {"resourceRules": [rule(things)]},
        "validations": [{"expression": f"object.spec.size > {size}"} for size in range(60)],
    }
    api.post(POLICIES, document(POLICIES, "many-p", spec=content)).expect(201)
    bound = {"policyName": "many-p", "validationActions": ["Audit"]}
    api.post(BINDINGS, document(BINDINGS, "many-b", spec=bound)).expect(201)
    failure = "validation.policy.admission.k8s.io/validation_failure"
    try:
        dry = f"{things.path()}?dryRun=All"
        until(lambda: failure in audited.last("POST", dry, things.make("a", size=0))["annotations"], "judged")
        told = audited.last("POST", dry, things.make("a", size=0))["annotations"][failure]
    finally:
        api.delete(f"{BINDINGS}/many-b")
        api.delete(f"{POLICIES}/many-p")
    assert [one["expressionIndex"] for one in json.loads(told)] == list(range(50))


@pytest.mark.rows("RV-020")
def test_unsafe_delete_is_annotated(audited: Audited, widgets: Resource) -> None:
    widgets.create("readable")
    unsafe = "ignoreStoreReadErrorWithClusterBreakingPotential=true"
    last = audited.last("DELETE", f"{widgets.path('readable')}?{unsafe}")
    assert last["responseStatus"]["code"] == 409
    assert last["annotations"] == {**ALLOWED, "apiserver.k8s.io/unsafe-delete-ignore-read-error": ""}
    assert audited.last("DELETE", widgets.path("readable"))["annotations"] == ALLOWED


def test_events_and_levels_are_counted(audited: Audited) -> None:
    def count(name: str) -> float:
        lines = audited.api.get("/metrics").text.splitlines()
        return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))

    events, levels = count("apiserver_audit_event_total"), count('apiserver_audit_level_total{level="RequestResponse"}')
    audited.last("GET", "/version")
    # the last events of the first scrape, all of the request between the scrapes, the first of the second scrape
    assert count("apiserver_audit_event_total") == events + 6
    assert count('apiserver_audit_level_total{level="RequestResponse"}') > levels
    assert count("apiserver_audit_requests_rejected_total") == 0
