"""The recent changes of one collection, by position and by revision; bounded by count and by bytes."""

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple

from apiext.storage import limits
from apiext.storage.heap import HEAP
from apiext.storage.store import Compacted, Entry

_REVISION = attrgetter("revision")
_OVERHEAD = 300  # bytes of a change beside its value


class Change(NamedTuple):
    """The change of one object by one revision.

    ``kind`` is ADDED, MODIFIED or DELETED. A DELETED entry is the last state under the deletion's revision (RV-011).
    ``previous`` is the state before, None for ADDED.
    """

    kind: str
    entry: Entry
    previous: Entry | None
    revision: int


class _All:
    """The histories that have changes, the one that is longest without a new one first, and their bytes."""

    def __init__(self) -> None:
        self._histories: OrderedDict[History, None] = OrderedDict()
        self.bytes = 0

    def grew(self, history: "History") -> None:
        """Drop changes of other histories while all exceed the limit, of the longest unchanged ones first."""
        self._histories[history] = None
        self._histories.move_to_end(history)
        while self.bytes > limits.HISTORIES_BYTES and len(self._histories) > 1:
            quiet, _ = self._histories.popitem(last=False)
            quiet.shed()

    def emptied(self, history: "History") -> None:
        self._histories.pop(history, None)


ALL = _All()


class History:
    """Changes at positions ``first`` … ``end``; positions only increase, so a reader's cursor is one integer.

    Every change after revision ``floor`` is here. While ``held`` nothing is dropped.
    """

    __slots__ = (
        "_base",
        "_bytes",
        "_changes",
        "_extra",
        "_extra_bytes",
        "_old",
        "_older",
        "_young",
        "end",
        "first",
        "floor",
        "held",
    )

    def __init__(self, floor: int) -> None:
        self._changes: list[Change | None] = []
        self._bytes = 0
        self._base = 0
        self._extra = 0
        self._extra_bytes = 0
        self._old = 0
        self._older = 0
        self._young = False
        self.first = 0
        self.end = 0
        self.floor = floor
        self.held = False

    def append(self, change: Change) -> None:
        """Add the newest change and drop old ones over the limits."""
        self._changes.append(change)
        self._count(change.entry.size + _OVERHEAD)
        self.end += 1
        if self._over():
            self._trim()
        ALL.grew(self)

    def _count(self, size: int) -> None:
        self._bytes += size
        ALL.bytes += size

    def shed(self) -> None:
        """Drop all changes but the last, to make room for other histories."""
        if not self.held and self.end > self.first:
            self._extra = self._extra_bytes = 0
            self._drop(self.end - 1)
            self._drop_dead()

    def prepend(self, changes: Sequence[Change], floor: int) -> None:
        """Put older changes before the first; they make all changes after ``floor`` known until ``relax``."""
        self._drop_dead()
        size = sum(change.entry.size + _OVERHEAD for change in changes)
        self._changes[:0] = changes
        self._young = True
        self._extra += len(changes)
        self._extra_bytes += size
        self._count(size)
        self._base -= len(changes)
        self.first = self._base
        self.floor = floor

    def relax(self) -> None:
        """Bring a history that was lengthened by ``prepend`` back to its bounds, at the second call after that."""
        if self._young:
            self._young = False
        elif self._extra:
            self._extra = self._extra_bytes = 0
            self._trim()

    def age(self, wanted: int) -> None:
        """Drop changes of two calls ago and earlier, before a position, but not the last few.

        These are limits.EVENTS_KEPT, or as many as have limits.EVENTS_KEPT_BYTES. Clients get older
        changes from etcd until it is compacted.
        """
        old = min(self._older, wanted, self._few())
        self._older, self._old = self._old, self.end
        if old > self.first and not self.held and not self._extra:
            before = self._bytes
            self._drop(old)
            self._drop_dead()
            HEAP.freed(before - self._bytes)

    def _few(self) -> int:
        """Return the position from which on changes are kept however old they are."""
        position, left = self.end, limits.EVENTS_KEPT_BYTES
        while position > max(self.first, self.end - limits.EVENTS_KEPT):
            left -= self.at(position - 1).entry.size + _OVERHEAD
            if left < 0:
                break
            position -= 1
        return position

    def reset(self, floor: int) -> None:
        """Forget all changes: what happened before ``floor`` is not known any more."""
        HEAP.freed(self._bytes)
        self._drop(self.end)
        self._changes.clear()
        ALL.emptied(self)
        self._extra = self._extra_bytes = 0
        self._base = self.first = self.end
        self.floor = floor

    def at(self, position: int) -> Change:
        """Return the change at a position from ``first`` on."""
        change = self._changes[position - self._base]
        assert change is not None
        return change

    def position(self, revision: int) -> int:
        """Return the position of the first change after the revision; raises Compacted below the floor."""
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
        while not self.held and self.first < self.end - 1 and self._over():
            self._drop(self.first + 1)
        if self.first - self._base > max(1024, (self.end - self._base) // 2):
            self._drop_dead()

    def _drop(self, stop: int) -> None:
        """Drop the changes before a position, and the views of states that are no object any more."""
        changes, base = self._changes, self._base
        for at in range(self.first - base, stop - base):
            gone, changes[at] = changes[at], None
            assert gone is not None
            size = gone.entry.size + _OVERHEAD
            self._count(-size)
            self.floor = gone.revision
            if gone.previous is not None:
                gone.previous.forget()
            if gone.kind == "DELETED":
                gone.entry.forget()
                HEAP.freed(size)  # nothing takes its place
        self.first = stop

    def _drop_dead(self) -> None:
        dead = self.first - self._base
        del self._changes[:dead]
        self._base = self.first
