"""Types of the store: entries with cached views, guards, and errors of reads and writes.

A view is the JSON of an object as clients of one version get it. Joined views (joined_views.py) are the views of
several listed objects in one byte string. A guard is a key which a write requires to be unchanged. Keys are etcd keys
as strings. A revision is etcd's mod_revision, which is the resourceVersion.
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
from apiext.storage.joined_views import JoinedViews, can_be_cut_out
from apiext.storage.keys import relative

Viewer = Callable[[bytes, int], bytes]
"""(stored bytes, revision) → the JSON that a client of one served version gets, without a newline.

The catalog makes new viewers when a schema changes, so a view of an older viewer is never a cache hit.
"""


_FIELD_SIZE = len('"resourceVersion":"",')
# leading bytes that _spliced compares: they contain nearly every apiVersion, but no resourceVersion
_COMPARED = 96
_LARGE = 16 * 1024  # bytes of a stored object; the view of a larger object is cached, since a new view takes longer


class Entry(Struct, eq=False, gc=False):
    """One object at one revision: its stored bytes, and values derived from them on first use.

    After a list, most entries have no bytes of their own, but refer to the joined views of the list. Such an entry cuts
    its stored bytes out of the joined views when a caller reads them.

    Python's garbage collector does not track entries (``gc=False``), since visiting 200,000 entries takes as long as a
    slow request. So no entry may be part of a reference cycle. An entry refers to strings, bytes, labels,
    joined views and a viewer, and none of these refers to entries.
    """

    namespace: str
    name: str
    revision: int
    _raw: bytes | JoinedViews
    _cached: tuple[Viewer, bytes] | None = None
    _labels: dict[str, str] | None = None

    def __repr__(self) -> str:  # omits the object, which may be a secret
        return f"{type(self).__name__}({relative(self.namespace, self.name)!r}, {self.revision})"

    @property
    def raw(self) -> bytes:
        """The stored bytes."""
        raw = self._raw
        return raw if isinstance(raw, bytes) else raw.stored(relative(self.namespace, self.name), self.revision)

    @property
    def size(self) -> int:
        """The number of stored bytes."""
        raw = self._raw
        if isinstance(raw, bytes):
            return len(raw)
        return raw.size(relative(self.namespace, self.name), self.revision)

    def view(self, viewer: Viewer) -> bytes:
        """Return the view that ``viewer`` makes, and cache it. An entry has at most one cached view.

        If the view is part of joined views, it is not cached. A small view that only adds a resourceVersion to the
        stored bytes is not cached either, since making it again is as fast.
        """
        cached = self._cached
        if cached is not None and cached[0] is viewer:
            return cached[1]
        raw, revision = self._raw, self.revision
        if not isinstance(raw, bytes):
            key = relative(self.namespace, self.name)
            if raw.viewer is viewer:
                return raw.view(key)
            raw = raw.stored(key, revision)
        view = viewer(raw, revision)
        if len(raw) > _LARGE or not _spliced(raw, view, revision):
            self.cache_view(viewer, view)
        return view

    def cache_view(self, viewer: Viewer, view: bytes) -> None:
        """Cache an existing view, such as the response to a write."""
        # Copy the view, since a byte string from orjson occupies a multiple of its length in memory.
        self._cached = viewer, b"%b" % view
        _CACHED.keep(self, len(view))

    def uncached_view(self, viewer: Viewer) -> bytes:
        """Return the view without caching it, for lists, which cache joined views."""
        cached = self._cached
        if cached is not None and cached[0] is viewer:
            return cached[1]
        raw = self._raw
        if isinstance(raw, bytes):
            return viewer(raw, self.revision)
        if raw.viewer is viewer:
            return raw.view(relative(self.namespace, self.name))
        return viewer(self.raw, self.revision)

    def copy_out(self, of: JoinedViews | None = None) -> JoinedViews | None:
        """Give the entry its own bytes, copied out of its joined views. Return these joined views.

        If the entry has its own bytes, copy nothing and return None. The same holds if ``of`` is given and the entry
        refers to other joined views.
        """
        raw = self._raw
        if isinstance(raw, bytes) or (of is not None and of is not raw):
            return None
        self._raw = self.raw
        raw.users -= 1
        return raw

    def evict_view(self) -> None:
        """Evict the cached view."""
        if self._cached is not None:
            self._cached = None
            _CACHED.drop(self)

    @property
    def labels(self) -> dict[str, str]:
        """The metadata.labels of the stored object, which is parsed only once."""
        if self._labels is None:
            self._labels = _labels_of(self.raw)
        return self._labels

    def with_revision(self, revision: int) -> "Entry":
        """Return the same object with another revision, as a DELETED event needs it (RV-011)."""
        return DetachedEntry(self.namespace, self.name, revision, self.raw)

    def decoded(self, decode: Callable[[bytes, int], dict[str, Any]]) -> dict[str, Any]:
        """Return the object, decoded by the decoder of a version."""
        return decode(self.raw, self.revision)


class DetachedEntry(Entry, gc=False):
    """An entry outside of collections, such as a response or the last state of a deleted object.

    The entry keeps its view as long as it exists, and the view does not count towards limits.VIEW_BYTES.
    """

    def cache_view(self, viewer: Viewer, view: bytes) -> None:
        """Cache a view as long as the entry exists."""
        self._cached = viewer, b"%b" % view


def stored(entries: Sequence[Entry]) -> list[bytes]:
    """Return the stored bytes of entries."""
    return [raw if isinstance(raw := entry._raw, bytes) else entry.raw for entry in entries]


def bytes_of(entries: Sequence[Entry]) -> int:
    """Return the number of stored bytes of entries."""
    return sum([len(raw) if isinstance(raw := entry._raw, bytes) else entry.size for entry in entries])


def share_joined_views(joined: JoinedViews, entries: Sequence[Entry], views: Sequence[bytes]) -> int:
    """Replace the bytes of entries by a reference to their joined views.

    Return an estimate of the freed bytes. An entry whose stored bytes cannot be cut out of its view keeps its own
    bytes.
    """
    viewer, count, freed = joined.viewer, 0, 0
    for entry, view in zip(entries, views, strict=True):
        raw = entry._raw
        if isinstance(raw, JoinedViews) and raw.viewer is viewer:
            entry._raw = joined
            count += 1
        elif can_be_cut_out(entry.raw, view, entry.revision):
            entry._raw = joined
            count += 1
            freed += len(view)
            cached = entry._cached
            if cached is not None and cached[0] is viewer:
                entry.evict_view()
    joined.users = count
    return freed


def _spliced(raw: bytes, view: bytes, revision: int) -> bool:
    """Report whether a view is the stored bytes plus a resourceVersion.

    Compare its size and its first bytes. The stored bytes may end in a newline that the view lacks. A view of another
    version may have the same size, but begins with another apiVersion.
    """
    more = len(view) - len(raw) - _FIELD_SIZE - len(str(revision))
    return more in (0, -1) and view.startswith(raw[:_COMPARED])


class ViewSource(Protocol):
    """An object in one version, without its revision.

    An example is apiext.catalog.converted.Converted.
    """

    def at(self, revision: int) -> bytes:
        """Return the object's JSON with a resourceVersion."""


class EncodedView:
    """A view that was made for one revision."""

    __slots__ = ("_revision", "_view")

    def __init__(self, view: bytes, revision: int) -> None:
        self._view = view
        self._revision = revision

    def at(self, revision: int) -> bytes:
        """Return the view. Encode it again if the revision differs from that of the view."""
        if revision == self._revision:
            return self._view
        document: dict[str, Any] = orjson.loads(self._view)
        document.setdefault("metadata", {})["resourceVersion"] = str(revision)
        return encode(document)


class ViewedEntry(Entry, gc=True, kw_only=True):
    """An entry with its view in one version. The view exists as long as the entry."""

    _viewer: Viewer
    _source: ViewSource

    @classmethod
    def of(cls, entry: Entry, viewer: Viewer, source: ViewSource) -> "ViewedEntry":
        """Return an entry with an existing view."""
        return cls(entry.namespace, entry.name, entry.revision, entry._raw, _viewer=viewer, _source=source)

    def view(self, viewer: Viewer) -> bytes:
        """Return the view. A view of another version is not cached."""
        return self.uncached_view(viewer)

    def uncached_view(self, viewer: Viewer) -> bytes:
        """Return the view."""
        return self._source.at(self.revision) if self._viewer is viewer else viewer(self.raw, self.revision)

    @property
    def labels(self) -> dict[str, str]:
        """The metadata.labels of the view, which may differ from the stored labels."""
        if self._labels is None:
            self._labels = _labels_of(self._source.at(self.revision))
        return self._labels

    def with_revision(self, revision: int) -> Entry:
        """Return an entry with the same view and another revision."""
        entry = ViewedEntry.of(self, self._viewer, self._source)
        entry.revision = revision
        return entry

    def decoded(self, decode: Callable[[bytes, int], dict[str, Any]]) -> dict[str, Any]:
        """Return the parsed view."""
        document: dict[str, Any] = orjson.loads(self._source.at(self.revision))
        return document


class ConvertedEntries:
    """Cache of converted entries for watches with selectors.

    An entry is converted once for all watches. The views have at most limits.CONVERTED_CACHE_BYTES in total, but one
    view is cached even if it is larger. The least recently used view is evicted first. The cache is cleared
    limits.CONVERTED_CACHE_SECONDS seconds after its first entry.
    """

    __slots__ = ("_bytes", "_entries")

    def __init__(self) -> None:
        self._entries: OrderedDict[tuple[Viewer, Entry], tuple[ViewedEntry, int]] = OrderedDict()
        self._bytes = 0

    def find(self, entry: Entry, viewer: Viewer) -> ViewedEntry | None:
        """Return an entry with its cached view; None if the view is not cached."""
        found = self._entries.get((viewer, entry))
        if found is None:
            return None
        self._entries.move_to_end((viewer, entry))
        return found[0]

    def keep(self, entry: Entry, viewer: Viewer, view: bytes) -> ViewedEntry:
        """Return an entry with its view, and cache it."""
        found = self.find(entry, viewer)
        if found is not None:
            return found
        if not self._entries:
            asyncio.get_running_loop().call_later(limits.CONVERTED_CACHE_SECONDS, self.clear)
        found = ViewedEntry.of(entry, viewer, EncodedView(view, entry.revision))
        self._entries[viewer, entry] = found, len(view)
        self._bytes += len(view)
        while self._bytes > limits.CONVERTED_CACHE_BYTES and len(self._entries) > 1:
            self._bytes -= self._entries.popitem(last=False)[1][1]
        return found

    def clear(self) -> None:
        """Evict all entries."""
        self._entries.clear()
        self._bytes = 0


def with_views(entries: Sequence[Entry], viewer: Viewer, made: Sequence[ViewSource]) -> list[Entry]:
    """Return a ViewedEntry for each entry: the n-th entry has the n-th view of ``made``."""
    return [ViewedEntry.of(entry, viewer, one) for entry, one in zip(entries, made, strict=True)]


class _CachedViews:
    """The entries with a cached view, in the order of caching.

    Their views have at most limits.VIEW_BYTES in total.
    """

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
            old._cached = None

    def drop(self, entry: Entry) -> None:
        self._bytes -= self._entries.pop(entry, 0)


_CACHED = _CachedViews()


def _labels_of(raw: bytes) -> dict[str, str]:
    if b'"labels"' not in raw:
        return {}
    try:
        metadata: Any = orjson.loads(raw)["metadata"]
        return dict(metadata.get("labels") or {})
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}


class Guard(NamedTuple):
    """A key that must still have this mod_revision when a write commits.

    An example is the guard key of a definition.
    """

    key: str
    revision: int


class StoreError(Exception):
    """A read or a write of the store failed."""


class KeyExists(StoreError):
    """A create found the existing object ``current``."""

    def __init__(self, current: Entry) -> None:
        super().__init__(current.name)
        self.current = current


class RevisionChanged(StoreError):
    """The object has another revision than the write expected.

    ``current`` is the object, None if it does not exist.
    """

    def __init__(self, current: Entry | None) -> None:
        super().__init__(current.revision if current else None)
        self.current = current


class GuardChanged(StoreError):
    """The definition or the namespace of the written object changed. ``key`` is the guard's key."""

    def __init__(self, key: str) -> None:
        super().__init__(key)
        self.key = key


class Compacted(StoreError):
    """The requested revision is compacted, or too old.

    ``oldest`` is the oldest available revision, 0 if unknown.
    """

    def __init__(self, requested: int, oldest: int = 0) -> None:
        super().__init__(requested, oldest)
        self.requested = requested
        self.oldest = oldest


class FutureRevision(StoreError):
    """The requested revision is newer than the newest revision.

    ``current`` is the newest revision, 0 if it is unknown. The client may retry after ``retry_after`` seconds.
    """

    def __init__(self, requested: int, current: int, retry_after: int = 1) -> None:
        super().__init__(requested, current, retry_after)
        self.requested = requested
        self.current = current
        self.retry_after = retry_after


class Fault(NamedTuple):
    """The error of a stored value that cannot be read.

    ``key`` is the complete key, and ``path`` is the key below the prefix of the server. If ``undecryptable`` is true,
    the value cannot be decrypted, so its encoding is unknown.
    """

    key: str
    path: str
    revision: int
    reason: str
    undecryptable: bool = False

    def __str__(self) -> str:
        if self.undecryptable:  # as upstream, whose transformers do not know the revision
            return f"data from the storage is not transformable revision=0: {self.reason}"
        return f"object not decodable revision={self.revision}: {self.reason}"


class Malformed(StoreError):
    """Some stored values cannot be read, so reads and lists of their objects fail.

    See RV-020, ETC-006. ``faults`` has 1 to limits.ERRORS_LISTED faults, in key order. ``listed`` is true if a list
    failed, and false if a read of one object failed.
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
    """The value of the first fault cannot be decrypted, at least not now (OPS-003)."""


class TooLarge(StoreError):
    """etcd refuses a value of this size (WRI-023)."""


class OutOfSpace(StoreError):
    """The store is over its quota, or its disk is full."""


class Corrupt(StoreError):
    """etcd refuses writes, since the data of its members differ. Nothing was written."""


class Unavailable(StoreError):
    """The store did not respond, or the cache lags behind it. Nothing was written."""


class Overloaded(Unavailable):
    """etcd has too many requests, or this server has too little memory. Nothing was written."""


class NotEncrypted(Unavailable):
    """A value could not be encrypted, so it was not written (OPS-003)."""


class NotReady(Unavailable):
    """The collection is not filled, was dropped, or waits for a data key (RV-019)."""


class UnknownOutcome(StoreError):
    """A write was sent, and its outcome is unknown. The server responds with 504."""
