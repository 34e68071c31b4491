"""Each row of functions has the cost and the estimate of its examples.

A function is added in one place.
"""

from __future__ import annotations

import pytest

from apiext.cel.base import LIBRARIES, Extension
from apiext.cel.costs import COPY, FLAT, Cost
from apiext.cel.environment import Environment, Program
from apiext.cel.overloads import Library, row
from apiext.cel.source import Issues

pytestmark = pytest.mark.rows("CEL-011")
EXAMPLES = sorted({example for library in LIBRARIES for row in library.rows for example in row.examples})


def _costs(expression: str, extension: Extension | None = None) -> tuple[int, tuple[int, int]]:
    """Return the cost and the estimate, as minimum and maximum, of an expression that is true."""
    environment = Environment({}, extension=extension)
    program = environment.compile(expression)
    checked = environment.check(expression)
    assert isinstance(program, Program), program.text
    assert not isinstance(checked, Issues)
    interpreted, generated = program.interpret({}), program.evaluate({})
    assert interpreted.value is True, interpreted.error
    assert generated.cost == interpreted.cost
    return interpreted.cost, environment.estimate(checked)


@pytest.mark.parametrize("expression", EXAMPLES)
def test_the_estimate_covers_the_cost(expression: str) -> None:
    cost, (_, most) = _costs(expression)
    assert cost <= most


def test_a_function_is_added_by_one_row() -> None:
    def swapped(text: str) -> str:
        return text.swapcase()

    rows = (row("swapCase", "string_swap_case", ".string -> string", swapped, "'aB'.swapCase() == 'Ab'", cost=COPY),)
    extension = Extension(Library("test", rows), lambda name: None)
    (example,) = rows[0].examples
    assert _costs(example, extension) == (1 + 1, (2, 2))
    long = "a" * 95
    assert _costs(f"'{long}'.swapCase() == '{long.upper()}'", extension) == (10 + 10, (11, 20))


def test_a_row_without_a_cost_costs_one() -> None:
    rows = (row("first", "string_first", ".string -> bool", bool),)
    extension = Extension(Library("test", rows), lambda name: None)
    assert rows[0].cost is FLAT
    assert _costs(f"'{'a' * 95}'.first()", extension) == (1, (1, 1))


def test_a_cost_without_an_estimate_is_refused() -> None:
    with pytest.raises(TypeError):
        Cost(lambda args, result: 2)  # type: ignore[call-arg]
