"""Words of the store: entries, guards, outcomes, and how a read or a write can fail.

Keys are etcd keys as text; a revision is etcd's mod_revision, which is the resourceVersion.
"""

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import orjson

from apiext import limits

Viewer = Callable[[bytes, int], bytes]
"""(stored bytes, revision) → the JSON that a client of one served version sees, without a newline.

A viewer is a value of the catalog: a new schema generation has a new viewer, so remembered views of the old one die.
"""


class Entry:
    """One object at the revision that wrote it: stored bytes, and what was derived from them lazily."""

    __slots__ = ("_labels", "_view", "_viewer", "name", "namespace", "raw", "revision")

    def __init__(self, namespace: str, name: str, revision: int, raw: bytes) -> None:
        self.namespace = namespace
        self.name = name
        self.revision = revision
        self.raw = raw
        self._viewer: Viewer | None = None
        self._view = b""
        self._labels: dict[str, str] | None = None

    def view(self, viewer: Viewer) -> bytes:
        """Return the entry as the viewer's version shows it; the last version asked for is remembered."""
        if self._viewer is viewer:
            return self._view
        view = viewer(self.raw, self.revision)
        self.remember(viewer, view)
        return view

    def remember(self, viewer: Viewer, view: bytes) -> None:
        """Keep a view that somebody made already (the answer of our own write)."""
        self._view = view
        self._viewer = viewer
        _WARM.keep(self, len(view))

    def shown(self, viewer: Viewer) -> bytes:
        """Return the view without remembering it: a list keeps its bytes joined."""
        return self._view if self._viewer is viewer else viewer(self.raw, self.revision)

    def forget(self) -> None:
        """Drop the remembered view."""
        self._view = b""
        self._viewer = None

    @property
    def labels(self) -> dict[str, str]:
        """metadata.labels, read from the stored bytes once."""
        if self._labels is None:
            self._labels = _labels_of(self.raw)
        return self._labels

    def with_revision(self, revision: int) -> "Entry":
        """Return the same state under another revision (the DELETED event, RV-011)."""
        return Entry(self.namespace, self.name, revision, self.raw)


class _WarmViews:
    """The entries that remember a view, oldest first; together at most limits.VIEW_BYTES."""

    def __init__(self) -> None:
        self._entries: deque[tuple[Entry, int]] = deque()
        self._bytes = 0

    def keep(self, entry: Entry, size: int) -> None:
        self._entries.append((entry, size))
        self._bytes += size
        while self._bytes > limits.VIEW_BYTES:
            old, freed = self._entries.popleft()
            self._bytes -= freed
            old.forget()


_WARM = _WarmViews()


def _labels_of(raw: bytes) -> dict[str, str]:
    if b'"labels"' not in raw:
        return {}
    try:
        metadata: Any = orjson.loads(raw)["metadata"]
        return dict(metadata.get("labels") or {})
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}


@dataclass(frozen=True, slots=True)
class Guard:
    """A key that must still have this mod_revision when a write commits."""

    key: str
    revision: int


class StoreError(Exception):
    """The world got in the way."""


class KeyExists(StoreError):
    """A create met an object; ``current`` is what is there."""

    def __init__(self, current: Entry) -> None:
        super().__init__(current.name)
        self.current = current


class RevisionChanged(StoreError):
    """A compare failed; ``current`` is what is there now, None when nothing is."""

    def __init__(self, current: Entry | None) -> None:
        super().__init__(current.revision if current else None)
        self.current = current


class GuardChanged(StoreError):
    """The definition behind the write changed: look at the catalog again."""


class Compacted(StoreError):
    """The revision asked for is no longer in the store; ``oldest`` is the first that is (0: unknown)."""

    def __init__(self, asked: int, oldest: int = 0) -> None:
        super().__init__(asked, oldest)
        self.asked = asked
        self.oldest = oldest


class FutureRevision(StoreError):
    """The revision asked for has not happened; ``current`` is the newest."""

    def __init__(self, asked: int, current: int) -> None:
        super().__init__(asked, current)
        self.asked = asked
        self.current = current


class Malformed(StoreError):
    """A stored value is not a JSON object, so its object and every list with it cannot be read (RV-020, ETC-006)."""

    def __init__(self, key: str, reason: str, revision: int = 0) -> None:
        super().__init__(key, reason, revision)
        self.key = key
        self.reason = reason
        self.revision = revision


class TooLarge(StoreError):
    """etcd refuses a value of this size (WRI-023)."""


class OutOfSpace(StoreError):
    """etcd is over its quota (reliability F-08)."""


class Unavailable(StoreError):
    """The store did not answer; nothing was written."""


class NotReady(Unavailable):
    """The collection is not filled yet, or was dropped (RV-019)."""


class UnknownOutcome(StoreError):
    """A write was sent and nobody can say whether it happened: answered 504, never guessed."""
