"""Validation errors and defaults of admission configurations, with their messages (ADM-003)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from apiext.admission import mutations, validations
from apiext.admission.hooks import compile_hooks
from apiext.admission.policy import compile_binding
from apiext.catalog.builtin.kinds import kinds
from apiext.catalog.served import ServedVersion
from apiext.conformance.support.admission import BINDINGS, MUTATING, POLICIES, VALIDATING, document
from apiext.conformance.support.cases import Case, case_name, load
from apiext.documents.document import Document
from apiext.meta import syntax
from apiext.meta.fields import FieldError

SERVED: dict[str, ServedVersion] = {
    resource.resource: resource.versions["v1"]
    for resource in kinds()
    if resource.group == "admissionregistration.k8s.io"
}
RULE = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
WEBHOOK: dict[str, Any] = {
    "name": "a.example.com",
    "clientConfig": {"url": "https://a.example.com"},
    "rules": [RULE],
    "sideEffects": "None",
    "admissionReviewVersions": ["v1"],
}
POLICY: dict[str, Any] = {"matchConstraints": {"resourceRules": [RULE]}, "validations": [{"expression": "true"}]}
BINDING: dict[str, Any] = {"policyName": "p", "validationActions": ["Deny"]}
SHORT = {
    "<subdomain>": syntax.dns1123_subdomain("A B")[0],
    "<qualified>": syntax.qualified_name("a b")[0],
    "<value>": syntax.label_value("c d")[0],
    "<dns1035>": syntax.dns1035_label("a b")[0],
}


def served(path: str) -> ServedVersion:
    return SERVED[path.rpartition("/")[2]]


def changed(base: dict[str, Any], case: Case) -> dict[str, Any]:
    return {name: value for name, value in {**base, **(case.set or {})}.items() if value is not None}


def validation_errors(path: str, content: dict[str, Any], old: dict[str, Any] | None = None) -> list[FieldError]:
    version = served(path)
    before = version.model.normalize(document(path, "x", **old))[0] if old is not None else None
    return version.validation.validate(version.model.normalize(document(path, "x", **content))[0], before)


def compare(found: Sequence[FieldError], case: Case, prefix: str) -> None:
    texts = [str(error) for error in found]
    wanted = [prefix + error for error in case.errors or ()]
    for short, text in SHORT.items():
        wanted = [error.replace(short, text) for error in wanted]
    if case.prefix:
        texts = [text[: len(want)] for text, want in zip(texts, wanted, strict=True)]
    assert texts == wanted


@pytest.mark.rows("ADM-003", "ADM-006")
@pytest.mark.parametrize("case", load(__file__, "webhooks"), ids=case_name)
def test_webhook_validation_errors(case: Case) -> None:
    compare(validation_errors(MUTATING, {"webhooks": [changed(WEBHOOK, case)]}), case, "webhooks[0].")
    if "reinvocationPolicy" not in (case.set or {}):  # validating webhooks do not have this field
        compare(validation_errors(VALIDATING, {"webhooks": [changed(WEBHOOK, case)]}), case, "webhooks[0].")


@pytest.mark.rows("ADM-020")
@pytest.mark.parametrize("case", load(__file__, "policies"), ids=case_name)
def test_policy_validation_errors(case: Case) -> None:
    compare(validation_errors(POLICIES, {"spec": changed(POLICY, case)}), case, "spec.")


@pytest.mark.rows("ADM-020")
@pytest.mark.parametrize("case", load(__file__, "bindings"), ids=case_name)
def test_binding_validation_errors(case: Case) -> None:
    compare(validation_errors(BINDINGS, {"spec": changed(BINDING, case)}), case, "spec.")


@pytest.mark.rows("ADM-003")
def test_duplicate_webhook_names_are_refused() -> None:
    (error,) = validation_errors(MUTATING, {"webhooks": [WEBHOOK, WEBHOOK]})
    assert str(error) == 'webhooks[1].name: Duplicate value: "a.example.com"'


@pytest.mark.rows("ADM-006")
@pytest.mark.rows("ETC-006")
def test_stored_configurations_without_name_or_spec_compile() -> None:
    odd: Document = {"metadata": {}, "webhooks": None, "spec": None}
    assert compile_hooks(odd) == []
    assert [policy.name for policy in validations.compile_policy(odd)] == [""]
    assert [policy.name for policy in mutations.compile_policy(odd)] == [""]
    assert [binding.name for binding in compile_binding(odd)] == [""]


def test_webhook_has_at_most_64_match_conditions() -> None:
    conditions = [{"name": f"c{number}", "expression": "true"} for number in range(65)]
    (error,) = validation_errors(MUTATING, {"webhooks": [{**WEBHOOK, "matchConditions": conditions}]})
    assert str(error) == "webhooks[0].matchConditions: Too many: 65: must have at most 64 items"


@pytest.mark.rows("ADM-003")
def test_update_may_keep_invalid_stored_fields() -> None:
    bad = {**WEBHOOK, "sideEffects": "Some", "admissionReviewVersions": ["v9"], "matchConditions": [
        {"name": "a", "expression": "nope"}]}  # fmt: skip
    assert validation_errors(VALIDATING, {"webhooks": [bad, bad]}, {"webhooks": [bad, bad]}) == []
    errors = validation_errors(VALIDATING, {"webhooks": [bad]}, {"webhooks": [WEBHOOK]})
    assert [error.field.rpartition(".")[2] for error in errors] == [
        "sideEffects", "expression", "admissionReviewVersions",
    ]  # fmt: skip


@pytest.mark.rows("ADM-003")
def test_defaults_of_a_webhook() -> None:
    service = {"clientConfig": {"service": {"name": "a", "namespace": "b"}}}
    made = served(MUTATING).model.normalize(document(MUTATING, "x", webhooks=[{**WEBHOOK, **service}]))[0]["webhooks"][
        0
    ]
    added = {name: value for name, value in made.items() if name not in WEBHOOK}
    assert added == {
        "failurePolicy": "Fail",
        "matchPolicy": "Equivalent",
        "namespaceSelector": {},
        "objectSelector": {},
        "timeoutSeconds": 10,
        "reinvocationPolicy": "Never",
    }
    assert made["rules"][0]["scope"] == "*"
    assert made["clientConfig"]["service"]["port"] == 443


def test_defaults_of_a_policy() -> None:
    made = served(POLICIES).model.normalize(document(POLICIES, "x", spec=POLICY))[0]["spec"]
    assert made["failurePolicy"] == "Fail"
    assert made["matchConstraints"] == {
        "matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {},
        "resourceRules": [{**RULE, "scope": "*"}],
    }  # fmt: skip
