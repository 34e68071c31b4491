"""Costs of calls: actual costs of evaluated calls, and estimates from declared sizes.

The costs equal those of upstream's library/cost.go. Each overload of a function has one Cost. This module defines the
costs that several function libraries use. Any other cost is defined next to its function.
"""

from collections.abc import Callable
from math import ceil
from typing import NamedTuple, TypeAlias

from apiext.cel.effort import spend
from apiext.cel.ranges import (
    LIST_COST,
    NOWHERE,
    ONE,
    PATTERN,
    TRAVERSAL,
    CallCost,
    CallSizes,
    Part,
    Path,
    Range,
    add,
    multiply,
    scale,
)
from apiext.cel.values import Value, cost_size, elements, is_list, is_map
from apiext.cel.views import ObjectView, Preserved

Charge: TypeAlias = Callable[[list[Value], Value], int]
"""Returns the cost of an evaluated call, given its arguments (the receiver first) and its result."""
Estimate: TypeAlias = Callable[[CallSizes], CallCost | None]
"""Returns (range of the cost without that of the arguments, size of the result), or None for a cost of 1."""


class Cost(NamedTuple):
    """The actual cost and the estimated cost of one overload."""

    charge: Charge
    estimate: Estimate
    by_name: bool = False  # true if ``charge`` also applies to calls whose overload is unknown before the evaluation


def one(args: list[Value], result: Value) -> int:
    """Return a cost of 1."""
    return 1


def _one_estimated(call: CallSizes) -> None:
    return None


def scaled(size: float, factor: float = TRAVERSAL) -> int:
    """Return a size multiplied by a factor, rounded up."""
    return ceil(size * factor)


# Read the first argument


def read(args: list[Value], result: Value) -> int:
    """Return a tenth of the size of the first argument."""
    return scaled(cost_size(args[0]))


def _read_estimated(call: CallSizes) -> CallCost:
    return scale(call.size(0), TRAVERSAL), None


def _copy_estimated(call: CallSizes) -> CallCost:
    size = call.size(0)
    return scale(size, TRAVERSAL), size


def read_twice(args: list[Value], result: Value) -> int:
    """Return a fifth of the size of the first argument."""
    return scaled(cost_size(args[0]), 2 * TRAVERSAL)


# Read all elements of the first argument


def _traversal(value: Value) -> int:
    """Return the cost of reading a whole value."""
    kind = type(value)
    if kind is str:
        return int((len(value) if value.isascii() else len(value.encode("utf-8", "surrogatepass"))) * TRAVERSAL)
    if kind is bytes:
        return int(len(value) * TRAVERSAL)
    if type(value) is Preserved:
        return 1
    if is_list(value) or is_map(value):
        spend(len(value) + 1)
    if is_list(value):
        return sum(_traversal(inner) for inner in elements(value))
    if isinstance(value, ObjectView):
        return value.traversal(_traversal)
    if is_map(value):
        found = [(key, value.find(key)) for key in elements(value)]
        return sum(_traversal(key) + _traversal(entry[1]) for key, entry in found if type(entry) is tuple)
    return 1


def _traverse(args: list[Value], result: Value) -> int:
    return _traversal(args[0])


def element_part(part: Part) -> Part | None:
    """Return the Part (ranges.py) of a list's elements, or None if the type has no element type."""
    if not part.type.params:
        return None
    steps = part.path.steps()  # a copy, since upstream never appends this step in place (see Path)
    path = Path([*steps, "@items"], len(steps) + 1) if steps else NOWHERE
    return Part(path, part.type.params[0], None)


def _elements_estimated(call: CallSizes, element: Part) -> CallCost:
    each = ONE
    if element.type.kind in ("string", "bytes"):
        each = add(each, scale(call.part_size(element), TRAVERSAL))
    return multiply(call.size(0), each), None


def _traverse_estimated(call: CallSizes) -> CallCost:
    element = element_part(call.parts[0])
    return _elements_estimated(call, element) if element is not None else (scale(call.size(0), TRAVERSAL), None)


def _traverse_any_estimated(call: CallSizes) -> CallCost:
    element = element_part(call.parts[0])
    return _elements_estimated(call, element) if element is not None else (call.size(0), None)


# Search a string for a regular expression


def match(args: list[Value], result: Value) -> int:
    """Return the cost of a match.

    It is the cost of reading the string and one more character, times a quarter of the size of the pattern.
    """
    return ceil((1.0 + cost_size(args[0])) * TRAVERSAL) * ceil(cost_size(args[1]) * PATTERN)


def match_estimated(text: Range, pattern: Range) -> Range:
    """Return the cost range of a match, given the ranges of the sizes of string and pattern."""
    return multiply(scale(add(text, ONE), TRAVERSAL), scale(pattern, PATTERN))


def _find_estimated(call: CallSizes) -> CallCost:
    text = call.size(0)
    return match_estimated(text, call.size(1)), (0, text[1])


# Create a list


def list_made(factor: float, size: int) -> int:
    """Return the cost of a new list of this size: ``factor`` for each element, and a fixed cost."""
    return int(size * factor) + 1 + LIST_COST


def list_made_estimated(factor: float, size: Range) -> CallCost:
    """Return (range of the cost, ``size``) of a new list; ``size`` is the range of its size."""
    return add(add(scale(size, factor), ONE), (LIST_COST, LIST_COST)), size


FLAT = Cost(one, _one_estimated)
"""A call costs 1 with any arguments."""
READ = Cost(read, _read_estimated, by_name=True)
"""A call costs a tenth of the size of the first argument."""
COPY = Cost(read, _copy_estimated, by_name=True)
"""A call costs a tenth of the size of the first argument; the result is at most as large as this argument."""
READ_TWICE = Cost(read_twice, lambda call: (scale(call.size(0), 2 * TRAVERSAL), None), by_name=True)
"""A call costs a fifth of the size of the first argument."""
TRAVERSE = Cost(_traverse, _traverse_estimated, by_name=True)
"""A call reads all elements of the first argument, or all characters of a string."""
TRAVERSE_ANY = Cost(_traverse, _traverse_any_estimated, by_name=True)
"""Like TRAVERSE; if the type of the elements is unknown, the estimate is 1 for each element."""
FIND = Cost(match, _find_estimated, by_name=True)
"""A call costs as much as ``match``; the result is at most as large as the string."""
