"""Decoding of bodies as with Go's types: defaults, unknown fields, errors."""

from __future__ import annotations

from typing import Any

import pytest

from apiext.conformance.support.cases import Case, case_name, load
from apiext.crd.decoding import decode_v1, decode_v1beta1
from apiext.crd.definition import from_document
from apiext.crd.empties import may_hold_empty, without_empty
from apiext.crd.warnings import warnings
from apiext.documents.encoding import encode
from tests.unit.crd.samples import BASE, changed, definition

pytestmark = pytest.mark.rows("CRD-002", "CRD-003", "CRD-004", "CRD-008", "CRD-009")


@pytest.mark.parametrize("case", load(__file__, "decoding"), ids=case_name)
def test_v1_bodies_are_decoded_as_in_go(case: Case) -> None:
    body = changed(BASE, case.set, case.remove)
    if case.fault:
        with pytest.raises(ValueError, match=r".") as raised:
            decode_v1(body)
        assert str(raised.value) == case.fault
        return
    decoded, unknown = decode_v1(body)
    assert unknown == (case.unknown or [])
    for path, value in (case.shows or {}).items():
        assert _value_at(decoded, path) == value, path


def _value_at(document: Any, path: str) -> Any:
    for step in path.replace("]", "").replace("[", ".").split("."):
        document = document[int(step)] if isinstance(document, list) else document.get(step, "absent")
    return document


def test_new_definition_has_defaults_of_upstream() -> None:
    decoded, _ = decode_v1(changed(BASE, None, ["status"]))
    assert decoded["spec"]["conversion"] == {"strategy": "None"}
    assert "preserveUnknownFields" not in decoded["spec"]
    assert decoded["status"] == {
        "conditions": None,
        "acceptedNames": {"plural": "", "kind": ""},
        "storedVersions": ["v1"],
    }
    assert list(decoded) == ["kind", "apiVersion", "metadata", "spec", "status"]


@pytest.mark.rows("B1-003")
def test_v1beta1_definition_gets_defaults() -> None:
    spec = {"group": "example.com", "version": "v1", "names": {"plural": "widgets", "kind": "Widget"}}
    webhook = {"strategy": "Webhook", "webhookClientConfig": {"service": {"name": "s", "namespace": "n"}}}
    decoded, unknown = decode_v1beta1({"spec": {**spec, "conversion": webhook}})
    assert unknown == []
    found = decoded["spec"]
    assert found["scope"] == "Namespaced"
    assert found["versions"] == [{"name": "v1", "served": True, "storage": True}]
    assert found["preserveUnknownFields"] is True
    assert found["conversion"]["conversionReviewVersions"] == ["v1beta1"]
    assert found["conversion"]["webhookClientConfig"]["service"]["port"] == 443
    assert found["names"]["listKind"] == "WidgetList"
    assert decoded["status"]["storedVersions"] == ["v1"]
    decoded, _ = decode_v1beta1({"spec": {"versions": [{"name": "v2"}]}})
    assert decoded["spec"]["version"] == "v2"
    assert decoded["status"]["storedVersions"] is None


def test_from_document_reads_fields_of_definition() -> None:
    found = from_document(
        definition(
            {
                "metadata.uid": "u",
                "metadata.deletionTimestamp": "2026-01-01T00:00:00Z",
                "spec.versions[0].subresources": {"status": {}},
                "spec.versions[0].selectableFields": [{"jsonPath": ".spec.a"}],
                "status.conditions": [{"type": "Established", "status": "True"}],
            }
        )
    )
    assert (found.name, found.uid, found.group, found.namespaced, found.deleting) == (
        "widgets.example.com",
        "u",
        "example.com",
        True,
        True,
    )
    assert found.storage_version == "v1"
    assert found.versions[0].status
    assert found.versions[0].scale is None
    assert found.versions[0].selectable == (".spec.a",)
    assert found.is_true("Established")
    assert found.webhook is None
    empty = from_document({})
    assert (empty.storage_version, empty.versions, empty.accepted.kind) == ("", (), "")


@pytest.mark.rows("UPD-009")
def test_new_unrecognized_formats_cause_warnings() -> None:
    def formats(*names: str) -> dict[str, Any]:
        properties = {name: {"type": "string", "format": name} for name in names}
        return definition(
            {"spec.versions[0].schema": {"openAPIV3Schema": {"type": "object", "properties": properties}}}
        )

    assert sorted(warnings(formats("foo", "bar", "date"), None)) == [
        'unrecognized format "bar"',
        'unrecognized format "foo"',
    ]
    assert warnings(formats("foo", "bar"), formats("foo")) == ['unrecognized format "bar"']


def test_empty_schema_lists_and_maps_are_not_stored() -> None:
    inner = {"type": "object", "properties": {"required": {"default": {"properties": {}, "enum": []}}, "enum": {}}}
    schema = {
        "type": "object",
        "required": [],
        "properties": {"a": inner},
        "allOf": [{"anyOf": []}],
        "not": {"enum": []},
    }
    body = changed(BASE, {"spec.versions[0].schema.openAPIV3Schema": schema}, None)
    decoded, _ = decode_v1(body)
    assert decoded["spec"]["versions"][0]["schema"]["openAPIV3Schema"] == schema
    assert may_hold_empty(encode(decoded))
    stored = without_empty(decoded)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    assert stored == {"type": "object", "properties": {"a": inner}, "allOf": [{}], "not": {}}
