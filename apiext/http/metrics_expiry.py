"""Expiry of metrics and caches of deleted definitions.

The metrics expire so late that scrapers have read their last values.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence

from apiext.catalog.served import Catalog, LiveCatalog
from apiext.storage.heap import HEAP
from apiext.telemetry import IsDeleted

# Seconds between checks for metrics of deleted resources; the second check after a deletion removes the metrics.
EXPIRE_EVERY = 60.0

_SIZE = 250  # approximate memory of a dropped metric in bytes

DropDeleted = Callable[[IsDeleted], Iterator[None]]
"""Drops the state of deleted groups and resources; yields often. The resource name "" stands for the whole group."""


class MetricsExpiry:
    """Drops the state of resources that were not served at two consecutive checks.

    The checks are EXPIRE_EVERY seconds apart.
    """

    def __init__(self, live: LiveCatalog, parts: Sequence[DropDeleted]) -> None:
        self._live = live
        self._parts = parts
        self._dropped = 0
        self._before: set[tuple[str, str]] = set()  # (group, resource) not served at the previous check
        self._missing: set[tuple[str, str]] = set()  # (group, resource) not served at this check
        self._handle: asyncio.Handle | None = None

    def start(self) -> None:
        """Start the checks."""
        self._handle = asyncio.get_running_loop().call_later(EXPIRE_EVERY, self._step, self.check())

    def stop(self) -> None:
        """Stop the checks."""
        if self._handle is not None:
            self._handle.cancel()

    def check(self) -> Iterator[None]:
        """Check once, in steps: the caller can yield to the event loop after each step."""
        for part in self._parts:
            yield from part(self._is_deleted)
        self._before, self._missing = self._missing, set()
        HEAP.freed(self._dropped * _SIZE)
        self._dropped = 0

    def _is_deleted(self, group: str, resource: str) -> bool:
        """Report whether a resource or group was not served at this check and the previous check."""
        catalog = self._live.current
        if not group or group.startswith("."):  # the core group, or the group of the server's own objects
            return False
        if catalog.resource(group, resource) is not None if resource else group in self._groups():
            return False
        self._missing.add((group, resource))
        deleted = (group, resource) in self._before
        self._dropped += deleted
        return deleted

    def _groups(self) -> frozenset[str]:
        found: frozenset[str] = self._live.current.compute_once("http.groups served", _groups_of)
        return found

    def _step(self, check: Iterator[None]) -> None:
        ended = True
        try:
            ended = next(check, self) is self
        finally:  # after an exception of this check, the next check starts as usual
            if ended:
                self.start()
            else:
                self._handle = asyncio.get_running_loop().call_soon(self._step, check)


def _groups_of(catalog: Catalog) -> frozenset[str]:
    return frozenset(group for group, _ in catalog.resources)
