"""Watchers of one collection: cursors into its history, served in groups that share every frame."""

import asyncio
import math
from collections import deque
from collections.abc import Callable, Container, Hashable, Iterable, Sequence
from functools import partial
from itertools import chain, islice
from time import perf_counter

from apiext.scheduling.loop_budget import LoopBudget
from apiext.storage import limits
from apiext.storage.beginnings import Beginnings
from apiext.storage.converted_routes import ConvertedRoutes
from apiext.storage.history import Change, History
from apiext.storage.progress import Reached
from apiext.storage.pump import Pump, Work
from apiext.storage.routes import Routes
from apiext.storage.snapshot import Piece
from apiext.storage.staging import Staging
from apiext.storage.store import Entry
from apiext.storage.watching import Sink, WatchGroup, event_of
from apiext.telemetry import Distribution, Slot

# Age in seconds from which a watch gets its first bookmark.
BOOKMARK_FIRST = 30.0

__all__ = ["Fanout", "Group", "Sink", "WatchGroup", "Watcher"]

_BLOCK_COST = 8  # deliveries that making a block is worth in a slice


class Watcher:
    """One watch: a cursor, and the sink it feeds. ``synced`` watchers share the cursor of their group."""

    __slots__ = (
        "_chosen",
        "_group",
        "_initial",
        "announce",
        "cursor",
        "ended",
        "marked_from",
        "queued",
        "reached",
        "sink",
        "synced",
    )

    def __init__(self, group: "Group", sink: Sink, bookmarks: bool) -> None:
        self._chosen = False
        self._group = group
        self._initial: deque[Piece] | None = None
        self.announce = 0
        self.cursor = 0
        self.ended = False
        # the loop's time from which bookmarks come by the clock: a short watch gets only its last one
        self.marked_from = asyncio.get_running_loop().time() + BOOKMARK_FIRST if bookmarks else math.inf
        self.queued = False
        self.reached = 0
        self.sink = sink
        self.synced = False

    @property
    def beginning(self) -> bool:
        """True while initial events are written."""
        return self._initial is not None

    @property
    def revision(self) -> int:
        """Everything up to this revision was written to the sink; 0 while initial events are."""
        return self._group.revision_of(self) if self._initial is None else 0

    def resume(self) -> None:
        """The transport drained: write the missed events."""
        if not self.synced and not self.queued and not self.ended:
            self._group.want(self)

    def close(self) -> None:
        """The client is gone."""
        if not self.ended:
            self._group.leave(self)

    def fail(self, data: bytes) -> None:
        """End the watch with these bytes."""
        if not self.ended:
            self._group.drop(self, data)

    def bookmark_now(self) -> None:
        """Write a bookmark at once, as before the end of a timed watch (RV-012); nothing during initial events."""
        if not self.ended and self._initial is None and not self.sink.paused:
            self._group.flush(self)
            self.marked_from = math.inf
            self.sink.write(self._group.spec.bookmark(self.revision, False))

    def begin(self, pieces: list[Piece], announce: int, chosen: bool = False) -> None:
        """Send these entries as ADDED first; ``announce`` is the revision of the bookmark behind them, 0: none.

        ``chosen`` pieces hold only objects that the group selects, and no other watcher has them.
        """
        self._initial = deque(pieces)
        self._chosen = chosen
        self.announce = announce

    def step(self) -> bool:
        """Write the next piece of missed events; report whether more are left."""
        group, sink = self._group, self.sink
        if self._initial is None:
            return group.catch_up(self)
        if self._initial:
            piece = self._initial[0]
            made = group.added(piece) if self._chosen else group.initial(piece)
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
    """Watchers of one WatchGroup. A pass writes one block of frames to every synced watcher, slice by slice.

    ``_concerns`` are the positions of the changes that may be selected and that no pass has written yet: a group that
    no change concerns does nothing, and is at the end of its source all the same. ``ready`` watchers are behind, and
    may be written to.
    """

    __slots__ = (
        "_at",
        "_attached",
        "_began",
        "_blocks",
        "_blocks_second",
        "_concerns",
        "_data",
        "_due",
        "_fanout",
        "_initial",
        "_places",
        "_ready",
        "_source",
        "_staging",
        "_start",
        "_synced",
        "_todo",
        "members",
        "queued",
        "spec",
    )

    def __init__(self, fanout: "Fanout", spec: WatchGroup, source: History | ConvertedRoutes) -> None:
        """``source`` delivers, up to its ``end``, all changes from now on that may concern the group."""
        self._fanout = fanout
        self._attached = fanout.history.end  # a watcher reads the history up to here itself
        self._at = 0
        self._began = 0.0  # perf_counter at the first change that no pass has written
        self._blocks: dict[int, tuple[int, bytes]] = {}
        self._blocks_second = 0
        self._concerns: deque[int] = deque()
        self._data = b""
        self._due = False
        self._initial = Beginnings()
        self._places: dict[Watcher, int] = {}
        self._ready: deque[Watcher] = deque()
        self._source = source
        self._staging = Staging(spec.stage, lambda: fanout.pump.add(self), self._abort) if spec.stage else None
        self._start = 0
        self._synced: dict[Watcher, None] = {}
        self._todo: list[Watcher | None] = []
        self.members: dict[Watcher, None] = {}
        self.queued = False
        self.spec = spec

    @property
    def cursor(self) -> int:
        """The position up to which all synced watchers are served once the pass under way is over."""
        return self._concerns[0] if self._concerns else max(self._source.end, self._attached)

    # -- called by the fan-out

    def concern(self, position: int) -> None:
        """Write the change at a position in a pass to come, if it is selected."""
        concerns = self._concerns
        if position < self._attached or (concerns and concerns[-1] == position):
            return  # older than the group; or both states of the change lead here
        concerns.append(position)
        if not self._began:
            self._began = self._fanout.now()
        self._fanout.pump.add(self)

    # -- called by watchers

    def enter(self, watcher: Watcher) -> None:
        """Take a watcher whose cursor is set."""
        self.members[watcher] = None
        self.want(watcher)

    def want(self, watcher: Watcher) -> None:
        """Serve a watcher that is not synced in the next pass."""
        watcher.queued = True
        self._ready.append(watcher)
        self._fanout.pump.add(self)

    def leave(self, watcher: Watcher) -> None:
        """Forget a watcher."""
        watcher.ended = True
        watcher.synced = False
        self.members.pop(watcher, None)
        self._synced.pop(watcher, None)
        if len(self.members) <= 1:
            self._initial.clear()
        if not self.members:
            self._fanout.forget(self)

    def drop(self, watcher: Watcher, data: bytes) -> None:
        """End one watch with these bytes."""
        self._finish(watcher, data)

    def flush(self, watcher: Watcher) -> None:
        """Write the events of the current pass that a watcher has not got yet."""
        place = self._owed(watcher)
        if watcher.synced and place >= 0:
            self._todo[place] = None
            watcher.sink.write(self._data)

    def _owed(self, watcher: Watcher) -> int:
        """Return the index of a watcher that the pass under way has not written to yet; -1 for another watcher."""
        todo = self._todo
        if not self._places and todo:  # of many that end in one pass each is found at once
            self._places = {one: place for place, one in enumerate(todo) if one is not None}
        place = self._places.get(watcher, -1)
        return place if place >= self._at and todo[place] is not None else -1

    def revision_of(self, watcher: Watcher) -> int:
        """Return the revision up to which a watcher was served."""
        if not watcher.synced:
            lost = watcher.cursor < self._fanout.history.first
            return watcher.reached if lost else self._fanout.revision_before(watcher.cursor)
        return self._fanout.revision_before(self._start if self._owed(watcher) >= 0 else self.cursor)

    # -- called by the pump

    @property
    def busy(self) -> bool:
        """True if there is work now."""
        if self._staging is not None and self._staging.waiting:
            return bool(self._todo)
        if self._todo or self._ready:
            return True
        return bool(self._synced) and (self._due or bool(self._concerns))

    @property
    def oldest(self) -> int:
        """The position before which all members were served."""
        behind = (watcher.cursor for watcher in self.members if not watcher.synced)
        return min((self._start if self._todo else self.cursor, *behind))

    def step(self, budget: int) -> int:
        """Go on with the pass, open the next, or serve one watcher that is behind."""
        if self._todo:
            return self._deliver(budget)
        if self._staging is not None and self._staging.waiting:
            return 1
        if self._open_pass():
            return _BLOCK_COST
        if self._ready:
            return self._serve(self._ready.popleft())
        return 1

    def rest(self) -> None:
        """Drop frames: no watcher catches up."""
        self._blocks.clear()
        if self._staging is not None:
            self._staging.rest()

    def fail(self, error: Exception) -> bool:
        """End all watches with the group's ERROR for an exception, if it has one."""
        self._over()
        told = self._told(error)
        self.end(told)
        return bool(told)

    def _told(self, error: Exception) -> bytes:
        return self.spec.fault(error) if self.spec.fault is not None else b""

    def _abort(self, data: bytes) -> None:
        """End all watches with these bytes, after their frames."""
        for watcher in list(self._synced):
            self.flush(watcher)
        self.end(data)

    def end(self, data: bytes | None, oldest: int = 0) -> None:
        """End all watches with these bytes; None: with the group's 410, each at its revision."""
        for watcher in list(self.members):
            self._finish(watcher, data, oldest)

    def bookmark_soon(self) -> None:
        """Write a bookmark to watchers that requested them, after the pass under way."""
        self._due = True
        self._initial.clear()
        oldest = self._fanout.history.first
        for watcher in [watcher for watcher in self.members if not watcher.synced and watcher.cursor < oldest]:
            self._leave_behind(watcher)
        self._fanout.pump.add(self)

    # -- passes

    def _open_pass(self) -> bool:
        history, concerns = self._fanout.history, self._concerns
        if not self._synced:
            self._due = False
            self._settle(history.end)
            return False
        if concerns and concerns[0] < history.first:
            for watcher in list(self._synced):
                self._leave_behind(watcher)
            return True
        self._start = self.cursor
        if concerns:
            stop, self._data = self._block(concerns, concerns[0], history.end)
            self._settle(stop)
            if self._data:
                self._todo = list(self._synced)
            return True
        if self._due:
            self._due = False
            self._data = self.spec.bookmark(self._fanout.revision_before(self.cursor), False)
            now = asyncio.get_running_loop().time()
            self._todo = [watcher for watcher in self._synced if watcher.marked_from <= now]
            return True
        return False

    def _settle(self, stop: int) -> None:
        """Forget the changes before a position."""
        concerns = self._concerns
        while concerns and concerns[0] < stop:
            concerns.popleft()
        if not concerns and not self._data:
            self._began = 0.0

    def _deliver(self, limit: int) -> int:
        data, start = self._data, self._at
        stop = min(start + limit, len(self._todo))
        for watcher in self._todo[start:stop]:
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
        self._at = stop
        if stop == len(self._todo):
            self._over()
            if self._began:
                if self._fanout.delays is not None:
                    self._fanout.delays.observe(perf_counter() - self._began)
                self._began = 0.0
        return stop - start

    def _over(self) -> None:
        self._todo = []
        self._places = {}
        self._at = 0
        self._data = b""

    def _serve(self, watcher: Watcher) -> int:
        watcher.queued = False
        if watcher.ended or watcher.synced:
            return 1
        if watcher.cursor < self._fanout.history.first:
            self._leave_behind(watcher)
        elif not watcher.sink.paused and self._step(watcher) and not watcher.ended:
            watcher.queued = True
            self._ready.append(watcher)
        return 2

    def _step(self, watcher: Watcher) -> bool:
        """Go on with one that is behind; a past that cannot be shown any more is too old, for that watcher alone."""
        try:
            return watcher.step()
        except Exception as error:
            if watcher.beginning or not self._told(error):
                raise
            self._finish(watcher, None, self._fanout.revision_before(self.cursor))
            return False

    def catch_up(self, watcher: Watcher) -> bool:
        """Write one block to a watcher that is behind; return whether it still is."""
        if watcher.cursor < self.cursor:
            watcher.cursor, data = self._block(range(watcher.cursor, self.cursor), watcher.cursor, self.cursor)
            if data:
                watcher.sink.write(data)
        if watcher.cursor < self.cursor:
            return True
        if watcher.cursor > self.cursor:  # older changes are still being converted, and the group would deliver them
            assert isinstance(self._source, ConvertedRoutes)
            self._source.when_further(partial(self.want, watcher))
            return False
        watcher.synced = True  # the group is at the end of its source when one that is behind is served
        self._synced[watcher] = None
        return False

    def _leave_behind(self, watcher: Watcher) -> None:
        """End and count the watch of a client that reads too slowly: its next change is no longer kept."""
        if self._fanout.left_behind is not None:
            self._fanout.left_behind.value += 1
        self._finish(watcher, None)

    def _finish(self, watcher: Watcher, data: bytes | None, oldest: int = 0) -> None:
        if data is None:
            data = self.spec.expired(self.revision_of(watcher), oldest or self._fanout.history.floor)
        self.leave(watcher)
        self._fanout.pump.end(watcher.sink, data)

    # -- frames

    def _block(self, positions: Sequence[int], start: int, stop: int) -> tuple[int, bytes]:
        """Return the frames of the changes from ``start`` on, and where the block ends, at most ``stop``.

        ``positions`` are those of the changes in between that may be selected.
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
            seen = event_of(spec, change) if self._staging is None or self._staging.concerns(change.entry) else None
            position = at + 1
            if seen is not None:
                frame = spec.frame(*seen)
                frames.append(frame)
                size += len(frame)
        if position == start:
            return start, b""
        block = position, frames[0] if len(frames) == 1 else b"".join(frames)
        if len(self._blocks) >= limits.BLOCKS_KEPT:
            self._blocks.clear()
        self._blocks[start] = block
        return block

    def _second(self) -> int:
        """Return the second for which frames are cached, 0 where they show no ages."""
        return self.spec.second() if self.spec.second is not None else 0

    def _change(self, position: int, positions: Iterable[int]) -> Change | None:
        """Return a change as the group shows it; None: wait. ``positions``: its own and those to come in the block."""
        history, staging, of = self._fanout.history, self._staging, self.spec.namespace
        change = history.at(position)
        if staging is None or (of is not None and change.entry.namespace != of) or not staging.concerns(change.entry):
            return change
        following = (history.at(at) for at in positions)
        inside = (one for one in following if of is None or one.entry.namespace == of)
        return staging.change(change, self.spec.selects is not None, inside)

    def initial(self, piece: Piece) -> tuple[int, bytes] | None:
        """Return the ADDED frames of a piece of the state and where they end in it; None: wait.

        They are made once for all watchers that begin at that state, once a second where they show ages. Those of a
        watcher that is alone are not cached.
        """
        second = self._second()
        known = self._initial.find(piece, second)
        if known is not None:
            return known
        entries = piece.chunk.entries[piece.start : piece.stop]
        shown: Sequence[Entry | None] | None = entries
        if self._staging is not None:
            shown = self._staging.shown(entries)
        if shown is None:
            return None
        made = self._added(piece, shown, self.spec.selects)
        if self._staging is not None and made[0] < piece.stop:
            done = made[0] - piece.start
            self._staging.keep(entries[done:], shown[done:])
        if len(self.members) > 1:
            self._initial.keep(piece, made, second)
        return made

    def added(self, piece: Piece) -> tuple[int, bytes]:
        """Return the ADDED frames of a piece of selected objects, and their end in the piece."""
        return self._added(piece, piece.chunk.entries[piece.start : piece.stop], None)

    def _added(
        self, piece: Piece, entries: Sequence[Entry | None], selects: Callable[[Entry], bool] | None
    ) -> tuple[int, bytes]:
        """Continue until the turn ends; entries have their positions of the piece, None for objects not selected."""
        show, frames = self.spec.first or partial(self.spec.frame, "ADDED"), list[bytes]()
        loop_budget = LoopBudget()
        for stop, entry in enumerate(entries, piece.start + 1):
            if entry is not None and (selects is None or selects(entry)):
                frames.append(show(entry))
            if loop_budget.exhausted:
                return stop, b"".join(frames)
        return piece.stop, b"".join(frames)


class Fanout:
    """All groups of one collection."""

    def __init__(
        self,
        history: History,
        progress: Reached,
        pump: Pump,
        delays: Distribution | None = None,
        left_behind: Slot | None = None,
    ) -> None:
        self.delays = delays
        self.left_behind = left_behind
        self.history = history
        self.progress = progress
        self.pump = pump
        self._groups: dict[Hashable, Group] = {}
        self._published = 0.0
        self._routes = Routes()
        self._converted: dict[Hashable, ConvertedRoutes] = {}  # by version

    def publish(self, change: Change) -> None:
        """Append a change to the history and deliver it to the groups that it may concern."""
        self._published = 0.0
        self.history.append(change)
        self._routes.deliver(self.history.end - 1, change)

    def now(self) -> float:
        """Return perf_counter at the change that is being published: read once for all groups that it concerns."""
        self._published = self._published or perf_counter()
        return self._published

    def attach(self, spec: WatchGroup, sink: Sink, bookmarks: bool, cursor: int) -> tuple[Group, Watcher]:
        """Return a new watcher at a position of the history, not yet entered in its group."""
        group = self._groups.get(spec.key)
        if group is None:
            group = self._groups[spec.key] = self._routed(spec)
        watcher = Watcher(group, sink, bookmarks)
        watcher.cursor = cursor
        watcher.reached = self.revision_before(cursor)
        return group, watcher

    def _routed(self, spec: WatchGroup) -> Group:
        """Return a new group to which changes are delivered."""
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

    def _unrouted(self, group: Group) -> None:
        spec = group.spec
        if spec.converted is None:
            self._routes.remove(group, spec.namespace, spec.route)
            return
        version, _, term = spec.converted
        if self._converted[version].remove(group, spec.namespace, spec.route, term):
            del self._converted[version]

    def revision_before(self, position: int) -> int:
        """Return the revision up to which everything lies before a position."""
        history = self.history
        if position >= history.end:
            return self.progress.revision
        return history.at(position).revision - 1 if position >= history.first else history.floor

    def bookmarks(self) -> None:
        """Let every group write its periodic bookmark."""
        self.history.relax()
        self.history.age(min((group.oldest for group in self._groups.values()), default=self.history.end))
        for group in list(self._groups.values()):  # one that ends its last watch goes
            group.bookmark_soon()

    def end(self, data: bytes | None, oldest: int = 0, versions: Container[str] | None = None) -> None:
        """End all watches, or those of some versions, with these bytes.

        None: each with its 410, which names the oldest revision left.
        """
        for group in list(self._groups.values()):
            if versions is None or group.spec.version in versions:
                group.end(data, oldest)

    def forget(self, group: Group) -> None:
        """Drop a group that has no watchers."""
        if self._groups.get(group.spec.key) is group:
            del self._groups[group.spec.key]
            self._unrouted(group)

    @property
    def busy(self) -> bool:
        """True if a watcher that can be written to has events left."""
        works: Iterable[Work] = chain(self._converted.values(), self._groups.values())
        return any(work.busy for work in works)

    @property
    def watchers(self) -> int:
        """How many watches are open."""
        return sum(len(group.members) for group in self._groups.values())
