"""Definitions and namespaces as served resources."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from apiext.catalog.builtin.resources import builtin_resources
from apiext.catalog.served import Catalog, ServedVersion
from apiext.conformance.support.cases import Case, case_name, load
from apiext.crd.encoding import to_storage
from tests.unit.catalog.samples import definition

BUILTIN = {served.resource: served for served in builtin_resources()}
CRDS, NAMESPACES = BUILTIN["customresourcedefinitions"], BUILTIN["namespaces"]


def _v1(resource: Any) -> ServedVersion:
    found: ServedVersion = resource.versions["v1"]
    return found


@pytest.mark.rows("CRD-001", "NSP-001", "B1-002", "DIS-12")
def test_served_endpoints() -> None:
    catalog = Catalog()
    for served in (CRDS, NAMESPACES):
        catalog = catalog.with_resource(served)
    assert catalog.groups() == {"": ["v1"], "apiextensions.k8s.io": ["v1", "v1beta1"]}
    crd, namespace = _v1(CRDS), _v1(NAMESPACES)
    assert (
        crd.names.kind,
        crd.names.list_kind,
        crd.published.singular,
        crd.published.short_names,
        crd.published.categories,
        crd.names.namespaced,
    ) == (
        "CustomResourceDefinition",
        "CustomResourceDefinitionList",
        "customresourcedefinition",
        ("crd", "crds"),
        ("api-extensions",),
        False,
    )
    assert list(crd.endpoints) == ["", "status"]
    assert list(namespace.endpoints) == ["", "status", "finalize"]
    assert namespace.published.short_names == ("ns",)
    assert "deletecollection" not in namespace.published.verbs
    assert all(
        version.model.typed and version.model.open_api
        for served in BUILTIN.values()
        for version in served.versions.values()
    )
    assert CRDS.versions["v1beta1"].published.deprecation_warning.startswith("apiextensions.k8s.io/v1beta1 Custom")
    assert list(builtin_resources(v1beta1=False)[0].versions) == ["v1"]


@pytest.mark.rows("UPD-011", "UPD-012", "DIS-20")
def test_columns_and_selectors_of_definitions() -> None:
    crd = _v1(CRDS)
    document = {"metadata": {"name": "a", "creationTimestamp": "2026-01-01T00:00:00Z"}}
    assert [(column.name, column.type, column.priority, column.cell(document)) for column in crd.model.columns] == [
        ("Name", "string", 0, "a"),
        ("Scope", "string", 0, ""),
        ("Versions", "string", 0, ""),
        ("Created At", "date", 0, "2026-01-01T00:00:00Z"),
        ("Group", "string", 1, ""),
        ("Kind", "string", 1, ""),
        ("ShortNames", "string", 1, ""),
        ("Established", "boolean", 1, False),
    ]
    assert {name: get(document) for name, get in crd.published.selectable.items()} == {
        "metadata.name": "a",
        "metadata.namespace": "",
    }


@pytest.mark.rows("ETC-003", "CRD-007")
def test_definitions_are_stored_as_v1beta1() -> None:
    crd = _v1(CRDS)
    document = definition()
    raw = crd.codec.encode({**document, "metadata": {**document["metadata"], "resourceVersion": "4"}})
    assert raw.endswith(b"}\n")
    assert orjson.loads(raw) == {**to_storage(document), "metadata": document["metadata"]}
    again = builtin_resources()[0].versions["v1"]
    assert crd.codec.view(raw, 9) == again.codec.view(raw, 9), "what it wrote and what others wrote look the same"
    assert crd.codec.decode(raw, 9) == {**document, "metadata": {**document["metadata"], "resourceVersion": "9"}}
    old = CRDS.versions["v1beta1"]
    beta = old.codec.decode(raw, 9)
    assert beta["apiVersion"] == "apiextensions.k8s.io/v1beta1"
    assert beta["spec"]["version"] == "v1"
    assert old.codec.encode(beta) == raw
    assert old.codec.view(raw, 9) == builtin_resources()[0].versions["v1beta1"].codec.view(raw, 9)


@pytest.mark.rows("UPD-005", "UPD-006", "UPD-007", "UPD-008")
@pytest.mark.parametrize("case", load(__file__, "definition_writes"), ids=case_name)
def test_definition_writes_set_generation_and_status(case: Case) -> None:
    endpoint = _v1(CRDS).endpoints[case.endpoint or ""]
    old = _changed(definition(), case.old) if case.old is not None else None
    prepared = endpoint.prepare(_changed(definition(), case.new), old)
    shown = {
        "generation": prepared["metadata"]["generation"],
        "stored": prepared["status"]["storedVersions"],
        "conditions": [item["type"] for item in prepared["status"]["conditions"] or ()],
        "labels": prepared["metadata"].get("labels"),
        "scope": prepared["spec"]["scope"],
    }
    assert shown == case.then


def _changed(document: dict[str, Any], parts: dict[str, Any] | None) -> dict[str, Any]:
    for part, values in (parts or {}).items():
        document[part] = {**document[part], **values}
    return document


@pytest.mark.rows("NSP-002")
def test_new_namespace_gets_label_finalizer_and_phase() -> None:
    namespace = _v1(NAMESPACES)
    document, unknown = namespace.model.normalize({"metadata": {"name": "a", "generation": 4}, "spec": {"zz": 1}})
    assert unknown == ["spec.zz"]
    assert document["status"] == {"phase": "Active"}, "who judges the create sees it"
    prepared = namespace.endpoints[""].prepare(document, None)
    assert prepared == {
        "metadata": {"name": "a", "generation": 4, "labels": {"kubernetes.io/metadata.name": "a"}},
        "spec": {"finalizers": ["kubernetes"]},
        "status": {"phase": "Active"},
    }
    assert namespace.validation.validate(prepared, None) == []
    own = namespace.endpoints[""].prepare(
        {"metadata": {"name": "a"}, "spec": {"finalizers": ["x.com/y"]}, "status": {"phase": "Terminating"}}, None
    )
    assert own["spec"] == {"finalizers": ["x.com/y", "kubernetes"]}


@pytest.mark.rows("NSP-001", "NSP-002")
def test_namespace_endpoints_write_only_their_fields() -> None:
    namespace = _v1(NAMESPACES)
    old = {"metadata": {"name": "a"}, "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}}
    new: dict[str, Any] = {"metadata": {"name": "a"}, "spec": {"finalizers": []}, "status": {"phase": "Terminating"}}
    main, status, finalize = (namespace.endpoints[name].prepare(dict(new), old) for name in ("", "status", "finalize"))
    assert (main["spec"], main["status"]) == (old["spec"], old["status"])
    assert (status["spec"], status["status"]) == (old["spec"], new["status"])
    assert (finalize["spec"], finalize["status"]) == (new["spec"], old["status"])


@pytest.mark.rows("NSP-001", "NSP-005")
def test_namespace_validation_errors() -> None:
    namespace = _v1(NAMESPACES)
    bad = {"metadata": {"name": "a"}, "spec": {"finalizers": ["foo", "orphan", "a.b/c"]}}
    assert [str(error) for error in namespace.validation.validate(bad, None)] == [
        'spec.finalizers: Invalid value: "foo": name is neither a standard finalizer name nor is it fully qualified'
    ]
    assert namespace.validation.names("a.b") != []
    texts = [
        str(error)
        for metadata, phase in (({}, "Active"), ({}, "Terminating"), ({"deletionTimestamp": "t"}, "Active"))
        for error in namespace.validation.validate_status({"metadata": metadata, "status": {"phase": phase}}, None)
    ]
    assert texts == [
        "status.Phase: Invalid value: \"Terminating\": may only be 'Active' if `deletionTimestamp` is empty",
        "status.Phase: Invalid value: \"Active\": may only be 'Terminating' if `deletionTimestamp` is not empty",
    ]


@pytest.mark.rows("NSP-001")
def test_namespaces_are_stored_as_they_are_shown() -> None:
    namespace = _v1(NAMESPACES)
    document = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"labels": {"kubernetes.io/metadata.name": "a"}, "name": "a", "uid": "u"},
        "spec": {"finalizers": ["kubernetes"]},
        "status": {"phase": "Active"},
    }
    raw = namespace.codec.encode(document)
    assert orjson.loads(raw) == document
    fresh = builtin_resources()[1].versions["v1"]
    assert namespace.codec.view(raw, 3) == fresh.codec.view(raw, 3) == fresh.codec.view(raw, 3)
    assert [column.cell(document) for column in namespace.model.columns] == ["a", "Active", "0001-01-01T00:00:00Z"]
    assert namespace.published.selectable["status.phase"](document) == "Active"
