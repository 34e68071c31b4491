"""The cached objects of one resource at a revision, and its unreadable stored values."""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from heapq import nsmallest
from itertools import chain

from apiext.meta.names import GroupResource
from apiext.storage import limits, metrics
from apiext.storage.indexes import Indexes, Term, pick
from apiext.storage.keys import bounds, relative
from apiext.storage.progress import Reached
from apiext.storage.segments import Segments
from apiext.storage.snapshot import Piece, Slice, Snapshot, batches, size_of
from apiext.storage.store import Entry, Fault, Malformed, NotReady, Undecryptable, Viewer
from apiext.storage.values import Broken

# Selectors use indexes if the collection has at least this number of objects.
INDEX_FROM = 250


class CachedState:
    """The objects of one resource at ``revision``. Reads do not wait.

    While ``ready`` is false, lists, and ``get`` of an object that is not cached, raise NotReady.

    ``broken`` is key within the collection → stored value that cannot be read.
    """

    def __init__(self, resource: GroupResource, prefix: str, progress: Reached) -> None:
        self.resource = resource
        self.prefix = prefix
        self.progress = progress
        self.ready = False
        self.broken: dict[str, Broken] = {}
        self.snapshot = Snapshot()
        self.indexes = Indexes(lambda: self.snapshot.index)
        self._path = f"{resource.group}/{resource.resource}" if resource.group else resource.resource
        self._listed = 2  # calls of ``tick`` until the cached bytes of lists are evicted; each list sets it to 2

    @property
    def revision(self) -> int:
        """The revision of the objects."""
        return self.progress.revision

    def get(self, namespace: str, name: str, *, listed: bool = False, stale: bool = False) -> Entry | None:
        """Return the cached object, None if it does not exist; raise Malformed if it cannot be read.

        See RV-020. If ``listed`` is true, raise the error that a list would raise. If ``stale`` is true and the last
        readable state of an unreadable object is cached, return this state instead of the error.
        """
        key = f"{namespace}/{name}" if namespace else name
        entry = self.snapshot.index.get(key)
        if entry is None:
            if not self.ready:
                raise NotReady(f"{self.resource} is not in the cache")
            broken = self.broken.get(key)
            if broken is not None:
                if stale and broken.last is not None:
                    return broken.last
                raise self.faults({key: broken}) if listed else self.fault(key, broken)
        return entry

    def cached(self, namespace: str, name: str) -> Entry | None:
        """Return the cached object.

        Return None if no readable object is cached, although the store may have the object.
        """
        return self.by_key(relative(namespace, name))

    def entries(self, namespace: str | None = None) -> Sequence[Entry]:
        """Return the objects in key order (RV-008); raise Malformed if an object cannot be read."""
        low, high = bounds(namespace)
        self.require_readable(low, high)
        return self.snapshot.entries(low, high)

    def readable(self, namespace: str | None = None) -> list[Entry]:
        """Return the readable objects in key order.

        Only for controllers, since clients get an error for unreadable objects.
        """
        return self.snapshot.entries(*bounds(namespace))

    def count(self, namespace: str | None = None) -> int:
        """Return the number of objects, including unreadable objects."""
        low, high = bounds(namespace)
        return self.snapshot.count(low, high) + sum(low <= key and (not high or key < high) for key in self.broken)

    def page(self, namespace: str | None, start: str, limit: int) -> Slice:
        """Return at most ``limit`` objects, from the key ``start`` of a continue token (RV-005).

        A ``limit`` of 0 means all objects. Raises Malformed if an object of the page cannot be read.
        """
        pieces, remaining, following = self._cut(namespace, start, limit)
        found: list[Entry] = []
        for chunk, first, stop in pieces:
            found += chunk.entries[first:stop]
        return Slice(found, self.revision, remaining, following)

    async def select(self, terms: Sequence[Term], namespace: str | None, start: str = "", limit: int = 0) -> Slice:
        """Return at most ``limit`` objects (0: all) from ``start`` on for which all conditions hold.

        A large collection is searched with indexes. The result may have a newer revision than the cache had at the
        call. The result does not count the remaining objects: its ``remaining`` is 0. Raise Malformed if an object of
        the page cannot be read.
        """
        narrowed = await self.indexes.narrow(terms) if len(self.snapshot) >= INDEX_FROM else None
        low, high = bounds(namespace)
        if not (limit and self.ready):
            self.require_readable(low, high, start)
        revision, entries, unreadable = self.revision, self.snapshot.index, self._broken_between(low + start, high)
        keys, outside = None, False
        if narrowed is not None:
            keys, outside = narrowed.keys, narrowed.outside
            terms = [term for term in terms if term is not narrowed.term]
        end = self.snapshot.last(low + start, high) if limit else ""
        if keys is not None and not outside and len(keys) <= limits.INDEX_SORTED:
            inside = sorted(keys)
            inside = inside[bisect_left(inside, low + start) : bisect_left(inside, high) if high else None]
            found = [entries[key] for key in inside]
            found = await pick(((inside, found),), None, terms, limit) if terms or limit else found
        else:
            pieces = batches(self.snapshot.pieces(low + start, high))
            found = await pick(pieces, keys, terms, limit, outside=outside)
        following = last = ""
        if limit and len(found) == limit:
            last = relative(found[-1].namespace, found[-1].name)
            following = f"{last[len(low) :]}\0" if last < max(end, *unreadable, "") else ""
        if unreadable and (met := {key: it for key, it in unreadable.items() if not last or key < last}):
            # as upstream: an unreadable object after the last object of this page fails only the next page
            raise self.faults(met)
        return Slice(found, revision, 0, following)

    def segments(self, viewer: Viewer, namespace: str | None = None, start: str = "", limit: int = 0) -> Segments:
        """Return the bytes of the page that ``page`` returns."""
        self._listed = 2
        pieces, remaining, following = self._cut(namespace, start, limit)
        return Segments(pieces, viewer, remaining, following)

    def _cut(self, namespace: str | None, start: str, limit: int) -> tuple[list[Piece], int, str]:
        low, high = bounds(namespace)
        if not limit:
            self.require_readable(low, high, start)
        pieces = self.snapshot.pieces(low + start, high, limit)
        if not limit:
            return pieces, 0, ""
        size = size_of(pieces)
        last = f"{pieces[-1][0].keys[pieces[-1][2] - 1]}\0" if size == limit else high
        self.require_readable(low, last, start)
        if size < limit:
            return pieces, 0, ""
        remaining = self.snapshot.count(low + start, high) - size + len(self._broken_between(last, high))
        return pieces, remaining, last[len(low) :] if remaining else ""

    def _broken_between(self, low: str, high: str) -> dict[str, Broken]:
        return {key: it for key, it in self.broken.items() if low <= key and (not high or key < high)}

    def require_readable(self, low: str, high: str, start: str = "") -> None:
        """Raise Malformed if a value from the key ``low + start`` to ``high`` cannot be read.

        Raise NotReady while ``ready`` is false.
        """
        if not self.ready:
            raise NotReady(f"{self.resource} is not in the cache")
        if self.broken and (broken := self._broken_between(low + start, high)):
            raise self.faults(broken)

    def with_last_states(self, namespace: str | None, start: str = "") -> list[Entry] | None:
        """Return the objects in key order, unreadable objects in their last readable state.

        Return None if all objects can be read. Raise Malformed if no readable state of an object is cached.
        """
        low, high = bounds(namespace)
        broken = self._broken_between(low + start, high)
        if not broken:
            return None
        found = {key: it.last for key, it in broken.items() if it.last is not None}
        if len(found) < len(broken):
            raise self.faults({key: it for key, it in broken.items() if it.last is None})
        found |= {relative(it.namespace, it.name): it for it in self.snapshot.entries(low + start, high)}
        return [found[key] for key in sorted(found)]

    def fault(self, key: str, broken: Broken) -> Malformed:
        """Return the error of a read of one object whose value cannot be read."""
        return self._malformed({key: broken}, listed=False)

    def faults(self, broken: Mapping[str, Broken]) -> Malformed:
        """Return the error of a list with unreadable values.

        The error names the first limits.ERRORS_LISTED of them in key order.
        """
        return self._malformed({key: broken[key] for key in nsmallest(limits.ERRORS_LISTED, broken)}, listed=True)

    def _malformed(self, broken: Mapping[str, Broken], *, listed: bool) -> Malformed:
        found = [
            Fault(self.prefix + key, f"/{self._path}/{key}", it.revision, it.reason, it.undecryptable)
            for key, it in broken.items()
        ]
        return (Undecryptable if found[0].undecryptable else Malformed)(found, self.resource, listed=listed)

    def by_key(self, key: str) -> Entry | None:
        """Return the cached entry of a key within the collection, None if there is none."""
        return self.snapshot.index.get(key)

    def lacking(self) -> list[str]:
        """Return the keys of values whose data key no plug-in has decrypted."""
        return [key for key, broken in self.broken.items() if broken.lacking]

    def count_unreadable(self) -> None:
        """Set the metric of unreadable values."""
        metrics.UNREADABLE.slot(self.resource.group, self.resource.resource).value = len(self.broken)

    # -- changed by the collection

    def load(self, snapshot: Snapshot) -> None:
        """Replace all objects, and delete all unreadable values."""
        self.snapshot = snapshot
        self.indexes.clear()
        self.clear_broken()

    def clear_broken(self) -> None:
        """Delete all unreadable values."""
        if self.broken:
            self.broken = {}
            self.count_unreadable()

    def set_broken(self, key: str, broken: Broken) -> None:
        """Replace an object by a value that cannot be read."""
        self.snapshot.remove(key)
        self.broken[key] = broken
        metrics.DECODE_ERRORS.slot(self.resource.group, self.resource.resource).value += not broken.undecryptable
        self.count_unreadable()

    def last_states(self) -> dict[str, Entry]:
        """Return key → object for all objects.

        For an object that cannot be read, the value is its last readable state.
        """
        last = {key: it.last for key, it in self.broken.items() if it.last is not None}
        return dict(chain(self.snapshot.items(), last.items()))

    def tick(self) -> None:
        """Drop unused indexes, and evict the cached bytes of unused lists.

        The caller calls this function every BOOKMARK_EVERY seconds.
        """
        self.indexes.tick()
        self._listed -= 1
        if self._listed == 0:
            for chunk in self.snapshot.chunks():
                chunk.evict()
