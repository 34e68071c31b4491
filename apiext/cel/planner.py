"""Plan the steps of a checked expression, and fold constants as upstream does.

A step computes the value of one node (evaluation.py). An Access is the step of a chain of selections, such as
``self.a[0].b`` (attributes.py). The interpreter runs the steps; generate.py creates Python code from them.
"""

from collections.abc import Callable, Mapping
from typing import Any

from apiext.cel.ast import Call, Fold, Ident, ListOf, Literal, MapOf, Node, ObjectOf, Select
from apiext.cel.attributes import (
    QUALIFYING,
    Access,
    Attribute,
    ByAttribute,
    ByConstant,
    ByField,
    Conditional,
    OfStep,
    Qualifier,
    Variable,
)
from apiext.cel.base import UNDEFINED, Base
from apiext.cel.checker import Checked
from apiext.cel.constructed import unknown
from apiext.cel.costs import one
from apiext.cel.evaluation import Constant, Step, constant
from apiext.cel.go_values import go_type
from apiext.cel.overloads import Implement, Overload
from apiext.cel.plan import (
    CallStep,
    Logic,
    Loop,
    MakeList,
    MakeMap,
    MakeObject,
    Membership,
    OrElse,
    grow_list,
    grow_map,
    grow_map_by,
    member_key,
    not_equal,
)
from apiext.cel.regexes import PatternError, program
from apiext.cel.values import Broken, Fault, Uint, Value, equal, is_unknown, no_overload, type_name
from apiext.cel.well_known import CONSTANTS

CONVERSIONS = frozenset(("bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"))
PATTERNED = frozenset(("find", "findAll", "matches"))


class Unplannable(Exception):
    """The error of an expression that cannot be planned, such as a failing constant.

    The text is upstream's.
    """


def plan(checked: Checked, base: Base) -> Step:
    """Return the steps of an expression.

    Raise Unplannable, for example for a constant part that fails.
    """
    return _Planner(checked, base).step(checked.root)


class _Planner:
    def __init__(self, checked: Checked, base: Base) -> None:
        self.checked = checked
        self.base = base

    def step(self, node: Node) -> Step:
        return _STEPS[type(node)](self, node)

    def literal(self, node: Literal) -> Step:
        return Constant(node.id, node.value)

    def ident(self, node: Ident) -> Step:
        named = self.checked.constants.get(node.id)
        if named is not None:
            if node.name in UNDEFINED or node.name not in self.base.type_names:
                raise Unplannable(f"reference to undefined type: {node.name}")
            return Constant(node.id, named)
        if node.name in CONSTANTS and self.checked.names.get(node.id) == node.name:
            return Constant(node.id, CONSTANTS[node.name])
        if self.checked.types[node.id].kind == "type":
            # as upstream, a loop variable whose values are types is an error, too
            raise Unplannable(f"reference to undefined type: {node.name}")
        return Access(node.id, Variable(node.id, node.name))

    def fold(self, node: Fold) -> Step:
        over = self.step(node.over)
        init = self.step(node.init)
        condition, step, result = self.step(node.condition), self.step(node.step), self.step(node.result)
        if isinstance(init, Constant) and (isinstance(node.init, (ListOf, MapOf))):
            gather(step, node.accu)
        return Loop(node.id, over, (node.var, node.var2, node.accu), init, condition, step, result)

    def attribute(self, step: Step) -> Access:
        """Return a step as an Access, to which the caller can add selections."""
        return step if isinstance(step, Access) else Access(step.id, OfStep(step.id, step))

    def select(self, node: Select) -> Step:
        access = self.attribute(self.step(node.operand))
        operand = self.checked.types[node.operand.id]
        shape = self.base.shape(operand.name) if operand.kind == "object" else None
        if shape is not None and shape.fields is None:
            access.add(ByField(node.id, node.field, node.test))
        else:
            access.add(ByConstant(node.id, node.field, False, node.test))
        return Access(node.id, access.attribute, True) if node.test else access

    def may_be_optional(self, access: Access) -> bool:
        """Return whether the result of a chain of selections may be an optional value."""
        qualifiers = access.attribute.qualifiers
        ids = [access.attribute.own_id, *(qualifier.id for qualifier in qualifiers[:-1])]
        kinds = ("opaque", "dyn", "parameter")
        return any(qualifier.optional for qualifier in qualifiers) or any(
            self.checked.types[id].kind in kinds for id in ids
        )

    def call(self, node: Call) -> Step:
        args = [self.step(arg) for arg in node.all_args()]
        name = node.function
        if name in ("_&&_", "_||_"):
            return Logic(node.id, args, name == "_||_")
        if name == "_?_:_":
            yes, no = (arg.attribute if isinstance(arg, Access) else OfStep(arg.id, arg) for arg in args[1:])
            if any(isinstance(arg, Access) and arg.test and self.may_be_optional(arg) for arg in args[1:]):
                self.checked.loose = True  # as upstream, a has() as a branch may return an optional, not a boolean
            return Access(node.id, Conditional(node.id, args[0], yes, no))
        if name in ("_[_]", "_[?_]", "_?._"):
            return self.index(node, args, name != "_[_]")
        if name in ("or", "orValue") and len(args) == 2:
            return OrElse(node.id, args[0], args[1], name == "orValue")
        return self.function(node, args)

    def index(self, node: Call, args: list[Step], optional: bool) -> Step:
        access = self.attribute(args[0])
        key = args[1]
        qualifier: Qualifier
        if isinstance(key, Constant):
            if type(key.value) not in QUALIFYING:
                raise Unplannable(f"invalid qualifier type: {go_type(key.value)}")
            qualifier = ByConstant(node.id, key.value, optional, False)
        elif isinstance(key, Access):
            qualifier = ByAttribute(node.id, key.attribute, optional, False)
        else:
            attribute: Attribute = OfStep(node.id, key)
            qualifier = ByAttribute(node.id, attribute, optional, True)
        access.add(qualifier)
        return access

    def function(self, node: Call, args: list[Step]) -> Step:
        name = node.function
        overloads = self.checked.calls.get(node.id, ())
        single = overloads[0] if len(overloads) == 1 else None
        overload = single.id if single is not None else ""
        known = self.base.functions.get(name)
        charge = single.cost.charge if single is not None else one if known is None else known.charge
        implement: Implement
        if name == "_==_":
            implement, overload = equal, "equals"
        elif name == "_!=_":
            implement, overload = not_equal, "not_equals"
        elif single is not None:
            implement = guarded(single)
        else:
            implement = dispatched(name, known.overloads if known is not None else ())
        lazy = len(args) > 2 or (single is not None and single.lazy)
        if not overload and (known is None or not known.singleton):
            lazy = True  # a call whose overload depends on the values ends at its first fault
        if overload == "in_list" and isinstance(args[1], Constant):
            found = self.membership(node, args[0], args[1].value)
            if found is not None:
                return found
        pattern = args[1] if name in PATTERNED and len(args) > 1 else None
        if isinstance(pattern, Constant) and type(pattern.value) is str:
            try:
                program(pattern.value)
            except PatternError as wrong:
                raise Unplannable(str(wrong)) from None
            lazy, implement = True, patterned(implement)
        made = CallStep(node.id, name, args, implement, None if charge is one else charge)
        made.lazy, made.strict, made.overload = lazy, name != "@not_strictly_false", overload
        made.result = single.result.kind if single is not None else "dyn"
        if name in CONVERSIONS and len(args) == 1 and isinstance(args[0], Constant):
            value = constant(made)
            if type(value) is Fault:
                raise Unplannable(value.message)
            return Constant(node.id, value)
        return made

    def membership(self, node: Call, arg: Step, values: Value) -> Step | None:
        if not values:
            return Constant(node.id, False)
        if any(type(value) not in (str, int, Uint, float, bool) and value is not None for value in values):
            return None
        return Membership(node.id, arg, frozenset(member_key(value) for value in values))

    def list_of(self, node: ListOf) -> Step:
        steps = [self.step(element) for element in node.elements]
        made = MakeList(node.id, steps, node.optional)
        return self.folded(made, steps)

    def map_of(self, node: MapOf) -> Step:
        entries = [(self.step(entry.key), self.step(entry.value)) for entry in node.entries]
        optional = frozenset(at for at, entry in enumerate(node.entries) if entry.optional)
        made = MakeMap(node.id, entries, optional)
        return self.folded(made, made.parts)

    def object_of(self, node: ObjectOf) -> Step:
        name = node.type_name.removeprefix(".")
        shape = self.base.shape(name)
        fields = [(str(getattr(entry.key, "value", "")), self.step(entry.value)) for entry in node.fields]
        optional = frozenset(at for at, entry in enumerate(node.fields) if entry.optional)
        return MakeObject(node.id, name, fields, optional, unknown if shape is None else shape.make)

    def folded(self, made: Step, parts: list[Step]) -> Step:
        """Return a literal as a constant if all its parts are constant."""
        if not all(isinstance(part, Constant) for part in parts):
            return made
        try:
            return Constant(made.id, constant(made))
        except Broken as wrong:
            raise Unplannable(f"internal error: {wrong}") from None


GROW: dict[tuple[str, int], Implement] = {
    ("_+_", 2): grow_list,
    ("cel.@mapInsert", 3): grow_map,
    ("cel.@mapInsert", 2): grow_map_by,
}
"""(function, number of arguments) → an implementation that changes its first argument in place."""


_STEPS: Mapping[type[Node], Callable[[_Planner, Any], Step]] = {
    Literal: _Planner.literal,
    Ident: _Planner.ident,
    Select: _Planner.select,
    Call: _Planner.call,
    Fold: _Planner.fold,
    ListOf: _Planner.list_of,
    MapOf: _Planner.map_of,
    ObjectOf: _Planner.object_of,
}


def gather(step: Step, accu: str) -> None:
    """Change the step of a loop so that it extends the accumulator in place.

    Without the change, each iteration copies the accumulator.
    """
    if isinstance(step, Access) and isinstance(step.attribute, Conditional):
        branch = step.attribute.yes
        step = branch.step if isinstance(branch, OfStep) else step
    if isinstance(step, CallStep):
        first = step.args[0] if step.args else None
        grow = GROW.get((step.function, len(step.args)))
        own = first.attribute if isinstance(first, Access) else None
        if grow is not None and isinstance(own, Variable) and own.name == accu and not own.qualifiers:
            step.implement = grow


def guarded(overload: Overload) -> Implement:
    """Return a function that checks its arguments' types and calls the overload's function.

    For other types, the returned function returns upstream's fault. The function of an operator is returned unchanged,
    since it checks the types itself.
    """
    run, name = overload.implement, overload.function
    if not any(overload.wanted) or name[0] in "_-!@":
        return run

    def call(*values: Value) -> Value:
        return run(*values) if overload.takes(values) else unfit(name, values)

    return call


def dispatched(name: str, overloads: tuple[Overload, ...]) -> Implement:
    """Return a function that selects the overload by the types of its arguments.

    For an operator, return the function of the first overload, since all its overloads have this function.
    """
    if overloads and name[0] in "_-!@":
        return overloads[0].implement

    def call(*values: Value) -> Value:
        for overload in overloads:
            if len(overload.args) == len(values) and overload.takes(values):
                return overload.implement(*values)
        return unfit(name, values)

    return call


def patterned(run: Implement) -> Implement:
    """Return a function that calls ``run`` if its first argument is a string.

    For another argument, the function returns a fault. A string in data without a declared type counts as a string.
    """

    def call(text: Value, *rest: Value) -> Value:
        if is_unknown(text):
            text = text.raw
        return run(text, *rest) if type(text) is str else no_overload()

    return call


def unfit(name: str, values: tuple[Value, ...]) -> Fault:
    """Return the fault of a call that no overload accepts."""
    return Fault(f"no such overload: {name}({', '.join(type_name(value) for value in values)})")
