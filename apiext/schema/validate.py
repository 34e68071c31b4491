"""Compile a schema into one fast test that returns whether a value is valid.

The module ``report`` returns the errors of an invalid value.
"""

from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from apiext.schema import junctors, numbers, strings
from apiext.schema.budget import STEPS
from apiext.schema.recursion import deep_recursion
from apiext.schema.structural import Structural
from apiext.schema.values import enum_of, type_fault

Test = Callable[[Any], bool]
Tests = Mapping[type, Any]
"""Class of a value → True if all values of the class are valid, else a Test.

Values of a class without an entry are invalid.
"""

NONE = type(None)
_NUMBERS = frozenset((int, float))
_SAMPLES: dict[type, Any] = {str: "", bool: False, int: 0, float: 0.5, list: [], dict: {}}


def tests(node: Structural, counted: bool) -> Tests:
    """Return the tests of a node.

    ``counted`` is true inside junctors (allOf, anyOf, oneOf, not). There the tests count their steps against a budget,
    since junctors may test a value many times.
    """
    name = "counted tests" if counted else "tests"
    found = node.compiled.get(name)
    if found is None:
        found = node.compiled[name] = _make(node, counted)
    made: Tests = found
    return made


def _counted(node: Structural) -> Tests:
    return tests(node, True)


def passes(node: Structural, value: Any) -> bool:
    """Return whether a value is valid.

    Raise OverBudget or BudgetExhausted beyond a limit of work (budget.py). Raise Stopped if the request has ended.
    """
    found = node.compiled.get("tests")
    if found is None:
        with deep_recursion():
            found = tests(node, False)
    test = found.get(value.__class__)
    return test is True or (test is not None and test(value))


def _make(node: Structural, counted: bool) -> Tests:
    found: dict[type, Any] = {}
    # Tests of numbers refer to a copy of the node, since a reference to the node itself would create a reference cycle.
    bare = replace(node, compiled={}) if type_fault(node, 1.0) is None else node
    if type_fault(node, None) is None and not node.enum:
        found[NONE] = True
    common = junctors.tests(node, _counted)
    for kind, sample in _SAMPLES.items():
        checks: list[Test] = []
        if type_fault(node, sample) is not None:
            if kind is not float or type_fault(node, 1.0) is not None:
                continue
            checks.append(_type_test(bare))
        own = _OF_CLASS[kind](bare if kind in _NUMBERS else node, counted)
        # Test the length before junctors: a string of a wrong length need not be matched with patterns in junctors.
        checks += [*own, *common] if kind is str else [*common, *own]
        if node.enum:
            checks.append(_enum_test(node, kind))
        found[kind] = _all(checks)
    return found


def _type_test(node: Structural) -> Test:
    return lambda value: type_fault(node, value) is None


def _all(checks: list[Test]) -> Any:
    if not checks:
        return True
    if len(checks) == 1:
        return checks[0]
    if len(checks) == 2:
        first, second = checks
        return lambda value: first(value) and second(value)
    every = tuple(checks)

    def test(value: Any) -> bool:
        for check in every:  # noqa: SIM110 (twice as fast as all)
            if not check(value):
                return False
        return True

    return test


def _enum_test(node: Structural, kind: type) -> Test:
    return enum_of(node).texts.__contains__ if kind is str else enum_of(node).has


def _integers(node: Structural, counted: bool) -> list[Test]:
    test = numbers.integer_test(node)
    return [test] if test is not None else []


def _floats(node: Structural, counted: bool) -> list[Test]:
    test = numbers.float_test(node)
    return [test] if test is not None else []


def _lists(node: Structural, counted: bool) -> list[Test]:
    checks: list[Test] = []
    low, high = node.sizes.min_items, node.sizes.max_items
    if low is not None and low > 0:
        checks.append(lambda value: len(value) >= low)
    if high is not None:
        checks.append(lambda value: len(value) <= high)
    get = _getter(node.items, counted)
    if get is not None:
        checks += [_count, _items_test(get)] if counted else [_items_test(get)]
    return checks


def _count(value: Any) -> bool:
    STEPS.left -= len(value)
    if STEPS.left < 0:
        STEPS.spend(0)
    return True


def _getter(node: Structural | None, counted: bool) -> Callable[[type], Any] | None:
    """Return the look-up of a node's tests by class, or None if every value passes."""
    if node is None or _anything(tests(node, counted)):
        return None
    return tests(node, counted).get


def _anything(found: Tests) -> bool:
    return len(found) == len(_SAMPLES) + 1 and all(test is True for test in found.values())


def _items_test(get: Callable[[type], Any]) -> Test:
    def test(value: Any) -> bool:
        for item in value:
            check = get(item.__class__)
            if check is not True and (check is None or not check(item)):
                return False
        return True

    return test


def _objects(node: Structural, counted: bool) -> list[Test]:
    checks: list[Test] = []
    low, high = node.sizes.min_properties, node.sizes.max_properties
    if low is not None and low > 0:
        checks.append(lambda value: len(value) >= low)
    if high is not None:
        checks.append(lambda value: len(value) <= high)
    if node.required:
        checks.append(frozenset(node.required).issubset)
    if node.additional is False:
        checks.append(frozenset(node.properties).issuperset)
    test = _members_test(node, counted)
    if test is not None:
        checks += [_count, test] if counted else [test]
    return checks


def _members_test(node: Structural, counted: bool) -> Test | None:
    of_maps = _getter(node.map_values, counted)
    table = {name: _getter(child, counted) for name, child in node.properties.items()}
    if of_maps is None and not any(table.values()):
        return None
    look_up = table.get
    if not table:
        assert of_maps is not None
        walk = _items_test(of_maps)
        return lambda value: walk(value.values())

    def test(value: Any) -> bool:
        for name, item in value.items():
            get = look_up(name, of_maps)
            if get is not None:
                check = get(item.__class__)
                if check is not True and (check is None or not check(item)):
                    return False
        return True

    return test


_OF_CLASS: dict[type, Callable[[Structural, bool], list[Test]]] = {
    str: lambda node, _: list(strings.tests(node)),
    bool: lambda node, _: [],
    int: _integers,
    float: _floats,
    list: _lists,
    dict: _objects,
}
