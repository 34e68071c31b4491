"""Compile and evaluate expressions with declared variables."""

from collections.abc import Iterable, Mapping
from typing import Any

from apiext.cel import types
from apiext.cel.base import Extension, base
from apiext.cel.builder import Weigh
from apiext.cel.checker import Checked, Checker
from apiext.cel.declared import Declared
from apiext.cel.effort import Cancelled, renew, room_for
from apiext.cel.estimate import estimate
from apiext.cel.evaluation import Code, Step, Tracker, Variables
from apiext.cel.limit import PER_CALL_LIMIT, Limit
from apiext.cel.parser import TOO_DEEP, parse
from apiext.cel.planner import Unplannable, plan
from apiext.cel.ranges import Range
from apiext.cel.runtime import Reached, Unhandled, values
from apiext.cel.source import Issues, Source, TooLarge
from apiext.cel.types import Type
from apiext.cel.validators import validate
from apiext.cel.values import Broken, Fault, Value


class Rejected:
    """An invalid expression: the stage that refused it, and upstream's text.

    ``Environment.compile`` lists the stages. ``checked`` is None unless the stage is "instantiation".
    """

    __slots__ = ("checked", "stage", "text")

    def __init__(self, stage: str, text: str, checked: Checked | None = None) -> None:
        self.stage = stage
        self.text = text
        self.checked = checked

    @property
    def result(self) -> Type | None:
        """Return the type of the expression, or None if ``checked`` is None."""
        return self.checked.result if self.checked is not None else None

    def mentions(self, variable: str) -> bool:
        """Return whether the expression uses a variable, or False if ``checked`` is None."""
        return self.checked is not None and self.checked.mentions(variable)


class Evaluation:
    """The result of an evaluation: a value or an error text, and the cost.

    ``cancelled`` is true if the evaluation exceeded its limit, or if another thread cancelled it.
    """

    __slots__ = ("cancelled", "cost", "error", "value")

    def __init__(self, value: Value, error: str | None, cost: int, cancelled: bool = False) -> None:
        self.value = value
        self.error = error
        self.cost = cost
        self.cancelled = cancelled

    def __repr__(self) -> str:
        return f"Evaluation({self.value!r}, {self.error!r}, {self.cost})"


class Environment:
    """The environment of expressions: variables, types and functions.

    ``variables`` maps each name to a Declared or a plain Type. ``optional`` are the names of variables whose values may
    be missing; in expressions, these variables are optionals. ``version`` is "stored" for all functions, or "new" for
    the functions that new rules may use. ``extension`` contains functions and types of only this environment.
    A plain Type only names the object types in it; ``objects`` declare the fields of these object types.
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
        """Parse and type-check an expression; return its issues if it is invalid.

        Call ``weigh`` with the number of nodes that macros add, and raise its errors.
        """
        issues = Issues(Source(text))
        renew()
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
        """Return a program, or the reason why the expression is invalid.

        The stage of a Rejected is "compilation" if ``check`` returns issues, "result" if the expression has another
        type than ``result``, or "instantiation" if a constant part of the expression has a fault. Call ``weigh`` with
        the number of nodes that macros add, and raise its errors.
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
        """Return the range of an expression's estimated cost.

        The estimate uses the declared sizes of the variable ``root``.
        """
        with room_for(len(checked.parsed.text)):
            return estimate(checked, self.declared.get(root))


UNDECIDED = (
    Unhandled,
    Broken,
    KeyError,
    IndexError,
    TypeError,
    AttributeError,
    ValueError,
    ArithmeticError,
    RecursionError,
)
"""Errors of generated code, after which the interpreter evaluates the expression."""


class Program:
    """A compiled expression; the first call of ``evaluate`` generates its code."""

    __slots__ = ("_mixed", "_run", "checked", "environment", "generated", "step")

    def __init__(self, environment: Environment, checked: Checked, step: Step) -> None:
        self.environment = environment
        self.checked = checked
        self.step = step
        self._run: Code | None = None
        self._mixed = False  # true if the generated code calls the interpreter for some steps
        self.generated = False

    @property
    def result(self) -> Type:
        """Return the type of the result."""
        return self.checked.result

    @property
    def nodes(self) -> int:
        """Return the approximate number of nodes, including the expansions of macros."""
        return len(self.checked.parsed.offsets)

    def mentions(self, variable: str) -> bool:
        """Return whether the expression uses a variable, such as oldSelf in a transition rule."""
        return self.checked.mentions(variable)

    def evaluate(self, variables: Mapping[str, Any], limit: Limit | None = None) -> Evaluation:
        """Evaluate with generated code.

        If no code can be generated, or if it raises one of the errors UNDECIDED, call ``interpret``.
        """
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
                return Evaluation(None, str(stopped), max(limit.max_cost, 0), True)
            except UNDECIDED:
                pass
            else:
                return Evaluation(value, None, cost)
        return self.interpret(variables, limit)

    def _generate(self) -> None:
        from apiext.cel.generate import generate  # imported on first use: many programs never run

        with room_for(len(self.checked.parsed.text)):
            made = generate(self.checked, self.step, self.environment.declared, self.environment.optional)
        if made is not None:
            self._run, self._mixed = made
        self.generated = True  # set last, since another thread may read ``generated`` and then use ``_run``

    def interpret(self, variables: Mapping[str, Any], limit: Limit | None = None) -> Evaluation:
        """Evaluate step by step, as upstream does.

        ``variables`` contains decoded JSON for variables with a Declared, and CEL values for the other variables.
        Optional variables may be missing. If ``limit`` is None, the maximal cost is PER_CALL_LIMIT.
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
