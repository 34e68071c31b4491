"""Invalid responses of conversion webhooks: the errors that clients get."""

from __future__ import annotations

from typing import Any

import pytest

from apiext.conformance.support.conversion_webhook import (
    BROKEN,
    Webhook,
    answer,
    conversion,
    crontab,
    failed,
    first_metadata,
    reason,
    renamed,
    serve_crontabs,
    spoiled,
)
from apiext.conformance.support.http_client import APPLY, DEFINITIONS, Answer, Client
from tests.support.processes import Server


@pytest.fixture
def api(converting: Server) -> Client:
    """A client of the server."""
    return Client(converting.url)


@pytest.mark.rows("VER-004", "VER-005")
def test_webhook_converts_with_v1beta1_reviews(api: Client, hook: Webhook) -> None:
    tabs = serve_crontabs(api, hook, reviews=("v3", "v1beta1", "v1"))
    tabs.create("v1beta1", "a", hostPort="a:1")
    hook.answer = spoiled(lambda _: None, uid="another")
    assert tabs.get("v1", "a")["host"] == "a"
    assert hook.reviews[0]["apiVersion"] == "apiextensions.k8s.io/v1beta1"


@pytest.mark.rows("VER-004")
def test_review_objects_have_no_resource_version(api: Client, hook: Webhook) -> None:
    tabs = serve_crontabs(api, hook)
    made = tabs.create("v1beta1", "a", hostPort="a:1")
    assert tabs.get("v1", "a")["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
    api.get(tabs.path("v1")).expect(200)
    asked = [it for request in hook.requests() for it in request["objects"]]
    assert [it["metadata"]["uid"] for it in asked] == [made["metadata"]["uid"]]
    assert "resourceVersion" not in asked[0]["metadata"]


OTHERS: dict[str, tuple[Any, str]] = {  # case → (value that the webhook returns for an object, Go's error)
    "a null": (None, "unexpected end of JSON input"),
    "text": ("x", "json: cannot unmarshal string into Go value of type map[string]interface {}"),
    "no kind": ({"a": 1}, "Object 'Kind' is missing in '{\"a\": 1}'"),
    "a long version": (
        {"apiVersion": "a/b/c", "kind": "X"},
        'Object \'Kind\' is missing in \'{"apiVersion": "a/b/c", "kind": "X"}\'',
    ),
}


@pytest.mark.rows("VER-006")
@pytest.mark.parametrize("name", OTHERS)
def test_error_quotes_invalid_converted_object(api: Client, hook: Webhook, name: str) -> None:
    tabs = serve_crontabs(api, hook)
    tabs.create("v1beta1", "a", hostPort="a:1")
    given, text = OTHERS[name]
    hook.answer = lambda _: {"result": {"status": "Success"}, "convertedObjects": [given]}
    assert reason(api.get(tabs.path("v1", "a")).expect(500)["message"]) == text


TEXTS = {
    "500": 'an error on the server ("no way") has prevented the request from succeeding',
    "no review": "converting (v1.Status) to (v1.ConversionReview): unknown conversion",
    "invalid JSON": "couldn't get version/kind; json parse error: unexpected end of JSON input",
    "HTML": "couldn't get version/kind; json parse error: json: cannot unmarshal string into Go value of type struct { "
    'APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }',
    "not a list": "json: cannot unmarshal object into Go struct field ConversionResponse.response.convertedObjects "
    "of type []runtime.RawExtension",
    "failed": "the webhook is tired",
    "failed without a word": "response.result.status was 'Failed', not 'Success'",
}
OBJECT_TEXTS = {
    "too few": "returned 0 objects, expected 1",
    "too many": "returned 2 objects, expected 1",
    "another name": "returned invalid object: must have the same name: a != another",
    "another namespace": "returned invalid object: must have the same namespace: default != another",
    "another kind": "returned invalid object at index 0: invalid kind (expected CronTab, received Another)",
    "null metadata": "returned invalid object: must have the same name: a != ",
}


@pytest.mark.rows("VER-005", "VER-006", "VER-007", "VER-008")
@pytest.mark.parametrize("name", sorted(BROKEN))
def test_invalid_webhook_response_is_a_500(api: Client, hook: Webhook, name: str) -> None:
    tabs = serve_crontabs(api, hook)
    tabs.create("v1beta1", "a", hostPort="a:1")
    hook.answer = BROKEN[name]
    for found in (api.get(tabs.path("v1", "a")), api.get(tabs.path("v1"))):
        assert (found.status, found.json["kind"], found.json["status"]) == (500, "Status", "Failure"), found.raw
        message = reason(found.json["message"])
        about = f"conversion webhook for {tabs.group}/v1beta1, Kind=CronTab "
        if name in TEXTS:
            assert message == f"{about}failed: {TEXTS[name]}"
        elif name in OBJECT_TEXTS:
            assert message == about + OBJECT_TEXTS[name]
        elif name != "null object":
            assert message.startswith(about)
    made = {"apiVersion": f"{tabs.group}/v1", "kind": "CronTab", "metadata": {"name": "b"}, "host": "b"}
    assert api.post(tabs.path("v1"), made).status == 500
    assert api.get(tabs.path("v1beta1")).expect(200)["items"][0]["hostPort"] == "a:1"
    hook.answer = answer(crontab)
    assert tabs.get("v1", "a")["host"] == "a"
    assert len(api.get(tabs.path("v1")).expect(200)["items"]) == 1


@pytest.mark.rows("VER-006")
def test_list_error_has_key_and_index_of_invalid_object(api: Client, hook: Webhook) -> None:
    tabs = serve_crontabs(api, hook)
    for name in "abc":
        tabs.create("v1beta1", name, hostPort="h:1")

    def spoil(objects: list[dict[str, Any]]) -> None:
        for it in objects:
            if it["metadata"]["name"] == "b":
                it["apiVersion"] = f"{tabs.group}/v9"

    hook.answer = spoiled(spoil)
    found = api.get(tabs.path("v1"))
    about = f"conversion webhook for {tabs.group}/v1beta1, Kind=CronTab"
    wrong = f"invalid groupVersion (expected {tabs.group}/v1, received {tabs.group}/v9)"
    assert found.json["details"]["causes"][0]["field"].endswith(f"/{tabs.group}/crontabs/default/b")
    assert reason(found.json["message"]) == f"{about} returned invalid converted object at index 1: {wrong}"
    assert tabs.get("v1", "c")["host"] == "h"
    assert len(hook.requests()) == 1


@pytest.mark.rows("VER-007")
def test_webhook_may_change_only_labels_and_annotations(api: Client, hook: Webhook) -> None:
    tabs = serve_crontabs(api, hook)
    made = tabs.create("v1beta1", "a", hostPort="a:1", metadata={"labels": {"x": "1"}, "annotations": {"y": "2"}})
    changed = {
        "labels": {"x": "converted"},
        "annotations": {"z": "3"},
        "finalizers": ["example.com/f"],
        "generation": 9,
    }
    hook.answer = spoiled(first_metadata(**changed))
    shown = tabs.get("v1", "a")["metadata"]
    assert (shown["labels"], shown["annotations"]) == ({"x": "converted"}, {"z": "3"})
    assert {**made["metadata"], "labels": 0, "annotations": 0} == {**shown, "labels": 0, "annotations": 0}
    selected = api.get(tabs.path("v1"), labelSelector="x=converted").expect(200)["items"]
    assert [it["metadata"]["name"] for it in selected] == ["a"]
    assert api.get(tabs.path("v1"), labelSelector="x=1").expect(200)["items"] == []
    assert len(api.get(tabs.path("v1beta1"), labelSelector="x=1").expect(200)["items"]) == 1


@pytest.mark.rows("VER-007")
@pytest.mark.parametrize(
    ("metadata", "text"),
    [
        ({"labels": {"a/b/c": "x"}}, 'metadata.labels: Invalid value: "a/b/c"'),
        ({"labels": {"foo": "üäö"}}, 'metadata.labels: Invalid value: "üäö"'),
        ({"labels": {"a": None}}, "metadata.labels[a] must be a string, but is <nil> in converted object"),
        ({"labels": []}, "invalid metadata.labels of type []interface {} in converted object"),
        ({"annotations": {"a/b/c": "x"}}, 'metadata.annotation: Invalid value: "a/b/c"'),
    ],
)
def test_bad_labels_are_refused(api: Client, hook: Webhook, metadata: dict[str, Any], text: str) -> None:
    tabs = serve_crontabs(api, hook)
    tabs.create("v1beta1", "a", hostPort="a:1")
    hook.answer = spoiled(first_metadata(**metadata))
    found = api.get(tabs.path("v1", "a"))
    about = f"conversion webhook for {tabs.group}/v1beta1, Kind=CronTab returned invalid metadata: "
    assert found.status == 500
    assert reason(found.json["message"]).startswith(about + text)


@pytest.mark.rows("VER-004")
def test_definition_without_known_review_version_is_refused(api: Client, hook: Webhook) -> None:
    body = {"conversion": conversion(hook.client_config(), ("v3",))}
    tabs = serve_crontabs(api, hook)
    assert api.patch(f"{DEFINITIONS}/crontabs.{tabs.group}", {"spec": body}).status == 422


@pytest.mark.rows("VER-008")
def test_write_is_not_stored_if_its_response_cannot_be_converted(api: Client, hook: Webhook) -> None:
    tabs = serve_crontabs(api, hook)
    tabs.create("v1beta1", "old", hostPort="old:1")
    tabs.get("v1", "old")

    def convert_only_to_v1beta1(request: dict[str, Any]) -> Any:
        there = request["desiredAPIVersion"].endswith("/v1beta1")
        return (answer(crontab) if there else failed("not back"))(request)

    hook.answer = convert_only_to_v1beta1
    made = {"apiVersion": f"{tabs.group}/v1", "kind": "CronTab", "metadata": {"name": "new"}, "host": "h"}
    for found in (api.post(tabs.path("v1"), made), api.patch(tabs.path("v1", "old"), {"host": "new"})):
        assert (found.status, found.json["message"].endswith("failed: not back")) == (500, True), found.raw
    assert api.post(tabs.path("v1"), made, dryRun="All").status == 500
    listed = api.get(tabs.path("v1beta1")).expect(200)["items"]
    assert [(it["metadata"]["name"], it["hostPort"]) for it in listed] == [("old", "old:1")]


PRUNING = "failed to prune fields: failed add back "
STEPS = [
    f"{PRUNING}owned items: failed to convert merged object at version G/v1: conversion webhook for G/v1beta1",
    f"{PRUNING}owned items: failed to convert pruned object at version G/v1: conversion webhook for G/v1beta1",
    f"{PRUNING}dangling items: failed to convert pruned object to last applied version: conversion webhook for G/v1",
    "failed to convert new object: conversion webhook for G/v1beta1",
]


@pytest.mark.rows("SSA-011", "VER-004")
def test_apply_error_names_the_failed_conversion_step(api: Client, hook: Webhook) -> None:
    anything = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    hook.answer = answer(renamed)
    tabs = serve_crontabs(api, hook, schemas={"v1beta1": anything, "v1": anything})

    def apply(version: str, manager: str, spec: dict[str, Any]) -> Answer:
        body = {"apiVersion": f"{tabs.group}/{version}", "kind": "CronTab", "metadata": {"name": "a"}}
        return api.patch(tabs.path(version, "a"), {**body, "spec": spec}, APPLY, fieldManager=manager)

    apply("v1beta1", "one", {"x": 1}).expect(201)
    apply("v1", "two", {"y": 1}).expect(200)
    apply("v1beta1", "one", {"x": 1, "z": 1}).expect(200)
    told: list[str] = []
    for good in range(10):
        left = iter([answer(renamed)] * good)
        hook.answer = lambda request, left=left: next(left, failed("tired"))(request)
        found = apply("v1beta1", "one", {"x": 2})
        if found.status == 200:
            break
        told.append(found.expect(500)["message"])
    wanted = [f"{step.replace('G', tabs.group)}, Kind=CronTab failed: tired" for step in STEPS]
    # an earlier write may have cached conversions of the stored object
    assert [text for text in told if text in wanted] == wanted
