"""What errors of patches quote: the patched text as upstream prints it, or the patch; compared with a real server."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.definitions import Resource, serve
from tests.support.http_client import DEFINITIONS, Client

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


def told(api: Client, path: str, media_type: str, patch: bytes) -> tuple[str, str]:
    """Return what the error quotes, unescaped, and what it says of it."""
    headers = {"Content-Type": media_type}
    answer = api.request("PATCH", path, patch, headers=headers, dryRun="All", fieldValidation="Strict").expect(422)
    (cause,) = answer["details"]["causes"]
    assert answer["message"] == f' "" is invalid: patch: {cause["message"]}'
    assert (cause["field"], cause["reason"], "name" in answer["details"]) == ("patch", "FieldValueInvalid", False)
    found = re.fullmatch(r'Invalid value: ("(?:[^"\\]|\\.)*"): (.*)', cause["message"])
    assert found is not None, cause["message"]
    return json.loads(found[1]), found[2]


CASES: list[dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("patch_texts.yaml").read_text(encoding="utf-8"))


@pytest.mark.rows("WRI-007", "WRI-013", "KUB-003")
@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_a_patch_that_is_refused(api: Client, widgets: Resource, case: dict[str, Any]) -> None:
    path = widgets.path("a") if case["of"] == "object" else f"{DEFINITIONS}/widgets.{widgets.group}"
    quoted, text = told(api, path, f"application/{case['type']}+json", case["patch"].encode())
    assert [part for part in case["quotes"] if part not in quoted] == [], quoted
    assert text == case["says"]


@pytest.mark.rows("KUB-003")
def test_a_strategic_patch_may_claim_to_be_anything(api: Client, widgets: Resource) -> None:
    path = f"{DEFINITIONS}/widgets.{widgets.group}"
    claim = json.dumps({"apiVersion": "v9", "kind": "Foo"}).encode()
    patched = api.request("PATCH", path, claim, headers={"Content-Type": STRATEGIC}, dryRun="All").expect(200)
    assert (patched["apiVersion"], patched["kind"]) == ("apiextensions.k8s.io/v1", "CustomResourceDefinition")
