"""Parse expressions and print them: the printed text parses to the same nodes."""

from __future__ import annotations

from collections.abc import Callable

from apiext.cel.ast import Call, Entry, Ident, ListOf, Literal, MapOf, Node, ObjectOf, Parsed, Select
from apiext.cel.builder import Macros
from apiext.cel.parser import parse
from apiext.cel.source import Issues, Source
from apiext.cel.values import Scalar, Uint

_BINARY = {
    "_||_": (1, "||"), "_&&_": (2, "&&"), "_<_": (3, "<"), "_<=_": (3, "<="), "_>_": (3, ">"), "_>=_": (3, ">="),
    "_==_": (3, "=="), "_!=_": (3, "!="), "@in": (3, "in"), "_+_": (4, "+"), "_-_": (4, "-"), "_*_": (5, "*"),
    "_/_": (5, "/"), "_%_": (5, "%"),
}  # fmt: skip
_SIGNS = {"!_": "!", "-_": "-"}
_UNARY, _MEMBER = 6, 7
_ESCAPES = {
    "\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t", "\v": "\\v", "\\": "\\\\", '"': '\\"'
}  # fmt: skip


def parse_text(text: str, macros: Macros) -> tuple[Parsed | None, Issues]:
    """Return a parsed expression, or None if there is an error; and the issues."""
    issues = Issues(Source(text))
    return parse(text, macros, issues), issues


def text_of(parsed: Parsed) -> str:
    """Return an expression as text; macros appear as their calls."""
    return _Printer(parsed).show(parsed.root, 0)


def literal(value: Scalar) -> str:
    """Return a value as a literal."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return '"' + "".join(_escaped(char) for char in value) + '"'
    if isinstance(value, bytes):
        return 'b"' + "".join(f"\\x{octet:02x}" for octet in value) + '"'
    if isinstance(value, Uint):
        return f"{int(value)}u"
    return repr(value)


def _escaped(char: str) -> str:
    known = _ESCAPES.get(char)
    if known is not None:
        return known
    return char if char.isprintable() else f"\\U{ord(char):08x}"


class _Printer:
    def __init__(self, parsed: Parsed) -> None:
        self.macros = parsed.macros

    def show(self, node: Node, level: int) -> str:
        """Return the text of a node, in parentheses if it binds less tightly than ``level``."""
        macro = self.macros.get(node.id)
        if macro is not None:
            function, target, args = macro
            return self.call(function, target, args)
        if isinstance(node, Call):
            return self.operator(node, level)
        if isinstance(node, Literal):
            text = literal(node.value)
            return f"({text})" if text.startswith("-") and level >= _UNARY else text
        if isinstance(node, Ident):
            return node.name
        if isinstance(node, Select):
            return f"{self.show(node.operand, _MEMBER)}.{_field(node.field)}"
        if isinstance(node, ListOf):
            elements = [("?" if at in node.optional else "") + self.show(e, 0) for at, e in enumerate(node.elements)]
            return f"[{', '.join(elements)}]"
        if isinstance(node, MapOf):
            return self.entries(node.entries, lambda entry: self.show(entry.key, 0))
        assert isinstance(node, ObjectOf), "loops are printed as the macros they came from"
        return node.type_name + self.entries(node.fields, _field_name)

    def entries(self, entries: list[Entry], key: Callable[[Entry], str]) -> str:
        shown = [f"{'?' if entry.optional else ''}{key(entry)}: {self.show(entry.value, 0)}" for entry in entries]
        return "{" + ", ".join(shown) + "}"

    def call(self, function: str, target: Node | None, args: list[Node]) -> str:
        shown = f"{function}({', '.join(self.show(arg, 0) for arg in args)})"
        return shown if target is None else f"{self.show(target, _MEMBER)}.{shown}"

    def operator(self, node: Call, level: int) -> str:
        name, args = node.function, node.args
        if name in _BINARY:
            own, symbol = _BINARY[name]
            # both sides of && and || need parentheses, as the parser balances their trees
            left = own + 1 if own <= 2 else own
            shown = f"{self.show(args[0], left)} {symbol} {self.show(args[1], own + 1)}"
            return f"({shown})" if own < level else shown
        if name in _SIGNS:
            inner = self.show(args[0], _MEMBER)
            # the parser would join a sign with a following sign or number
            odd = inner.startswith(_SIGNS[name]) or (name == "-_" and inner[0] in "0123456789.")
            shown = _SIGNS[name] + (f"({inner})" if odd else inner)
            return f"({shown})" if level > _UNARY else shown
        if name == "_?_:_":
            shown = f"{self.show(args[0], 1)} ? {self.show(args[1], 1)} : {self.show(args[2], 0)}"
            return f"({shown})" if level > 0 else shown
        if name in ("_[_]", "_[?_]"):
            mark = "?" if name == "_[?_]" else ""
            return f"{self.show(args[0], _MEMBER)}[{mark}{self.show(args[1], 0)}]"
        if name == "_?._":
            assert isinstance(args[1], Literal)
            return f"{self.show(args[0], _MEMBER)}.?{_field(str(args[1].value))}"
        return self.call(name, node.target, args)


def _field(name: str) -> str:
    return name if name.isidentifier() and name.isascii() and name not in _KEYWORDS else f"`{name}`"


def _field_name(entry: Entry) -> str:
    assert isinstance(entry.key, Literal)
    return _field(str(entry.key.value))


_KEYWORDS = frozenset(("in", "true", "false", "null"))
