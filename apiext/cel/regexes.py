"""Regular expressions by RE2, always linear in time; refusals carry Go's texts."""

import re
from collections.abc import Callable
from functools import lru_cache

from re2 import _re2

MAX_MEMORY = 8 * 1024 * 1024  # bytes of one program and its caches
_OPTIONS = _re2.RE2.Options()
_OPTIONS.log_errors = False
_OPTIONS.max_mem = MAX_MEMORY
_ANYWHERE = _re2.RE2.Anchor.UNANCHORED
_NOWHERE = (-1, -1)
_TOKEN = re.compile(r"\\Q.*?(?:\\E|\Z)|\\.", re.DOTALL)
_GROUP_NAME = re.compile(r"[A-Za-z0-9_]+\Z")
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
_WHOLE = ("missing closing )", "unexpected )")  # Go shows the whole pattern with these

Match = Callable[[object, bytes, int, int], list[tuple[int, int]]]


class PatternError(ValueError):
    """Why a pattern is refused, in Go's words."""


@lru_cache(maxsize=1024)
def program(pattern: str) -> Match:
    """Return the match function of a pattern: (anchor, text, from, to) to spans. Raises PatternError."""
    compiled = _re2.RE2(pattern.encode("utf-8", "surrogatepass"), _OPTIONS)
    if not compiled.ok():
        reason, _, part = compiled.error().decode("utf-8", "replace").partition(": ")
        if reason.startswith("pattern too large"):
            raise PatternError("error parsing regexp: expression too large")
        text = _GO_TEXTS.get(reason, reason)
        raise PatternError(f"error parsing regexp: {text}: `{pattern if text in _WHOLE else part}`")
    # RE2 takes two things that Go does not
    if "\\C" in pattern and any(token == "\\C" for token in _TOKEN.findall(pattern)):
        raise PatternError("error parsing regexp: invalid escape sequence: `\\C`")
    for name, _ in compiled.NamedCapturingGroups():
        if not _GROUP_NAME.match(name.decode("utf-8", "replace")):
            raise PatternError(f"error parsing regexp: invalid named capture: `(?P<{name.decode()}>`")
    match: Match = compiled.Match
    return match


def matches(text: str, pattern: str) -> bool:
    """Return whether a pattern occurs in a text."""
    raw = text.encode("utf-8", "surrogatepass")
    return program(pattern)(_ANYWHERE, raw, 0, len(raw))[0] != _NOWHERE


def matcher(pattern: str) -> Callable[[str], bool]:
    """Return a test of one pattern. Raises PatternError."""
    match = program(pattern)

    def test(text: str) -> bool:
        raw = text.encode("utf-8", "surrogatepass")
        return match(_ANYWHERE, raw, 0, len(raw))[0] != _NOWHERE

    return test


def find(text: str, pattern: str) -> str:
    """Return the first occurrence of a pattern, "" when there is none."""
    raw = text.encode("utf-8", "surrogatepass")
    start, end = program(pattern)(_ANYWHERE, raw, 0, len(raw))[0]
    return "" if start < 0 else raw[start:end].decode("utf-8", "surrogatepass")


def find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    """Return occurrences from left to right, at most ``limit`` of them when it is not negative."""
    raw = text.encode("utf-8", "surrogatepass")
    match = program(pattern)
    found: list[str] = []
    at, last_end, size = 0, -1, len(raw)
    while at <= size and (limit < 0 or len(found) < limit):
        start, end = match(_ANYWHERE, raw, at, size)[0]
        if start < 0:
            break
        # Go: an empty match right after the match before does not count
        if end > start or start != last_end:
            found.append(raw[start:end].decode("utf-8", "surrogatepass"))
        last_end = end
        at = end
        if end == start:
            at += 1
            while at < size and raw[at] & 0xC0 == 0x80:
                at += 1
    return found
