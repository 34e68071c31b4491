"""Rules that do much work for little cost end soon and in little memory."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies

from apiext.cel.declared import Declared
from apiext.cel.environment import Environment, Evaluation, Program
from apiext.cel.library.texts import _last_index_of
from apiext.conformance.support.cases import Case, case_name, load
from apiext.conformance.support.waiting import prompt

pytestmark = pytest.mark.rows("CEL-010", "CEL-011")
TEXT = Declared("string", max_elements=4000)
FIELDS = {
    **dict.fromkeys(("s", "p", "d", "c"), TEXT),
    "l": Declared("list", element=Declared("int"), max_elements=1000),
    "w": Declared("list", element=TEXT, max_elements=1000),
    "m": Declared("map", element=TEXT, max_elements=1000),
}
ENV = Environment({"self": Declared("object", "T", FIELDS, FIELDS)})
DATA: dict[str, Any] = {
    "s": "ab" * 2000, "p": "(a|b)*a(a|b){12}", "c": r"\pL" * 900, "d": "9" * 4000, "l": list(range(1000)),
    "w": [f"x{number}" * 100 for number in range(1000)], "m": {f"k{number}": "v" * 100 for number in range(1000)},
}  # fmt: skip
OVER = "operation cancelled: actual cost limit exceeded"
CPU = 12.0  # seconds for both engines on a slow, busy machine; on an idle one each takes two for the longest case
MEMORY = 160  # MiB of address space in addition to the interpreter's


def expanded(text: str) -> str:
    """Return a rule with its nested loops expanded."""

    def nest(found: re.Match[str]) -> str:
        made = found[1]
        for number in range(int(found[3])):
            made += f".map(v{number}, {re.sub('X', f'v{number}', found[2])})"
        return made.replace("=>", ":")

    return re.sub(r"NEST\((.*?); (.*?); (\d+)\)", nest, text)


def compiled(text: str) -> Program:
    program = ENV.compile(expanded(text))
    assert isinstance(program, Program), program.text
    return program


def outcomes(text: str) -> list[Evaluation]:
    """Return the evaluations by both engines."""
    program = compiled(text)
    return [program.evaluate({"self": DATA}), program.interpret({"self": DATA})]


CASES = load(__file__, "bombs")


@pytest.mark.parametrize("case", CASES, ids=case_name)
def test_costly_rule_is_bounded_in_time(case: Case) -> None:
    began = time.process_time()
    for found in outcomes(case.text):
        if case.over:
            assert (found.cancelled, found.error) == (True, OVER)
        elif case.error:
            assert case.error in str(found.error)
        else:
            assert (found.value, found.error) == (True, None)
    prompt(time.process_time() - began, CPU)


def test_costly_rules_are_bounded_in_memory() -> None:
    """Run all cases in a Python process with at most MEMORY more address space."""
    code = f"""
import resource
from tests.unit.cel import test_bombs as t
size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + {MEMORY} * 2**20,) * 2)
for case in t.CASES:
    t.compiled(case.text).evaluate({{"self": t.DATA}})
"""
    root = Path(__file__).parents[3]
    subprocess.run([sys.executable, "-c", code], cwd=root, check=True, timeout=120, stdin=subprocess.DEVNULL)


def test_last_index_of_takes_linear_time() -> None:
    text, part = "a" * 60_000, "ab" + "a" * 30_000
    began = time.process_time()
    assert _last_index_of(text, part) == -1
    assert _last_index_of(part + text, part) == 0
    prompt(time.process_time() - began, 0.3)  # comparing at each position would take seconds


@hypothesis.given(
    strategies.text("ab", max_size=60),
    strategies.text("ab", max_size=40),
    strategies.none() | strategies.integers(0, 70),
)
def test_last_index_of_returns_the_last_position(text: str, part: str, offset: int | None) -> None:
    for wanted in (part, text[3:25]):
        places = [at for at in range(len(text) - len(wanted) + 1) if text.startswith(wanted, at)]
        upto = len(text) if offset is None else offset
        found = [at for at in places if at <= upto and (upto < len(text) or offset is None or not wanted)]
        assert _last_index_of(text, wanted, offset) == (found[-1] if found else -1)
