"""Steps of an interpreted evaluation, the tracker of their costs, and the frames of variables."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from apiext.cel.limit import Limit
from apiext.cel.values import Value

Code = Callable[[Mapping[str, Any], Limit], tuple[Value, int]]
"""Generated code of an expression: (variables, limit) → (value, cost)."""


class Tracker:
    """The cost so far, and upstream's stack of values, from which arguments are charged."""

    __slots__ = ("cost", "limit", "places", "stack")

    def __init__(self, limit: Limit) -> None:
        self.cost = 0
        self.limit = limit
        self.stack: list[tuple[int, Value]] = []
        self.places: dict[int, list[int]] = {}  # id → its positions on the stack, to avoid a search

    def push(self, id: int, value: Value) -> None:
        """Record the value of a step."""
        self.places.setdefault(id, []).append(len(self.stack))
        self.stack.append((id, value))
        if self.cost > self.limit.most:
            raise self.limit.reached()

    def drop(self, *ids: int) -> None:
        """Remove a step's value and all above it, for each step that is on the stack."""
        for id in ids:
            places = self.places.get(id)
            if places:
                self._cut(places[-1])

    def take(self, args: "list[Step]") -> list[Value] | None:
        """Return the values of arguments and remove them, or return None if one is missing."""
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
    """The source of the values of names."""

    def find(self, name: str, tracker: Tracker) -> tuple[Value] | None:
        """Return the value of a name in a tuple, or None if there is no such name."""

    @property
    def outermost(self) -> "Frame":
        """Return the frame of the variables of the evaluation."""


class Variables:
    """The variables of the evaluation; values are made at first use."""

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
    """A step of an evaluation."""

    __slots__ = ("id",)

    def __init__(self, id: int) -> None:
        self.id = id

    def eval(self, frame: Frame, tracker: Tracker) -> Value:
        """Return the value or the fault, and record it in the tracker."""
        raise NotImplementedError


class Constant(Step):
    """A constant; it costs nothing."""

    __slots__ = ("value",)

    def __init__(self, id: int, value: Value) -> None:
        self.id = id
        self.value = value

    def eval(self, frame: Frame, tracker: Tracker) -> Value:
        """Return the value."""
        tracker.push(self.id, self.value)
        return self.value


class _Constants:
    """The frame of constant parts: it has no names."""

    def find(self, name: str, tracker: Tracker) -> tuple[Value] | None:
        return None

    @property
    def outermost(self) -> Frame:
        return self


def constant(step: Step) -> Value:
    """Return the value of a step that depends on no variable."""
    return step.eval(_Constants(), Tracker(Limit(1 << 62)))
