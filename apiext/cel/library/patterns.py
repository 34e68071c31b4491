"""Find matches of regular expressions (upstream: Kubernetes' regex library)."""

from apiext.cel.costs import FIND
from apiext.cel.overloads import Library, row
from apiext.cel.regexes import PatternError, find, find_all
from apiext.cel.values import Fault, Value


def _find(text: str, pattern: str) -> Value:
    try:
        return find(text, pattern)
    except PatternError as wrong:
        return Fault(f"Illegal regex: {wrong}")


def _find_all(text: str, pattern: str, limit: int = -1) -> Value:
    try:
        return find_all(text, pattern, limit)
    except PatternError as wrong:
        return Fault(f"Illegal regex: {wrong}")


LIBRARY = Library(
    "kubernetes.regex",
    (
        row("find", "string_find_string", ".string, string -> string", _find, "'abc 123'.find('[0-9]+') == '123'",
            cost=FIND),
        row("findAll", "string_find_all_string", ".string, string -> list(string)", _find_all,
            "'1 2 3'.findAll('[0-9]') == ['1', '2', '3']", cost=FIND),
        row("findAll", "string_find_all_string_int", ".string, string, int -> list(string)", _find_all,
            "'1 2 3'.findAll('[0-9]', 2) == ['1', '2']", cost=FIND),
    ),
)  # fmt: skip
