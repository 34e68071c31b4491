"""Which objects of a collection have which value of a label or field: made when a selector asks, kept while it does."""

import asyncio
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from itertools import compress
from time import perf_counter

from apiext import limits
from apiext.storage.store import Entry
from apiext.turn import Turn

Reader = Callable[[Entry], str | None]
"""Entry → its value; None when it has none (a label that is not there)."""


@dataclass(frozen=True, slots=True)
class Dimension:
    """What objects can be told apart by: one label, or one field of one version. Equal keys mean equal readers.

    ``label`` is the label that is read, if it is one.
    """

    key: Hashable
    read: Reader = field(compare=False)
    label: str = field(default="", compare=False)


@dataclass(slots=True)  # not frozen: each list makes some, and freezing costs more than making
class Term:
    """One condition of a selector. ``values`` are all that it accepts, None when they cannot be counted."""

    dimension: Dimension
    accepts: Callable[[str | None], bool]
    values: Set[str] | None = None

    def matches(self, entry: Entry) -> bool:
        """Tell whether an object meets the condition."""
        return self.accepts(self.dimension.read(entry))


class Index:
    """The keys of one collection by their value of one dimension.

    A change only marks its key; marked keys are read when somebody asks next, so that writes pay next to nothing.
    """

    __slots__ = ("_dimension", "_keys", "_values", "idle", "stale", "users")

    def __init__(self, dimension: Dimension, keys: Iterable[str]) -> None:
        self._dimension = dimension
        self.stale = dict.fromkeys(keys)
        self._values: dict[str, str | None] = {}
        self._keys: dict[str | None, set[str]] = {}
        self.users = 0
        self.idle = 0

    def mark(self, key: str) -> None:
        """Take note that the object of a key changed, came or went."""
        self.stale[key] = None

    def settle(self, entries: Mapping[str, Entry], until: float) -> bool:
        """Read marked keys until that time; tell whether none is left. Raises what the reader raises."""
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

    def find(self, term: Term) -> Sequence[Set[str]] | None:
        """Return the keys that meet a condition, as sets that have no key in common and change with the index.

        None when too many values would have to be asked at a stretch.
        """
        keys = self._keys
        if term.values is not None:
            return [keys[value] for value in term.values if value in keys]
        if len(keys) > limits.INDEX_VALUES:
            return None
        return [found for value, found in keys.items() if term.accepts(value)]


class Indexes:
    """The indexes of one collection, at most limits.INDEXES: the one longest not asked for goes first."""

    __slots__ = ("_entries", "_held")

    def __init__(self, entries: Callable[[], Mapping[str, Entry]]) -> None:
        self._entries = entries
        self._held: dict[Hashable, Index] = {}  # by the dimension's key

    def __len__(self) -> int:
        return len(self._held)

    def mark(self, key: str) -> None:
        """Take note that the object of a key changed, came or went."""
        for index in self._held.values():
            index.mark(key)

    def clear(self) -> None:
        """Forget everything: the collection was read anew."""
        self._held.clear()

    def tick(self) -> None:
        """Drop the indexes that nobody asked for since the last limits.INDEX_IDLE ticks."""
        for key, index in list(self._held.items()):
            index.idle += 1
            if index.idle > limits.INDEX_IDLE and not index.users:
                del self._held[key]

    async def narrow(self, terms: Sequence[Term]) -> tuple[Term, Set[str]] | None:
        """Return a condition and the keys that meet it, the fewest of what indexes can tell; None when none can.

        The keys are those of now: use or copy them before awaiting anything.
        """
        held: list[tuple[Term, Index]] = []
        for term in _worth_indexing(terms):
            index = self._of(term.dimension)
            if index is None:
                return None
            held.append((term, index))
        if not self._settled(held) and not await self._settle(held):
            return None
        best: tuple[int, Term, Sequence[Set[str]]] | None = None
        for term, index in held:
            parts = index.find(term)
            size = sum(map(len, parts)) if parts is not None else 0
            if parts is not None and (best is None or size < best[0]):
                best = size, term, parts
        if best is None:
            return None
        _, term, parts = best
        return term, parts[0] if len(parts) == 1 else set().union(*parts)

    async def _settle(self, held: Sequence[tuple[Term, Index]]) -> bool:
        """Read marked keys turn by turn until none is left; tell whether the indexes are still those in use."""
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
        until = perf_counter() + limits.LOOP_BUDGET / 2
        settled = True
        for _, index in held:
            settled = settled and (not index.stale or index.settle(self._entries(), until))
        return settled

    def _of(self, dimension: Dimension) -> Index | None:
        """Return the index of a dimension, made when there is room for it."""
        held = self._held
        index = held.pop(dimension.key, None)
        if index is None:
            if len(held) >= limits.INDEXES:
                unused = next((key for key, other in held.items() if not other.users), None)
                if unused is None:
                    return None
                del held[unused]
            index = Index(dimension, self._entries())
        held[dimension.key] = index  # the last asked for stands last
        index.idle = 0
        return index


def _worth_indexing(terms: Sequence[Term]) -> Sequence[Term]:
    """Return the conditions to look up: those that name their values, else the first."""
    if len(terms) == 1:
        return terms
    exact = [term for term in terms if term.values is not None]
    return exact[: limits.INDEXES_AT_ONCE] or terms[:1]


async def chosen_of(entries: Iterable[Entry], selects: Callable[[Entry], bool]) -> list[Entry]:
    """Return the entries that are selected; the loop gets its turns."""
    turn, found = Turn(), list[Entry]()
    for entry in entries:
        if selects(entry):
            found.append(entry)
        if turn.over:
            await turn.give()
    return found


async def pick(
    batches: Iterable[tuple[Sequence[str], Sequence[Entry]]], keys: Set[str] | None, terms: Sequence[Term], limit: int
) -> list[Entry]:
    """Return the first ``limit`` (0: all) entries whose keys are among those (None: any) and that meet all conditions.

    The batches, keys beside entries, must not change meanwhile: the loop gets its turns. ``keys`` may change then.
    """

    async def turn() -> float:
        nonlocal keys
        if keys is not None and keys.__class__ is not frozenset:
            keys = frozenset(keys)
        await asyncio.sleep(0)
        return perf_counter() + limits.LOOP_BUDGET / 2

    found: list[Entry] = []
    until = perf_counter() + limits.LOOP_BUDGET / 2
    for names, entries in batches:
        chosen = entries if keys is None else list(compress(entries, map(keys.__contains__, names)))
        if terms:
            among, chosen = chosen, []
            for entry in among:
                if all(term.matches(entry) for term in terms):
                    chosen.append(entry)
                    if len(found) + len(chosen) == limit:
                        break
                if perf_counter() > until:
                    until = await turn()
        found += chosen
        if limit and len(found) >= limit:
            return found[:limit]
        if perf_counter() > until:
            until = await turn()
    return found
