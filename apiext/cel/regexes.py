"""Regular expressions by RE2, always linear in time; refusals carry Go's texts."""

import re
from collections.abc import Callable
from functools import cache, lru_cache, partial
from typing import Any

from apiext.cel.effort import spend

_SMALL, _LARGE = 1024 * 1024, 8 * 1024 * 1024  # bytes of one program and its caches: try the first, then the second
_REMEMBERED = 10_000  # characters of patterns whose programs are remembered
_NOWHERE = (-1, -1)
_TOKEN = re.compile(r"\\Q.*?(?:\\E|\Z)|\\.", re.DOTALL)
_GROUP = re.compile(r"\\Q.*?(?:\\E|\Z)|\\.|\[\^?\]?(?:\[:\^?[a-z]+:\]|\\.|[^\]\\])*\]|\(\?<[=!]", re.DOTALL)
_COUNT = re.compile(r"(\{([0-9]+)(?:,([0-9]*))?\})\??\Z")
_MOST_TIMES = 1000  # that a part is repeated by a count
_REPEATED = ("invalid repeat count", "invalid nested repetition operator")
_LOOKING_BACK = ("(?<=", "(?<!")
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

Match = Callable[[bytes, int, int], list[tuple[int, int]]]


class PatternError(ValueError):
    """Why a pattern is refused, in Go's words."""


def program(pattern: str) -> Match:
    """Return the match function of a pattern: (text, from, to) to spans. Raises PatternError."""
    return _known(pattern) if len(pattern) <= _REMEMBERED else _compiled(pattern)


@cache
def _engine(memory: int) -> tuple[Any, Any, Any]:
    """Return the class of programs, its options, and what lets them match anywhere."""
    from re2 import _re2  # 2.6 MB that rules without patterns do not need

    options = _re2.RE2.Options()
    options.log_errors = False
    options.max_mem = memory
    return _re2.RE2, options, _re2.RE2.Anchor.UNANCHORED


def _compiled(pattern: str) -> Match:
    raw = pattern.encode("utf-8", "surrogatepass")
    engine, options, anywhere = _engine(_SMALL)
    compiled = engine(raw, options)
    if not compiled.ok() and compiled.error().startswith(b"pattern too large"):
        compiled = engine(raw, _engine(_LARGE)[1])
    # RE2 takes two things that Go does not
    at = next((found.start() for found in _TOKEN.finditer(pattern) if found[0] == "\\C"), -1)
    if at >= 0:
        before = engine(pattern[:at].encode("utf-8", "surrogatepass"), options)
        if before.ok() or before.error().startswith((b"missing )", b"missing ]")):
            raise PatternError("error parsing regexp: invalid escape sequence: `\\C`")
    if not compiled.ok():
        raise PatternError(f"error parsing regexp: {_refusal(compiled.error().decode('utf-8', 'replace'), pattern)}")
    for name, _ in compiled.NamedCapturingGroups():
        if not _GROUP_NAME.match(name.decode("utf-8", "replace")):
            raise PatternError(f"error parsing regexp: invalid named capture: `(?P<{name.decode()}>`")
    return partial(compiled.Match, anywhere)


def _refusal(told: str, pattern: str) -> str:
    """Return in Go's words why RE2 refuses a pattern."""
    reason, _, part = told.partition(": ")
    if reason.startswith("pattern too large"):
        return "expression too large"
    text = _GO_TEXTS.get(reason, reason)
    if part in _LOOKING_BACK:  # Go takes it for a name
        rest = pattern[next((found.start() for found in _GROUP.finditer(pattern) if found[0] == part), 0) :]
        return f"invalid named capture: `{rest[: rest.find('>') + 1] or rest}`"
    count = _COUNT.search(part) if text in _REPEATED else None
    if count is not None and (text == "invalid repeat count" or _is_too_much(count)):
        return f"invalid repeat count: `{count[1]}`"  # Go looks at it first, and without a question mark
    return f"{text}: `{pattern if text in _WHOLE else part}`"


def _is_too_much(count: re.Match[str]) -> bool:
    least, most = int(count[2][:9]), int(count[3][:9]) if count[3] else -1
    return max(least, most) > _MOST_TIMES or 0 <= most < least


_known = lru_cache(maxsize=256)(_compiled)


def matches(text: str, pattern: str) -> bool:
    """Return whether a pattern occurs in a text."""
    raw = text.encode("utf-8", "surrogatepass")
    return program(pattern)(raw, 0, len(raw))[0] != _NOWHERE


def matcher(pattern: str) -> Callable[[str], bool]:
    """Return a test of one pattern. Raises PatternError."""
    match = program(pattern)

    def test(text: str) -> bool:
        raw = text.encode("utf-8", "surrogatepass")
        return match(raw, 0, len(raw))[0] != _NOWHERE

    return test


def find(text: str, pattern: str) -> str:
    """Return the first occurrence of a pattern, "" when there is none."""
    raw = text.encode("utf-8", "surrogatepass")
    start, end = program(pattern)(raw, 0, len(raw))[0]
    return "" if start < 0 else raw[start:end].decode("utf-8", "surrogatepass")


def find_all(text: str, pattern: str, limit: int = -1) -> list[str]:
    """Return occurrences from left to right, at most ``limit`` of them when it is not negative."""
    raw = text.encode("utf-8", "surrogatepass")
    match = program(pattern)
    found: list[str] = []
    at, last_end, size = 0, -1, len(raw)
    while at <= size and (limit < 0 or len(found) < limit):
        start, end = match(raw, at, size)[0]
        if start < 0:
            break
        # Go: an empty match right after the match before does not count
        inside = start < size and raw[start] & 0xC0 == 0x80  # of a character, where Go never looks
        if not inside and (end > start or start != last_end):
            spend(2)
            found.append(raw[start:end].decode("utf-8", "surrogatepass"))
        last_end = end
        at = end
        if end == start:
            at += 1
            while at < size and raw[at] & 0xC0 == 0x80:
                at += 1
    return found
