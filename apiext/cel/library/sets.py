"""CEL functions that treat lists as sets (upstream: cel-go's extension ``sets``)."""

from apiext.cel.costs import Cost
from apiext.cel.library.standard import contains
from apiext.cel.overloads import Library, row
from apiext.cel.ranges import ONE, CallCost, CallSizes, add, multiply, scale
from apiext.cel.values import Value, cost_size, elements


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


def _pairs(factor: float) -> Cost:
    """Return the cost of a comparison of each element of one list with each of another list.

    The cost is 1, plus ``factor`` for each pair of elements.
    """

    def charge(args: list[Value], result: Value) -> int:
        return 1 + int(cost_size(args[0]) * cost_size(args[1]) * factor)

    def estimate(call: CallSizes) -> CallCost:
        return add(scale(multiply(call.size(0), call.size(1)), factor), ONE), None

    return Cost(charge, estimate)


LIBRARY = Library(
    "sets",
    (
        row("sets.contains", "list_sets_contains_list", "list(T), list(T) -> bool", _contains,
            "sets.contains([1, 2], [2, 2])", "!sets.contains([1], [2])", cost=_pairs(1)),
        row("sets.equivalent", "list_sets_equivalent_list", "list(T), list(T) -> bool", _equivalent,
            "sets.equivalent([1, 2], [2, 1, 1])", cost=_pairs(2)),
        row("sets.intersects", "list_sets_intersects_list", "list(T), list(T) -> bool", _intersects,
            "sets.intersects([1], [1, 2])", "!sets.intersects([1], [])", cost=_pairs(1)),
    ),
    since=(1, 29),
)  # fmt: skip
