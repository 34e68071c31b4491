"""Which objects of a collection have which value of a label or field: made when selectors ask again and again."""

import asyncio
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence, Set
from itertools import compress
from time import perf_counter

from msgspec import Struct

from apiext import limits as server_limits
from apiext.scheduling.loop_budget import LoopBudget
from apiext.storage import limits
from apiext.storage.store import Entry

# Bytes counted for one object in an index.
INDEX_OBJECT = 200

Reader = Callable[[Entry], str | None]
"""Entry → its value; None when it has none (a label that is not there)."""


class Dimension(Struct, frozen=True, eq=False):
    """A property of objects that selectors test: one label, or one field of one version. Equal keys mean equal readers.

    ``label`` is the label that is read, if it is one.
    """

    key: Hashable
    read: Reader
    label: str = ""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Dimension) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


class Term(Struct, frozen=True):
    """One condition of a selector. ``values`` are all that it accepts, None when they cannot be counted.

    ``unwanted`` are all that it does not accept, None when those cannot be counted either.
    """

    dimension: Dimension
    accepts: Callable[[str | None], bool]
    values: Set[str] | None = None
    unwanted: Set[str | None] | None = None

    def matches(self, entry: Entry) -> bool:
        """Report whether an object meets the condition."""
        return self.accepts(self.dimension.read(entry))


class Found:
    """The result of an index: keys that meet a condition, or, if ``left`` objects meet it, those that do not."""

    __slots__ = ("_parts", "outside", "size", "term")

    def __init__(self, term: Term, parts: Sequence[Set[str]], left: int | None = None) -> None:
        self.term = term
        self._parts = parts
        self.outside = left is not None
        self.size = sum(map(len, parts)) if left is None else left

    @property
    def keys(self) -> Set[str]:
        """The keys; with ``outside`` those of the objects that do not meet the condition."""
        return self._parts[0] if len(self._parts) == 1 else set().union(*self._parts)


class Index:
    """The keys of one collection by their value of one dimension.

    A change only marks its key; the next lookup reads marked keys, so that writes cost next to nothing.
    """

    __slots__ = ("_dimension", "_keys", "_values", "idle", "size", "stale", "users")

    def __init__(self, dimension: Dimension, keys: Collection[str]) -> None:
        self._dimension = dimension
        self.size = len(keys) * INDEX_OBJECT
        self.stale = dict.fromkeys(keys)
        self._values: dict[str, str | None] = {}
        self._keys: dict[str | None, set[str]] = {}
        self.users = 0
        self.idle = 0

    def mark(self, key: str) -> None:
        """Mark the key of an object that was created, changed or deleted."""
        self.stale[key] = None

    def settle(self, entries: Mapping[str, Entry], until: float) -> bool:
        """Read marked keys until that time; report whether none is left. Exceptions of the reader are raised."""
        stale, read = self.stale, self._dimension.read
        while stale:
            key, _ = stale.popitem()
            entry = entries.get(key)
            try:
                self._set(key, entry is not None, read(entry) if entry is not None else None)
            except BaseException:
                stale[key] = None
                raise
            if perf_counter() > until:
                return not stale
        return True

    def _set(self, key: str, there: bool, value: str | None) -> None:
        values, keys = self._values, self._keys
        if key in values:
            before = values[key]
            if there and before == value:
                return
            del values[key]
            bucket = keys[before]
            bucket.discard(key)
            if not bucket:
                del keys[before]
        if there:
            values[key] = value
            keys.setdefault(value, set()).add(key)

    def find(self, term: Term) -> Found | None:
        """Return the keys that meet a condition, or those that do not; None when that takes too long at a stretch.

        The sets have no key in common and change with the index.
        """
        keys = self._keys
        if term.values is not None:
            return Found(term, [keys[value] for value in term.values if value in keys])
        if term.unwanted is not None:
            parts = [keys[value] for value in term.unwanted if value in keys]
            return Found(term, parts, len(self._values) - sum(map(len, parts)))
        if len(keys) > limits.INDEX_VALUES:
            return None
        return Found(term, [found for value, found in keys.items() if term.accepts(value)])


class Indexes:
    """The indexes of one collection, each of a dimension that was asked for more than once.

    Those of all collections have at most limits.INDEXES_BYTES. One that does not fit is not made, so that indexes are
    never made and dropped in turns: the objects are looked through instead.
    """

    __slots__ = ("_asked", "_entries", "_held")

    bytes = 0
    """Of the indexes of all collections."""

    def __init__(self, entries: Callable[[], Mapping[str, Entry]]) -> None:
        self._entries = entries
        self._asked: dict[Hashable, None] = {}  # dimensions without an index, the last asked for last
        self._held: dict[Hashable, Index] = {}  # by the dimension's key

    def __len__(self) -> int:
        return len(self._held)

    def mark(self, key: str) -> None:
        """Mark the key of an object that was created, changed or deleted."""
        for index in self._held.values():
            index.mark(key)

    def clear(self) -> None:
        """Forget everything: the collection was read anew."""
        for key in list(self._held):
            self._drop(key)

    def tick(self) -> None:
        """Drop indexes that no selector used in the last limits.INDEX_IDLE ticks; measure the rest."""
        size = len(self._entries()) * INDEX_OBJECT
        for key, index in list(self._held.items()):
            Indexes.bytes += size - index.size
            index.size = size
            index.idle += 1
            if index.idle > limits.INDEX_IDLE and not index.users:
                self._drop(key)

    async def narrow(self, terms: Sequence[Term]) -> Found | None:
        """Return the keys that meet one of the conditions, the fewest of what indexes can tell; None when none can.

        The keys are those of now: use or copy them before awaiting anything.
        """
        asked = [(term, self._of(term.dimension)) for term in _worth_indexing(terms)]
        held = [(term, index) for term, index in asked if index is not None]
        if not self._settled(held) and not await self._settle(held):
            return None
        found = [one for term, index in held if (one := index.find(term)) is not None]
        return min(found, key=lambda one: one.size, default=None)

    async def _settle(self, held: Sequence[tuple[Term, Index]]) -> bool:
        """Read all marked keys, yielding to the event loop; return whether the indexes are still in use."""
        for _, index in held:
            index.users += 1
        try:
            while True:
                await asyncio.sleep(0)
                if any(self._held.get(term.dimension.key) is not index for term, index in held):
                    return False  # the collection was read anew meanwhile
                if self._settled(held):
                    return True
        finally:
            for _, index in held:
                index.users -= 1

    def _settled(self, held: Sequence[tuple[Term, Index]]) -> bool:
        until = perf_counter() + server_limits.LOOP_BUDGET / 2
        settled = True
        for _, index in held:
            settled = settled and (not index.stale or index.settle(self._entries(), until))
        return settled

    def _of(self, dimension: Dimension) -> Index | None:
        """Return the index of a dimension, made if it was asked for before and fits."""
        held, asked, key = self._held, self._asked, dimension.key
        index = held.get(key)
        if index is None:
            entries = self._entries()
            if key not in asked or not self._fits(len(entries) * INDEX_OBJECT):
                asked.pop(key, None)
                asked[key] = None
                if len(asked) > limits.INDEX_ASKED:
                    del asked[next(iter(asked))]
                return None
            del asked[key]
            index = held[key] = Index(dimension, entries)
            Indexes.bytes += index.size
        index.idle = 0
        return index

    def _fits(self, size: int) -> bool:
        """Report whether another index fits into memory, after unused ones are dropped."""
        for key, index in list(self._held.items()):
            if Indexes.bytes + size <= limits.INDEXES_BYTES:
                break
            if index.idle and not index.users:
                self._drop(key)
        return Indexes.bytes + size <= limits.INDEXES_BYTES

    def _drop(self, key: Hashable) -> None:
        Indexes.bytes -= self._held.pop(key).size


def _worth_indexing(terms: Sequence[Term]) -> Sequence[Term]:
    """Return the conditions to look up: those that name their values, else the first."""
    if len(terms) == 1:
        return terms
    exact = [term for term in terms if term.values is not None]
    return exact[: limits.INDEXES_AT_ONCE] or terms[:1]


async def chosen_of(entries: Iterable[Entry], selects: Callable[[Entry], bool]) -> list[Entry]:
    """Return the entries that are selected; the loop gets its turns."""
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
    """Return the first ``limit`` (0: all) entries whose keys are among those (None: any) and that meet all conditions.

    ``outside``: whose keys are not among those. The batches, keys beside entries, must not change meanwhile: the loop
    gets its turns. ``keys`` may change then.
    """

    async def loop_budget() -> float:
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
                    until = await loop_budget()
        found += chosen
        if limit and len(found) >= limit:
            return found[:limit]
        if perf_counter() > until:
            until = await loop_budget()
    return found
