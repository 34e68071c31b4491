"""Watch: where a stream starts, what it selects, and how it falls back to the store's own history (RV-009…016)."""

from collections.abc import Callable, Hashable
from typing import Protocol

from apiext.meta.options import ListOptions
from apiext.storage.collection import Collection
from apiext.storage.fanout import Sink, Watcher, WatchGroup
from apiext.storage.store import Compacted, Entry
from apiext.verbs.call import Call, Verbs
from apiext.verbs.errors import translated
from apiext.verbs.read import parse_revision
from apiext.verbs.selection import select
from apiext.verbs.write import collection_of


class Frames(Protocol):
    """How one representation looks on the wire; http makes it."""

    key: Hashable
    frame: Callable[[str, Entry], bytes]
    bookmark: Callable[[int, bool], bytes]
    expired: Callable[[int, int], bytes]


async def open_watch(verbs: Verbs, call: Call, options: ListOptions, frames: Frames, sink: Sink) -> Watcher:
    """Register the sink and send what the stream starts with; raises StatusError before anything is written.

    A revision that is gone raises 410 (http sends it as the stream's only event, RV-009).
    """
    selection = select(call.served, options, call.name)
    collection = collection_of(verbs, call)
    group = WatchGroup(
        key=(frames.key, call.served.view, call.namespace, selection.key),
        namespace=call.namespace,
        selects=selection.matches,
        frame=frames.frame,
        bookmark=frames.bookmark,
        expired=frames.expired,
    )
    with translated():
        await collection.wait_ready()
        start = await _start(verbs, options)
        if start is None:
            ends_marked = bool(options.send_initial_events) and options.allow_watch_bookmarks
            initial = options.send_initial_events is not False
            return collection.watch(
                group, None, sink, initial=initial, bookmarks=options.allow_watch_bookmarks, marked=ends_marked
            )
        return await _resume(verbs, collection, group, start, sink, options)


async def _start(verbs: Verbs, options: ListOptions) -> int | None:
    """Return the revision to resume after; None to begin with the state as it is."""
    text = options.resource_version
    if text in ("", "0"):
        if text == "":
            await verbs.store.fresh()
        return None
    revision = parse_revision(text)
    if options.send_initial_events:
        await verbs.store.at_least(revision)
        return None
    return revision


async def _resume(
    verbs: Verbs, collection: Collection, group: WatchGroup, start: int, sink: Sink, options: ListOptions
) -> Watcher:
    """Resume from the ring of events; if that does not reach back, from etcd's history."""
    if start > verbs.store.revision:
        await verbs.store.at_least(start)
    try:
        return collection.watch(group, start, sink, bookmarks=options.allow_watch_bookmarks)
    except Compacted:
        return await verbs.store.watch_history(
            collection, group, start, sink, bookmarks=options.allow_watch_bookmarks
        )
