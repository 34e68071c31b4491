"""Parse a CEL expression to nodes (ast.py) in one pass.

This parser stops at the first syntax error. Then ``recovery.py`` parses the expression again as upstream's generated
parser does, and reports the syntax errors. The ids of nodes are numbered in upstream's order.
"""

from apiext.cel import lexer as t
from apiext.cel import limits
from apiext.cel.ast import Entry, Ident, ListOf, Literal, MapOf, Node, ObjectOf, Parsed, Select
from apiext.cel.builder import RESERVED, TOO_NESTED, Builder, Macros, Weigh
from apiext.cel.lexer import Tokens, tokenize
from apiext.cel.source import Issues

TOO_DEEP = "max recursion depth exceeded"

_OPERATORS = {
    t.OR: (1, "_||_"), t.AND: (2, "_&&_"),
    t.LESS: (3, "_<_"), t.LESS_EQUALS: (3, "_<=_"), t.GREATER_EQUALS: (3, "_>=_"), t.GREATER: (3, "_>_"),
    t.EQUALS: (3, "_==_"), t.NOT_EQUALS: (3, "_!=_"), t.IN: (3, "@in"),
    t.PLUS: (4, "_+_"), t.MINUS: (4, "_-_"), t.STAR: (5, "_*_"), t.SLASH: (5, "_/_"), t.PERCENT: (5, "_%_"),
}  # fmt: skip
_CONSTANTS = {t.TRUE: True, t.FALSE: False, t.NULL: None}
_NUMBERS = {t.INT: "int", t.UINT: "uint", t.FLOAT: "double"}


class _Mistake(Exception):
    """The error of a text with a syntax error; ``recovery`` determines its position and message."""


class _TooNested(Exception):
    """The error of an expression that is nested deeper than the limit."""


def parse(text: str, macros: Macros, issues: Issues, weigh: Weigh | None = None) -> Parsed | None:
    """Return a parsed expression, or None with the errors in ``issues``.

    Raise TooLarge and the errors of ``weigh``.
    """
    if len(text) > limits.MAX_CHARACTERS:
        size = len(text)
        issues.at(-1, f"expression code point size exceeds limit: size: {size}, limit {limits.MAX_CHARACTERS}")
        return None
    tokens = tokenize(text, issues)
    if not issues:
        build = Builder(issues, macros, weigh)
        parser = _Parser(tokens, build)
        try:
            root = parser.whole()
        except _TooNested:
            issues.at(-1, TOO_NESTED)
            return None
        except RecursionError:
            issues.at(-1, TOO_DEEP)
            return None
        except _Mistake:
            issues.found.clear()
            if parser.too_deep:
                issues.at(-1, TOO_DEEP)
        else:
            if parser.too_deep:
                issues.found.clear()
                issues.at(-1, TOO_DEEP)
            return None if issues else Parsed(text, root, build.offsets, build.macro_calls)
    from apiext.cel.recovery import diagnose  # imported on first use: only invalid texts need it

    diagnose(tokens, macros, issues)
    return None


class _Parser:
    """A precedence-climbing parser of tokens."""

    __slots__ = ("at", "build", "height", "kinds", "nesting", "starts", "texts", "too_deep")

    def __init__(self, tokens: Tokens, build: Builder) -> None:
        self.kinds = tokens.kinds
        self.starts = tokens.starts
        self.texts = tokens.texts
        self.build = build
        self.at = 0
        self.nesting = 0
        self.too_deep = False
        self.height = 0  # height of the last node, counted in operators, selections and member calls

    def whole(self) -> Node:
        root = self.expression(0)
        if self.kinds[self.at] != t.EOF:
            raise _Mistake
        return root

    def take(self, kind: int) -> int:
        """Consume a token of a kind, and return its offset."""
        at = self.at
        if self.kinds[at] != kind:
            raise _Mistake
        self.at = at + 1
        return self.starts[at]

    def raised(self, *heights: int) -> None:
        self.height = height = max(heights) + 1
        if height > limits.MAX_NESTING:
            self.too_deep = True

    def expression(self, level: int) -> Node:
        """Return an expression of operators that bind tighter than ``level``.

        Level 0 allows all operators, and ``?:``.
        """
        if level == 0:
            self.nesting += 1
            if self.nesting > limits.MAX_NESTING:
                raise _TooNested
        build = self.build
        left = self.operand()
        while True:
            kind = self.kinds[self.at]
            operator = _OPERATORS.get(kind)
            if operator is None:
                break
            strength, function = operator
            if strength <= level:
                break
            height = self.height
            if strength <= 2:
                terms, ids = [left], []
                while self.kinds[self.at] == kind:
                    offset = self.starts[self.at]
                    self.at += 1
                    terms.append(self.expression(strength))
                    ids.append(build.id(offset))
                    height = max(height, self.height)
                left = build.logic(function, terms, ids)
                self.height = height
            else:
                id = build.id(self.starts[self.at])
                self.at += 1
                right = self.expression(strength)
                left = build.call(id, function, [left, right])
                self.raised(height, self.height)
        if level == 0:
            if self.kinds[self.at] == t.QUESTION:
                left = self.conditional(left)
            self.nesting -= 1
        return left

    def conditional(self, condition: Node) -> Node:
        height = self.height
        id = self.build.id(self.take(t.QUESTION))
        # the grammar allows no conditional directly between ``?`` and ``:``
        yes = self.logic_only()
        height = max(height, self.height)
        self.take(t.COLON)
        no = self.expression(0)
        self.raised(height, self.height)
        return self.build.call(id, "_?_:_", [condition, yes, no])

    def logic_only(self) -> Node:
        """Return an expression whose outermost operator is not a conditional."""
        build = self.build
        left = self.expression(1)
        if self.kinds[self.at] == t.OR:
            terms, ids, height = [left], [], self.height
            while self.kinds[self.at] == t.OR:
                offset = self.take(t.OR)
                terms.append(self.expression(1))
                ids.append(build.id(offset))
                height = max(height, self.height)
            left = build.logic("_||_", terms, ids)
            self.height = height
        return left

    def operand(self) -> Node:
        """Return a primary expression with its signs, selections, calls and indexes."""
        kinds = self.kinds
        kind = kinds[self.at]
        if kind not in (t.EXCLAM, t.MINUS):
            return self.member()
        if kind == t.MINUS and kinds[self.at + 1] in (t.INT, t.FLOAT):
            return self.member()
        first = self.at
        while kinds[self.at] == kind:
            self.at += 1
        # as in upstream, an even number of signs creates no node
        odd = (self.at - first) % 2 == 1
        id = self.build.id(self.starts[first]) if odd else 0
        node = self.member()
        return self.build.call(id, "!_" if kind == t.EXCLAM else "-_", [node]) if odd else node

    def member(self) -> Node:
        node = self.primary()
        kinds = self.kinds
        build = self.build
        while True:
            kind = kinds[self.at]
            if kind == t.DOT:
                node = self.after_dot(node)
            elif kind == t.LBRACKET:
                offset = self.starts[self.at]
                self.at += 1
                height = self.height
                id = build.id(offset)
                function = "_[_]"
                if kinds[self.at] == t.QUESTION:
                    self.at += 1
                    function = "_[?_]"
                index = self.expression(0)
                self.take(t.RBRACKET)
                node = build.call(id, function, [node, index])
                self.raised(height, self.height)
            else:
                return node

    def after_dot(self, operand: Node) -> Node:
        build, kinds = self.build, self.kinds
        offset = self.starts[self.at]
        self.at += 1
        optional = kinds[self.at] == t.QUESTION
        if optional:
            self.at += 1
        kind = kinds[self.at]
        if kind not in (t.IDENTIFIER, t.ESC_IDENTIFIER):
            raise _Mistake
        name, name_offset = self.texts[self.at], self.starts[self.at]
        self.at += 1
        height = self.height
        if kind == t.ESC_IDENTIFIER:
            name = name[1:-1]
        elif kinds[self.at] == t.LPAREN and not optional:
            id = build.id(self.starts[self.at])
            args = self.arguments()
            node = build.member_call(id, name, operand, args)
            self.raised(height, self.height)
            return node
        self.raised(height)
        if optional:
            id = build.id(offset)
            return build.call(id, "_?._", [operand, Literal(build.id(name_offset), name)])
        return Select(build.id(offset), operand, name)

    def arguments(self) -> list[Node]:
        self.take(t.LPAREN)
        args: list[Node] = []
        height = 0
        if self.kinds[self.at] != t.RPAREN:
            while True:
                args.append(self.expression(0))
                height = max(height, self.height)
                if self.kinds[self.at] != t.COMMA:
                    break
                self.at += 1
        self.take(t.RPAREN)
        self.height = height
        return args

    def primary(self) -> Node:
        build, at = self.build, self.at
        kind, offset, text = self.kinds[at], self.starts[at], self.texts[at]
        self.height = 0
        if kind in (t.IDENTIFIER, t.DOT):
            return self.named()
        self.at = at + 1
        if kind == t.STRING:
            return build.text(text, offset)
        if kind in _NUMBERS:
            return build.number(text, offset, _NUMBERS[kind])
        if kind in _CONSTANTS:
            return Literal(build.id(offset), _CONSTANTS[kind])
        if kind == t.LPAREN:
            node = self.expression(0)
            self.take(t.RPAREN)
            return node
        if kind == t.LBRACKET:
            return self.list_of(offset)
        if kind == t.LBRACE:
            return self.map_of(offset)
        if kind == t.MINUS and self.kinds[at + 1] in (t.INT, t.FLOAT):
            self.at = at + 2
            return build.number("-" + self.texts[at + 1], offset, _NUMBERS[self.kinds[at + 1]])
        if kind == t.BYTES:
            return build.octets(text, offset)
        raise _Mistake

    def named(self) -> Node:
        """Return the expression that starts with a name: an identifier, a call, or an object."""
        build, kinds = self.build, self.kinds
        start = self.starts[self.at]
        dot = ""
        if kinds[self.at] == t.DOT:
            dot = "."
            self.at += 1
        at = self.at
        offset = self.take(t.IDENTIFIER)
        name = self.texts[at]
        kind = kinds[self.at]
        if kind == t.LBRACE or (kind == t.DOT and self.is_object()):
            return self.object_of(dot + name)
        if name in RESERVED:
            if kind == t.LPAREN:
                reported = len(build.issues.found)
                self.arguments()
                del build.issues.found[reported:]  # upstream does not convert these arguments to nodes
                self.height = 0
            return build.fault(start, f"reserved identifier: {name}")
        if kind == t.LPAREN:
            id = build.id(self.starts[self.at])
            return build.call(id, dot + name, self.arguments())
        return Ident(build.id(offset), dot + name)

    def is_object(self) -> bool:
        """Return whether the next tokens are dotted names and a brace."""
        kinds, at = self.kinds, self.at
        while kinds[at] == t.DOT and kinds[at + 1] == t.IDENTIFIER:
            at += 2
        return kinds[at] == t.LBRACE

    def list_of(self, offset: int) -> Node:
        id = self.build.id(offset)
        elements: list[Node] = []
        optional = set()
        height = 0
        kinds = self.kinds
        while kinds[self.at] not in (t.RBRACKET, t.COMMA):
            if kinds[self.at] == t.QUESTION:
                self.at += 1
                optional.add(len(elements))
            elements.append(self.expression(0))
            height = max(height, self.height)
            if kinds[self.at] != t.COMMA or kinds[self.at + 1] in (t.COMMA, t.RBRACKET):
                break
            self.at += 1
        if kinds[self.at] == t.COMMA:
            self.at += 1
        self.take(t.RBRACKET)
        self.height = height
        return ListOf(id, elements, frozenset(optional))

    def map_of(self, offset: int) -> Node:
        id = self.build.id(offset)
        return MapOf(id, self.entries(False))

    def object_of(self, name: str) -> Node:
        while self.kinds[self.at] == t.DOT:
            name += "." + self.texts[self.at + 1]
            self.at += 2
        id = self.build.id(self.take(t.LBRACE))
        return ObjectOf(id, name, self.entries(True))

    def entries(self, of_object: bool) -> list[Entry]:
        """Consume the entries and the closing brace; return the entries."""
        entries: list[Entry] = []
        kinds, build = self.kinds, self.build
        height = 0
        while kinds[self.at] not in (t.RBRACE, t.COMMA):
            optional = kinds[self.at] == t.QUESTION
            if optional:
                self.at += 1
            if of_object:
                key, id = self.field()
            else:
                # as upstream: the id of the colon precedes the id of the key
                id = build.id(-1)
                key = self.expression(0)
                height = max(height, self.height)
                build.offsets[id] = self.take(t.COLON)
            entries.append(Entry(id, key, self.expression(0), optional))
            height = max(height, self.height)
            if kinds[self.at] != t.COMMA or kinds[self.at + 1] in (t.COMMA, t.RBRACE):
                break
            self.at += 1
        if kinds[self.at] == t.COMMA:
            self.at += 1
        self.take(t.RBRACE)
        self.height = height
        return entries

    def field(self) -> tuple[Node, int]:
        """Return the name of an object's field as a literal without id, and the id of its colon."""
        kind, name = self.kinds[self.at], self.texts[self.at]
        if kind not in (t.IDENTIFIER, t.ESC_IDENTIFIER):
            raise _Mistake
        self.at += 1
        id = self.build.id(self.take(t.COLON))
        return Literal(0, name[1:-1] if kind == t.ESC_IDENTIFIER else name), id
