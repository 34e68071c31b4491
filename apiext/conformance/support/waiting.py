"""Knows how a test waits: for a condition, with a bound, never for a time; and what is late by the clock."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")
PATIENCE = 30.0  # seconds after which what did not come never comes

_ROUNDS = 400_000  # of a loop
_QUIET = 0.02  # seconds that they take on a machine that the limits are from

_never = threading.Event()


class TooLate(AssertionError):
    """What was wanted came, but late by the clock: such a test is run once more (docs/decisions/0028)."""


def until(condition: Callable[[], Found | None], what: str, within: float = PATIENCE, every: float = 0.02) -> Found:
    """Return the first true value of ``condition``; ``within`` 0 seconds means: of the first look.

    TooLate when it takes more seconds, AssertionError when there is none with all PATIENCE either.
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
    """Return whether ``condition`` becomes true within ``seconds``, of which a busy machine has more."""
    end = time.monotonic() + seconds * busy()
    while not condition():
        if time.monotonic() > end:
            return False
        _never.wait(0.1)
    return True


def prompt(took: float, limit: float, what: str = "it") -> None:
    """Raise TooLate when ``took`` seconds are more than the ``limit`` on a machine as busy and as slow as this one."""
    if took > limit and took > limit * (crowd := busy() * slow()):
        raise TooLate(f"{what}: {took:.3f} s, the limit is {limit:g} s x {crowd:.1f} for the busy machine")


def pause(seconds: float) -> None:
    """Let time pass where time itself is the matter (a kill at a random moment, a recorded pause)."""
    _never.wait(seconds)


def busy() -> float:
    """Return how many programs want each processor, at least 1: what takes long on a busy machine is not slow."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))


def slow() -> float:
    """Return how many times longer a loop computes here and now than where the limits are from, at least 1."""
    began, total = time.thread_time(), 0
    for number in range(_ROUNDS):
        total += number & 7
    return max(1.0, (time.thread_time() - began) / _QUIET)
