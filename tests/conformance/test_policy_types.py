"""Type checking in the status of a ValidatingAdmissionPolicy.

The rows also hold for kube-apiserver. A kube-apiserver needs a kube-controller-manager for these tests.
"""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

import pytest

from apiext.conformance.support.admission import POLICIES, document, stored
from apiext.conformance.support.cases import Case, case_name, read
from apiext.conformance.support.http_client import Client
from apiext.conformance.support.waiting import until

ROWS = [Case(row) for row in read(Path(__file__).with_name("policy_types.yaml"))]


@pytest.mark.rows("ADM-020")
@pytest.mark.parametrize("case", ROWS, ids=case_name)
def test_status_lists_type_warnings_of_expressions(api: Client, case: Case) -> None:
    spec: dict[str, Any] = {
        "matchConstraints": {"resourceRules": [{**rule, "operations": ["CREATE"]} for rule in case.rules]},
        "validations": case.validations,
        "variables": case.variables or [],
    }
    if case.params:
        spec["paramKind"] = case.params
    name = f"t-{secrets.token_hex(4)}"

    def status() -> Any:
        return api.get(f"{POLICIES}/{name}").expect(200).get("status", {})

    with stored(api, POLICIES, document(POLICIES, name, spec=spec)):
        until(lambda: status().get("observedGeneration"), f"types of {name} to be checked")
        warnings = (status().get("typeChecking") or {}).get("expressionWarnings", [])
    assert [{"at": warning["fieldRef"], "text": warning["warning"]} for warning in warnings] == case.warns
