"""Watch: the start of a stream, its selection, and its fallback to the store's history.

See RV-009…016.
"""

import asyncio
import logging
from collections.abc import Callable, Hashable
from functools import partial
from typing import Protocol

from msgspec.structs import replace

from apiext.catalog.stored import Unreadable, WrongVersion
from apiext.meta import status
from apiext.meta.options import ListOptions
from apiext.meta.status import StatusError
from apiext.storage.cached_store import CachedStore
from apiext.storage.collection import Collection
from apiext.storage.fanout import Watcher
from apiext.storage.snapshot import Slice
from apiext.storage.staging import Stage
from apiext.storage.store import Compacted, Entry, StoreError
from apiext.storage.watching import Sink, WatchGroup
from apiext.verbs import converting, limits, threads
from apiext.verbs.call import Call, Verbs
from apiext.verbs.errors import Undecodable, translated
from apiext.verbs.objects import collection_of
from apiext.verbs.read import parse_revision, refuse_future
from apiext.verbs.selection import Selection, selected

log = logging.getLogger(__name__)


class Frames(Protocol):
    """The encoding of watch events in one representation; apiext.http implements it."""

    @property
    def key(self) -> Hashable:
        """Return a key that is equal for equal representations."""

    @property
    def frame(self) -> Callable[[str, Entry], bytes]:
        """Return the function (event, entry) → bytes on the wire."""

    @property
    def bookmark(self) -> Callable[[int, bool], bytes]:
        """Return the function (revision, ends initial events) → bytes of a bookmark.

        The second argument is True for the bookmark after the initial events.
        """

    @property
    def failed(self) -> Callable[[StatusError], bytes]:
        """Return the function error → ERROR event that ends a stream.

        The event is sent, for example, if an object of the stream cannot be encoded.
        """

    @property
    def expired(self) -> Callable[[int, int], bytes]:
        """Return the function (requested, oldest) → ERROR 410 that ends a stream.

        The event is sent if the next changes of the stream are compacted.
        """

    @property
    def first(self) -> Callable[[Entry], bytes] | None:
        """Return the function entry → bytes of an initial event.

        Return None if ``frame`` also encodes the initial events.
        """

    @property
    def stage(self) -> Stage | None:
        """Return the stage (storage/staging.py) that prepares large objects.

        Return None if their encoding is fast.
        """

    @property
    def second(self) -> Callable[[], int] | None:
        """Return the function that returns the second of the wall clock.

        Return None if frames contain no ages.
        """


async def open_watch(verbs: Verbs, call: Call, options: ListOptions, frames: Frames, sink: Sink) -> Watcher:
    """Start a watch: register the sink, and send the beginning of the stream.

    This function raises StatusError only before it has sent anything. For a compacted revision it raises a 410, which
    http sends as the stream's only event (RV-009).
    """
    selection = await selected(call.served, options, call.name)
    collection = collection_of(verbs, call)
    group = WatchGroup(
        key=(frames.key, call.served.codec.view, call.namespace, selection.key),
        namespace=call.namespace,
        selects=selection.matches,
        frame=frames.frame,
        bookmark=frames.bookmark,
        expired=frames.expired,
        version=call.served.names.version,
        first=frames.first,
        route=selection.route_unread if call.served.codec.converts else selection.route,
        converted=converting.route(verbs, call, selection, frames.failed),
        stage=converting.stage(verbs, call, selection, frames.failed) or frames.stage,
        fault=partial(_fault, frames),
        second=frames.second,
    )
    with translated():
        await collection.filled()
        await threads.prepare(call)
        await _convert_some(verbs, call, options, selection, collection)
        try:
            watcher = await _opened(verbs, call, options, collection, (group, selection), sink, frames.failed)
        except Compacted as error:
            raise status.too_old_resource_version(error.requested, error.oldest) from error
    now = verbs.catalog.current.lookup(call.served.names.group, call.served.names.version, call.served.names.resource)
    if now is None or now.identity != call.served.identity:  # the definition changed in the meantime
        watcher.close()
        sink.end(b"")
    return watcher


def _fault(frames: Frames, error: Exception) -> bytes:
    """Return the ERROR event for an object that cannot be encoded.

    Usually another program has stored this object.
    """
    if isinstance(error, WrongVersion):
        return frames.failed(status.unknown(error.named))
    if isinstance(error, Unreadable):
        return frames.failed(status.internal(error.named))
    log.error("an event of a watch cannot be encoded", exc_info=error)
    return frames.failed(status.internal("an event cannot be encoded, see the log of the server"))


async def _convert_some(
    verbs: Verbs, call: Call, options: ListOptions, selection: Selection, collection: Collection
) -> None:
    """Convert the first objects of a watch before its start, if a webhook converts objects.

    If the webhook fails, raise a 500 (VER-008).
    """
    begins = options.resource_version in ("", "0") or options.send_initial_events
    if call.served.codec.converts and begins and options.send_initial_events is not False:
        entries = None
        if options.resource_version == "0" and collection.state.broken:
            entries = collection.state.with_last_states(call.namespace)
        if entries is None:
            entries = list(collection.state.page(call.namespace, "", converting.STEP).entries)
        try:
            await converting.chosen(verbs, call, selection, entries[: converting.STEP])
        except Undecodable as error:
            raise status.unknown(error.fault.reason) from error


async def _opened(
    verbs: Verbs,
    call: Call,
    options: ListOptions,
    collection: Collection,
    wanted: tuple[WatchGroup, Selection],
    sink: Sink,
    failed: Callable[[StatusError], bytes],
) -> Watcher:
    start, bookmarks = await _start(verbs, call, options, collection), options.allow_watch_bookmarks
    group, selection = wanted
    if start is None:
        initial = options.send_initial_events is not False
        if initial and options.resource_version == "0" and collection.state.broken:
            found = await _last_states(verbs, call, collection, selection)
        else:
            indexed = (
                initial and group.route and not call.served.codec.converts
            )  # indexes contain labels and fields of stored objects, which may differ in the watched version
            found = await collection.state.select(selection.terms, group.namespace) if indexed else None
        return collection.watch(
            group, None, sink,
            initial=initial,
            bookmarks=bookmarks,
            announce=options.begins_with_state and bookmarks,
            selected=found if found is not None and found.revision >= collection.feed.history.floor else None,
        )  # fmt: skip
    if start > verbs.store.revision:
        watcher = collection.watch(_from_the_future(group, start), None, sink, bookmarks=bookmarks)
        verbs.store.spawn(_expect(verbs.store, collection, start, watcher, failed))
        return watcher
    return await verbs.store.watch(collection, group, start, sink, bookmarks=bookmarks)


async def _last_states(verbs: Verbs, call: Call, collection: Collection, selection: Selection) -> Slice | None:
    """Return the initial objects of a watch that accepts old states.

    Return None if every object can be read. An unreadable object is in its last readable state.
    """
    revision, found = collection.state.revision, collection.state.with_last_states(call.namespace)
    if found is None:
        return None
    return Slice(await converting.chosen(verbs, call, selection, found), revision, 0, "")


async def _start(verbs: Verbs, call: Call, options: ListOptions, collection: Collection) -> int | None:
    """Return the revision to resume after, or None to begin with the current state."""
    text = options.resource_version
    if text in ("", "0"):
        if text == "":
            await verbs.store.fresh(collection)
        return None
    revision = parse_revision(text)
    if options.send_initial_events:
        if not call.resource.cached:
            await refuse_future(verbs, collection, revision, retry_after=1)
        await verbs.store.at_least(revision, collection)
        return None
    return revision or None


async def _expect(
    store: CachedStore, collection: Collection, start: int, watcher: Watcher, failed: Callable[[StatusError], bytes]
) -> None:
    """End a watch with an ERROR 410 if the store does not reach its start revision in time.

    The wait is at most limits.AHEAD_WAIT seconds. After a restore of an older state, the ERROR is sent immediately for
    a revision that the restore has lost, so that the client lists again. Without the ERROR, the client would wait until
    the store reaches that revision again.
    """
    if start > store.fills.lost and await store.reaches(start, limits.AHEAD_WAIT):
        return
    while not watcher.ended:
        try:
            current = await store.fresh(collection)  # etcd may have the revision ``start``, although the cache does not
        except StoreError:
            await asyncio.sleep(limits.AHEAD_WAIT)
            continue
        if current < start:
            text = f"the resourceVersion for the provided watch is too large: {start}, current: {current}"
            watcher.fail(failed(status.expired(text)))
        return


def _from_the_future(group: WatchGroup, start: int) -> WatchGroup:
    """Return a group that skips events up to a future revision."""

    def frame(event: str, entry: Entry) -> bytes:
        return group.frame(event, entry) if entry.revision > start else b""

    def bookmark(revision: int, end: bool) -> bytes:
        return group.bookmark(max(revision, start), end)

    return replace(group, key=(group.key, start), frame=frame, bookmark=bookmark)
