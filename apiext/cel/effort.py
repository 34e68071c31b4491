"""Work that costs do not count: elements touched and texts made within single calls, bounded for each evaluation.

Upstream charges some functions little that do much: lists added for 1 grow by doubling, ``%s`` prints any list for the
length of its clause. A rule that lives by that ends as one that is over its limit.

What takes time by its input alone is bounded by that, but too long for where others wait: ``take_time`` ends only
evaluations that are to be brief, before they begin with it.
"""

import threading
from typing import Protocol

CANCELLED = "operation cancelled: actual cost limit exceeded"
INTERRUPTED = "operation interrupted"
MOST = 5_000_000  # elements touched or made by one evaluation: about two seconds, and 50 MB when they are kept
_CHARACTERS = 10  # of a text that count as one element, as in costs


class Cancelled(Exception):
    """An evaluation that was stopped: its limit was reached, or it was told to stop."""


class _Limit(Protocol):
    """What stops an evaluation from another thread, whether it must be brief, and the time that was taken."""

    brief: bool
    cancelled: bool
    time: int


class _Never:
    brief = False
    cancelled = False
    time = 0


class _Effort(threading.local):
    """What the evaluation of this thread may still do."""

    left = MOST
    limit: _Limit = _Never()


_effort = _Effort()


def begin(most: int, limit: _Limit) -> None:
    """Start an evaluation that may touch so many elements."""
    _effort.left = most
    _effort.limit = limit


def rest() -> None:
    """Forget the evaluation that this thread did last: what is compiled next is no part of it."""
    begin(MOST, _Effort.limit)


def left() -> int:
    """Return how many elements the evaluation that this thread did last could still have touched."""
    return max(_effort.left, 0)


def take_time(elements: int) -> None:
    """Reckon with work that takes as long as so many elements and is bounded otherwise. Raises Cancelled if brief."""
    limit = _effort.limit
    limit.time += elements
    if limit.brief:
        spend(elements)


def spend(elements: int) -> None:
    """Reckon with elements about to be touched or made. Raises Cancelled."""
    left = _effort.left = _effort.left - elements
    if left < 0:
        raise Cancelled(CANCELLED)
    if _effort.limit.cancelled:
        raise Cancelled(INTERRUPTED)


def spend_text(characters: int) -> None:
    """Reckon with a text about to be read or made. Raises Cancelled."""
    if characters >= _CHARACTERS:
        spend(characters // _CHARACTERS)
