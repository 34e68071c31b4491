"""Fast tests of allOf, anyOf, oneOf and not (VAL-003)."""

from collections.abc import Callable, Mapping
from typing import Any

from apiext.schema.budget import STEPS
from apiext.schema.structural import Structural

Getter = Callable[[type], Any]
Source = Callable[[Structural], Mapping[type, Any]]


def tests(node: Structural, source: Source) -> list[Callable[[Any], bool]]:
    """Return the tests of a node's junctors (allOf, anyOf, oneOf, not).

    ``source(branch)`` is a mapping: Python class of a value → the branch's test of such values. The test is True if all
    such values are valid, else a function. A value whose class is missing is invalid. The returned tests may raise
    OverBudget or BudgetExhausted.
    """
    junctors = node.junctors
    found: list[Callable[[Any], bool]] = []
    for branches, make in (
        (junctors.any_of, _any_of),
        (junctors.one_of, _one_of),
        (junctors.all_of, _all_of),
    ):
        if branches:
            found.append(make(tuple(source(branch).get for branch in branches)))
    if junctors.not_ is not None:
        found.append(_not(source(junctors.not_).get))
    return found


def _spend(count: int) -> None:
    STEPS.left -= count
    if STEPS.left < 0:
        STEPS.spend(0)


def _any_of(branches: tuple[Getter, ...]) -> Callable[[Any], bool]:
    def test(value: Any) -> bool:
        _spend(len(branches))
        kind = value.__class__
        for get in branches:
            check = get(kind)
            if check is True or (check is not None and check(value)):
                return True
        return False

    return test


def _one_of(branches: tuple[Getter, ...]) -> Callable[[Any], bool]:
    def test(value: Any) -> bool:
        _spend(len(branches))
        kind = value.__class__
        found = 0
        for get in branches:
            check = get(kind)
            if check is True or (check is not None and check(value)):
                found += 1
                if found > 1:
                    return False
        return found == 1

    return test


def _all_of(branches: tuple[Getter, ...]) -> Callable[[Any], bool]:
    def test(value: Any) -> bool:
        _spend(len(branches))
        kind = value.__class__
        for get in branches:
            check = get(kind)
            if check is not True and (check is None or not check(value)):
                return False
        return True

    return test


def _not(get: Getter) -> Callable[[Any], bool]:
    def test(value: Any) -> bool:
        _spend(1)
        check = get(value.__class__)
        return check is not True and (check is None or not check(value))

    return test
