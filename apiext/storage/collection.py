"""The cached objects of one resource: their state, what changed lately, and who wants to know."""

import asyncio
import logging
from bisect import bisect_left
from collections.abc import Callable, Container, Mapping, Sequence
from heapq import nsmallest
from sys import intern

from msgspec.structs import replace

from apiext.meta.names import GroupResource
from apiext.storage import limits, metrics
from apiext.storage.fanout import Fanout, Watcher
from apiext.storage.history import Change, History
from apiext.storage.indexes import Indexes, Term, pick
from apiext.storage.keys import bounds, relative, split_relative
from apiext.storage.metrics import DISPATCH, LEFT_BEHIND
from apiext.storage.progress import Reached
from apiext.storage.pump import Pump
from apiext.storage.sealing import (
    ENCRYPTED,
    NOT_ENCRYPTED,
    PLAIN,
    Lacking,
    Opened,
    SealedEntry,
    Sealing,
    Secret,
    Unsealable,
    opened,
)
from apiext.storage.segments import Segments
from apiext.storage.snapshot import Piece, Slice, Snapshot, batches, pieces_of, size_of
from apiext.storage.store import Entry, Fault, FutureRevision, Malformed, NotReady, NotSealed, Sealed, Viewer
from apiext.storage.values import Broken, differences, entry_of, json_object, secret_of
from apiext.storage.waiting import EarlyChange, Waiting
from apiext.storage.watching import Sink, WatchGroup

# Objects of a collection from which a selector builds an index.
INDEX_FROM = 250
# Seconds between bookmarks of a watch.
BOOKMARK_EVERY = 60.0

log = logging.getLogger(__name__)

Decoder = Callable[[bytes], bytes]
"""A stored value → its JSON; raises ValueError for a value that is none of the kind's encodings."""


class Collection:
    """The state of one resource at the cache's revision, once ``ready``; reading never waits, before it is NotReady."""

    def __init__(
        self,
        resource: GroupResource,
        namespaced: bool,
        prefix: str,
        decoder: Decoder | None,
        progress: Reached,
        pump: Pump,
    ) -> None:
        self.resource = resource
        self.namespaced = namespaced
        self.prefix = prefix
        self._path = f"{resource.group}/{resource.resource}" if resource.group else resource.resource
        self.ready = False
        self.taking = False  # whether changes are shown as they come
        self.dropped = False
        self.history = History(0)
        names = (resource.group, resource.resource)
        delays, left_behind = DISPATCH.slot(*names, "total"), LEFT_BEHIND.slot(*names)
        self.fanout = Fanout(self.history, progress, pump, delays, left_behind)
        self.decode: Decoder = decoder or json_object
        self.sealing: Sealing | None = None
        self.waiting: Waiting | None = None
        self.sealed: dict[str, tuple[bytes, Secret]] = {}
        self.ahead: dict[int, Opened] = {}
        self.ttl = 0  # seconds that an object lives after its last write, 0 for ever
        self.broken: dict[str, Broken] = {}
        self.pending: dict[str, bytes] = {}
        self.early: list[EarlyChange] = []
        self.backfilling = asyncio.Lock()
        self._filled = asyncio.Event()
        self._progress: Reached = progress
        self._state = Snapshot()
        self._indexes = Indexes(lambda: self._state.index)
        self._floor = 0
        self._untold = 0  # the revision of the last change that nobody was told of, since it cannot be read
        self.outdated: list[Callable[[bytes], None]] = []  # told of stored bytes that are no object any more
        self._listeners: list[Callable[[Change], None]] = []
        self._listed = 2

    # -- reading

    @property
    def revision(self) -> int:
        """The revision that the state is at."""
        return self._progress.revision

    async def wait_ready(self) -> None:
        """Wait until the collection is filled; returns also when it was dropped meanwhile."""
        await self._filled.wait()

    def get(self, namespace: str, name: str, *, listed: bool = False, stale: bool = False) -> Entry | None:
        """Return the object as cached; raises Malformed for one that cannot be read (RV-020).

        ``listed``: the error is that of a list. ``stale``: of such an object the last readable state is returned, if
        this server has seen one.
        """
        key = f"{namespace}/{name}" if namespace else name
        entry = self._state.index.get(key)
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
        """Return the cached object, None if the caller must read the store: nothing is cached that can be read."""
        return self.known(relative(namespace, name))

    def entries(self, namespace: str | None = None) -> Sequence[Entry]:
        """Return the objects in key order (RV-008); raises Malformed if one cannot be read."""
        low, high = bounds(namespace)
        self._readable(low, high)
        return self._state.entries(low, high)

    def readable(self, namespace: str | None = None) -> list[Entry]:
        """Return the objects in key order without those that cannot be read: for controllers, never for clients."""
        return self._state.entries(*bounds(namespace))

    def count(self, namespace: str | None = None) -> int:
        """Return how many objects there are, the unreadable among them."""
        low, high = bounds(namespace)
        return self._state.count(low, high) + sum(low <= key and (not high or key < high) for key in self.broken)

    def page(self, namespace: str | None, start: str, limit: int) -> Slice:
        """Return at most ``limit`` (0: all) objects from ``start`` on, as it stands in a token (RV-005).

        Raises Malformed for a page that begins, contains or ends with an object that cannot be read.
        """
        pieces, remaining, following = self._cut(namespace, start, limit)
        found: list[Entry] = []
        for chunk, first, stop in pieces:
            found += chunk.entries[first:stop]
        return Slice(found, self.revision, remaining, following)

    async def select(self, terms: Sequence[Term], namespace: str | None, start: str = "", limit: int = 0) -> Slice:
        """Return at most ``limit`` (0: all) objects that meet all conditions, from ``start`` on, by index if large.

        They are those of the slice's revision, which may be later than the call; ``remaining`` is not counted.
        """
        narrowed = await self._indexes.narrow(terms) if len(self._state) >= INDEX_FROM else None
        low, high = bounds(namespace)
        if not (limit and self.ready):
            self._readable(low, high, start)
        revision, entries, unreadable = self.revision, self._state.index, self._broken_between(low + start, high)
        keys, outside = None, False
        if narrowed is not None:
            keys, outside = narrowed.keys, narrowed.outside
            terms = [term for term in terms if term is not narrowed.term]
        end = self._state.last(low + start, high) if limit else ""
        if keys is not None and not outside and len(keys) <= limits.INDEX_SORTED:
            inside = sorted(keys)
            inside = inside[bisect_left(inside, low + start) : bisect_left(inside, high) if high else None]
            found = [entries[key] for key in inside]
            found = await pick(((inside, found),), None, terms, limit) if terms or limit else found
        else:
            pieces = batches(self._state.pieces(low + start, high))
            found = await pick(pieces, keys, terms, limit, outside=outside)
        following = last = ""
        if limit and len(found) == limit:
            last = relative(found[-1].namespace, found[-1].name)
            following = f"{last[len(low) :]}\0" if last < max(end, *unreadable, "") else ""
        if unreadable and (met := {key: it for key, it in unreadable.items() if not last or key < last}):
            raise self.faults(met)  # upstream: those behind the last object of a page are for the next one
        return Slice(found, revision, 0, following)

    def segments(self, viewer: Viewer, namespace: str | None = None, start: str = "", limit: int = 0) -> Segments:
        """Return the bytes of the same page as ``page``; ``remaining`` and ``next`` are those of the page."""
        self._listed = 2
        pieces, remaining, following = self._cut(namespace, start, limit)
        return Segments(pieces, viewer, remaining, following)

    def _cut(self, namespace: str | None, start: str, limit: int) -> tuple[list[Piece], int, str]:
        low, high = bounds(namespace)
        if not limit:
            self._readable(low, high, start)
        pieces = self._state.pieces(low + start, high, limit)
        if not limit:
            return pieces, 0, ""
        size = size_of(pieces)
        last = f"{pieces[-1][0].keys[pieces[-1][2] - 1]}\0" if size == limit else high
        self._readable(low, last, start)
        if size < limit:
            return pieces, 0, ""
        remaining = self._state.count(low + start, high) - size + len(self._broken_between(last, high))
        return pieces, remaining, last[len(low) :] if remaining else ""

    def _broken_between(self, low: str, high: str) -> dict[str, Broken]:
        return {key: it for key, it in self.broken.items() if low <= key and (not high or key < high)}

    def _readable(self, low: str, high: str, start: str = "") -> None:
        if not self.ready:
            raise NotReady(f"{self.resource} is not in the cache")
        if self.broken and (broken := self._broken_between(low + start, high)):
            raise self.faults(broken)

    def with_last_states(self, namespace: str | None, start: str = "") -> list[Entry] | None:
        """Return the objects in key order, with the last readable state of those that cannot be read.

        None if all can be read. Raises Malformed if this server has never seen a readable state of one.
        """
        low, high = bounds(namespace)
        broken = self._broken_between(low + start, high)
        if not broken:
            return None
        found = {key: it.last for key, it in broken.items() if it.last is not None}
        if len(found) < len(broken):
            raise self.faults({key: it for key, it in broken.items() if it.last is None})
        found |= {relative(it.namespace, it.name): it for it in self._state.entries(low + start, high)}
        return [found[key] for key in sorted(found)]

    def unchanged_since(self, revision: int) -> bool:
        """Tell whether the state is also that of the earlier revision."""
        since = max(self._floor, self._untold)
        return self.ready and since <= revision <= self.revision and self.history.unchanged_since(revision)

    # -- following

    def subscribe(self, listener: Callable[[Change], None]) -> Callable[[], None]:
        """Call the listener with every change, in order; returns what ends it.

        A fill and a re-fill bring their differences as changes, a first fill one ADDED per object.
        """
        self._listeners.append(listener)

        def end() -> None:
            if listener in self._listeners:
                self._listeners.remove(listener)

        return end

    def follow(self, listener: Callable[[Change], None]) -> Callable[[], None]:
        """Subscribe, after one ADDED for each object that is cached already; unreadable objects are left out.

        As with any change, a fault of the listener is logged and ends nothing.
        """
        if self.ready:
            for entry in self.readable():
                self._call(listener, Change("ADDED", entry, None, entry.revision))
        return self.subscribe(listener)

    def watch(
        self,
        group: WatchGroup,
        start: int | None,
        sink: Sink,
        *,
        initial: bool = False,
        bookmarks: bool = False,
        announce: bool | None = None,
        selected: Slice | None = None,
    ) -> Watcher:
        """Open a watch; its first bytes are written in a later turn of the loop.

        ``start``: events after that revision, Compacted if they are not in memory (see CachedStore.watch), and
        FutureRevision if it has not come yet; None: from now. ``initial``: the current objects as ADDED first,
        ``start`` is ignored. ``announce``: a bookmark that marks the end of those, as ``bookmarks`` when None
        (RV-009, RV-012, RV-013). ``selected``: the initial ones if ``select`` found them already; Compacted, too.
        """
        # a watcher that begins with the state must see all of it
        self._readable(*bounds(group.namespace) if initial and selected is None else ("\0", "\0"))
        history = self.history
        if start is not None and not initial and start > self.revision:
            raise FutureRevision(start, self.revision)
        if selected is not None:
            cursor = history.position(selected.revision)
        else:
            cursor = history.end if initial or start is None else history.position(start)
        its_group, watcher = self.fanout.attach(group, sink, bookmarks, cursor)
        if initial:
            marked = bookmarks if announce is None else announce
            if selected is None:
                watcher.begin(self._state.pieces(*bounds(group.namespace)), self.revision if marked else 0)
            else:
                watcher.begin(pieces_of(selected.entries), selected.revision if marked else 0, chosen=True)
        its_group.enter(watcher)
        return watcher

    def end_watches(self, versions: Container[str] | None = None) -> None:
        """End all watches, or those of some versions."""
        self.fanout.end(b"", versions=versions)

    async def watches_served(self, patience: float) -> None:
        """Wait until every watcher that can be written to has all changes; at most ``patience`` seconds."""
        loop = asyncio.get_running_loop()
        late = loop.time() + patience
        while self.fanout.busy and loop.time() < late:  # noqa: ASYNC110 - the pump, too, works in turns of the loop
            await asyncio.sleep(0)

    @property
    def watchers(self) -> int:
        """How many watches are open."""
        return self.fanout.watchers

    # -- fed by the store

    def entry_of(self, key: str, revision: int, value: bytes) -> Entry:
        """Return the entry of a stored value; the cached one if it is the same. Raises ValueError."""
        if self.sealing is not None:
            return self._opened(self.sealing, key, revision, value)
        cached = self._state.index.get(key)
        if cached is not None and cached.revision == revision and cached.raw == value:
            return cached
        return entry_of(key, revision, value if self.pending.get(key) == value else self.decode(value))

    def keep(self, sealing: Sealing | None, waiting: Waiting | None, progress: Reached) -> None:
        """Keep values in a way from now on; with one that waits for plug-ins the collection may be behind the store."""
        self.sealing = sealing
        self.ahead.clear()  # what another way has opened counts no more
        if sealing is not None and sealing.waits:
            self.waiting = self.waiting or waiting
        elif self.waiting is not None:
            self.waiting.release()
            self.waiting = None
        self._progress = self.fanout.progress = self.waiting or progress

    def reseal(self, sealing: Sealing | None, waiting: Waiting | None, progress: Reached) -> bool:
        """Keep values in another way from now on; tell whether they must be read again, as not all can be as before."""
        before, held = self.sealing, self.ready and not self.taking
        self.keep(sealing, waiting, progress)
        if not self.ready or (before is None and sealing is None):
            return False
        known = sealing.secrets if sealing is not None else frozenset((PLAIN,))
        return held or bool(self.broken) or any(secret_of(entry) not in known for entry in self._state.index.values())

    async def seal(self, sealing: Sealing, key: str, raw: bytes) -> bytes:
        """Return what is stored of an object; until ``sealed`` forgets it, it need not be opened again."""
        inline = len(raw) <= limits.ENCRYPT_INLINE
        place, secret = self.prefix + key, sealing.secret
        try:
            stored = sealing.seal(place, raw) if inline else await asyncio.to_thread(sealing.seal, place, raw)
        except Unsealable as fault:
            raise NotSealed(str(fault)) from fault
        self.sealed[key] = stored, secret
        return stored

    async def entry_opened(self, key: str, revision: int, value: bytes) -> Entry:
        """Return the entry of a stored value, which may be large, or lack its key. Raises ValueError."""
        await self.prepare([(key, value)])
        return self.entry_of(key, revision, value)

    async def prepare(self, values: Sequence[tuple[str, bytes]]) -> None:
        """Have the keys of values, if they can be had, and open values in a thread if they are large together."""
        if self.waiting is not None and self.sealing is not None:
            await self.sealing.fetch([value for _, value in values])
        await self.open_ahead(values)

    async def open_ahead(self, values: Sequence[tuple[str, bytes]]) -> None:
        """Open values in a thread if they are large together, so that reading them next takes no time."""
        sealing = self.sealing
        if sealing is None or sum(len(value) for _, value in values) <= limits.ENCRYPT_INLINE:
            return
        others = [it for it in values if it[0] not in self.sealed or self.sealed[it[0]][0] != it[1]]
        found = await asyncio.to_thread(opened, sealing, self.prefix, others, self.decode)
        self.ahead |= {id(one.value): one for one in found if sealing is self.sealing}

    def close_again(self, value: bytes | None) -> None:
        """Forget what was opened ahead: nobody will read it."""
        if self.ahead:
            self.ahead.pop(id(value), None)

    def _opened(self, sealing: Sealing, key: str, revision: int, value: bytes) -> Entry:
        ours, raw = self.sealed.get(key), self.pending.get(key)
        ahead = self.ahead.pop(id(value), None) if self.ahead else None
        if ours is not None and raw is not None and ours[0] == value:
            secret = ours[1]
        elif ahead is not None and ahead.by is sealing:
            if ahead.fault is not None:
                raise ahead.fault
            raw, secret = ahead.raw, ahead.secret
        else:
            plain, secret = sealing.open(self.prefix + key, value)
            raw = plain if raw == plain else self.decode(plain)
        cached = self._state.index.get(key)
        if cached is not None and cached.revision == revision and cached.raw == raw:
            return cached
        namespace, _, name = key.rpartition("/")
        return SealedEntry((intern(namespace), name), revision, raw, secret)

    def stale(self, entry: Entry) -> bool:
        """Tell whether an entry was sealed by another key than what is written now: a write must not be left out."""
        return self.sealing is not None and secret_of(entry) != self.sealing.secret

    def broken_value(self, revision: int, value: bytes, error: ValueError, last: Entry | None = None) -> Broken:
        """Return what is known of a value that ``entry_of`` cannot read."""
        if isinstance(error, Unsealable):
            return Broken(revision, str(error), last, sealed=True, lacking=isinstance(error, Lacking))
        if self.sealing is None and value.startswith(ENCRYPTED):
            return Broken(revision, NOT_ENCRYPTED, last, sealed=True)
        return Broken(revision, str(error), last)

    def fault(self, key: str, broken: Broken) -> Malformed:
        """Return the error of reading such a value alone."""
        return self._malformed({key: broken}, listed=False)

    def faults(self, broken: Mapping[str, Broken]) -> Malformed:
        """Return the error of a list with such values; it names the first limits.ERRORS_LISTED in key order."""
        return self._malformed({key: broken[key] for key in nsmallest(limits.ERRORS_LISTED, broken)}, listed=True)

    def _malformed(self, broken: Mapping[str, Broken], *, listed: bool) -> Malformed:
        found = [
            Fault(self.prefix + key, f"/{self._path}/{key}", it.revision, it.reason, it.sealed)
            for key, it in broken.items()
        ]
        return (Sealed if found[0].sealed else Malformed)(found, self.resource, listed=listed)

    def known(self, key: str) -> Entry | None:
        """Return the cached entry of a key within the collection."""
        return self._state.index.get(key)

    def apply(self, key: str, revision: int, value: bytes | None) -> None:
        """Take a change from the root watch; value None is a deletion."""
        if self.taking:
            self.take(key, revision, value, waited=False)
        else:
            self.early.append((key, revision, value))

    def take(self, key: str, revision: int, value: bytes | None, *, waited: bool = True) -> None:
        """Show a change, one that has waited for its key or not."""
        if revision > self._floor and (place := split_relative(key, self.namespaced)):
            self._apply(key, place, revision, value, waited=waited)
        else:
            self.close_again(value)

    def forget_early(self) -> None:
        """Forget the changes that were kept: a fill begins, which brings them, or there is nobody to show them."""
        early, self.early = self.early, []
        for _, _, value in early:
            self.close_again(value)

    def _apply(self, key: str, place: tuple[str, str], revision: int, value: bytes | None, *, waited: bool) -> None:
        state, broken = self._state, self.broken.get(key)
        previous = broken.last if broken else state.index.get(key)
        self._indexes.mark(key)
        if value is None:
            if self.broken.pop(key, None) is not None:
                self._count_unreadable()
            state.remove(key)
            if previous is not None:
                self._publish(Change("DELETED", previous.with_revision(revision), previous, revision))
            else:
                self._untold = revision
            return
        ours = self.pending.get(key)
        try:
            if self.sealing is None:
                raw = ours if ours is not None and ours == value else self.decode(value)
                entry = Entry(intern(place[0]), place[1], revision, raw)
            else:
                entry = self._opened(self.sealing, key, revision, value)
        except ValueError as error:
            if isinstance(error, Lacking) and not error.tried and not waited and self.waiting is not None:
                self.waiting.hold((key, revision, value))
            else:
                self._untold = revision
                self._break(key, self.broken_value(revision, value, error, previous))
            return
        if broken is not None:
            del self.broken[key]
            self._count_unreadable()
        state.put(key, entry)
        self._publish(Change("ADDED" if previous is None else "MODIFIED", entry, previous, revision))

    def _break(self, key: str, broken: Broken) -> None:
        self._state.remove(key)
        self.broken[key] = broken
        metrics.DECODE_ERRORS.slot(self.resource.group, self.resource.resource).value += not broken.sealed
        self._count_unreadable()
        if broken.lacking and self.waiting is not None:
            self.waiting.lack(key, broken.reason)
        else:
            log.warning("%s at revision %d cannot be read: %s", self.prefix + key, broken.revision, broken.reason)

    def _count_unreadable(self) -> None:
        metrics.UNREADABLE.slot(self.resource.group, self.resource.resource).value = len(self.broken)

    def lacking(self) -> list[str]:
        """Return the keys of values that cannot be read because a plug-in does not open their keys."""
        return [key for key, broken in self.broken.items() if broken.lacking]

    def _publish(self, change: Change) -> None:
        self.fanout.publish(change)
        if change.previous is not None:
            for forget in self.outdated:
                forget(change.previous.raw)
        if self._listeners:
            self._tell(change)

    def _tell(self, change: Change) -> None:
        for listener in tuple(self._listeners):
            self._call(listener, change)

    def _call(self, listener: Callable[[Change], None], change: Change) -> None:
        try:
            listener(change)
        except Exception:  # outermost: a listener's fault must not cost the others their events
            log.exception("a listener of %s failed", self.resource)

    def load(self, entries: Snapshot | list[Entry], broken: dict[str, Broken], revision: int) -> list[Change]:
        """Become exactly this state at the revision, ending watches with 410; ``announce`` what is returned."""
        before = dict(self._state.index) if self._listeners or self.broken else {}
        for key, old in self.broken.items():
            if old.last is not None:
                before[key] = old.last
        self.fanout.end(None, revision)
        if self.waiting is not None:
            self.waiting.release()
        self.history.reset(revision)
        self._floor = revision
        if not isinstance(entries, Snapshot):
            entries = Snapshot((relative(entry.namespace, entry.name), entry) for entry in entries)
        self._state = entries
        self._indexes.clear()
        if self.broken:
            self.broken = {}
            self._count_unreadable()
        for key, bad in broken.items():
            self._break(key, replace(bad, last=before.get(key)))
        self.ready = self.taking = True
        return differences(before, self._state.index, self.broken, revision) if self._listeners else []

    def announce(self, changes: list[Change]) -> None:
        """Tell subscribers what a load changed, then take what the root watch brought meanwhile."""
        for change in changes:
            self._tell(change)
        early, self.early = self.early, []
        for key, revision, value in early:
            self.apply(key, revision, value)
        self._filled.set()

    def unready(self) -> None:
        """The collection is about to be filled again: changes are kept for it from here on.

        Who reads waits for that, and watches end: a bookmark must not pass what is kept.
        """
        if self.ready:
            self._filled.clear()
            self.fanout.end(None, self.revision)
        self.ready = self.taking = False
        if self.waiting is not None:
            self.waiting.release()

    def unload(self) -> None:
        """The collection is dropped: end its watches, let waiters go."""
        self.dropped = True
        self._indexes.clear()
        if self.broken:
            self.broken = {}
            self._count_unreadable()
        self.end_watches()
        self.unready()
        self.forget_early()
        self.history.reset(self.history.floor)
        self._filled.set()

    def tick(self) -> None:
        """Once per BOOKMARK_EVERY: bookmarks, and memory that nobody asked for lately."""
        self.fanout.bookmarks()
        self._indexes.tick()
        self._listed -= 1
        if self._listed == 0:
            for chunk in self._state.chunks():
                chunk.forget()
