"""The recent changes of one collection, by position and by revision.

The number and the bytes of the changes are limited.
"""

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple

from apiext.storage import limits
from apiext.storage.heap import HEAP
from apiext.storage.store import Compacted, Entry

_REVISION = attrgetter("revision")
_OVERHEAD = 300  # estimated bytes of a change in addition to its value


class Change(NamedTuple):
    """The change of one object at one revision.

    ``kind`` is ADDED, MODIFIED or DELETED. For DELETED, ``entry`` is the last state of the object, with the revision of
    the deletion (RV-011). ``previous`` is the state before the change, None for ADDED.
    """

    kind: str
    entry: Entry
    previous: Entry | None
    revision: int


class _Histories:
    """The histories that may have changes to drop, and the total bytes of all histories.

    The least recently changed history is the first.
    """

    def __init__(self) -> None:
        self._histories: OrderedDict[History, None] = OrderedDict()
        self.bytes = 0

    def trim_others(self, history: "History") -> None:
        """Drop changes of other histories until the total size is within the limit.

        Stop if no other history remains. Begin with the least recently changed. A pinned history keeps its changes
        until ``unpin``.
        """
        self._histories[history] = None
        self._histories.move_to_end(history)
        while self.bytes > limits.HISTORIES_BYTES and len(self._histories) > 1:
            oldest, _ = self._histories.popitem(last=False)
            oldest.drop_older()

    def remove(self, history: "History") -> None:
        self._histories.pop(history, None)


HISTORIES = _Histories()


class History:
    """Changes at the positions from ``first`` up to, not including, ``end``.

    A change keeps its position. The history has every change after revision ``floor``. Between ``pin`` and ``unpin``,
    only ``reset`` drops changes.
    """

    __slots__ = (
        "_base",
        "_bytes",
        "_changes",
        "_end_before",
        "_extra",
        "_extra_bytes",
        "_last_end",
        "_pinned",
        "_prepended",
        "end",
        "first",
        "floor",
    )

    def __init__(self, floor: int) -> None:
        self._changes: list[Change | None] = []
        self._bytes = 0
        self._base = 0
        self._extra = 0
        self._extra_bytes = 0
        self._last_end = 0
        self._end_before = 0
        self._prepended = False
        self.first = 0
        self.end = 0
        self.floor = floor
        self._pinned = False

    def append(self, change: Change) -> None:
        """Add the newest change, and drop old changes over the limits."""
        self._changes.append(change)
        self._count(change.entry.size + _OVERHEAD)
        self.end += 1
        if self._over():
            self._trim()
        HISTORIES.trim_others(self)

    def pin(self) -> None:
        """Keep all changes until ``unpin``, whatever their number and size."""
        self._pinned = True

    def unpin(self) -> None:
        """Allow ``append`` to drop changes again.

        All changes but the last may also be dropped if other histories need the memory.
        """
        self._pinned = False
        if self.end > self.first:  # ``reset`` may have dropped the changes, and removed the history from HISTORIES
            HISTORIES.trim_others(self)

    def _count(self, size: int) -> None:
        self._bytes += size
        HISTORIES.bytes += size

    def drop_older(self) -> None:
        """Drop all changes except the last, so that other histories may grow."""
        if not self._pinned and self.end > self.first:
            self._extra = self._extra_bytes = 0
            self._drop(self.end - 1)
            self._drop_dead()

    def prepend(self, changes: Sequence[Change], floor: int) -> None:
        """Insert all changes between the revision ``floor`` and the first change.

        The inserted changes may exceed the limits until the second call of ``restore_limits``.
        """
        self._drop_dead()
        size = sum(change.entry.size + _OVERHEAD for change in changes)
        self._changes[:0] = changes
        self._prepended = True
        self._extra += len(changes)
        self._extra_bytes += size
        self._count(size)
        self._base -= len(changes)
        self.first = self._base
        self.floor = floor
        HISTORIES.trim_others(self)

    def restore_limits(self) -> None:
        """At the second call after ``prepend``, trim the history to its normal limits."""
        if self._prepended:
            self._prepended = False
        elif self._extra:
            self._extra = self._extra_bytes = 0
            self._trim()

    def age(self, wanted: int) -> None:
        """Drop the changes that existed already two calls ago and have a position before ``wanted``.

        ``wanted`` is the oldest position that an open watch needs. The last limits.EVENTS_KEPT changes remain, up to
        limits.EVENTS_KEPT_BYTES. If a later watch needs a dropped change, the server reads it from the store.
        """
        old = min(self._end_before, wanted, self._kept_from())
        self._end_before, self._last_end = self._last_end, self.end
        if old > self.first and not self._pinned and not self._extra:
            before = self._bytes
            self._drop(old)
            self._drop_dead()
            HEAP.freed(before - self._bytes)

    def _kept_from(self) -> int:
        """Return the position from which ``age`` drops no change."""
        position, left = self.end, limits.EVENTS_KEPT_BYTES
        while position > max(self.first, self.end - limits.EVENTS_KEPT):
            left -= self.at(position - 1).entry.size + _OVERHEAD
            if left < 0:
                break
            position -= 1
        return position

    def reset(self, floor: int) -> None:
        """Drop all changes, and begin again at the revision ``floor``."""
        HEAP.freed(self._bytes)
        self._drop(self.end)
        self._changes.clear()
        HISTORIES.remove(self)
        self._extra = self._extra_bytes = 0
        self._base = self.first = self.end
        self.floor = floor

    def at(self, position: int) -> Change:
        """Return the change at a position, which must be between ``first`` and ``end``."""
        change = self._changes[position - self._base]
        assert change is not None
        return change

    def position(self, revision: int) -> int:
        """Return the position of the first change after the revision.

        Raise Compacted below ``floor``.
        """
        if revision < self.floor:
            raise Compacted(revision, self.floor)
        return self._base + bisect_right(self._changes, revision, self.first - self._base, key=_REVISION)

    def unchanged_since(self, revision: int) -> bool:
        """Report whether the history has no change after the revision."""
        return revision >= (self.at(self.end - 1).revision if self.end > self.first else self.floor)

    def _over(self) -> bool:
        return (
            self.end - self.first > limits.EVENT_RING + self._extra
            or self._bytes > limits.EVENT_RING_BYTES + self._extra_bytes
        )

    def _trim(self) -> None:
        while not self._pinned and self.first < self.end - 1 and self._over():
            self._drop(self.first + 1)
        if self.first - self._base > max(1024, (self.end - self._base) // 2):
            self._drop_dead()

    def _drop(self, stop: int) -> None:
        """Drop the changes before a position.

        Also evict the cached JSON of the replaced and deleted objects in them.
        """
        changes, base = self._changes, self._base
        for at in range(self.first - base, stop - base):
            dropped, changes[at] = changes[at], None
            assert dropped is not None
            size = dropped.entry.size + _OVERHEAD
            self._count(-size)
            self.floor = dropped.revision
            if dropped.previous is not None:
                dropped.previous.evict_view()
            if dropped.kind == "DELETED":
                dropped.entry.evict_view()
                HEAP.freed(size)  # only for deleted objects, since the memory of a replaced object is reused
        self.first = stop

    def _drop_dead(self) -> None:
        dead = self.first - self._base
        del self._changes[:dead]
        self._base = self.first
