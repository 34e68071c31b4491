"""The recent changes of one resource, and the watches and listeners that get them."""

import asyncio
import logging
from collections.abc import Callable, Container

from apiext.meta.names import GroupResource
from apiext.storage.fanout import Fanout
from apiext.storage.history import Change, History
from apiext.storage.metrics import DISPATCH, SLOW_ENDED
from apiext.storage.progress import Reached
from apiext.storage.pump import Pump

log = logging.getLogger(__name__)

Listener = Callable[[Change], None]


class ChangeFeed:
    """The recent changes, the watches and the listeners of one resource.

    Listeners are functions in this server. ``floor`` is the revision at which the collection was last filled.
    ``undelivered`` is the revision of the last change that no watch received, since its value, or the object that it
    deleted, could not be read. The functions in ``on_replaced`` are called with the stored bytes that a change replaced
    or deleted.
    """

    def __init__(self, resource: GroupResource, progress: Reached, pump: Pump) -> None:
        names = (resource.group, resource.resource)
        self.history = History(0)
        self.fanout = Fanout(self.history, progress, pump, DISPATCH.slot(*names, "total"), SLOW_ENDED.slot(*names))
        self.backfilling = asyncio.Lock()
        self.floor = 0
        self.undelivered = 0
        self.on_replaced: list[Callable[[bytes], None]] = []
        self.listeners: list[Listener] = []
        self._resource = resource

    def unchanged_since(self, revision: int) -> bool:
        """Report whether no change after the revision was applied; False if this is unknown."""
        return max(self.floor, self.undelivered) <= revision and self.history.unchanged_since(revision)

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call the listener with every later change, in order.

        Return a function that ends the subscription. The first fill calls the listener with ADDED for each object, a
        later fill with the differences.
        """
        self.listeners.append(listener)

        def end() -> None:
            if listener in self.listeners:
                self.listeners.remove(listener)

        return end

    def publish(self, change: Change) -> None:
        """Append a change to the history and deliver it to watches and listeners."""
        self.fanout.publish(change)
        if change.previous is not None:
            for evict in self.on_replaced:
                evict(change.previous.raw)
        if self.listeners:
            self.notify(change)

    def notify(self, change: Change) -> None:
        """Call all listeners with a change."""
        for listener in tuple(self.listeners):
            self.call(listener, change)

    def call(self, listener: Listener, change: Change) -> None:
        """Call one listener, and log its exception."""
        try:
            listener(change)
        except Exception:  # the error must not affect other listeners
            log.exception("a listener of %s failed", self._resource)

    def restart(self, revision: int) -> None:
        """Begin an empty history at a revision, and end all watches with 410."""
        self.fanout.end(None, revision)
        self.history.reset(revision)
        self.floor = revision

    def end_watches(self, versions: Container[str] | None = None) -> None:
        """End the watches of ``versions`` (None: all watches)."""
        self.fanout.end(b"", versions=versions)

    async def watches_served(self, timeout: float) -> None:
        """Wait until all changes are written to watches, at most ``timeout`` seconds.

        Watches with a full buffer do not count.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        while self.fanout.busy and loop.time() < deadline:  # noqa: ASYNC110 - the pump, too, works in turns of the loop
            await asyncio.sleep(0)

    @property
    def watchers(self) -> int:
        """The number of open watches."""
        return self.fanout.watchers
