"""The steps that an expression is evaluated in, one for one as upstream's interpreter has them, with their costs.

This is the reference: slow, exact in values, faults and costs. ``generate`` makes fast code that must agree with it.
"""

from collections.abc import Callable, Iterator
from typing import Protocol

from apiext.cel.charges import Charge
from apiext.cel.overloads import Implement
from apiext.cel.values import (
    NONE,
    Fault,
    Map,
    Optional,
    Uint,
    Value,
    element,
    elements,
    equal,
    is_list,
    is_map,
    no_overload,
    type_name,
)

LIST_COST, MAP_COST, OBJECT_COST = 10, 30, 40
CHECK_EVERY = 100  # turns of loops between looks at whether to go on (upstream: CheckFrequency)
CANCELLED = "operation cancelled: actual cost limit exceeded"
INTERRUPTED = "operation interrupted"


class Cancelled(Exception):
    """An evaluation that was stopped: its cost limit was reached, or it was told to stop."""


class Tracker:
    """The cost so far, and upstream's stack of values that arguments are charged by."""

    __slots__ = ("cost", "limit", "stack", "stop", "turns")

    def __init__(self, limit: int, stop: Callable[[], bool] | None) -> None:
        self.cost = 0
        self.limit = limit
        self.stack: list[tuple[int, Value]] = []
        self.stop = stop
        self.turns = 0

    def push(self, id: int, value: Value) -> None:
        """Note the value of a step."""
        self.stack.append((id, value))
        if self.cost > self.limit:
            raise Cancelled(CANCELLED)

    def drop(self, *ids: int) -> None:
        """Forget a step's value and all above it, for each step that is there."""
        stack = self.stack
        for id in ids:
            for at in range(len(stack) - 1, -1, -1):
                if stack[at][0] == id:
                    del stack[at:]
                    break

    def take(self, args: "list[Step]") -> list[Value] | None:
        """Return the values of arguments and forget them; None when one is not there."""
        stack = self.stack
        found: list[Value] = [None] * len(args)
        for number in range(len(args) - 1, -1, -1):
            wanted = args[number].id
            for at in range(len(stack) - 1, -1, -1):
                if stack[at][0] == wanted:
                    found[number] = stack[at][1]
                    del stack[at:]
                    break
            else:
                return None
        return found

    def turn(self) -> None:
        """Count a turn of a loop."""
        self.turns += 1
        if self.stop is not None and self.turns % CHECK_EVERY == 0 and self.stop():
            raise Cancelled(INTERRUPTED)


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


# Attributes: a variable, the result of a step, or a conditional, with selections and indexes


class Qualifier:
    """A selection or an index."""

    __slots__ = ("id", "optional")
    id: int
    optional: bool

    def apply(self, frame: Frame, tracker: Tracker, value: Value, if_present: bool) -> Value:
        """Return what is selected, a fault, or MISSING when it need not be there."""
        raise NotImplementedError


class _Missing:
    """The mark of what is not there."""


MISSING = _Missing()


def lookup(value: Value, key: Value, if_present: bool) -> Value:
    """Return the element, entry or field of a key."""
    if type(value) is Fault:
        return value
    if is_map(value):
        found = value.find(key)
        if type(found) is Fault:
            return found
        if found is not None:
            return found[1]
        return MISSING if if_present else Fault(f"no such key: {show(key)}")
    if is_list(value):
        index = index_of(key)
        if type(index) is Fault:
            return index
        if 0 <= index < len(value):
            return element(value, index)
        return MISSING if if_present else Fault(f"index out of bounds: {show(key)}")
    return MISSING if if_present else Fault(f"no such key: {show(key)}")


def index_of(key: Value) -> Value:
    """Return a key as an index of a list."""
    if type(key) is int:
        return key
    if type(key) is Uint and key < 1 << 63:
        return int(key)
    if type(key) is float and key == key and abs(key) < 2**63 and int(key) == key:
        return int(key)
    if type(key) in (Uint, float):
        return Fault(f"unsupported index value {show(key)} in list")
    return Fault(f"unsupported index type '{type_name(key)}' in list")


def show(value: Value) -> str:
    """Return a key as messages show it."""
    if type(value) is bool:
        return "true" if value else "false"
    if type(value) is float:
        return repr(value).removesuffix(".0")
    return str(int(value)) if type(value) is Uint else str(value)


class ByConstant(Qualifier):
    """A key that is written in the expression; with ``test``, only whether it is there."""

    __slots__ = ("key", "test")

    def __init__(self, id: int, key: Value, optional: bool, test: bool) -> None:
        self.id = id
        self.key = key
        self.optional = optional
        self.test = test

    def apply(self, frame: Frame, tracker: Tracker, value: Value, if_present: bool) -> Value:
        """Return what is selected; costs 1."""
        found = lookup(value, self.key, if_present or self.test)
        if self.test and not if_present and type(found) is not Fault:
            found = found is not MISSING
        if found is not MISSING:
            tracker.cost += 1
            tracker.push(self.id, found)
        return found


class ByAttribute(Qualifier):
    """A key that a step gives; only its own selections cost, its variable does not."""

    __slots__ = ("attribute", "drops")

    def __init__(self, id: int, attribute: "Attribute", optional: bool, drops: bool) -> None:
        self.id = id
        self.attribute = attribute
        self.optional = optional
        self.drops = drops

    def apply(self, frame: Frame, tracker: Tracker, value: Value, if_present: bool) -> Value:
        """Return what is selected; costs 1."""
        key = self.attribute.resolve(frame, tracker)
        if type(key) is Fault:
            found = key
        elif type(key) in (str, int, bool, float, Uint):
            found = lookup(value, key, if_present)
        else:
            found = Fault(f"invalid qualifier type: {type_name(key)}")
        if found is not MISSING:
            if self.drops:
                tracker.drop(self.attribute.id)
            tracker.cost += 1
            tracker.push(self.id, found)
        return found


class Attribute:
    """What a chain of selections and indexes begins with."""

    __slots__ = ("own_id", "qualifiers")

    def __init__(self, id: int) -> None:
        self.own_id = id
        self.qualifiers: list[Qualifier] = []

    @property
    def id(self) -> int:
        """Return the id of the last selection."""
        return self.qualifiers[-1].id if self.qualifiers else self.own_id

    def add(self, qualifier: Qualifier) -> None:
        """Add a selection."""
        self.qualifiers.append(qualifier)

    def resolve(self, frame: Frame, tracker: Tracker) -> Value:
        """Return the value at the end of the chain."""
        raise NotImplementedError

    def follow(self, frame: Frame, tracker: Tracker, value: Value) -> Value:
        """Return what the selections make of a value; from the first optional one on, an optional."""
        optional = type(value) is Optional
        if optional:
            if not value.present:
                return value
            value = value.value
        for qualifier in self.qualifiers:
            optional = optional or qualifier.optional
            value = qualifier.apply(frame, tracker, value, optional)
            if type(value) is Fault:
                return value
            if value is MISSING:
                return NONE
        return Optional(True, value) if optional else value


class Variable(Attribute):
    """A chain that begins with a variable."""

    __slots__ = ("name",)

    def __init__(self, id: int, name: str) -> None:
        super().__init__(id)
        self.name = name

    def resolve(self, frame: Frame, tracker: Tracker) -> Value:
        """Return the value at the end of the chain."""
        name = self.name
        if name.startswith("."):
            frame, name = frame.outermost, name[1:]
        found = frame.find(name, tracker)
        if found is None:
            return Fault(f"no such attribute(s): {name}")
        if type(found[0]) is Fault:
            return found[0]
        return self.follow(frame, tracker, found[0])


class OfStep(Attribute):
    """A chain that begins with the result of a step."""

    __slots__ = ("step",)

    def __init__(self, id: int, step: Step) -> None:
        super().__init__(id)
        self.step = step

    def resolve(self, frame: Frame, tracker: Tracker) -> Value:
        """Return the value at the end of the chain."""
        value = self.step.eval(frame, tracker)
        return value if type(value) is Fault else self.follow(frame, tracker, value)


class Conditional(Attribute):
    """A conditional; selections of its result go into both branches, and the branches' variables cost nothing."""

    __slots__ = ("condition", "no", "yes")

    def __init__(self, id: int, condition: Step, yes: Attribute, no: Attribute) -> None:
        super().__init__(id)
        self.condition = condition
        self.yes = yes
        self.no = no

    @property
    def id(self) -> int:
        """Return the id of the selection after it, its own when there is none."""
        return self.yes.id if self.yes.id == self.no.id else self.own_id

    def add(self, qualifier: Qualifier) -> None:
        """Add a selection to both branches."""
        self.yes.add(qualifier)
        self.no.add(qualifier)

    def resolve(self, frame: Frame, tracker: Tracker) -> Value:
        """Return the value of the branch that is taken."""
        chosen = self.condition.eval(frame, tracker)
        if chosen is True:
            return self.yes.resolve(frame, tracker)
        if chosen is False:
            return self.no.resolve(frame, tracker)
        return chosen if type(chosen) is Fault else no_overload()


class Access(Step):
    """The value of an attribute; with ``test``, whether it is there."""

    __slots__ = ("attribute", "test")

    def __init__(self, id: int, attribute: Attribute, test: bool = False) -> None:
        self.id = id if test else attribute.id
        self.attribute = attribute
        self.test = test

    def add(self, qualifier: Qualifier) -> None:
        """Add a selection; the step is known by the last one."""
        self.attribute.add(qualifier)
        self.id = self.attribute.id

    def eval(self, frame: Frame, tracker: Tracker) -> Value:
        """Return the value; costs 1 for the variable, nothing for a conditional or a test."""
        attribute = self.attribute
        value = attribute.resolve(frame, tracker)
        if self.test and type(value) is Optional:
            value = value.present
        if isinstance(attribute, Conditional):
            tracker.drop(attribute.no.id, attribute.yes.id, attribute.condition.id)
        else:
            tracker.drop(attribute.id)
            tracker.cost += 1
        if self.test:
            tracker.cost -= 1
        tracker.push(self.id, value)
        return value


# Logic, calls and literals


class Logic(Step):
    """&& or ||: a decided side wins over a fault of the other."""

    __slots__ = ("decides", "terms")

    def __init__(self, id: int, terms: list[Step], decides: bool) -> None:
        self.id = id
        self.terms = terms
        self.decides = decides

    def eval(self, frame: Frame, tracker: Tracker) -> Value:
        """Return the value; costs nothing itself."""
        value = self._decide(frame, tracker)
        tracker.drop(*(term.id for term in self.terms))
        tracker.push(self.id, value)
        return value

    def _decide(self, frame: Frame, tracker: Tracker) -> Value:
        fault: Fault | None = None
        for term in self.terms:
            value = term.eval(frame, tracker)
            if type(value) is bool:
                if value is self.decides:
                    return value
            elif fault is None:
                fault = value if type(value) is Fault else no_overload()
        return fault if fault is not None else not self.decides


class CallStep(Step):
    """A call of a function."""

    __slots__ = ("args", "charge", "implement", "lazy", "strict")

    def __init__(  # noqa: PLR0913
        self, id: int, args: list[Step], implement: Implement, charge: Charge | None, lazy: bool, strict: bool
    ) -> None:
        self.id = id
        self.args = args
        self.implement = implement
        self.charge = charge
        self.lazy = lazy  # the first fault ends it before further arguments are evaluated
        self.strict = strict

    def eval(self, frame: Frame, tracker: Tracker) -> Value:
        """Return the value; costs what the function's charge says."""
        value = self._call(frame, tracker)
        args = tracker.take(self.args)
        if args is not None:
            tracker.cost += 1 if self.charge is None else self.charge(args, value)
        tracker.push(self.id, value)
        return value

    def _call(self, frame: Frame, tracker: Tracker) -> Value:
        values = []
        for arg in self.args:
            value = arg.eval(frame, tracker)
            if self.lazy and type(value) is Fault:
                return value
            values.append(value)
        if self.strict:
            for value in values:
                if type(value) is Fault:
                    return value
        return self.implement(*values)


class Membership(Step):
    """``in`` a list of constants; costs nothing itself."""

    __slots__ = ("arg", "members")

    def __init__(self, id: int, arg: Step, members: frozenset[object]) -> None:
        self.id = id
        self.arg = arg
        self.members = members

    def eval(self, frame: Frame, tracker: Tracker) -> Value:
        """Return whether the value is among the constants."""
        value = self.arg.eval(frame, tracker)
        if type(value) is not Fault:
            value = is_member(value, self.members)
        tracker.push(self.id, value)
        return value


def member_key(value: Value) -> object:
    """Return what a constant is found by: numbers of all types by their size, bools apart."""
    return ("bool", value) if type(value) is bool else value


def is_member(value: Value, members: frozenset[object]) -> bool:
    """Return whether a value is among constants."""
    kind = type(value)
    if kind is bool:
        return ("bool", value) in members
    return (kind in (str, int, Uint, float) or value is None) and value in members


class OrElse(Step):
    """``or`` and ``orValue`` of optionals: the other side is only evaluated when needed; costs nothing itself."""

    __slots__ = ("one", "other", "unwraps")

    def __init__(self, id: int, one: Step, other: Step, unwraps: bool) -> None:
        self.id = id
        self.one = one
        self.other = other
        self.unwraps = unwraps

    def eval(self, frame: Frame, tracker: Tracker) -> Value:
        """Return the value of the first side that has one."""
        value = self.one.eval(frame, tracker)
        if type(value) is Optional:
            if not value.present:
                value = self.other.eval(frame, tracker)
            elif self.unwraps:
                value = value.value
        elif type(value) is not Fault:
            value = no_overload()
        tracker.push(self.id, value)
        return value


class MakeList(Step):
    """A list that is not all constants."""

    __slots__ = ("elements", "optional")

    def __init__(self, id: int, elements: list[Step], optional: frozenset[int]) -> None:
        self.id = id
        self.elements = elements
        self.optional = optional

    def eval(self, frame: Frame, tracker: Tracker) -> Value:
        """Return the list; costs 10."""
        value = self._make(frame, tracker)
        tracker.take(self.elements)
        tracker.cost += LIST_COST
        tracker.push(self.id, value)
        return value

    def _make(self, frame: Frame, tracker: Tracker) -> Value:
        made: list[Value] = []
        for at, step in enumerate(self.elements):
            value = step.eval(frame, tracker)
            if type(value) is Fault:
                return value
            if at in self.optional:
                if type(value) is not Optional:
                    return Fault(f"cannot initialize optional list element from non-optional value {show(value)}")
                if not value.present:
                    continue
                value = value.value
            made.append(value)
        return made


class MakeMap(Step):
    """A map that is not all constants."""

    __slots__ = ("entries", "optional", "parts")

    def __init__(self, id: int, entries: list[tuple[Step, Step]], optional: frozenset[int]) -> None:
        self.id = id
        self.entries = entries
        self.optional = optional
        self.parts = [step for entry in entries for step in entry]

    def eval(self, frame: Frame, tracker: Tracker) -> Value:
        """Return the map; costs 30."""
        value = self._make(frame, tracker)
        tracker.take(self.parts)
        tracker.cost += MAP_COST
        tracker.push(self.id, value)
        return value

    def _make(self, frame: Frame, tracker: Tracker) -> Value:
        made = Map()
        for at, (key_step, value_step) in enumerate(self.entries):
            key = key_step.eval(frame, tracker)
            if type(key) is Fault:
                return key
            value = value_step.eval(frame, tracker)
            if type(value) is Fault:
                return value
            if at in self.optional:
                if type(value) is not Optional:
                    return Fault(
                        f"cannot initialize optional entry '{show(key)}' from non-optional value {show(value)}"
                    )
                if not value.present:
                    made.remove(key)
                    continue
                value = value.value
            made.set(key, value)
        return made


class Loop(Step):
    """A loop over a list or map."""

    __slots__ = ("accu", "condition", "init", "over", "result", "step", "var", "var2")

    def __init__(  # noqa: PLR0913 - the eight parts of a comprehension
        self, id: int, over: Step, names: tuple[str, str, str], init: Step, condition: Step, step: Step, result: Step
    ) -> None:
        self.id = id
        self.over = over
        self.var, self.var2, self.accu = names
        self.init = init
        self.condition = condition
        self.step = step
        self.result = result

    def eval(self, frame: Frame, tracker: Tracker) -> Value:
        """Return the result; the loop costs nothing beside its parts."""
        value = self._loop(frame, tracker)
        tracker.drop(self.over.id)
        tracker.push(self.id, value)
        return value

    def _loop(self, frame: Frame, tracker: Tracker) -> Value:
        over = self.over.eval(frame, tracker)
        if type(over) is Fault:
            return over
        if not is_list(over) and not is_map(over):
            what = f"types.{type_name(over).capitalize()}"
            if self.var2:
                return Fault(f"unsupported comprehension range type: {what}")
            return Fault(f"got '{what}', expected iterable type")
        turn = Turn(self, frame)
        for first, second in _pairs(over) if self.var2 else ((value, None) for value in elements(over)):
            turn.first, turn.second = first, second
            go_on = self.condition.eval(turn, tracker)
            if go_on is False:
                break
            turn.value = self.step.eval(turn, tracker)
            turn.started = True
            tracker.turn()
        turn.ended = True
        return self.result.eval(turn, tracker)


def _pairs(over: Value) -> Iterator[tuple[Value, Value]]:
    """Yield indices and elements of a list, or keys and values of a map."""
    if is_list(over):
        yield from enumerate(elements(over))
        return
    for key in elements(over):
        found = over.find(key)
        yield key, found[1]


class Turn:
    """The variables of a loop; the accumulator's first value is made when it is read first."""

    __slots__ = ("ended", "first", "loop", "outer", "second", "started", "value")

    def __init__(self, loop: Loop, outer: Frame) -> None:
        self.loop = loop
        self.outer = outer
        self.first: Value = None
        self.second: Value = None
        self.value: Value = None
        self.started = False
        self.ended = False

    @property
    def outermost(self) -> Frame:
        """Return the frame of the variables given from outside."""
        return self.outer.outermost

    def find(self, name: str, tracker: Tracker) -> tuple[Value] | None:
        """Return the value of a name."""
        loop = self.loop
        if name == loop.accu:
            if not self.started:
                self.started = True
                self.value = loop.init.eval(self.outer, tracker)
            return (self.value,)
        if not self.ended:
            if name == loop.var:
                return (self.first,)
            if loop.var2 and name == loop.var2:
                return (self.second,)
        return self.outer.find(name, tracker)


def not_equal(one: Value, other: Value) -> Value:
    """Return whether two values differ; values that cannot be compared do."""
    return equal(one, other) is not True
