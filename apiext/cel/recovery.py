"""Report the syntax errors of an expression, with the texts of upstream's generated parser.

parser.py calls this module only for an invalid expression. After an error, upstream's parser skips tokens or assumes
a missing token, and continues. This module does the same with the same grammar (grammar.py).

- A rule of the grammar is a sequence of tokens, calls of rules, and choices between alternatives.
- A state is a place in a rule. A decision is a state at which the parser chooses an alternative.
- A context is a node of the syntax tree; a run of a rule creates it.
"""

from collections.abc import Generator
from functools import cache
from typing import Any

from apiext.cel import lexer as t
from apiext.cel import limits
from apiext.cel.broken_tree import Visitor
from apiext.cel.builder import TOO_NESTED, Builder, Macros
from apiext.cel.grammar import EPSILON, Choice, Context, Missing, Network, Placed, Rule, State, Tok
from apiext.cel.lexer import NAMES, Tokens
from apiext.cel.source import Issues

network = cache(Network)


class _Stop(Exception):
    """Parsing ends at a limit; the error is already reported."""


class _Fault(Exception):
    """The error of a rule that cannot continue.

    ``kind`` selects the error text. "no viable" shows the tokens from index ``first`` to index ``offending``;
    "mismatched" shows only the token at ``offending``.
    """

    def __init__(self, kind: str, state: State, offending: int, first: int = 0) -> None:
        super().__init__(kind)
        self.kind = kind
        self.state = state
        self.offending = offending
        self.first = first


Steps = Generator[tuple[str, int, State], Context, None]
"""A run of a rule. For each rule that it calls, it yields (name, precedence, state of the call).

Then it receives the Context of the called rule.
"""


def diagnose(tokens: Tokens, macros: Macros, issues: Issues) -> None:
    """Report the syntax errors of an expression, which consists of ``tokens``."""
    parser = _Parser(tokens, issues)
    try:
        root = parser.run()
        Visitor(tokens, Builder(issues, macros)).visit(root)
    except _Stop:
        pass
    except RecursionError:
        if not issues:
            issues.at(-1, TOO_NESTED)


class _Parser:
    """A parser that runs the grammar's rules in a loop, so that nesting needs no stack frames."""

    def __init__(self, tokens: Tokens, issues: Issues) -> None:
        self.net = network()
        self.tokens = tokens
        self.kinds = tokens.kinds
        self.issues = issues
        self.at = 0
        self.context: Context | None = None
        self.state: State = self.net.starts["start"]
        self.recovering = False
        self.last_error = -1
        self.last_states: set[State] = set()
        self.recoveries = 0
        self.nesting = 0

    # Rules

    def run(self) -> Context:
        """Parse the text and return its syntax tree, which has gaps at errors."""
        root = Context("start", None, None, 0)
        stack = [(root, self.rule(root))]
        result: Context | None = None
        while stack:
            context, steps = stack[-1]
            try:
                name, precedence, state = steps.send(result) if result is not None else next(steps)
            except StopIteration:
                stack.pop()
                result = self.finished
                self.context = context.parent
                if context.rule == "expr":
                    self.nesting -= 1
                continue
            if name == "expr":
                self.nesting += 1
                if self.nesting > limits.MAX_NESTING:
                    self.issues.at(-1, TOO_NESTED)
                    raise _Stop
            child = Context(name, self.context, state, self.at, precedence)
            stack.append((child, self.rule(child)))
            result = None
        assert result is not None
        return result

    def rule(self, context: Context) -> Steps:
        self.context = context
        try:
            yield from self.sequence(self.net.bodies[context.rule])
        except _Fault as fault:
            self.report(fault)
            self.recover()
        assert self.context is not None
        self.finished = self.context

    def sequence(self, placed: list[Placed]) -> Steps:
        for place in placed:
            part = place.part
            self.state = place.start
            if isinstance(part, Tok):
                self.keep(part.label, part.many, self.match(place.start))
            elif isinstance(part, Rule):
                context = self.context
                child = yield part.name, part.precedence, place.start
                self.context = context
                self.keep(part.label, part.many, child)
            elif part.kind == "star":
                yield from self.star(place, part)
            elif part.kind == "plus":
                yield from self.plus(place, part)
            else:
                yield from self.block(place, part)

    def keep(self, label: str, many: bool, value: Any) -> None:
        context = self.context
        assert context is not None
        if many:
            context.parts.setdefault(label, []).append(value)
        elif label:
            context.parts[label] = value

    def block(self, place: Placed, part: Choice) -> Steps:
        self.sync(place.block)
        if part.predicted:
            way = self.predict(place.block)
        else:
            kind = self.kinds[self.at]
            starts = [self.net.following(first) for first, _ in place.block.ways[: len(part.ways)]]
            way = next((number for number, start in enumerate(starts) if kind in start), len(part.ways))
            if way == len(part.ways):
                if part.kind == "block":
                    raise _Fault("no viable", self.state, self.at, self.at)
                return
        self.becomes(part, way)
        yield from self.sequence(place.ways[way])

    def becomes(self, part: Choice, way: int) -> None:
        """Record the kind of node that an alternative makes.

        A left-recursive alternative makes a new outer node; the node parsed so far becomes its left operand.
        """
        context = self.context
        assert context is not None
        chosen = part.ways[way]
        if not chosen.makes:
            return
        if part.kind != "star":
            context.makes = chosen.makes
            return
        outer = Context(context.rule, context.parent, context.invoked, context.start, context.precedence)
        outer.makes = chosen.makes
        outer.parts["left"] = context
        self.context = outer

    def star(self, place: Placed, part: Choice) -> Steps:
        self.sync(place.start)
        while True:
            if part.predicted:
                if self.predict(place.start) == 1:
                    return
            elif self.kinds[self.at] not in self.net.following(place.block):
                return
            way = 0
            if len(part.ways) > 1:
                self.state = place.block
                self.sync(place.block)
                way = self.predict(place.block)
            self.becomes(part, way)
            yield from self.sequence(place.ways[way])
            self.state = place.back
            self.sync(place.back)

    def plus(self, place: Placed, part: Choice) -> Steps:
        self.sync(place.block)
        while True:
            yield from self.sequence(place.ways[0])
            self.state = place.back
            self.sync(place.back)
            if part.predicted:
                if self.predict(place.back) == 1:
                    return
            elif self.kinds[self.at] not in self.net.following(place.block):
                return

    # Tokens and recovery, as in upstream's error strategy

    def match(self, state: State) -> int | Missing:
        if self.kinds[self.at] in state.tokens:
            return self.consume_matched()
        return self.recover_inline(state)

    def consume_matched(self) -> int:
        self.recovering = False
        self.last_states = set()
        self.last_error = -1
        at = self.at
        self.consume()
        return at

    def consume(self) -> None:
        if self.kinds[self.at] != t.EOF:
            self.at += 1

    def attempt(self) -> None:
        if self.recoveries == limits.MAX_RECOVERIES:
            self.syntax(self.at, f"error recovery attempt limit exceeded: {limits.MAX_RECOVERIES}")
            raise _Stop
        self.recoveries += 1

    def recover_inline(self, state: State) -> int | Missing:
        self.attempt()
        if self.delete_one():
            return self.consume_matched()
        assert state.next is not None
        if self.kinds[self.at] in self.expected_at(state.next):
            if not self.recovering:
                self.recovering = True
                self.syntax(self.at, f"missing {self.expecting()} at {self.display(self.at)}")
            return Missing(self.at, min(state.tokens))
        raise _Fault("mismatched", self.state, self.at)

    def delete_one(self) -> bool:
        """Skip one token if the token after it is expected; return whether it was skipped."""
        after = self.kinds[self.at + 1] if self.at + 1 < len(self.kinds) else t.EOF
        if after not in self.expected():
            return False
        self.unwanted()
        self.consume()
        self.recovering = False
        self.last_states = set()
        self.last_error = -1
        return True

    def unwanted(self) -> None:
        if not self.recovering:
            self.recovering = True
            self.syntax(self.at, f"extraneous input {self.display(self.at)} expecting {self.expecting()}")

    def sync(self, state: State) -> None:
        self.state = state
        if self.recovering:
            return
        following = self.net.following(state)
        if EPSILON in following or self.kinds[self.at] in following:
            return
        if state.kind in ("star_back", "plus_back"):
            self.unwanted()
            self.skip_until(self.expected() | self.recovery_set())
        elif not self.delete_one():
            raise _Fault("mismatched", state, self.at)

    def report(self, fault: _Fault) -> None:
        if self.recovering:
            return
        self.recovering = True
        if fault.kind == "mismatched":
            expecting = show_set(self.expected_at(fault.state))
            self.syntax(fault.offending, f"mismatched input {self.display(fault.offending)} expecting {expecting}")
            return
        first, last = fault.first, fault.offending
        text = "<EOF>"
        if self.kinds[first] != t.EOF:
            text = self.tokens.between(self.issues.source.text, first, last)
        shown = quote(text)
        word = shown[2:-1] if len(shown) > 4 and shown[2:-1] in ("true", "false", "null") else ""
        if word:
            self.syntax(last, f"mismatched input '{word}' expecting IDENTIFIER")
        else:
            self.syntax(last, f"no viable alternative at input {shown}")

    def recover(self) -> None:
        self.attempt()
        if self.last_error == self.at and self.state in self.last_states:
            self.consume()
        self.last_error = self.at
        self.last_states.add(self.state)
        self.skip_until(self.recovery_set())

    def skip_until(self, wanted: set[int]) -> None:
        skipped = 0
        while self.kinds[self.at] != t.EOF and self.kinds[self.at] not in wanted:
            if skipped >= limits.MAX_SKIPPED:
                self.issues.at(-1, f"error recovery token lookahead limit exceeded: {limits.MAX_SKIPPED}")
                raise _Stop
            skipped += 1
            self.consume()

    def recovery_set(self) -> set[int]:
        wanted: set[int] = set()
        context = self.context
        while context is not None and context.invoked is not None:
            assert context.invoked.next is not None
            wanted |= self.net.following(context.invoked.next)
            context = context.parent
        wanted.discard(EPSILON)
        return wanted

    def expected(self) -> set[int]:
        return self.expected_at(self.state)

    def expected_at(self, state: State) -> set[int]:
        """Return the tokens that a state accepts.

        If the current rule may end there, add the tokens that its callers accept afterwards.
        """
        following = self.net.following(state)
        if EPSILON not in following:
            return set(following)
        wanted = set(following)
        context = self.context
        while context is not None and context.invoked is not None and EPSILON in following:
            assert context.invoked.next is not None
            following = self.net.following(context.invoked.next)
            wanted |= following
            context = context.parent
        wanted.discard(EPSILON)
        if EPSILON in following:
            wanted.add(t.EOF)
        return wanted

    def expecting(self) -> str:
        return show_set(self.expected())

    def display(self, at: int) -> str:
        return "'<EOF>'" if self.kinds[at] == t.EOF else quote(self.tokens.texts[at])

    def syntax(self, at: int, message: str) -> None:
        self.issues.at(self.tokens.starts[at], f"Syntax error: {message}")

    # Decisions by more than one token

    def predict(self, decision: State) -> int:
        """Return the index of the alternative that fits the next tokens.

        Raise _Fault if no alternative fits.
        """
        configs = self.close([(way, number, (), False) for number, way in self.allowed(decision)], decision)
        at = self.at
        while True:
            kind = self.kinds[at]
            moved = [(s.next, n, stack, out) for s, n, stack, out in configs if kind in s.tokens and s.next]
            if not moved:
                ended = [n for s, n, _, out in configs if out or s.kind == "stop"]
                if ended:
                    return int(min(ended))
                raise _Fault("no viable", self.state, at, self.at)
            numbers = {n for _, n, _, _ in moved}
            if len(numbers) == 1:
                return int(numbers.pop())
            configs = self.close(moved, decision)
            by_place: dict[object, set[int]] = {}
            for state, number, stack, _ in configs:
                by_place.setdefault((state, stack), set()).add(number)
            if kind == t.EOF or all(len(found) > 1 for found in by_place.values()):
                return int(min(numbers))
            at += 1

    def allowed(self, decision: State) -> list[tuple[int, State]]:
        """Return (index, first state) of each alternative that the context's precedence allows."""
        context = self.context
        assert context is not None
        if decision.kind == "star_entry":
            block = decision.ways[0][0]
            if all(least and least < context.precedence for _, least in block.ways):
                return [(1, decision.ways[1][0])]
        return [
            (number, way)
            for number, (way, least) in enumerate(decision.ways)
            if not least or least >= context.precedence
        ]

    def close(self, configs: list[Any], decision: State) -> list[Any]:
        """Return the configurations that the parser can reach without consuming a token.

        A configuration is (state, index of the alternative, states to which the open calls return, whether the rule of
        the decision has ended). If a rule ends and no call is open, continue after each place of the grammar that calls
        the rule. Return at most limits.MAX_LOOKAHEAD configurations.

        In the loop of a left-recursive rule, alternative 0 continues the loop and has priority. If alternative 0 has a
        configuration, omit those of other alternatives with the same state and open calls, unless the state is the end
        of a rule.
        """
        found: dict[object, Any] = {}
        waiting = list(reversed(configs))
        precedence = self.context.precedence if self.context is not None else 0
        while waiting:
            config = waiting.pop()
            state, number, stack, out = config
            key = (state, number, stack)
            if key in found or len(found) >= limits.MAX_LOOKAHEAD:
                continue
            found[key] = config
            if state.kind == "stop":
                if stack:
                    waiting.append((stack[-1], number, stack[:-1], out))
                else:
                    waiting.extend((caller.next, number, (), True) for caller in self.net.callers[state.rule])
            elif state.calls and len(stack) < limits.MAX_STACK:
                waiting.append((self.net.starts[state.calls], number, (*stack, state.next), out))
            for way, least in state.ways:
                if least and not stack and not out and state.rule == decision.rule and least < precedence:
                    continue
                waiting.append((way, number, stack, out))
        if decision.kind == "star_entry" and decision.rule in ("relation", "calc", "member"):
            first = {(s, stack) for s, n, stack, _ in found.values() if n == 0}
            return [c for c in found.values() if c[1] == 0 or (c[0], c[2]) not in first or c[0].kind == "stop"]
        return list(found.values())


def show_set(kinds: set[int]) -> str:
    """Return a set of tokens as upstream prints it."""
    names = [NAMES[kind] for kind in sorted(kinds)]
    return names[0] if len(names) == 1 else "{" + ", ".join(names) + "}"


def quote(text: str) -> str:
    """Return a part of the text in quotes, with escaped tabs and line breaks."""
    return "'" + text.replace("\t", "\\t").replace("\n", "\\n").replace("\r", "\\r") + "'"
