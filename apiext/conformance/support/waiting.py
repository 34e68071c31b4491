"""Wait for a condition up to a limit, not for a fixed time; check durations against limits."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")
PATIENCE = 30.0  # seconds after which a condition counts as false

_ROUNDS = 400_000  # iterations of the loop in ``slow``
_QUIET = 0.02  # seconds that the loop in ``slow`` takes on the machine for which limits are set

_never = threading.Event()


class TooLate(AssertionError):
    """A condition became true too late, or an action took too long.

    The test is then repeated once (docs/decisions/0028).
    """


def until(condition: Callable[[], Found | None], what: str, within: float = PATIENCE, every: float = 0.02) -> Found:
    """Return the first true value of ``condition``.

    ``what`` describes the condition in errors. If ``within`` is 0, call ``condition`` once, and raise AssertionError if
    its value is false. Otherwise raise TooLate if the first true value comes later than ``within`` seconds, and
    AssertionError if there is none for PATIENCE seconds (``within`` seconds if this is more). A busy machine gets more
    seconds.
    """
    began = time.monotonic()
    if found := condition():
        return found
    while within and time.monotonic() - began <= max(PATIENCE, within) * busy():
        _never.wait(every)
        if found := condition():
            prompt(time.monotonic() - began, within + every, what)
            return found
    raise AssertionError(f"{what}: not within {time.monotonic() - began:.0f} s (last seen: {found!r})")


def patient(condition: Callable[[], bool], seconds: float) -> bool:
    """Return whether ``condition`` becomes true within ``seconds``.

    A busy machine gets more seconds.
    """
    end = time.monotonic() + seconds * busy()
    while not condition():
        if time.monotonic() > end:
            return False
        _never.wait(0.1)
    return True


def prompt(took: float, limit: float, what: str = "it") -> None:
    """Raise TooLate if ``took`` exceeds the ``limit`` in seconds.

    A busy or slow machine gets a higher limit.
    """
    if took > limit and took > limit * (crowd := busy() * slow()):
        raise TooLate(f"{what}: {took:.3f} s, the limit is {limit:g} s x {crowd:.1f} for the busy machine")


def pause(seconds: float) -> None:
    """Sleep.

    Use this function only to test time itself, such as a kill at a random time, or a recorded pause.
    """
    _never.wait(seconds)


def busy() -> float:
    """Return the number of runnable processes for each processor, at least 1.

    The number is the mean of the last minute.
    """
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def slow() -> float:
    """Return how many times slower this machine is now than the reference, at least 1.

    The reference is the machine for which limits are set.
    """
    began, total = time.thread_time(), 0
    for number in range(_ROUNDS):
        total += number & 7
    return max(1.0, (time.thread_time() - began) / _QUIET)
