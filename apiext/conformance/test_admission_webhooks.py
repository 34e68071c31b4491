"""Webhooks that validate and mutate writes: their reviews, and the answers to clients."""

from __future__ import annotations

import re
import threading
from typing import Any

import pytest

from apiext.conformance.support import admission_webhook as hooks
from apiext.conformance.support.admission import MUTATING, VALIDATING, configured, rule, settled, webhook
from apiext.conformance.support.admission_webhook import Webhook, allow, deny, fixtures, page, patch
from apiext.conformance.support.definitions import Resource, definition, fresh_group, serve
from apiext.conformance.support.http_client import DEFINITIONS, JSON_PATCH, Client
from apiext.conformance.support.waiting import until

running, hook = fixtures()


@pytest.fixture
def widgets(api: Client) -> Resource:
    return serve(api, subresources={"status": {}})


@pytest.mark.rows("ADM-002", "ADM-007", "ADM-008")
def test_the_request_of_a_webhook(api: Client, hook: Webhook, widgets: Resource) -> None:
    with configured(api, VALIDATING, webhook("v", hook.client_config("/v"), rule(widgets))):
        made = api.post(widgets.path(), widgets.make("a", color="red"), fieldManager="me").expect(201)
        api.patch(widgets.path("a"), {"spec": {"color": "blue"}}, dryRun="All").expect(200)
        api.delete(widgets.path("a"), {"propagationPolicy": "Background"}).expect(200)
    create, update, delete = hook.requests()
    group = widgets.group
    kind = {"group": group, "version": "v1", "kind": "Widget"}
    resource = {"group": group, "version": "v1", "resource": "widgets"}
    assert create["kind"] == create["requestKind"] == kind
    assert create["resource"] == create["requestResource"] == resource
    assert (create["name"], create["namespace"], create["operation"]) == ("a", "default", "CREATE")
    path, review = "/apis/authentication.k8s.io/v1/selfsubjectreviews", {"kind": "SelfSubjectReview"}
    own = api.post(path, review).expect(201)["status"]["userInfo"]
    user = create["userInfo"]
    assert (user["username"], user["groups"]) == (own["username"], own["groups"])
    assert create["object"]["spec"] == {"color": "red", "note": "none"}
    assert create["object"]["metadata"]["uid"] == made["metadata"]["uid"]
    assert create["oldObject"] is None
    assert create["dryRun"] is False
    assert create["options"] == {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1", "fieldManager": "me"}
    assert "subResource" not in create
    assert update["oldObject"]["spec"]["color"] == "red"
    assert update["object"]["spec"]["color"] == "blue"
    assert update["dryRun"] is True
    # plug-ins receive UpdateOptions for a patch, too
    assert update["options"] == {"kind": "UpdateOptions", "apiVersion": "meta.k8s.io/v1", "dryRun": ["All"]}
    assert delete["object"] is None
    assert delete["oldObject"]["spec"]["color"] == "red"
    assert delete["options"]["propagationPolicy"] == "Background"
    assert hook.paths[0] == "/v?timeout=10s"
    assert len({request["uid"] for request in (create, update, delete)}) == 3


ASKED = {  # path in the URL of a webhook → requested path; envtest writes paths like the first
    "//v": "/v", "/v/": "/v", "/a/../v": "/v", "/../v": "/v", "/a/./b//c": "/a/b/c", "": "/", "//": "/",
    "/a%2fb": "/a/b", "/a%20b": "/a%20b", "/a%41": "/aA", "/é": "/%C3%A9", "/a'b(c)*!": "/a%27b%28c%29%2A%21",
    "/a:b@c;d=e,f&g+h$i~j": "/a:b@c;d=e,f&g+h$i~j", "/a%25b": "/a%25b", "/a%3Fb": "/a%3Fb",
}  # fmt: skip


@pytest.mark.rows("ADM-002", "VER-009")
def test_the_path_of_a_webhook_url_is_normalized(api: Client, hook: Webhook, widgets: Resource) -> None:
    asked = {}  # upstream: normalizes a path before the request, such as that of envtest with its two slashes
    for path in ASKED:
        hook.forget()
        place = hook.client_config("/v")
        place["url"] = place["url"].removesuffix("/v") + path
        with configured(api, VALIDATING, webhook("v", place, rule(widgets))):
            api.post(widgets.path(), widgets.make("a"), dryRun="All").expect(201)
        asked[path] = hook.paths[-1].removesuffix("?timeout=10s")
    assert asked == ASKED


DENIALS = [
    (deny("too red"), 400, "", 'admission webhook "v.example.com" denied the request: too red'),
    (deny(reason="Forbidden"), 400, "Forbidden", 'admission webhook "v.example.com" denied the request: Forbidden'),
    (deny(), 400, "", 'admission webhook "v.example.com" denied the request without explanation'),
    (deny("no", code=418), 418, "", 'admission webhook "v.example.com" denied the request: no'),
    (deny("no", code=200), 400, "", 'admission webhook "v.example.com" denied the request: no'),
    (deny("no", code=399), 400, "", 'admission webhook "v.example.com" denied the request: no'),
    (deny("no", code=400), 400, "", 'admission webhook "v.example.com" denied the request: no'),
    (deny("no", code=999), 999, "", 'admission webhook "v.example.com" denied the request: no'),
    (deny("no", code=403, reason="Forbidden"), 403, "Forbidden",
     'admission webhook "v.example.com" denied the request: no'),
]  # fmt: skip


@pytest.mark.rows("ADM-010")
@pytest.mark.parametrize("path", [MUTATING, VALIDATING], ids=["mutating", "validating"])
@pytest.mark.parametrize(("answer", "code", "reason", "text"), DENIALS)
def test_denials(
    api: Client, hook: Webhook, widgets: Resource, path: str, answer: hooks.Answer, code: int, reason: str, text: str
) -> None:
    hook.answer = answer
    with configured(api, path, webhook("v", hook.client_config(), rule(widgets))):
        found = api.post(widgets.path(), widgets.make("a")).expect(code)
    assert (found["message"], found.get("reason", ""), found["code"]) == (text, reason, code)
    api.get(widgets.path("a")).expect(404)


@pytest.mark.rows("ADM-010")
@pytest.mark.parametrize("metadata", [
    {}, {"resourceVersion": "4"}, {"continue": "c", "remainingItemCount": 3, "selfLink": "/s", "resourceVersion": "5"},
])  # fmt: skip
def test_a_denial_has_the_metadata_of_its_status(
    api: Client, hook: Webhook, widgets: Resource, metadata: dict[str, Any]
) -> None:
    status = {"message": "no", "metadata": {**metadata, "name": "x"}}
    hook.answer = lambda _: {"allowed": False, "status": status}
    with configured(api, VALIDATING, webhook("v", hook.client_config(), rule(widgets))):
        assert api.post(widgets.path(), widgets.make("a")).expect(400)["metadata"] == metadata


@pytest.mark.rows("ADM-004")
def test_mutating_webhooks_are_called_by_name_and_see_earlier_changes(
    api: Client, hook: Webhook, widgets: Resource
) -> None:
    hook.answers["/1"] = patch({"op": "replace", "path": "/spec/color", "value": "one"})
    hook.answers["/2"] = patch({"op": "add", "path": "/spec/size", "value": 2})
    first, second = (webhook(f"h{n}", hook.client_config(f"/{n}"), rule(widgets)) for n in (1, 2))
    with (
        configured(api, MUTATING, second, name="b-comes-later"),
        configured(api, MUTATING, first, webhook("h3", hook.client_config("/3"), rule(widgets)), name="a-comes-first"),
    ):
        made = widgets.create("a", color="red")
    assert made["spec"] == {"color": "one", "size": 2, "note": "none"}
    assert [path.split("?")[0] for path in hook.paths] == ["/1", "/3", "/2"]
    assert [request["object"]["spec"]["color"] for request in hook.requests()] == ["red", "one", "one"]


@pytest.mark.rows("ADM-014")
def test_fields_of_a_webhook_are_pruned_and_defaulted(api: Client, hook: Webhook, widgets: Resource) -> None:
    """After the mutating webhooks, the server prunes unknown fields and applies defaults again."""
    hook.answer = patch(
        {"op": "remove", "path": "/spec/note"},
        {"op": "add", "path": "/spec/unknown", "value": 1},
        {"op": "add", "path": "/spec/size", "value": 7},
    )
    with (
        configured(api, MUTATING, webhook("m", hook.client_config("/m"), rule(widgets))),
        configured(api, VALIDATING, webhook("v", hook.client_config("/v"), rule(widgets))),
    ):
        hook.answers["/v"] = allow
        made = widgets.create("a", color="red")
    assert made["spec"] == {"color": "red", "note": "none", "size": 7}
    (seen,) = hook.requests("/v")
    assert seen["object"]["spec"].items() >= made["spec"].items()
    assert api.get(widgets.path("a")).expect(200) == made


@pytest.mark.differs("unknown fields of a webhook are pruned only when the object is stored")
@pytest.mark.rows("ADM-014")
def test_fields_of_a_webhook_are_pruned_before_the_next_webhook(api: Client, hook: Webhook, widgets: Resource) -> None:
    hook.answers["/m"] = patch({"op": "add", "path": "/spec/unknown", "value": 1})
    with (
        configured(api, MUTATING, webhook("m", hook.client_config("/m"), rule(widgets))),
        configured(api, VALIDATING, webhook("v", hook.client_config("/v"), rule(widgets))),
    ):
        widgets.create("a", color="red")
    assert hook.requests("/v")[0]["object"]["spec"] == {"color": "red", "note": "none"}


@pytest.mark.rows("ADM-014")
def test_a_patch_of_a_webhook_may_have_more_operations_than_that_of_a_client(
    api: Client, hook: Webhook, widgets: Resource
) -> None:
    hook.answer = patch(*[{"op": "replace", "path": "/spec/note", "value": f"{i}"} for i in range(10_001)])
    with configured(api, MUTATING, webhook("m", hook.client_config(), rule(widgets))):
        assert widgets.create("a")["spec"]["note"] == "10000"


@pytest.mark.rows("ADM-014")
def test_fields_of_a_webhook_are_validated(api: Client, hook: Webhook, widgets: Resource) -> None:
    hook.answer = patch({"op": "add", "path": "/spec/size", "value": -7})
    with configured(api, MUTATING, webhook("m", hook.client_config(), rule(widgets))):
        found = api.post(widgets.path(), widgets.make("a")).expect(422)
    assert "spec.size: Invalid value: -7" in found["message"]


@pytest.mark.rows("ADM-014")
def test_a_patch_on_delete_is_an_error(api: Client, hook: Webhook, widgets: Resource) -> None:
    widgets.create("a")
    hook.answer = patch({"op": "add", "path": "/spec/size", "value": 1})
    with configured(api, MUTATING, webhook("m", hook.client_config(), rule(widgets, operations=("DELETE",)))):
        found = api.delete(widgets.path("a")).expect(500)
    text = 'admission webhook "m.example.com" attempted to modify the object, which is not supported for this operation'
    assert found["message"] == f"Internal error occurred: {text}"
    api.get(widgets.path("a")).expect(200)


@pytest.mark.rows("ADM-007")
def test_a_generated_name_is_seen_by_validating_webhooks_only(api: Client, hook: Webhook, widgets: Resource) -> None:
    with (
        configured(api, MUTATING, webhook("m", hook.client_config("/m"), rule(widgets))),
        configured(api, VALIDATING, webhook("v", hook.client_config("/v"), rule(widgets))),
    ):
        wanted = {**widgets.make("x"), "metadata": {"generateName": "gen-"}}
        made = api.post(widgets.path(), wanted).expect(201)
    (before,), (after,) = hook.requests("/m"), hook.requests("/v")
    assert "name" not in before
    assert "name" not in before["object"]["metadata"]
    assert after["name"] == after["object"]["metadata"]["name"] == made["metadata"]["name"]
    assert made["metadata"]["name"].startswith("gen-")


@pytest.mark.rows("ADM-015")
@pytest.mark.parametrize(("policy", "calls"), [("IfNeeded", ["/1", "/2", "/1"]), ("Never", ["/1", "/2"])])
def test_reinvocation(api: Client, hook: Webhook, widgets: Resource, policy: str, calls: list[str]) -> None:
    hook.answers["/2"] = patch({"op": "add", "path": "/spec/size", "value": 2})
    first = webhook("h1", hook.client_config("/1"), rule(widgets), reinvocationPolicy=policy)
    second = webhook("h2", hook.client_config("/2"), rule(widgets), reinvocationPolicy=policy)
    with configured(api, MUTATING, first, second):
        widgets.create("a")
    assert [path.split("?")[0] for path in hook.paths] == calls
    if policy == "IfNeeded":
        assert hook.requests("/1")[1]["object"]["spec"]["size"] == 2


@pytest.mark.rows("ADM-015")
def test_webhooks_are_reinvoked_only_once(api: Client, hook: Webhook, widgets: Resource) -> None:
    count = iter(range(100))

    def grow(_: hooks.Review) -> Any:
        return patch({"op": "add", "path": "/spec/size", "value": next(count)})(_)

    hook.answer = grow
    both = [webhook(f"h{n}", hook.client_config(f"/{n}"), rule(widgets), reinvocationPolicy="IfNeeded") for n in (1, 2)]
    with configured(api, MUTATING, *both):
        made = widgets.create("a")
    assert [path.split("?")[0] for path in hook.paths] == ["/1", "/2", "/1", "/2"]
    assert made["spec"]["size"] == 3


@pytest.mark.rows("ADM-012")
def test_dry_runs_need_webhooks_without_side_effects(api: Client, hook: Webhook, widgets: Resource) -> None:
    with configured(api, VALIDATING, webhook("v", hook.client_config(), rule(widgets), sideEffects="NoneOnDryRun")):
        api.post(widgets.path(), widgets.make("a"), dryRun="All").expect(201)
    assert hook.requests()[0]["dryRun"] is True


@pytest.mark.rows("ADM-013")
def test_warnings_reach_the_client(api: Client, hook: Webhook, widgets: Resource) -> None:
    hook.answer = lambda _: {
        "allowed": True,
        "warnings": ["careful", "careful", "really"],
        "auditAnnotations": {"a": "b"},
    }
    with configured(api, VALIDATING, webhook("v", hook.client_config(), rule(widgets))):
        answer = api.post(widgets.path(), widgets.make("a"))
        gone = api.delete(widgets.path())
    answer.expect(201)
    assert gone.expect(200)["items"]
    for told in (answer, gone):
        assert told.warnings == ['299 - "careful"', '299 - "really"']


@pytest.mark.rows("ADM-017")
def test_subresources_must_be_named(api: Client, hook: Webhook) -> None:
    scale = {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.size"}
    widgets = serve(api, subresources={"status": {}, "scale": scale})
    whole = webhook("a", hook.client_config("/main"), rule(widgets))
    status = webhook("b", hook.client_config("/status"), rule(widgets, "widgets/status"))
    any_part = webhook("c", hook.client_config("/any"), rule(widgets, "widgets/*"))
    widgets.create("a", size=1)
    with configured(api, VALIDATING, whole, status, any_part):
        api.patch(widgets.path("a/status"), {"status": {"phase": "on"}}).expect(200)
        api.patch(widgets.path("a/scale"), {"spec": {"replicas": 3}}).expect(200)
    assert sorted(path.split("?")[0] for path in hook.paths) == ["/any", "/any", "/status"]
    (on_status,) = hook.requests("/status")
    assert (on_status["subResource"], on_status["requestSubResource"]) == ("status", "status")
    assert on_status["object"]["status"] == {"phase": "on"}
    assert on_status["kind"]["kind"] == "Widget"
    scaled = hook.requests("/any")[1]
    assert scaled["kind"] == {"group": "autoscaling", "version": "v1", "kind": "Scale"}
    assert scaled["resource"]["resource"] == "widgets"
    assert scaled["object"]["kind"] == "Scale"
    assert scaled["object"]["spec"] == {"replicas": 3}
    assert scaled["oldObject"]["spec"] == {"replicas": 1}


@pytest.mark.rows("ADM-017")
def test_a_webhook_may_change_a_scale(api: Client, hook: Webhook) -> None:
    widgets = serve(api, subresources={"scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.s"}})
    widgets.create("a", size=1)
    hook.answer = patch({"op": "replace", "path": "/spec/replicas", "value": 9})
    with configured(api, MUTATING, webhook("m", hook.client_config(), rule(widgets, "widgets/scale"))):
        api.patch(widgets.path("a/scale"), {"spec": {"replicas": 3}}).expect(200)
    assert api.get(widgets.path("a")).expect(200)["spec"]["size"] == 9


@pytest.mark.rows("ADM-017", "SRV-008")
@pytest.mark.parametrize(("kind", "before"), [(MUTATING, {"replicas": -(2**31)}), (VALIDATING, {})])
def test_missing_replicas_of_an_old_scale_are_minus_2_31_for_mutating_webhooks(
    api: Client, hook: Webhook, kind: str, before: dict[str, int]
) -> None:
    widgets = serve(api, subresources={"scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.s"}})
    widgets.create("a")
    with configured(api, kind, webhook("m", hook.client_config(), rule(widgets, "widgets/scale"))):
        api.patch(widgets.path("a/scale"), {"spec": {"replicas": 3}}).expect(200)
    (request,) = hook.requests()
    assert (request["oldObject"]["spec"], request["object"]["spec"]) == (before, {"replicas": 3})


@pytest.mark.rows("ADM-018")
def test_deletecollection_calls_a_webhook_for_each_object(api: Client, hook: Webhook, widgets: Resource) -> None:
    for name in "abc":
        widgets.create(name)
    hook.answer = lambda request: {"allowed": request["oldObject"]["metadata"]["name"] != "c"}
    with configured(api, VALIDATING, webhook("v", hook.client_config(), rule(widgets, operations=("DELETE",)))):
        api.delete(widgets.path()).expect(400)
    requests = hook.requests()
    assert sorted(request["oldObject"]["metadata"]["name"] for request in requests) == ["a", "b", "c"]
    # upstream: the URL of a deletecollection has no name, and admission gets no names there
    assert {(request.get("name"), request["namespace"]) for request in requests} == {(None, "default")}
    assert [item["metadata"]["name"] for item in api.get(widgets.path()).expect(200)["items"]] == ["c"]


UNSAFE = "ignoreStoreReadErrorWithClusterBreakingPotential"
OPTIONS: list[tuple[dict[str, Any], dict[str, str], dict[str, Any]]] = [
    ({"preconditions": {}}, {}, {"preconditions": {}}),
    ({"preconditions": {"uid": None}}, {}, {"preconditions": {}}),
    ({"preconditions": None, "dryRun": [], "gracePeriodSeconds": None}, {}, {}),
    ({"gracePeriodSeconds": 0, "orphanDependents": False}, {}, {"gracePeriodSeconds": 0, "orphanDependents": False}),
    ({"propagationPolicy": "Background", UNSAFE: False}, {}, {"propagationPolicy": "Background", UNSAFE: False}),
    ({}, {}, {}),
    ({}, {"gracePeriodSeconds": "0", "uid": "", UNSAFE: "false"}, {"gracePeriodSeconds": 0, UNSAFE: False}),
]


@pytest.mark.rows("ADM-007", "WRI-020")
@pytest.mark.parametrize(("body", "query", "told"), OPTIONS)
def test_reviews_show_delete_options_as_sent(
    api: Client, hook: Webhook, widgets: Resource, body: dict[str, Any], query: dict[str, Any], told: dict[str, Any]
) -> None:
    widgets.create("a")
    hook.answer = lambda request: {"allowed": True}
    with configured(api, VALIDATING, webhook("v", hook.client_config(), rule(widgets, operations=("DELETE",)))):
        api.delete(widgets.path("a"), body if body or not query else None, **query).expect(200)
    (request,) = hook.requests()
    assert request["options"] == {"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1", **told}


@pytest.mark.rows("ADM-019")
def test_webhooks_are_called_for_definitions_and_namespaces(api: Client, hook: Webhook) -> None:
    group = fresh_group()
    rules: list[dict[str, Any]] = [
        {"operations": ["CREATE"], "apiGroups": ["apiextensions.k8s.io"], "apiVersions": ["*"],
         "resources": ["customresourcedefinitions"]},
        {"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["namespaces"],
         "scope": "Cluster"},
    ]  # fmt: skip
    prefix = group.split(".")[0]
    ours = f"request.name.endsWith('{group}') || request.name.startsWith('{prefix}')"
    mine = {"matchConditions": [{"name": "ours", "expression": ours}]}
    hook.answer = deny("not here")
    with configured(api, VALIDATING, webhook("v", hook.client_config(), *rules, **mine)):
        found = api.post(DEFINITIONS, definition(group)).expect(400)
        assert found["message"].endswith("denied the request: not here")
        name = f"{prefix}-ns"
        api.post("/api/v1/namespaces", {"metadata": {"name": name}}).expect(400)
    crd, namespace = hook.requests()
    assert crd["kind"] == {"group": "apiextensions.k8s.io", "version": "v1", "kind": "CustomResourceDefinition"}
    assert crd["object"]["kind"] == "CustomResourceDefinition"
    assert crd["object"]["spec"]["group"] == group
    assert (namespace["name"], namespace["namespace"]) == (name, name)


@pytest.mark.rows("ADM-007", "ADM-019")
def test_a_delete_of_a_namespace_has_its_uid_as_a_precondition(api: Client, hook: Webhook) -> None:
    # upstream: definitions and namespaces are deleted with the uid of the object that was read, as a precondition
    name = fresh_group().split(".")[0]
    made = api.post("/api/v1/namespaces", {"metadata": {"name": name}}).expect(201)
    rules = {"operations": ["DELETE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["namespaces"]}
    mine = {"matchConditions": [{"name": "ours", "expression": f"request.name == '{name}'"}]}
    with configured(api, VALIDATING, webhook("v", hook.client_config(), rules, **mine)):
        api.delete(f"/api/v1/namespaces/{name}").expect(200)
    options = hook.requests()[0]["options"]
    assert options["preconditions"] == {"uid": made["metadata"]["uid"]}


@pytest.mark.rows("ADM-002")
def test_webhooks_are_not_called_for_webhook_configurations(api: Client, hook: Webhook) -> None:
    hook.answer = deny("never")
    everything = {"operations": ["*"], "apiGroups": ["admissionregistration.k8s.io"], "apiVersions": ["*"],
                  "resources": ["*/*"]}  # fmt: skip
    with configured(api, VALIDATING, webhook("v", hook.client_config(), everything)) as name:
        api.patch(f"{VALIDATING}/{name}", {"metadata": {"labels": {"a": "b"}}}).expect(200)
    assert hook.reviews == []


@pytest.mark.rows("ADM-002")
def test_a_change_of_a_webhook_configuration_takes_effect_at_once(
    api: Client, hook: Webhook, widgets: Resource
) -> None:
    hook.answers["/no"] = deny("no")
    with configured(api, VALIDATING, webhook("v", hook.client_config("/yes"), rule(widgets))) as name:
        widgets.create("a")
        change = [{"op": "replace", "path": "/webhooks/0/clientConfig/url", "value": hook.url("/no")}]
        api.patch(f"{VALIDATING}/{name}", change, JSON_PATCH).expect(200)
        settled(api, VALIDATING)
        api.post(widgets.path(), widgets.make("b")).expect(400)
    widgets.create("b")


@pytest.mark.rows("ADM-018")
def test_the_clean_up_of_a_definition_calls_no_webhook(api: Client, hook: Webhook, widgets: Resource) -> None:
    widgets.create("a")
    hook.answer = deny("never")
    with configured(api, VALIDATING, webhook("v", hook.client_config(), rule(widgets, operations=("DELETE",)))):
        name = f"{DEFINITIONS}/widgets.{widgets.group}"
        api.delete(name).expect(200)
        until(lambda: api.get(name).status == 404, "the definition is gone", 10)
    assert hook.reviews == []


@pytest.mark.rows("ADM-009")
def test_v1beta1_reviews(api: Client, hook: Webhook, widgets: Resource) -> None:
    """Upstream: uid and kind of v1beta1 responses are not validated."""
    hook.answer = patch({"op": "add", "path": "/spec/size", "value": 4}, uid="whatever")
    old = webhook("m", hook.client_config(), rule(widgets), admissionReviewVersions=["v0", "v1beta1", "v1"])
    with configured(api, MUTATING, old):
        made = widgets.create("a")
    assert hook.reviews[0]["apiVersion"] == "admission.k8s.io/v1beta1"
    assert made["spec"]["size"] == 4
    # a patch in the response of a validating webhook is ignored
    with configured(api, VALIDATING, old):
        assert "size" not in widgets.create("b")["spec"]
    hook.answer = patch({"op": "add", "path": "/spec/size", "value": 5}, patchType="Other")
    with configured(api, MUTATING, old):
        assert widgets.create("c")["spec"]["size"] == 5


def counted(api: Client, family: str, /, **labels: str) -> float:
    """Return the sample of a metric with exactly these labels, or 0 without such a sample."""
    for line in api.get("/metrics").text.splitlines():
        found, _, value = line.rpartition(" ")
        if found.startswith(f"{family}{{") and dict(re.findall(r'(\w+)="([^"]*)"', found)) == labels:
            return float(value)
    return 0


@pytest.mark.rows("ADM-021")
@pytest.mark.has("metrics of one process")
def test_calls_are_counted(api: Client, hook: Webhook, widgets: Resource) -> None:
    name = f"count-{fresh_group().split('.')[0]}"
    hook.answer = deny("no", code=409)
    with configured(api, VALIDATING, webhook(name, hook.client_config(), rule(widgets))):
        api.post(widgets.path(), widgets.make("a")).expect(409)
        hook.answer = lambda _: page(503, b"later")
        api.post(widgets.path(), widgets.make("a")).expect(500)
    prefix = "apiserver_admission_"
    labels = {"name": f"{name}.example.com", "type": "validating", "operation": "CREATE"}
    assert counted(api, f"{prefix}webhook_request_total", **labels, code="409", rejected="true") == 1
    assert counted(api, f"{prefix}webhook_request_total", **labels, code="503", rejected="true") == 1
    called = {"error_type": "calling_webhook_error", "rejection_code": "503"}
    assert counted(api, f"{prefix}webhook_rejection_count", **labels, **called) == 1
    no_error = {"error_type": "no_error", "rejection_code": "409"}
    assert counted(api, f"{prefix}webhook_rejection_count", **labels, **no_error) == 1
    assert counted(api, f"{prefix}webhook_admission_duration_seconds_count", **labels, rejected="true") == 2
    step = {"type": "validate", "operation": "CREATE", "rejected": "true"}
    assert counted(api, f"{prefix}step_admission_duration_seconds_count", **step)
    plugin = {"name": "ValidatingAdmissionWebhook", **step}
    assert counted(api, f"{prefix}controller_admission_duration_seconds_count", **plugin)


@pytest.mark.rows("ADM-006", "ADM-021")
@pytest.mark.has("metrics of one process")
def test_conditions_are_counted(api: Client, hook: Webhook, widgets: Resource) -> None:
    name = f"count-{fresh_group().split('.')[0]}"
    conditions = [
        {"name": "first", "expression": "object.spec.nope == 1"},
        {"name": "second", "expression": "object.spec.size > 5"},
    ]
    more = {"matchConditions": conditions, "failurePolicy": "Ignore"}
    with configured(api, MUTATING, webhook(name, hook.client_config(), rule(widgets), **more)):
        widgets.create("a", size=1)
    labels = {"name": f"{name}.example.com", "kind": "webhook", "type": "admit", "operation": "CREATE"}
    prefix = "apiserver_admission_match_condition_"
    assert counted(api, f"{prefix}exclusions_total", **labels) == 1
    assert counted(api, f"{prefix}evaluation_errors_total", **labels) == 1
    assert counted(api, f"{prefix}evaluation_seconds_count", **labels) == 1
    assert hook.reviews == []


@pytest.mark.rows("ADM-001")
def test_reads_call_no_webhook(api: Client, hook: Webhook, widgets: Resource) -> None:
    widgets.create("a")
    hook.answer = deny("never")
    with configured(api, VALIDATING, webhook("v", hook.client_config(), rule(widgets))):
        api.get(widgets.path("a")).expect(200)
        api.get(widgets.path()).expect(200)
        with api.watch(widgets.path(), resourceVersion="0") as watch:
            assert watch.next()["type"] == "ADDED"
    assert hook.reviews == []


@pytest.mark.rows("ADM-001")
def test_invalid_objects_never_reach_validating_webhooks(api: Client, hook: Webhook, widgets: Resource) -> None:
    with (
        configured(api, MUTATING, webhook("m", hook.client_config("/m"), rule(widgets))),
        configured(api, VALIDATING, webhook("v", hook.client_config("/v"), rule(widgets))),
    ):
        api.post(widgets.path(), widgets.make("a", size=-1)).expect(422)
    assert [path.split("?")[0] for path in hook.paths] == ["/m"]


@pytest.mark.rows("ADM-004")
def test_validating_webhooks_are_called_concurrently(api: Client, hook: Webhook, widgets: Resource) -> None:
    together = threading.Barrier(4, timeout=10)

    def meet(_: hooks.Review) -> Any:
        together.wait()
        return {"allowed": True}

    hook.answer = meet
    four = [webhook(f"h{n}", hook.client_config(f"/{n}"), rule(widgets)) for n in range(4)]
    with configured(api, VALIDATING, *four):
        widgets.create("a")
    assert len(hook.reviews) == 4
