"""The writes that a webhook matches: by rules, selectors, conditions, equivalent resources."""

from __future__ import annotations

import json
import secrets
from typing import Any

import pytest

from apiext.conformance.support.admission import MUTATING, VALIDATING, configured, rule, webhook
from apiext.conformance.support.admission_webhook import Webhook, deny, fixtures, patch
from apiext.conformance.support.conversion_webhook import answer, crontab, failed, serve_crontabs
from apiext.conformance.support.definitions import Resource, definition, establish, fresh_group, serve
from apiext.conformance.support.events import event
from apiext.conformance.support.http_client import Client
from apiext.conformance.support.waiting import until

running, hook = fixtures()


PREFIX = "Internal error occurred: "


@pytest.fixture
def widgets(api: Client) -> Resource:
    return serve(api, subresources={"status": {}})


MATCHES = [
    ("by another operation", {"operations": ("UPDATE",)}, {}, False),
    ("by any operation", {"operations": ("*",)}, {}, True),
    ("by group", {"apiGroups": ["other"]}, {}, False),
    ("by any group", {"apiGroups": ["*"]}, {}, True),
    ("by another version", {"apiVersions": ["v2"]}, {}, False),
    ("by any resource", {"resources": ["*"]}, {}, True),
    ("by any resource and subresource", {"resources": ["*/*"]}, {}, True),
    ("by any subresource", {"resources": ["widgets/*"]}, {}, True),
    ("by another subresource", {"resources": ["widgets/status"]}, {}, False),
    ("in no namespace", {"scope": "Cluster"}, {}, False),
    ("in a namespace", {"scope": "Namespaced"}, {}, True),
    ("by labels", {}, {"objectSelector": {"matchLabels": {"app": "x"}}}, True),
    ("by other labels", {}, {"objectSelector": {"matchLabels": {"app": "y"}}}, False),
    ("by its namespace", {}, {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}}}, True),
    ("by another namespace", {}, {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "x"}}}, False),
    ("by an expression", {}, {"namespaceSelector": {"matchExpressions": [{"key": "nope", "operator": "Exists"}]}},
     False),
    ("on a condition", {}, {"matchConditions": [{"name": "a", "expression": "object.spec.color == 'red'"}]}, True),
    ("on a condition, for another resource", {"resources": ["gadgets"]},
     {"matchConditions": [{"name": "a", "expression": "true"}]}, False),
    ("on no condition", {}, {"matchConditions": [{"name": "a", "expression": "request.dryRun"}]}, False),
    ("on a user", {}, {"matchConditions": [{"name": "a", "expression": "'system:masters' in request.userInfo.groups"}]},
     True),
    ("on the authorizer", {}, {"matchConditions": [
        {"name": "a", "expression": "authorizer.group('a').resource('b').namespace('c').check('get').allowed()"},
        {"name": "b", "expression": "authorizer.requestResource.check('create').allowed()"}]}, True),
    ("on the old object", {}, {"matchConditions": [{"name": "a", "expression": "oldObject == null"}]}, True),
    ("on a missing field", {}, {"failurePolicy": "Ignore", "matchConditions": [
        {"name": "a", "expression": "object.spec.nope == 1"}]}, False),
    ("on a false condition besides one with an error", {}, {"matchConditions": [
        {"name": "a", "expression": "object.spec.nope == 1"}, {"name": "b", "expression": "false"}]}, False),
]  # fmt: skip


@pytest.mark.rows("ADM-005", "ADM-006")
@pytest.mark.parametrize(("rules", "more", "called"), [case[1:] for case in MATCHES], ids=[case[0] for case in MATCHES])
def test_writes_that_a_webhook_matches(
    api: Client, hook: Webhook, widgets: Resource, rules: dict[str, Any], more: dict[str, Any], called: bool
) -> None:
    hook.answer = deny("called")
    wanted = {**widgets.make("a", color="red"), "metadata": {"name": "a", "labels": {"app": "x"}}}
    with configured(api, VALIDATING, webhook("v", hook.client_config(), rule(widgets, **rules), **more)):
        api.post(widgets.path(), wanted).expect(400 if called else 201)
    assert len(hook.reviews) == called


@pytest.mark.rows("ADM-006")
def test_an_error_in_a_match_condition_is_a_403(api: Client, hook: Webhook, widgets: Resource) -> None:
    conditions = [{"name": "a", "expression": "object.spec.nope == 1"}]
    with configured(api, VALIDATING, webhook("v", hook.client_config(), rule(widgets), matchConditions=conditions)):
        found = api.post(widgets.path(), widgets.make("a")).expect(403)
    text = "expression 'object.spec.nope == 1' resulted in error: no such key: nope"
    assert found["message"] == f'widgets.{widgets.group} "a" is forbidden: {text}'
    assert hook.reviews == []


@pytest.mark.rows("ADM-006")
def test_an_error_in_a_match_condition_for_a_generated_name(api: Client, hook: Webhook, widgets: Resource) -> None:
    conditions = [{"name": "a", "expression": "object.spec.nope == 1"}]
    generated = {**widgets.make(""), "metadata": {"generateName": "gen-"}}
    with configured(api, MUTATING, webhook("m", hook.client_config(), rule(widgets), matchConditions=conditions)):
        found = api.post(widgets.path(), generated).expect(403)
    assert found["message"].startswith(f"widgets.{widgets.group} is forbidden: expression ")


@pytest.mark.rows("ADM-005")
def test_an_object_selector_also_matches_the_old_labels(api: Client, hook: Webhook, widgets: Resource) -> None:
    api.post(widgets.path(), {**widgets.make("a"), "metadata": {"name": "a", "labels": {"app": "x"}}}).expect(201)
    selected = {"objectSelector": {"matchLabels": {"app": "x"}}}
    with configured(api, VALIDATING, webhook("v", hook.client_config(), rule(widgets), **selected)):
        api.patch(widgets.path("a"), {"metadata": {"labels": None}}).expect(200)
        api.patch(widgets.path("a"), {"spec": {"size": 3}}).expect(200)
    assert len(hook.reviews) == 1


@pytest.mark.rows("ADM-005")
def test_cluster_scoped_objects_are_always_matched(api: Client, hook: Webhook) -> None:
    """As in upstream, an object without a namespace matches any namespaceSelector.

    A namespace is an exception: a namespaceSelector tests its own labels.
    """
    widgets = serve(api, scope="Cluster")
    selected = {"namespaceSelector": {"matchLabels": {"nope": "x"}}}
    with configured(api, VALIDATING, webhook("v", hook.client_config(), rule(widgets), **selected)):
        widgets.create("a", None)
    (request,) = hook.requests()
    assert "namespace" not in request


def two_versions(api: Client) -> Resource:
    wanted = definition(fresh_group())
    first = wanted["spec"]["versions"][0]
    second = json.loads(json.dumps(first)) | {"name": "v2", "storage": False}
    second["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]["extra"] = {
        "type": "string",
        "default": "x",
    }
    wanted["spec"]["versions"].append(second)
    made = establish(api, wanted)
    return Resource(api, made["spec"]["group"], "widgets", "Widget", "v1")


@pytest.mark.rows("ADM-005")
@pytest.mark.parametrize(("policy", "called"), [("Equivalent", True), ("Exact", False)])
def test_match_policy_for_other_versions(api: Client, hook: Webhook, policy: str, called: bool) -> None:
    widgets = two_versions(api)
    other = rule(widgets, apiVersions=["v2"])
    with configured(api, VALIDATING, webhook("v", hook.client_config(), other, matchPolicy=policy)):
        widgets.create("a", color="red")
        api.patch(widgets.path("a"), {"spec": {"color": "blue"}}).expect(200)
    assert len(hook.reviews) == 2 * called
    if called:
        _, request = hook.requests()
        assert request["kind"] == {"group": widgets.group, "version": "v2", "kind": "Widget"}
        assert request["resource"]["version"] == "v2"
        assert request["requestKind"]["version"] == request["requestResource"]["version"] == "v1"
        assert request["object"]["apiVersion"] == f"{widgets.group}/v2"
        assert request["oldObject"]["apiVersion"] == f"{widgets.group}/v2"


@pytest.mark.rows("ADM-005")
@pytest.mark.parametrize("policy", ["Equivalent", "Exact"])
@pytest.mark.parametrize(("asked", "group", "text"), [
    ("", "events.k8s.io", "note"),
    ("events.k8s.io", "", "message"),
])  # fmt: skip
def test_match_policy_for_events_in_both_groups(
    api: Client, hook: Webhook, policy: str, asked: str, group: str, text: str
) -> None:
    about = {"operations": ["*"], "apiGroups": [group], "apiVersions": ["v1"], "resources": ["events"]}
    path, wanted = event(asked)
    name = wanted["metadata"]["name"]
    with configured(api, VALIDATING, webhook("v", hook.client_config(), about, matchPolicy=policy)):
        api.post(path, wanted).expect(201)
        api.delete(f"{path}/{name}").expect(200)
    assert len(hook.reviews) == (2 if policy == "Equivalent" else 0)
    for request, member in zip(hook.requests(), ("object", "oldObject"), strict=False):
        assert request["kind"] == {"group": group, "version": "v1", "kind": "Event"}
        assert request["resource"] == {"group": group, "version": "v1", "resource": "events"}
        assert request["requestKind"] == {"group": asked, "version": "v1", "kind": "Event"}
        assert request["requestResource"] == {"group": asked, "version": "v1", "resource": "events"}
        shown = request[member]
        assert shown["apiVersion"] == (f"{group}/v1" if group else "v1")
        assert (shown["metadata"]["name"], shown[text]) == (name, "hi")


@pytest.mark.rows("ADM-005", "ADM-014")
@pytest.mark.parametrize(("asked", "group", "there", "here"), [
    ("", "events.k8s.io", "note", "message"),
    ("events.k8s.io", "", "message", "note"),
])  # fmt: skip
def test_a_patch_of_a_webhook_for_an_event_in_its_other_group_is_converted_back(
    api: Client, hook: Webhook, asked: str, group: str, there: str, here: str
) -> None:
    about = {"operations": ["CREATE"], "apiGroups": [group], "apiVersions": ["*"], "resources": ["events"]}
    hook.answer = patch({"op": "replace", "path": f"/{there}", "value": "patched"})
    path, wanted = event(asked)
    with configured(api, MUTATING, webhook("m", hook.client_config(), about)):
        made = api.post(path, wanted).expect(201)
    assert (made["apiVersion"], made[here]) == (wanted["apiVersion"], "patched")
    assert there not in made
    assert api.get(f"{path}/{wanted['metadata']['name']}").expect(200) == made


@pytest.mark.rows("ADM-005", "ADM-006")
@pytest.mark.parametrize(("expression", "called"), [
    ("request.resource.version == 'v1'", True),
    ("request.resource == request.requestResource", True),
    ("request.kind.version == 'v2' && request.requestKind.version == 'v1'", True),
    ("object.apiVersion.endsWith('/v2')", True),
    ("request.resource.version == 'v2'", False),
])  # fmt: skip
def test_match_conditions_see_the_requested_resource(api: Client, hook: Webhook, expression: str, called: bool) -> None:
    widgets = two_versions(api)
    conditions = [{"name": "a", "expression": expression}]
    other = rule(widgets, apiVersions=["v2"])
    with configured(api, VALIDATING, webhook("v", hook.client_config(), other, matchConditions=conditions)):
        widgets.create("a", color="red")
    assert [request["resource"]["version"] for request in hook.requests()] == ["v2"] * called


@pytest.mark.rows("ADM-005", "ADM-014")
def test_a_patch_of_a_webhook_in_another_version_is_converted_back(api: Client, hook: Webhook) -> None:
    widgets = two_versions(api)
    hook.answer = patch({"op": "replace", "path": "/spec/color", "value": "green"})
    with configured(api, MUTATING, webhook("m", hook.client_config(), rule(widgets, apiVersions=["v2"]))):
        made = widgets.create("a", color="red")
    assert made["apiVersion"] == f"{widgets.group}/v1"
    assert made["spec"] == {"color": "green", "note": "none"}
    assert api.get(widgets.path("a")).expect(200) == made


@pytest.mark.rows("ADM-005", "ADM-014", "VER-004")
def test_a_conversion_webhook_converts_objects_for_admission_webhooks(api: Client, hook: Webhook) -> None:
    tabs = serve_crontabs(api, hook)
    rules = {"operations": ["*"], "apiGroups": [tabs.group], "apiVersions": ["v1"], "resources": ["crontabs"]}
    hook.answers["/convert"] = answer(crontab)
    hook.answers["/m"] = patch({"op": "replace", "path": "/port", "value": "99"})
    with (
        configured(api, MUTATING, webhook("m", hook.client_config("/m"), rules)),
        configured(api, VALIDATING, webhook("v", hook.client_config("/v"), rules)),
    ):
        made = tabs.create("v1beta1", "a", hostPort="localhost:1234")
        assert made["hostPort"] == "localhost:99"
        api.patch(tabs.path("v1beta1", "a"), {"metadata": {"labels": {"a": "b"}}}).expect(200)
    (first, _), (_, second) = hook.requests("/m"), hook.requests("/v")
    assert (first["object"]["host"], first["object"]["port"]) == ("localhost", "1234")
    assert first["requestKind"]["version"] == "v1beta1"
    assert (second["object"]["port"], second["oldObject"]["port"]) == ("99", "99")
    assert second["object"]["metadata"]["labels"] == {"a": "b"}


@pytest.mark.rows("ADM-005", "VER-008")
@pytest.mark.parametrize(("kind", "prefix"), [(VALIDATING, PREFIX), (MUTATING, PREFIX * 2)])
@pytest.mark.parametrize("conditions", [[], [{"name": "a", "expression": "object != null"}]])
def test_a_failed_conversion_for_an_admission_webhook_is_a_500(
    api: Client, hook: Webhook, kind: str, prefix: str, conditions: list[dict[str, str]]
) -> None:
    tabs = serve_crontabs(api, hook)
    rules = {"operations": ["*"], "apiGroups": [tabs.group], "apiVersions": ["v1"], "resources": ["crontabs"]}
    hook.answers["/convert"] = failed("no luck")
    called = webhook("v", hook.client_config("/v"), rules, matchConditions=conditions)
    with configured(api, kind, called):
        wanted = {
            "apiVersion": f"{tabs.group}/v1beta1",
            "kind": "CronTab",
            "metadata": {"name": "a"},
            "hostPort": "a:1",
        }
        found = api.post(tabs.path("v1beta1"), wanted).expect(500)
    # upstream: for mutating webhooks, the message gets its prefix twice
    about = f"conversion webhook for {tabs.group}/v1beta1, Kind=CronTab failed: no luck"
    assert (found["message"], found["reason"]) == (prefix + about, "InternalError")
    assert hook.requests("/v") == []
    api.get(tabs.path("v1beta1", "a")).expect(404)


SCALE = {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"}


@pytest.mark.rows("ADM-005")
@pytest.mark.parametrize(("served", "scale", "called"), [(True, True, 2), (False, True, 2), (True, False, 1)])
def test_equivalent_versions_must_have_the_subresource(
    api: Client, hook: Webhook, served: bool, scale: bool, called: int
) -> None:
    # upstream: versions that are not served match, too
    # But an equivalent version must have the subresource.
    wanted = definition(fresh_group(), subresources={"scale": SCALE})
    first = wanted["spec"]["versions"][0]
    wanted["spec"]["versions"].append({**first, "name": "v2", "storage": False, "served": served})
    if not scale:
        wanted["spec"]["versions"][1]["subresources"] = {}
    widgets = Resource(api, establish(api, wanted)["spec"]["group"], "widgets", "Widget", "v1")
    other = rule(widgets, "widgets", "widgets/scale", apiVersions=["v2"])
    with configured(api, VALIDATING, webhook("v", hook.client_config(), other)):
        widgets.create("a")
        api.patch(widgets.path("a/scale"), {"spec": {"replicas": 2}}).expect(200)
    assert [request["resource"]["version"] for request in hook.requests()] == ["v2"] * called


@pytest.mark.rows("ADM-005")
def test_custom_namespaces_are_selected_by_their_own_labels(api: Client, hook: Webhook) -> None:
    # upstream: for namespaces, a namespaceSelector tests the labels of the object itself
    # upstream: a custom resource with the plural name "namespaces" is selected by its own labels, too
    # upstream: an object without a namespace always matches, unless its resource is namespaces
    wanted = definition(fresh_group())
    group = wanted["spec"]["group"]
    wanted["metadata"]["name"] = f"namespaces.{group}"
    wanted["spec"] |= {"names": {"plural": "namespaces", "kind": "Namespace"}, "scope": "Cluster"}
    establish(api, wanted)
    spaces = Resource(api, group, "namespaces", "Namespace", "v1")
    selector = {"namespaceSelector": {"matchLabels": {"app": "x"}}}
    with configured(api, VALIDATING, webhook("v", hook.client_config(), rule(spaces), **selector)):
        for name, label in (("a", "x"), ("b", "y")):
            made = spaces.make(name)
            made["metadata"] = {"name": name, "labels": {"app": label}}
            api.post(f"/apis/{group}/v1/namespaces", made).expect(201)
        # upstream: the segment after namespaces is always a namespace
        # So custom resources with the plural name "namespaces" have no path for one object.
        assert api.delete(f"/apis/{group}/v1/namespaces/a").status == 404
        found = api.delete(f"/apis/{group}/v1/namespaces").expect(500)
    assert found["message"] == f"{PREFIX}resource name may not be empty"
    assert [request["name"] for request in hook.requests()] == ["a"]


@pytest.mark.rows("NSP-005")
def test_another_delete_of_a_terminating_namespace_calls_no_webhook(api: Client, hook: Webhook) -> None:
    name = f"ns-{secrets.token_hex(4)}"
    place = f"/api/v1/namespaces/{name}"
    about = {"operations": ["DELETE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["namespaces"]}
    mine = {"matchLabels": {"kubernetes.io/metadata.name": name}}
    deny_all = webhook("v", hook.client_config(), about, namespaceSelector=mine)
    api.post("/api/v1/namespaces", {"metadata": {"name": name}}).expect(201)
    held = {"metadata": {"name": name}, "spec": {"finalizers": ["example.com/x"]}}
    api.put(f"{place}/finalize", held).expect(200)
    hook.answer = deny("keep it")
    with configured(api, VALIDATING, deny_all):
        api.delete(place).expect(400)
    api.delete(place).expect(200)
    hook.forget()
    hook.answer = deny("keep it")
    with configured(api, VALIDATING, deny_all):
        for how in {}, {"dryRun": "All"}, {"propagationPolicy": "Foreground"}:
            again = api.delete(place, **how).expect(200)
            assert (again["status"]["phase"], again["spec"]) == ("Terminating", held["spec"])
        wrong = api.delete(place, {"preconditions": {"uid": "x"}}).expect(409)
        assert "Precondition failed: UID in precondition: x" in wrong["message"]
        assert hook.reviews == []
        api.put(f"{place}/finalize", {"metadata": {"name": name}, "spec": {}}).expect(200)
        # This delete would remove the namespace, so it calls the webhook: 400. Or the namespace is already gone: 404.
        assert api.delete(place).status in {400, 404}
    until(lambda: api.delete(place).status == 404, "the namespace is gone")
