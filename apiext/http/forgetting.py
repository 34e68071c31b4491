"""What was counted and remembered of a resource goes some time after its definition: by then it was read."""

import asyncio
from collections.abc import Callable, Iterator, Sequence

from apiext.catalog.served import Catalog, LiveCatalog
from apiext.storage.heap import HEAP
from apiext.telemetry import Gone

# Seconds between looks for metrics of deleted resources; the second look removes them.
FORGET_EVERY = 60.0

_SIZE = 250  # bytes of what is dropped at a time, about

Forget = Callable[[Gone], Iterator[None]]
"""Drops what belongs to groups and resources that are gone, no resource meaning the group; yields now and then."""


class Forgetting:
    """Looks every FORGET_EVERY seconds for what nobody serves, and drops what was so at the look before, too."""

    def __init__(self, live: LiveCatalog, parts: Sequence[Forget]) -> None:
        self._live = live
        self._parts = parts
        self._dropped = 0
        self._before: set[tuple[str, str]] = set()
        self._noticed: set[tuple[str, str]] = set()
        self._handle: asyncio.Handle | None = None

    def start(self) -> None:
        """Begin to look."""
        self._handle = asyncio.get_running_loop().call_later(FORGET_EVERY, self._turn, self.look())

    def stop(self) -> None:
        """Look no more."""
        if self._handle is not None:
            self._handle.cancel()

    def look(self) -> Iterator[None]:
        """Take one look; yields so that others get their turn."""
        for part in self._parts:
            yield from part(self._gone)
        self._before, self._noticed = self._noticed, set()
        HEAP.freed(self._dropped * _SIZE)
        self._dropped = 0

    def _gone(self, group: str, resource: str) -> bool:
        """Tell whether a resource, or a group, was not there at the look before either."""
        catalog = self._live.current
        if not group or group.startswith("."):  # not of a definition
            return False
        if catalog.resource(group, resource) is not None if resource else group in self._groups():
            return False
        self._noticed.add((group, resource))
        gone = (group, resource) in self._before
        self._dropped += gone
        return gone

    def _groups(self) -> frozenset[str]:
        """Return the groups that are served."""
        found: frozenset[str] = self._live.current.remember("http.groups served", _groups_of)
        return found

    def _turn(self, look: Iterator[None]) -> None:
        ended = True
        try:
            ended = next(look, self) is self
        finally:  # a look that stumbles is followed by another
            if ended:
                self.start()
            else:
                self._handle = asyncio.get_running_loop().call_soon(self._turn, look)


def _groups_of(catalog: Catalog) -> frozenset[str]:
    return frozenset(group for group, _ in catalog.resources)
