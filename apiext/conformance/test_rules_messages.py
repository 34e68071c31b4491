"""Rules that construct protobuf messages: errors of definitions and of objects.

The errors were compared with those of kube-apiserver.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from apiext.conformance.support.cases import read as read_yaml
from apiext.conformance.support.definitions import definition, fresh_group, serve
from apiext.conformance.support.http_client import DEFINITIONS, Client

CASES: list[dict[str, Any]] = read_yaml(Path(__file__).with_name("rules_messages.yaml"))
AT_ONCE = 15  # maximum number of rules in one definition, since their costs add up


def holder(rule: str) -> dict[str, Any]:
    """Return the schema of an object with this rule."""
    items = {"type": "array", "maxItems": 3, "items": {"type": "string", "maxLength": 3}}
    fields = {"n": {"type": "integer"}, "s": {"type": "string"}, "l": items}
    return {"type": "object", "properties": fields, "x-kubernetes-validations": [{"rule": rule}]}


@pytest.mark.rows("CEL-001", "CEL-005", "CEL-010")
@pytest.mark.parametrize("start", range(0, len(CASES), 30))
def test_definitions_with_rules_that_construct_messages(api: Client, start: int, foreign: bool) -> None:
    wanted = definition(fresh_group())
    for case in CASES[start : start + 30]:
        if foreign and case.get("differs"):
            continue
        schema = {"type": "object", "properties": {"spec": holder(case["rule"])}}
        wanted["spec"]["versions"][0]["schema"] = {"openAPIV3Schema": schema}
        answer = api.post(f"{DEFINITIONS}?dryRun=All", wanted)
        if "refused" in case:
            assert case["refused"] in answer.expect(422)["details"]["causes"][0]["message"], case
        else:
            answer.expect(201)


GOOD = [case for case in CASES if "refused" not in case]


@pytest.mark.rows("CEL-001", "CEL-007", "CEL-020")
@pytest.mark.parametrize("start", range(0, len(GOOD), AT_ONCE))
def test_results_of_valid_rules(api: Client, start: int) -> None:
    rules = {f"p{number}": case for number, case in enumerate(GOOD[start : start + AT_ONCE])}
    fields = {name: holder(case["rule"]) for name, case in rules.items()}
    spec = {"type": "object", "properties": fields}
    widgets = serve(api, schema={"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}})
    for name, case in rules.items():
        made = widgets.make("a") | {"spec": {name: {"n": 1, "s": "x", "l": ["a"]}}}
        answer = api.post(f"{widgets.path()}?dryRun=All", made)
        if case.get("is", True) and "fails" not in case:
            answer.expect(201)
            continue
        (cause,) = answer.expect(422)["details"]["causes"]
        told = f"failed rule: {case['rule']}" if "fails" not in case else case["fails"]
        assert told in cause["message"], case
