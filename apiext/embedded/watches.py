"""Watches of the embedded store.

Each watch gets the changes of its range of keys once, in order, and progress notifications.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from apiext.embedded import faults, limits, wire
from apiext.embedded.backend import History, row_of
from apiext.embedded.index import covers
from apiext.embedded.wire import Change
from apiext.etcd import messages
from apiext.etcd.errors import EtcdError

if TYPE_CHECKING:
    from apiext.embedded.store import Store

TURN = 128  # approximate number of changes that are sent in one iteration of the event loop


class Watcher:
    """A watch. ``next`` is the first revision whose changes were not sent to it yet."""

    __slots__ = ("fetching", "idle", "live", "next", "notify", "number", "previous", "span", "stream")

    def __init__(self, stream: "WatchStream", number: int, request: Any, first: int) -> None:
        self.stream = stream
        self.number = number
        self.span = (request.key or b"\0", request.range_end)
        self.next = first
        self.previous = request.prev_kv
        self.notify = request.progress_notify
        self.live = True
        self.idle = False  # True if no event was sent since the last ``Hub._tick``
        self.fetching = False  # True while the back end reads missed changes

    def send_events(self, events: list[bytes], revision: int) -> None:
        """Send encoded events. ``revision`` is the revision in the header of the message."""
        self.idle = False
        self.stream.send_events(self.number, b"".join(events), revision)


class Hub:
    """Sends changes to watches.

    A watch in ``_following`` has all changes up to ``_sent_up_to``, and gets each new change. A watch in ``_reading``
    begins earlier or requests previous states, so the hub reads its changes from the back end.
    """

    def __init__(self, store: "Store") -> None:
        self._store = store
        self._loop = asyncio.get_running_loop()
        self._sent_up_to = 0
        self._tail: deque[Change] = deque()  # stored changes that were not sent yet
        self._following: set[Watcher] = set()
        self._reading: set[Watcher] = set()
        self._streams: set[WatchStream] = set()
        self._pumping = False
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start at the current revision of the store."""
        self._sent_up_to = self._store.durable
        self._timer = self._loop.call_later(limits.PROGRESS, self._tick)

    def stop(self) -> None:
        """Stop the periodic progress notifications."""
        if self._timer is not None:
            self._timer.cancel()

    def add_stream(self, stream: "WatchStream") -> None:
        """Register a stream."""
        self._streams.add(stream)

    def end_stream(self, stream: "WatchStream") -> None:
        """Remove a stream and its watches."""
        self._streams.discard(stream)
        for watcher in list(stream.watchers.values()):
            self.drop(watcher)

    def end_all(self, error: EtcdError) -> None:
        """End all streams with an error."""
        for stream in list(self._streams):
            stream.end(error)

    def add(self, watcher: Watcher) -> None:
        """Start to send events to a watch."""
        if watcher.previous or watcher.next <= self._sent_up_to:
            self._reading.add(watcher)
            self._fetch(watcher)
        else:
            self._following.add(watcher)

    def drop(self, watcher: Watcher) -> None:
        """Send no more events to a watch."""
        watcher.live = False
        watcher.stream.watchers.pop(watcher.number, None)
        self._following.discard(watcher)
        self._reading.discard(watcher)

    def feed(self, changes: list[Change]) -> None:
        """Queue stored changes, and send them to watches in a later iteration of the event loop."""
        self._tail.extend(changes)
        if not self._pumping:
            self._pumping = True
            self._loop.call_soon(self._pump)

    def compacted(self) -> None:
        """End watches that need a revision before the compacted revision.

        A watch whose changes are being read ends after the read.
        """
        for watcher in list(self._reading):
            self._fetch(watcher)

    # -- following -----------------------------------------------------------------------------------------------

    def _pump(self) -> None:
        """Send all changes of the next revisions to the watches in ``_following``."""
        tail, part = self._tail, list[Change]()
        while tail and (len(part) < TURN or tail[0].record.revision == part[-1].record.revision):
            part.append(tail.popleft())
        first, last = part[0].record.revision, part[-1].record.revision
        self._sent_up_to = last
        for watcher in list(self._following):
            span, begin = watcher.span, watcher.next
            if begin > last:
                continue
            watcher.next = last + 1
            events = [
                wire.event(change, None)
                for change in part
                if covers(span, change.key) and (begin <= first or change.record.revision >= begin)
            ]
            if events and watcher.live:
                watcher.send_events(events, last)
        for watcher in list(self._reading):
            self._fetch(watcher)
        if tail:
            self._loop.call_soon(self._pump)
            return
        self._pumping = False
        for stream in list(self._streams):
            if stream.progress_requested:
                self.answer(stream)

    # -- reading -------------------------------------------------------------------------------------------------

    def _fetch(self, watcher: Watcher) -> None:
        """Read the missing changes of a watch.

        If no change is missing and the watch requests no previous states, move it to ``_following``. If a compaction
        has deleted some of the missing changes, end the watch.
        """
        if watcher.fetching or not watcher.live:
            return
        store = self._store
        if watcher.next > store.durable:
            if not watcher.previous and watcher.next > self._sent_up_to:
                self._reading.discard(watcher)
                self._following.add(watcher)
            if watcher.stream.progress_requested:
                self.answer(watcher.stream)
        elif watcher.next < store.compacted:
            watcher.stream.cancel_compacted(watcher, store.compacted)
            self.drop(watcher)
        else:
            watcher.fetching = True
            store.backend.changes(
                watcher.span, watcher.next, store.durable, lambda history: self._take(watcher, history)
            )

    def _take(self, watcher: Watcher, history: History | Exception) -> None:
        watcher.fetching = False
        if not watcher.live:
            return
        if isinstance(history, Exception):
            watcher.stream.end(faults.broken(str(history)))
        elif watcher.next < self._store.compacted:
            self._fetch(watcher)  # during the read, a compaction may have deleted some of the changes
        elif watcher.previous:
            watcher.fetching = True
            self._before(watcher, history)
        else:
            self._send(watcher, history, {})

    def _before(self, watcher: Watcher, history: History) -> None:
        """Read the previous states of changed keys, and send the events with them.

        Previous states that a compaction has deleted are left out.
        """
        store = self._store
        before: dict[int, tuple[bytes, wire.Record]] = {}
        for place, (key, _, record) in enumerate(history.changes):
            if record.version != 1 and record.revision > store.compacted:
                found = store.index.at(key, record.revision - 1)
                if found is not None:
                    before[place] = key, found

        def send(values: dict[int, bytes] | Exception) -> None:
            watcher.fetching = False
            if not watcher.live:
                return
            if isinstance(values, Exception):
                watcher.stream.end(faults.broken(str(values)))
                return
            found = {
                place: wire.key_value(key, values[row_of(record)], record)
                for place, (key, record) in before.items()
                if row_of(record) in values
            }
            self._send(watcher, history, found)

        store.backend.values([row_of(record) for _, record in before.values()], send)

    def _send(self, watcher: Watcher, history: History, before: dict[int, bytes]) -> None:
        events = [wire.event(change, before.get(place)) for place, change in enumerate(history.changes)]
        watcher.next = history.upto + 1
        if events:
            watcher.send_events(events, history.upto)
        self._fetch(watcher)

    # -- progress ------------------------------------------------------------------------------------------------

    def answer(self, stream: "WatchStream") -> None:
        """Respond to a progress request if all watches of the stream are up to date.

        A watch is up to date if it has all changes up to the head revision.
        """
        head = self._store.durable
        if not self._tail and all(watcher.next > head for watcher in stream.watchers.values()):
            stream.progress_requested = False
            stream.progress(-1, head)

    def _tick(self) -> None:
        self._timer = self._loop.call_later(limits.PROGRESS, self._tick)
        head = self._store.durable
        for stream in list(self._streams):
            for watcher in list(stream.watchers.values()):
                if watcher.notify and watcher.idle and watcher.next > head and not self._tail:
                    stream.progress(watcher.number, head)
                watcher.idle = True


class WatchStream:
    """One stream of a connection, with its watches.

    The class implements the protocol Stream of the etcd client.
    """

    def __init__(
        self, store: "Store", on_message: Callable[[bytes], None], on_end: Callable[[EtcdError], None]
    ) -> None:
        self.watchers: dict[int, Watcher] = {}
        self.progress_requested = False  # True if the client has requested progress and got no response yet
        self._store = store
        self._loop = asyncio.get_running_loop()
        self._on_message = on_message
        self._on_end = on_end
        self._over = False
        self._next = 0
        store.hub.add_stream(self)

    @property
    def open(self) -> bool:
        """True while the stream is open."""
        return not self._over

    def send(self, message: bytes) -> None:
        """Process a request of the client in a later iteration of the event loop."""
        self._loop.call_soon(self._take, message)

    def cancel(self) -> None:
        """End the stream without a call of ``on_end``."""
        if not self._over:
            self._over = True
            self._store.hub.end_stream(self)

    def end(self, error: EtcdError) -> None:
        """End the stream, and call ``on_end`` with the error."""
        if not self._over:
            self.cancel()
            self._on_end(error)

    def _take(self, message: bytes) -> None:
        if self._over:
            return
        request = messages.WatchRequest.FromString(message)
        kind = request.WhichOneof("request_union")
        if kind == "create_request":
            self._create(request.create_request)
        elif kind == "progress_request":
            self.progress_requested = True
            self._store.hub.answer(self)
        elif kind == "cancel_request" and request.cancel_request.watch_id in self.watchers:
            watcher = self.watchers[request.cancel_request.watch_id]
            self._store.hub.drop(watcher)
            self._send_message(watcher.number, b"\x20\x01")

    def _create(self, request: Any) -> None:
        if request.filters:
            self.end(faults.unimplemented("a watch with filters"))
            return
        if request.range_end not in (b"", b"\0") and request.key >= request.range_end:
            self._send_message(-1, b"\x18\x01\x20\x01" + wire.field(b"\x32", b"mvcc: watcher range is empty"))
            return
        head = self._store.durable
        number, self._next = self._next, self._next + 1
        first = request.start_revision if request.start_revision > 0 else head + 1
        watcher = self.watchers[number] = Watcher(self, number, request, first)
        self._send_message(number, b"\x18\x01")
        if not self._over:
            self._store.hub.add(watcher)

    def cancel_compacted(self, watcher: Watcher, revision: int) -> None:
        """Send the message that a watch ends, since its next revision was compacted."""
        self._send_message(watcher.number, b"\x20\x01\x28" + wire.number(revision))

    def progress(self, number: int, revision: int) -> None:
        """Send a progress notification. It means that all changes up to ``revision`` were sent."""
        self._message(revision, number, b"")

    def send_events(self, number: int, events: bytes, revision: int) -> None:
        """Send encoded events of a watch."""
        self._message(revision, number, events)

    def _send_message(self, number: int, content: bytes) -> None:
        self._message(self._store.durable, number, content)

    def _message(self, revision: int, number: int, content: bytes) -> None:
        if not self._over:
            which = b"\x10" + wire.number(number) if number else b""
            self._on_message(self._store.headers.at(revision) + which + content)
