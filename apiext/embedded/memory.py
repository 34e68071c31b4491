"""The back end for tests. All content is in memory, and is lost when the process ends.

Each change has a row number (``backend.row_of``). Row numbers ascend in the order of the changes.
"""

import asyncio
import secrets
from bisect import bisect_left
from collections.abc import Callable, Sequence

from apiext.embedded.backend import (
    SUBS,
    Batch,
    Commit,
    Found,
    History,
    Identity,
    Size,
    StoredContent,
    Values,
    Written,
    row_of,
)
from apiext.embedded.index import Span, covers
from apiext.embedded.wire import Change

OVERHEAD = 200  # estimated bytes of a change in addition to its key and value
# A call of ``changes`` ends with the revision in which it has found HISTORY changes, or tested SEARCHED changes.
HISTORY = 200
SEARCHED = 2000
_DONE = Commit(0.0, False)


class MemoryBackend:
    """A dict: row number → change."""

    def __init__(self) -> None:
        self._changes: dict[int, Change] = {}
        self._rows: list[int] = []  # row numbers in ascending order; it may contain deleted rows
        self._used = 0
        self._loop = asyncio.get_running_loop()

    def load(self) -> StoredContent:
        """Return a new identity and no content."""
        return StoredContent(Identity(secrets.randbits(62) | 1, secrets.randbits(62) | 1), 0, (), ())

    def write(self, batch: Batch, written: Written) -> None:
        """Store a batch."""
        for change in batch.changes:
            row = row_of(change.record)
            self._changes[row] = change
            self._rows.append(row)
            self._used += len(change.key) + len(change.value or b"") + OVERHEAD
        for row in batch.deleted_rows:
            gone = self._changes.pop(row)
            self._used -= len(gone.key) + len(gone.value or b"") + OVERHEAD
        if len(self._rows) > 2 * len(self._changes) + SEARCHED:
            self._rows = list(self._changes)
        self._loop.call_soon(written, _DONE)

    def values(self, rows: Sequence[int], found: Values) -> None:
        """Call ``found`` with row number → value, without rows that have been deleted."""
        kept = self._changes
        self._loop.call_soon(found, {row: kept[row].value or b"" for row in rows if row in kept})

    def changes(self, span: Span, first: int, last: int, found: Found) -> None:
        """Call ``found`` with the History of a range of keys, from the revision ``first`` on.

        The History ends at ``last``, or at an earlier revision (see HISTORY).
        """
        changes: list[Change] = []
        looked, before, upto = 0, 0, last
        for place in range(bisect_left(self._rows, first * SUBS), len(self._rows)):
            change = self._changes.get(self._rows[place])
            if change is None:
                continue
            revision = change.record.revision
            if revision > last:
                break
            if revision != before and (len(changes) >= HISTORY or looked >= SEARCHED):
                upto = before
                break
            looked, before = looked + 1, revision
            if covers(span, change.key):
                changes.append(change)
        self._loop.call_soon(found, History(changes, upto))

    def shrink(self, _all_of_it: bool, done: Callable[[], None]) -> None:
        """Only call ``done``, since memory has no unused space."""
        self._loop.call_soon(done)

    @property
    def size(self) -> Size:
        """The estimated size of all changes."""
        return Size(self._used, self._used)

    @property
    def short(self) -> bool:
        """False, since there is no disk."""
        return False

    def close(self) -> None:
        """Drop all changes."""
        self._changes.clear()
        self._rows.clear()
