"""Create nodes with new ids and positions, and expand macros, for both parsers.

The parsers are in parser.py and recovery.py.
"""

from collections.abc import Callable
from typing import TypeAlias

from apiext.cel import limits
from apiext.cel.ast import (
    NO_ELEMENTS,
    Broken,
    Call,
    Entry,
    Fold,
    Ident,
    ListOf,
    Literal,
    MacroCall,
    MapOf,
    Node,
    ObjectOf,
    Select,
)
from apiext.cel.source import Issues, TooLarge, UnescapeError, unescape_literal
from apiext.cel.values import Scalar, Uint

ACCUMULATOR = "@result"
TOO_NESTED = f"expression recursion limit exceeded: {limits.MAX_NESTING}"

RESERVED = frozenset(
    (
        "as", "break", "const", "continue", "else", "false", "for", "function", "if", "import", "in", "let", "loop",
        "package", "namespace", "null", "return", "true", "var", "void", "while",
    )
)  # fmt: skip


class MacroError(Exception):
    """The error of invalid arguments of a macro: ``blamed`` is the id of the invalid node."""

    def __init__(self, blamed: int, message: str) -> None:
        super().__init__(message)
        self.blamed = blamed
        self.message = message


Expand: TypeAlias = "Callable[[Builder, int, Node, list[Node]], Node]"
Macros: TypeAlias = "dict[tuple[str, int, bool], Expand]"
"""(function, number of arguments, whether it has a receiver) → the expansion of the macro."""
Weigh = Callable[[int], None]
"""Receives the number of nodes by which a macro enlarges an expression; may raise if this exceeds a budget."""


class Builder:
    """A factory of the nodes of one expression; as in upstream, the first id is 1."""

    __slots__ = ("copied", "issues", "macro_calls", "macros", "offsets", "weigh")

    def __init__(self, issues: Issues, macros: Macros, weigh: Weigh | None = None) -> None:
        self.issues = issues
        self.macros = macros
        self.weigh = weigh
        self.copied = 0
        self.offsets: list[int] = [-1]
        self.macro_calls: dict[int, MacroCall] = {}

    def id(self, offset: int) -> int:
        """Return a new id for a position."""
        self.offsets.append(offset)
        return len(self.offsets) - 1

    def fault(self, offset: int, message: str) -> Node:
        """Report an error, and return a placeholder node."""
        self.issues.at(offset, message)
        return Broken(self.id(offset))

    def call(self, id: int, function: str, args: list[Node]) -> Node:
        """Return a call of a function or operator, or the expansion of its macro."""
        expand = self.macros.get((function, len(args), False))
        if expand is not None:
            return self._expanded(expand, id, function, None, args)
        return Call(id, function, args)

    def member_call(self, id: int, function: str, target: Node, args: list[Node]) -> Node:
        """Return a call on a receiver, or the expansion of its macro."""
        expand = self.macros.get((function, len(args), True))
        if expand is not None:
            return self._expanded(expand, id, function, target, args)
        return Call(id, function, args, target)

    def _expanded(self, expand: Expand, id: int, function: str, target: Node | None, args: list[Node]) -> Node:
        try:
            node = expand(self, id, target if target is not None else args[0], args)
        except MacroError as wrong:
            return self.fault(self.offsets[wrong.blamed], wrong.message)
        self.macro_calls[node.id] = (function, target, args)
        return node

    def logic(self, function: str, terms: list[Node], ids: list[int]) -> Node:
        """Return a chain of ``&&`` or ``||`` as a balanced tree (upstream: balancingLogicManager)."""
        return self._balanced(function, terms, ids, 0, len(ids) - 1) if ids else terms[0]

    def _balanced(self, function: str, terms: list[Node], ids: list[int], low: int, high: int) -> Node:
        middle = (low + high + 1) // 2
        left = terms[middle] if middle == low else self._balanced(function, terms, ids, low, middle - 1)
        right = terms[middle + 1] if middle == high else self._balanced(function, terms, ids, middle + 1, high)
        return Call(ids[middle], function, [left, right])

    def number(self, text: str, offset: int, kind: str) -> Node:
        """Return a literal of kind int, uint or double; the text may begin with a minus.

        Report an error for a number out of the range of the kind.
        """
        digits = text[:-1] if kind == "uint" else text
        value: Scalar
        if kind == "double":
            value = float(digits)
            if value in (float("inf"), float("-inf")):
                return self.fault(offset, "invalid double literal")
        else:
            sign, plain = (-1, digits[1:]) if digits[0] == "-" else (1, digits)
            if len(plain) > 400:
                return self.fault(offset, f"invalid {kind} literal")
            number = sign * (int(plain[2:], 16) if plain.startswith("0x") else int(plain))
            if kind == "int" and -(1 << 63) <= number < 1 << 63:
                value = number
            elif kind == "uint" and number < 1 << 64:
                value = Uint(number)
            else:
                return self.fault(offset, f"invalid {kind} literal")
        return Literal(self.id(offset), value)

    def text(self, quoted: str, offset: int) -> Node:
        """Return a string literal."""
        value: str | bytes
        try:
            value = unescape_literal(quoted, False)
        except UnescapeError as wrong:
            self.fault(offset, str(wrong))
            value = quoted
        return Literal(self.id(offset), value)

    def octets(self, quoted: str, offset: int) -> Node:
        """Return a bytes literal; ``quoted`` begins with the prefix ``b``."""
        value: str | bytes
        try:
            value = unescape_literal(quoted[1:], True)
        except UnescapeError as wrong:
            self.fault(offset, str(wrong))
            value = b""
        return Literal(self.id(offset), value)

    # Parts of expanded macros. New nodes, and copied entries of maps and objects, have the position of the macro call.
    # Copied nodes have the position of their originals.

    def copy(self, call: int, node: Node) -> Node:
        """Return a copy of a node with new ids.

        Raise TooLarge if the macros of the expression copy more than limits.MAX_COPIED nodes. Raise the errors of
        ``weigh``.
        """
        self.copied += 1
        if self.copied > limits.MAX_COPIED:
            raise TooLarge(f"expression size exceeds limit: macros repeat more than {limits.MAX_COPIED} nodes")
        if self.weigh is not None:
            self.weigh(1)
        id = self.id(self.offsets[node.id])
        if isinstance(node, Literal):
            return Literal(id, node.value)
        if isinstance(node, Ident):
            return Ident(id, node.name)
        if isinstance(node, Select):
            return Select(id, self.copy(call, node.operand), node.field, node.test)
        if isinstance(node, Call):
            args = [self.copy(call, arg) for arg in node.args]
            return Call(id, node.function, args, None if node.target is None else self.copy(call, node.target))
        if isinstance(node, ListOf):
            return ListOf(id, [self.copy(call, element) for element in node.elements], node.optional)
        if isinstance(node, MapOf):
            return MapOf(id, [self._copy_entry(call, entry) for entry in node.entries])
        if isinstance(node, ObjectOf):
            return ObjectOf(id, node.type_name, [self._copy_entry(call, field) for field in node.fields])
        if isinstance(node, Fold):
            parts = [self.copy(call, part) for part in (node.over, node.init, node.condition, node.step, node.result)]
            return Fold(id, parts[0], node.var, node.var2, node.accu, *parts[1:])
        return Broken(id)

    def _copy_entry(self, call: int, entry: Entry) -> Entry:
        id = self.id(self.offsets[call])
        key = self.copy(call, entry.key)
        return Entry(id, key, self.copy(call, entry.value), entry.optional)

    def literal(self, call: int, value: Scalar) -> Node:
        """Return a literal at the position of a macro call."""
        return Literal(self.id(self.offsets[call]), value)

    def ident(self, call: int, name: str) -> Node:
        """Return a name at the position of a macro call."""
        return Ident(self.id(self.offsets[call]), name)

    def plain_call(self, call: int, function: str, *args: Node, target: Node | None = None) -> Node:
        """Return a call at the position of a macro call, without expanding macros."""
        return Call(self.id(self.offsets[call]), function, list(args), target)

    def list_of(self, call: int, *elements: Node) -> Node:
        """Return a list at the position of a macro call."""
        return ListOf(self.id(self.offsets[call]), list(elements), NO_ELEMENTS)

    def map_of(self, call: int) -> Node:
        """Return an empty map at the position of a macro call."""
        return MapOf(self.id(self.offsets[call]), [])

    def fold(self, call: int, over: Node, names: tuple[str, str, str], parts: list[Node]) -> Node:
        """Return a loop at the position of a macro call.

        ``names`` are variable, second variable (or "") and accumulator. ``parts`` are init, condition, step and result.
        """
        return Fold(self.id(self.offsets[call]), over, *names, *parts)
