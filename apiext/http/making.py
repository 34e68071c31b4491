"""Lists that are made before they are sent: a few at a time, and none that memory does not hold."""

import asyncio
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from apiext.http import limits
from apiext.http.memory import Memory
from apiext.meta import status
from apiext.verbs.call import Page

_BODIES = 2  # times that the objects are in memory while their list is made: one by one, and joined
_NO_BOUND = nullcontext()
_NO_ROOM = "the server has too little memory left for this list; try again, ask for pages, or for plain JSON"


class Making:
    """``turn`` is taken by who makes a long list: each has its part of every turn of the loop."""

    def __init__(self, memory: Memory) -> None:
        self.turn = asyncio.Semaphore(limits.LISTS_AT_ONCE)
        self._memory = memory

    def fits(self, size: int) -> bool:
        """Tell whether so many bytes fit besides those that are promised to requests."""
        return self._memory.fits(size)

    def held(self, page: Page) -> AbstractContextManager[None]:
        """Have memory for a list that is made of the objects of a page; 429 if there is none."""
        return self._holding(_BODIES * page.size()) if self._memory.is_bounded else _NO_BOUND

    @contextmanager
    def _holding(self, size: int) -> Iterator[None]:
        if size and not self.fits(size):
            raise status.too_many_requests(_NO_ROOM)
        self._memory.promised += size
        try:
            yield
        finally:
            self._memory.promised -= size
