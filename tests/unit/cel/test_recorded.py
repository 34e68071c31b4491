"""Recorded results of kube-apiserver, tested with both engines.

The results are refusals, estimates, values, errors and costs.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from apiext.cel.environment import Environment, Rejected
from apiext.conformance.support.cases import Case, read
from tests.unit.cel import schema_types

pytestmark = pytest.mark.rows("CEL-001", "CEL-006", "CEL-007", "CEL-010", "CEL-013", "CEL-014")
RECORDED: dict[str, Any] = read(Path(__file__).parent / "cases" / "recorded.yaml")
CASES = [Case(row) for row in RECORDED["cases"]]
PREFIX = {"compilation": "compilation failed: ", "instantiation": "program instantiation failed: "}


def environment() -> Environment:
    found = schema_types.declare(RECORDED["schema"])
    assert found is not None
    return Environment({"self": found[0]})


ENV = environment()


def sentence(text: str) -> str:
    """Return a refusal without numbers in names of types."""
    return re.sub(r"selfType\d+", "selfType", text)


@pytest.mark.parametrize("case", CASES, ids=[f"{number}: {case.text}" for number, case in enumerate(CASES)])
def test_results_equal_those_of_kube_apiserver(case: Case) -> None:
    program = ENV.compile(case.text)
    if isinstance(program, Rejected):
        assert PREFIX[program.stage] + program.text == sentence(case.refused or "")
        return
    assert case.refused in (None, "cel expression must evaluate to a bool")
    if case.refused:
        return
    assert ENV.estimate(program.checked)[1] == case.static
    for found in (program.interpret({"self": RECORDED["data"]}), program.evaluate({"self": RECORDED["data"]})):
        assert (found.value, found.error, found.cost) == (case.get("value"), case.get("error"), case.cost)


LIST_TYPES: dict[str, Any] = read(Path(__file__).parent / "cases" / "list_types.yaml")


@pytest.mark.rows("CEL-007")
@pytest.mark.parametrize("case", [Case(row) for row in LIST_TYPES["cases"]], ids=lambda case: case.text)
def test_list_type_results_equal_recorded_results(case: Case) -> None:
    declared = schema_types.declare(LIST_TYPES["schema"])
    assert declared is not None
    program = Environment({"self": declared[0]}).compile(case.text)
    assert not isinstance(program, Rejected)
    for found in (program.interpret({"self": LIST_TYPES["data"]}), program.evaluate({"self": LIST_TYPES["data"]})):
        assert (found.value, found.error, found.cost) == (case.get("value"), case.get("error"), case.cost)
