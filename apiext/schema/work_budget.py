"""Work budgets of rules: a small one on the event loop, and in a thread one that ends when the request does.

Work is counted in CEL cost units of about 50 ns. Work that is no rule is charged by its time.
"""

import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple

from apiext.cel import effort
from apiext.cel.evaluation import ELEMENT, PER_CALL_LIMIT, Limit
from apiext.schema import limits

if TYPE_CHECKING:  # CEL is imported when it is first used (decision 36)
    from apiext.cel.environment import Evaluation, Program

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

DECLARING = 50  # units of one node of a schema made a declared type
COMPILING = 6_000  # units of one expression of usual length parsed, checked, and planned ...
CHARACTER = 50  # ... and of each character more
USUAL_TEXT = 100  # characters of such an expression
NODE = 300  # units of a node that macros repeat, and of the code of a node beyond the usual ones
GENERATING = 8_000  # units of the code of one expression ...
USUAL_NODES = 50  # ... of so many nodes
VISITING = 10  # units of one value on the way to rules
ASKING = 30  # units of what surrounds one evaluation


def compiling(text: str) -> int:
    """Return the units of an expression parsed, checked and planned; those of nodes that macros repeat come on top."""
    return COMPILING + CHARACTER * max(0, len(text) - USUAL_TEXT)


class BudgetExhausted(Exception):
    """Work on the event loop exceeds its budget; it has changed nothing and can start again in a thread."""


class Stopped(Exception):
    """Work was stopped, since its request has ended."""


class WorkBudget:
    """The work that one task may still do, in cost units of rules.

    ``brief`` work raises BudgetExhausted when the budget is spent. Other work raises Stopped after ``stop``, which any
    thread may call. All else belongs to the thread that works.
    """

    __slots__ = ("brief", "left", "limit")

    def __init__(self, *, brief: bool = False) -> None:
        self.brief = brief
        self.left = limits.LOOP_UNITS
        self.limit = Limit(PER_CALL_LIMIT, brief=brief)

    def stop(self) -> None:
        """End the work at its next turn."""
        self.limit.cancel()

    @property
    def short(self) -> bool:
        """Whether rules were evaluated and the work fits the budget of the event loop."""
        return 0 <= self.left - self.limit.time * ELEMENT < limits.LOOP_UNITS

    def spend(self, units: int) -> None:
        """Take units for work about to be done. Raises BudgetExhausted and Stopped."""
        if self.limit.cancelled:
            raise Stopped
        self.left -= units
        if self.left < 0 and self.brief:
            raise BudgetExhausted

    def evaluate(self, program: "Program", variables: Mapping[str, Any]) -> "Evaluation":
        """Evaluate a rule within the budget. Raises BudgetExhausted and Stopped."""
        self.spend(ASKING if program.generated else GENERATING + NODE * max(0, program.nodes - USUAL_NODES))
        limit = self.limit
        if self.brief:
            limit.most = self.left
        found = program.evaluate(variables, limit)
        self.left -= found.cost
        if self.brief:
            limit.effort = effort.left()  # all rules together may touch as many elements as a single one
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
    """Return the budget of the work that this thread does; without ``within_budget`` it has no end."""
    return _current.budget


def grow(nodes: int) -> None:
    """Take units for nodes that macros repeat. Raises BudgetExhausted and Stopped."""
    _current.budget.spend(nodes * NODE)


def within_budget(budget: WorkBudget, work: Callable[[*Ts], T], *args: *Ts) -> T:
    """Do work within a budget and return its result. Raises BudgetExhausted and Stopped, and what the work raises."""
    before, _current.budget = _current.budget, budget
    try:
        return work(*args)
    finally:
        _current.budget = before


def within_loop_budget(work: Callable[[*Ts], T], *args: *Ts) -> T:
    """Do work within the budget of the event loop and return its result.

    Raises BudgetExhausted, and what the work raises. It is never stopped, so each thread has one budget for it.
    """
    mine = _current
    before, brief = mine.budget, mine.brief
    brief.left = limits.LOOP_UNITS
    brief.limit.time = 0
    brief.limit.effort = effort.MOST
    mine.budget = brief
    try:
        return work(*args)
    finally:
        mine.budget = before
