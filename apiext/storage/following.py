"""The recent changes of one resource, and the watches and listeners that they are delivered to."""

import asyncio
import logging
from collections.abc import Callable, Container

from apiext.meta.names import GroupResource
from apiext.storage.fanout import Fanout
from apiext.storage.history import Change, History
from apiext.storage.metrics import DISPATCH, LEFT_BEHIND
from apiext.storage.progress import Reached
from apiext.storage.pump import Pump

log = logging.getLogger(__name__)

Listener = Callable[[Change], None]


class Following:
    """The recent changes of one resource, its watches, and its listeners in this server.

    ``floor`` is the revision of the last load, ``undelivered`` that of the last change whose value cannot be read: no
    watcher gets it. Each function in ``on_replaced`` is called with the stored bytes that a change replaced.
    """

    def __init__(self, resource: GroupResource, progress: Reached, pump: Pump) -> None:
        names = (resource.group, resource.resource)
        self.history = History(0)
        self.fanout = Fanout(self.history, progress, pump, DISPATCH.slot(*names, "total"), LEFT_BEHIND.slot(*names))
        self.backfilling = asyncio.Lock()
        self.floor = 0
        self.undelivered = 0
        self.on_replaced: list[Callable[[bytes], None]] = []
        self.listeners: list[Listener] = []
        self._resource = resource

    def unchanged_since(self, revision: int) -> bool:
        """Report whether no change after the revision is known."""
        return max(self.floor, self.undelivered) <= revision and self.history.unchanged_since(revision)

    def subscribe(self, listener: Listener) -> Callable[[], None]:
        """Call the listener with every change, in order; return a function that ends this.

        A fill and a re-fill bring their differences as changes, a first fill one ADDED per object.
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
        """Call one listener; its fault is logged."""
        try:
            listener(change)
        except Exception:  # outermost: a listener's fault must not cost other listeners their events
            log.exception("a listener of %s failed", self._resource)

    def restart(self, revision: int) -> None:
        """Begin the history anew at a revision; all watches end with 410."""
        self.fanout.end(None, revision)
        self.history.reset(revision)
        self.floor = revision

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
        """The number of open watches."""
        return self.fanout.watchers
