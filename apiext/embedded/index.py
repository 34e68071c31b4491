"""The index of the embedded store, in memory: the records of all keys.

A Record (wire.py) describes one change of a key, without the value. The back end (backend.py) stores the values.
"""

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from operator import attrgetter

from apiext.embedded.wire import Record
from apiext.scheduling.growing_dict import GrowingDict

RUN = 512  # a run with more than twice this number of keys is divided into two runs
Span = tuple[bytes, bytes]
"""A range of keys, as in etcd: (start, end), without the end. End ``b""`` means only the key ``start``.

End ``b"\\0"`` means all keys from ``start`` on.
"""

_revision = attrgetter("revision")


def covers(span: Span, key: bytes) -> bool:
    """Report whether a range contains a key."""
    start, end = span
    if not end:
        return key == start
    return start <= key and (end == b"\0" or key < end)


class Order:
    """Sorted keys in lists ("runs") of several hundred keys.

    An insertion moves only the keys of one run.
    """

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
        """Return the first keys of the range, at most those of one run.

        The result is empty if the range contains no key.
        """
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
    """The records of all keys since the compacted revision.

    Each new record of a key has a higher revision than the previous record of the key.
    """

    def __init__(self) -> None:
        self.now = GrowingDict[bytes, Record]()  # key → newest record, which may be a deletion
        # key → earlier records, oldest first; a deleted key has an entry, which may be empty
        self._past = GrowingDict[bytes, list[Record]]()
        self._order = Order()

    def put(self, key: bytes, record: Record) -> Record | None:
        """Add the newest record of a key, which may be a deletion. Return the previous record."""
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
        """Remove the newest record of a key. Return the previous record, which is now the newest."""
        past = self._past.get(key)
        if not past:
            self._drop(key)
            return None
        before = self.now[key] = past.pop()
        if not past and before.version:
            del self._past[key]
        return before

    def at(self, key: bytes, revision: int) -> Record | None:
        """Return the record of a key at a revision, None if the key did not exist."""
        record = self.now.get(key)
        if record is not None and record.revision > revision:
            past = self._past.get(key, ())
            place = bisect_right(past, revision, key=_revision)
            record = past[place - 1] if place else None
        return record if record is not None and record.version else None

    def part(self, span: Span, revision: int) -> tuple[list[tuple[bytes, Record]], bytes | None]:
        """Return the first keys of a range with their records at a revision, and the next start key.

        The range of the next call begins at the next start key, which is None at the end. Keys that did not exist at
        the revision are left out, so the list may be empty before the end. The range must not be a single key.
        """
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
        """Return the keys with earlier records or a deletion.

        A compaction drops records of these keys only.
        """
        return list(self._past)

    def drop_before(self, key: bytes, revision: int) -> Iterator[Record]:
        """Drop and yield the records of a key that a compaction at a revision removes.

        These are the records replaced at or before the revision, and a deletion before the revision. A deletion at
        exactly this revision stays, since a watch may begin at this revision.
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
