"""Unusual definitions: a table of kube-apiserver's answers."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from apiext.conformance.support.cases import Case, case_name, read
from apiext.conformance.support.definitions import definition, establish, fresh_group
from apiext.conformance.support.http_client import DEFINITIONS, JSON_PATCH, MERGE, Client
from apiext.conformance.support.waiting import until

STRATEGIC = "application/strategic-merge-patch+json"
CASES = [Case(row) for row in read(Path(__file__).with_name("bad_schema_rows.yaml"))]
ROWS = [pytest.param(case, marks=pytest.mark.rows(*case.rows), id=case_name(case)) for case in CASES]
SCHEMA = '"schema": {"openAPIV3Schema": {"type": "object", "properties": {%s}}}'
VERSION = '{"name": "v1", "served": true, "storage": true, %s}'
SPEC = '{"group": "%s", "scope": "Namespaced", "names": {"plural": "widgets", "kind": "Widget"}, "versions": [%s]%s}'
KIND = '"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition"'
PLACES = ("spec.validation.openAPIV3Schema.", "spec.")


def body(case: Case) -> str:
    """Return the JSON of the definition in a row."""
    parts = [SCHEMA % (case.properties or ""), *([case.version] if case.version else [])]
    group = fresh_group()
    spec = SPEC % (group, VERSION % ", ".join(parts), f", {case.spec}" if case.spec else "")
    return f'{{{KIND}, "metadata": {{"name": "widgets.{group}"}}, "spec": {spec}}}'


def where(field: str) -> str:
    """Return the field of a cause in the form of the rows: without a prefix of PLACES."""
    return next((field.removeprefix(place) for place in PLACES if field.startswith(place)), field)


@pytest.mark.parametrize("case", ROWS)
def test_unusual_definitions(api: Client, case: Case) -> None:
    query = f"?dryRun=All{'&' + case.query if case.query else ''}"
    answer = api.request("POST", DEFINITIONS + query, body(case), {"Content-Type": "application/json"})
    assert answer.status == (case.code or (422 if case.causes else 201)), answer.text
    if case.causes:
        told: list[tuple[str, Any]] = [
            (where(cause["field"]), cause["message"]) for cause in answer.json["details"]["causes"]
        ]
        assert sorted(told) == sorted(case.causes.items())
    if case.says:
        assert answer.json["message"].endswith(case.says)
    assert answer.warnings == []


def numbers(bounds: dict[str, Any]) -> dict[str, Any]:
    """Return a version's schema with a bounded number."""
    return {"openAPIV3Schema": {"type": "object", "properties": {"a": {"type": "number", **bounds}}}}


@pytest.mark.rows("UPD-004", "DEC-001")
def test_large_bounds_stay_equal_in_later_writes(api: Client) -> None:
    bounds = {"maximum": 9223372036854775000, "minimum": -(2**60) - 1, "multipleOf": 2**63, "example": 2**64}
    made = establish(api, definition(fresh_group(), schema=numbers(bounds)))
    path = f"{DEFINITIONS}/{made['metadata']['name']}"
    for answer in (api.patch(path, {}, MERGE), api.patch(path, [], JSON_PATCH), api.put(path, made)):
        same = answer.expect(200)
        assert same["metadata"]["generation"] == 1
        assert same["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
    assert b"18446744073709552000" in api.get(path, {"Accept": "application/vnd.kubernetes.protobuf"}).raw


@pytest.mark.rows("SSA-005", "CRD-007")
@pytest.mark.parametrize("versions", [1, 2])
def test_owner_of_an_empty_list_of_columns(api: Client, versions: int) -> None:
    wanted = definition(fresh_group())
    (first,) = wanted["spec"]["versions"]
    wanted["spec"]["versions"] += [{**first, "name": "v2", "storage": False}][: versions - 1]
    path = f"{DEFINITIONS}/{establish(api, wanted)['metadata']['name']}"
    changed = [dict(version) for version in wanted["spec"]["versions"]]
    changed[-1]["additionalPrinterColumns"] = []
    found = api.patch(path, {"spec": {"versions": changed}}, MERGE, fieldManager="other").expect(200)
    owners = [
        it["manager"] for it in found["metadata"]["managedFields"] if "f:versions" in it["fieldsV1"].get("f:spec", {})
    ]
    # upstream: if all versions have equal columns, only those of the first version are kept; [] is equal to no columns
    assert (owners == ["other"]) == (versions == 1)
    assert found["metadata"]["generation"] == 1


def _later(written: dict[str, Any]) -> None:
    """Wait for the second after the last write.

    A further write would then change the time in managedFields.
    """
    owned = max(it["time"] for it in written["metadata"]["managedFields"])
    until(lambda: time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()) > owned, "a later second")


@pytest.mark.rows("WRI-006", "SSA-015")
def test_an_empty_list_in_place_of_a_missing_list_is_no_change(api: Client) -> None:
    made = establish(api, definition(fresh_group()))
    path = f"{DEFINITIONS}/{made['metadata']['name']}"
    _later(made)
    # managedFields are sorted by time: this write moves the writer's entry to the end, where later writes leave it
    made = api.patch(path, {"metadata": {"labels": {"a": "b"}}}, MERGE).expect(200)
    _later(made)
    of_schema = ("required", "enum", "allOf", "x-kubernetes-validations")
    for part in ("selectableFields", "additionalPrinterColumns", *(f"schema/openAPIV3Schema/{it}" for it in of_schema)):
        patch = [{"op": "add", "path": f"/spec/versions/0/{part}", "value": []}]
        found = api.patch(path, patch, JSON_PATCH).expect(200)
        assert found["metadata"] == made["metadata"], part


@pytest.mark.rows("WRI-013", "ERR-11")
@pytest.mark.parametrize(
    ("properties", "told"),
    [
        (
            {"a": {"type": "object", "zz": 1}, "b": {"type": "object", "yy": 1}},
            'strict decoding error: unknown field "spec.versions[0].schema.openAPIV3Schema.properties.yy", '
            'unknown field "spec.versions[0].schema.openAPIV3Schema.properties.zz"',
        ),
        (
            {"a": {"type": "array", "items": {"type": "array", "items": {"type": 1}}}},
            "json: cannot unmarshal number into Go struct field JSONSchemaProps.items.type of type string",
        ),
        (
            {"a": {"type": "object", "additionalProperties": {"maxLength": 1.5}}},
            "json: cannot unmarshal number 1.5 into Go struct field JSONSchemaProps.maxLength of type int64",
        ),
    ],
)
def test_a_strategic_merge_patch_that_makes_an_odd_schema(api: Client, properties: Any, told: str) -> None:
    # upstream: in the message of a type error, the path begins at the type with its own decoder
    # So the expected paths of type errors begin at JSONSchemaProps.
    wanted = definition(fresh_group())
    path = f"{DEFINITIONS}/{establish(api, wanted)['metadata']['name']}"
    (version,) = wanted["spec"]["versions"]
    patch = {"spec": {"versions": [{**version, "schema": {"openAPIV3Schema": {"properties": properties}}}]}}
    refused = api.patch(path, patch, STRATEGIC, fieldValidation="Strict").expect(422)["message"]
    assert refused.endswith(told)


@pytest.mark.rows("CEL-001")
def test_a_root_without_a_type_cannot_have_rules(api: Client) -> None:
    group = fresh_group()
    root: dict[str, Any] = {"properties": {"spec": {"type": "object"}}, "x-kubernetes-preserve-unknown-fields": True}
    body = definition(group, schema={"openAPIV3Schema": root})
    assert api.post(f"{DEFINITIONS}?dryRun=All", body).status == 201
    root["x-kubernetes-validations"] = [{"rule": "self.metadata.name != 'x'"}]
    answer = api.post(f"{DEFINITIONS}?dryRun=All", body)
    assert answer.status == 422, answer.text
    text = "failed to construct type information for x-kubernetes-validations rules: unable to convert structural"
    causes = answer.json["details"]["causes"]
    assert [cause["field"] for cause in causes] == ["spec.validation.openAPIV3Schema.x-kubernetes-validations"]
    assert text in causes[0]["message"]
