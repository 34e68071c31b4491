"""Where expressions are compiled: declared variables and a version of the language."""

from collections.abc import Iterable, Mapping
from typing import Any

from apiext.cel import types
from apiext.cel.base import Extension, base
from apiext.cel.builder import Weigh
from apiext.cel.checker import Checked, Checker
from apiext.cel.declared import Declared
from apiext.cel.effort import Cancelled, rest, room_for
from apiext.cel.estimate import estimate
from apiext.cel.evaluation import Code, Step, Tracker, Variables
from apiext.cel.limit import PER_CALL_LIMIT, Limit
from apiext.cel.parser import TOO_DEEP, parse
from apiext.cel.planner import Unplannable, plan
from apiext.cel.ranges import Range
from apiext.cel.runtime import Odd, Reached, values
from apiext.cel.source import Issues, Source, TooLarge
from apiext.cel.types import Type
from apiext.cel.validators import validate
from apiext.cel.values import Broken, Fault, Value


class Rejected:
    """An invalid expression: the stage that refused it, upstream's message, and the checked expression if any."""

    __slots__ = ("checked", "stage", "text")

    def __init__(self, stage: str, text: str, checked: Checked | None = None) -> None:
        self.stage = stage
        self.text = text
        self.checked = checked

    @property
    def result(self) -> Type | None:
        """The type of the expression, if it has one."""
        return self.checked.result if self.checked is not None else None

    def mentions(self, variable: str) -> bool:
        """Return whether a variable is used, as far as that is known."""
        return self.checked is not None and self.checked.mentions(variable)


class Evaluation:
    """The result of an evaluation: a value or an error message, and the cost. ``cancelled``: it was stopped."""

    __slots__ = ("cancelled", "cost", "error", "value")

    def __init__(self, value: Value, error: str | None, cost: int, cancelled: bool = False) -> None:
        self.value = value
        self.error = error
        self.cost = cost
        self.cancelled = cancelled

    def __repr__(self) -> str:
        return f"Evaluation({self.value!r}, {self.error!r}, {self.cost})"


class Environment:
    """Compiles expressions over declared variables.

    variables: name to a Declared, or to a plain Type. optional: names whose values may be missing; they are seen as
    optional values. version: "stored" for all of the language, "new" for the part that new rules may use.
    extension: functions and types that only this environment has. objects: object types whose fields are known, of
    variables of a plain Type.
    """

    def __init__(
        self,
        variables: Mapping[str, Declared | Type],
        *,
        optional: frozenset[str] = frozenset(),
        version: str = "stored",
        extension: Extension | None = None,
        objects: Iterable[Declared] = (),
    ) -> None:
        self.base = base(version, extension)
        self.declared = {name: kind for name, kind in variables.items() if isinstance(kind, Declared)}
        self.optional = optional
        self.variables: dict[str, Type] = {}
        self.objects: dict[str, Declared] = {}
        for declared in (*objects, *self.declared.values()):
            self.objects |= declared.objects()
        for name, kind in variables.items():
            found = kind.type() if isinstance(kind, Declared) else kind
            self.variables[name] = types.optional_of(found) if name in optional else found

    def check(self, text: str, weigh: Weigh | None = None) -> "Checked | Issues":
        """Parse and check an expression. Return its issues if it is invalid. Raises the errors of ``weigh``."""
        issues = Issues(Source(text))
        rest()
        with room_for(len(text)):
            try:
                parsed = parse(text, self.base.macros, issues, weigh)
                if parsed is None:
                    return issues
                checked = Checker(parsed, self.base, self.variables, self.objects, issues).run()
                if not issues:
                    validate(checked, issues)
            except (RecursionError, TooLarge) as wrong:
                issues.found.clear()
                issues.at(-1, str(wrong) if isinstance(wrong, TooLarge) else TOO_DEEP)
        return issues if issues else checked

    def compile(self, text: str, result: Type | None = None, weigh: Weigh | None = None) -> "Program | Rejected":
        """Return a program, or why there is none. Raises what ``weigh`` raises, which is told how the expression grows.

        A Rejected says "compilation" with the text of ``issues``, "result" when the whole is not of the type
        ``result``, or "instantiation" with the fault of a constant part.
        """
        checked = self.check(text, weigh)
        if isinstance(checked, Issues):
            return Rejected("compilation", checked.text())
        if result is not None and checked.result != result:
            return Rejected("result", f"must evaluate to a {result}")
        try:
            with room_for(len(text)):
                return Program(self, checked, plan(checked, self.base))
        except Unplannable as wrong:
            return Rejected("instantiation", str(wrong), checked)

    def estimate(self, checked: Checked, root: str = "self") -> Range:
        """Return the least and the most that an expression costs, with the sizes declared for a variable."""
        with room_for(len(checked.parsed.text)):
            return estimate(checked, self.declared.get(root))


UNDECIDED = (Odd, Broken, KeyError, IndexError, TypeError, AttributeError, ValueError, ArithmeticError, RecursionError)
"""Errors of generated code; after them the expression is interpreted."""


class Program:
    """An expression that can be evaluated; code for it is ``generated`` when it is evaluated first."""

    __slots__ = ("_mixed", "_run", "checked", "environment", "generated", "step")

    def __init__(self, environment: Environment, checked: Checked, step: Step) -> None:
        self.environment = environment
        self.checked = checked
        self.step = step
        self._run: Code | None = None
        self._mixed = False  # parts of it are interpreted
        self.generated = False

    @property
    def result(self) -> Type:
        """Return the type of the result."""
        return self.checked.result

    @property
    def nodes(self) -> int:
        """Return of how many nodes it is, those that macros make among them."""
        return len(self.checked.parsed.offsets)

    def mentions(self, variable: str) -> bool:
        """Return whether a variable is used, as transition rules use oldSelf."""
        return self.checked.mentions(variable)

    def evaluate(self, variables: Mapping[str, Any], limit: Limit | None = None) -> Evaluation:
        """Evaluate with generated code, and interpret if that raises. Arguments are those of ``interpret``."""
        limit = limit or Limit(PER_CALL_LIMIT)
        if not self.generated:
            self._generate()
        limit.begin()
        run = self._run
        if run is not None:
            try:
                value, cost = run(variables, limit.interpreted() if self._mixed else limit)
            except Reached as stopped:
                return Evaluation(None, str(limit.reached()), stopped.cost, True)
            except Cancelled as stopped:
                return Evaluation(None, str(stopped), max(limit.most, 0), True)
            except UNDECIDED:
                pass
            else:
                return Evaluation(value, None, cost)
        return self.interpret(variables, limit)

    def _generate(self) -> None:
        from apiext.cel.generate import generate  # programs that never run do not need it

        with room_for(len(self.checked.parsed.text)):
            made = generate(self.checked, self.step, self.environment.declared, self.environment.optional)
        if made is not None:
            self._run, self._mixed = made
        self.generated = True  # last: another thread may look

    def interpret(self, variables: Mapping[str, Any], limit: Limit | None = None) -> Evaluation:
        """Evaluate step by step, as upstream does.

        variables: decoded JSON for declared ones (absent for a missing optional one), values for all other ones.
        limit: the most it may cost, PER_CALL_LIMIT if it is None.
        """
        limit = limit or Limit(PER_CALL_LIMIT)
        tracker = Tracker(limit.interpreted())
        limit.begin()
        try:
            with room_for(len(self.checked.parsed.text)):
                value = self.step.eval(
                    Variables(values(variables, (self.environment.declared, self.environment.optional))), tracker
                )
        except Cancelled as stopped:
            return Evaluation(None, str(stopped), tracker.cost, True)
        except Broken as wrong:
            return Evaluation(None, f"internal error: {wrong}", tracker.cost)
        except RecursionError:
            return Evaluation(None, TOO_DEEP, tracker.cost)
        if type(value) is Fault:
            return Evaluation(None, value.message, tracker.cost)
        return Evaluation(value, None, tracker.cost)
