"""Work budgets for rules: a small one on the event loop, an unlimited one in a thread.

The work in a thread is stopped when the request ends. The unit is one CEL cost unit, about 50 ns. Other work, such as
the compilation of rules, counts in proportion to its time.
"""

import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple

from apiext.cel import effort
from apiext.cel import limits as cel_limits
from apiext.cel.limit import ELEMENT, PER_CALL_LIMIT, Limit
from apiext.schema import limits

if TYPE_CHECKING:  # CEL is imported when it is first used (decision 36)
    from apiext.cel.environment import Evaluation, Program

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

DECLARING = 50  # units for declaring the type of one schema node
COMPILING = 6_000  # units for parsing, checking and planning one expression of USUAL_TEXT characters
CHARACTER = 50  # units for each character beyond USUAL_TEXT
USUAL_TEXT = 100  # characters
NODE = 300  # units for an AST node that a macro copies, and for generating the code of a node beyond USUAL_NODES
GENERATING = 8_000  # units for generating the code of one expression of USUAL_NODES nodes
USUAL_NODES = 50
VISITING = 10  # units for visiting one value on the path to rules
EVALUATING = 30  # units for the overhead of one evaluation


def compiling(text: str) -> int:
    """Return the units for parsing, checking and planning an expression.

    The units do not include those for nodes that macros copy: ``grow`` subtracts them.
    """
    return COMPILING + CHARACTER * max(0, len(text) - USUAL_TEXT)


class BudgetExhausted(Exception):
    """The error of work on the event loop that exceeds its budget.

    The work has changed no data, so it can start again in a thread.
    """


class Stopped(Exception):
    """The error of work that was stopped, since its request has ended."""


class WorkBudget:
    """The work that one task may still do, in CEL cost units.

    A ``brief`` budget raises BudgetExhausted when it is exhausted. Any other budget raises Stopped after a call of
    ``stop``. Any thread may call ``stop``. Only the thread that does the work may use the other methods.
    """

    __slots__ = ("brief", "left", "limit")

    def __init__(self, *, brief: bool = False) -> None:
        self.brief = brief
        self.left = limits.LOOP_UNITS
        self.limit = Limit(PER_CALL_LIMIT, brief=brief)

    def stop(self) -> None:
        """Make the work raise Stopped at its next ``spend`` or evaluation."""
        self.limit.cancel()

    @property
    def short(self) -> bool:
        """Return whether work was counted, and all of it fits into the budget of the event loop."""
        return 0 <= self.left - self.limit.work * ELEMENT < limits.LOOP_UNITS

    def spend(self, units: int) -> None:
        """Subtract units for the next work. Raise BudgetExhausted or Stopped."""
        if self.limit.cancelled:
            raise Stopped
        self.left -= units
        if self.left < 0 and self.brief:
            raise BudgetExhausted

    def evaluate(self, program: "Program", variables: Mapping[str, Any]) -> "Evaluation":
        """Evaluate a rule within the budget. Raise BudgetExhausted or Stopped."""
        self.spend(EVALUATING if program.generated else GENERATING + NODE * max(0, program.nodes - USUAL_NODES))
        limit = self.limit
        if self.brief:
            limit.max_cost = self.left
        found = program.evaluate(variables, limit)
        self.left -= found.cost
        if self.brief:
            limit.effort = effort.left()  # all rules together may process as many elements as a single rule
        if found.cancelled:
            if limit.cancelled:
                raise Stopped
            if self.brief:
                raise BudgetExhausted
        return found


class _Current(threading.local):
    def __init__(self) -> None:
        self.budget = WorkBudget()
        self.brief = WorkBudget(brief=True)


_current = _Current()


def current() -> WorkBudget:
    """Return the work budget of this thread.

    Outside ``within_budget`` and ``within_loop_budget``, the budget is unlimited.
    """
    return _current.budget


def grow(nodes: int) -> None:
    """Subtract units for nodes that macros copy. Raise BudgetExhausted or Stopped."""
    _current.budget.spend(nodes * NODE)


def within_budget(budget: WorkBudget, work: Callable[[*Ts], T], *args: *Ts) -> T:
    """Call ``work`` within a budget and return its result.

    Raise BudgetExhausted, Stopped, and the errors of ``work``.
    """
    before, _current.budget = _current.budget, budget
    try:
        return work(*args)
    finally:
        _current.budget = before


def within_loop_budget(work: Callable[[*Ts], T], *args: *Ts) -> T:
    """Call ``work`` within the budget of the event loop and return its result.

    Raise BudgetExhausted, and the errors of ``work``. No thread stops such work, so each thread reuses one budget.
    """
    mine = _current
    before, brief = mine.budget, mine.brief
    brief.left = limits.LOOP_UNITS
    brief.limit.work = 0
    brief.limit.effort = cel_limits.MAX_ELEMENTS
    mine.budget = brief
    try:
        return work(*args)
    finally:
        mine.budget = before
