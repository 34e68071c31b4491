"""Steps of an interpreted evaluation, the tracker of their costs, and frames that hold variables."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from apiext.cel.limit import Limit
from apiext.cel.values import Value

Code = Callable[[Mapping[str, Any], Limit], tuple[Value, int]]
"""Generated code of an expression: it takes variables, and returns the value and the cost."""


class Tracker:
    """The cost so far, and upstream's stack of values that arguments are charged by."""

    __slots__ = ("cost", "limit", "places", "stack")

    def __init__(self, limit: Limit) -> None:
        self.cost = 0
        self.limit = limit
        self.stack: list[tuple[int, Value]] = []
        self.places: dict[int, list[int]] = {}  # id → where it is on the stack, so that nothing is searched for

    def push(self, id: int, value: Value) -> None:
        """Note the value of a step."""
        self.places.setdefault(id, []).append(len(self.stack))
        self.stack.append((id, value))
        if self.cost > self.limit.most:
            raise self.limit.reached()

    def drop(self, *ids: int) -> None:
        """Forget a step's value and all above it, for each step that is there."""
        for id in ids:
            places = self.places.get(id)
            if places:
                self._cut(places[-1])

    def take(self, args: "list[Step]") -> list[Value] | None:
        """Return the values of arguments and forget them; None when one is not there."""
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
    """Where names get their values."""

    def find(self, name: str, tracker: Tracker) -> tuple[Value] | None:
        """Return the value of a name, None when there is no such name."""

    @property
    def outermost(self) -> "Frame":
        """Return the frame of the variables given from outside."""


class Variables:
    """The variables given from outside; values are made when they are read first."""

    __slots__ = ("values",)

    def __init__(self, values: dict[str, Value]) -> None:
        self.values = values

    def find(self, name: str, tracker: Tracker) -> tuple[Value] | None:
        """Return the value of a name."""
        return (self.values[name],) if name in self.values else None

    @property
    def outermost(self) -> Frame:
        """Return this frame."""
        return self


class Step:
    """A step: evaluates to a value or a fault, and tells the tracker."""

    __slots__ = ("id",)

    def __init__(self, id: int) -> None:
        self.id = id

    def eval(self, frame: Frame, tracker: Tracker) -> Value:
        """Return the value, or the fault that came instead."""
        raise NotImplementedError


class Constant(Step):
    """A value known beforehand; costs nothing."""

    __slots__ = ("value",)

    def __init__(self, id: int, value: Value) -> None:
        self.id = id
        self.value = value

    def eval(self, frame: Frame, tracker: Tracker) -> Value:
        """Return the value."""
        tracker.push(self.id, self.value)
        return self.value


class _Constants:
    """The frame of constant parts: no names."""

    def find(self, name: str, tracker: Tracker) -> tuple[Value] | None:
        return None

    @property
    def outermost(self) -> Frame:
        return self


def constant(step: Step) -> Value:
    """Return the value of a step that depends on nothing."""
    return step.eval(_Constants(), Tracker(Limit(1 << 62)))
