"""Report the errors of a value that failed the fast test, with upstream's texts.

The fast test is ``validate`` (VAL-002…011). A junctor is one of allOf, anyOf, oneOf and not. As upstream, a failed
anyOf or oneOf reports the errors of the branch for which upstream's validator counts most checks. So inside junctors,
the report repeats and counts all checks of this validator. Outside junctors, the report skips parts that pass the fast
test.
"""

from collections.abc import Iterable
from typing import Any

from apiext.documents.floats import json_float
from apiext.documents.paths import short
from apiext.meta import limits as meta_limits
from apiext.meta.fields import (
    INVALID,
    FieldError,
    first_shown,
    go_value,
    has_room,
    invalid,
    not_supported,
    required,
    too_many,
    type_invalid,
)
from apiext.schema import limits, numbers, strings, validate
from apiext.schema.budget import STEPS
from apiext.schema.formats import string_check
from apiext.schema.ratchet import Link
from apiext.schema.structural import Structural
from apiext.schema.values import enum_of, type_fault
from apiext.text.quotes import go_quote

_TYPE_META = frozenset(("apiVersion", "kind"))

_ROOM = meta_limits.MAX_FIELD_ERRORS + (
    meta_limits.MAX_FIELD_ERROR_BYTES >> 10
)  # the maximal cost (see Report) of all errors in a response
_BEYOND_ROOM = FieldError(INVALID, "", "")  # stands for an error that does not fit into the response


class Report:
    """The errors of one validation, in order and without duplicates, and the number of checks.

    ``checks`` is upstream's MatchCount. ``cost`` is the size of the errors in a response: 1 for each error and for
    each KiB. ``counted`` is true inside a junctor. ``full`` is true if no further error fits into a response. A
    report for a branch of a junctor inherits it, and then stores only its first error, which shows that the branch
    failed.
    """

    __slots__ = ("_size", "checks", "cost", "counted", "errors", "full")

    def __init__(self, *, counted: bool = False, full: bool = False) -> None:
        self.errors: dict[FieldError, None] = {}
        self.checks = self.cost = 0
        self.counted = counted
        self.full = full
        self._size = 0

    def add(self, error: FieldError) -> None:
        """Add one error.

        Inside a junctor, the text of the error counts as validation steps. Most errors of a junctor are never reported,
        so the limits of a response do not bound them.
        """
        if self.counted and not self.full:
            STEPS.spend(len(error.body) // limits.STEP_TEXT)
        self._add(error)
        self.cost += 1 + (error.size >> 10)

    def _add(self, error: FieldError) -> None:
        if self.full and self.errors:
            return
        if error not in self.errors:
            self.errors[error] = None
            self._size += error.size
            self.full |= not has_room(len(self.errors), self._size)

    def merge(self, other: "Report") -> None:
        """Add the errors and checks of another report."""
        for error in other.errors:
            self._add(error)
        self.checks += other.checks
        self.cost += other.cost


class Reporter:
    """One validation of one value.

    ``base`` is the path of the value in its object, as errors print it. ``left`` is the cost of the errors that still
    fit into a response.
    """

    __slots__ = ("base", "left")

    def __init__(self, base: str) -> None:
        self.base = base
        self.left = _ROOM

    def field(self, path: str) -> str:
        """Return the field of an error: the base and the path without its leading dot."""
        name = path.removeprefix(".") if path != "." else ""
        if not name:
            return self.base
        return f"{self.base}.{name}" if self.base else name

    def report(
        self, node: Structural, value: Any, path: str, link: Link | None, counted: bool, full: bool = False
    ) -> Report:
        """Return the report on a value that failed the fast test, or that is inside a junctor.

        ``counted`` is true inside a junctor. If ``full`` is true, one error is enough.
        """
        found = Report(counted=counted, full=full)
        if counted:
            STEPS.spend(10)  # a report takes as much time as 10 fast tests
        before = self.left
        self._node(found, node, value, path, link, counted)
        if found.errors and link is not None and link.unchanged():
            found.errors = {}  # RAT-001: an unchanged value has no errors
            found.cost = 0
        if not counted:
            self.left = before - found.cost
        return found

    def _node(self, found: Report, node: Structural, value: Any, path: str, link: Link | None, counted: bool) -> None:
        field = self.field(path)
        fault = type_fault(node, value)
        if fault is not None:
            found.add(_wrong_type(field, path, *fault))
        if value is None:
            found.checks += fault is None
            self._enum(found, node, value, field)
            return
        if node.types or node.format:
            found.checks += 1 + (fault is None)
        self._junctors(found, node, value, path)
        found.checks += 2  # upstream counts the check of the junctors as two
        kind = value.__class__
        if kind is str:
            if not (found.full and found.errors):
                self._string(found, node, value, path)
            found.checks += 1 + bool(node.format and string_check(node.format))
        elif kind is int or kind is float:
            for error in numbers.errors(node, value, path, field, self.base):
                found.add(error)
            found.checks += 2
        elif kind is list:
            self._list(found, node, value, path, link, counted)
            found.checks += 2
        self._enum(found, node, value, field)
        found.checks += 1
        if kind is dict:
            self._object(found, node, value, path, link, counted)
            found.checks += 1
        found.checks += 1

    def _string(self, found: Report, node: Structural, value: str, path: str) -> None:
        if found.full:
            if not all(test(value) for test in strings.tests(node)):
                found.add(_BEYOND_ROOM)
            return
        field = self.field(path)
        for error in strings.errors(node, value, path, field) + strings.format_errors(node, value, path, field):
            found.add(error)

    def _enum(self, found: Report, node: Structural, value: Any, field: str) -> None:
        if node.enum and not enum_of(node).has(value):
            if found.full:
                found.add(_BEYOND_ROOM)
                return
            listed = [item if isinstance(item, str) else go_json(item) for item in node.enum]
            found.add(not_supported(field, value, listed))

    def _list(
        self, found: Report, node: Structural, value: list[Any], path: str, link: Link | None, counted: bool
    ) -> None:
        if node.items is not None:
            for index, item in enumerate(value):
                if self.left < 0 and not counted:
                    break
                if not counted and validate.passes(node.items, item):
                    continue
                below = link.index(index) if link is not None else None
                found.merge(self.report(node.items, item, f"{path}[{index}]", below, counted, counted and found.full))
        size, field, low, high = len(value), self.field(path), node.sizes.min_items, node.sizes.max_items
        if low is not None and size < low:
            found.add(invalid(field, size, f"{path} in body should have at least {low} items"))
        if high is not None and size > high:
            found.add(too_many(field, size, high))

    def _object(
        self, found: Report, node: Structural, value: dict[str, Any], path: str, link: Link | None, counted: bool
    ) -> None:
        size, field, low, high = len(value), self.field(path), node.sizes.min_properties, node.sizes.max_properties
        if low is not None and size < low:
            found.add(invalid(field, size, f"{path} in body should have at least {low} properties"))
        if high is not None and size > high:
            found.add(too_many(field, size, high))
        of_maps = node.map_values
        for name, item in value.items():
            if self.left < 0 and not counted:
                break
            child, named = node.properties.get(name), True
            if child is None and node.additional is False:
                found.add(invalid(field, name, f"{path}.{short(name)} in body is a forbidden property"))
                continue
            if child is None:
                child, named = of_maps, False
            if child is None or (not counted and validate.passes(child, item)):
                continue
            below = f"{path}.{short(name)}" if not named else f"{path}.{name}" if path else name
            old = None if link is None or (not path and name in _TYPE_META) else link.member(name)
            found.merge(self.report(child, item, below, old, counted, counted and found.full))
        for name in node.required:
            if name not in value:
                found.add(required(self.field(f"{path}.{name}")))

    def _junctors(self, found: Report, node: Structural, value: Any, path: str) -> None:
        """Report on allOf, anyOf, oneOf and not.

        Inside them, no values are compared for ratcheting (RAT-002).
        """
        junctors = node.junctors
        if junctors.any_of:
            self._any_of(found, junctors.any_of, value, path)
        if junctors.one_of:
            self._one_of(found, junctors.one_of, value, path)
        if junctors.all_of:
            good = 0
            for branch in junctors.all_of:
                report = self._branch(branch, value, path, found)
                good += not report.errors
                found.merge(report)
            if good != len(junctors.all_of):
                none = "" if good else ". None validated"
                self._composite(found, path, f"must validate all the schemas (allOf){none}")
        if junctors.not_ is not None:
            STEPS.spend(1)
            if validate.passes(junctors.not_, value):
                self._composite(found, path, "must not validate the schema (not)")

    def _branch(self, branch: Structural, value: Any, path: str, found: Report) -> Report:
        return self.report(branch, value, path, None, True, found.full)

    def _any_of(self, found: Report, branches: tuple[Structural, ...], value: Any, path: str) -> None:
        best: Report | None = None
        for branch in branches:
            report = self._branch(branch, value, path, found)
            if not report.errors:
                found.merge(report)
                return
            if best is None or report.checks > best.checks:
                best = report
        self._composite(found, path, "must validate at least one schema (anyOf)")
        if best is not None:
            found.merge(best)

    def _one_of(self, found: Report, branches: tuple[Structural, ...], value: Any, path: str) -> None:
        best: Report | None = None
        good: list[Report] = []
        for branch in branches:
            report = self._branch(branch, value, path, found)
            if not report.errors:
                good.append(report)
            elif best is None or report.checks > best.checks:
                best = report
        if len(good) == 1:
            found.merge(good[0])
            return
        count = f"Found {len(good)} valid alternatives" if good else "Found none valid"
        self._composite(found, path, f"must validate one and only one schema (oneOf). {count}")
        if best is not None and not good:
            found.merge(best)

    def _composite(self, found: Report, path: str, text: str) -> None:
        found.add(FieldError(INVALID, self.base, f'Invalid value: "": {go_quote(path)} {text}'))


def _wrong_type(field: str, path: str, wanted: str, actual: str) -> FieldError:
    return type_invalid(field, actual, f"{path} in body must be of type {wanted}: {go_quote(actual)}")


def go_json(value: Any) -> str:
    """Return the JSON of an enum item that is not a string."""
    return json_float(value) if isinstance(value, float) else go_value(value)


def errors(node: Structural, value: Any, base: str = "", link: Link | None = None) -> list[FieldError]:
    """Return the errors of a value, as many as a response shows.

    May raise OverBudget or BudgetExhausted.
    """
    found = list(Reporter(base).report(node, value, "", link, counted=False).errors)
    return limited(found, base)


def limited(found: Iterable[FieldError], base: str = "") -> list[FieldError]:
    """Return the errors that fit into a response, and a note if other errors are omitted."""
    shown, complete = first_shown(found)
    if not complete:
        shown.append(FieldError(INVALID, base, "Invalid value: too many errors: the rest is not shown"))
    return shown
