"""Words of the store: entries, guards, outcomes, and how a read or a write can fail.

Keys are etcd keys as text; a revision is etcd's mod_revision, which is the resourceVersion.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import orjson
from msgspec import Struct

from apiext.documents.encoding import encode
from apiext.meta.names import GroupResource
from apiext.storage import limits
from apiext.storage.keys import relative
from apiext.storage.shelf import Shelf, can_be_shelved

Viewer = Callable[[bytes, int], bytes]
"""(stored bytes, revision) → the JSON that a client of one served version sees, without a newline.

A viewer is a value of the catalog: a new schema generation has a new viewer, so remembered views of the old one die.
"""


_MEMBER = len('"resourceVersion":"",')
_BEGINNING = 96  # bytes in which the apiVersion of nearly every object ends, and before any resourceVersion
_DEAR = 16 * 1024  # bytes that take longer to copy than to find


class Entry(Struct, eq=False, gc=False):
    """One object at the revision that wrote it: its stored bytes, and values that are derived from them lazily.

    After a list its bytes are mostly in a shelf, and an entry cuts them out again when they are needed.

    Python's garbage collector does not track entries (``gc=False``): there is one for each object, and a collection of
    200,000 took as long as a slow request. So no entry may be part of a reference cycle. It refers to texts, bytes,
    a shelf and a viewer, and none of these refers to entries.
    """

    namespace: str
    name: str
    revision: int
    _raw: bytes | Shelf
    _seen: tuple[Viewer, bytes] | None = None
    _labels: dict[str, str] | None = None

    def __repr__(self) -> str:  # without the object, which may be a secret
        return f"{type(self).__name__}({relative(self.namespace, self.name)!r}, {self.revision})"

    @property
    def raw(self) -> bytes:
        """The stored bytes."""
        raw = self._raw
        return raw if isinstance(raw, bytes) else raw.stored(relative(self.namespace, self.name), self.revision)

    @property
    def size(self) -> int:
        """How many they are."""
        raw = self._raw
        if isinstance(raw, bytes):
            return len(raw)
        return raw.size(relative(self.namespace, self.name), self.revision)

    def view(self, viewer: Viewer) -> bytes:
        """Return the entry as the viewer's version shows it; the last version asked for is remembered.

        Not so a small one that looks as if only the resourceVersion was put in: that is as quickly done again.
        """
        seen = self._seen
        if seen is not None and seen[0] is viewer:
            return seen[1]
        raw, revision = self._raw, self.revision
        if not isinstance(raw, bytes):
            key = relative(self.namespace, self.name)
            if raw.viewer is viewer:
                return raw.view(key)
            raw = raw.stored(key, revision)
        view = viewer(raw, revision)
        if len(raw) > _DEAR or not _spliced(raw, view, revision):
            self.remember(viewer, view)
        return view

    def remember(self, viewer: Viewer, view: bytes) -> None:
        """Cache a view that is made already, such as the response of a write of this server."""
        # a copy: what orjson writes holds a multiple of its length for as long as it is kept
        self._seen = viewer, b"%b" % view
        _WARM.keep(self, len(view))

    def shown(self, viewer: Viewer) -> bytes:
        """Return the view without remembering it: a list keeps its bytes joined."""
        seen = self._seen
        if seen is not None and seen[0] is viewer:
            return seen[1]
        raw = self._raw
        if isinstance(raw, bytes):
            return viewer(raw, self.revision)
        if raw.viewer is viewer:
            return raw.view(relative(self.namespace, self.name))
        return viewer(self.raw, self.revision)

    def unshelve(self, of: Shelf | None = None) -> Shelf | None:
        """Copy the entry's bytes out of its shelf; return the shelf, None without one, or if it is not ``of``."""
        raw = self._raw
        if isinstance(raw, bytes) or (of is not None and of is not raw):
            return None
        self._raw = self.raw
        raw.left -= 1
        return raw

    def forget(self) -> None:
        """Drop the remembered view."""
        if self._seen is not None:
            self._seen = None
            _WARM.drop(self)

    @property
    def labels(self) -> dict[str, str]:
        """metadata.labels, read from the stored bytes once."""
        if self._labels is None:
            self._labels = _labels_of(self.raw)
        return self._labels

    def with_revision(self, revision: int) -> "Entry":
        """Return the same state under another revision (the DELETED event, RV-011)."""
        return Passing(self.namespace, self.name, revision, self.raw)

    def decoded(self, decode: Callable[[bytes, int], dict[str, Any]]) -> dict[str, Any]:
        """Return the object as the decoder of a version makes it."""
        return decode(self.raw, self.revision)


class Passing(Entry, gc=False):
    """An entry outside of collections, such as an answer or the last state of a deleted object: it keeps its view."""

    def remember(self, viewer: Viewer, view: bytes) -> None:
        """Keep a view as long as the entry is there."""
        self._seen = viewer, b"%b" % view


def stored(entries: Sequence[Entry]) -> list[bytes]:
    """Return the stored bytes of entries."""
    return [raw if isinstance(raw := entry._raw, bytes) else entry.raw for entry in entries]


def bytes_of(entries: Sequence[Entry]) -> int:
    """Return how many bytes entries have as they are stored."""
    return sum([len(raw) if isinstance(raw := entry._raw, bytes) else entry.size for entry in entries])


def shelve(shelf: Shelf, entries: Sequence[Entry], views: Sequence[bytes]) -> int:
    """Let entries have their bytes in the shelf of their views, if they can be cut out again; returns bytes freed."""
    viewer, count, freed = shelf.viewer, 0, 0
    for entry, view in zip(entries, views, strict=True):
        raw = entry._raw
        if isinstance(raw, Shelf) and raw.viewer is viewer:
            entry._raw = shelf
            count += 1
        elif can_be_shelved(entry.raw, view, entry.revision):
            entry._raw = shelf
            count += 1
            freed += len(view)
            seen = entry._seen
            if seen is not None and seen[0] is viewer:
                entry.forget()
    shelf.left = count
    return freed


def _spliced(raw: bytes, view: bytes, revision: int) -> bool:
    """Report whether a view seems to be the stored bytes with a resourceVersion, with or without their newline.

    A view of another version may be as long, but begins with another apiVersion.
    """
    more = len(view) - len(raw) - _MEMBER - len(str(revision))
    return more in (0, -1) and view.startswith(raw[:_BEGINNING])


class Made(Protocol):
    """A view for any revision (apiext.catalog.converted.Converted)."""

    def at(self, revision: int) -> bytes:
        """Return the object's JSON with a resourceVersion."""


class Ready:
    """A view that is there already."""

    __slots__ = ("_revision", "_view")

    def __init__(self, view: bytes, revision: int) -> None:
        self._view = view
        self._revision = revision

    def at(self, revision: int) -> bytes:
        """Return it, which is written anew for another revision."""
        if revision == self._revision:
            return self._view
        document: dict[str, Any] = orjson.loads(self._view)
        document.setdefault("metadata", {})["resourceVersion"] = str(revision)
        return encode(document)


class Shown(Entry, gc=True, kw_only=True):
    """An entry with its view of one version, which is kept as long as the entry."""

    _viewer: Viewer
    _made: Made

    @classmethod
    def of(cls, entry: Entry, viewer: Viewer, made: Made) -> "Shown":
        """Return an entry with a view that is made already."""
        return cls(entry.namespace, entry.name, entry.revision, entry._raw, _viewer=viewer, _made=made)

    def view(self, viewer: Viewer) -> bytes:
        """Return the view; of another version nothing is remembered."""
        return self.shown(viewer)

    def shown(self, viewer: Viewer) -> bytes:
        """Return the view."""
        return self._made.at(self.revision) if self._viewer is viewer else viewer(self.raw, self.revision)

    @property
    def labels(self) -> dict[str, str]:
        """metadata.labels of the view, which may not be those that are stored."""
        if self._labels is None:
            self._labels = _labels_of(self._made.at(self.revision))
        return self._labels

    def with_revision(self, revision: int) -> Entry:
        """Return the same view under another revision."""
        shown = Shown.of(self, self._viewer, self._made)
        shown.revision = revision
        return shown

    def decoded(self, decode: Callable[[bytes, int], dict[str, Any]]) -> dict[str, Any]:
        """Return the view as a document."""
        document: dict[str, Any] = orjson.loads(self._made.at(self.revision))
        return document


class ShownOnce:
    """Entries as versions show them, for the watches that ask for their labels or fields: each is read once for all.

    Together they have at most limits.SHOWN_BYTES, those used last, and none stays longer than limits.SHOWN_KEPT.
    """

    __slots__ = ("_bytes", "_kept")

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[Viewer, Entry], tuple[Shown, int]] = OrderedDict()
        self._bytes = 0

    def find(self, entry: Entry, viewer: Viewer) -> Shown | None:
        """Return an entry as a viewer has shown it to another watch."""
        found = self._kept.get((viewer, entry))
        if found is None:
            return None
        self._kept.move_to_end((viewer, entry))
        return found[0]

    def keep(self, entry: Entry, viewer: Viewer, view: bytes) -> Shown:
        """Return an entry as it is shown, and find it for other watches."""
        found = self.find(entry, viewer)
        if found is not None:
            return found
        if not self._kept:
            asyncio.get_running_loop().call_later(limits.SHOWN_KEPT, self.clear)
        found = Shown.of(entry, viewer, Ready(view, entry.revision))
        self._kept[viewer, entry] = found, len(view)
        self._bytes += len(view)
        while self._bytes > limits.SHOWN_BYTES and len(self._kept) > 1:
            self._bytes -= self._kept.popitem(last=False)[1][1]
        return found

    def clear(self) -> None:
        """Drop all."""
        self._kept.clear()
        self._bytes = 0


def held(entries: Sequence[Entry], viewer: Viewer, made: Sequence[Made]) -> list[Entry]:
    """Return entries with views that they keep."""
    return [Shown.of(entry, viewer, one) for entry, one in zip(entries, made, strict=True)]


class _WarmViews:
    """The entries that remember a view, oldest first; together at most limits.VIEW_BYTES."""

    def __init__(self) -> None:
        self._entries: OrderedDict[Entry, int] = OrderedDict()
        self._bytes = 0

    def keep(self, entry: Entry, size: int) -> None:
        self.drop(entry)
        self._entries[entry] = size
        self._bytes += size
        while self._bytes > limits.VIEW_BYTES and self._entries:
            old, freed = self._entries.popitem(last=False)
            self._bytes -= freed
            old._seen = None

    def drop(self, entry: Entry) -> None:
        self._bytes -= self._entries.pop(entry, 0)


_WARM = _WarmViews()


def _labels_of(raw: bytes) -> dict[str, str]:
    if b'"labels"' not in raw:
        return {}
    try:
        metadata: Any = orjson.loads(raw)["metadata"]
        return dict(metadata.get("labels") or {})
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}


class Guard(NamedTuple):
    """A key that must still have this mod_revision when a write commits."""

    key: str
    revision: int


class StoreError(Exception):
    """The world got in the way."""


class KeyExists(StoreError):
    """A create met the object ``current``."""

    def __init__(self, current: Entry) -> None:
        super().__init__(current.name)
        self.current = current


class RevisionChanged(StoreError):
    """A compare failed; ``current`` is the present object, None if there is none."""

    def __init__(self, current: Entry | None) -> None:
        super().__init__(current.revision if current else None)
        self.current = current


class GuardChanged(StoreError):
    """The definition or the namespace of the write changed: its guard has this key."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


class Compacted(StoreError):
    """The revision asked for is no longer in the store; ``oldest`` is the first that is (0: unknown)."""

    def __init__(self, asked: int, oldest: int = 0) -> None:
        super().__init__(asked, oldest)
        self.asked = asked
        self.oldest = oldest


class FutureRevision(StoreError):
    """The revision asked for has not happened; ``current`` is the newest, ``again`` after how many seconds to try."""

    def __init__(self, asked: int, current: int, again: int = 1) -> None:
        super().__init__(asked, current, again)
        self.asked = asked
        self.current = current
        self.again = again


class Fault(NamedTuple):
    """Why a stored value cannot be read: its etcd key, that key below the prefix, the value's revision, the reason.

    ``undecryptable``: the value cannot be decrypted, so its encoding is unknown.
    """

    key: str
    place: str
    revision: int
    reason: str
    undecryptable: bool = False

    def __str__(self) -> str:
        if self.undecryptable:  # upstream: transformers know no revision
            return f"data from the storage is not transformable revision=0: {self.reason}"
        return f"object not decodable revision={self.revision}: {self.reason}"


class Malformed(StoreError):
    """Stored values cannot be read, so neither can their objects nor a list that contains them (RV-020, ETC-006).

    ``faults`` has at least one, in key order, at most limits.ERRORS_LISTED. ``listed``: a list met them; a read of one
    object otherwise.
    """

    def __init__(self, faults: Sequence[Fault], resource: GroupResource, *, listed: bool = False) -> None:
        super().__init__(faults, resource)
        self.faults = faults
        self.resource = resource
        self.listed = listed
        self.key, _, self.revision, self.reason, _ = faults[0]

    def __str__(self) -> str:
        more = f" (and {len(self.faults) - 1} more)" if len(self.faults) > 1 else ""
        return f"{self.key} cannot be read: {self.reason}{more}"


class Undecryptable(Malformed):
    """The first of the values is one that no key decrypts (OPS-003)."""


class TooLarge(StoreError):
    """etcd refuses a value of this size (WRI-023)."""


class OutOfSpace(StoreError):
    """etcd is over its quota."""


class Corrupt(StoreError):
    """etcd's members disagree, so it takes no writes; nothing was written."""


class Unavailable(StoreError):
    """The store did not answer; nothing was written."""


class Overloaded(Unavailable):
    """etcd has more to do than it takes on; nothing was written."""


class NotEncrypted(Unavailable):
    """A value could not be encrypted, so it was not written (OPS-003)."""


class NotReady(Unavailable):
    """The collection is not filled yet, or was dropped (RV-019)."""


class UnknownOutcome(StoreError):
    """A write was sent, and its outcome is unknown: the response is a 504, never a guess."""
