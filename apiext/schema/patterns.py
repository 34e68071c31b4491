"""Regular expressions in RE2's language, always linear in time; refusals carry Go's texts (STR-010)."""

import re
from collections.abc import Callable
from functools import lru_cache

from re2 import _re2

from apiext import limits
from apiext.schema.budget import STEPS

_OPTIONS = _re2.RE2.Options()
_OPTIONS.log_errors = False
_OPTIONS.max_mem = 8 * 1024 * 1024  # bytes of one program and its caches
_ANYWHERE = _re2.RE2.Anchor.UNANCHORED
_NOTHING = (-1, -1)

_GO_TEXTS = {
    "invalid escape sequence": "invalid escape sequence",
    "invalid character class": "invalid character class",
    "invalid character class range": "invalid character class range",
    "missing ]": "missing closing ]",
    "missing )": "missing closing )",
    "unexpected )": "unexpected )",
    "trailing \\": "trailing backslash at end of expression",
    "no argument for repetition operator": "missing argument to repetition operator",
    "invalid repetition size": "invalid repeat count",
    "bad repetition operator": "invalid nested repetition operator",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid UTF-8": "invalid UTF-8",
    "invalid named capture group": "invalid named capture",
}


_TOKEN = re.compile(r"\\Q.*?(?:\\E|\Z)|\\.", re.DOTALL)
_GROUP_NAME = re.compile(r"[A-Za-z0-9_]+\Z")


@lru_cache(limits.PATTERNS_SEEN)
def _program(pattern: str) -> Callable[..., list[tuple[int, int]]]:
    """Return the match function of a pattern; ValueError with Go's text when it is refused."""
    STEPS.left -= 20  # compiling takes as long as so many matches
    program = _re2.RE2(pattern.encode("utf-8", "surrogatepass"), _OPTIONS)
    if not program.ok():
        raise ValueError(_refusal(pattern, program.error().decode("utf-8", "replace")))
    if "\\C" in pattern and any(token == "\\C" for token in _TOKEN.findall(pattern)):
        raise ValueError("error parsing regexp: invalid escape sequence: `\\C`")
    for name, _ in program.NamedCapturingGroups():
        if not _GROUP_NAME.match(name.decode("utf-8", "replace")):
            raise ValueError(f"error parsing regexp: invalid named capture: `{_named(pattern, name.decode())}`")
    match: Callable[..., list[tuple[int, int]]] = program.Match
    return match


def _refusal(pattern: str, error: str) -> str:
    reason, _, part = error.partition(": ")
    if reason.startswith("pattern too large"):
        return "error parsing regexp: expression too large"
    if part in ("(?<=", "(?<!"):  # Go reads a named group there
        reason, part = "invalid named capture group", _up_to_name(pattern[pattern.find(part) :])
    text = _GO_TEXTS.get(reason, reason)
    return f"error parsing regexp: {text}: `{part}`"


def _up_to_name(rest: str) -> str:
    """Return the pattern from a named group on, up to the end of its name if it has one."""
    name, end, _ = rest.partition(">")
    return name + end


def _named(pattern: str, name: str) -> str:
    start = max(pattern.find(f"(?P<{name}>"), pattern.find(f"(?<{name}>"))
    return _up_to_name(pattern[start:])


def refusal(pattern: str) -> str:
    """Return why a pattern is no regular expression, in Go's words; empty when it is one."""
    try:
        _program(pattern)
    except ValueError as error:
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
        except ValueError:
            return False
        found: bool = match(_ANYWHERE, raw, 0, len(raw))[0] != _NOTHING
        return found

    return search
