"""Kinds of policies and bindings: language of expressions, cells, warnings, enumerations."""

from __future__ import annotations

from typing import Any

import pytest

from apiext.catalog.builtin import admissionregistration, cells
from apiext.catalog.builtin.kinds import kinds
from apiext.catalog.compile import storage_version_hash
from apiext.catalog.served import ServedVersion
from apiext.conformance.support.cases import Case, case_name, load
from apiext.meta import limits

pytestmark = pytest.mark.rows("ADM-020")

GROUP = "admissionregistration.k8s.io"
SERVED: dict[str, ServedVersion] = {
    version.names.kind: version
    for resource in kinds()
    if resource.group == GROUP
    for version in resource.versions.values()
}
RULE = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
RIGHT: dict[str, dict[str, Any]] = {
    "ValidatingAdmissionPolicy": {"validations": [{"expression": "true"}]},
    "MutatingAdmissionPolicy": {
        "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "Object{}"}}],
        "reinvocationPolicy": "Never",
    },
}


def normalized_policy(kind: str, content: dict[str, Any]) -> dict[str, Any]:
    spec = {"matchConstraints": {"resourceRules": [RULE]}, **RIGHT[kind], **content}
    metadata = {"name": "x"}
    return SERVED[kind].model.normalize(
        {"apiVersion": f"{GROUP}/v1", "kind": kind, "metadata": metadata, "spec": spec}
    )[0]


@pytest.mark.rows("ADM-006")
@pytest.mark.parametrize("case", load(__file__, "known_expressions"), ids=case_name)
def test_stored_expressions_may_use_any_version(case: Case) -> None:
    new, old = (
        normalized_policy(case.kind, case.set),
        normalized_policy(case.kind, case.set if case.old is None else case.old),
    )
    if case.old is None:
        new["spec"]["failurePolicy"] = "Ignore"
    found = SERVED[case.kind].validation.validate(new, old)
    assert [error.field for error in found] == [f"spec.{field}" for field in case.refused or ()]
    assert all("undeclared reference to 'includes'" in str(error) for error in found)


@pytest.mark.parametrize("case", load(__file__, "unplanned_expressions"), ids=case_name)
def test_unplannable_policy_expression_is_an_internal_error(case: Case) -> None:
    (error,) = SERVED[case.kind].validation.validate(normalized_policy(case.kind, case.set), None)
    text = "Internal error: program instantiation failed: reference to undefined type: timestamp"
    assert (error.reason, str(error)) == ("InternalError", f"spec.{case.at}: {text}")


@pytest.mark.rows("ADM-003")
def test_unplannable_match_condition_is_an_internal_error() -> None:
    hook = {
        "name": "a.example.com", "clientConfig": {"url": "https://a.example.com"}, "sideEffects": "None",
        "admissionReviewVersions": ["v1"], "matchConditions": [{"name": "a", "expression": "type(1) == timestamp"}],
    }  # fmt: skip
    (error,) = admissionregistration.validate_mutating({"webhooks": [hook]}, None)
    assert error.reason == "InternalError"
    assert error.field == "webhooks[0].matchConditions[0].expression"


def test_errors_of_webhook_paths_are_limited() -> None:
    client = {"service": {"name": "s", "namespace": "n", "path": "/" * 700}}
    hooks = [{"name": f"a{number}.example.com", "clientConfig": client} for number in range(50)]
    found = admissionregistration.validate_validating({"webhooks": hooks}, None)
    assert len(found) == limits.MAX_FIELD_ERRORS + 1


@pytest.mark.parametrize("case", load(__file__, "param_refs"), ids=case_name)
def test_param_ref_cell_of_bindings(case: Case) -> None:
    assert cells.param_ref({"spec": {"policyName": "p", "paramRef": case.ref}}) == case.cell


def test_cells_of_policies_without_a_spec() -> None:
    assert [cells.mutations({}), cells.validations({}), cells.param_kind({}), cells.param_ref({})] == [
        0,
        0,
        "<unset>",
        "<unset>",
    ]


@pytest.mark.parametrize("kind", sorted(SERVED))
def test_reserved_name_suffix_is_warned_about(kind: str) -> None:
    warnings = SERVED[kind].validation.warnings
    assert warnings({"metadata": {"name": "static.k8s.io"}}, None) == []
    (text,) = warnings({"metadata": {"name": "a.static.k8s.io"}}, {})
    assert text.startswith('metadata.name: names ending with ".static.k8s.io" are reserved')


@pytest.mark.rows("DIS-102")
def test_policy_storage_version_is_v1() -> None:
    hashed = {kind: version.published.storage_version_hash for kind, version in SERVED.items()}
    assert hashed == {kind: storage_version_hash(GROUP, "v1", kind) for kind in SERVED}


ENUMERATIONS = [
    ("MutatingAdmissionPolicy", "mutations.items.properties.patchType", ["ApplyConfiguration", "JSONPatch"]),
    ("MutatingAdmissionPolicy", "reinvocationPolicy", ["IfNeeded", "Never"]),
    ("MutatingAdmissionPolicy", "failurePolicy", ["Fail", "Ignore"]),
    ("MutatingAdmissionPolicy", "matchConstraints.properties.matchPolicy", ["Equivalent", "Exact"]),
    ("ValidatingAdmissionPolicyBinding", "validationActions.items", ["Audit", "Deny", "Warn"]),
]


@pytest.mark.rows("OAS-003")
@pytest.mark.parametrize(("kind", "path", "values"), ENUMERATIONS)
def test_enumerations_are_published(kind: str, path: str, values: list[str]) -> None:
    schema: Any = SERVED[kind].model.open_api
    found = schema["properties"]["spec"]["properties"]
    for step in path.split("."):
        found = found[step]
    assert (found["type"], found["enum"]) == ("string", values)
