"""Rules compile and run in several threads at once, as they do for writes of large objects."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from apiext.cel.base import LIBRARIES
from apiext.cel.declared import Declared
from apiext.cel.effort import room_for
from apiext.cel.environment import Environment, Program
from apiext.schema.compile import CompiledSchema, compile_schema

THREADS = 4
WITHIN = 60.0
TEXTS = sorted({example for library in LIBRARIES for row in library.rows for example in row.examples})
ITEM = {"name": Declared("string", max_elements=40), "size": Declared("int")}
FIELDS = {
    "names": Declared("list", element=Declared("string")),
    "labels": Declared("map", element=Declared("string")),
    "items": Declared("list", element=Declared("object", "T.items.@idx", ITEM, ITEM)),
}
DATA: dict[str, Any] = {
    "names": ["a", "b", "c"],
    "labels": {"a": "1", "b": "2"},
    "items": [{"name": "a", "size": 1}, {"name": "b", "size": 2}, {"size": 3}],
}
RULES = [
    "self.items.all(i, self.names.exists(n, n == i.name))",
    "self.items.filter(i, has(i.name)).map(i, i.size).sum() == 3",
    "self.names.map(n, n + '-' + self.labels[n]).join() == 'a-1b-2'",
    "self.labels.transformMap(k, v, int(v) + 1).size() == 2",
    "self.items[?1].?name.orValue('none') == 'b'",
    "self.names.all(n, n.matches('^[a-z]$') && " + " && ".join(f"n != 'x{at}'" for at in range(60)) + ")",
]
SCHEMA = {
    "type": "object",
    "properties": {
        "items": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "size": {"type": "integer", "x-kubernetes-validations": [{"rule": "self > 1"}]},
                },
                "x-kubernetes-validations": [{"rule": "has(self.name)", "message": "needs a name"}],
            },
        }
    },
}


@pytest.fixture(autouse=True)
def _eager() -> Iterator[None]:
    """Make threads switch as often as possible."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def run_in_threads(work: Any) -> list[Any]:
    """Call the function in several threads that start at the same time, and return the results."""
    begin, found = threading.Barrier(THREADS, timeout=WITHIN), [None] * THREADS

    def one(number: int) -> None:
        begin.wait()
        found[number] = work()

    threads = [threading.Thread(target=one, args=(number,), daemon=True) for number in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(WITHIN)
    return found


def compiled(environment: Environment, text: str) -> Program:
    program = environment.compile(text)
    assert isinstance(program, Program), program.text
    return program


def environment() -> Environment:
    return Environment({"self": Declared("object", "T", FIELDS, FIELDS)})


def outcomes(programs: list[Program]) -> list[tuple[object, str | None, int]]:
    return [(it.value, it.error, it.cost) for it in (program.evaluate({"self": DATA}) for program in programs)]


def test_one_program_evaluates_in_many_threads() -> None:
    alone = outcomes([compiled(environment(), text) for text in RULES])
    shared = [compiled(environment(), text) for text in RULES]
    assert run_in_threads(lambda: [outcomes(shared) for _ in range(20)]) == [[alone] * 20] * THREADS


def test_rules_compile_in_many_threads() -> None:
    def work() -> list[tuple[object, str | None, int]]:
        here = environment()
        return outcomes([compiled(here, text) for text in [*RULES, *TEXTS]])

    alone = work()
    assert run_in_threads(work) == [alone] * THREADS
    assert all(row[0] is True for row in alone[len(RULES) :])


@pytest.mark.rows("CEL-016")
def test_new_schema_validates_in_many_threads() -> None:
    alone = rule_errors(compile_schema(SCHEMA))
    assert alone == ["items[0].size: Invalid value: 1: failed rule: self > 1", "items[2]: Invalid value: needs a name"]
    for _ in range(10):
        schema = compile_schema(SCHEMA)
        assert run_in_threads(lambda it=schema: rule_errors(it)) == [alone] * THREADS


def rule_errors(schema: CompiledSchema) -> list[str]:
    return [str(error) for error in schema.rules(DATA, None)[0]]


def test_recursion_limit_is_restored() -> None:
    before = sys.getrecursionlimit()

    def work() -> bool:
        for _ in range(200):
            with room_for(10_000):
                if sys.getrecursionlimit() <= before:
                    return False
        return True

    assert run_in_threads(work) == [True] * THREADS
    assert sys.getrecursionlimit() == before
