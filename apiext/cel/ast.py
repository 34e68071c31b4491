"""Nodes of a parsed expression; each has an id that places, types and costs refer to."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from apiext.cel.values import Scalar

NO_ELEMENTS: frozenset[int] = frozenset()


@dataclass(slots=True, eq=False, repr=False)
class Node:
    """A part of an expression."""

    id: int


class Broken(Node):
    """What stands where a fault was reported."""

    __slots__ = ()


@dataclass(slots=True, eq=False, repr=False)
class Literal(Node):
    """A value written in the expression."""

    value: Scalar


@dataclass(slots=True, eq=False, repr=False)
class Ident(Node):
    """A name; after the check, the name it resolved to."""

    name: str


@dataclass(slots=True, eq=False, repr=False)
class Select(Node):
    """``operand.field``, or with ``test`` the ``has()`` of it."""

    operand: Node
    field: str
    test: bool = False


@dataclass(slots=True, eq=False, repr=False)
class Call(Node):
    """A function or operator with its arguments; with ``target`` a call of the receiver's."""

    function: str
    args: list[Node]
    target: Node | None = None

    def all_args(self) -> list[Node]:
        """Return the receiver, when there is one, and the arguments."""
        return self.args if self.target is None else [self.target, *self.args]


@dataclass(slots=True, eq=False, repr=False)
class ListOf(Node):
    """``[a, ?b]``; ``optional`` holds the indices written with a question mark."""

    elements: list[Node]
    optional: frozenset[int] = NO_ELEMENTS


@dataclass(slots=True, eq=False, repr=False)
class Entry:
    """``key: value`` of a map, or ``field: value`` of an object (then ``key`` is a Literal)."""

    id: int
    key: Node
    value: Node
    optional: bool


@dataclass(slots=True, eq=False, repr=False)
class MapOf(Node):
    """``{key: value, ?key: value}``."""

    entries: list[Entry]


@dataclass(slots=True, eq=False, repr=False)
class ObjectOf(Node):
    """``Type{field: value}``."""

    type_name: str
    fields: list[Entry]


class Fold(Node):
    """What macros become: a loop over a range with an accumulator."""

    __slots__ = ("accu", "condition", "init", "over", "result", "step", "var", "var2")

    def __init__(self, id: int, over: Node, names: tuple[str, str, str], parts: Sequence[Node]) -> None:
        """names: variable, second variable ("" for none), accumulator. parts: init, condition, step, result."""
        self.id = id
        self.over = over
        self.var, self.var2, self.accu = names
        self.init, self.condition, self.step, self.result = parts


MacroCall: TypeAlias = tuple[str, Node | None, list[Node]]


@dataclass(slots=True, eq=False, repr=False)
class Parsed:
    """A parsed expression: its root, the offset of each id, and the macro calls that nodes came from."""

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
