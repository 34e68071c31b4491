"""Room on Python's stack for expressions that nest deeply but within the language's limits."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

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
