"""The examples of each row are true in both engines.

Each function that is not an operator has an example.
"""

from __future__ import annotations

import pytest

from apiext.cel.base import LIBRARIES, base
from apiext.cel.environment import Environment, Program
from apiext.cel.overloads import Overload

pytestmark = pytest.mark.rows("CEL-007", "CEL-014")
EXAMPLES = [
    pytest.param(example, id=f"{overload.id}: {example}")
    for library in LIBRARIES
    for overload in library.rows
    for example in overload.examples
]


@pytest.mark.parametrize("example", EXAMPLES)
def test_example_is_true_in_both_engines(example: str) -> None:
    program = Environment({}).compile(example)
    assert isinstance(program, Program), program.text
    interpreted, generated = program.interpret({}), program.evaluate({})
    assert interpreted.value is True, interpreted.error
    assert (generated.value, generated.cost) == (True, interpreted.cost)


def test_each_function_has_an_example() -> None:
    shown = {overload.function for library in LIBRARIES for overload in library.rows if overload.examples}
    functions = {name for name in base().functions if "@" not in name}
    without = {overload.function for overload in _of("kubernetes.authz")}
    assert functions - shown - without == set()


def _of(name: str) -> tuple[Overload, ...]:
    return next(library.rows for library in LIBRARIES if library.name == name)


def test_overload_ids_are_unique() -> None:
    ids = [overload.id for library in LIBRARIES for overload in library.rows]
    assert len(ids) == len(set(ids))


def test_new_rules_cannot_use_functions_of_the_newest_version() -> None:
    assert isinstance(Environment({}).compile("[1].includes(1)"), Program)
    refused = Environment({}, version="new").compile("[1].includes(1)")
    assert not isinstance(refused, Program)
    assert "undeclared reference to 'includes'" in refused.text
