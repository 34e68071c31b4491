"""The watchers of one collection.

Watchers with equal WatchGroups (watching.py) form a group. A group encodes each event once: its watchers share the
frames (the bytes of events). Each watcher has a sink, which writes to its connection, and is paused while the client
reads too slowly. The pump (pump.py) calls the groups that have work. A pass of a group writes the next frames to its
synced watchers, which have all events of earlier passes. Other watchers first get the events that they have missed.
Some groups need prepared entries, for example converted by a webhook; staging.py prepares them.
"""

import asyncio
import math
from collections import deque
from collections.abc import Callable, Container, Hashable, Iterable, Sequence
from functools import partial
from itertools import chain, islice
from time import perf_counter

from apiext.scheduling.loop_budget import LoopBudget
from apiext.storage import limits
from apiext.storage.converted_routes import ConvertedRoutes
from apiext.storage.history import Change, History
from apiext.storage.initial_frames import InitialFrames
from apiext.storage.progress import Reached
from apiext.storage.pump import Pump, Work
from apiext.storage.routes import Routes
from apiext.storage.snapshot import Piece
from apiext.storage.staging import Staging
from apiext.storage.store import Entry
from apiext.storage.watching import Sink, WatchGroup, event_of
from apiext.telemetry import Distribution, Slot

# A watch gets no periodic bookmark before it has this age in seconds.
BOOKMARK_FIRST = 30.0

__all__ = ["Fanout", "Group", "Sink", "WatchGroup", "Watcher"]

_BLOCK_COST = 8  # the cost of encoding a block (the joined frames of several changes), in writes to one sink


class Watcher:
    """One watch: its position in the history (``cursor``), and the sink of its frames.

    While ``synced`` is true, the watcher has the position of its group instead.
    """

    __slots__ = (
        "_group",
        "_initial",
        "_selected_only",
        "announce",
        "bookmarks_from",
        "cursor",
        "ended",
        "queued",
        "reached",
        "sink",
        "synced",
    )

    def __init__(self, group: "Group", sink: Sink, bookmarks: bool) -> None:
        self._selected_only = False
        self._group = group
        self._initial: deque[Piece] | None = None
        self.announce = 0
        self.cursor = 0
        self.ended = False
        # event loop time of the first periodic bookmark; a watch that ends earlier gets one only at its timeout
        self.bookmarks_from = asyncio.get_running_loop().time() + BOOKMARK_FIRST if bookmarks else math.inf
        self.queued = False
        self.reached = 0
        self.sink = sink
        self.synced = False

    @property
    def sending_initial(self) -> bool:
        """True until all initial events are written."""
        return self._initial is not None

    @property
    def revision(self) -> int:
        """The revision up to which the sink has all events, 0 while initial events are missing."""
        return self._group.revision_of(self) if self._initial is None else 0

    def resume(self) -> None:
        """Queue the watcher, so that the pump writes its missed events.

        Called when the transport accepts bytes again.
        """
        if not self.synced and not self.queued and not self.ended:
            self._group.queue(self)

    def close(self) -> None:
        """Remove the watcher, and write nothing. The caller ends the response."""
        if not self.ended:
            self._group.remove(self)

    def fail(self, data: bytes) -> None:
        """Write these bytes, and end the watch."""
        if not self.ended:
            self._group.drop(self, data)

    def bookmark_now(self) -> None:
        """Write the last bookmark before a watch times out (RV-012).

        Write none while initial events are missing or the sink is paused.
        """
        if not self.ended and self._initial is None and not self.sink.paused:
            self._group.flush(self)
            self.bookmarks_from = math.inf
            self.sink.write(self._group.spec.bookmark(self.revision, False))

    def send_initial(self, pieces: list[Piece], announce: int, selected_only: bool = False) -> None:
        """Send the entries of pieces (snapshot.py) as ADDED events first, then a bookmark.

        The bookmark has the revision ``announce``. If ``announce`` is 0, send no bookmark.

        ``selected_only``: the pieces contain only objects that the group selects, and no other watcher uses the pieces.
        """
        self._initial = deque(pieces)
        self._selected_only = selected_only
        self.announce = announce

    def step(self) -> bool:
        """Write the next part of the missed events. Return whether events may still be missing."""
        group, sink = self._group, self.sink
        if self._initial is None:
            return group.catch_up(self)
        if self._initial:
            piece = self._initial[0]
            made = group.added_frames(piece) if self._selected_only else group.initial_frames(piece)
            if made is not None:
                stop, data = made
                self._initial.popleft()
                if stop < piece.stop:
                    self._initial.appendleft(piece._replace(start=stop))
                if data:
                    sink.write(data)
            return True
        self._initial = None
        if self.announce:
            sink.write(group.spec.bookmark(self.announce, True))
        return True


class Group:
    """The watchers of one WatchGroup.

    A pass writes one block of frames to all synced watchers, in several steps. ``_positions`` are the positions of
    changes that no pass has written yet and that the group may select. If there are none, the group has reached the end
    of its source. Watchers in ``_ready`` may have missed events.
    """

    __slots__ = (
        "_attached",
        "_blocks",
        "_blocks_second",
        "_bookmark_due",
        "_changed_at",
        "_fanout",
        "_frames",
        "_initial",
        "_next",
        "_positions",
        "_ready",
        "_recipient_indexes",
        "_recipients",
        "_source",
        "_staging",
        "_start",
        "_synced",
        "members",
        "queued",
        "spec",
    )

    def __init__(self, fanout: "Fanout", spec: WatchGroup, source: History | ConvertedRoutes) -> None:
        """``source`` delivers the changes that the group may select.

        It has processed all changes before its ``end``.
        """
        self._fanout = fanout
        self._attached = fanout.history.end  # each watcher itself reads the changes before this position
        self._next = 0
        self._changed_at = 0.0  # perf_counter at the first change that no pass has written
        self._blocks: dict[int, tuple[int, bytes]] = {}
        self._blocks_second = 0
        self._positions: deque[int] = deque()
        self._frames = b""
        self._bookmark_due = False
        self._initial = InitialFrames()
        self._recipient_indexes: dict[Watcher, int] = {}
        self._ready: deque[Watcher] = deque()
        self._source = source
        self._staging = Staging(spec.stage, lambda: fanout.pump.add(self), self._abort) if spec.stage else None
        self._start = 0
        self._synced: dict[Watcher, None] = {}
        self._recipients: list[Watcher | None] = []
        self.members: dict[Watcher, None] = {}
        self.queued = False
        self.spec = spec

    @property
    def cursor(self) -> int:
        """The position before which synced watchers have all events once the current pass ends."""
        return self._positions[0] if self._positions else max(self._source.end, self._attached)

    # -- called by the fan-out

    def add_change(self, position: int) -> None:
        """Write the change at a position in a later pass, if the group selects the object."""
        positions = self._positions
        if position < self._attached or (positions and positions[-1] == position):
            return  # the change is older than the group, or was delivered already, for its other state (old or new)
        positions.append(position)
        if not self._changed_at:
            self._changed_at = self._fanout.now()
        self._fanout.pump.add(self)

    # -- called by watchers

    def add(self, watcher: Watcher) -> None:
        """Add a watcher whose cursor is set."""
        self.members[watcher] = None
        self.queue(watcher)

    def queue(self, watcher: Watcher) -> None:
        """Queue a watcher that is not synced, so that the pump writes its missed events."""
        watcher.queued = True
        self._ready.append(watcher)
        self._fanout.pump.add(self)

    def remove(self, watcher: Watcher) -> None:
        """Remove a watcher. Remove the group if this was its last watcher."""
        watcher.ended = True
        watcher.synced = False
        self.members.pop(watcher, None)
        self._synced.pop(watcher, None)
        if len(self.members) <= 1:
            self._initial.clear()
        if not self.members:
            self._fanout.remove_group(self)

    def drop(self, watcher: Watcher, data: bytes) -> None:
        """Write these bytes to one watcher, and end its watch."""
        self._end_watch(watcher, data)

    def flush(self, watcher: Watcher) -> None:
        """Write the frames of the current pass to a watcher, unless it has them already."""
        index = self._pending_index(watcher)
        if watcher.synced and index >= 0:
            self._recipients[index] = None
            watcher.sink.write(self._frames)

    def _pending_index(self, watcher: Watcher) -> int:
        """Return the index of a watcher to which the current pass will still write, or -1."""
        recipients = self._recipients
        if not self._recipient_indexes and recipients:  # a dict, so that closing many watches takes linear time
            self._recipient_indexes = {one: index for index, one in enumerate(recipients) if one is not None}
        index = self._recipient_indexes.get(watcher, -1)
        return index if index >= self._next and recipients[index] is not None else -1

    def revision_of(self, watcher: Watcher) -> int:
        """Return the revision up to which a watcher has all events."""
        if not watcher.synced:
            lost = watcher.cursor < self._fanout.history.first
            return watcher.reached if lost else self._fanout.revision_before(watcher.cursor)
        return self._fanout.revision_before(self._start if self._pending_index(watcher) >= 0 else self.cursor)

    # -- called by the pump

    @property
    def busy(self) -> bool:
        """True if ``step`` has work now."""
        if self._staging is not None and self._staging.waiting:
            return bool(self._recipients)
        if self._recipients or self._ready:
            return True
        return bool(self._synced) and (self._bookmark_due or bool(self._positions))

    @property
    def oldest(self) -> int:
        """The first position that a watcher may still need: every watcher has all events before it."""
        behind = (watcher.cursor for watcher in self.members if not watcher.synced)
        return min((self._start if self._recipients else self.cursor, *behind))

    def step(self, budget: int) -> int:
        """Continue the pass, begin the next pass, or write missed events to one watcher.

        Return the cost in writes.
        """
        if self._recipients:
            return self._deliver(budget)
        if self._staging is not None and self._staging.waiting:
            return 1
        if self._open_pass():
            return _BLOCK_COST
        if self._ready:
            return self._write_missed(self._ready.popleft())
        return 1

    def on_idle(self) -> None:
        """Evict the cached frames. Called when ``busy`` has become false."""
        self._blocks.clear()
        if self._staging is not None:
            self._staging.on_idle()

    def fail(self, error: Exception) -> bool:
        """End all watches with the group's ERROR event for an exception.

        Return False if the group has no such event; then the watches end without an event.
        """
        self._finish_pass()
        event = self._error_event(error)
        self.end(event)
        return bool(event)

    def _error_event(self, error: Exception) -> bytes:
        return self.spec.fault(error) if self.spec.fault is not None else b""

    def _abort(self, data: bytes) -> None:
        """Write the frames of the pass to the synced watchers; write ``data``, and end all watches."""
        for watcher in list(self._synced):
            self.flush(watcher)
        self.end(data)

    def end(self, data: bytes | None, oldest: int = 0) -> None:
        """Write these bytes, and end all watches.

        If ``data`` is None, write an ERROR 410 with the revision of the watch and the revision ``oldest`` (0: the
        oldest revision of the history).
        """
        for watcher in list(self.members):
            self._end_watch(watcher, data, oldest)

    def bookmark_soon(self) -> None:
        """Write a bookmark to synced watchers whose bookmarks are due, after the current pass.

        End each watch whose next change is no longer in the history.
        """
        self._bookmark_due = True
        self._initial.clear()
        oldest = self._fanout.history.first
        for watcher in [watcher for watcher in self.members if not watcher.synced and watcher.cursor < oldest]:
            self._end_slow(watcher)
        self._fanout.pump.add(self)

    # -- passes

    def _open_pass(self) -> bool:
        history, positions = self._fanout.history, self._positions
        if not self._synced:
            self._bookmark_due = False
            self._drop_positions(history.end)
            return False
        if positions and positions[0] < history.first:
            for watcher in list(self._synced):
                self._end_slow(watcher)
            return True
        self._start = self.cursor
        if positions:
            stop, self._frames = self._block(positions, positions[0], history.end)
            self._drop_positions(stop)
            if self._frames:
                self._recipients = list(self._synced)
            return True
        if self._bookmark_due:
            self._bookmark_due = False
            self._frames = self.spec.bookmark(self._fanout.revision_before(self.cursor), False)
            now = asyncio.get_running_loop().time()
            self._recipients = [watcher for watcher in self._synced if watcher.bookmarks_from <= now]
            return True
        return False

    def _drop_positions(self, stop: int) -> None:
        """Drop the positions before ``stop``."""
        positions = self._positions
        while positions and positions[0] < stop:
            positions.popleft()
        if not positions and not self._frames:
            self._changed_at = 0.0

    def _deliver(self, limit: int) -> int:
        data, start = self._frames, self._next
        stop = min(start + limit, len(self._recipients))
        for watcher in self._recipients[start:stop]:
            if watcher is None or not watcher.synced:
                continue
            sink = watcher.sink
            if sink.paused:
                watcher.reached = self._fanout.revision_before(self._start)
                watcher.cursor = self._start
                watcher.synced = False
                del self._synced[watcher]
            else:
                sink.write(data)
        self._next = stop
        if stop == len(self._recipients):
            self._finish_pass()
            if self._changed_at:
                if self._fanout.delays is not None:
                    self._fanout.delays.observe(perf_counter() - self._changed_at)
                self._changed_at = 0.0
        return stop - start

    def _finish_pass(self) -> None:
        self._recipients = []
        self._recipient_indexes = {}
        self._next = 0
        self._frames = b""

    def _write_missed(self, watcher: Watcher) -> int:
        watcher.queued = False
        if watcher.ended or watcher.synced:
            return 1
        if watcher.cursor < self._fanout.history.first:
            self._end_slow(watcher)
        elif not watcher.sink.paused and self._try_step(watcher) and not watcher.ended:
            watcher.queued = True
            self._ready.append(watcher)
        return 2

    def _try_step(self, watcher: Watcher) -> bool:
        """Write missed events to a watcher.

        End its watch with 410 if the object of a change cannot be encoded. Raise the exception if an initial event
        cannot be encoded, or if the group has no ERROR event for it.
        """
        try:
            return watcher.step()
        except Exception as error:
            if watcher.sending_initial or not self._error_event(error):
                raise
            self._end_watch(watcher, None, self._fanout.revision_before(self.cursor))
            return False

    def catch_up(self, watcher: Watcher) -> bool:
        """Write one block of missed events to a watcher. Return whether more events are missing."""
        if watcher.cursor < self.cursor:
            watcher.cursor, data = self._block(range(watcher.cursor, self.cursor), watcher.cursor, self.cursor)
            if data:
                watcher.sink.write(data)
        if watcher.cursor < self.cursor:
            return True
        # the source still converts changes that the watcher has already, and a pass would write them again
        if watcher.cursor > self.cursor:
            assert isinstance(self._source, ConvertedRoutes)
            self._source.when_advanced(partial(self.queue, watcher))
            return False
        watcher.synced = True  # no pass runs now, and the group has no unwritten changes
        self._synced[watcher] = None
        return False

    def _end_slow(self, watcher: Watcher) -> None:
        """End and count the watch of a slow client.

        The history no longer has the next change for it.
        """
        if self._fanout.slow_ended is not None:
            self._fanout.slow_ended.value += 1
        self._end_watch(watcher, None)

    def _end_watch(self, watcher: Watcher, data: bytes | None, oldest: int = 0) -> None:
        if data is None:
            data = self.spec.expired(self.revision_of(watcher), oldest or self._fanout.history.floor)
        self.remove(watcher)
        self._fanout.pump.end(watcher.sink, data)

    # -- frames

    def _block(self, positions: Sequence[int], start: int, stop: int) -> tuple[int, bytes]:
        """Return (end, frames): the frames of the changes from ``start`` to before ``end``.

        ``end`` is at most ``stop``. ``positions`` are the positions between ``start`` and ``stop`` whose changes the
        group may select.
        """
        second = self._second()
        if second != self._blocks_second:
            self._blocks.clear()
            self._blocks_second = second
        known = self._blocks.get(start)
        if known is not None and known[0] <= stop:
            return known
        spec = self.spec
        frames: list[bytes] = []
        size = 0
        position = start
        loop_budget = LoopBudget()
        for number, at in enumerate(islice(positions, limits.BLOCK_EVENTS)):
            if size >= limits.PUMP_BLOCK or (number and loop_budget.exhausted):
                break
            change = self._change(at, islice(positions, number, limits.BLOCK_EVENTS))
            if change is None:
                break
            seen = event_of(spec, change) if self._staging is None or self._staging.may_select(change.entry) else None
            position = at + 1
            if seen is not None:
                frame = spec.frame(*seen)
                frames.append(frame)
                size += len(frame)
        if position == start:
            return start, b""
        block = position, frames[0] if len(frames) == 1 else b"".join(frames)
        if len(self._blocks) >= limits.BLOCKS_CACHED:
            self._blocks.clear()
        self._blocks[start] = block
        return block

    def _second(self) -> int:
        """Return the second of the clock in which frames with ages (of Table rows) are valid.

        Return 0 without ages.
        """
        return self.spec.second() if self.spec.second is not None else 0

    def _change(self, position: int, positions: Iterable[int]) -> Change | None:
        """Return a change with prepared entries; None while the entries are being prepared.

        ``positions`` are the position of the change and the later positions of the block.
        """
        history, staging, of = self._fanout.history, self._staging, self.spec.namespace
        change = history.at(position)
        if staging is None or (of is not None and change.entry.namespace != of) or not staging.may_select(change.entry):
            return change
        following = (history.at(at) for at in positions)
        inside = (one for one in following if of is None or one.entry.namespace == of)
        return staging.change(change, self.spec.selects is not None, inside)

    def initial_frames(self, piece: Piece) -> tuple[int, bytes] | None:
        """Return (end, frames): the ADDED events of a piece up to ``end``.

        Return None while its entries are being prepared. The frames are cached if the group has other watchers, which
        may need the same piece.
        """
        second = self._second()
        known = self._initial.find(piece, second)
        if known is not None:
            return known
        entries = piece.chunk.entries[piece.start : piece.stop]
        prepared: Sequence[Entry | None] | None = entries
        if self._staging is not None:
            prepared = self._staging.prepared(entries)
        if prepared is None:
            return None
        made = self._added_frames(piece, prepared, self.spec.selects)
        if self._staging is not None and made[0] < piece.stop:
            done = made[0] - piece.start
            self._staging.keep(entries[done:], prepared[done:])
        if len(self.members) > 1:
            self._initial.keep(piece, made, second)
        return made

    def added_frames(self, piece: Piece) -> tuple[int, bytes]:
        """Return (end, frames) like ``initial_frames``, for a piece of selected objects only."""
        return self._added_frames(piece, piece.chunk.entries[piece.start : piece.stop], None)

    def _added_frames(
        self, piece: Piece, entries: Sequence[Entry | None], selects: Callable[[Entry], bool] | None
    ) -> tuple[int, bytes]:
        """Encode entries until the loop budget is exhausted; return (end, frames).

        ``entries`` begin at the start of the piece. None stands for an object that the group does not select.
        """
        show, frames = self.spec.first or partial(self.spec.frame, "ADDED"), list[bytes]()
        loop_budget = LoopBudget()
        for stop, entry in enumerate(entries, piece.start + 1):
            if entry is not None and (selects is None or selects(entry)):
                frames.append(show(entry))
            if loop_budget.exhausted:
                return stop, b"".join(frames)
        return piece.stop, b"".join(frames)


class Fanout:
    """All watch groups of one collection."""

    def __init__(
        self,
        history: History,
        progress: Reached,
        pump: Pump,
        delays: Distribution | None = None,
        slow_ended: Slot | None = None,
    ) -> None:
        self.delays = delays
        self.slow_ended = slow_ended
        self.history = history
        self.progress = progress
        self.pump = pump
        self._groups: dict[Hashable, Group] = {}
        self._published = 0.0
        self._routes = Routes()
        self._converted: dict[Hashable, ConvertedRoutes] = {}  # version → its routes

    def publish(self, change: Change) -> None:
        """Append a change to the history, and deliver it to the groups that may select its object."""
        self._published = 0.0
        self.history.append(change)
        self._routes.deliver(self.history.end - 1, change)

    def now(self) -> float:
        """Return the time (perf_counter) of the current ``publish``. All groups get the same time."""
        self._published = self._published or perf_counter()
        return self._published

    def attach(self, spec: WatchGroup, sink: Sink, bookmarks: bool, cursor: int) -> tuple[Group, Watcher]:
        """Return the group of a watch, and a new watcher at a position of the history.

        The caller adds the watcher to the group.
        """
        group = self._groups.get(spec.key)
        if group is None:
            group = self._groups[spec.key] = self._new_group(spec)
        watcher = Watcher(group, sink, bookmarks)
        watcher.cursor = cursor
        watcher.reached = self.revision_before(cursor)
        return group, watcher

    def _new_group(self, spec: WatchGroup) -> Group:
        """Create a group, and register it for the delivery of changes."""
        if spec.converted is None:
            group = Group(self, spec, self.history)
            self._routes.add(group, spec.namespace, spec.route)
            return group
        version, stage, term = spec.converted
        routes = self._converted.get(version)
        if routes is None:
            routes = self._converted[version] = ConvertedRoutes(self._routes, self.history, self.pump, stage)
        group = Group(self, spec, routes)
        routes.add(group, spec.namespace, spec.route, term)
        return group

    def _stop_delivery(self, group: Group) -> None:
        spec = group.spec
        if spec.converted is None:
            self._routes.remove(group, spec.namespace, spec.route)
            return
        version, _, term = spec.converted
        if self._converted[version].remove(group, spec.namespace, spec.route, term):
            del self._converted[version]

    def revision_before(self, position: int) -> int:
        """Return the highest revision whose changes are all before a position.

        If the history has dropped the change at the position, return the ``floor`` of the history.
        """
        history = self.history
        if position >= history.end:
            return self.progress.revision
        return history.at(position).revision - 1 if position >= history.first else history.floor

    def bookmarks(self) -> None:
        """Write the periodic bookmarks of all groups, and trim the history."""
        self.history.restore_limits()
        self.history.age(min((group.oldest for group in self._groups.values()), default=self.history.end))
        for group in list(self._groups.values()):  # a copy, since a group without watches is removed
            group.bookmark_soon()

    def end(self, data: bytes | None, oldest: int = 0, versions: Container[str] | None = None) -> None:
        """Write these bytes, and end the watches of ``versions`` (None: all watches).

        If ``data`` is None, write an ERROR 410 with the revision of each watch and the revision ``oldest``.
        """
        for group in list(self._groups.values()):
            if versions is None or group.spec.version in versions:
                group.end(data, oldest)

    def remove_group(self, group: Group) -> None:
        """Remove a group without watchers."""
        if self._groups.get(group.spec.key) is group:
            del self._groups[group.spec.key]
            self._stop_delivery(group)

    @property
    def busy(self) -> bool:
        """True if a group, or the conversion for groups, has work now."""
        works: Iterable[Work] = chain(self._converted.values(), self._groups.values())
        return any(work.busy for work in works)

    @property
    def watchers(self) -> int:
        """The number of open watches."""
        return sum(len(group.members) for group in self._groups.values())
