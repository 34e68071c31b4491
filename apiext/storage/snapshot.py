"""The sorted state of one collection as chunks: one that readers have never changes, a copy takes its place."""

from array import array
from bisect import bisect_left
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import islice
from operator import attrgetter
from typing import NamedTuple

from apiext.scheduling.loop_budget import LoopBudget
from apiext.storage import limits
from apiext.storage.dated import Formed
from apiext.storage.keys import relative
from apiext.storage.shelf import Shelf
from apiext.storage.store import Entry, Viewer

_SPLIT = 2 * limits.SEGMENT
_MERGE = limits.SEGMENT // 4
_KEYS = attrgetter("keys")


def _size(entry: Entry) -> int:
    return entry.size


class Slice(NamedTuple):
    """A page: entries in key order, the revision they are at, how many follow, and where they begin ("": none do).

    ``next`` is relative to the prefix listed (collection or namespace) and ends in NUL, as tokens carry it (RV-005).
    """

    entries: Sequence[Entry]
    revision: int
    remaining: int
    next: str


class Chunk:
    """About limits.SEGMENT entries in key order, and the bytes that segments.py remembers here.

    ``lent``: readers may hold it, so its entries stay as they are. Until then changes are made in place, since a copy
    touches every entry.

    ``size`` are the stored bytes, -1 if they were not counted. ``shelf`` is where the bytes of the entries lie, if so.
    ``joined`` are the views of ``viewer`` joined by commas, ``ends`` the offset behind each view. ``block`` is
    (joined, deflate block, crc32). ``base`` is the chunk this one came from, as long as its bytes may be of use.
    ``forms`` are the entries in other forms.
    """

    __slots__ = ("base", "block", "ends", "entries", "forms", "joined", "keys", "lent", "shelf", "size", "viewer")

    def __init__(self, keys: list[str], entries: list[Entry], base: "Chunk | None" = None, size: int = -1) -> None:
        self.keys = keys
        self.entries = entries
        self.lent = False
        self.size = size
        self.shelf: Shelf | None = None
        self.viewer: Viewer | None = None
        self.joined = b""
        self.ends: array[int] | None = None
        self.block: tuple[bytes, bytes, int] | None = None
        self.base = base
        self.forms: dict[Hashable, Formed] = {}

    def heir(self) -> "Chunk | None":
        """Return the chunk whose bytes a changed copy of this one may reuse."""
        return self if self.ends is not None else self.base

    def shows(self, viewer: Viewer) -> bool:
        """Report whether the joined views of a viewer are cached."""
        return self.viewer is viewer or (self.shelf is not None and self.shelf.viewer is viewer)

    def shares(self) -> Iterator[tuple[int, int]]:
        """Return the bounds of parts of at most limits.SEGMENT_BYTES, or of one entry."""
        start = size = 0
        for at, entry in enumerate(self.entries):
            size += entry.size
            if size > limits.SEGMENT_BYTES and at > start:
                yield start, at
                start, size = at, entry.size
        yield start, len(self.entries)

    def counted(self) -> int:
        """Return how many stored bytes the entries have."""
        if self.size < 0:
            self.size = sum(map(_size, self.entries))
        return self.size

    def replaced(self, previous: Entry | None, size: int) -> None:
        """Record that an entry was replaced by one of this size; release a shelf of which little is used."""
        if previous is None:
            was = 0
        else:
            shelf = previous.unshelve()
            if shelf is not None and not shelf.is_worth_it:
                for entry in self.entries:
                    entry.unshelve(shelf)
            was = previous.size
        if self.size >= 0:
            self.size += size - was

    def forget(self) -> None:
        """Drop everything that can be made again."""
        self.viewer = self.ends = self.block = self.base = None
        self.joined = b""
        self.forms = {}


class Piece(NamedTuple):
    """The entries ``start`` … ``stop`` of a chunk."""

    chunk: Chunk
    start: int
    stop: int


def size_of(pieces: Sequence[Piece]) -> int:
    """Return how many entries the pieces have."""
    size = 0
    for _, start, stop in pieces:
        size += stop - start
    return size


def batches(pieces: Iterable[Piece]) -> Iterator[tuple[list[str], list[Entry]]]:
    """Yield the keys and the entries of each piece."""
    for chunk, start, stop in pieces:
        yield chunk.keys[start:stop], chunk.entries[start:stop]


def pieces_of(entries: Sequence[Entry]) -> list[Piece]:
    """Return entries that were picked out of a state as pieces of their own."""
    batches = [list(entries[at : at + limits.SEGMENT]) for at in range(0, len(entries), limits.SEGMENT)]
    return [Piece(Chunk([relative(it.namespace, it.name) for it in batch], batch), 0, len(batch)) for batch in batches]


def _cut(entries: Iterable[tuple[str, Entry]]) -> Iterator[list[tuple[str, Entry]]]:
    """Yield limits.SEGMENT entries at a time."""
    items = iter(entries)
    while batch := list(islice(items, limits.SEGMENT)):
        yield batch


class Snapshot:
    """Entries by key, in key order. Keys are those within the collection; text order is etcd's byte order."""

    __slots__ = ("_chunks", "_lasts", "index")

    def __init__(self, entries: Iterable[tuple[str, Entry]] = ()) -> None:
        """Take (key, entry) in key order."""
        self.index: dict[str, Entry] = {}
        self._chunks: list[Chunk] = []
        self._lasts: list[str] = []
        for batch in _cut(entries):
            self._append(batch)

    @classmethod
    async def made(cls, entries: Iterable[Entry]) -> "Snapshot":
        """Return the state of entries in key order, and yield to the event loop between parts of them."""
        found, loop_budget = cls(), LoopBudget()
        for batch in _cut((relative(entry.namespace, entry.name), entry) for entry in entries):
            found._append(batch)
            await loop_budget.pause()
        return found

    def _append(self, batch: list[tuple[str, Entry]]) -> None:
        self.index.update(batch)
        self._chunks.append(Chunk([key for key, _ in batch], [entry for _, entry in batch]))
        self._lasts.append(batch[-1][0])

    def __len__(self) -> int:
        return len(self.index)

    def put(self, key: str, entry: Entry) -> Entry | None:
        """Set the entry of a key; returns the one before."""
        previous = self.index.get(key)
        self.index[key] = entry
        if not self._chunks:
            self._chunks.append(Chunk([key], [entry]))
            self._lasts.append(key)
            return previous
        number = min(bisect_left(self._lasts, key), len(self._chunks) - 1)
        chunk = self._own(number)
        keys, entries = chunk.keys, chunk.entries
        at = bisect_left(keys, key)
        chunk.replaced(previous, entry.size)
        if previous is not None:
            entries[at] = entry
            return previous
        keys.insert(at, key)
        entries.insert(at, entry)
        if len(keys) <= _SPLIT:
            self._lasts[number] = keys[-1]
        else:
            self._place(number, keys, entries, chunk.base)
        return None

    def remove(self, key: str) -> Entry | None:
        """Remove a key; returns its entry."""
        previous = self.index.pop(key, None)
        if previous is None:
            return None
        number = bisect_left(self._lasts, key)
        chunk = self._own(number)
        keys, entries = chunk.keys, chunk.entries
        at = bisect_left(keys, key)
        del keys[at], entries[at]
        chunk.replaced(previous, 0)
        if not keys:
            del self._chunks[number], self._lasts[number]
        elif len(keys) < _MERGE and len(self._chunks) > 1:
            self._merge(number, keys, entries)
        else:
            self._lasts[number] = keys[-1]
        return previous

    def _own(self, number: int) -> Chunk:
        """Return a chunk that may be changed: a copy of one that readers may hold."""
        chunk = self._chunks[number]
        if chunk.lent:
            chunk = self._chunks[number] = Chunk(chunk.keys.copy(), chunk.entries.copy(), chunk.heir(), chunk.size)
        return chunk

    def pieces(self, low: str = "", high: str = "", limit: int = 0) -> list[Piece]:
        """Lend what lies from ``low`` up to, not including, ``high`` ("": no end): the first ``limit`` (0: all)."""
        found = self._between(low, high, limit)
        heavy = [chunk for chunk, _, _ in found if not chunk.lent and chunk.counted() > 2 * limits.SEGMENT_BYTES]
        if heavy:
            for chunk in heavy:
                self._part(chunk)
            found = self._between(low, high, limit)
        for chunk, _, _ in found:
            chunk.lent = True
        return found

    def _part(self, chunk: Chunk) -> None:
        """Make several chunks of one whose bytes would take long to join."""
        number = bisect_left(self._lasts, chunk.keys[-1])
        keys, entries, base = chunk.keys, chunk.entries, chunk.base
        parts = [Chunk(keys[start:stop], entries[start:stop], base) for start, stop in chunk.shares()]
        self._chunks[number : number + 1] = parts
        self._lasts[number : number + 1] = [part.keys[-1] for part in parts]

    def _reach(self, low: str, high: str) -> tuple[list[Chunk], int, int]:
        """Return the chunks from ``low`` up to ``high``, and how many keys of the first and the last are outside."""
        first = bisect_left(self._lasts, low) if low else 0
        last = bisect_left(self._lasts, high, first) if high else len(self._chunks)
        found = self._chunks[first : last + 1]
        if not found:
            return found, 0, 0
        before = bisect_left(found[0].keys, low) if low else 0
        keys = found[-1].keys
        return found, before, len(keys) - bisect_left(keys, high) if last < len(self._chunks) else 0

    def _between(self, low: str, high: str, limit: int = 0) -> list[Piece]:
        chunks, before, behind = self._reach(low, high)
        more = before + limit
        for number, chunk in enumerate(chunks if limit else (), 1):
            more -= len(chunk.keys)
            if more <= 0:
                behind = max(-more, behind if number == len(chunks) else 0)
                del chunks[number:]
                break
        found: list[Piece] = []
        for chunk in chunks:
            stop = len(chunk.keys) - (behind if chunk is chunks[-1] else 0)
            if before < stop:
                found.append(Piece(chunk, before, stop))
            before = 0
        return found

    def last(self, low: str = "", high: str = "") -> str:
        """Return the last key from ``low`` up to ``high``, "" when there is none."""
        number = bisect_left(self._lasts, high) if high else len(self._chunks)
        if number < len(self._chunks):
            keys = self._chunks[number].keys
            at = bisect_left(keys, high)
            if at:
                return keys[at - 1] if keys[at - 1] >= low else ""
        return self._lasts[number - 1] if number and self._lasts[number - 1] >= low else ""

    def entries(self, low: str = "", high: str = "") -> list[Entry]:
        """Return the entries from ``low`` up to ``high`` in key order."""
        found: list[Entry] = []
        for chunk, start, stop in self._between(low, high):
            found += chunk.entries[start:stop]
        return found

    def count(self, low: str = "", high: str = "") -> int:
        """Return how many entries lie from ``low`` up to ``high``."""
        if not low and not high:
            return len(self.index)
        chunks, before, behind = self._reach(low, high)
        return max(0, sum(map(len, map(_KEYS, chunks))) - before - behind)

    def chunks(self) -> Iterator[Chunk]:
        """Return the chunks in key order."""
        return iter(self._chunks)

    def _place(self, number: int, keys: list[str], entries: list[Entry], base: Chunk | None) -> None:
        if len(keys) <= _SPLIT:
            self._chunks[number] = Chunk(keys, entries, base)
            self._lasts[number] = keys[-1]
            return
        half = len(keys) // 2
        halves = [Chunk(keys[:half], entries[:half], base), Chunk(keys[half:], entries[half:], base)]
        self._chunks[number : number + 1] = halves
        self._lasts[number : number + 1] = [chunk.keys[-1] for chunk in halves]

    def _merge(self, number: int, keys: list[str], entries: list[Entry]) -> None:
        left = number - 1 if number else 0
        other = self._chunks[number - 1 if number else 1]
        del self._chunks[left + 1], self._lasts[left + 1]
        if number:
            self._place(left, other.keys + keys, other.entries + entries, other.heir())
        else:
            self._place(left, keys + other.keys, entries + other.entries, other.heir())
