"""Bound the work that costs do not count: elements and strings of single calls, for each evaluation.

Upstream charges little for some functions that do much: concatenations of lists, at 1 each, can double a list, and
``%s`` prints any list for the length of its clause. An evaluation over this bound ends like one over its cost limit.

Work that allocates nothing has a budget of its own, ``take_time``: reading and comparing strings, matching patterns.
Upstream's cost bounds this work only if argument types are known: a call with arguments of type dyn costs 1.
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
_CHARACTERS = 10  # characters that count as one element, as in costs
_WIDE = 4  # bytes of a character in a string that is not ASCII
_FEW = 1_000  # characters that are not counted
_COMPARED = 2  # elements that one compared or added element counts for: about a microsecond
_MANY = 100  # elements from which the equality of two lists or maps counts: its cost bounds shorter ones
_SCANNED = 500  # characters that are searched in the time of an element


class Cancelled(Exception):
    """The evaluation reached its limit, or another thread has cancelled it."""


class _Limit(Protocol):
    """The limit of an evaluation: its time so far, and whether another thread has cancelled it."""

    brief: bool
    cancelled: bool
    time: int
    longest: int


class _Never:
    brief = False
    cancelled = False
    time = 0
    longest = 1 << 62


class _Effort(threading.local):
    """The work that the evaluation of this thread may still do."""

    left = limits.MOST
    limit: _Limit = _Never()


_effort = _Effort()


def begin(most: int, limit: _Limit) -> None:
    """Start an evaluation that may touch ``most`` elements."""
    _effort.left = most
    _effort.limit = limit


def rest(most: int = limits.MOST) -> None:
    """Reset the budget of this thread after an evaluation, so that a compilation has the full budget."""
    begin(most, _Effort.limit)


def left() -> int:
    """Return the number of elements that the last evaluation of this thread could still have touched."""
    return max(_effort.left, 0)


def take_time(elements: int) -> None:
    """Charge work that takes as long as ``elements`` and allocates nothing. Raise Cancelled."""
    limit = _effort.limit
    limit.time += elements
    if limit.brief:
        spend(elements)
    elif limit.time > limit.longest:
        raise Cancelled(CANCELLED)
    elif limit.cancelled:
        raise Cancelled(INTERRUPTED)


def spend(elements: int) -> None:
    """Charge elements that will be touched or made. Raise Cancelled."""
    left = _effort.left = _effort.left - elements
    if left < 0:
        raise Cancelled(CANCELLED)
    if _effort.limit.cancelled:
        raise Cancelled(INTERRUPTED)


def spend_text(characters: int, *, wide: bool = False) -> None:
    """Charge a string that will be read or made; ``wide``: it is not ASCII. Raise Cancelled."""
    if characters >= _CHARACTERS:
        spend(characters * (_WIDE if wide else 1) // _CHARACTERS)


def spend_copy(*texts: str | bytes) -> None:
    """Charge a string or bytes that will be made of these, by their bytes in memory. Raise Cancelled."""
    size = sum(map(len, texts))
    if size >= _FEW:
        spend_text(size, wide=any(type(text) is str and not text.isascii() for text in texts))


def take_scan(characters: int) -> None:
    """Charge characters that are compared or searched, a block at a time. Raise Cancelled."""
    if characters >= _FEW:
        take_time(characters // _SCANNED)


def take_elements(elements: int) -> None:
    """Charge elements that are compared with each other, or added. Raise Cancelled."""
    take_time(elements * _COMPARED)


def spend_equality(elements: int) -> None:
    """Charge the elements of two lists or maps that are compared. Raise Cancelled."""
    spend(elements + 1)
    if elements >= _MANY:
        take_elements(elements)


SHALLOW = 300  # characters that cannot nest deep enough to need more frames
_ROOM = 20_000  # frames of pure Python, which do not use the machine's stack

_lock = Lock()
_users = 0
_usual = 0


@contextmanager
def room_for(characters: int) -> Iterator[None]:
    """Raise Python's recursion limit while an expression of so many characters is processed."""
    global _users, _usual  # noqa: PLW0603 - the limit is the interpreter's own
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
