"""Validate strings: length in code points, pattern, format (VAL-001, VAL-006)."""

from collections.abc import Callable

from apiext.meta.fields import FieldError, invalid, too_long, type_invalid
from apiext.schema.budget import MATCHING
from apiext.schema.formats import string_check
from apiext.schema.patterns import refusal, searcher
from apiext.schema.structural import Structural
from apiext.text.quotes import go_quote


def errors(node: Structural, value: str, path: str, field: str) -> list[FieldError]:
    """Return the error of the length or, if the length is valid, the error of the pattern."""
    limit = node.strings
    if limit.max_length is not None and len(value) > limit.max_length:
        return [too_long(field, limit.max_length)]
    if limit.min_length is not None and len(value) < limit.min_length:
        return [invalid(field, value, f"{path} in body should be at least {limit.min_length} chars long")]
    if limit.pattern and not searcher(limit.pattern, MATCHING)(value):
        reason = refusal(limit.pattern)
        shown = f"{limit.pattern}, but pattern is invalid: {reason}" if reason else limit.pattern
        return [invalid(field, value, f"{path} in body should match '{shown}'")]
    return []


def format_errors(node: Structural, value: str, path: str, field: str) -> list[FieldError]:
    """Return the errors of a string's format."""
    check = string_check(node.format) if node.format else None
    if check is None or check(value):
        return []
    return [type_invalid(field, value, f"{path} in body must be of type {node.format}: {go_quote(value)}")]


def tests(node: Structural) -> list[Callable[[str], bool]]:
    """Return fast tests of strings.

    All of them return true if and only if the functions above find no error.
    """
    found: list[Callable[[str], bool]] = []
    low, high = node.strings.min_length, node.strings.max_length
    if high is not None and low is not None and low > 0:
        found.append(lambda value: low <= len(value) <= high)
    elif high is not None:
        found.append(lambda value: len(value) <= high)
    elif low is not None and low > 0:
        found.append(lambda value: len(value) >= low)
    if node.strings.pattern:
        found.append(searcher(node.strings.pattern, MATCHING))
    check = string_check(node.format) if node.format else None
    if check is not None:
        found.append(check)
    return found
