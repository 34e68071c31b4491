"""Tables of rules of Kubernetes' tests, with both engines.

The tables contain compile results, messages, estimates, values and costs.
"""

from __future__ import annotations

import json
import re
import struct
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from apiext.cel.environment import Environment, Evaluation, Program, Rejected
from tests.support.shared import shared
from tests.unit.cel import schema_types

pytestmark = pytest.mark.rows("CEL-001", "CEL-002", "CEL-003", "CEL-005", "CEL-006", "CEL-007", "CEL-013", "CEL-014")
PREFIX = {"compilation": "compilation failed: ", "instantiation": "program instantiation failed: "}
# Rows about the caller of the engine, or with a function that only upstream's test has.
NOT_HERE = {
    "42": "that a rule gives a bool is for the schema layer to say",
    "fakeFunction('abc') == 'ABC'": "the function is declared by upstream's test alone",
}


def rows(*kinds: str) -> Iterator[dict[str, Any]]:
    path = shared("data/cel/kubernetes-rules.jsonl", 1902)
    if path is None:
        pytest.skip("no recorded rules")
    for line in path.read_text().splitlines():
        row = json.loads(line)
        if row["kind"] in kinds and row["rule"].strip() and row["rule"] not in NOT_HERE:
            yield row


def environment(row: dict[str, Any]) -> Environment:
    found = schema_types.declare(row["schema"], bool(row.get("isRoot")), capped=False)
    assert found is not None
    optional = frozenset(("oldSelf",)) if row.get("optionalOldSelf") else frozenset[str]()
    return Environment({"self": found[0], "oldSelf": found[0]}, optional=optional)


def unnamed(text: str) -> str:
    """Return a text without upstream's numbers in names of types."""
    return re.sub(r"selfType\d+", "selfType", text)


def test_compile_results_and_static_costs() -> None:
    seen: Counter[str] = Counter()
    for row in rows("runtimeCost", "staticCost", "estimate", "compile", "valid", "invalid"):
        env = environment(row)
        program = env.compile(row["rule"])
        refused = row.get("actualCompileError")
        seen[row["kind"]] += 1
        if isinstance(program, Rejected):
            assert unnamed(refused or "") == PREFIX[program.stage] + program.text, row["rule"]
            continue
        assert refused is None, row["rule"]
        assert env.estimate(program.checked)[1] == row["static"], row["rule"]
        assert "usesOldSelf" not in row or program.mentions("oldSelf") == row["usesOldSelf"]
    assert sum(seen.values()) == 1902 - 4, "all rows but a blank rule and those that are not for the engine"


def single(obj: Any, schema: dict[str, Any]) -> Any:
    """Return data with numbers of format float rounded to single precision."""
    if isinstance(obj, dict):
        extra = schema.get("additionalProperties")
        inner = schema.get("properties") or {}
        return {k: single(v, inner.get(k) or (extra if isinstance(extra, dict) else {})) for k, v in obj.items()}
    if isinstance(obj, float) and schema.get("format") == "float":
        return struct.unpack("f", struct.pack("f", obj))[0]
    return obj


def variables_of(row: dict[str, Any]) -> dict[str, Any]:
    variables = {"self": single(row["obj"], row["schema"])}
    if row["oldObj"] is not None:
        variables["oldSelf"] = row["oldObj"]
    return variables


def expected(row: dict[str, Any], found: Evaluation) -> bool:
    errors = row["actualErrors"]
    if not errors:
        return found.value is True
    if "evaluating rule" in errors[0]:
        return found.error is not None and f"{found.error} evaluating rule" in errors[0]
    return found.value is False


def test_values_and_runtime_costs() -> None:
    seen: Counter[str] = Counter()
    for row in rows("runtimeCost", "valid", "invalid"):
        program = environment(row).compile(row["rule"])
        variables = variables_of(row)
        if isinstance(program, Rejected):
            seen["rejected"] += 1
            continue
        if program.mentions("oldSelf") and "oldSelf" not in variables:
            seen["transition rules without an old value"] += 1
            continue
        assert isinstance(program, Program)
        for found in (program.interpret(variables), program.evaluate(variables)):
            assert expected(row, found), (row["rule"], found)
            assert found.cost == row["actualCost"], (row["rule"], found)
        seen["run"] += 1
    assert seen == {"run": 1070, "rejected": 45, "transition rules without an old value": 4}
