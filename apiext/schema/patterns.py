"""Regular expressions in RE2's language, always linear in time; refusals carry Go's texts (STR-010)."""

from collections.abc import Callable
from functools import lru_cache

from apiext import limits
from apiext.cel import regexes
from apiext.schema.budget import STEPS

_NOWHERE = (-1, -1)


@lru_cache(limits.PATTERNS_SEEN)
def _program(pattern: str) -> regexes.Match:
    """Return the match function of a pattern; PatternError with Go's text when it is refused."""
    STEPS.left -= 20  # compiling takes as long as so many matches
    return regexes.compiled(pattern)


def refusal(pattern: str) -> str:
    """Return why a pattern is no regular expression, in Go's words; empty when it is one."""
    try:
        _program(pattern)
    except regexes.PatternError as error:
        return str(error)
    return ""


def searcher(pattern: str) -> Callable[[str], bool]:
    """Return a function that tells whether the pattern matches anywhere in a text.

    The pattern is compiled at the first call and kept in a bounded cache. A pattern that is refused matches nothing.
    """

    def search(text: str) -> bool:
        raw = text.encode("utf-8", "replace")
        try:
            match = _program(pattern)
        except regexes.PatternError:
            return False
        return match(raw, 0, len(raw))[0] != _NOWHERE

    return search
