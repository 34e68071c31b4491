"""Functions that generated code calls.

The generated code of an expression is Python code (writer.py).
"""

from collections.abc import Iterator, Mapping
from typing import Any

from apiext.cel.attributes import QUALIFYING, lookup, read_field
from apiext.cel.declared import Declared
from apiext.cel.effort import Cancelled
from apiext.cel.evaluation import Frame, Step, Tracker, Variables
from apiext.cel.limit import Limit
from apiext.cel.plan import is_member
from apiext.cel.values import Broken, Fault, Optional, Value, elements, is_list, is_map
from apiext.cel.views import view

World = tuple[Mapping[str, Declared], frozenset[str]]
"""(declared types of variables by name, names of optional variables)."""


class Unhandled(Exception):
    """The error of a case that generated code cannot handle.

    The interpreter then evaluates the expression.
    """


class Reached(Exception):
    """The error of an evaluation that has reached its limit or was cancelled.

    ``cost`` is the cost so far.
    """

    def __init__(self, cost: int) -> None:
        super().__init__(cost)
        self.cost = cost


def find(value: Value, key: Value) -> Value:
    """Return an element, entry or field. Raise Unhandled if this fails."""
    if type(key) not in QUALIFYING:
        raise Unhandled
    found = lookup(value, key, False)
    if isinstance(found, Fault) or type(value) is Optional:
        raise Unhandled
    return found


def find_field(value: Value, name: str, test: bool) -> Value:
    """Return a field of an object, or, if ``test`` is true, whether the field exists.

    Raise Unhandled if this fails.
    """
    found = read_field(value, name, test)
    if type(found) is Fault or type(value) is Optional:
        raise Unhandled
    return found


def all_elements(value: Value) -> Iterator[Value]:
    """Return the elements of a list or the keys of a map. Raise Unhandled for other values."""
    if not is_list(value) and not is_map(value):
        raise Unhandled
    return elements(value)


def pairs(value: Value) -> Iterator[tuple[Value, Value]]:
    """Yield (index, element) of a list or (key, value) of a map.

    Raise Unhandled for other values.
    """
    if is_list(value):
        yield from enumerate(elements(value))
    elif is_map(value):
        for key in elements(value):
            yield key, value.find(key)[1]
    else:
        raise Unhandled


class _Names:
    """The frame of an interpreted step.

    The frame finds a variable in ``names``, the variables of the generated code, else in ``outer``.
    """

    __slots__ = ("names", "outer")

    def __init__(self, names: dict[str, Value], outer: Frame) -> None:
        self.names = names
        self.outer = outer

    def find(self, name: str, tracker: Tracker) -> tuple[Value] | None:
        return (self.names[name],) if name in self.names else self.outer.find(name, tracker)

    @property
    def outermost(self) -> Frame:
        return self.outer


def values(variables: Mapping[str, Any], world: World) -> dict[str, Value]:
    """Return the variables of an evaluation as CEL values."""
    declared, optional = world
    made: dict[str, Value] = dict(variables)
    for name, kind in declared.items():
        if name in variables:
            value = view(variables[name], kind)
            made[name] = Optional(True, _held(value)) if name in optional else value
        elif name in optional:
            made[name] = Optional(False)
    return made


def _held(value: Value) -> Value:
    """Return a value for an optional: unchanged, but a fault gets another message, as upstream."""
    if isinstance(value, Fault):
        return Fault(f"unsupported conversion to ref.Val: (*errors.errorString){value.message}")
    return value


def interpret(
    step: Step, names: dict[str, Value], variables: Mapping[str, Any], world: World, limit: Limit, cost: int
) -> tuple[Value, int]:
    """Interpret a single step; return its value, and the cost so far.

    Raise Unhandled or Reached.
    """
    tracker = Tracker(limit)
    tracker.cost = cost
    try:
        value = step.eval(_Names(names, Variables(values(variables, world))), tracker)
    except Cancelled as stopped:
        raise Reached(tracker.cost) from stopped
    except Broken:
        raise Unhandled from None
    if type(value) is Fault:
        raise Unhandled
    return value, tracker.cost


NAMES: dict[str, Any] = {
    "_Unhandled": Unhandled, "_Fault": Fault, "_view": view, "_lookup": find, "_field": find_field,
    "_elements": all_elements, "_pairs": pairs, "_is_member": is_member, "_Reached": Reached, "_interpret": interpret,
}  # fmt: skip
