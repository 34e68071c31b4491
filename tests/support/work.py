"""Counts work by calls of functions: the same on a busy machine, which no clock is."""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def calls(work: Callable[[], object]) -> int:
    """Return how many functions, Python's and C's, a piece of work calls."""
    count = 0

    def called(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    sys.setprofile(called)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count
