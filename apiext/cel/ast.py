"""Nodes of a parsed expression.

Other modules store positions, types and costs by the id of a node.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from msgspec import Struct

from apiext.cel.values import Scalar

NO_ELEMENTS: frozenset[int] = frozenset()


class Node(Struct, eq=False):
    """A part of an expression."""

    id: int


class Broken(Node, eq=False):
    """A placeholder for a part of the expression that has a syntax error."""


class Literal(Node, eq=False):
    """A literal value in the expression."""

    value: Scalar


class Ident(Node, eq=False):
    """A name.

    The parser creates Selects for a dotted name; the type checker replaces them by one Ident if the name is that of a
    variable or type.
    """

    name: str


class Select(Node, eq=False):
    """``operand.field``; if ``test`` is true, ``has(operand.field)``."""

    operand: Node
    field: str
    test: bool = False


class Call(Node, eq=False):
    """A call of a function or operator; ``target`` is the receiver, or None."""

    function: str
    args: list[Node]
    target: Node | None = None

    def all_args(self) -> list[Node]:
        """Return the receiver, if there is one, and the arguments."""
        return self.args if self.target is None else [self.target, *self.args]


class ListOf(Node, eq=False):
    """``[a, ?b]``; ``optional`` contains the indices of elements with a question mark."""

    elements: list[Node]
    optional: frozenset[int] = NO_ELEMENTS


class Entry(Struct, eq=False):
    """``key: value`` of a map, or ``field: value`` of an object.

    ``key`` of an object is a Literal.
    """

    id: int
    key: Node
    value: Node
    optional: bool


class MapOf(Node, eq=False):
    """``{key: value, ?key: value}``."""

    entries: list[Entry]


class ObjectOf(Node, eq=False):
    """``Type{field: value}``."""

    type_name: str
    fields: list[Entry]


class Fold(Node, eq=False):
    """The expansion of a macro such as ``all``: a loop over a list or map.

    The steps of the loop compute an accumulator.
    """

    over: Node
    var: str
    var2: str  # second variable, or ""
    accu: str
    init: Node
    condition: Node
    step: Node
    result: Node


MacroCall: TypeAlias = tuple[str, Node | None, list[Node]]
"""(function, target, arguments) of a call before its expansion."""


class Parsed(Struct, eq=False):
    """A parsed expression.

    ``offsets[id]`` is the offset of a node in ``text``. ``macros`` maps the id of a node to the macro call from which
    the parser created the node: (function, target, arguments).
    """

    text: str
    root: Node
    offsets: list[int]
    macros: dict[int, MacroCall]


_PARTS: Mapping[type[Node], Callable[[Any], list[Node]]] = {
    Call: Call.all_args,
    Select: lambda node: [node.operand],
    ListOf: lambda node: node.elements,
    MapOf: lambda node: [part for entry in node.entries for part in (entry.key, entry.value)],
    ObjectOf: lambda node: [entry.value for entry in node.fields],
    Fold: lambda node: [node.over, node.init, node.condition, node.step, node.result],
}


def children(node: Node) -> list[Node]:
    """Return the parts of a node in the order in which upstream visits them."""
    parts = _PARTS.get(type(node))
    return parts(node) if parts is not None else []
