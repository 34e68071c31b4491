"""The audit policy: matching rules, and invalid policies."""

from __future__ import annotations

import json

import pytest

from apiext.audit.policy import LEVELS, PolicyError, load
from apiext.conformance.support import cases
from apiext.conformance.support.cases import Case
from apiext.http.audit import namespace_of
from apiext.meta import requestinfo

pytestmark = pytest.mark.rows("AUD-001")


@pytest.mark.parametrize("case", cases.load(__file__, "policy"), ids=lambda case: case.name)
def test_the_first_rule_that_matches_decides(case: Case) -> None:
    text = json.dumps({"apiVersion": "audit.k8s.io/v1", "kind": "Policy", **case.policy})
    policy, notes = load(text.encode())
    info = requestinfo.parse("GET", case.path, {})
    user = case.get("user", "someone")
    found = policy.verdict(info, namespace_of(info), user, tuple(case.groups or ()))
    assert LEVELS[found.level] == str(case.then)
    assert found.omitted == frozenset(case.omitted or ())
    assert found.omit_managed_fields is bool(case.bare)
    assert notes == []


@pytest.mark.parametrize("case", cases.load(__file__, "policy_faults"), ids=lambda case: case.name)
def test_invalid_policy_is_refused(case: Case) -> None:
    with pytest.raises(PolicyError) as refused:
        load(case.text.encode())
    assert str(refused.value) == case.then


def test_unknown_fields_of_policies_are_reported_and_ignored() -> None:
    text = """
apiVersion: audit.k8s.io/v1
kind: Policy
more: 1
metadata: {name: a, labels: {b: c}, annotations: {}, nam: d}
rules: [{level: Metadata, users: [], nope: {}, resources: [{grup: x}]}]
"""
    policy, notes = load(text.encode())
    assert len(policy.rules) == 1
    told = ["more", "metadata.nam", "rules[0].nope", "rules[0].resources[0].grup"]
    assert notes == [f'unknown field "{name}"' for name in told]
