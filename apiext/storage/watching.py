"""Types of watching: a group of equal watchers, a sink, and the event of a change for a group."""

from collections.abc import Callable, Hashable
from typing import Protocol

from msgspec import Struct

from apiext.storage.converted_routes import ConvertedRoute
from apiext.storage.history import Change
from apiext.storage.indexes import Term
from apiext.storage.staging import Stage
from apiext.storage.store import Entry


class Sink(Protocol):
    """Where a watcher's bytes go; its owner calls ``Watcher.resume`` and ``Watcher.close``."""

    paused: bool
    """Set while the transport has too much waiting."""

    def write(self, data: bytes) -> None:
        """Send the bytes."""

    def end(self, data: bytes) -> None:
        """Send the bytes and end the stream; called once, also while paused."""


class WatchGroup(Struct, frozen=True):
    """A group of watchers with an equal ``key``, which share selection and frames.

    ``frame`` makes the bytes of an event on the wire, ``bookmark(revision, end of initial events)`` those of a
    BOOKMARK, ``expired(asked, oldest)`` those of the ERROR 410 that ends a watch which fell behind. ``version`` names
    those that end together. ``route`` is a condition without which nothing is selected, if there is a simple one;
    ``converted`` is a narrower one, of objects that have to be converted before it can be tested.
    ``first`` makes the frames of initial events if they differ from other frames.
    ``stage`` makes entries ready that cannot be shown at once, None when all can. ``fault`` makes the ERROR for what
    ``frame`` raised, empty if that was a bug. ``second`` returns the second of the wall clock where frames show ages:
    those made in another second are made again. None: frames show none.
    """

    key: Hashable
    namespace: str | None
    selects: Callable[[Entry], bool] | None
    frame: Callable[[str, Entry], bytes]
    bookmark: Callable[[int, bool], bytes]
    expired: Callable[[int, int], bytes]
    version: str = ""
    route: Term | None = None
    converted: ConvertedRoute | None = None
    first: Callable[[Entry], bytes] | None = None
    stage: Stage | None = None
    fault: Callable[[Exception], bytes] | None = None
    second: Callable[[], int] | None = None


# (matched before, matches now) → event; SEL-002
TRANSITIONS: dict[tuple[bool, bool], str] = {
    (False, True): "ADDED",
    (True, True): "MODIFIED",
    (True, False): "DELETED",
}


def event_of(group: WatchGroup, change: Change) -> tuple[str, Entry] | None:
    """Return the event that watchers of the group get for a change, None for no event (SEL-002, RV-011)."""
    kind, entry, previous, revision = change
    if group.namespace is not None and entry.namespace != group.namespace:
        return None
    selects = group.selects
    if selects is None:
        return kind, entry
    before = previous is not None and selects(previous)
    seen = TRANSITIONS.get((before, kind != "DELETED" and selects(entry)))
    if seen is None:
        return None
    if seen == "DELETED" and kind != "DELETED":
        assert previous is not None
        return seen, previous.with_revision(revision)
    return seen, entry
