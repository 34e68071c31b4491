"""Create nodes from an incomplete syntax tree.

After a syntax error, upstream still reports other errors of the expression, so this server does the same.
``recovery.py`` builds the incomplete tree; each of its nodes is a ``Context``. This module makes the nodes of
``ast.py`` from this tree. A part that is missing in the tree becomes a node ``Broken``.
"""

from typing import Any

from apiext.cel import lexer as t
from apiext.cel.ast import Broken, Entry, Ident, ListOf, Literal, MapOf, Node, ObjectOf, Select
from apiext.cel.builder import RESERVED, Builder
from apiext.cel.grammar import Context, Missing
from apiext.cel.lexer import NAMES, Tokens
from apiext.cel.source import UNKNOWN

_BINARY = {
    "<": "_<_", "<=": "_<=_", ">=": "_>=_", ">": "_>_", "==": "_==_", "!=": "_!=_", "in": "@in",
    "+": "_+_", "-": "_-_", "*": "_*_", "/": "_/_", "%": "_%_",
}  # fmt: skip
_PLAIN = ("member_only", "constant", "nested", "")


class Visitor:
    """A visitor of a syntax tree; it visits the parts in the order of upstream's visitor."""

    def __init__(self, tokens: Tokens, build: Builder) -> None:
        self.tokens = tokens
        self.build = build

    def text(self, token: Any) -> str:
        return f"<missing {NAMES[token.kind]}>" if isinstance(token, Missing) else self.tokens.texts[token]

    def offset(self, token: Any) -> int:
        return self.tokens.starts[token.at if isinstance(token, Missing) else token]

    def gap(self, context: Context | None) -> Node:
        return Broken(self.build.id(self.tokens.starts[context.start] if context is not None else UNKNOWN))

    def unnest(self, context: Context | None) -> Context | None:
        """Return ``context`` if it has its own node, else the first such context below it, or None."""
        while context is not None:
            rule, parts = context.rule, context.parts
            if rule == "expr" and "op" in parts:
                return context
            if rule in ("conditionalOr", "conditionalAnd") and parts.get("ops"):
                return context
            plain = rule in ("start", "expr", "conditionalOr", "conditionalAnd") or (
                rule in ("relation", "calc", "member") and not context.makes
            )
            if not plain and context.makes not in _PLAIN[:3]:
                return context
            context = parts.get("e")
        return None

    def visit(self, context: Context | None) -> Node:
        context = self.unnest(context)
        if context is None:
            return self.gap(None)
        visit = getattr(self, "visit_" + (context.makes or context.rule), None)
        node: Node = visit(context) if visit is not None else self.gap(None)
        return node

    def visit_unary(self, context: Context) -> Node:
        return Literal(self.build.id(self.tokens.starts[context.start]), "<<error>>")

    def visit_expr(self, context: Context) -> Node:
        parts = context.parts
        condition = self.visit(parts.get("e"))
        id = self.build.id(self.offset(parts["op"]))
        yes = self.visit(parts.get("e1"))
        return self.build.call(id, "_?_:_", [condition, yes, self.visit(parts.get("e2"))])

    def _logic(self, context: Context, function: str) -> Node:
        terms, ids = [self.visit(context.parts.get("e"))], []
        rest = context.parts.get("e1", [])
        for number, op in enumerate(context.parts["ops"]):
            if number >= len(rest):
                symbol = "||" if function == "_||_" else "&&"
                return self.build.fault(self.tokens.starts[context.start], f"unexpected character, wanted '{symbol}'")
            terms.append(self.visit(rest[number]))
            ids.append(self.build.id(self.offset(op)))
        return self.build.logic(function, terms, ids)

    def visit_conditionalOr(self, context: Context) -> Node:  # noqa: N802 - the rule's name
        return self._logic(context, "_||_")

    def visit_conditionalAnd(self, context: Context) -> Node:  # noqa: N802 - the rule's name
        return self._logic(context, "_&&_")

    def visit_relation(self, context: Context) -> Node:
        parts = context.parts
        function = _BINARY.get(self.text(parts["op"])) if "op" in parts else None
        if function is None:
            return self.build.fault(self.tokens.starts[context.start], "operator not found")
        left = self.visit(parts.get("left"))
        id = self.build.id(self.offset(parts["op"]))
        return self.build.call(id, function, [left, self.visit(parts.get("right"))])

    visit_calc = visit_relation

    def _signed(self, context: Context, function: str) -> Node:
        ops = context.parts.get("ops", [])
        if len(ops) % 2 == 0:
            return self.visit(context.parts.get("e"))
        id = self.build.id(self.offset(ops[0]))
        return self.build.call(id, function, [self.visit(context.parts.get("e"))])

    def visit_not(self, context: Context) -> Node:
        return self._signed(context, "!_")

    def visit_negate(self, context: Context) -> Node:
        return self._signed(context, "-_")

    def _name(self, context: Context | None, blamed: Context) -> str | None:
        """Return the name of an identifier, or report an error and return None.

        The name is empty if the tree has no token for it.
        """
        if context is not None and context.makes == "simple":
            return self.text(context.parts["id"]) if "id" in context.parts else ""
        if context is not None and context.makes == "escaped" and "id" in context.parts:
            return self.text(context.parts["id"])[1:-1]
        self.build.fault(self.tokens.starts[blamed.start], "unsupported ident kind")
        return None

    def visit_select(self, context: Context) -> Node:
        parts = context.parts
        operand = self.visit(parts.get("left"))
        if "id" not in parts or "op" not in parts:
            return self.gap(context)
        name = self._name(parts["id"], parts["id"]) or ""
        offset = self.offset(parts["op"])
        if "opt" in parts:
            id = self.build.id(offset)
            literal = Literal(self.build.id(self.tokens.starts[parts["id"].start]), name)
            return self.build.call(id, "_?._", [operand, literal])
        return Select(self.build.id(offset), operand, name)

    def visit_member_call(self, context: Context) -> Node:
        parts = context.parts
        operand = self.visit(parts.get("left"))
        if "id" not in parts:
            return self.gap(context)
        id = self.build.id(self.offset(parts["open"]) if "open" in parts else -1)
        return self.build.member_call(id, self.text(parts["id"]), operand, self._args(parts.get("args")))

    def _args(self, context: Context | None) -> list[Node]:
        return [] if context is None else [self.visit(part) for part in context.parts.get("e", [])]

    def visit_index(self, context: Context) -> Node:
        parts = context.parts
        target = self.visit(parts.get("left"))
        if "op" not in parts:
            return self.gap(context)
        id = self.build.id(self.offset(parts["op"]))
        return self.build.call(id, "_[?_]" if "opt" in parts else "_[_]", [target, self.visit(parts.get("index"))])

    def visit_ident(self, context: Context) -> Node:
        parts = context.parts
        if "id" not in parts:
            return self.gap(context)
        name = self.text(parts["id"])
        if name in RESERVED:
            return self.build.fault(self.tokens.starts[context.start], f"reserved identifier: {name}")
        return Ident(self.build.id(self.offset(parts["id"])), ("." if "dot" in parts else "") + name)

    def visit_global_call(self, context: Context) -> Node:
        parts = context.parts
        if "id" not in parts:
            return self.gap(context)
        name = self.text(parts["id"])
        if name in RESERVED:
            return self.build.fault(self.tokens.starts[context.start], f"reserved identifier: {name}")
        id = self.build.id(self.offset(parts["op"]) if "op" in parts else -1)
        return self.build.call(id, ("." if "dot" in parts else "") + name, self._args(parts.get("args")))

    def visit_create_list(self, context: Context) -> Node:
        id = self.build.id(self.offset(context.parts["op"]))
        elements = context.parts["elems"].parts.get("elems", []) if "elems" in context.parts else []
        nodes = [self.visit(element.parts.get("e")) for element in elements]
        return ListOf(id, nodes, frozenset(n for n, element in enumerate(elements) if "opt" in element.parts))

    def visit_create_map(self, context: Context) -> Node:
        id = self.build.id(self.offset(context.parts["op"]))
        entries: list[Entry] = []
        parts = context.parts["entries"].parts if "entries" in context.parts else {}
        keys, values = parts.get("keys", []), parts.get("values", [])
        for number, colon in enumerate(parts.get("cols", [])):
            entry = self.build.id(self.offset(colon))
            if number >= len(keys) or number >= len(values):
                return MapOf(id, [])
            key = self.visit(keys[number].parts.get("e"))
            entries.append(Entry(entry, key, self.visit(values[number]), "opt" in keys[number].parts))
        return MapOf(id, entries)

    def visit_create_object(self, context: Context) -> Node:
        name = ".".join(self.text(token) for token in context.parts.get("ids", []))
        id = self.build.id(self.offset(context.parts["op"]) if "op" in context.parts else -1)
        fields: list[Entry] = []
        initializers = context.parts.get("entries")
        if initializers is None:
            return ObjectOf(id, name, fields)
        parts = initializers.parts
        colons, values = parts.get("cols", []), parts.get("values", [])
        for number, given in enumerate(parts.get("fields", [])):
            if number >= len(colons) or number >= len(values):
                return ObjectOf(id, name, [])
            entry = self.build.id(self.offset(colons[number]))
            field = self._name(given.parts.get("id"), initializers)
            if field is not None:
                value = self.visit(values[number])
                fields.append(Entry(entry, Literal(0, field), value, "opt" in given.parts))
        return ObjectOf(id, name, fields)

    def _number(self, context: Context, kind: str) -> Node:
        parts = context.parts
        if "tok" not in parts or isinstance(parts["tok"], Missing):
            return self.build.fault(self.tokens.starts[context.start], f"invalid {kind} literal")
        sign = "-" if "sign" in parts else ""
        return self.build.number(sign + self.text(parts["tok"]), self.tokens.starts[context.start], kind)

    def visit_int(self, context: Context) -> Node:
        return self._number(context, "int")

    def visit_uint(self, context: Context) -> Node:
        return self._number(context, "uint")

    def visit_double(self, context: Context) -> Node:
        return self._number(context, "double")

    def visit_string(self, context: Context) -> Node:
        return self.build.text(self.text(context.parts["tok"]), self.tokens.starts[context.start])

    def visit_bytes(self, context: Context) -> Node:
        return self.build.octets(self.text(context.parts["tok"]), self.tokens.starts[context.start])

    def _constant(self, context: Context) -> Node:
        value = {t.TRUE: True, t.FALSE: False}.get(self.tokens.kinds[context.start])
        return Literal(self.build.id(self.tokens.starts[context.start]), value)

    visit_true = visit_false = visit_null = _constant
