"""Time budgets for long work on the event loop.

No iteration of the loop should take longer than LOOP_BUDGET.
"""

import asyncio
from collections.abc import Callable, Iterable
from time import perf_counter
from typing import TypeVar

from apiext import limits

T = TypeVar("T")


class LoopBudget:
    """The time budget of a task before it yields to the event loop: half of limits.LOOP_BUDGET."""

    __slots__ = ("_until",)

    def __init__(self) -> None:
        self._until = perf_counter() + limits.LOOP_BUDGET / 2

    @property
    def exhausted(self) -> bool:
        """True if the task must yield.

        Hot loops test this first, since each call of ``pause`` creates a coroutine.
        """
        return perf_counter() > self._until

    async def pause(self) -> None:
        """If the budget is exhausted, yield to the event loop and begin a new budget."""
        if self.exhausted:
            await asyncio.sleep(0)
            self._until = perf_counter() + limits.LOOP_BUDGET / 2


async def collect(items: Iterable[T], wanted: Callable[[T], bool] = lambda _: True) -> list[T]:
    """Return the items for which ``wanted`` returns True.

    Between two items, yield to the event loop if the budget is exhausted.
    """
    loop_budget, found = LoopBudget(), list[T]()
    for item in items:
        if wanted(item):
            found.append(item)
        if loop_budget.exhausted:
            await loop_budget.pause()
    return found
