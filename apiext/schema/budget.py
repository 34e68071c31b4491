"""Bounds on the work that one object may cause: bytes added by defaults, steps taken by junctors (B-09)."""

import threading

from apiext import limits


class OverBudget(ValueError):
    """An object that asks for more work than one object may."""


class Budget(threading.local):
    """What is left of a bound; ``refill`` before each object, subtract while working on it.

    Each thread has its own, since large objects are judged off the loop.
    """

    def __init__(self, full: int, text: str) -> None:
        self.full = full
        self.left = full
        self.text = text

    def refill(self) -> None:
        """Start a new object."""
        self.left = self.full

    def spend(self, amount: int) -> None:
        """Take an amount; OverBudget when nothing is left."""
        self.left -= amount
        if self.left < 0:
            raise OverBudget(self.text)


DEFAULTS = Budget(
    limits.MAX_DEFAULTED, f"the defaults of the schema would add more than {limits.MAX_DEFAULTED} bytes to the object"
)
STEPS = Budget(
    limits.MAX_VALIDATION_STEPS,
    f"validating the object against allOf, anyOf, oneOf and not takes more than {limits.MAX_VALIDATION_STEPS} steps",
)
