"""Error messages of refused and failed expressions.

Each message of the engine occurs in a case.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import apiext.cel
from apiext.cel.declared import Declared
from apiext.cel.environment import Environment, Program
from apiext.conformance.support.cases import Case, read

TEXT = Declared("string", max_elements=50)
INNER = {"x": Declared("int")}
FIELDS = {
    "s": TEXT, "b": Declared("bytes", max_elements=50), "n": Declared("int"), "d": Declared("double"),
    "l": Declared("list", element=Declared("int"), max_elements=10), "flag": Declared("bool"),
    "set": Declared("list", element=Declared("list", element=Declared("int")), list_type="set", max_elements=9),
    "m": Declared("map", element=TEXT, max_elements=9), "o": Declared("object", "T.o", INNER, INNER),
    "p": Declared("int_or_string", max_elements=50), "t": Declared("timestamp", format="date-time"),
    "day": Declared("timestamp", format="date"), "dur": Declared("duration"),
}  # fmt: skip
ENV = Environment({"self": Declared("object", "T", FIELDS, {**FIELDS, "any": Declared("preserved")})})
CASES_DIR = Path(__file__).parent / "cases"
CASES = [Case(row) for row in read(CASES_DIR / "messages.yaml")]
SAY = frozenset(("Fault", "FormatError", "Refused", "_Refused", "PatternError", "Broken"))
UNSAID = frozenset((  # upstream's messages that no checked expression causes
    "first path segment in URL cannot contain colon",
    "error during formatting: text too long", "no such attribute(s): ",
))  # fmt: skip
ELSEWHERE = frozenset((
    "unsupported conversion to ref.Val: (*errors.errorString)",  # about optional old values: test_rules.py
    # about the authorizer, which rules do not have: test_expressions.py
    " must not be empty", "Invalid service account name", "Invalid service account namespace",
))  # fmt: skip


@pytest.mark.rows("CEL-001", "CEL-005", "CEL-007", "CEL-010", "CEL-020")
@pytest.mark.parametrize("case", CASES, ids=[f"{number}: {case.text}" for number, case in enumerate(CASES)])
def test_error_message_of_expression(case: Case) -> None:
    program = ENV.compile(case.text)
    if case.refused:
        assert not isinstance(program, Program)
        assert program.text.splitlines()[0] == case.refused
        return
    assert isinstance(program, Program), program.text
    given = {"self": case.get("self", {"s": "abc"})}
    for found in (program.evaluate(given), program.interpret(given)):
        assert found.error == case.error
        assert case.error or found.value is True


def message_constants() -> set[str]:
    """Return the constant parts of the engine's error messages."""
    found: set[str] = set()
    for path in Path(apiext.cel.__path__[0]).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in SAY and node.args:
                parts = node.args[0].values if isinstance(node.args[0], ast.JoinedStr) else [node.args[0]]
                found |= {it.value for it in parts if isinstance(it, ast.Constant) and isinstance(it.value, str)}
    return {text for text in found if len(text) > 8}


def test_each_error_message_has_a_case() -> None:
    recorded = [Case(row) for name in ("recorded", "objects") for row in read(CASES_DIR / f"{name}.yaml")["cases"]]
    texts = "\n".join(str(case.refused or case.error or case.no_json) for case in [*CASES, *recorded])
    without = sorted(text for text in message_constants() - UNSAID - ELSEWHERE if text.strip() not in texts)
    assert without == []
