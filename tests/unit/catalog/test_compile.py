"""Compile a definition into a ServedResource."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from apiext.catalog import compile as compiling
from apiext.catalog.compile import compile_definition, identity
from apiext.catalog.converted import NeedsConversion
from apiext.catalog.served import ALL_VERBS, TERMINATING_VERBS
from apiext.catalog.stored import WrongVersion
from apiext.conformance.support.cases import Case, case_name, load
from apiext.meta.names import version_priority
from tests.unit.catalog.samples import CLOSED, HOOK, OPEN, SCALE, definition, resource, version, widget


@pytest.mark.rows("SRV-002", "DIS-105", "DEL-004")
def test_definition_compiles_to_a_served_resource() -> None:
    served = resource(
        version("v1", CLOSED, subresources={"status": {}, "scale": SCALE}), version("v2", OPEN, served=False)
    )
    assert (served.group, served.resource, served.namespaced) == ("example.com", "widgets", True)
    assert (served.storage_version, list(served.versions), list(served.all_versions)) == ("v1", ["v1"], ["v1", "v2"])
    assert served.definition.established
    one = served.versions["v1"]
    assert (
        one.names.kind,
        one.names.list_kind,
        one.published.singular,
        one.published.short_names,
        one.published.categories,
    ) == (
        "Widget",
        "WidgetList",
        "widget",
        ("w",),
        ("all",),
    )
    assert list(one.endpoints) == ["", "status", "scale"]
    assert (one.published.verbs, one.published.deprecation_warning, one.model.open_api) == (ALL_VERBS, "", CLOSED)
    assert list(one.published.selectable) == ["metadata.name", "metadata.namespace"]


@pytest.mark.rows("DIS-105")
def test_storage_version_hash_equals_upstream() -> None:
    document = definition(version("v1", OPEN))
    document["spec"]["group"] = "uniq0000.example.com"  # as in the recording of the hash
    assert compile_definition(document).versions["v1"].published.storage_version_hash == "+JE5sZCPVl4="


@pytest.mark.rows("DEL-004")
def test_terminating_definition_publishes_fewer_verbs() -> None:
    document = definition()
    document["status"]["conditions"].append({"type": "Terminating", "status": "True"})
    served = compile_definition(document)
    assert served.definition.terminating
    assert served.versions["v1"].published.verbs == TERMINATING_VERBS


@pytest.mark.rows("SRV-015")
def test_identity_follows_spec_names_and_uid_only() -> None:
    first = definition()
    assert identity(first) == identity(definition())
    for path, value in (
        ("metadata.resourceVersion", "9"),
        ("status.storedVersions", ["v9"]),
        ("status.conditions", []),
    ):
        assert identity(_with(first, path, value)) == identity(first)
    for path, value in (("metadata.uid", "e"), ("spec.scope", "Cluster"), ("status.acceptedNames", {"kind": "X"})):
        assert identity(_with(first, path, value)) != identity(first)


def _with(document: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    part, name = path.split(".")
    return {**document, part: {**document[part], name: value}}


@pytest.mark.rows("SRV-016")
@pytest.mark.parametrize("case", load(__file__, "deprecation"), ids=case_name)
def test_deprecation_warnings(case: Case) -> None:
    versions = [
        version(name, OPEN, served="served" in marks, deprecated="deprecated" in marks)
        for name, marks in case.versions.items()
    ]
    versions[0] |= {"deprecationWarning": case.own} if case.own else {}
    served = resource(*versions)
    found = {
        name: one.published.deprecation_warning
        for name, one in served.all_versions.items()
        if one.published.deprecation_warning
    }
    assert found == (case.warns or {})


@pytest.mark.rows("SRV-016")
def test_finding_replacement_versions_takes_linear_time(monkeypatch: pytest.MonkeyPatch) -> None:
    count, looked_at = 300, list[str]()

    def looked(name: str) -> tuple[int, int, int, str]:
        looked_at.append(name)
        return version_priority(name)

    monkeypatch.setattr(compiling, "version_priority", looked)
    document = definition(*(version(f"v{number}", OPEN, deprecated=number < count / 2) for number in range(1, count)))
    served = compile_definition(document)
    assert len(looked_at) <= 4 * count, "all are not compared for each"
    text = f"example.com/v1 Widget is deprecated; use example.com/v{count - 1} Widget"
    assert served.all_versions["v1"].published.deprecation_warning == text


@pytest.mark.rows("MET-001", "PRU-007", "PRU-008", "NUL-005")
def test_a_body_is_coerced_pruned_and_defaulted() -> None:
    one = resource().versions["v1"]
    body = widget(metadata={"extra": 1, "creationTimestamp": None}, spec={"zz": 1}, zz=2)
    document, unknown = one.model.normalize(body)
    assert unknown == ["metadata.extra", "spec.zz", "zz"]
    assert document["spec"] == {"color": "red"}
    assert "creationTimestamp" not in document["metadata"]
    with pytest.raises(ValueError, match=r"ObjectMeta.labels of type map\[string\]string"):
        one.model.normalize(widget(metadata={"labels": "x"}))


def test_body_of_another_kind_is_not_pruned() -> None:
    document, unknown = resource().versions["v1"].model.normalize({**widget(zz=1), "kind": "Gadget"})
    assert (document["zz"], unknown) == (1, [])


@pytest.mark.rows("SRV-009", "VAL-001")
def test_validation_checks_the_scale_fields() -> None:
    one = resource().versions["v1"]
    errors = one.validation.validate(widget(spec={"replicas": -1, "color": 5}, status={"selector": {"a": "b"}}), None)
    assert sorted(map(str, errors)) == [
        ".spec.replicas: Invalid value: -1: should be a non-negative integer",
        '.status.selector: Invalid value: "": .status.selector accessor error: map[a:b] is of the type'
        " map[string]interface {}, expected string",
        'spec.color: Invalid value: "integer": spec.color in body must be of type string: "integer"',
    ]
    errors = one.validation.validate_status(widget(spec={"replicas": -1}, status={"replicas": 3000000000}), widget())
    assert list(map(str, errors)) == [
        ".status.replicas: Invalid value: 3000000000: should be less than or equal to 2147483647"
    ]


@pytest.mark.rows("VER-002", "VER-003", "SRV-014", "NUL-005")
def test_none_conversion_changes_api_version_and_schema() -> None:
    served = resource(
        version("v1", CLOSED), version("v2", {"type": "object", "properties": {"status": {"type": "object"}}})
    )
    raw = orjson.dumps(widget(spec={"zz": 1}, status={"a": 1}))
    assert orjson.loads(served.versions["v1"].codec.view(raw, 4))["spec"] == {"color": "red"}
    second = orjson.loads(served.versions["v2"].codec.view(raw, 4))
    assert (second["apiVersion"], "spec" in second, second["status"]) == ("example.com/v2", False, {})
    back = served.versions["v2"].codec.encode({**second, "spec": {"replicas": 1}})
    assert orjson.loads(back)["apiVersion"] == "example.com/v1"
    assert orjson.loads(back)["spec"] == {"replicas": 1}


@pytest.mark.rows("MET-002")
def test_invalid_stored_metadata_is_repaired() -> None:
    one = resource().versions["v1"]
    shown = one.codec.decode(
        b'{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"labels":5,"name":"a","x":1}}', 3
    )
    assert shown["metadata"] == {"name": "a", "generation": 1, "resourceVersion": "3"}
    with pytest.raises(ValueError, match=r"not an object"):
        one.codec.view(b"[1]", 1)


@pytest.mark.rows("VER-011")
def test_stored_object_of_unknown_version_is_an_error() -> None:
    one = resource().versions["v1"]
    raw = orjson.dumps({**widget(), "apiVersion": "example.com/v0"})
    with pytest.raises(WrongVersion, match=r"request to convert CR from an invalid group/version: example.com/v0"):
        one.codec.view(raw, 1)


@pytest.mark.rows("VER-004", "VER-014")
def test_read_in_another_version_needs_webhook_conversion() -> None:
    served = resource(version("v1", CLOSED), version("v2", OPEN), conversion=HOOK)
    assert served.definition.conversion == HOOK["webhook"]
    raw = orjson.dumps(widget(spec={"zz": 1}))
    with pytest.raises(NeedsConversion) as needed:
        served.versions["v2"].codec.view(raw, 6)
    assert needed.value.api_version == "example.com/v2"
    assert needed.value.document["spec"] == {"color": "red"}
    assert "resourceVersion" not in needed.value.document["metadata"]
    needed.value.keep({**needed.value.document, "apiVersion": "example.com/v2", "spec": {"size": 2}}, b"")
    for revision in (6, 7):
        shown = orjson.loads(served.versions["v2"].codec.view(raw, revision))
        assert (shown["apiVersion"], shown["spec"]) == ("example.com/v2", {"size": 2})
        assert shown["metadata"]["resourceVersion"] == str(revision)
        assert served.versions["v2"].codec.decode(raw, revision) == shown
    converted = served.versions["v1"].shaping.accept({**widget(spec={"zz": 1}), "apiVersion": "example.com/v2"})
    assert (converted["apiVersion"], converted["spec"]) == ("example.com/v1", {})


@pytest.mark.rows("VER-002", "VER-004")
def test_written_objects_are_converted_by_the_webhook() -> None:
    served = resource(version("v1", CLOSED), version("v2", OPEN), conversion=HOOK)
    document = {**widget(spec={"color": "red"}), "apiVersion": "example.com/v2"}
    with pytest.raises(NeedsConversion) as needed:
        served.versions["v2"].codec.encode(document)
    assert (needed.value.api_version, needed.value.document["apiVersion"]) == ("example.com/v1", "example.com/v2")
    needed.value.keep(
        {**needed.value.document, "apiVersion": "example.com/v1", "spec": {"color": "blue", "zz": 1}}, b""
    )
    stored = orjson.loads(served.versions["v2"].codec.encode(document))
    assert (stored["apiVersion"], stored["spec"]) == ("example.com/v1", {"color": "blue"})
    as_is = served.versions["v2"].codec.encode_as_is
    assert as_is is not None
    assert orjson.loads(as_is(document))["apiVersion"] == "example.com/v2"
    assert served.versions["v1"].codec.converts
    assert not resource(version("v1", CLOSED), conversion=HOOK).versions["v1"].codec.converts


def test_a_dropped_status_with_a_default_is_not_spliced() -> None:
    schema = {"type": "object", "properties": {"status": {"type": "object", "default": {}}}}
    one = resource(version("v1", schema, subresources={"status": {}})).versions["v1"]
    document, _ = one.model.normalize(widget())
    raw = one.codec.encode(one.endpoints[""].prepare(document, None))
    assert b"status" not in raw
    assert orjson.loads(one.codec.view(raw, 2))["status"] == {}


@pytest.mark.rows("B1-007", "PRU-006")
def test_preserve_unknown_fields_prevents_pruning() -> None:
    one = resource(version("v1", CLOSED), preserveUnknownFields=True).versions["v1"]
    document, unknown = one.model.normalize(widget(spec={"zz": 1}))
    assert (document["spec"]["zz"], unknown) == (1, [])
    assert orjson.loads(one.codec.view(orjson.dumps(widget(spec={"zz": 1})), 1))["spec"]["zz"] == 1


@pytest.mark.rows("VER-015")
def test_version_is_cold_until_stored_versions_are_prepared() -> None:
    document = definition(version("v1", CLOSED), version("v2", CLOSED), version("v3", CLOSED, served=False))
    document["spec"]["versions"][1]["storage"], document["spec"]["versions"][0]["storage"] = True, False
    document.setdefault("status", {})["storedVersions"] = ["v1", "v2"]
    found = compile_definition(document)
    first, second = found.all_versions["v1"], found.all_versions["v2"]
    assert first.work.cold()
    assert second.work.cold()
    second.work.prepare()
    assert not second.work.cold()
    assert not first.work.cold(), "objects in v1 may still be there, and are read by its schema"
    assert found.all_versions["v3"].work.cold(), "nothing is stored in it"
