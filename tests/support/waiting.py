"""Knows how a test waits: for a condition, with a bound, never for a time."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import TypeVar

Found = TypeVar("Found")

_never = threading.Event()


def until(condition: Callable[[], Found | None], what: str, within: float = 30.0, every: float = 0.02) -> Found:
    """Return the first true value of ``condition``; AssertionError naming ``what`` after ``within`` seconds."""
    deadline = time.monotonic() + within
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {within:g} s (last seen: {found!r})")
        _never.wait(every)


def pause(seconds: float) -> None:
    """Let time pass where time itself is the matter (a kill at a random moment, a recorded pause)."""
    _never.wait(seconds)


def busy() -> float:
    """Return how many programs want each processor, at least 1: what takes long on a busy machine is not slow."""
    return max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
