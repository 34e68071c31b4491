"""Texts that errors of patches quote.

A text is the patched object in the form of kube-apiserver, or the patch itself.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from apiext.conformance.support.cases import read as read_yaml
from apiext.conformance.support.definitions import Resource, serve
from apiext.conformance.support.http_client import DEFINITIONS, Client

STRATEGIC = "application/strategic-merge-patch+json"
SCHEMA = {
    "type": "object",
    "properties": {
        "z": {"type": "string"},
        "l": {"type": "array", "items": {"type": "object", "properties": {"b": {"type": "string"}}}},
    },
}


@pytest.fixture
def widgets(api: Client) -> Resource:
    found = serve(api, schema={"openAPIV3Schema": SCHEMA})
    api.post(found.path(), {**found.make("a"), "z": "<&>", "l": [{"b": "1"}]}).expect(201)
    return found


def told(api: Client, path: str, media_type: str, patch: bytes, validation: str = "Strict") -> tuple[str, str]:
    """Send a patch; return (unescaped text that the error quotes, error text)."""
    headers = {"Content-Type": media_type}
    answer = api.request("PATCH", path, patch, headers=headers, dryRun="All", fieldValidation=validation).expect(422)
    (cause,) = answer["details"]["causes"]
    assert answer["message"] == f' "" is invalid: patch: {cause["message"]}'
    assert (cause["field"], cause["reason"], "name" in answer["details"]) == ("patch", "FieldValueInvalid", False)
    found = re.fullmatch(r'Invalid value: ("(?:[^"\\]|\\.)*"): (.*)', cause["message"])
    assert found is not None, cause["message"]
    return json.loads(found[1]), found[2]


CASES: list[dict[str, Any]] = read_yaml(Path(__file__).with_name("patch_texts.yaml"))


@pytest.mark.rows("WRI-007", "WRI-013", "KUB-003")
@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_errors_of_patches_quote_the_object_or_the_patch(api: Client, widgets: Resource, case: dict[str, Any]) -> None:
    path = widgets.path("a") if case["of"] == "object" else f"{DEFINITIONS}/widgets.{widgets.group}"
    validation = case.get("validation", "Strict")
    quoted, text = told(api, path, f"application/{case['type']}+json", case["patch"].encode(), validation)
    assert [part for part in case["quotes"] if part not in quoted] == [], quoted
    assert text == case["says"]


@pytest.mark.rows("WRI-007")
@pytest.mark.parametrize(
    ("of", "patch"), [("object", '{"z": 1e400, "z": "<&>"}'), ("definition", '{"zz": 1e400, "spec": {"yy": [-1e400]}}')]
)
def test_dropped_fields_may_have_numbers_beyond_floats(api: Client, widgets: Resource, of: str, patch: str) -> None:
    # upstream: the whole text is decoded before any field is validated
    # The decoder drops the fields with these numbers: a duplicate ``z`` and unknown fields. So the numbers cause no
    # error, and the patches change nothing.
    path = widgets.path("a") if of == "object" else f"{DEFINITIONS}/widgets.{widgets.group}"
    headers = {"Content-Type": "application/merge-patch+json"}
    before = api.request("GET", path).expect(200)["metadata"]
    patched = api.request("PATCH", path, patch, headers=headers, fieldValidation="Ignore").expect(200)
    assert patched["metadata"]["resourceVersion"] == before["resourceVersion"]


@pytest.mark.rows("WRI-007", "WRI-013")
def test_unknown_fields_of_a_scale_are_reported_in_sorted_order(api: Client) -> None:
    scale = {"scale": {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"}}
    widgets = serve(api, subresources=scale)
    widgets.create("a")
    patch = b'{"zz": 1, "spec": {"replicas": 4, "q": 1}}'
    quoted, text = told(api, widgets.path("a") + "/scale", "application/merge-patch+json", patch)
    assert '"spec":{"q":1,"replicas":4}' in quoted
    assert text == 'strict decoding error: unknown field "spec.q", unknown field "zz"'


NO_OBJECT = (
    "couldn't get version/kind; json parse error: json: cannot unmarshal array into Go value of type "
    'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; Kind string "json:\\"kind,omitempty\\"" }'
)


@pytest.mark.rows("WRI-007")
@pytest.mark.parametrize("of", ["object", "scale", "definition", "definition/status", "namespace", "namespace/status"])
def test_the_error_of_a_patch_that_results_in_a_list_quotes_the_list(api: Client, of: str) -> None:
    scale = {"scale": {"specReplicasPath": ".spec.n", "statusReplicasPath": ".status.n"}}
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": {"n": {"type": "integer"}}}}}
    schema["properties"]["status"] = schema["properties"]["spec"]  # type: ignore[index]
    widgets = serve(api, schema={"openAPIV3Schema": schema}, subresources=scale)
    api.post(widgets.path(), widgets.make("a") | {"spec": {"n": 1}}).expect(201)
    kind, _, subresource = of.partition("/")
    place = {
        "object": widgets.path("a"),
        "scale": f"{widgets.path('a')}/scale",
        "definition": f"{DEFINITIONS}/widgets.{widgets.group}",
        "namespace": "/api/v1/namespaces/default",
    }[kind] + (f"/{subresource}" if subresource else "")
    to_list = '[{"op": "replace", "path": "", "value": %s}%s]'
    rows = [
        ("json-patch", "Warn", to_list % ("[]", ""), "[]"),
        ("json-patch", "Strict", to_list % ('[1.50, {"b": 1, "a": null}]', ""), '[1.50,{"b":1,"a":null}]'),
        ("json-patch", "Ignore", to_list % ("[1, 2]", ', {"op": "copy", "from": "/0", "path": "/-"}'), "[1,2,1]"),
        ("json-patch", "Warn", to_list % ('[{"b": 1, "a": 2}]', ', {"op": "test", "path": "/0/a", "value": 2}'),
         '[{"a":2,"b":1}]'),
        ("merge-patch", "Ignore", "[]", "[]"),
        ("merge-patch", "Ignore", "[1e400]", "[1e400]"),
        ("merge-patch", "Ignore", '[null, 1.50, {"b": null, "a": [{"d": 1, "c": null}]}]',
         '[null,1.50,{"a":[{"d":1}]}]'),
    ]  # fmt: skip
    for kind, validation, patch, quoted in rows:
        headers = {"Content-Type": f"application/{kind}+json"}
        answer = api.request("PATCH", f"{place}?dryRun=All&fieldValidation={validation}", patch, headers).expect(422)
        (cause,) = answer["details"]["causes"]
        assert cause["message"] == f"Invalid value: {json.dumps(quoted)}: {NO_OBJECT}"
        assert (answer["message"], cause["field"]) == (f' "" is invalid: patch: {cause["message"]}', "patch")


@pytest.mark.rows("KUB-003")
def test_a_strategic_patch_does_not_change_api_version_and_kind(api: Client, widgets: Resource) -> None:
    path = f"{DEFINITIONS}/widgets.{widgets.group}"
    claim = json.dumps({"apiVersion": "v9", "kind": "Foo"}).encode()
    patched = api.request("PATCH", path, claim, headers={"Content-Type": STRATEGIC}, dryRun="All").expect(200)
    assert (patched["apiVersion"], patched["kind"]) == ("apiextensions.k8s.io/v1", "CustomResourceDefinition")
