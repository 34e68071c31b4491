"""A cached resource: its objects, its changes and watches, and its stored values.

A fill reads all objects of a collection from the store. Later changes come from the root watch, which is the etcd watch
of all keys below the prefix, and from writes of this server.
"""

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
from apiext.storage.change_feed import ChangeFeed
from apiext.storage.decryption_buffer import Arrivals, DecryptionBuffer, OwnerStore
from apiext.storage.encryption import PLAIN, Encryption, MissingKey
from apiext.storage.fanout import Watcher
from apiext.storage.history import Change
from apiext.storage.keys import bounds, relative, split_relative
from apiext.storage.progress import Reached
from apiext.storage.pump import Pump
from apiext.storage.snapshot import Slice, Snapshot, pieces_of
from apiext.storage.state import CachedState
from apiext.storage.store import Entry, FutureRevision, NotReady
from apiext.storage.stored_values import Decoder, StoredValues
from apiext.storage.values import Broken, differences, secret_of
from apiext.storage.watching import Sink, WatchGroup

__all__ = ["Collection", "Decoder"]

# Seconds between bookmarks of a watch.
BOOKMARK_EVERY = 60.0

log = logging.getLogger(__name__)


class Filler(OwnerStore, Protocol):
    """The store that fills a collection."""

    async def read_again(self, col: "Collection") -> None:
        """Fill a collection again."""


class Collection:
    """One resource of a store: ``state`` has its objects, ``feed`` its changes and watches.

    ``values`` decodes and encrypts its stored values. An object expires at least ``ttl`` seconds after its last write;
    with 0, it never expires.
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
        self.feed = ChangeFeed(resource, progress, pump)
        self.values = StoredValues(prefix, decoder)
        self.arrivals = Arrivals()
        self.decryption_buffer: DecryptionBuffer | None = None
        self.ttl = 0
        self.dropped = False
        self._filled = asyncio.Event()

    # -- reads and watches

    async def wait_ready(self) -> None:
        """Wait until the collection is filled or dropped."""
        await self._filled.wait()

    async def filled(self) -> None:
        """Wait until the collection is filled; raise NotReady after FRESH_WAIT, or if it is dropped.

        See RV-019.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(limits.FRESH_WAIT):
                await self.wait_ready()
        if not self.state.ready:
            raise NotReady(f"{self.resource} is not in the cache")

    async def caught_up(self) -> None:
        """Wait until the collection is filled and no change waits for its data key.

        The wait also ends when the collection is dropped. Raises NotReady after limits.FRESH_WAIT.

        A fill reads the state at its start. Changes since then may still wait for their data keys when the fill ends.
        """
        while not self.dropped:
            if not self.state.ready:
                await self.filled()
            elif self.decryption_buffer is not None and self.decryption_buffer.held_revision:
                await self.decryption_buffer.done()
            else:
                return

    def unchanged_since(self, revision: int) -> bool:
        """Report whether the state at a revision was the same as the current state.

        Return False if this is unknown.
        """
        state = self.state
        return state.ready and revision <= state.revision and self.feed.unchanged_since(revision)

    def follow(self, listener: Callable[[Change], None]) -> Callable[[], None]:
        """Call the listener with ADDED for each cached, readable object, then subscribe it.

        Exceptions of the listener are logged. Return a function that ends the subscription.
        """
        if self.state.ready:
            for entry in self.state.readable():
                self.feed.call(listener, Change("ADDED", entry, None, entry.revision))
        return self.feed.subscribe(listener)

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
        """Open a watch. Its first bytes are written in a later iteration of the event loop.

        ``start``: the revision after which events are sent; None: the current revision. Raises Compacted if the changes
        are not in memory (see CachedStore.watch), and FutureRevision if the revision is newer than the collection.
        ``initial``: send the current objects as ADDED events first, and ignore ``start``. ``announce``: send a bookmark
        after the initial events; None means the value of ``bookmarks`` (RV-009, RV-012, RV-013). ``selected``: send
        this result of ``CachedState.select`` as the initial events; raises Compacted if later changes are not in
        memory.

        Raises NotReady if the collection is not filled. With ``initial`` and without ``selected``, raises Malformed if
        an object of the namespace cannot be read.
        """
        state, history = self.state, self.feed.history
        # A watch that begins with all objects must read all of them, so an unreadable object is an error. For any other
        # watch only an unfilled collection is an error: the range from "\0" to "\0" contains no key.
        state.require_readable(*bounds(group.namespace) if initial and selected is None else ("\0", "\0"))
        if start is not None and not initial and start > state.revision:
            raise FutureRevision(start, state.revision)
        if selected is not None:
            cursor = history.position(selected.revision)
        else:
            cursor = history.end if initial or start is None else history.position(start)
        its_group, watcher = self.feed.fanout.attach(group, sink, bookmarks, cursor)
        if initial:
            marked = bookmarks if announce is None else announce
            if selected is None:
                watcher.send_initial(state.snapshot.pieces(*bounds(group.namespace)), state.revision if marked else 0)
            else:
                watcher.send_initial(
                    pieces_of(selected.entries), selected.revision if marked else 0, selected_only=True
                )
        its_group.add(watcher)
        return watcher

    # -- stored values

    def set_encryption(self, encryption: Encryption | None, store: Filler, progress: Reached) -> None:
        """Use an encryption configuration.

        If plug-ins have its keys, the collection may lag behind the store while it waits for a plug-in.
        """
        self.values.switch(encryption)
        if encryption is not None and encryption.waits:
            self.decryption_buffer = self.decryption_buffer or self.new_decryption_buffer(store)
        elif self.decryption_buffer is not None:
            self.decryption_buffer.close()
            self.decryption_buffer = None
        self.state.progress = self.feed.fanout.progress = self.decryption_buffer or progress

    def new_decryption_buffer(self, store: Filler) -> DecryptionBuffer:
        """Return a buffer of changes whose data keys are not decrypted yet."""
        fill_again = partial(store.read_again, self)
        return DecryptionBuffer(store, self.arrivals, self.state, self.values, self.apply_decrypted, fill_again)

    def switch_encryption(self, encryption: Encryption | None, store: Filler, progress: Reached) -> bool:
        """Use another encryption configuration.

        Return whether the caller must fill the collection again. This is necessary if a value is unreadable or is
        encrypted with a key that the new configuration lacks, or if changes wait for a data key.
        """
        before, was_buffering = self.values.encryption, self.state.ready and not self.arrivals.open
        self.set_encryption(encryption, store, progress)
        if not self.state.ready or (before is None and encryption is None):
            return False
        known = encryption.secrets if encryption is not None else frozenset((PLAIN,))
        entries = self.state.snapshot.index.values()
        return was_buffering or bool(self.state.broken) or any(secret_of(entry) not in known for entry in entries)

    def entry_of(self, key: str, revision: int, value: bytes) -> Entry:
        """Return the entry of a stored value; raise ValueError.

        Return the cached entry if it is equal.
        """
        return self.values.entry_of(key, revision, value, self.state.snapshot.index.get(key))

    async def entry_prepared(self, key: str, revision: int, value: bytes) -> Entry:
        """Return the entry of a stored value as ``entry_of`` does.

        First call a plug-in for a missing data key, and decrypt a large value in a thread.
        """
        await self.values.prepare([(key, value)])
        return self.entry_of(key, revision, value)

    # -- changes from the root watch and from writes

    def apply(self, key: str, revision: int, value: bytes | None) -> None:
        """Apply a change. The value of a deletion is None.

        Buffer the change during a fill, and while an earlier change of the collection waits for its data key. Ignore a
        change that the last fill contains, and a key that is not the key of an object.
        """
        if not self.arrivals.open:
            self.arrivals.early.append((key, revision, value))
        elif revision > self.feed.floor and (names := split_relative(key, self.namespaced)):
            self._apply(key, names, revision, value, waited=False)
        else:
            self.values.drop_ahead(value)

    def apply_decrypted(self, key: str, revision: int, value: bytes | None) -> None:
        """Apply a change that has waited for its data key."""
        if revision > self.feed.floor and (names := split_relative(key, self.namespaced)):
            self._apply(key, names, revision, value, waited=True)
        else:
            self.values.drop_ahead(value)

    def drop_early(self) -> None:
        """Drop the buffered changes, since a fill replaces them, or the collection is dropped."""
        for _, _, value in self.arrivals.take_all():
            self.values.drop_ahead(value)

    def _apply(self, key: str, names: tuple[str, str], revision: int, value: bytes | None, *, waited: bool) -> None:
        state, feed, values = self.state, self.feed, self.values
        snapshot, broken = state.snapshot, state.broken.get(key)
        previous = broken.last if broken else snapshot.index.get(key)
        state.indexes.mark(key)
        if value is None:
            if state.broken.pop(key, None) is not None:
                state.count_unreadable()
            snapshot.remove(key)
            if previous is not None:
                feed.publish(Change("DELETED", previous.with_revision(revision), previous, revision))
            else:
                feed.undelivered = revision
            return
        own_value = values.pending.get(key)
        try:
            if values.encryption is None:
                raw = own_value if own_value is not None and own_value == value else values.decode(value)
                entry = Entry(intern(names[0]), names[1], revision, raw)
            else:
                entry = values.decrypted(values.encryption, key, revision, value, snapshot.index.get(key))
        except ValueError as error:
            if isinstance(error, MissingKey) and not error.tried and not waited and self.decryption_buffer is not None:
                self.decryption_buffer.buffer((key, revision, value))
            else:
                feed.undelivered = revision
                self._set_broken(key, values.broken(revision, value, error, previous))
            return
        if broken is not None:
            del state.broken[key]
            state.count_unreadable()
        snapshot.put(key, entry)
        feed.publish(Change("ADDED" if previous is None else "MODIFIED", entry, previous, revision))

    def _set_broken(self, key: str, broken: Broken) -> None:
        self.state.set_broken(key, broken)
        if broken.lacking and self.decryption_buffer is not None:
            self.decryption_buffer.retry_later(key, broken.reason)
        else:
            log.warning("%s at revision %d cannot be read: %s", self.prefix + key, broken.revision, broken.reason)

    # -- filled by the store

    def load(self, entries: Snapshot | list[Entry], broken: dict[str, Broken], revision: int) -> list[Change]:
        """Replace the state, end watches with 410, and return the changes for ``announce``.

        Return [] if there are no listeners.
        """
        state, listeners = self.state, self.feed.listeners
        before = state.last_states() if listeners or state.broken else {}
        self.feed.restart(revision)
        if self.decryption_buffer is not None:
            self.decryption_buffer.release()
        if not isinstance(entries, Snapshot):
            entries = Snapshot((relative(entry.namespace, entry.name), entry) for entry in entries)
        state.load(entries)
        for key, value in broken.items():
            self._set_broken(key, replace(value, last=before.get(key)))
        state.ready = self.arrivals.open = True
        return differences(before, dict(entries.items()), state.broken, revision) if listeners else []

    def announce(self, changes: list[Change]) -> None:
        """Call listeners with the changes that ``load`` returned, then apply the buffered changes."""
        for change in changes:
            self.feed.notify(change)
        for key, revision, value in self.arrivals.take_all():
            self.apply(key, revision, value)
        self._filled.set()

    def unready(self) -> None:
        """Buffer all later changes, since the collection is about to be filled again.

        Consistent reads wait for the fill. Watches end, since a bookmark must not be sent before a buffered change.
        """
        if self.state.ready:
            self._filled.clear()
            self.feed.fanout.end(None, self.state.revision)
        self.state.ready = self.arrivals.open = False
        if self.decryption_buffer is not None:
            self.decryption_buffer.release()

    def unload(self) -> None:
        """Drop the collection: end its watches, and wake all tasks that wait for it."""
        self.dropped = True
        self.state.indexes.clear()
        self.state.clear_broken()
        self.feed.end_watches()
        self.unready()
        if self.decryption_buffer is not None:
            self.decryption_buffer.close()
        self.drop_early()
        history = self.feed.history
        history.reset(history.floor)
        self._filled.set()

    def tick(self) -> None:
        """Write bookmarks and evict unused caches; called every BOOKMARK_EVERY seconds."""
        self.feed.fanout.bookmarks()
        self.state.tick()
