"""JSONPath in client-go's dialect: with missing keys allowed, and with bounded work.

See TAB-007.
"""

import operator
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from apiext.documents import limits
from apiext.documents.document import View

Find = Callable[[View], list[Any]]
Budget = list[int]  # one item: the number of values that the path may still visit
Step = Callable[[list[Any], Budget], list[Any]]

_SIMPLE = re.compile(r"(?:\.[A-Za-z0-9_/-]+)+\Z")
_QUOTED_KEY = re.compile(r"'([^']*)'\Z")
_SLICE = re.compile(r"(-?[0-9]*)(:-?[0-9]*)?(:-?[0-9]*)?\Z")
_COMPARISON = re.compile(r"([^!<>=]+)([!<>=]+)(.+)\Z", re.DOTALL)
_NUMBER = re.compile(r"[+-]?[0-9]+(?:\.[0-9]*)?")
_TERMINATORS = frozenset(" \t\r\n.,[]$@{}")
_OPERATORS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


class JSONPathError(ValueError):
    """The error of a path that cannot be parsed."""


class _NoResult(Exception):
    """The failure of a step, as in upstream; the path then finds no value.

    ``kept`` is true if upstream's step returns values together with its error. Then a filter without an operator, such
    as ``[?(@.a)]``, keeps its item.
    """

    def __init__(self, kept: bool = True) -> None:
        self.kept = kept


class _OverBudget(Exception):
    """The error of a path that exceeds its budget or JSONPATH_VALUES.

    The path then finds no value.
    """


def is_simple(path: str) -> bool:
    """Return whether a path consists only of field names.

    The work of such a path is the same for every document.
    """
    return _SIMPLE.match(path) is not None


def compile(path: str, work: int = limits.JSONPATH_WORK) -> Find:
    """Return a function that finds the values of a path such as ``.spec.items[0].name``.

    ``work`` is the number of values that the steps of the path may visit. Raise JSONPathError for an invalid path. The
    function returns an empty list if the path exceeds ``work``, if a step finds more than limits.JSONPATH_VALUES
    values, or if upstream reports an error, such as an index out of bounds.
    """
    if is_simple(path):
        return _simple(path.split(".")[1:])
    steps = list(_Parser(path).steps())

    def find(document: View) -> list[Any]:
        try:
            return _run(steps, [document], [work])
        except (_NoResult, _OverBudget):
            return []

    return find


def _simple(names: Sequence[str]) -> Find:
    *parents, last = names

    def find(document: View) -> list[Any]:
        at: Any = document
        for name in parents:
            at = at.get(name)
            if at.__class__ is not dict:
                return []
        return [at[last]] if last in at else []

    return find


def _run(steps: Sequence[Step], values: list[Any], left: Budget) -> list[Any]:
    for step in steps:
        values = step(values, left)
        size = len(values)
        left[0] -= size + 1
        if size > limits.JSONPATH_VALUES or left[0] < 0:
            raise _OverBudget
    return values


def _spend(left: Budget, count: int) -> None:
    left[0] -= count
    if left[0] < 0:
        raise _OverBudget


def _bounded(found: list[Any]) -> None:
    """Raise _OverBudget if a step has found too many values.

    Each step can multiply the number of values.
    """
    if len(found) > limits.JSONPATH_VALUES:
        raise _OverBudget


class _Parser:
    """A parser of one path. A step is a function from the current values to the next values."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def steps(self) -> Iterator[Step]:
        """Yield the steps of the path."""
        text = self._text
        recursive = False
        while self._at < len(text):
            char = text[self._at]
            if text.startswith("[?(", self._at):
                yield self._filter()
            elif text.startswith("..", self._at):
                if recursive:
                    raise JSONPathError("invalid multiple recursive descent")
                self._at += 2
                yield _descend
                recursive = True
                if self._at < len(text) and (text[self._at].isalnum() or text[self._at] == "_"):
                    yield self._field()
                    recursive = False
                continue
            elif char == "[":
                yield from self._brackets()
            elif char == ".":
                self._at += 1
                yield self._field()
            elif char in "'\"":
                yield _constant(self._quoted(char))
            elif char in " @$":
                self._at += 1
                continue
            elif char == "}":
                return  # end of the path
            else:
                yield self._literal()
            recursive = False

    def _field(self) -> Step:
        """Read a field name up to the next terminator; a backslash escapes the next character."""
        start = self._at
        while self._at < len(self._text) and self._text[self._at] not in _TERMINATORS:
            self._at += 2 if self._text[self._at] == "\\" else 1
        name = self._text[start : self._at]
        return _all if name == "*" else _field_step(name.replace("\\", ""))

    def _quoted(self, quote: str) -> str:
        end = self._at + 1
        while end < len(self._text) and self._text[end] != quote:
            end += 2 if self._text[end] == "\\" else 1
        if end >= len(self._text):
            raise JSONPathError("unterminated quoted string")
        inner = self._text[self._at + 1 : end]
        self._at = end + 1
        return inner.replace("\\", "")

    def _literal(self) -> Step:
        number = _NUMBER.match(self._text, self._at)
        if number is not None:
            self._at = number.end()
            text = number.group()
            return _for_each(float(text) if "." in text else int(text))
        start, first = self._at, self._text[self._at]
        if first != "_" and not first.isalnum():
            raise JSONPathError(f"unrecognized character in action: {first!r}")
        while self._at < len(self._text) and self._text[self._at] not in _TERMINATORS:
            self._at += 1
        word = self._text[start : self._at]
        return _for_each(word == "true") if word in ("true", "false") else _unknown

    def _brackets(self) -> Iterator[Step]:
        end = self._text.find("]", self._at)
        if end < 0:
            raise JSONPathError("unterminated array")
        inner = self._text[self._at + 1 : end]
        self._at = end + 1
        if "," in inner:
            paths = [list(_Parser(f"[{part.strip(' ')}]").steps()) for part in inner.split(",")]
            yield _union(paths)
        elif key := _QUOTED_KEY.match(inner):
            yield from _Parser(f".{key.group(1)}").steps()
        else:
            yield _index_or_slice(inner)

    def _filter(self) -> Step:
        start = self._at = self._at + 3
        quote = ""
        closed = False
        while True:
            if self._at >= len(self._text):
                raise JSONPathError("unterminated filter")
            char = self._text[self._at]
            self._at += 1
            if char in "'\"":
                if not quote:
                    quote = char
                elif char == quote and self._text[self._at - 2] != "\\":
                    closed = True
            elif char == ")" and bool(quote) == closed:
                break
        condition = self._text[start : self._at - 1]
        if self._text[self._at : self._at + 1] != "]":
            raise JSONPathError("unclosed array expect ]")
        self._at += 1
        return _condition(condition)


def _condition(text: str) -> Step:
    comparison = _COMPARISON.match(text)
    if comparison is None:
        return _existence_filter(list(_Parser(text).steps()))
    left, sign, right = comparison.groups()
    return _comparison_filter(list(_Parser(left).steps()), _OPERATORS.get(sign), list(_Parser(right).steps()))


def _field_step(name: str) -> Step:
    def step(values: list[Any], left: Budget) -> list[Any]:
        return [value[name] for value in values if isinstance(value, dict) and name in value]

    return step


def _constant(value: Any) -> Step:
    return lambda _, __: [value]


def _for_each(value: Any) -> Step:
    return lambda values, _: [value] * len(values)


def _unknown(values: list[Any], left: Budget) -> list[Any]:
    """Raise _NoResult for an unknown word.

    As in upstream, an unknown word is an error of the evaluation, not of the parser.
    """
    raise _NoResult(bool(values))


def _all(values: list[Any], left: Budget) -> list[Any]:
    found: list[Any] = []
    for value in values:
        found += _children(value)
        _bounded(found)
    return found


def _children(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return [value[key] for key in sorted(value)]
    return value if isinstance(value, list) else []


def _descend(values: list[Any], left: Budget) -> list[Any]:
    """Return the non-empty containers among the values and their descendants, parents first.

    As in Go, a string is a container of bytes.
    """
    found: list[Any] = []
    waiting = values[::-1]
    while waiting:
        value = waiting.pop()
        children = _children(value)
        if children or (value and isinstance(value, str)):
            found.append(value)
            left[0] -= len(children)
            waiting += children[::-1]
            if len(found) > limits.JSONPATH_VALUES or left[0] < 0:
                raise _OverBudget
    return found


def _union(paths: Sequence[Sequence[Step]]) -> Step:
    def step(values: list[Any], left: Budget) -> list[Any]:
        found: list[Any] = []
        for steps in paths:
            _spend(left, len(values))
            found += _run(steps, values, left)
            _bounded(found)
        return found

    return step


def _lists(values: list[Any], *, nulls: bool = False) -> Iterator[list[Any]]:
    for value in values:
        if value is None and not nulls:
            continue
        if not isinstance(value, list):
            raise _NoResult
        yield value


def _index_or_slice(text: str) -> Step:
    """Return the step of an index or slice. Raise JSONPathError for any other text."""
    match = _SLICE.match(":" if text == "*" else text)
    if match is None:
        raise JSONPathError(f"invalid array index {text}")
    first, second, third = match.groups()
    start = _bound(first)
    if second is None:
        return _element(start or 0)
    return _slice(start or 0, _bound(second[1:]), _bound((third or ":")[1:]))


def _bound(text: str) -> int | None:
    if text == "-" or (len(text) > 18 and not -(2**63) <= int(text) < 2**63):
        raise JSONPathError(f"array index {text} is not a number")
    return int(text) if text else None


def _element(index: int) -> Step:
    def step(values: list[Any], left: Budget) -> list[Any]:
        found = []
        for items in _lists(values):
            if not -len(items) <= index < len(items):
                raise _NoResult
            found.append(items[index])
        return found

    return step


def _slice(start: int, stop: int | None, stride: int | None) -> Step:
    def step(values: list[Any], left: Budget) -> list[Any]:
        found: list[Any] = []
        for items in _lists(values):
            size = len(items)
            low = start + size if start < 0 else start
            high = size if stop is None else stop + size if stop < 0 else stop
            if low == high:
                return found  # upstream: an empty slice ends the step
            if not 0 <= low < size or not 0 <= high <= size or low > high or (stride is not None and stride <= 0):
                raise _NoResult
            found += items[low : high : stride or 1]
            _bounded(found)
        return found

    return step


def _existence_filter(steps: Sequence[Step]) -> Step:
    def exists(item: Any, left: Budget) -> bool:
        try:
            return bool(_run(steps, [item], left))
        except _NoResult as failed:
            return failed.kept

    def step(values: list[Any], left: Budget) -> list[Any]:
        found: list[Any] = []
        for items in _lists(values, nulls=True):
            _spend(left, len(items))
            found += [item for item in items if exists(item, left)]
            _bounded(found)
        return found

    return step


def _comparison_filter(left: Sequence[Step], compare: Callable[[Any, Any], bool] | None, right: Sequence[Step]) -> Step:
    """Return the step that keeps the array items for which a comparison holds.

    Without ``compare`` (for an unknown operator), the step fails at the first item that has both values.
    """

    def passes(item: Any, found: list[Any], work: Budget) -> bool:
        lefts = _side(left, item, work)
        rights = _side(right, item, work) if lefts else []
        if not lefts or not rights:
            return False
        one, other = lefts[0], rights[0]
        if compare is None or one.__class__ is not other.__class__ or one.__class__ not in _COMPARABLE:
            raise _NoResult(bool(found))
        if one.__class__ is bool and compare not in (operator.eq, operator.ne):
            raise _NoResult(bool(found))
        return compare(one, other)

    def step(values: list[Any], work: Budget) -> list[Any]:
        found: list[Any] = []
        for items in _lists(values, nulls=True):
            _spend(work, len(items))
            for item in items:
                if passes(item, found, work):
                    found.append(item)
            _bounded(found)
        return found

    return step


def _side(steps: Sequence[Step], item: Any, left: Budget) -> list[Any]:
    """Return a list with the value of one side of a comparison, or an empty list.

    Raise _NoResult for more than one value, or if a step of the side fails.
    """
    try:
        found = _run(steps, [item], left)
    except _NoResult:
        raise _NoResult from None
    if len(found) > 1:
        raise _NoResult
    return found


_COMPARABLE = frozenset((str, int, float, bool))
