"""Attributes: chains of selections and indexes, such as ``self.spec.items[0]``.

A chain begins with a variable, a result or a conditional. A step (evaluation.Step) evaluates a node of the expression.
A frame finds variables. A tracker counts the cost, and has a stack of values, since the cost of a call depends on its
arguments.
"""

import math
from collections.abc import Mapping

from apiext.cel.constructed import Patch, field
from apiext.cel.escaping import unescape
from apiext.cel.evaluation import Frame, Step, Tracker
from apiext.cel.go_values import go_type, show
from apiext.cel.values import (
    NONE,
    Fault,
    Optional,
    Special,
    Uint,
    Value,
    element,
    is_list,
    is_map,
    no_overload,
    type_name,
)
from apiext.cel.views import ListView


class Qualifier:
    """A selection or an index."""

    __slots__ = ("id", "optional")
    id: int
    optional: bool

    def apply(self, frame: Frame, tracker: Tracker, value: Value, if_present: bool) -> Value:
        """Return the selected value, or a fault.

        If ``if_present`` is true, return MISSING for a missing value.
        """
        raise NotImplementedError


class _Missing:
    """The type of MISSING, which marks a missing field or element."""


MISSING = _Missing()


class ElementFault(Fault):
    """A fault that is an element of a list: it counts as a value until an operation uses it."""

    __slots__ = ()
    go_type = "*types.Err"


QUALIFYING = frozenset((str, int, bool, float, Uint))  # types of values that can select or index


def lookup(value: Value, key: Value, if_present: bool) -> Value:
    """Return the element, entry or field for a key.

    If it is missing, return MISSING if ``if_present`` is true, else a fault.
    """
    if isinstance(value, Fault):
        return Fault(value.message)
    if is_map(value) or type(value) is Composed:
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
        if type(key) is not int and isinstance(value, ListView) and 0 <= index < len(value):
            return Fault(f"unsupported index: {show(key)}")
        if 0 <= index < len(value):
            held = element(value, index)
            return ElementFault(held.message) if type(held) is Fault else held
        return MISSING if if_present else Fault(f"index out of bounds: {show(key)}")
    if type(value) is Patch:
        there = not if_present or value.has(key)
        return value.find(key) if there is True else MISSING if there is False else there
    return MISSING if if_present else Fault(f"no such key: {show(key)}")


def index_of(key: Value) -> Value:
    """Return a key as the index of a list, or a fault."""
    if type(key) is int:
        return key
    if type(key) is Uint and key < 1 << 63:
        return int(key)
    if type(key) is float and not math.isnan(key) and abs(key) < 2**63 and int(key) == key:
        return int(key)
    if type(key) in (Uint, float):
        return Fault(f"unsupported index value {show(key)} in list")
    return Fault(f"unsupported index type '{type_name(key)}' in list")


class ByConstant(Qualifier):
    """A selection by a constant key; if ``test`` is true, a test whether the key exists."""

    __slots__ = ("key", "test")

    def __init__(self, id: int, key: Value, optional: bool, test: bool) -> None:
        self.id = id
        self.key = key
        self.optional = optional
        self.test = test

    def apply(self, frame: Frame, tracker: Tracker, value: Value, if_present: bool) -> Value:
        """Return the selected value.

        The cost is 1, but 0 if ``if_present`` is true and there is no value.
        """
        found: Value = lookup(value, self.key, if_present or self.test)
        if self.test and not if_present and type(found) is not Fault:
            found = found is not MISSING
        if found is not MISSING and not (if_present and type(found) is Fault):
            tracker.cost += 1
            tracker.push(self.id, found)
        return found


class ByField(Qualifier):
    """The selection of a field of an open object (see ``constructed``).

    Upstream looks this field up in Go data. If ``test`` is true, it is a test whether the field exists.
    """

    __slots__ = ("key", "test")

    def __init__(self, id: int, key: str, test: bool) -> None:
        self.id = id
        self.key = key
        self.optional = False
        self.test = test

    def apply(self, frame: Frame, tracker: Tracker, value: Value, if_present: bool) -> Value:
        """Return the selected value, or null if it is missing; the cost is 1.

        No optional selection precedes this selection.
        """
        found = read_field(value, self.key, self.test)
        tracker.cost += 1
        tracker.push(self.id, found)
        return found


def read_field(value: Value, name: str, test: bool) -> Value:
    """Return a field of an open object; if ``test`` is true, return whether the field exists."""
    found = field(value, name)
    there = type(found) is tuple
    if test:
        return there
    return found[0] if type(found) is tuple else found


class ByAttribute(Qualifier):
    """A selection by the value of another attribute: ``b.c`` in ``a[b.c]``.

    The cost includes the selections of the other attribute, but not its variable. If ``drops`` is true, the value of
    the other attribute is removed from the stack of the tracker.
    """

    __slots__ = ("attribute", "drops")

    def __init__(self, id: int, attribute: "Attribute", optional: bool, drops: bool) -> None:
        self.id = id
        self.attribute = attribute
        self.optional = optional
        self.drops = drops

    def apply(self, frame: Frame, tracker: Tracker, value: Value, if_present: bool) -> Value:
        """Return the selected value.

        The cost is 1, but 0 if ``if_present`` is true and there is no value.
        """
        key = self.attribute.resolve(frame, tracker)
        found: Value
        if type(key) is Fault:
            found = key
        elif type(key) in QUALIFYING:
            found = lookup(value, key, if_present)
        else:
            found = Fault(f"invalid qualifier type: {go_type(key)}")
        if found is not MISSING and not (if_present and type(found) is Fault):
            if self.drops:
                tracker.drop(self.attribute.id)
            tracker.cost += 1
            tracker.push(self.id, found)
        return found


class Attribute:
    """A chain of selections and indexes."""

    __slots__ = ("own_id", "qualifiers")

    def __init__(self, id: int) -> None:
        self.own_id = id
        self.qualifiers: list[Qualifier] = []

    @property
    def id(self) -> int:
        """Return the id of the last selection, or the attribute's own id if there is no selection."""
        return self.qualifiers[-1].id if self.qualifiers else self.own_id

    def add(self, qualifier: Qualifier) -> None:
        """Add a selection."""
        self.qualifiers.append(qualifier)

    def resolve(self, frame: Frame, tracker: Tracker) -> Value:
        """Return the value at the end of the chain."""
        raise NotImplementedError

    def follow(self, frame: Frame, tracker: Tracker, value: Value) -> Value:
        """Apply the selections to a value.

        The result is an optional if the value or a selection is optional.
        """
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
        if optional:
            return Optional(True, Fault(value.message) if type(value) is ElementFault else value)
        return value


class Variable(Attribute):
    """A chain that starts with a variable."""

    __slots__ = ("name",)

    def __init__(self, id: int, name: str) -> None:
        super().__init__(id)
        self.name = name

    def resolve(self, frame: Frame, tracker: Tracker) -> Value:
        """Return the value at the end of the chain."""
        name, cost = self.name, None
        if name.startswith("."):
            frame, name, cost = frame.outermost, name[1:], tracker.cost
        found = frame.find(name, tracker)
        if found is None:
            return Fault(f"no such attribute(s): {name}")
        if type(found[0]) is Fault:
            return found[0]
        made = self.follow(frame, tracker, found[0])
        if cost is not None:
            tracker.cost = cost  # upstream does not count selections from a variable with a leading dot
        return made


class OfStep(Attribute):
    """A chain that starts with the result of a step."""

    __slots__ = ("step",)

    def __init__(self, id: int, step: Step) -> None:
        super().__init__(id)
        self.step = step

    def resolve(self, frame: Frame, tracker: Tracker) -> Value:
        """Return the value at the end of the chain."""
        value = self.step.eval(frame, tracker)
        return value if type(value) is Fault else self.follow(frame, tracker, value)


class Conditional(Attribute):
    """A chain that starts with a conditional.

    The selections apply to both branches. The variables of the branches have no cost.
    """

    __slots__ = ("condition", "no", "yes")

    def __init__(self, id: int, condition: Step, yes: Attribute, no: Attribute) -> None:
        super().__init__(id)
        self.condition = condition
        self.yes = yes
        self.no = no

    @property
    def id(self) -> int:
        """Return the id of the last selection, or the conditional's own id if it has no selection."""
        return self.yes.id if self.yes.id == self.no.id else self.own_id

    def add(self, qualifier: Qualifier) -> None:
        """Add a selection to both branches."""
        self.yes.add(qualifier)
        self.no.add(qualifier)

    def resolve(self, frame: Frame, tracker: Tracker) -> Value:
        """Return the value of the branch that the condition selects."""
        chosen = self.condition.eval(frame, tracker)
        if chosen is True:
            return self.yes.resolve(frame, tracker)
        if chosen is False:
            return self.no.resolve(frame, tracker)
        return chosen if type(chosen) is Fault else no_overload()


class Access(Step):
    """The step that reads an attribute.

    If ``test`` is true, it tests whether the attribute exists.
    """

    __slots__ = ("attribute", "test")

    def __init__(self, id: int, attribute: Attribute, test: bool = False) -> None:
        self.id = id if test else attribute.id
        self.attribute = attribute
        self.test = test

    def add(self, qualifier: Qualifier) -> None:
        """Add a selection; its id becomes the id of the step."""
        self.attribute.add(qualifier)
        self.id = self.attribute.id

    def eval(self, frame: Frame, tracker: Tracker) -> Value:
        """Return the value.

        The step adds 1 to the cost of the selections, but 0 for a conditional; a test costs 1 less.
        """
        attribute = self.attribute
        value = attribute.resolve(frame, tracker)
        if type(value) is ElementFault:
            value = Fault(value.message)
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


VARIABLES = "kubernetes.variables"


class Composed(Special):
    """The composed variables of a policy: name → value, or the fault of a failed evaluation.

    Expressions can select its fields, but it is not a map.
    """

    __slots__ = ("values",)
    type_name = VARIABLES
    go_type = "*lazy.MapValue"

    def __init__(self, values: Mapping[str, Value]) -> None:
        self.values = values

    def find(self, key: Value) -> tuple[Value, Value] | Fault | None:
        """Return (key, variable).

        Return None for an unknown variable, or a fault for a key that is not a string. As upstream, look the variable
        up by its unescaped name.
        """
        if type(key) is not str:
            return no_overload()
        name = unescape(key)
        return (key, self.values[name]) if name is not None and name in self.values else None

    def same(self, other: Value) -> bool | Fault:
        """Return whether both values are the same object."""
        return self is other if type(other) is Composed else no_overload()
