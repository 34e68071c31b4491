"""Webhooks that change apiVersion or kind: the object keeps both, or the write is refused."""

from __future__ import annotations

import secrets
from typing import Any

import pytest

from apiext.conformance.support.admission import MUTATING, configured, rule, webhook
from apiext.conformance.support.admission_webhook import Webhook, fixtures, patch
from apiext.conformance.support.conversion_webhook import answer, crontab, serve_crontabs
from apiext.conformance.support.definitions import serve
from apiext.conformance.support.http_client import Client
from apiext.conformance.test_admission_matching import two_versions

running, hook = fixtures()

CONFIGS = "/api/v1/namespaces/default/configmaps"
SCHEME = 'in scheme "pkg/runtime/scheme.go:111"'


def replace_member(member: str, value: Any) -> Any:
    return patch({"op": "replace", "path": f"/{member}", "value": value})


def config_map_rules(name: str) -> dict[str, Any]:
    """Return rules and selector of a webhook: creates of config maps with label ``of: name``."""
    about = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}
    return {"rules": [about], "objectSelector": {"matchLabels": {"of": name}}}


@pytest.mark.rows("ADM-014")
def test_webhook_cannot_change_type_of_built_in_kinds(api: Client, hook: Webhook) -> None:
    name = f"c-{secrets.token_hex(4)}"
    wanted = {"metadata": {"name": name, "labels": {"of": name}}, "data": {"a": "b"}}
    with configured(api, MUTATING, webhook("m", hook.client_config(), **config_map_rules(name))):
        for member in "kind", "apiVersion":
            for away in (
                patch({"op": "remove", "path": f"/{member}"}),
                replace_member(member, ""),
                replace_member(member, None),
            ):
                hook.answer = away
                made = api.post(CONFIGS, wanted, dryRun="All").expect(201)
                assert (made["apiVersion"], made["kind"], made["data"]) == ("v1", "ConfigMap", {"a": "b"})
        for member, value, why in (
            ("kind", "Bar", f'no kind "Bar" is registered for version "v1" {SCHEME}'),
            ("apiVersion", "v9", f'no kind "ConfigMap" is registered for version "v9" {SCHEME}'),
            ("apiVersion", "a.test/v9", f'no kind "ConfigMap" is registered for version "a.test/v9" {SCHEME}'),
            ("apiVersion", "a/b/c", "unexpected GroupVersion string: a/b/c"),
            (
                "apiVersion",
                1,
                "couldn't get version/kind; json parse error: json: cannot unmarshal number into Go struct "
                "field .apiVersion of type string",
            ),
        ):
            hook.answer = replace_member(member, value)
            refused = api.post(CONFIGS, wanted, dryRun="All").expect(500)
            assert refused["message"] == f"Internal error occurred: {why}"


@pytest.mark.rows("ADM-014")
def test_webhook_cannot_change_type_of_custom_objects(api: Client, hook: Webhook) -> None:
    widgets = serve(api)
    group = widgets.group
    unsuitable = f'is unstructured and is not suitable for converting to "{group}/v1"'
    with configured(api, MUTATING, webhook("m", hook.client_config(), rule(widgets))):
        for member, value, code, why in (
            ("apiVersion", f"{group}/v9", 500, f"request to convert CR from an invalid group/version: {group}/v9"),
            ("apiVersion", "v9", 500, f"/v9, Kind=Widget {unsuitable}"),
            ("apiVersion", "", 500, f"/, Kind=Widget {unsuitable}"),
            ("apiVersion", "a/b/c", 500, "Internal error occurred: unexpected GroupVersion string: a/b/c"),
            ("kind", "Bar", 422, f'Bar.{group} "a" is invalid: kind: Invalid value: "Bar": must be Widget'),
        ):
            hook.answer = replace_member(member, value)
            assert api.post(widgets.path(), widgets.make("a"), dryRun="All").expect(code)["message"] == why
        hook.answer = replace_member("kind", "")
        refused = api.post(widgets.path(), widgets.make("a"), dryRun="All").expect(500)
        assert "Object 'Kind' is missing in '{" in refused["message"]


@pytest.mark.rows("ADM-014", "VER-003")
def test_webhook_result_in_another_version_is_converted_back(api: Client, hook: Webhook) -> None:
    widgets = two_versions(api)
    to_second = {"op": "replace", "path": "/apiVersion", "value": f"{widgets.group}/v2"}
    hook.answer = patch(to_second, {"op": "add", "path": "/spec/color", "value": "green"})
    with configured(api, MUTATING, webhook("m", hook.client_config(), rule(widgets))):
        made = api.post(widgets.path(), widgets.make("a", color="red")).expect(201)
        hook.answer = patch(to_second, {"op": "add", "path": "/spec/color", "value": "blue"})
        changed = api.patch(widgets.path("a"), {"spec": {"size": 3}}).expect(200)
    assert (made["apiVersion"], made["spec"]) == (f"{widgets.group}/v1", {"color": "green", "note": "none"})
    assert changed["spec"] == {"color": "blue", "note": "none", "size": 3}
    assert api.get(widgets.path("a")).expect(200) == changed


@pytest.mark.rows("ADM-014", "VER-004")
def test_conversion_webhook_converts_admission_result_back(api: Client, hook: Webhook) -> None:
    tabs = serve_crontabs(api, hook)
    rules = {"operations": ["CREATE"], "apiGroups": [tabs.group], "apiVersions": ["v1"], "resources": ["crontabs"]}
    hook.answers["/convert"] = answer(crontab)
    hook.answers["/m"] = patch(
        {"op": "replace", "path": "/apiVersion", "value": f"{tabs.group}/v1beta1"},
        {"op": "add", "path": "/hostPort", "value": "there:5"},
        {"op": "remove", "path": "/host"},
        {"op": "remove", "path": "/port"},
    )
    with configured(api, MUTATING, webhook("m", hook.client_config("/m"), rules, matchPolicy="Exact")):
        made = tabs.create("v1", "a", host="here", port="1")
    assert (made["apiVersion"], made["host"], made["port"]) == (f"{tabs.group}/v1", "there", "5")


@pytest.mark.rows("ADM-014")
def test_webhook_cannot_change_type_of_a_scale(api: Client, hook: Webhook) -> None:
    widgets = serve(api, subresources={"scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.s"}})
    widgets.create("a", size=1)
    hook.answer = replace_member("apiVersion", f"{widgets.group}/v9")
    scale = {"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": {"name": "a"}, "spec": {"replicas": 2}}
    with configured(api, MUTATING, webhook("m", hook.client_config(), rule(widgets, "widgets/scale"))):
        refused = api.put(widgets.path("a/scale"), scale).expect(500)
        assert f'no kind "Scale" is registered for version "{widgets.group}/v9"' in refused["message"], refused
        assert api.get(widgets.path("a")).expect(200)["spec"]["size"] == 1
        hook.answer = patch({"op": "remove", "path": "/kind"})
        refused = api.put(widgets.path("a/scale"), scale, dryRun="All").expect(500)
        assert "Object 'Kind' is missing in" in refused["message"]
        hook.answer = replace_member("more", 1)
        assert api.put(widgets.path("a/scale"), scale, dryRun="All").expect(200)["spec"] == {"replicas": 2}


PLAIN = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "code": 500}
UNCONVERTED = "unable to convert unstructured object to autoscaling/v1, Kind=Scale: "
NO_SCALES = {
    "apiVersion": [
        ("autoscaling/v2", f'no kind "Scale" is registered for version "autoscaling/v2" {SCHEME}'),
        ("extensions/v1beta1", "converting (v1beta1.Scale) to (v1.Scale): unknown conversion"),
        ("", "Object 'apiVersion' is missing in 'unstructured object has no version'"),
        (None, "Object 'apiVersion' is missing in 'unstructured object has no version'"),
    ],
    "kind": [("Other", f'no kind "Other" is registered for version "autoscaling/v1" {SCHEME}')],
    "spec": [
        (1, f"{UNCONVERTED}cannot restore struct from: int64"),
        ({"replicas": "x"}, f"{UNCONVERTED}unrecognized type: int32"),
    ],
    "metadata": [({"labels": []}, f"{UNCONVERTED}cannot restore map from slice")],
}


# upstream: a Scale is converted to its Go type only after the webhook call
@pytest.mark.rows("ADM-014", "ADM-017")
def test_invalid_scale_from_webhook_is_a_500_without_reason(api: Client, hook: Webhook) -> None:
    widgets = serve(api, subresources={"scale": {"specReplicasPath": ".spec.size", "statusReplicasPath": ".status.s"}})
    widgets.create("a", size=1)
    with configured(api, MUTATING, webhook("m", hook.client_config(), rule(widgets, "widgets/scale"))):
        for member, rows in NO_SCALES.items():
            for value, told in rows:
                hook.answer = replace_member(member, value)
                refused = api.patch(widgets.path("a/scale"), {"spec": {"replicas": 2}}, dryRun="All").expect(500)
                assert refused == {**PLAIN, "message": told}, (member, value)
