"""Match regular expressions with RE2, in linear time, with Go's error texts.

A program is a pattern that RE2 has compiled. Work is counted in elements, the unit of the budget of an evaluation
(effort.py). A step is one instruction of a program for one byte of a text.
"""

import re
from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

from apiext.cel import limits, re2_programs, unicode_classes
from apiext.cel.effort import spend, spend_work
from apiext.cel.unicode_classes import Reading

_FEW_INSTRUCTIONS = 200  # maximal instructions of a program with the smallest memory limit
# Memory limits of one program with the states that RE2 caches, in bytes. If a limit is too small, the next is tried.
_TINY, _SMALL, _LARGE = 128 * 1024, 1024 * 1024, 4 * 1024 * 1024
_CACHE_BYTES = 32 * 1024 * 1024  # maximal bytes of all programs in the cache of expressions
_REFUSED = 1024  # bytes that an invalid pattern in this cache counts as
# Optional parts of a pattern: a? has 1, a{2,5} has 3. Their compilation takes quadratic time: 80 ms for this number. A
# pattern with more is refused as too large.
_MOST_OPTIONAL = 5_000
_OPTIONAL = 3  # one optional part counts as three characters
_MOST_CLASSES = 1_000  # \p and \P in a pattern: RE2 needs 26 KB for each
_CLASS, _FOUND = 600, 4  # the creation of one \p class counts as 600 elements, one found match as four
_STEPS_OF_AN_ELEMENT = 400  # steps that count as one element; a step takes at most 2 ns
_FEW_STEPS = 2_000  # matches and find do not count a search with at most this number of steps
_TOO_LARGE = "error parsing regexp: expression too large"
_OPEN = (b"missing )", b"missing ]")  # errors that a truncated pattern may have
_NOWHERE = (-1, -1)
_UNENDED = "\\x{"
_PART = re.compile(
    r"\\Q.*?(?:\\E|\Z)|\\.|\[\^?\]?(?:\[:\^?[a-z]+:\]|\\.|[^\]\\])*\]?|(\(\?P?<[^>]*>?)|"
    r"\{((?:0|[1-9][0-9]*)(?:,(?:[1-9][0-9]*)?)?)\}",
    re.DOTALL,
)
_NAMED = re.compile(r"\(\?P?<[A-Za-z0-9_]+>\Z")
_TOO_LONG = re.compile(r"[0-9]{10}")  # RE2 reads a count with so many digits as literal text
_RANGE = re.compile(r"\{([0-9]{1,4}),([0-9]{1,4})\}")
_COUNT = re.compile(r"(\{([0-9]+)(?:,([0-9]*))?\})\??\Z")
_MOST_TIMES = 1000  # maximal count of a repetition
_REPEATED = ("invalid repeat count", "invalid nested repetition operator")
_GO_TEXTS = {
    "missing ]": "missing closing ]",
    "trailing \\": "trailing backslash at end of expression",
    "no argument for repetition operator": "missing argument to repetition operator",
    "invalid repetition size": "invalid repeat count",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid named capture group": "invalid named capture",
    "missing )": "missing closing )",
}
_WHOLE = ("missing closing )", "unexpected )")  # in these errors, Go prints the whole pattern

Match = Callable[[bytes, int, int], list[tuple[int, int]]]


class Pattern(NamedTuple):
    """A compiled pattern.

    ``match`` is a function (text, start, end) → spans. ``instructions`` is the maximal number of steps for one byte of
    a text. ``size`` is the maximal number of bytes in memory, including the states that RE2 caches.
    """

    match: Match
    instructions: int
    size: int


class PatternError(ValueError):
    """The error of an invalid pattern; the text is Go's."""


def program(pattern: str) -> Pattern:
    """Return a compiled pattern.

    Raise PatternError; or Cancelled, if its compilation exceeds the budget.
    """
    if len(pattern) > limits.MAX_PATTERN:
        raise PatternError(_TOO_LARGE)
    found = _known.find(pattern)
    if isinstance(found, str):
        raise PatternError(found)
    return found


@cache
def _engine(memory: int) -> tuple[Any, Any, Any]:
    """Return the program class, its options and the anchor argument to match anywhere in a text."""
    made = re2_programs.api()
    options = made.options()
    options.log_errors = False
    options.max_mem = memory
    return made.program, options, made.anywhere


def compiled(pattern: str) -> Pattern:
    """Compile a pattern; neither cache it nor count the work. Raise PatternError."""
    if _is_too_large(pattern):
        raise PatternError(_TOO_LARGE)
    reading = unicode_classes.read(pattern)
    raw = reading.text.encode("utf-8", "surrogatepass")
    engine, options, anywhere = _engine(_TINY)
    size, found = _TINY, engine(raw, options)
    if found.ProgramSize() > _FEW_INSTRUCTIONS or _lacks_room(found):
        size, found = _SMALL, engine(raw, _engine(_SMALL)[1])
    if _lacks_room(found):
        size, found = _LARGE, engine(raw, _engine(_LARGE)[1])
    at, fault = _not_in_go(pattern)
    if reading.fault and (not fault or reading.at < at):
        at, fault = reading.at, reading.fault
    if fault:
        before = engine(reading.upto(at).encode("utf-8", "surrogatepass"), _engine(size)[1])
        if found.ok() or before.ok() or before.error().startswith(_OPEN):
            raise PatternError(f"error parsing regexp: {fault}")
    if not found.ok():
        raise PatternError(
            f"error parsing regexp: {_refusal(found.error().decode('utf-8', 'replace'), pattern, reading)}"
        )
    return Pattern(partial(found.Match, anywhere), found.ProgramSize(), size)


def _lacks_room(found: Any) -> bool:
    return not found.ok() and bool(found.error().startswith(b"pattern too large"))


def _not_in_go(pattern: str) -> tuple[int, str]:
    """Return (index, Go's error text) of the first construct that RE2 accepts and Go does not.

    Return (0, "") if there is none.
    """
    for part in _PART.finditer(pattern):
        if part[0] == "\\C":
            return part.start(), "invalid escape sequence: `\\C`"
        if part[1] and not _NAMED.match(part[1]):
            if part[1] in ("(?<", "(?P<"):
                return part.start(), f"invalid or unsupported Perl syntax: `{part[1][:3]}`"
            return part.start(), f"invalid named capture: `{part[1]}`"
        if part[2] and _TOO_LONG.search(part[2]):
            return part.start(), f"invalid repeat count: `{part[0]}`"
    return 0, ""


def _refusal(fault: str, pattern: str, reading: Reading) -> str:
    """Return Go's error text for a pattern that RE2 refuses."""
    reason, _, part = fault.partition(": ")
    part = reading.given(pattern, part)
    if reason.startswith("pattern too large"):
        return "expression too large"
    if reason == "invalid UTF-8" and pattern.endswith(_UNENDED):  # RE2 expects a character after this text
        reason, part = "invalid escape sequence", _UNENDED
    text = _GO_TEXTS.get(reason, reason)
    count = _COUNT.search(part) if text in _REPEATED else None
    if count is not None and (text == "invalid repeat count" or _is_too_much(count)):
        return f"invalid repeat count: `{count[1]}`"  # Go checks the count first, and prints it without a question mark
    return f"{text}: `{pattern if text in _WHOLE else part}`"


def _is_too_much(count: re.Match[str]) -> bool:
    least, most = int(count[2][:9]), int(count[3][:9]) if count[3] else -1
    return max(least, most) > _MOST_TIMES or 0 <= most < least


def _optional(pattern: str) -> int:
    """Return the approximate number of optional parts of a pattern.

    The count includes each ``?`` inside brackets.
    """
    return pattern.count("?") + sum(max(int(most) - int(least), 0) for least, most in _RANGE.findall(pattern))


def _is_too_large(pattern: str) -> bool:
    if len(pattern) > limits.MAX_PATTERN or _optional(pattern) > _MOST_OPTIONAL:
        return True
    return unicode_classes.weight(pattern) > _MOST_CLASSES


def work(pattern: str) -> int:
    """Return the work of compiling a pattern, in elements.

    Return 0 for a pattern that is refused without compilation.
    """
    if _is_too_large(pattern):
        return 0
    return (len(pattern) + _OPTIONAL * _optional(pattern)) ** 2 // 1000 + _CLASS * unicode_classes.weight(pattern)


class Programs:
    """Thread-safe cache: pattern → compiled pattern, or the error text of an invalid pattern.

    The cache evicts the pattern that was compiled first, so a cache hit need not change the order of eviction.
    """

    __slots__ = ("_before", "_known", "_most", "size")

    def __init__(self, most: int, before: Callable[[str], None]) -> None:
        """``most`` is the maximal size of the cache in bytes.

        ``before`` counts the work before a compilation.
        """
        self._most = most
        self._before = before
        self._known: dict[str, Pattern | str] = {}
        self.size = 0

    def find(self, pattern: str) -> Pattern | str:
        """Return the compiled pattern, or the error text of an invalid pattern.

        Raise the errors of ``before``.
        """
        return self._known.get(pattern) or self._compile(pattern)

    def _compile(self, pattern: str) -> Pattern | str:
        self._before(pattern)
        found: Pattern | str
        try:
            found = compiled(pattern)
        except PatternError as wrong:
            found = str(wrong)
        if self._known.setdefault(pattern, found) is found:
            self.size += _weight(found)
        while self.size > self._most and (first := next(iter([*self._known]), None)) is not None:
            dropped = self._known.pop(first, None)
            if dropped is not None:
                self.size -= _weight(dropped)
        return found


def _weight(found: Pattern | str) -> int:
    return _REFUSED if isinstance(found, str) else found.size


_known = Programs(_CACHE_BYTES, lambda pattern: spend(work(pattern)))


def matches(text: str, pattern: str) -> bool:
    """Return whether a pattern matches anywhere in a string. Raise PatternError or Cancelled."""
    return _spans(program(pattern), text.encode("utf-8", "surrogatepass"))[0] != _NOWHERE


def _spans(pattern: Pattern, raw: bytes) -> list[tuple[int, int]]:
    """Return a list whose first item is the span of the first match, or _NOWHERE.

    Raise Cancelled if the search exceeds the time budget.
    """
    match, instructions, _ = pattern
    size = len(raw)
    if size * instructions > _FEW_STEPS:
        spend_work(size * instructions // _STEPS_OF_AN_ELEMENT)
    return match(raw, 0, size)


def matcher(pattern: str) -> Callable[[str], bool]:
    """Return a test of one pattern. Raise PatternError."""
    program(pattern)
    # the test looks the program up each time: a reference would keep it in memory after the cache has evicted it
    return lambda text: matches(text, pattern)


def find(text: str, pattern: str) -> str:
    """Return the first match of a pattern, or ""."""
    raw = text.encode("utf-8", "surrogatepass")
    start, end = _spans(program(pattern), raw)[0]
    return "" if start < 0 else raw[start:end].decode("utf-8", "surrogatepass")


def find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    """Return the matches from left to right, at most ``limit`` unless it is negative."""
    raw = text.encode("utf-8", "surrogatepass")
    match, instructions, _ = program(pattern)
    found: list[str] = []
    at, last_end, size = 0, -1, len(raw)
    spend_work(size * instructions // _STEPS_OF_AN_ELEMENT)
    while at <= size and (limit < 0 or len(found) < limit):
        start, end = match(raw, at, size)[0]
        if start < 0:
            break
        # as in Go, an empty match directly after another match does not count
        inside = start < size and raw[start] & 0xC0 == 0x80  # Go does not search inside a character
        if not inside and (end > start or start != last_end):
            spend(_FOUND)
            found.append(raw[start:end].decode("utf-8", "surrogatepass"))
        last_end = end
        at = end
        if end == start:
            at += 1
            while at < size and raw[at] & 0xC0 == 0x80:
                at += 1
    return found
