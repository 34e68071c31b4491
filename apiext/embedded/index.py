"""The index of the store: the states of all keys in memory; the back end has their values."""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from operator import attrgetter

from apiext.embedded.wire import Record

RUN = 512  # number of keys of a run; a run has at most twice as many
Span = tuple[bytes, bytes]
"""Start key and end key (exclusive); the end ``b""`` means the start key only, ``b"\0"`` no end, as in etcd."""

_revision = attrgetter("revision")


def covers(span: Span, key: bytes) -> bool:
    """Report whether a key is in a span."""
    start, end = span
    if not end:
        return key == start
    return start <= key and (end == b"\0" or key < end)


class Order:
    """Sorted keys, in runs of some hundred keys: an insertion moves the keys of one run only."""

    def __init__(self) -> None:
        self._runs: list[list[bytes]] = []
        self._firsts: list[bytes] = []

    def add(self, key: bytes) -> None:
        """Insert a new key."""
        runs, firsts = self._runs, self._firsts
        if not runs:
            runs.append([key])
            firsts.append(key)
            return
        at = max(bisect_right(firsts, key) - 1, 0)
        run = runs[at]
        insort(run, key)
        firsts[at] = run[0]
        if len(run) > 2 * RUN:
            runs.insert(at + 1, run[RUN:])
            del run[RUN:]
            firsts.insert(at + 1, runs[at + 1][0])

    def remove(self, key: bytes) -> None:
        """Remove a key."""
        at = bisect_right(self._firsts, key) - 1
        run = self._runs[at]
        del run[bisect_left(run, key)]
        if run:
            self._firsts[at] = run[0]
        else:
            del self._runs[at], self._firsts[at]

    def part(self, start: bytes, end: bytes) -> list[bytes]:
        """Return the first keys of a span from a key on, up to the end of a run; empty after the last key."""
        at = max(bisect_right(self._firsts, start) - 1, 0)
        while at < len(self._runs):
            run = self._runs[at]
            first = bisect_left(run, start)
            if first < len(run):
                last = len(run) if end == b"\0" else bisect_left(run, end, first)
                return run[first:last]
            at += 1
        return []


class Index:
    """The states of all keys since the compacted revision; revisions only grow."""

    def __init__(self) -> None:
        self.now: dict[bytes, Record] = {}
        self._past: dict[bytes, list[Record]] = {}  # earlier records, oldest first; may be empty after a deletion
        self._order = Order()

    def put(self, key: bytes, record: Record) -> Record | None:
        """Add a new state of a key, which may be a deletion; return the state before it."""
        before = self.now.get(key)
        if before is None:
            self._order.add(key)
            if not record.version:
                self._past[key] = []
        else:
            past = self._past.get(key)
            if past is None:
                self._past[key] = [before]
            else:
                past.append(before)
        self.now[key] = record
        return before

    def undo(self, key: bytes) -> Record | None:
        """Remove the newest state of a key; return the one before it."""
        past = self._past.get(key)
        if not past:
            self._drop(key)
            return None
        before = self.now[key] = past.pop()
        if not past and before.version:
            del self._past[key]
        return before

    def at(self, key: bytes, revision: int) -> Record | None:
        """Return the state of a key at a revision, None if it did not exist."""
        record = self.now.get(key)
        if record is not None and record.revision > revision:
            past = self._past.get(key, ())
            place = bisect_right(past, revision, key=_revision)
            record = past[place - 1] if place else None
        return record if record is not None and record.version else None

    def part(self, span: Span, revision: int) -> tuple[list[tuple[bytes, Record]], bytes | None]:
        """Return the first keys of a span that exist at a revision, and the next key to read; None at the end."""
        start, end = span
        keys = self._order.part(start, end)
        if not keys:
            return [], None
        now = self.now
        found = []
        for key in keys:
            record: Record | None = now[key]
            if record is not None and record.revision > revision:
                record = self.at(key, revision)
            if record is not None and record.version:
                found.append((key, record))
        return found, keys[-1] + b"\0"

    def touched(self) -> list[bytes]:
        """Return the keys that may have states for a compaction to drop."""
        return list(self._past)

    def drop_before(self, key: bytes, revision: int) -> Iterator[Record]:
        """Drop the states of a key that ended before a revision; yield them.

        A deletion at exactly that revision is kept, since a watch may begin there.
        """
        past = self._past.get(key)
        if past is None:
            return
        now = self.now[key]
        if now.revision <= revision:
            yield from past
            past.clear()
            if now.version:
                del self._past[key]
            elif now.revision < revision:
                self._drop(key)
                yield now
            return
        keep = bisect_right(past, revision, key=_revision) - 1
        if keep >= 0 and not past[keep].version and past[keep].revision < revision:
            keep += 1
        if keep > 0:
            yield from past[:keep]
            del past[:keep]
        if not past and now.version:
            del self._past[key]

    def _drop(self, key: bytes) -> None:
        del self.now[key]
        self._past.pop(key, None)
        self._order.remove(key)
