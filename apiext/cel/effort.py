"""Work that costs do not count: elements touched and texts made within single calls, bounded for each evaluation.

Upstream charges some functions little that do much: lists added for 1 grow by doubling, ``%s`` prints any list for the
length of its clause. A rule that lives by that ends as one that is over its limit.

Work that allocates nothing has a budget of its own, ``take_time``: reading and comparing strings, matching patterns.
Upstream's cost bounds this work only if argument types are known: a call with arguments of type dyn costs 1.
"""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Protocol

CANCELLED = "operation cancelled: actual cost limit exceeded"
INTERRUPTED = "operation interrupted"
MOST = 5_000_000  # elements touched or made by one evaluation: about two seconds, and 50 MB when they are kept
MADE = 500_000  # elements of the values that one mutation constructs: as JSON each may take 200 bytes
MOST_TIME = 2_500_000  # elements that all evaluations under a limit may take as long as: about a second
_CHARACTERS = 10  # of a text that count as one element, as in costs
_WIDE = 4  # bytes of a character of a text that is not ASCII
_FEW = 1_000  # characters that need not be reckoned with
_COMPARED = 2  # elements of this allowance that an element takes which is compared or added: about a microsecond
_MANY = 100  # elements from which the equality of two lists or maps counts: its cost bounds shorter ones
_SCANNED = 500  # characters that are looked through in the time of an element


class Cancelled(Exception):
    """An evaluation that was stopped: its limit was reached, or it was told to stop."""


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

    left = MOST
    limit: _Limit = _Never()


_effort = _Effort()


def begin(most: int, limit: _Limit) -> None:
    """Start an evaluation that may touch so many elements."""
    _effort.left = most
    _effort.limit = limit


def rest(most: int = MOST) -> None:
    """Forget the last evaluation of this thread, so that a compilation after it has a full budget."""
    begin(most, _Effort.limit)


def left() -> int:
    """Return how many elements the evaluation that this thread did last could still have touched."""
    return max(_effort.left, 0)


def take_time(elements: int) -> None:
    """Reckon with work that takes as long as so many elements and keeps none. Raises Cancelled."""
    limit = _effort.limit
    limit.time += elements
    if limit.brief:
        spend(elements)
    elif limit.time > limit.longest:
        raise Cancelled(CANCELLED)
    elif limit.cancelled:
        raise Cancelled(INTERRUPTED)


def spend(elements: int) -> None:
    """Reckon with elements about to be touched or made. Raises Cancelled."""
    left = _effort.left = _effort.left - elements
    if left < 0:
        raise Cancelled(CANCELLED)
    if _effort.limit.cancelled:
        raise Cancelled(INTERRUPTED)


def spend_text(characters: int, *, wide: bool = False) -> None:
    """Reckon with a text about to be read or made; one that is ``wide`` is not ASCII. Raises Cancelled."""
    if characters >= _CHARACTERS:
        spend(characters * (_WIDE if wide else 1) // _CHARACTERS)


def spend_copy(*texts: str | bytes) -> None:
    """Reckon with a text or byte row about to be made of these, by its bytes in memory. Raises Cancelled."""
    size = sum(map(len, texts))
    if size >= _FEW:
        spend_text(size, wide=any(type(text) is str and not text.isascii() for text in texts))


def take_scan(characters: int) -> None:
    """Reckon with characters that are compared or looked through, a block at a time. Raises Cancelled."""
    if characters >= _FEW:
        take_time(characters // _SCANNED)


def take_elements(elements: int) -> None:
    """Reckon with elements that are compared with each other, or added. Raises Cancelled."""
    take_time(elements * _COMPARED)


def spend_equality(elements: int) -> None:
    """Reckon with the elements of two lists or maps that are compared. Raises Cancelled."""
    spend(elements + 1)
    if elements >= _MANY:
        take_elements(elements)


SHALLOW = 300  # characters that cannot nest deep enough to need room
_ROOM = 20_000  # frames of pure Python, which take no room on the machine's stack

_lock = Lock()
_users = 0
_usual = 0


@contextmanager
def room_for(characters: int) -> Iterator[None]:
    """Give an expression of so many characters the frames that it may need."""
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
