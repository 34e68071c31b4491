"""One cached resource: its objects, its changes and watches, and its stored values."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from sys import intern
from typing import Protocol

from msgspec.structs import replace

from apiext.meta.names import GroupResource
from apiext.storage import limits
from apiext.storage.encryption import PLAIN, Encryption, MissingKey
from apiext.storage.fanout import Watcher
from apiext.storage.following import Following
from apiext.storage.history import Change
from apiext.storage.keys import bounds, relative, split_relative
from apiext.storage.progress import Reached
from apiext.storage.pump import Pump
from apiext.storage.snapshot import Slice, Snapshot, pieces_of
from apiext.storage.state import CachedState
from apiext.storage.store import Entry, FutureRevision, NotReady
from apiext.storage.stored_values import Decoder, StoredValues
from apiext.storage.values import Broken, differences, secret_of
from apiext.storage.waiting import Arrivals, Home, Waiting
from apiext.storage.watching import Sink, WatchGroup

__all__ = ["Collection", "Decoder"]

# Seconds between bookmarks of a watch.
BOOKMARK_EVERY = 60.0

log = logging.getLogger(__name__)


class Filler(Home, Protocol):
    """The store that fills a collection."""

    async def read_again(self, col: "Collection") -> None:
        """Fill a collection anew."""


class Collection:
    """One resource of a store: ``state`` has its objects, ``following`` its changes and watches, ``values`` its values.

    ``ttl`` are the seconds that an object lives after its last write, 0 without a limit.
    """

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
        self.state = CachedState(resource, prefix, progress)
        self.following = Following(resource, progress, pump)
        self.values = StoredValues(prefix, decoder)
        self.arrivals = Arrivals()
        self.waiting: Waiting | None = None
        self.ttl = 0
        self.dropped = False
        self._filled = asyncio.Event()

    # -- reading and following

    async def wait_ready(self) -> None:
        """Wait until the collection is filled; returns also when it was dropped meanwhile."""
        await self._filled.wait()

    async def filled(self) -> None:
        """Wait for limits.FRESH_WAIT at most until the collection is filled; raises NotReady (RV-019)."""
        with suppress(TimeoutError):
            async with asyncio.timeout(limits.FRESH_WAIT):
                await self.wait_ready()
        if not self.state.ready:
            raise NotReady(f"{self.resource} is not in the cache")

    async def caught_up(self) -> None:
        """Wait until the collection is filled and no change waits for its data key, or it is dropped; raises NotReady.

        A fill is of the moment at which it began: later changes may have to wait when it is there.
        """
        while not self.dropped:
            if not self.state.ready:
                await self.filled()
            elif self.waiting is not None and self.waiting.held:
                await self.waiting.done()
            else:
                return

    def unchanged_since(self, revision: int) -> bool:
        """Report whether the state is also that of the earlier revision."""
        state = self.state
        return state.ready and revision <= state.revision and self.following.unchanged_since(revision)

    def follow(self, listener: Callable[[Change], None]) -> Callable[[], None]:
        """Subscribe, after one ADDED for each object that is cached already; unreadable objects are left out.

        As with any change, a fault of the listener is logged and ends nothing.
        """
        if self.state.ready:
            for entry in self.state.readable():
                self.following.call(listener, Change("ADDED", entry, None, entry.revision))
        return self.following.subscribe(listener)

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
        state, history = self.state, self.following.history
        # a watcher that begins with the state must see all of it
        state.require_readable(*bounds(group.namespace) if initial and selected is None else ("\0", "\0"))
        if start is not None and not initial and start > state.revision:
            raise FutureRevision(start, state.revision)
        if selected is not None:
            cursor = history.position(selected.revision)
        else:
            cursor = history.end if initial or start is None else history.position(start)
        its_group, watcher = self.following.fanout.attach(group, sink, bookmarks, cursor)
        if initial:
            marked = bookmarks if announce is None else announce
            if selected is None:
                watcher.begin(state.snapshot.pieces(*bounds(group.namespace)), state.revision if marked else 0)
            else:
                watcher.begin(pieces_of(selected.entries), selected.revision if marked else 0, chosen=True)
        its_group.enter(watcher)
        return watcher

    # -- stored values

    def set_encryption(self, encryption: Encryption | None, home: Filler, progress: Reached) -> None:
        """Encrypt by a configuration. With one whose keys plug-ins have, the collection may lag behind the store."""
        self.values.switch(encryption)
        if encryption is not None and encryption.waits:
            self.waiting = self.waiting or self.new_waiting(home)
        elif self.waiting is not None:
            self.waiting.close()
            self.waiting = None
        self.state.progress = self.following.fanout.progress = self.waiting or progress

    def new_waiting(self, home: Filler) -> Waiting:
        """Return a buffer of changes whose data keys are not decrypted yet."""
        fill_again = partial(home.read_again, self)
        return Waiting(home, self.arrivals, self.state, self.values, self.take_waited, fill_again)

    def switch_encryption(self, encryption: Encryption | None, home: Filler, progress: Reached) -> bool:
        """Encrypt by another configuration. Return whether the caller must fill the collection again.

        It must if values that could not be decrypted may be readable now, or the other way round.
        """
        before, held = self.values.encryption, self.state.ready and not self.arrivals.open
        self.set_encryption(encryption, home, progress)
        if not self.state.ready or (before is None and encryption is None):
            return False
        known = encryption.secrets if encryption is not None else frozenset((PLAIN,))
        entries = self.state.snapshot.index.values()
        return held or bool(self.state.broken) or any(secret_of(entry) not in known for entry in entries)

    def entry_of(self, key: str, revision: int, value: bytes) -> Entry:
        """Return the entry of a stored value; the cached one if it is the same. Raises ValueError."""
        return self.values.entry_of(key, revision, value, self.state.snapshot.index.get(key))

    async def entry_prepared(self, key: str, revision: int, value: bytes) -> Entry:
        """Return the entry of a stored value, which may be large, or lack its data key. Raises ValueError."""
        await self.values.prepare([(key, value)])
        return self.entry_of(key, revision, value)

    # -- changes from the root watch and from writes

    def apply(self, key: str, revision: int, value: bytes | None) -> None:
        """Apply a change or buffer it; value None is a deletion."""
        if not self.arrivals.open:
            self.arrivals.early.append((key, revision, value))
        elif revision > self.following.floor and (place := split_relative(key, self.namespaced)):
            self._apply(key, place, revision, value, waited=False)
        else:
            self.values.drop_ahead(value)

    def take_waited(self, key: str, revision: int, value: bytes | None) -> None:
        """Apply a change that has waited for its data key."""
        if revision > self.following.floor and (place := split_relative(key, self.namespaced)):
            self._apply(key, place, revision, value, waited=True)
        else:
            self.values.drop_ahead(value)

    def drop_early(self) -> None:
        """Drop the buffered changes: a fill begins, which brings them, or the collection is dropped."""
        for _, _, value in self.arrivals.take_all():
            self.values.drop_ahead(value)

    def _apply(self, key: str, place: tuple[str, str], revision: int, value: bytes | None, *, waited: bool) -> None:
        state, following, values = self.state, self.following, self.values
        snapshot, broken = state.snapshot, state.broken.get(key)
        previous = broken.last if broken else snapshot.index.get(key)
        state.indexes.mark(key)
        if value is None:
            if state.broken.pop(key, None) is not None:
                state.count_unreadable()
            snapshot.remove(key)
            if previous is not None:
                following.publish(Change("DELETED", previous.with_revision(revision), previous, revision))
            else:
                following.undelivered = revision
            return
        ours = values.pending.get(key)
        try:
            if values.encryption is None:
                raw = ours if ours is not None and ours == value else values.decode(value)
                entry = Entry(intern(place[0]), place[1], revision, raw)
            else:
                entry = values.decrypted(values.encryption, key, revision, value, snapshot.index.get(key))
        except ValueError as error:
            if isinstance(error, MissingKey) and not error.tried and not waited and self.waiting is not None:
                self.waiting.hold((key, revision, value))
            else:
                following.undelivered = revision
                self._break(key, values.broken(revision, value, error, previous))
            return
        if broken is not None:
            del state.broken[key]
            state.count_unreadable()
        snapshot.put(key, entry)
        following.publish(Change("ADDED" if previous is None else "MODIFIED", entry, previous, revision))

    def _break(self, key: str, broken: Broken) -> None:
        self.state.set_broken(key, broken)
        if broken.lacking and self.waiting is not None:
            self.waiting.lack(key, broken.reason)
        else:
            log.warning("%s at revision %d cannot be read: %s", self.prefix + key, broken.revision, broken.reason)

    # -- filled by the store

    def load(self, entries: Snapshot | list[Entry], broken: dict[str, Broken], revision: int) -> list[Change]:
        """Become exactly this state at the revision, ending watches with 410; ``announce`` the changes returned."""
        state, listeners = self.state, self.following.listeners
        before = state.last_states() if listeners or state.broken else {}
        self.following.restart(revision)
        if self.waiting is not None:
            self.waiting.release()
        if not isinstance(entries, Snapshot):
            entries = Snapshot((relative(entry.namespace, entry.name), entry) for entry in entries)
        state.load(entries)
        for key, bad in broken.items():
            self._break(key, replace(bad, last=before.get(key)))
        state.ready = self.arrivals.open = True
        return differences(before, entries.index, state.broken, revision) if listeners else []

    def announce(self, changes: list[Change]) -> None:
        """Call listeners with the changes of a load, then apply the events of the root watch since then."""
        for change in changes:
            self.following.notify(change)
        for key, revision, value in self.arrivals.take_all():
            self.apply(key, revision, value)
        self._filled.set()

    def unready(self) -> None:
        """Buffer changes from here on: the collection is about to be filled again.

        Reads wait for that, and watches end: a bookmark must not pass a buffered change.
        """
        if self.state.ready:
            self._filled.clear()
            self.following.fanout.end(None, self.state.revision)
        self.state.ready = self.arrivals.open = False
        if self.waiting is not None:
            self.waiting.release()

    def unload(self) -> None:
        """Drop the collection: end its watches, wake all tasks that wait for it."""
        self.dropped = True
        self.state.indexes.clear()
        self.state.clear_broken()
        self.following.end_watches()
        self.unready()
        if self.waiting is not None:
            self.waiting.close()
        self.drop_early()
        history = self.following.history
        history.reset(history.floor)
        self._filled.set()

    def tick(self) -> None:
        """Write bookmarks and drop memory that no client asked for lately; called once per BOOKMARK_EVERY."""
        self.following.fanout.bookmarks()
        self.state.tick()
