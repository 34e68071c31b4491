"""The grammar of expressions as a network of states.

Syntax errors list the tokens that a state expects. recovery.py parses an expression with this network if the usual
parser (parser.py) finds a syntax error.
"""

from typing import Any, TypeAlias

from msgspec import Struct, field

from apiext.cel import lexer as t

EPSILON = -2  # an element of a set of expected tokens: it means that the rule may end


class State(Struct, eq=False):
    """A state of a rule: it expects one token or one rule, or has several alternatives.

    ``tokens`` are the kinds of the expected token. ``calls`` is the name of the expected rule, and ``precedence`` is
    that of its call.
    """

    rule: str
    kind: str = "basic"  # block, star_entry, star_back, plus_block, plus_back, stop
    # (first state of an alternative, its ``precedence`` as in Way)
    ways: "list[tuple[State, int]]" = field(default_factory=list)
    tokens: frozenset[int] = frozenset()
    calls: str = ""
    precedence: int = 0
    next: "State | None" = None


class Tok(Struct, frozen=True):
    """One token of a set of kinds; the parser stores it under a label, with ``many`` in a list."""

    kinds: frozenset[int]
    label: str = ""
    many: bool = False


class Rule(Struct, frozen=True):
    """The call of a rule; the parser stores the result under a label, with ``many`` in a list.

    ``precedence`` restricts the alternatives of the called rule (see Way).
    """

    name: str
    label: str = ""
    precedence: int = 0
    many: bool = False


class Choice(Struct, frozen=True):
    """A choice of alternatives (block), or a repetition.

    A repetition is star (any number), plus (at least one) or optional (at most one). If ``predicted`` is true, the
    parser may have to look ahead at more than one token.
    """

    kind: str
    ways: "tuple[Way, ...]"
    predicted: bool = False


class Way(Struct, frozen=True):
    """An alternative: a sequence of parts.

    ``makes`` is the name of its node, or "". A call of the rule allows the alternative if the ``precedence`` of the
    alternative is 0, or at least the precedence of the call.
    """

    parts: "tuple[Part, ...]"
    makes: str = ""
    precedence: int = 0


Part: TypeAlias = Tok | Rule | Choice


def _tok(*kinds: int, label: str = "", many: bool = False) -> Tok:
    return Tok(frozenset(kinds), label, many)


def _opt(*parts: Part) -> Choice:
    return Choice("optional", (Way(parts),))


def _star(*parts: Part, predicted: bool = False) -> Choice:
    return Choice("star", (Way(parts),), predicted)


_ARGS = (_opt(Rule("exprList", "args")), _tok(t.RPAREN))
_DOT = _opt(_tok(t.DOT, label="dot"))
_MARK = _opt(_tok(t.QUESTION, label="opt"))
_COMMA = _opt(_tok(t.COMMA))
_FIELD = (Rule("optField", "fields", many=True), _tok(t.COLON, label="cols", many=True))
_KEY = (Rule("optExpr", "keys", many=True), _tok(t.COLON, label="cols", many=True))
_VALUE = Rule("expr", "values", many=True)
_RELATIONS = _tok(t.LESS, t.LESS_EQUALS, t.GREATER_EQUALS, t.GREATER, t.EQUALS, t.NOT_EQUALS, t.IN, label="op")
_NAME = _tok(t.IDENTIFIER, label="id")

RULES: dict[str, tuple[Part, ...]] = {
    "start": (Rule("expr", "e"), _tok(t.EOF)),
    "expr": (
        Rule("conditionalOr", "e"),
        _opt(_tok(t.QUESTION, label="op"), Rule("conditionalOr", "e1"), _tok(t.COLON), Rule("expr", "e2")),
    ),
    "conditionalOr": (
        Rule("conditionalAnd", "e"),
        _star(_tok(t.OR, label="ops", many=True), Rule("conditionalAnd", "e1", many=True)),
    ),
    "conditionalAnd": (
        Rule("relation", "e"),
        _star(_tok(t.AND, label="ops", many=True), Rule("relation", "e1", many=True)),
    ),
    "relation": (
        Rule("calc", "e"),
        Choice("star", (Way((_RELATIONS, Rule("relation", "right", 2)), "relation", 1),), predicted=True),
    ),
    "calc": (
        Rule("unary", "e"),
        Choice(
            "star",
            (
                Way((_tok(t.STAR, t.SLASH, t.PERCENT, label="op"), Rule("calc", "right", 3)), "calc", 2),
                Way((_tok(t.PLUS, t.MINUS, label="op"), Rule("calc", "right", 2)), "calc", 1),
            ),
            predicted=True,
        ),
    ),
    "unary": (
        Choice(
            "block",
            (
                Way((Rule("member", "e"),), "member_only"),
                Way(
                    (
                        Choice("plus", (Way((_tok(t.EXCLAM, label="ops", many=True),)),)),
                        Rule("member", "e"),
                    ),
                    "not",
                ),
                Way(
                    (
                        Choice("plus", (Way((_tok(t.MINUS, label="ops", many=True),)),), predicted=True),
                        Rule("member", "e"),
                    ),
                    "negate",
                ),
            ),
            predicted=True,
        ),
    ),
    "member": (
        Rule("primary", "e"),
        Choice(
            "star",
            (
                Way((_tok(t.DOT, label="op"), _MARK, Rule("escapeIdent", "id")), "select", 3),
                Way((_tok(t.DOT, label="op"), _NAME, _tok(t.LPAREN, label="open"), *_ARGS), "member_call", 2),
                Way((_tok(t.LBRACKET, label="op"), _MARK, Rule("expr", "index"), _tok(t.RBRACKET)), "index", 1),
            ),
            predicted=True,
        ),
    ),
    "primary": (
        Choice(
            "block",
            (
                Way((_DOT, _NAME), "ident"),
                Way((_DOT, _NAME, _tok(t.LPAREN, label="op"), *_ARGS), "global_call"),
                Way((_tok(t.LPAREN), Rule("expr", "e"), _tok(t.RPAREN)), "nested"),
                Way(
                    (_tok(t.LBRACKET, label="op"), _opt(Rule("listInit", "elems")), _COMMA, _tok(t.RBRACKET)),
                    "create_list",
                ),
                Way(
                    (_tok(t.LBRACE, label="op"), _opt(Rule("mapInitializerList", "entries")), _COMMA, _tok(t.RBRACE)),
                    "create_map",
                ),
                Way(
                    (
                        _DOT,
                        _tok(t.IDENTIFIER, label="ids", many=True),
                        _star(_tok(t.DOT), _tok(t.IDENTIFIER, label="ids", many=True)),
                        _tok(t.LBRACE, label="op"),
                        _opt(Rule("fieldInitializerList", "entries")),
                        _COMMA,
                        _tok(t.RBRACE),
                    ),
                    "create_object",
                ),
                Way((Rule("literal", "e"),), "constant"),
            ),
            predicted=True,
        ),
    ),
    "exprList": (Rule("expr", "e", many=True), _star(_tok(t.COMMA), Rule("expr", "e", many=True))),
    "listInit": (
        Rule("optExpr", "elems", many=True),
        _star(_tok(t.COMMA), Rule("optExpr", "elems", many=True), predicted=True),
    ),
    "fieldInitializerList": (*_FIELD, _VALUE, _star(_tok(t.COMMA), *_FIELD, _VALUE, predicted=True)),
    "optField": (_MARK, Rule("escapeIdent", "id")),
    "mapInitializerList": (*_KEY, _VALUE, _star(_tok(t.COMMA), *_KEY, _VALUE, predicted=True)),
    "escapeIdent": (Choice("block", (Way((_NAME,), "simple"), Way((_tok(t.ESC_IDENTIFIER, label="id"),), "escaped"))),),
    "optExpr": (_MARK, Rule("expr", "e")),
    "literal": (
        Choice(
            "block",
            (
                Way((_opt(_tok(t.MINUS, label="sign")), _tok(t.INT, label="tok")), "int"),
                Way((_tok(t.UINT, label="tok"),), "uint"),
                Way((_opt(_tok(t.MINUS, label="sign")), _tok(t.FLOAT, label="tok")), "double"),
                Way((_tok(t.STRING, label="tok"),), "string"),
                Way((_tok(t.BYTES, label="tok"),), "bytes"),
                Way((_tok(t.TRUE, label="tok"),), "true"),
                Way((_tok(t.FALSE, label="tok"),), "false"),
                Way((_tok(t.NULL, label="tok"),), "null"),
            ),
            predicted=True,
        ),
    ),
}


class Placed(Struct, eq=False):
    """A part with its states.

    ``start`` is its first state, ``block`` the state that has its alternatives, and ``back`` the state at the end of
    each iteration of a loop. A token or a call of a rule has one state, which is all three. ``ways`` are the parts of
    each alternative.
    """

    part: Part
    start: State
    block: State
    back: State
    ways: "list[list[Placed]]"


class Network:
    """All states of the grammar, and the tokens that each state can accept.

    For each rule, ``starts`` and ``stops`` have its first and its last state, ``bodies`` its parts, and ``callers`` the
    states that call it.
    """

    def __init__(self) -> None:
        self.starts: dict[str, State] = {}
        self.stops: dict[str, State] = {}
        self.bodies: dict[str, list[Placed]] = {}
        self.callers: dict[str, list[State]] = {name: [] for name in RULES}
        self._following: dict[State, frozenset[int]] = {}
        for name, parts in RULES.items():
            stop = State(name, "stop")
            self.stops[name] = stop
            self.bodies[name], self.starts[name] = self._sequence(name, parts, stop)

    def _sequence(self, rule: str, parts: tuple[Part, ...], end: State) -> tuple[list[Placed], State]:
        """Return the parts of a sequence with their states, and its first state.

        The sequence ends at the state ``end``.
        """
        placed: list[Placed] = []
        for part in reversed(parts):
            place = self._place(rule, part, end)
            placed.insert(0, place)
            end = place.start
        return placed, end

    def _place(self, rule: str, part: Part, end: State) -> Placed:
        if isinstance(part, Tok):
            state = State(rule, tokens=part.kinds, next=end)
            return Placed(part, state, state, state, [])
        if isinstance(part, Rule):
            state = State(rule, calls=part.name, precedence=part.precedence, next=end)
            self.callers[part.name].append(state)
            return Placed(part, state, state, state, [])
        return self._choice(rule, part, end)

    def _choice(self, rule: str, part: Choice, end: State) -> Placed:
        block = State(rule, "block")
        start = back = block
        after = end
        if part.kind == "star":
            start = State(rule, "star_entry")
            back = after = State(rule, "star_back", ways=[(start, 0)])
            start.ways = [(block, 0), (end, 0)]
        elif part.kind == "plus":
            block.kind = "plus_block"
            back = after = State(rule, "plus_back", ways=[(block, 0), (end, 0)])
        ways = []
        for way in part.ways:
            placed, first = self._sequence(rule, way.parts, after)
            ways.append(placed)
            block.ways.append((first, way.precedence))
        if part.kind == "optional":
            block.ways.append((end, 0))
        return Placed(part, start, block, back, ways)

    def following(self, state: State) -> frozenset[int]:
        """Return the tokens that a state can accept, with EPSILON if its rule can end at the state."""
        known = self._following.get(state)
        if known is None:
            found: set[int] = set()
            self._look(state, (), found, set())
            known = self._following[state] = frozenset(found)
        return known

    def _look(self, state: State, stack: tuple[State, ...], found: set[int], seen: set[object]) -> None:
        """Add the tokens that a state can accept.

        Do not enter a call that is already open (in ``stack``) again.
        """
        key = (state, stack)
        if key in seen:
            return
        seen.add(key)
        if state.kind == "stop":
            if stack:
                self._look(stack[-1], stack[:-1], found, seen)
            else:
                found.add(EPSILON)
        elif state.calls:
            assert state.next is not None
            if state.next not in stack:
                self._look(self.starts[state.calls], (*stack, state.next), found, seen)
        found |= state.tokens
        for way, _ in state.ways:
            self._look(way, stack, found, seen)


class Context(Struct, eq=False):
    """A node of the syntax tree: the rule, the node's name (``makes``), and its parts.

    The parts are label → part. ``invoked`` is the state that calls the rule, None for the first rule. ``start`` is the
    index of the first token.
    """

    rule: str
    parent: "Context | None"
    invoked: State | None
    start: int
    precedence: int = 0
    makes: str = ""
    parts: dict[str, Any] = field(default_factory=dict)


class Missing(Struct, frozen=True):
    """A missing token; ``at`` is the index of the next token."""

    at: int
    kind: int
