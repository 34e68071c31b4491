"""Steps of an interpreted evaluation, the tracker of their costs, and frames of variables."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from apiext.cel.limit import Limit
from apiext.cel.values import Value

Code = Callable[[Mapping[str, Any], Limit], tuple[Value, int]]
"""Generated code of an expression: (variables, limit) → (value, cost)."""


class Tracker:
    """The cost of an evaluation so far, and a stack of the values of steps, as in upstream.

    The cost of a call depends on the values of its arguments, which are on the stack.
    """

    __slots__ = ("cost", "limit", "places", "stack")

    def __init__(self, limit: Limit) -> None:
        self.cost = 0
        self.limit = limit
        self.stack: list[tuple[int, Value]] = []
        self.places: dict[int, list[int]] = {}  # id of a step → positions of its values on the stack

    def push(self, id: int, value: Value) -> None:
        """Push the value of a step on the stack.

        Raise Cancelled if the cost exceeds the limit, or if another thread has cancelled the evaluation.
        """
        self.places.setdefault(id, []).append(len(self.stack))
        self.stack.append((id, value))
        if self.cost > self.limit.max_cost:
            raise self.limit.reached()

    def drop(self, *ids: int) -> None:
        """Remove the last value of each step in ``ids`` from the stack, with all values above it.

        Skip steps without a value.
        """
        for id in ids:
            places = self.places.get(id)
            if places:
                self._cut(places[-1])

    def take(self, args: "list[Step]") -> list[Value] | None:
        """Remove the values of arguments from the stack, and return them.

        Return None if an argument has no value on the stack.
        """
        found: list[Value] = [None] * len(args)
        for number in range(len(args) - 1, -1, -1):
            places = self.places.get(args[number].id)
            if not places:
                return None
            at = places[-1]
            found[number] = self.stack[at][1]
            self._cut(at)
        return found

    def _cut(self, at: int) -> None:
        stack, places = self.stack, self.places
        while len(stack) > at:
            places[stack.pop()[0]].pop()


class Frame(Protocol):
    """A scope: it returns the values of names."""

    def find(self, name: str, tracker: Tracker) -> tuple[Value] | None:
        """Return a tuple with the value of a name, or None if the name is unknown."""

    @property
    def outermost(self) -> "Frame":
        """Return the frame with the variables of the evaluation."""


class Variables:
    """The outermost frame: the variables of the evaluation."""

    __slots__ = ("values",)

    def __init__(self, values: dict[str, Value]) -> None:
        self.values = values

    def find(self, name: str, tracker: Tracker) -> tuple[Value] | None:
        """Return a tuple with the value of a name, or None if the name is unknown."""
        return (self.values[name],) if name in self.values else None

    @property
    def outermost(self) -> Frame:
        """Return this frame."""
        return self


class Step:
    """An executable node of an expression."""

    __slots__ = ("id",)

    def __init__(self, id: int) -> None:
        self.id = id

    def eval(self, frame: Frame, tracker: Tracker) -> Value:
        """Return the value or the fault, and push it on the stack of the tracker."""
        raise NotImplementedError


class Constant(Step):
    """A constant; its cost is 0."""

    __slots__ = ("value",)

    def __init__(self, id: int, value: Value) -> None:
        self.id = id
        self.value = value

    def eval(self, frame: Frame, tracker: Tracker) -> Value:
        """Return the value."""
        tracker.push(self.id, self.value)
        return self.value


class _Constants:
    """A frame without names, for constant expressions."""

    def find(self, name: str, tracker: Tracker) -> tuple[Value] | None:
        return None

    @property
    def outermost(self) -> Frame:
        return self


def constant(step: Step) -> Value:
    """Return the value of a step that depends on no variable."""
    return step.eval(_Constants(), Tracker(Limit(1 << 62)))
