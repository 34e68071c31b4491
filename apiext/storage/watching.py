"""Types of watches: the group, the sink of output, and the event of a change for a group."""

from collections.abc import Callable, Hashable
from typing import Protocol

from msgspec import Struct

from apiext.storage.converted_routes import ConvertedRoute
from apiext.storage.history import Change
from apiext.storage.indexes import Term
from apiext.storage.staging import Stage
from apiext.storage.store import Entry


class Sink(Protocol):
    """The output of a watcher.

    The owner of the sink calls ``Watcher.resume`` when ``paused`` becomes false, and ``Watcher.close`` when the client
    disconnects.
    """

    paused: bool
    """True while the buffer of the transport is full."""

    def write(self, data: bytes) -> None:
        """Send the bytes."""

    def end(self, data: bytes) -> None:
        """Send the bytes and end the stream. Called once, possibly while ``paused`` is true."""


class WatchGroup(Struct, frozen=True):
    """The properties of a watch that a group shares.

    Watchers with an equal ``key`` form a group.
    - ``namespace`` and ``selects`` restrict the watched objects; None: no restriction.
    - ``frame(type, entry)`` returns the bytes of an event.
    - ``bookmark(revision, end of initial events)`` returns the bytes of a BOOKMARK event.
    - ``expired(requested, oldest)`` returns the bytes of the ERROR 410 that ends a watch whose changes were dropped.
    - ``version`` is the name of the watched version. If its definition changes, the server ends all its watches.
    - ``route`` is a condition that holds for every selected object in its stored form. The fan-out uses it to find
      the groups of a change; if it is None, the fan-out tests each change in the namespace of the group.
    - ``converted`` is a narrower condition, which holds for every selected object after its conversion.
    - ``first(entry)`` returns the bytes of an initial event; None: ``frame`` returns them.
    - ``stage`` prepares entries for ``frame``, for example by a conversion; None if they need no preparation.
    - ``fault(exception)`` returns the bytes of the ERROR event for an exception of ``frame``, b"" for a bug.
    - ``second()`` returns the wall clock in whole seconds, since frames with the ages of objects (in tables) are valid
      for one second; None if frames contain no ages.
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
    """Return the event type and the entry that a group gets for a change, None for no event.

    See SEL-002, RV-011.
    """
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
