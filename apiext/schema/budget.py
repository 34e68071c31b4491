"""Bound the work on one object: bytes of defaults, steps of junctors and of patterns.

Junctors are allOf, anyOf, oneOf and not.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from apiext.schema import limits
from apiext.schema.work_budget import BudgetExhausted, current


class OverBudget(ValueError):
    """The error of work on one object that exceeds a limit."""


class Budget(threading.local):
    """A counter of the work that is still allowed for one object.

    Each thread has its own counter. Call ``refill`` before each object and ``spend`` during the work. ``brief`` is a
    smaller allowance for work on the event loop (0: the same allowance, ``full``). ``text`` is the text of OverBudget.
    """

    def __init__(self, full: int, text: str, brief: int = 0) -> None:
        self.full = full
        self.left = full
        self.text = text
        self._brief = brief or full
        self._cut = False

    def refill(self) -> None:
        """Restore the allowance for the next object: ``brief`` on the event loop, else ``full``."""
        self._cut = self._brief < self.full and current().brief
        self.left = self._brief if self._cut else self.full

    def spend(self, amount: int) -> None:
        """Subtract an amount.

        On the event loop, raise BudgetExhausted if the work exceeds ``brief``: the caller starts the work again in a
        thread, with the full allowance. Raise OverBudget if the work exceeds ``full``.
        """
        self.left -= amount
        if self.left < 0:
            raise BudgetExhausted if self._cut else OverBudget(self.text)

    @contextmanager
    def separate(self, amount: int) -> Iterator[None]:
        """Run a block with a separate allowance of ``amount``.

        The allowance of the object stays unchanged. In the block, ``spend`` raises OverBudget beyond ``amount``, also
        on the event loop.
        """
        left, cut = self.left, self._cut
        self.left, self._cut = amount, False
        try:
            yield
        finally:
            self.left, self._cut = left, cut

    @property
    def spent(self) -> int:
        """Return the amount subtracted since the last ``refill``.

        The result is wrong if this ``refill`` restored only the smaller allowance ``brief``.
        """
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
    """Restore the allowances of patterns and junctors, for the next object."""
    MATCHING.refill()
    STEPS.refill()
