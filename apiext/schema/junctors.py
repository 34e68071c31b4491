"""Fast tests of allOf, anyOf, oneOf and not (VAL-003)."""

from collections.abc import Callable, Mapping
from typing import Any

from apiext.schema.budget import STEPS
from apiext.schema.structural import Structural

Getter = Callable[[type], Any]
Source = Callable[[Structural], Mapping[type, Any]]


def _passes(get: Getter, value: Any) -> bool:
    test = get(value.__class__)
    return test is True or (test is not None and test(value))


def tests(node: Structural, source: Source) -> list[Callable[[Any], bool]]:
    """Return the tests of a node's junctors; ``source`` gives the tests of a branch. They may raise OverBudget."""
    found: list[Callable[[Any], bool]] = []
    for branches, make in ((node.any_of, _any_of), (node.one_of, _one_of), (node.all_of, _all_of)):
        if branches:
            found.append(make(tuple(source(branch).get for branch in branches)))
    if node.not_ is not None:
        found.append(_not(source(node.not_).get))
    return found


def _any_of(branches: tuple[Getter, ...]) -> Callable[[Any], bool]:
    def test(value: Any) -> bool:
        STEPS.left -= len(branches)
        if STEPS.left < 0:
            STEPS.spend(0)
        return any(_passes(get, value) for get in branches)

    return test


def _one_of(branches: tuple[Getter, ...]) -> Callable[[Any], bool]:
    def test(value: Any) -> bool:
        STEPS.left -= len(branches)
        if STEPS.left < 0:
            STEPS.spend(0)
        return sum(_passes(get, value) for get in branches) == 1

    return test


def _all_of(branches: tuple[Getter, ...]) -> Callable[[Any], bool]:
    def test(value: Any) -> bool:
        STEPS.left -= len(branches)
        if STEPS.left < 0:
            STEPS.spend(0)
        return all(_passes(get, value) for get in branches)

    return test


def _not(get: Getter) -> Callable[[Any], bool]:
    def test(value: Any) -> bool:
        STEPS.left -= 1
        if STEPS.left < 0:
            STEPS.spend(0)
        return not _passes(get, value)

    return test
