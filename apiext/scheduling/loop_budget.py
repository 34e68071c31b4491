"""Budgets of the event loop: long work yields to it, so that no iteration computes longer than LOOP_BUDGET."""

import asyncio
from collections.abc import Callable, Iterable
from time import perf_counter
from typing import TypeVar

from apiext import limits

T = TypeVar("T")


class LoopBudget:
    """The time that a piece of work has before it yields: half of limits.LOOP_BUDGET."""

    __slots__ = ("_until",)

    def __init__(self) -> None:
        self._until = perf_counter() + limits.LOOP_BUDGET / 2

    @property
    def exhausted(self) -> bool:
        """True if the work must yield; a hot loop reads this before ``pause``, which saves a coroutine."""
        return perf_counter() > self._until

    async def pause(self) -> None:
        """Yield to the event loop if the budget is exhausted, and begin another one."""
        if self.exhausted:
            await asyncio.sleep(0)
            self._until = perf_counter() + limits.LOOP_BUDGET / 2


async def collect(items: Iterable[T], wanted: Callable[[T], bool] = lambda _: True) -> list[T]:
    """Return the items that ``wanted`` accepts; yield to the event loop while an iterator makes them."""
    loop_budget, found = LoopBudget(), list[T]()
    for item in items:
        if wanted(item):
            found.append(item)
        if loop_budget.exhausted:
            await loop_budget.pause()
    return found
