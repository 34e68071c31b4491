"""The sorted entries of one collection, in chunks.

A chunk that a reader may have is copied before a change.
"""

from array import array
from bisect import bisect_left
from collections.abc import Hashable, Iterable, Iterator, Sequence
from itertools import chain, islice
from operator import attrgetter
from typing import NamedTuple

from apiext.scheduling.growing_dict import GrowingDict
from apiext.scheduling.loop_budget import LoopBudget
from apiext.storage import limits
from apiext.storage.aged_forms import AgedForm
from apiext.storage.joined_views import JoinedViews
from apiext.storage.keys import relative
from apiext.storage.store import Entry, Viewer

_SPLIT = 2 * limits.SEGMENT
_MERGE = limits.SEGMENT // 4
_KEYS = attrgetter("keys")


def _size(entry: Entry) -> int:
    return entry.size


class Slice(NamedTuple):
    """A page of entries in key order at one revision.

    ``remaining`` is the number of entries after the page, 0 if it is unknown. ``next`` is the key at which the next
    page begins, or "" for the last page. As in continue tokens (RV-005), this key is the last key of the page and NUL,
    relative to the listed prefix (collection or namespace).
    """

    entries: Sequence[Entry]
    revision: int
    remaining: int
    next: str


class Chunk:
    """About limits.SEGMENT entries in key order, and the bytes that segments.py caches for them.

    If ``shared`` is true, a reader may have the chunk, so its entries must not change. Otherwise entries are changed in
    place, since a copy of the chunk costs time for each entry.

    ``size`` is the number of stored bytes, -1 if it is unknown. ``source`` has the bytes of entries that have no bytes
    of their own. A view is the JSON of an entry for one version (see segments.py). ``joined`` is one byte string: the
    views that ``viewer`` makes, joined by commas. ``ends`` are the offsets of the ends of these views. ``block`` is
    (joined, deflate block, crc32). ``base`` is an earlier chunk whose joined views this chunk may reuse, None as soon
    as this chunk has joined views. ``forms`` is form → encoded entries; an example of a form is table rows.
    """

    __slots__ = ("base", "block", "ends", "entries", "forms", "joined", "keys", "shared", "size", "source", "viewer")

    def __init__(self, keys: list[str], entries: list[Entry], base: "Chunk | None" = None, size: int = -1) -> None:
        self.keys = keys
        self.entries = entries
        self.shared = False
        self.size = size
        self.source: JoinedViews | None = None
        self.viewer: Viewer | None = None
        self.joined = b""
        self.ends: array[int] | None = None
        self.block: tuple[bytes, bytes, int] | None = None
        self.base = base
        self.forms: dict[Hashable, AgedForm] = {}

    def reusable(self) -> "Chunk | None":
        """Return the chunk whose joined views a changed copy of this chunk may reuse.

        Return None if there is none.
        """
        return self if self.ends is not None else self.base

    def has_views(self, viewer: Viewer) -> bool:
        """Report whether the joined views of a viewer are cached."""
        return self.viewer is viewer or (self.source is not None and self.source.viewer is viewer)

    def split_bounds(self) -> Iterator[tuple[int, int]]:
        """Yield (start, stop) of the parts of the chunk.

        The entries of a part have at most limits.SEGMENT_BYTES in total, unless it is a single larger entry.
        """
        start = size = 0
        for at, entry in enumerate(self.entries):
            size += entry.size
            if size > limits.SEGMENT_BYTES and at > start:
                yield start, at
                start, size = at, entry.size
        yield start, len(self.entries)

    def stored_size(self) -> int:
        """Return the number of stored bytes of the entries."""
        if self.size < 0:
            self.size = sum(map(_size, self.entries))
        return self.size

    def record_replaced(self, previous: Entry | None, size: int) -> None:
        """Record that an entry of ``size`` bytes replaced ``previous`` (None: a new entry).

        For a removed entry, ``size`` is 0. If entries now use less than half of the joined views that ``previous``
        used, give these entries bytes of their own, which frees the views.
        """
        if previous is None:
            was = 0
        else:
            source = previous.copy_out()
            if source is not None and not source.is_mostly_used:
                for entry in self.entries:
                    entry.copy_out(source)
            was = previous.size
        if self.size >= 0:
            self.size += size - was

    def evict(self) -> None:
        """Evict all cached bytes."""
        self.viewer = self.ends = self.block = self.base = None
        self.joined = b""
        self.forms = {}


class Piece(NamedTuple):
    """The entries of a chunk from ``start`` up to, not including, ``stop``."""

    chunk: Chunk
    start: int
    stop: int


def size_of(pieces: Sequence[Piece]) -> int:
    """Return the number of entries of the pieces."""
    size = 0
    for _, start, stop in pieces:
        size += stop - start
    return size


def batches(pieces: Iterable[Piece]) -> Iterator[tuple[list[str], list[Entry]]]:
    """Yield the keys and the entries of each piece."""
    for chunk, start, stop in pieces:
        yield chunk.keys[start:stop], chunk.entries[start:stop]


def pieces_of(entries: Sequence[Entry]) -> list[Piece]:
    """Copy selected entries into new chunks, and return a piece for each chunk."""
    batches = [list(entries[at : at + limits.SEGMENT]) for at in range(0, len(entries), limits.SEGMENT)]
    return [Piece(Chunk([relative(it.namespace, it.name) for it in batch], batch), 0, len(batch)) for batch in batches]


def _cut(entries: Iterable[tuple[str, Entry]]) -> Iterator[list[tuple[str, Entry]]]:
    """Yield the entries in batches of limits.SEGMENT."""
    items = iter(entries)
    while batch := list(islice(items, limits.SEGMENT)):
        yield batch


class Snapshot:
    """Entries in key order.

    Keys are relative to the collection. Python and etcd sort them in the same order.
    """

    __slots__ = ("_chunks", "_lasts", "index")

    def __init__(self, entries: Iterable[tuple[str, Entry]] = ()) -> None:
        """``entries`` are pairs of key and entry, in key order."""
        self.index = GrowingDict[str, Entry]()
        self._chunks: list[Chunk] = []
        self._lasts: list[str] = []
        for batch in _cut(entries):
            self._append(batch)

    @classmethod
    async def from_entries(cls, entries: Iterable[Entry]) -> "Snapshot":
        """Return a snapshot of entries in key order. Yields to the event loop."""
        found, loop_budget = cls(), LoopBudget()
        for batch in _cut((relative(entry.namespace, entry.name), entry) for entry in entries):
            found._append(batch)
            await loop_budget.pause()
        return found

    def _append(self, batch: list[tuple[str, Entry]]) -> None:
        for key, entry in batch:
            self.index[key] = entry
        self._chunks.append(Chunk([key for key, _ in batch], [entry for _, entry in batch]))
        self._lasts.append(batch[-1][0])

    def __len__(self) -> int:
        return len(self.index)

    def put(self, key: str, entry: Entry) -> Entry | None:
        """Set the entry of a key. Return the previous entry, None for a new key."""
        previous = self.index.get(key)
        self.index[key] = entry
        if not self._chunks:
            self._chunks.append(Chunk([key], [entry]))
            self._lasts.append(key)
            return previous
        number = min(bisect_left(self._lasts, key), len(self._chunks) - 1)
        chunk = self._writable(number)
        keys, entries = chunk.keys, chunk.entries
        at = bisect_left(keys, key)
        chunk.record_replaced(previous, entry.size)
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
        """Remove a key. Return its entry, None if the key does not exist."""
        previous = self.index.pop(key, None)
        if previous is None:
            return None
        number = bisect_left(self._lasts, key)
        chunk = self._writable(number)
        keys, entries = chunk.keys, chunk.entries
        at = bisect_left(keys, key)
        del keys[at], entries[at]
        chunk.record_replaced(previous, 0)
        if not keys:
            del self._chunks[number], self._lasts[number]
        elif len(keys) < _MERGE and len(self._chunks) > 1:
            self._merge(number, keys, entries)
        else:
            self._lasts[number] = keys[-1]
        return previous

    def _writable(self, number: int) -> Chunk:
        """Return a chunk that the caller may change. Copy the chunk first if a reader may have it."""
        chunk = self._chunks[number]
        if chunk.shared:
            chunk = self._chunks[number] = Chunk(chunk.keys.copy(), chunk.entries.copy(), chunk.reusable(), chunk.size)
        return chunk

    def pieces(self, low: str = "", high: str = "", limit: int = 0) -> list[Piece]:
        """Return pieces with the first ``limit`` entries from ``low`` to before ``high``.

        A ``limit`` of 0 means all entries. "" for ``high`` means all keys from ``low`` on. Split chunks with too many
        bytes, and mark the chunks of the pieces as shared.
        """
        found = self._between(low, high, limit)
        heavy = [chunk for chunk, _, _ in found if not chunk.shared and chunk.stored_size() > 2 * limits.SEGMENT_BYTES]
        if heavy:
            for chunk in heavy:
                self._split_chunk(chunk)
            found = self._between(low, high, limit)
        for chunk, _, _ in found:
            chunk.shared = True
        return found

    def _split_chunk(self, chunk: Chunk) -> None:
        """Split a chunk that is too large to join its views without a pause."""
        number = bisect_left(self._lasts, chunk.keys[-1])
        keys, entries, base = chunk.keys, chunk.entries, chunk.base
        parts = [Chunk(keys[start:stop], entries[start:stop], base) for start, stop in chunk.split_bounds()]
        self._chunks[number : number + 1] = parts
        self._lasts[number : number + 1] = [part.keys[-1] for part in parts]

    def _chunks_between(self, low: str, high: str) -> tuple[list[Chunk], int, int]:
        """Return the chunks that may have keys from ``low`` to before ``high``, and two numbers.

        The first number counts the keys before ``low`` in the first chunk. The second number counts the keys from
        ``high`` on in the last chunk.
        """
        first = bisect_left(self._lasts, low) if low else 0
        last = bisect_left(self._lasts, high, first) if high else len(self._chunks)
        found = self._chunks[first : last + 1]
        if not found:
            return found, 0, 0
        before = bisect_left(found[0].keys, low) if low else 0
        keys = found[-1].keys
        return found, before, len(keys) - bisect_left(keys, high) if last < len(self._chunks) else 0

    def _between(self, low: str, high: str, limit: int = 0) -> list[Piece]:
        chunks, before, behind = self._chunks_between(low, high)
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
        """Return the last key from ``low`` up to, not including, ``high``, "" if there is none."""
        number = bisect_left(self._lasts, high) if high else len(self._chunks)
        if number < len(self._chunks):
            keys = self._chunks[number].keys
            at = bisect_left(keys, high)
            if at:
                return keys[at - 1] if keys[at - 1] >= low else ""
        return self._lasts[number - 1] if number and self._lasts[number - 1] >= low else ""

    def entries(self, low: str = "", high: str = "") -> list[Entry]:
        """Return the entries from ``low`` up to, not including, ``high``, in key order."""
        found: list[Entry] = []
        for chunk, start, stop in self._between(low, high):
            found += chunk.entries[start:stop]
        return found

    def count(self, low: str = "", high: str = "") -> int:
        """Return the number of entries from ``low`` up to, not including, ``high``."""
        if not low and not high:
            return len(self.index)
        chunks, before, behind = self._chunks_between(low, high)
        return max(0, sum(map(len, map(_KEYS, chunks))) - before - behind)

    def items(self) -> Iterator[tuple[str, Entry]]:
        """Return pairs of key and entry, in key order."""
        return chain.from_iterable(zip(chunk.keys, chunk.entries, strict=True) for chunk in self._chunks)

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
            self._place(left, other.keys + keys, other.entries + entries, other.reusable())
        else:
            self._place(left, keys + other.keys, entries + other.entries, other.reusable())
