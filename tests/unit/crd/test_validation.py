"""The validation rules of definitions, each with its message."""

from __future__ import annotations

from typing import Any

import pytest

from apiext.conformance.support.cases import Case, case_name, load
from apiext.crd import validation
from apiext.crd.decoding import decode_v1beta1
from apiext.crd.definition import ESTABLISHED
from apiext.crd.rules_of_conversion import address_errors
from apiext.crd.rules_of_parts import stored_version_errors
from apiext.meta import limits
from tests.unit.crd.samples import BASE, changed, definition, expected, texts

pytestmark = pytest.mark.rows(
    *(f"CRD-{number:03d}" for number in range(20, 41)), "UPD-001", "UPD-002", "UPD-003", "VER-014", "DIS-20"
)


@pytest.mark.parametrize("case", load(__file__, "create"), ids=case_name)
def test_created_definition_is_validated(case: Case) -> None:
    new = definition(case.set, case.remove)
    assert texts(validation.validate(new, None)) == expected(case.errors)


@pytest.mark.parametrize("case", load(__file__, "update"), ids=case_name)
def test_updated_definition_is_validated(case: Case) -> None:
    old = definition(case.old)
    if case.established:
        old["status"]["conditions"] = [{"type": ESTABLISHED, "status": "True"}]
    new = definition({**(case.old or {}), **(case.set or {})}, case.remove)
    assert texts(validation.validate(new, old)) == expected(case.errors)


@pytest.mark.parametrize("case", load(__file__, "v1beta1"), ids=case_name)
@pytest.mark.rows("B1-002", "B1-003", "B1-004")
def test_created_v1beta1_definition_is_validated(case: Case) -> None:
    body = changed(BASE, {"apiVersion": "apiextensions.k8s.io/v1beta1"}, ["spec.versions[0].schema"])
    new, _ = decode_v1beta1(changed(body, case.set, case.remove))
    assert texts(validation.validate_v1beta1(new, None)) == expected(case.errors)


@pytest.mark.rows("STR-011")
@pytest.mark.parametrize(
    ("extra", "error"),
    [
        ({"properties": {"d": {"type": "string", "default": 5}}}, "properties[d].default"),
        ({"x-kubernetes-validations": [{"rule": "self.nothing"}]}, "x-kubernetes-validations[0].rule"),
    ],
    ids=["default", "rule"],
)
def test_structural_errors_are_sorted_and_suppress_others(extra: dict[str, Any], error: str) -> None:
    untyped = {name: {"description": "x"} for name in ("z", "a")}
    root = "spec.validation.openAPIV3Schema"
    for fields, paths in (({}, [error]), (untyped, ["properties[a].type", "properties[z].type"])):
        schema = {"type": "object", **extra, "properties": {**extra.get("properties", {}), **fields}}
        found = validation.validate(definition({"spec.versions[0].schema": {"openAPIV3Schema": schema}}), None)
        assert [str(it).partition(": ")[0] for it in found] == [f"{root}.{path}" for path in paths]


def test_status_update_validates_only_accepted_names() -> None:
    old = definition()
    new = definition({"status": {"acceptedNames": {"plural": "A B", "kind": "x"}, "storedVersions": ["v9"]}})
    assert texts(validation.validate_status(new, old)) == expected(
        ['status.acceptedNames.plural: Invalid value: "A B": <dns1035>']
    )


def test_errors_of_empty_path_segments_are_bounded() -> None:
    service = {"name": "s", "namespace": "n", "path": "/" * 20_000}
    found = list(address_errors({"service": service}, "client"))
    shown = f'client.service.path: Invalid value: "{service["path"]}"'
    assert [str(error) for error in found[:2]] == [f"{shown}: segment[{index}] may not be empty" for index in (0, 1)]
    assert sum(len(error.body) for error in found) < 2 * limits.MAX_FIELD_ERROR_BYTES
    found = list(address_errors({"service": {**service, "path": "/" * 3_000}}, "client"))
    assert len(found) < limits.MAX_FIELD_ERRORS
    assert len(list(address_errors({"service": {**service, "path": "/" * 300}}, "client"))) == 299


def test_errors_of_stored_versions_are_bounded() -> None:
    versions = [{"name": f"v{number}", "storage": True} for number in range(3_000)]
    stored = [f"x{number}" for number in range(3_000)]
    found = [str(error) for error in stored_version_errors(stored, versions, "s")]
    assert found[0].endswith(": must have the storage version v0")
    assert len(found[-1]) < 500
    assert sum(len(error) for error in found if "must have" in error) < 2 * limits.MAX_FIELD_ERROR_BYTES
    assert (
        sum("must have" in str(error) for error in stored_version_errors(["x"], versions, "s"))
        == limits.MAX_FIELD_ERRORS + 1
    )


@pytest.mark.rows("B1-004")
def test_v1beta1_update_skips_v1_only_rules() -> None:
    body = changed(BASE, {"apiVersion": "apiextensions.k8s.io/v1beta1"}, ["spec.versions[0].schema"])
    shape = {"validation": {"openAPIV3Schema": {"type": "object"}}, "preserveUnknownFields": False}
    old, _ = decode_v1beta1({**body, "spec": {**body["spec"], **shape}})
    new, _ = decode_v1beta1({**body, "spec": {**body["spec"], "preserveUnknownFields": True}})
    assert texts(validation.validate_v1beta1(new, old)) == []
    items = {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "object"}}
    loose = {"type": "object", "properties": {"a": {"type": "strin"}, "s": items}}
    wrong = {**old["spec"], "validation": {"openAPIV3Schema": loose}, "version": "v2"}
    told = 'spec.version: Invalid value: "v2": must match the first version in spec.versions'
    assert texts(validation.validate_v1beta1({**old, "spec": wrong}, old)) == [told]
