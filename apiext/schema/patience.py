"""How long a piece of work may take where it is done: briefly on the loop, elsewhere until somebody stops it.

Work is counted in units of rules, about 50 ns each; what is no rule is charged by what it takes.
"""

import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, TypeVarTuple

from apiext.cel import effort
from apiext.cel.environment import PER_CALL_LIMIT, Evaluation, Program
from apiext.cel.evaluation import ELEMENT, Limit
from apiext.schema import limits

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


class TooLong(Exception):
    """Work that was to be brief and is not; nothing was changed, and it can be done again where nobody waits."""


class Stopped(Exception):
    """Work that nobody waits for any more."""


class Patience:
    """What one piece of work may still use. ``brief`` work gives up by TooLong, other work by Stopped after ``stop``.

    A thread that waits may call ``stop``; everything else belongs to the thread that works.
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
        """Whether rules were evaluated and the loop could have done it."""
        return 0 <= self.left - self.limit.time * ELEMENT < limits.LOOP_UNITS

    def spend(self, units: int) -> None:
        """Reckon with work about to be done. Raises TooLong and Stopped."""
        if self.limit.cancelled:
            raise Stopped
        self.left -= units
        if self.left < 0 and self.brief:
            raise TooLong

    def evaluate(self, program: Program, variables: Mapping[str, Any]) -> Evaluation:
        """Evaluate a rule within what is left. Raises TooLong and Stopped."""
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
                raise TooLong
        return found


class _Current(threading.local):
    def __init__(self) -> None:
        self.patience = Patience()
        self.brief = Patience(brief=True)


_current = _Current()


def current() -> Patience:
    """Return the patience of the work that this thread does; endless when nobody said anything."""
    return _current.patience


def grow(nodes: int) -> None:
    """Reckon with nodes that macros repeat. Raises TooLong and Stopped."""
    _current.patience.spend(nodes * NODE)


def working(patience: Patience, work: Callable[[*Ts], T], *args: *Ts) -> T:
    """Do work under a patience and return what it returns. Raises TooLong and Stopped besides its own."""
    before, _current.patience = _current.patience, patience
    try:
        return work(*args)
    finally:
        _current.patience = before


def briefly(work: Callable[[*Ts], T], *args: *Ts) -> T:
    """Do work that must be brief and return what it returns. Raises TooLong besides its own.

    Nobody stops such work, so each thread has one patience for all of it.
    """
    mine = _current
    before, brief = mine.patience, mine.brief
    brief.left = limits.LOOP_UNITS
    brief.limit.time = 0
    brief.limit.effort = effort.MOST
    mine.patience = brief
    try:
        return work(*args)
    finally:
        mine.patience = before
