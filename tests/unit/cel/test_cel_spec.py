"""Test cases of CEL's specification, for Kubernetes' dialect.

Other cases are skipped with a reason.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from apiext.cel.checker import Checked, Checker
from apiext.cel.environment import Environment, Evaluation, Program
from apiext.cel.parser import parse
from apiext.cel.planner import Unplannable, plan
from apiext.cel.source import Issues, Source
from apiext.conformance.support.cases import read
from tests.support.shared import shared
from tests.unit.cel.spec_values import Foreign, same, type_from, value_from

pytestmark = pytest.mark.rows("CEL-007")
SKIPS: dict[str, dict[str, Any]] = read(Path(__file__).parent / "cases" / "cel_spec_skips.yaml")


def reason(case: dict[str, Any]) -> str | None:
    """Return the reason for skipping a case, or None."""
    if case["file"] in SKIPS["files"]:
        return str(SKIPS["files"][case["file"]])
    if case.get("container"):
        return "containers: expressions of definitions have none"
    if any("function" in declared for declared in case.get("type_env", [])):
        return "functions declared by the case"
    if any(word in case["expr"] for word in SKIPS["words"]):
        return "protobuf messages"
    return SKIPS["cases"].get(f"{case['file']}/{case['section']}/{case['name']}")


def program(case: dict[str, Any]) -> Program | str:
    """Return the case's program, without type checking if the case says so.

    Validators of literals are only for definitions.
    """
    variables = {row["name"]: type_from(row["ident"]["type"]) for row in case.get("type_env", [])}
    env = Environment(variables)
    issues = Issues(Source(case["expr"]))
    parsed = parse(case["expr"], env.base.macros, issues)
    if parsed is None:
        return issues.text()
    checked: Checked = Checker(parsed, env.base, env.variables, env.objects, issues).run()
    if issues and not case.get("disable_check"):
        return issues.text()
    try:
        return Program(env, checked, plan(checked, env.base))
    except Unplannable as wrong:
        return str(wrong)


def difference(case: dict[str, Any]) -> str:
    """Return the difference from the expected result, or ""."""
    made = program(case)
    if isinstance(made, str):
        return "" if "eval_error" in case else made
    told = case.get("typed_result", {})
    if "deduced_type" in told and made.result != type_from(told["deduced_type"]):
        return f"type {made.result}"
    if case.get("check_only"):
        return ""
    given = {name: value_from(row["value"]) for name, row in case.get("bindings", {}).items()}
    interpreted, generated = made.interpret(given), made.evaluate(given)
    if (interpreted.error, interpreted.cost) != (generated.error, generated.cost):
        return f"engines differ: {interpreted} {generated}"
    return "" if all(fits(case, found) for found in (interpreted, generated)) else str(interpreted)


def fits(case: dict[str, Any], found: Evaluation) -> bool:
    if "eval_error" in case:
        return found.error is not None
    told = case.get("value", case.get("typed_result", {}).get("result", {"bool_value": True}))
    return found.error is None and same(found.value, value_from(told))


def test_cases_of_the_cel_specification() -> None:
    path = shared("data/cel/cel-spec.json", 2456)
    if path is None:
        pytest.skip("no cases of the language")
    left_out: Counter[str] = Counter()
    passed, failed = 0, []
    for case in json.loads(path.read_text()):
        why = reason(case)
        try:
            fault = "" if why is not None else difference(case)
        except Foreign:
            why = "protobuf messages"
        if why is not None:
            left_out[why] += 1
        elif fault:
            failed.append((case["file"], case["section"], case["name"], case["expr"], fault))
        else:
            passed += 1
    assert not failed
    assert passed + left_out.total() == 2456
    assert passed >= SKIPS["passing"], left_out
