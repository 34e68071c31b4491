"""Objects of events that take long to write: made in a thread, before the pump wants their frames (LOOP_BUDGET)."""

import asyncio
from collections.abc import Callable, Sequence

from apiext import limits as server_limits
from apiext.storage import limits as storage_limits
from apiext.storage.store import Entry

Make = Callable[[Entry], bytes]


class Ahead:
    """What one group of watches writes of its objects; large ones are made ready (apiext.storage.staging.Stage).

    ``here`` writes an object on the loop, ``elsewhere`` the same in a thread, without leaving traces in the entry.
    """

    __slots__ = ("_elsewhere", "_here", "_made")

    def __init__(self, here: Make, elsewhere: Make) -> None:
        self._here = here
        self._elsewhere = elsewhere
        self._made: dict[Entry, bytes] = {}

    def written(self, entry: Entry) -> bytes:
        """Return the object of an event, which is forgotten if it was made ready: frames are made once."""
        made = self._made.pop(entry, None)
        return made if made is not None else self._here(entry)

    def concerns(self, entry: Entry) -> bool:
        """Every object may be selected."""
        return True

    def now(self, entry: Entry) -> Entry | None:
        """Return the entry if it is quickly written."""
        return entry if len(entry.raw) < server_limits.WORK_INLINE or entry in self._made else None

    def prepare(self, entries: Sequence[Entry], then: Callable[[Sequence[Entry] | bytes], None]) -> None:
        """Make the large ones ready, then hand all over; what cannot be written fails when its frame is made."""
        large = [entry for entry in entries if self.now(entry) is None]

        def done(work: asyncio.Future[list[bytes]]) -> None:
            if work.cancelled():  # the server stops
                return
            if work.exception() is None:
                self._made.update(zip(large, work.result(), strict=True))
            while len(self._made) > 2 * storage_limits.SEGMENT:  # some were not selected
                del self._made[next(iter(self._made))]
            then(entries)

        asyncio.get_running_loop().run_in_executor(None, self._all, large).add_done_callback(done)

    def rest(self) -> None:
        """Drop what nobody took: a row of a Table shows the age of when it was made."""
        self._made.clear()

    def _all(self, entries: Sequence[Entry]) -> list[bytes]:
        return [self._elsewhere(entry) for entry in entries]
