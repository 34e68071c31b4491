"""How long work may stay on the loop: what has much to do gives the others their turn now and then."""

import asyncio
from collections.abc import Callable, Iterable
from time import perf_counter
from typing import TypeVar

from apiext import limits

T = TypeVar("T")


class Turn:
    """The turn of one piece of work, half limits.LOOP_BUDGET long: others wait for a whole one at most."""

    __slots__ = ("_until",)

    def __init__(self) -> None:
        self._until = perf_counter() + limits.LOOP_BUDGET / 2

    @property
    def over(self) -> bool:
        """Whether it is the turn of others: a coroutine less for what asks often."""
        return perf_counter() > self._until

    async def give(self) -> None:
        """Give the loop to others if the turn is over, and begin the next."""
        if self.over:
            await asyncio.sleep(0)
            self._until = perf_counter() + limits.LOOP_BUDGET / 2


async def in_turns(made: Iterable[T], wanted: Callable[[T], bool] = lambda _: True) -> list[T]:
    """Return what an iterator makes and ``wanted`` accepts, yielding to the event loop now and then."""
    turn, found = Turn(), list[T]()
    for one in made:
        if wanted(one):
            found.append(one)
        if turn.over:
            await turn.give()
    return found
