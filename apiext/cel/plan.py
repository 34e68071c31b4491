"""The steps that evaluate an expression, with their costs, as in upstream's interpreter.

A step evaluates one node of the expression. It reads variables from a frame, and reports its value and its cost to a
tracker (evaluation.py). A fault is the result of a failed evaluation, instead of a value. The steps are slow, but exact
in values, faults and costs. The module ``generate`` creates fast code with equal results.
"""

from collections.abc import Iterator

from apiext.cel.constructed import Make
from apiext.cel.costs import Charge
from apiext.cel.evaluation import Frame, Step, Tracker
from apiext.cel.go_values import go_type, show
from apiext.cel.overloads import Implement
from apiext.cel.ranges import LIST_COST, MAP_COST, OBJECT_COST
from apiext.cel.values import (
    NIL,
    Broken,
    Fault,
    Map,
    Optional,
    Uint,
    Value,
    View,
    elements,
    equal,
    is_list,
    is_map,
    is_unknown,
    no_overload,
    type_name,
)


class Logic(Step):
    """The operator ``&&`` or ``||``.

    An operand with the value ``decides`` takes precedence over a fault.
    """

    __slots__ = ("decides", "terms")

    def __init__(self, id: int, terms: list[Step], decides: bool) -> None:
        self.id = id
        self.terms = terms
        self.decides = decides

    def eval(self, frame: Frame, tracker: Tracker) -> Value:
        """Return the value; the operator itself has no cost."""
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

    __slots__ = ("args", "charge", "function", "implement", "lazy", "overload", "result", "strict")

    def __init__(self, id: int, function: str, args: list[Step], implement: Implement, charge: Charge | None) -> None:
        self.id = id
        self.function = function
        self.args = args
        self.implement = implement
        self.charge = charge
        self.lazy = False  # if true, an argument that is a fault ends the call before the next argument is evaluated
        self.strict = True  # if true, a fault among the arguments is the result of the call
        self.overload = ""  # id of the overload, or "" if only the values determine it
        self.result = "dyn"  # kind of the result's type

    def eval(self, frame: Frame, tracker: Tracker) -> Value:
        """Return the value, and add the cost of the function."""
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
    """The operator ``in`` for a list of constants; it has no cost."""

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
    """Return the element that stands for a constant in a set.

    Equal numbers of different types have equal elements. The element of a boolean never equals that of a number.
    """
    return ("bool", value) if type(value) is bool else value


def is_member(value: Value, members: frozenset[object]) -> bool:
    """Return whether a value is one of the constants."""
    kind = type(value)
    if kind is bool:
        return ("bool", value) in members
    return (kind in (str, int, Uint, float) or value is None) and value in members


class OrElse(Step):
    """The functions ``or`` and ``orValue`` of optionals; they have no cost.

    The second operand is evaluated only if the first is an empty optional.
    """

    __slots__ = ("one", "other", "unwraps")

    def __init__(self, id: int, one: Step, other: Step, unwraps: bool) -> None:
        self.id = id
        self.one = one
        self.other = other
        self.unwraps = unwraps

    def eval(self, frame: Frame, tracker: Tracker) -> Value:
        """Return the first operand if it has a value, else the second operand."""
        value = self.one.eval(frame, tracker)
        if type(value) is Optional:
            if not value.present:
                value = self.other.eval(frame, tracker)
            elif self.unwraps:
                value = value.value
        elif type(value) is not Fault and not is_unknown(value):
            value = no_overload()
        tracker.push(self.id, value)
        return value


class _Literal(Step):
    """A list, map or object literal; some of its parts may be optional."""

    __slots__ = ("optional", "parts")

    cost = 0

    def __init__(self, id: int, parts: list[Step], optional: frozenset[int]) -> None:
        self.id = id
        self.parts = parts
        self.optional = optional

    def eval(self, frame: Frame, tracker: Tracker) -> Value:
        """Return the list, map or object, or the fault of the first part that fails."""
        value = self._make(frame, tracker)
        tracker.take(self.parts)
        tracker.cost += self.cost
        tracker.push(self.id, value)
        return value

    def _make(self, frame: Frame, tracker: Tracker) -> Value:
        raise NotImplementedError


class MakeList(_Literal):
    """A list literal with parts that are not constant."""

    __slots__ = ()

    cost = LIST_COST

    def _make(self, frame: Frame, tracker: Tracker) -> Value:
        made: list[Value] = []
        for at, step in enumerate(self.parts):
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


class MakeMap(_Literal):
    """A map literal with parts that are not constant."""

    __slots__ = ("entries",)

    cost = MAP_COST

    def __init__(self, id: int, entries: list[tuple[Step, Step]], optional: frozenset[int]) -> None:
        super().__init__(id, [step for entry in entries for step in entry], optional)
        self.entries = entries

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


class MakeObject(_Literal):
    """An object literal."""

    __slots__ = ("fields", "make", "type_name")

    cost = OBJECT_COST

    def __init__(
        self, id: int, type_name: str, fields: list[tuple[str, Step]], optional: frozenset[int], make: Make
    ) -> None:
        super().__init__(id, [step for _, step in fields], optional)
        self.type_name = type_name
        self.fields = fields
        self.make = make

    def _make(self, frame: Frame, tracker: Tracker) -> Value:
        made: dict[str, Value] = {}
        for at, (name, step) in enumerate(self.fields):
            value = step.eval(frame, tracker)
            if type(value) is Fault:
                return value
            if at in self.optional:
                if type(value) is not Optional:
                    return Fault(f"cannot initialize optional entry '{name}' from non-optional value {show(value)}")
                if not value.present:
                    made.pop(name, None)
                    continue
                value = value.value
            made[name] = value
        return self.make(self.type_name, made)


class Loop(Step):
    """A loop over a list or map."""

    __slots__ = ("accu", "condition", "init", "over", "result", "step", "var", "var2")

    def __init__(
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
        """Return the result; the cost is the sum of the costs of its parts."""
        value = self._loop(frame, tracker)
        tracker.drop(self.over.id)
        tracker.push(self.id, value)
        return value

    def _loop(self, frame: Frame, tracker: Tracker) -> Value:
        over = self.over.eval(frame, tracker)
        if type(over) is Fault:
            return over
        if not is_list(over) and not is_map(over):
            what = go_type(over)
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
        turn.ended = True
        return self.result.eval(turn, tracker)


def _pairs(over: Value) -> Iterator[tuple[Value, Value]]:
    """Yield (index, element) of a list, or (key, value) of a map."""
    if is_list(over):
        yield from enumerate(elements(over))
        return
    for key in elements(over):
        yield key, entry(over, key)


def entry(values: Value, key: Value) -> Value:
    """Return the value of a key of a map or an object; ``key`` is one of ``elements(values)``.

    Return a fault if the value is invalid, or if it is a null field of an object, which counts as missing.
    """
    found = values.find(key)
    if type(found) is Fault:
        return found
    return Fault(f"no such key: {show(key)}") if found is None else found[1]


class Turn:
    """The variables of a loop; the initial value of the accumulator is evaluated at first use."""

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
        """Return the outermost frame: that of the variables of the whole expression."""
        return self.outer.outermost

    def find(self, name: str, tracker: Tracker) -> tuple[Value] | None:
        """Return a tuple with the value of a name, or None if the name is unknown."""
        loop = self.loop
        if name == loop.accu:
            if not self.started:
                self.started = True
                self.value = unshared(loop.init.eval(self.outer, tracker))
            return (self.value,)
        if not self.ended:
            if name == loop.var:
                return (self.first,)
            if loop.var2 and name == loop.var2:
                return (self.second,)
        return self.outer.find(name, tracker)


def not_equal(one: Value, other: Value) -> Value:
    """Return whether two values differ; values that cannot be compared differ."""
    return equal(one, other) is not True


def unshared(value: Value) -> Value:
    """Return a new object for an empty list or map, so that a loop may change it in place."""
    if type(value) is list and not value:
        return []
    return Map() if type(value) is Map and not value.entries else value


def grow_list(values: Value, more: Value) -> Value:
    """Append elements to the list that a loop builds; this changes the list in place.

    The expansion of the loop's macro has created the list, so no other value refers to it.
    """
    values.extend(more)
    return values


def grow_map(into: Value, key: Value, value: Value) -> Value:
    """Add an entry to the map that a loop builds; return a fault if the map has the key."""
    if into.find(key) is not None:
        return Fault(f"insert failed: key {show(key)} already exists")
    into.set(key, value)
    return into


def grow_map_by(into: Value, entries: Value) -> Value:
    """Add the entries of a map to the map that a loop builds.

    Return the fault of the first entry that fails. Raise Broken where upstream panics.
    """
    if not is_map(entries):
        return Fault(f"no such overload: cel.@mapInsert(map, {type_name(entries)})")
    for key in elements(entries):
        if key is None and isinstance(entries, View) and not len(into):
            raise Broken(NIL)
        found = grow_map(into, key, entry(entries, key))
        if type(found) is Fault:
            return found
    return into
