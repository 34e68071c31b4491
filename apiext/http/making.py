"""Lists that are made before they are sent: a few at a time, and none that memory does not hold (F-13, F-25)."""

import asyncio
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

from apiext import limits
from apiext.meta import status
from apiext.storage.room import Room
from apiext.verbs.call import Page

_BODIES = 2  # times that the objects are in memory while their list is made: one by one, and joined
_NO_BOUND = nullcontext()
_NO_ROOM = "the server has too little memory left for this list; try again, ask for pages, or for plain JSON"


class Making:
    """``turn`` is taken by who makes a long list: each has its part of every turn of the loop."""

    def __init__(self, room: Room | None = None) -> None:
        """``room`` is the memory there is, by default that of this process."""
        self.turn = asyncio.Semaphore(limits.LISTS_AT_ONCE)
        self._room = room or Room()
        self._promised = 0

    def fits(self, size: int) -> bool:
        """Tell whether so many bytes fit besides those of the lists that are being made."""
        return self._room.fits(self._promised + size)

    def held(self, page: Page) -> AbstractContextManager[None]:
        """Have memory for a list that is made of the objects of a page; 429 if there is none."""
        return self._holding(_BODIES * page.size()) if self._room.is_bounded else _NO_BOUND

    @contextmanager
    def _holding(self, size: int) -> Iterator[None]:
        if size and not self.fits(size):
            raise status.too_many_requests(_NO_ROOM)
        self._promised += size
        try:
            yield
        finally:
            self._promised -= size
