"""Nodes of a parsed expression; each has an id that places, types and costs refer to."""

from collections.abc import Sequence
from typing import TypeAlias

from apiext.cel.values import Scalar

NO_ELEMENTS: frozenset[int] = frozenset()


class Node:
    """A part of an expression."""

    __slots__ = ("id",)

    def __init__(self, id: int) -> None:
        self.id = id


class Broken(Node):
    """What stands where a fault was reported."""

    __slots__ = ()


class Literal(Node):
    """A value written in the expression."""

    __slots__ = ("value",)

    def __init__(self, id: int, value: Scalar) -> None:
        self.id = id
        self.value = value


class Ident(Node):
    """A name; after the check, the name it resolved to."""

    __slots__ = ("name",)

    def __init__(self, id: int, name: str) -> None:
        self.id = id
        self.name = name


class Select(Node):
    """``operand.field``, or with ``test`` the ``has()`` of it."""

    __slots__ = ("field", "operand", "test")

    def __init__(self, id: int, operand: Node, field: str, test: bool = False) -> None:
        self.id = id
        self.operand = operand
        self.field = field
        self.test = test


class Call(Node):
    """A function or operator with its arguments; with ``target`` a call of the receiver's."""

    __slots__ = ("args", "function", "target")

    def __init__(self, id: int, function: str, args: list[Node], target: Node | None = None) -> None:
        self.id = id
        self.function = function
        self.args = args
        self.target = target

    def all_args(self) -> list[Node]:
        """Return the receiver, when there is one, and the arguments."""
        return self.args if self.target is None else [self.target, *self.args]


class ListOf(Node):
    """``[a, ?b]``; ``optional`` holds the indices written with a question mark."""

    __slots__ = ("elements", "optional")

    def __init__(self, id: int, elements: list[Node], optional: frozenset[int] = NO_ELEMENTS) -> None:
        self.id = id
        self.elements = elements
        self.optional = optional


class Entry:
    """``key: value`` of a map, or ``field: value`` of an object (then ``key`` is a Literal)."""

    __slots__ = ("id", "key", "optional", "value")

    def __init__(self, id: int, key: Node, value: Node, optional: bool) -> None:
        self.id = id
        self.key = key
        self.value = value
        self.optional = optional


class MapOf(Node):
    """``{key: value, ?key: value}``."""

    __slots__ = ("entries",)

    def __init__(self, id: int, entries: list[Entry]) -> None:
        self.id = id
        self.entries = entries


class ObjectOf(Node):
    """``Type{field: value}``."""

    __slots__ = ("fields", "type_name")

    def __init__(self, id: int, type_name: str, fields: list[Entry]) -> None:
        self.id = id
        self.type_name = type_name
        self.fields = fields


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


class Parsed:
    """A parsed expression: its root, the offset of each id, and the macro calls that nodes came from."""

    __slots__ = ("macros", "offsets", "root", "text")

    def __init__(self, text: str, root: Node, offsets: list[int], macros: dict[int, MacroCall]) -> None:
        self.text = text
        self.root = root
        self.offsets = offsets
        self.macros = macros


def children(node: Node) -> list[Node]:
    """Return the parts of a node in the order in which upstream visits them."""
    kind = type(node)
    if kind is Call:
        assert isinstance(node, Call)
        return node.all_args()
    if kind is Select:
        assert isinstance(node, Select)
        return [node.operand]
    if kind is ListOf:
        assert isinstance(node, ListOf)
        return node.elements
    if kind is MapOf:
        assert isinstance(node, MapOf)
        return [part for entry in node.entries for part in (entry.key, entry.value)]
    if kind is ObjectOf:
        assert isinstance(node, ObjectOf)
        return [entry.value for entry in node.fields]
    if kind is Fold:
        assert isinstance(node, Fold)
        return [node.over, node.init, node.condition, node.step, node.result]
    return []
