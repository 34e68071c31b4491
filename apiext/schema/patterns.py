"""Compile and match regular expressions in RE2 syntax, in linear time (STR-010).

Errors have Go's texts.
"""

from collections.abc import Callable

from apiext.cel import limits as cel_limits
from apiext.cel import regexes
from apiext.schema import limits
from apiext.schema.budget import STEPS, Budget
from apiext.schema.work_budget import current

# Steps that cost one unit of the work budget. A search has (pattern instructions × text bytes) steps; a step takes 0.5
# to 2 ns.
_STEPS_OF_A_UNIT = 100
_UNITS_OF_AN_ELEMENT = 8
_FEW_STEPS = 2_000  # a search with at most this number of steps is not charged to a budget
_NOWHERE = (-1, -1)


def _charge(pattern: str) -> None:
    STEPS.left -= 20  # the compilation takes as long as 20 validation steps
    current().spend(regexes.work(pattern) * _UNITS_OF_AN_ELEMENT)


_cache = regexes.Programs(limits.PATTERN_BYTES, _charge)


def _program(pattern: str) -> regexes.Pattern:
    """Return a compiled pattern. Raise PatternError with Go's text if it is invalid."""
    if len(pattern) > cel_limits.MAX_PATTERN:
        return regexes.compiled(pattern)  # raises PatternError
    found = _cache.find(pattern)
    if isinstance(found, str):
        raise regexes.PatternError(found)
    return found


def refusal(pattern: str) -> str:
    """Return Go's error text of an invalid pattern, or an empty text for a valid one."""
    try:
        _program(pattern)
    except regexes.PatternError as error:
        return str(error)
    return ""


def size(pattern: str) -> int:
    """Return the number of instructions of a compiled pattern, or 0 for an invalid pattern."""
    try:
        return _program(pattern).instructions
    except regexes.PatternError:
        return 0


def searcher(pattern: str, budget: Budget | None = None) -> Callable[[str], bool]:
    """Return a function that returns whether the pattern matches anywhere in a text.

    A call compiles the pattern unless the cache has it. An invalid pattern matches no text. On the event loop, the
    returned function raises BudgetExhausted before a compilation or search that exceeds the work budget. It raises
    Stopped if the request has ended, and OverBudget before a search that exceeds the object's ``budget``.
    """

    def search(text: str) -> bool:
        raw = text.encode("utf-8", "replace")
        try:
            match, instructions, _ = _program(pattern)
        except regexes.PatternError:
            return False
        size = len(raw)
        if size * instructions > _FEW_STEPS:
            current().spend(size * instructions // _STEPS_OF_A_UNIT)
            if budget is not None:
                budget.spend(size * instructions)
        return match(raw, 0, size)[0] != _NOWHERE

    return search
