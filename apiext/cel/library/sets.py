"""Lists seen as sets (upstream: ext sets)."""

from apiext.cel.library.standard import contains
from apiext.cel.overloads import Library, row
from apiext.cel.values import Value, elements


def _contains(values: Value, others: Value) -> Value:
    for other in elements(others):
        found = contains(other, values)
        if found is not True:
            return found
    return True


def _equivalent(values: Value, others: Value) -> Value:
    found = _contains(values, others)
    return found if found is not True else _contains(others, values)


def _intersects(values: Value, others: Value) -> Value:
    return any(contains(value, others) is True for value in elements(values))


LIBRARY = Library(
    "sets",
    (
        row("sets.contains", "list_sets_contains_list", "list(T), list(T) -> bool", _contains,
            "sets.contains([1, 2], [2, 2])", "!sets.contains([1], [2])"),
        row("sets.equivalent", "list_sets_equivalent_list", "list(T), list(T) -> bool", _equivalent,
            "sets.equivalent([1, 2], [2, 1, 1])"),
        row("sets.intersects", "list_sets_intersects_list", "list(T), list(T) -> bool", _intersects,
            "sets.intersects([1], [1, 2])", "!sets.intersects([1], [])"),
    ),
    since=(1, 29),
)  # fmt: skip
