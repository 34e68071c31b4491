"""Compile the validation rules of kinds and types.

They are the lists ``rules`` in the data files (see go_types/types/README.md). Each row of such a list is a mapping with
``path`` and the rules for the values at this path.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

from apiext.documents.document import View
from apiext.documents.equality import same
from apiext.go_types.sources import TYPE_RULES, load
from apiext.meta import syntax
from apiext.meta.fields import FieldError, child, forbidden, invalid, item, not_supported, required, too_many

Validate = Callable[[View, View | None], list[FieldError]]
EACH_ITEM, EACH_VALUE = "[]", "{}"
DECLARED = "declared"
IMMUTABLE = "field is immutable"
NEW: Any = object()
"""The old value of a field in a new object, list item or map entry."""


class Found(NamedTuple):
    """A value that a rule validates: its path in errors, and its old value, or NEW."""

    path: str
    value: Any
    before: Any


Check = Callable[[Found], Iterator[FieldError]]


def split_declared(rows: Sequence[Mapping[str, Any]]) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]:
    """Divide the rules of a kind: those without ``declared``, and those with ``declared``.

    The errors of the second part follow all other errors of an object.
    """
    return [row for row in rows if not row.get(DECLARED)], [row for row in rows if row.get(DECLARED)]


def compile_rules(kind: str, rows: Sequence[Mapping[str, Any]]) -> Validate:
    """Return a function of (new, old) that returns the errors of all rules, in order.

    ``old`` is None on create. Raises ValueError with the kind for an unknown rule.
    """
    check = _all(kind, rows)
    return lambda new, old: list(check(Found("", new, NEW if old is None else old)))


def type_errors(name: str, value: View | None, path: str) -> Iterator[FieldError]:
    """Yield the errors of a value by the rules of its type.

    There is no error for None, or for a type without rules.
    """
    if value is not None:
        yield from _of_type(name)(Found(path, value, NEW))


def _all(type_: str, rows: Sequence[Mapping[str, Any]]) -> Check:
    rules = [(tuple(_steps(row["path"])), _checks(type_, row)) for row in rows]

    def check(found: Found) -> Iterator[FieldError]:
        for steps, checks in rules:
            for below in _values(steps, found):
                for one in checks:
                    yield from one(below)

    return check


@cache
def _of_type(name: str) -> Check:
    return _all(name, _type_rules().get(name, ()))


@cache
def _type_rules() -> Mapping[str, Sequence[Mapping[str, Any]]]:
    found: Mapping[str, Sequence[Mapping[str, Any]]] = load(TYPE_RULES)
    return found


# --- paths ---


def _steps(path: str) -> Iterator[str]:
    """Yield the steps of a path: ``spec.ports[].name`` → spec, ports, [] and name."""
    for name in path.split("."):
        each = name[-2:] if name.endswith((EACH_ITEM, EACH_VALUE)) else ""
        yield name.removesuffix(each)
        if each:
            yield each


def _values(steps: tuple[str, ...], at: Found) -> Iterator[Found]:
    """Yield the values at a path, in each list item or map entry.

    An absent last field yields None; an absent object on the path yields no value.
    """
    if not steps:
        yield at
    elif steps[0] == EACH_ITEM:
        before = () if at.before is NEW else at.before or ()
        for index, one in enumerate(at.value or ()):
            old = before[index] if index < len(before) else NEW
            yield from _values(steps[1:], Found(item(at.path, index), one, old))
    elif steps[0] == EACH_VALUE:
        values = {} if at.before is NEW else at.before or {}
        for key, one in (at.value or {}).items():
            yield from _values(steps[1:], Found(item(at.path, key), one, values.get(key, NEW)))
    elif at.value is not None:
        name = steps[0]
        was = NEW if at.before is NEW else (at.before or {}).get(name)
        yield from _values(steps[1:], Found(child(at.path, name), at.value.get(name), was))


# --- rules ---


def _checks(type_: str, row: Mapping[str, Any]) -> list[Check]:
    words = [word for word in row if word not in ("path", DECLARED, _SAYS, _EMPTY, *_LIMITS)]
    unknown = [word for word in words if word not in _RULES]
    if unknown:
        known = ", ".join((*_RULES, *_LIMITS, _SAYS, _EMPTY, DECLARED))
        raise ValueError(f"{type_}: rule of {row['path']}: {unknown[0]} is no rule; there are {known}")
    variants = {**(_WITH_EMPTY if row.get(_EMPTY) else {}), **(_WHEN_DECLARED if row.get(DECLARED) else {})}
    made = [variants.get(word, _RULES[word])(row[word]) for word in words]
    checks = [*made, _within(row)] if row.keys() & set(_LIMITS) else made
    return [_of_changed(check) for check in checks] if row.get(DECLARED) else checks


def _of_changed(check: Check) -> Check:
    """Return the check without errors for a value that an update does not change."""

    def checked(found: Found) -> Iterator[FieldError]:
        if found.before is NEW or not same(found.value, found.before):
            yield from check(found)

    return checked


def _required(detail: Any) -> Check:
    """Compile ``required``: true, or the text after "Required value"."""

    def check(found: Found) -> Iterator[FieldError]:
        if found.value in (None, "", [], {}):
            yield required(found.path, "" if detail is True else detail)

    return check


def _enum(values: Any) -> Check:
    def check(found: Found) -> Iterator[FieldError]:
        if found.value not in (None, "", *values):
            yield not_supported(found.path, found.value, values)

    return check


def _enum_or_absent(values: Any) -> Check:
    def check(found: Found) -> Iterator[FieldError]:
        if found.value not in (None, *values):
            yield not_supported(found.path, found.value, values)

    return check


def _immutable(detail: Any) -> Check:
    """Compile ``immutable``: true, or the text of a Forbidden error."""

    def check(found: Found) -> Iterator[FieldError]:
        if found.before is not NEW and not same(found.value, found.before):
            yield invalid(found.path, found.value, IMMUTABLE) if detail is True else forbidden(found.path, detail)

    return check


def _immutable_without_value(_: Any) -> Check:
    """Compile ``immutable`` of a declared rule; its error has null in place of the value."""

    def check(found: Found) -> Iterator[FieldError]:
        if found.before is not NEW:
            yield invalid(found.path, None, IMMUTABLE)

    return check


def _most(limit: Any) -> Check:
    """Compile ``most``: the largest number of items of a list."""

    def check(found: Found) -> Iterator[FieldError]:
        if len(found.value or ()) > limit:
            yield too_many(found.path, len(found.value), limit)

    return check


def _format(name: Any, *, of_empty: bool = False) -> Check:
    """Compile ``format``: the name of a function in apiext.meta.syntax."""
    messages: Callable[[str], list[str]] = getattr(syntax, name)

    def check(found: Found) -> Iterator[FieldError]:
        if found.value or of_empty:
            for message in messages(found.value):
                yield invalid(found.path, found.value, message)

    return check


def _format_of_empty(name: Any) -> Check:
    check = _format(name, of_empty=True)
    return lambda found: check(found if found.value is not None else found._replace(value=""))


def _type(name: Any) -> Check:
    """Compile ``type``: the name of a type whose rules apply to the value."""

    def check(found: Found) -> Iterator[FieldError]:
        if found.value is not None:
            yield from _of_type(name)(found)

    return check


_RULES: Mapping[str, Callable[[Any], Check]] = {
    "required": _required,
    "enum": _enum,
    "immutable": _immutable,
    "format": _format,
    "type": _type,
    "most": _most,
}
_WITH_EMPTY: Mapping[str, Callable[[Any], Check]] = {"enum": _enum_or_absent, "format": _format_of_empty}
"""Rules that also validate empty strings, if the row has ``empty``; ``format`` then treats an absent value as empty."""
_WHEN_DECLARED: Mapping[str, Callable[[Any], Check]] = {"immutable": _immutable_without_value}
_EMPTY, _SAYS = "empty", "says"
_LIMITS = ("min", "max", "above")


def _within(row: Mapping[str, Any]) -> Check:
    """Compile the bounds of a number.

    ``min`` and ``max`` are inclusive, ``above`` is an exclusive minimum. ``says`` is the text of the error.
    """
    low, high, above = row.get("min"), row.get("max"), row.get("above")
    if _SAYS in row:
        message = row[_SAYS]
    elif low is not None and high is not None:
        message = f"must be between {low} and {high}, inclusive"
    elif low is not None:
        message = f"must be greater than or equal to {low}"
    elif above is not None:
        message = f"must be greater than {above}"
    else:
        message = f"must be less than or equal to {high}"

    def check(found: Found) -> Iterator[FieldError]:
        value = found.value
        if value is None:
            return
        below = (low is not None and value < low) or (above is not None and value <= above)
        if below or (high is not None and value > high):
            yield invalid(found.path, value, message)

    return check
