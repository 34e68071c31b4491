"""The history of a run: acknowledged writes, reads, and the events of each watcher."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Write:
    """An acknowledged write: the object, the revision in the response, and its unique token."""

    name: str
    revision: int
    token: str


@dataclass(frozen=True)
class Read:
    """A consistent read: the oldest allowed revision (``floor``) and the returned revision.

    ``floor`` is the newest revision that was acknowledged before the read was sent.
    """

    what: str
    floor: int
    shown: int


@dataclass(frozen=True)
class Delivered:
    """An event that a watcher received."""

    kind: str
    name: str
    revision: int


@dataclass
class Watched:
    """The events of a watcher that resumes; ``since`` is the revision at its beginning."""

    since: int
    events: list[Delivered] = field(default_factory=list)
    resumed: int = 0


@dataclass
class History:
    """The records of a run. Threads only append to the lists, so they need no lock for them."""

    writes: list[Write] = field(default_factory=list)
    deleted: list[str] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    watched: list[Watched] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    unknown: int = 0
    kills: int = 0
    ready: list[float] = field(default_factory=list)
    _floors: dict[str, int] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def acknowledge(self, write: Write) -> None:
        """Record an acknowledged write; later reads must contain it."""
        with self._lock:
            self.writes.append(write)
            for what in (write.name, ""):
                self._floors[what] = max(self._floors.get(what, 0), write.revision)

    def floor(self, name: str = "") -> int:
        """Return the newest acknowledged revision of an object, or of all objects."""
        return self._floors.get(name, 0)

    def unsure(self) -> None:
        """Record a write with an unknown outcome."""
        with self._lock:
            self.unknown += 1

    @property
    def resumed(self) -> int:
        """The number of times that a watcher resumed after a disconnect."""
        return sum(watched.resumed for watched in self.watched)
