"""Indexes of collections by the values of labels and fields, for often used selectors."""

import asyncio
from collections.abc import Callable, Collection, Hashable, Iterable, Sequence, Set
from itertools import compress
from time import perf_counter

from msgspec import Struct

from apiext import limits as server_limits
from apiext.scheduling.growing_dict import GrowingDict
from apiext.scheduling.loop_budget import LoopBudget
from apiext.storage import limits
from apiext.storage.store import Entry

# Estimated bytes of one object in an index.
INDEX_OBJECT = 200

Reader = Callable[[Entry], str | None]
"""(entry) → its value of a dimension; None if it has no value, for example if the object lacks the label."""


class Dimension(Struct, frozen=True, eq=False):
    """A property of objects that selectors test: one label, or one field of one version.

    Dimensions with equal keys read the same property. ``label`` is the name of the label, "" for a field.
    """

    key: Hashable
    read: Reader
    label: str = ""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Dimension) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


class Term(Struct, frozen=True):
    """One condition of a selector.

    ``values`` are all accepted values, None if they cannot be listed. ``unwanted`` are all values that are not
    accepted, None if they cannot be listed.
    """

    dimension: Dimension
    accepts: Callable[[str | None], bool]
    values: Set[str] | None = None
    unwanted: Set[str | None] | None = None

    def matches(self, entry: Entry) -> bool:
        """Report whether the condition holds for an object."""
        return self.accepts(self.dimension.read(entry))


class Matches:
    """The result of an index: the keys of objects for which a condition holds.

    If ``outside`` is true, ``keys`` are the keys of the objects for which the condition fails. ``size`` is the number
    of objects for which the condition holds.
    """

    __slots__ = ("_parts", "outside", "size", "term")

    def __init__(self, term: Term, parts: Sequence[Set[str]], matching: int | None = None) -> None:
        self.term = term
        self._parts = parts
        self.outside = matching is not None
        self.size = sum(map(len, parts)) if matching is None else matching

    @property
    def keys(self) -> Set[str]:
        """The keys of objects for which the condition holds, or fails if ``outside`` is true."""
        return self._parts[0] if len(self._parts) == 1 else set().union(*self._parts)


class Index:
    """The index of one collection for one dimension: value → keys of objects with this value.

    A change of an object only marks its key, so that a write stays cheap. The next lookup reads the objects of marked
    keys.
    """

    __slots__ = ("_dimension", "_keys", "_values", "idle", "marked", "size", "users")

    def __init__(self, dimension: Dimension, keys: Collection[str]) -> None:
        self._dimension = dimension
        self.size = len(keys) * INDEX_OBJECT
        self.marked = dict.fromkeys(keys)
        self._values: dict[str, str | None] = {}
        self._keys: dict[str | None, set[str]] = {}
        self.users = 0
        self.idle = 0

    def mark(self, key: str) -> None:
        """Mark the key of an object that was created, changed or deleted."""
        self.marked[key] = None

    def read_marked(self, entries: GrowingDict[str, Entry], until: float) -> bool:
        """Read the objects of marked keys until the time ``until``, and report whether all are read.

        Raises the exceptions of the reader.
        """
        marked, read = self.marked, self._dimension.read
        while marked:
            key, _ = marked.popitem()
            entry = entries.get(key)
            try:
                self._set(key, entry is not None, read(entry) if entry is not None else None)
            except BaseException:
                marked[key] = None
                raise
            if perf_counter() > until:
                return not marked
        return True

    def _set(self, key: str, exists: bool, value: str | None) -> None:
        values, keys = self._values, self._keys
        if key in values:
            before = values[key]
            if exists and before == value:
                return
            del values[key]
            bucket = keys[before]
            bucket.discard(key)
            if not bucket:
                del keys[before]
        if exists:
            values[key] = value
            keys.setdefault(value, set()).add(key)

    def find(self, term: Term) -> Matches | None:
        """Return the matches of a condition.

        Return None if the condition lists neither values nor unwanted values, and the index has more than
        limits.INDEX_VALUES values. The keys in the result change with the index.
        """
        keys = self._keys
        if term.values is not None:
            return Matches(term, [keys[value] for value in term.values if value in keys])
        if term.unwanted is not None:
            parts = [keys[value] for value in term.unwanted if value in keys]
            return Matches(term, parts, len(self._values) - sum(map(len, parts)))
        if len(keys) > limits.INDEX_VALUES:
            return None
        return Matches(term, [found for value, found in keys.items() if term.accepts(value)])


class Indexes:
    """The indexes of one collection.

    The second selector that tests a dimension builds the index of the dimension. An index is not built if the indexes
    of all collections would then exceed limits.INDEXES_BYTES, so that indexes do not evict each other in turns. Without
    an index, each object is tested.
    """

    __slots__ = ("_candidates", "_entries", "_indexes")

    bytes = 0
    """The estimated bytes of the indexes of all collections."""

    def __init__(self, entries: Callable[[], GrowingDict[str, Entry]]) -> None:
        self._entries = entries
        # keys of dimensions that a selector tested and that have no index, newest last
        self._candidates: dict[Hashable, None] = {}
        self._indexes: dict[Hashable, Index] = {}  # key of the dimension → index

    def __len__(self) -> int:
        return len(self._indexes)

    def mark(self, key: str) -> None:
        """Mark the key of an object that was created, changed or deleted."""
        for index in self._indexes.values():
            index.mark(key)

    def clear(self) -> None:
        """Drop all indexes, since the collection was read again or dropped."""
        for key in list(self._indexes):
            self._drop(key)

    def tick(self) -> None:
        """Drop indexes that were not used in the last limits.INDEX_IDLE ticks.

        Update the sizes of the remaining indexes.
        """
        size = len(self._entries()) * INDEX_OBJECT
        for key, index in list(self._indexes.items()):
            Indexes.bytes += size - index.size
            index.size = size
            index.idle += 1
            if index.idle > limits.INDEX_IDLE and not index.users:
                self._drop(key)

    async def narrow(self, terms: Sequence[Term]) -> Matches | None:
        """Return the matches of one condition; None if no index can be used.

        Of the conditions with an index, the one with the fewest matching objects is chosen. The keys change with the
        index: use or copy them before the next await.
        """
        candidates = [(term, self._index_of(term.dimension)) for term in _worth_indexing(terms)]
        indexes = [(term, index) for term, index in candidates if index is not None]
        if not self._try_read_marked(indexes) and not await self._read_marked(indexes):
            return None
        found = [one for term, index in indexes if (one := index.find(term)) is not None]
        return min(found, key=lambda one: one.size, default=None)

    async def _read_marked(self, indexes: Sequence[tuple[Term, Index]]) -> bool:
        """Read the objects of all marked keys; yield to the event loop.

        Return False if one of the indexes was dropped meanwhile.
        """
        for _, index in indexes:
            index.users += 1
        try:
            while True:
                await asyncio.sleep(0)
                if any(self._indexes.get(term.dimension.key) is not index for term, index in indexes):
                    return False  # the collection was read again or dropped meanwhile
                if self._try_read_marked(indexes):
                    return True
        finally:
            for _, index in indexes:
                index.users -= 1

    def _try_read_marked(self, indexes: Sequence[tuple[Term, Index]]) -> bool:
        until = perf_counter() + server_limits.LOOP_BUDGET / 2
        settled = True
        for _, index in indexes:
            settled = settled and (not index.marked or index.read_marked(self._entries(), until))
        return settled

    def _index_of(self, dimension: Dimension) -> Index | None:
        """Return the index of a dimension, or None.

        A missing index is built if an earlier selector tested the dimension and the index fits.
        """
        indexes, candidates, key = self._indexes, self._candidates, dimension.key
        index = indexes.get(key)
        if index is None:
            entries = self._entries()
            if key not in candidates or not self._fits(len(entries) * INDEX_OBJECT):
                candidates.pop(key, None)
                candidates[key] = None
                if len(candidates) > limits.INDEX_CANDIDATES:
                    del candidates[next(iter(candidates))]
                return None
            del candidates[key]
            index = indexes[key] = Index(dimension, entries)
            Indexes.bytes += index.size
        index.idle = 0
        return index

    def _fits(self, size: int) -> bool:
        """Report whether another index of this size fits into limits.INDEXES_BYTES.

        To make room, drop indexes of this collection that were not used since the last ``tick``.
        """
        for key, index in list(self._indexes.items()):
            if Indexes.bytes + size <= limits.INDEXES_BYTES:
                break
            if index.idle and not index.users:
                self._drop(key)
        return Indexes.bytes + size <= limits.INDEXES_BYTES

    def _drop(self, key: Hashable) -> None:
        Indexes.bytes -= self._indexes.pop(key).size


def _worth_indexing(terms: Sequence[Term]) -> Sequence[Term]:
    """Return the conditions to look up: the first few with listed values, else the first one."""
    if len(terms) == 1:
        return terms
    exact = [term for term in terms if term.values is not None]
    return exact[: limits.INDEXES_AT_ONCE] or terms[:1]


async def select_entries(entries: Iterable[Entry], selects: Callable[[Entry], bool]) -> list[Entry]:
    """Return the selected entries. Yields to the event loop."""
    loop_budget, found = LoopBudget(), list[Entry]()
    for entry in entries:
        if selects(entry):
            found.append(entry)
        if loop_budget.exhausted:
            await loop_budget.pause()
    return found


async def pick(
    batches: Iterable[tuple[Sequence[str], Sequence[Entry]]],
    keys: Set[str] | None,
    terms: Sequence[Term],
    limit: int,
    *,
    outside: bool = False,
) -> list[Entry]:
    """Return the first ``limit`` entries with a key in ``keys`` that meet all ``terms``.

    If ``limit`` is 0, return all entries. If ``keys`` is None, an entry may have any key. If ``outside`` is true,
    return entries whose key is not in ``keys``. A batch is (keys, entries). This function yields to the event loop.
    Meanwhile the batches must not change, but ``keys`` may.
    """

    async def pause() -> float:
        nonlocal keys
        if keys is not None and keys.__class__ is not frozenset:
            keys = frozenset(keys)
        await asyncio.sleep(0)
        return perf_counter() + server_limits.LOOP_BUDGET / 2

    found: list[Entry] = []
    until = perf_counter() + server_limits.LOOP_BUDGET / 2
    for names, entries in batches:
        if keys is None:
            chosen = entries
        elif outside:
            chosen = [entry for name, entry in zip(names, entries, strict=True) if name not in keys]
        else:
            chosen = list(compress(entries, map(keys.__contains__, names)))
        if terms:
            among, chosen = chosen, []
            for entry in among:
                if all(term.matches(entry) for term in terms):
                    chosen.append(entry)
                    if len(found) + len(chosen) == limit:
                        break
                if perf_counter() > until:
                    until = await pause()
        found += chosen
        if limit and len(found) >= limit:
            return found[:limit]
        if perf_counter() > until:
            until = await pause()
    return found
