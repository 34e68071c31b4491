"""Bound the work of an evaluation that CEL costs do not cover.

The unit is one element of a list or map. Upstream's cost of some functions is too low. For example, the concatenation
of two lists costs 1, but can double a list. ``%s`` costs the length of the format, but prints a whole list. An
evaluation that exceeds this bound ends with the same error as an evaluation that exceeds its cost limit.

Work without allocation, such as reading and comparing strings and matching patterns, has a separate budget
(``spend_work``). Upstream's cost bounds this work only if argument types are known: a call with arguments of type dyn
costs 1.
"""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Protocol

from apiext.cel import limits

CANCELLED = "operation cancelled: actual cost limit exceeded"
INTERRUPTED = "operation interrupted"
_CHARACTERS = 10  # characters that count as one element, as in CEL costs
_WIDE = 4  # bytes of a character in a string that is not ASCII
_FEW = 1_000  # a call of spend_copy or spend_scan counts nothing if it is for fewer characters
_COMPARED = 2  # one element that is compared or added counts as two, about a microsecond
_MANY = 100  # the comparison of lists or maps with fewer elements does not count as work, since its CEL cost bounds it
_SCANNED = 500  # searching this number of characters counts as one element


class Cancelled(Exception):
    """The error of an evaluation that reached its limit, or that another thread cancelled."""


class _Limit(Protocol):
    """The attributes of ``limit.Limit`` that this module uses."""

    brief: bool
    cancelled: bool
    work: int
    max_work: int


class _Never:
    brief = False
    cancelled = False
    work = 0
    max_work = 1 << 62


class _Effort(threading.local):
    """The work that the evaluation of this thread may still do."""

    left = limits.MAX_ELEMENTS
    limit: _Limit = _Never()


_effort = _Effort()


def begin(most: int, limit: _Limit) -> None:
    """Start an evaluation that may touch ``most`` elements."""
    _effort.left = most
    _effort.limit = limit


def renew(most: int = limits.MAX_ELEMENTS) -> None:
    """Give this thread a new budget of ``most`` elements for work outside an evaluation.

    Such work is, for example, a compilation.
    """
    begin(most, _Effort.limit)


def left() -> int:
    """Return how many more elements the last evaluation of this thread could have touched."""
    return max(_effort.left, 0)


def spend_work(elements: int) -> None:
    """Count work without allocation that takes as long as reading this number of elements.

    Raise Cancelled if the budget is exhausted, or if another thread has cancelled the evaluation. If the limit is
    ``brief`` (see limit.py), the work counts as touched elements.
    """
    limit = _effort.limit
    limit.work += elements
    if limit.brief:
        spend(elements)
    elif limit.work > limit.max_work:
        raise Cancelled(CANCELLED)
    elif limit.cancelled:
        raise Cancelled(INTERRUPTED)


def spend(elements: int) -> None:
    """Count elements that the caller will read or create.

    Raise Cancelled if the budget is exhausted, or if another thread has cancelled the evaluation.
    """
    left = _effort.left = _effort.left - elements
    if left < 0:
        raise Cancelled(CANCELLED)
    if _effort.limit.cancelled:
        raise Cancelled(INTERRUPTED)


def spend_text(characters: int, *, wide: bool = False) -> None:
    """Count a string that the caller will read or create; ``wide`` is true if it is not ASCII.

    Raise Cancelled as ``spend`` does. A string of fewer than 10 characters does not count.
    """
    if characters >= _CHARACTERS:
        spend(characters * (_WIDE if wide else 1) // _CHARACTERS)


def spend_copy(*texts: str | bytes) -> None:
    """Count the memory of strings or bytes that the caller will copy or concatenate.

    Raise Cancelled as ``spend`` does.
    """
    size = sum(map(len, texts))
    if size >= _FEW:
        spend_text(size, wide=any(type(text) is str and not text.isascii() for text in texts))


def spend_scan(characters: int) -> None:
    """Count characters that the caller will compare or search with a fast function.

    Raise Cancelled as ``spend_work`` does.
    """
    if characters >= _FEW:
        spend_work(characters // _SCANNED)


def spend_comparisons(elements: int) -> None:
    """Count elements that the caller will compare or add.

    Raise Cancelled as ``spend_work`` does.
    """
    spend_work(elements * _COMPARED)


def spend_equality(elements: int) -> None:
    """Count the elements of two lists or maps that the caller will compare.

    Raise Cancelled as ``spend`` and ``spend_work`` do.
    """
    spend(elements + 1)
    if elements >= _MANY:
        spend_comparisons(elements)


SHALLOW = 300  # an expression of at most this number of characters never needs a higher recursion limit
_ROOM = 20_000  # higher recursion limit; it cannot overflow the C stack, which frames of Python functions do not use

_lock = Lock()
_users = 0
_usual = 0


@contextmanager
def room_for(characters: int) -> Iterator[None]:
    """Increase Python's recursion limit in the block if an expression of this length needs it."""
    global _users, _usual  # noqa: PLW0603 - the interpreter has only one limit
    if characters <= SHALLOW:
        yield
        return
    with _lock:
        if _users == 0:
            _usual = sys.getrecursionlimit()
            sys.setrecursionlimit(max(_usual, _ROOM))
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if _users == 0:
                sys.setrecursionlimit(_usual)
