"""Estimate the minimal and maximal cost of an expression from its types and declared sizes.

A size is the number of characters, elements or entries of a value. Costs and sizes are ranges: (minimum, maximum). The
path of a value is the variable and the fields that lead to the value. The estimator takes the size of a value from the
expression itself, or from the declared type at the path. ``Entries`` are the sizes of the keys and values of a list or
map.
"""

from collections.abc import Callable, Mapping
from typing import Any

from apiext.cel.ast import Call, Fold, Ident, ListOf, Literal, MapOf, Node, ObjectOf, Select
from apiext.cel.builder import ACCUMULATOR
from apiext.cel.checker import Checked
from apiext.cel.declared import Declared
from apiext.cel.overloads import Overload
from apiext.cel.ranges import (
    LIST_COST,
    MAP_COST,
    MOST,
    NOWHERE,
    OBJECT_COST,
    ONE,
    UNKNOWN,
    CallCost,
    CallSizes,
    Entries,
    Part,
    Path,
    Range,
    add,
    multiply,
    union,
)
from apiext.cel.types import is_scalar


class Local:
    """The path and the sizes of a loop variable or accumulator."""

    __slots__ = ("entries", "path", "size")

    def __init__(self, path: Path, size: Range | None, entries: Entries | None) -> None:
        self.path = path
        self.size = size
        self.entries = entries


class Estimator:
    """The estimator of one expression.

    As in upstream, the first field of each path is a field of the type ``root``, also if its variable has another type.
    """

    def __init__(self, checked: Checked, root: Declared | None) -> None:
        self.checked = checked
        self.types = checked.types
        self.root = root
        self.paths: dict[int, Path] = {}
        self.locals: dict[str, list[Local]] = {}
        self.sizes: dict[int, Range] = {}
        self.entries: dict[int, Entries] = {}

    def run(self) -> Range:
        """Return the range of the expression's cost."""
        return self.cost(self.checked.root)

    # Sizes

    def declared_size(self, path: Path) -> Range | None:
        """Return the declared size of the value at a path, or None if it is unknown."""
        if not path.length or self.root is None:
            return None
        declared: Declared | None = self.root
        steps = path.steps()
        for name in steps[1:]:
            assert declared is not None
            if name in ("@items", "@values"):
                declared = declared.element
            elif name == "@keys":
                # keys have no declared maximum; as upstream, the estimate assumes a size of 0 for a key
                return (0, 0) if declared.kind == "map" and steps[-1] == "@keys" else None
            else:
                declared = declared.fields.get(name)
            if declared is None:
                return None
        return 0, declared.max_elements if declared is not None else 0

    def path(self, node: Node) -> Path:
        if type(node) is Ident:
            local = self.locals.get(node.name)
            if local:
                return local[-1].path
        return self.paths.get(node.id, NOWHERE)

    def size(self, node: Node) -> Range | None:
        """Return the size of a node's value, or None if it is unknown."""
        known = self.sizes.get(node.id)
        if known is not None:
            return known
        written = _written_size(node)
        if written is not None:
            return written
        declared = self.declared_size(self.path(node))
        if declared is not None:
            self.sizes[node.id] = declared
            return declared
        if is_scalar(self.types[node.id]):
            return ONE
        if type(node) is Ident:
            local = self.locals.get(node.name)
            if local:
                return local[-1].size
        return None

    def size_or_unknown(self, node: Node) -> Range:
        return self.size(node) or UNKNOWN

    def entry_sizes(self, node: Node) -> Entries | None:
        known = self.entries.get(node.id)
        if known is None and type(node) is Ident:
            local = self.locals.get(node.name)
            if local:
                return local[-1].entries
        return known

    def part(self, node: Node) -> Part:
        path = self.path(node)
        if path.length and path.cells[0] in (ACCUMULATOR, "__result__"):
            path = NOWHERE
        literal = node.value if isinstance(node, Literal) else None
        return Part(path, self.types[node.id], self.size(node), literal)

    def part_size(self, part: Part) -> Range:
        """Return the size of an argument for the cost of a Kubernetes function.

        This is the size that was recorded for the argument, else its declared size, else UNKNOWN.
        """
        if part.size is not None:
            return part.size
        return self.declared_size(part.path) or UNKNOWN

    # Costs

    def cost(self, node: Node) -> Range:
        estimate = _COSTS.get(type(node))
        return (0, 0) if estimate is None else estimate(self, node)

    def ident(self, node: Ident) -> Range:
        local = self.locals.get(node.name)
        self.paths[node.id] = local[-1].path if local else Path([node.name], 1)
        return ONE

    def object_of(self, node: ObjectOf) -> Range:
        total = (OBJECT_COST, OBJECT_COST)
        for field in node.fields:
            total = add(total, self.cost(field.value))
        return total

    def select(self, node: Select) -> Range:
        total = self.cost(node.operand)
        if node.test:
            return total
        if self.types[node.operand.id].kind in ("map", "object", "parameter"):
            total = add(total, ONE)
        self.paths[node.id] = self.path(node.operand).then(node.field)
        return total

    def call(self, node: Call) -> Range:
        if node.function == "dyn":
            inner = add(ONE, self.cost(node.args[0]))
            self.copy_sizes(node, node.args[0])
            return inner
        costs = []
        parts = []
        for arg in node.args:
            costs.append(self.cost(arg))
            parts.append(self.part(arg))
        overloads = self.checked.calls.get(node.id, ())
        if not overloads:
            return 0, 0
        total: Range = (0, 0)
        target = None
        if node.target is not None:
            total = self.cost(node.target)
            target = self.part(node.target)
        found: Range = (MOST, 0)
        size: Range | None = None
        for overload in overloads:
            cost, result = self.function(node, overload, target, parts, costs)
            found = union(found, cost)
            if result is not None:
                size = result if size is None else union(size, result)
            if overload.id in ("index_list", "index_map"):
                entries = self.entry_sizes(node.args[0])
                size = entries.value if entries is not None else None
                step = "@items" if overload.id == "index_list" else "@values"
                self.paths[node.id] = self.path(node.args[0]).then(step)
            if size is None:
                size = self.size(node)
        if size is not None:
            self.sizes[node.id] = size
        return add(total, found)

    def function(
        self, node: Call, overload: Overload, target: Part | None, parts: list[Part], costs: list[Range]
    ) -> CallCost:
        """Return (cost of an overload with its arguments, size of its result or None).

        The cost does not include that of the receiver.
        """
        branches = _BRANCHES.get(overload.id)
        if branches is not None:
            return branches(self, node, costs)
        of_args: Range = (0, 0)
        for cost in costs:
            of_args = add(of_args, cost)
        made = overload.cost.estimate(CallSizes(self, node, parts if target is None else [target, *parts]))
        return (add(ONE, of_args), None) if made is None else (add(made[0], of_args), made[1])

    def copy_sizes(self, to: Node, source: Node) -> None:
        size = self.size(source)
        if size is not None:
            self.sizes[to.id] = size
        entries = self.entry_sizes(source)
        if entries is not None:
            self.entries[to.id] = entries

    def list_of(self, node: ListOf) -> Range:
        total = (LIST_COST, LIST_COST)
        values: Range = (MOST if node.elements else 0, 0)
        for element in node.elements:
            total = add(total, self.cost(element))
            values = union(values, self.size_or_unknown(element))
        self.entries[node.id] = Entries(True, ONE, values)
        return total

    def map_of(self, node: MapOf) -> Range:
        total = (MAP_COST, MAP_COST)
        keys: Range = (MOST if node.entries else 0, 0)
        values = keys
        for entry in node.entries:
            total = add(add(total, self.cost(entry.key)), self.cost(entry.value))
            keys = union(keys, self.size_or_unknown(entry.key))
            values = union(values, self.size_or_unknown(entry.value))
        self.entries[node.id] = Entries(False, keys, values)
        return total

    def push(self, name: str, local: Local) -> None:
        self.locals.setdefault(name, []).append(local)

    def push_loop(self, node: Fold) -> None:
        """Declare the loop's variables."""
        over = node.over
        entries = self.entry_sizes(over)
        is_list = entries.is_list if entries is not None else self.types[over.id].kind == "list"
        key = entries.key if entries is not None else None
        value = entries.value if entries is not None else None
        path = self.path(over)
        if node.var2:
            self.push(node.var, Local(path.then("@indices" if is_list else "@keys"), key, None))
            self.push(node.var2, Local(path.then("@items" if is_list else "@values"), value, None))
        elif is_list:
            self.push(node.var, Local(path.then("@items"), value, None))
        else:
            self.push(node.var, Local(path.then("@keys"), key, None))

    def fold(self, node: Fold) -> Range:
        if _is_bind(node):
            return self.bind(node)
        total = add(self.cost(node.over), self.cost(node.init))
        self.push(node.accu, Local(self.path(node.init), self.size(node.init), self.entry_sizes(node.init)))
        self.push_loop(node)
        turn = add(self.cost(node.condition), self.cost(node.step))
        self.locals[node.var].pop()
        if node.var2:
            self.locals[node.var2].pop()
        total = add(total, self.cost(node.result))
        self.locals[node.accu].pop()
        count = self.size_or_unknown(node.over)
        total = add(total, multiply(count, turn))
        if isinstance(node.init, Literal):
            size = self.size(node.init)
            if size is not None:
                self.sizes[node.id] = size
        elif isinstance(node.init, (ListOf, MapOf)):
            self.sizes[node.id] = count
            entries = self.entry_sizes(node.step)
            if entries is not None:
                self.entries[node.id] = entries
        return total

    def bind(self, node: Fold) -> Range:
        total = add(self.cost(node.over), self.cost(node.init))
        self.push(node.accu, Local(self.path(node.init), self.size(node.init), self.entry_sizes(node.init)))
        total = add(total, self.cost(node.result))
        self.locals[node.accu].pop()
        self.copy_sizes(node, node.result)
        return total


_COSTS: Mapping[type[Node], Callable[[Estimator, Any], Range]] = {
    Ident: Estimator.ident,
    Select: Estimator.select,
    Call: Estimator.call,
    Fold: Estimator.fold,
    ListOf: Estimator.list_of,
    MapOf: Estimator.map_of,
    ObjectOf: Estimator.object_of,
}
"""Class of a node → the function that estimates its cost; the cost of a literal is 0."""


def _is_bind(node: Fold) -> bool:
    return (
        isinstance(node.over, ListOf)
        and not node.over.elements
        and isinstance(node.condition, Literal)
        and node.condition.value is False
    )


def _written_size(node: Node) -> Range | None:
    """Return the size of a node that is a literal, list or map; None for other nodes."""
    if isinstance(node, Literal):
        size = len(node.value) if isinstance(node.value, (str, bytes)) else 1
        return size, size
    if isinstance(node, ListOf):
        return len(node.elements), len(node.elements)
    if isinstance(node, MapOf):
        return len(node.entries), len(node.entries)
    return None


def _logic(e: Estimator, node: Call, costs: list[Range]) -> CallCost:
    return (costs[0][0], add(costs[0], costs[1])[1]), None


def _conditional(e: Estimator, node: Call, costs: list[Range]) -> CallCost:
    size = union(e.size_or_unknown(node.args[1]), e.size_or_unknown(node.args[2]))
    yes, no = e.entry_sizes(node.args[1]), e.entry_sizes(node.args[2])
    if yes is not None and no is not None:
        e.entries[node.id] = Entries(yes.is_list, union(yes.key, no.key), union(yes.value, no.value))
    return add(costs[0], union(costs[1], costs[2])), size


_BRANCHES: Mapping[str, Callable[[Estimator, Call, list[Range]], CallCost]] = {
    "logical_or": _logic,
    "logical_and": _logic,
    "conditional": _conditional,
}
"""Overload of an operator that may skip operands → the function that estimates its cost with that of the operands."""


def estimate(checked: Checked, root: Declared | None) -> Range:
    """Return the range of a checked expression's cost, given the declared type ``root``."""
    return Estimator(checked, root).run()
