"""Bounds on the work that one object may cause: bytes added by defaults, steps taken by junctors and patterns."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from apiext.schema import limits
from apiext.schema.work_budget import BudgetExhausted, current


class OverBudget(ValueError):
    """An object that asks for more work than one object may."""


class Budget(threading.local):
    """What is left of a bound; ``refill`` before each object, subtract while working on it.

    Each thread has its own, since large objects are judged off the loop. ``brief`` is the bound of work on the loop.
    """

    def __init__(self, full: int, text: str, brief: int = 0) -> None:
        self.full = full
        self.left = full
        self.text = text
        self._brief = brief or full
        self._cut = False

    def refill(self) -> None:
        """Start a new object."""
        self._cut = self._brief < self.full and current().brief
        self.left = self._brief if self._cut else self.full

    def spend(self, amount: int) -> None:
        """Take an amount; OverBudget when nothing is left, BudgetExhausted when there is more for who has time."""
        self.left -= amount
        if self.left < 0:
            raise BudgetExhausted if self._cut else OverBudget(self.text)

    @contextmanager
    def aside(self, amount: int) -> Iterator[None]:
        """Count what is no object's, at most an amount of it; what is left for the object stays as it was."""
        left, cut = self.left, self._cut
        self.left, self._cut = amount, False
        try:
            yield
        finally:
            self.left, self._cut = left, cut

    @property
    def spent(self) -> int:
        """What was taken since the last refill."""
        return self.full - self.left


DEFAULTS = Budget(
    limits.MAX_DEFAULTED, f"the defaults of the schema would add more than {limits.MAX_DEFAULTED} bytes to the object"
)
MATCHING = Budget(
    limits.MAX_PATTERN_STEPS,
    f"matching the texts of the object with patterns may take more than {limits.MAX_PATTERN_STEPS} steps, "
    "a step for each byte of a text and each instruction of its pattern",
)
STEPS = Budget(
    limits.MAX_VALIDATION_STEPS,
    f"validating the object against allOf, anyOf, oneOf and not takes more than {limits.MAX_VALIDATION_STEPS} steps",
    limits.MAX_VALIDATION_STEPS // 200,
)


def refill() -> None:
    """Start to validate a new object."""
    MATCHING.refill()
    STEPS.refill()
