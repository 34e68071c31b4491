"""Regular expressions in RE2's language, always linear in time; refusals carry Go's texts (STR-010)."""

from collections.abc import Callable

from apiext.cel import regexes
from apiext.schema import limits
from apiext.schema.budget import STEPS, Budget
from apiext.schema.work_budget import current

_STEPS_OF_A_UNIT = 100  # of a program over a text, 2 ns each where no automaton fits, that count as a unit of patience
_UNITS_OF_AN_ELEMENT = 8
_FEW_STEPS = 2_000  # that need not be reckoned with
_NOWHERE = (-1, -1)


def _before(pattern: str) -> None:
    STEPS.left -= 20  # compiling takes as long as so many matches
    current().spend(regexes.work(pattern) * _UNITS_OF_AN_ELEMENT)


_known = regexes.Programs(limits.PATTERN_BYTES, _before)


def _program(pattern: str) -> regexes.Pattern:
    """Return a pattern compiled; PatternError with Go's text when it is refused."""
    if len(pattern) > regexes.LONGEST:
        return regexes.compiled(pattern)  # refused at once, and nothing to be remembered
    found = _known.find(pattern)
    if isinstance(found, str):
        raise regexes.PatternError(found)
    return found


def refusal(pattern: str) -> str:
    """Return why a pattern is no regular expression, in Go's words; empty when it is one."""
    try:
        _program(pattern)
    except regexes.PatternError as error:
        return str(error)
    return ""


def size(pattern: str) -> int:
    """Return the instructions of a pattern's program, 0 for a pattern that is refused."""
    try:
        return _program(pattern).instructions
    except regexes.PatternError:
        return 0


def searcher(pattern: str, budget: Budget | None = None) -> Callable[[str], bool]:
    """Return a function that tells whether the pattern matches anywhere in a text.

    The pattern is compiled at the first call and kept in a bounded cache. A pattern that is refused matches nothing.
    The function raises BudgetExhausted or Stopped before it searches longer than its work budget allows, and OverBudget
    before it takes more steps than the object's budget has left.
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
