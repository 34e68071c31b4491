"""The interface of back ends.

A back end stores changes with their values in memory or in a file. A back end with a file also has a reserve file.
The reserve file is deleted when the disk is full, to make room.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from apiext.embedded.index import Span
from apiext.embedded.wire import Change, Record

SUBS = 1 << 20  # maximum number of changes in one revision, such as the deletions of an expired lease


def row_of(record: Record) -> int:
    """Return the row number of a change: its revision times SUBS.

    For a deletion, add its index in the revision, which is in ``lease``.
    """
    return record.revision * SUBS + (0 if record.version else record.lease)


class Identity(NamedTuple):
    """The ids of the cluster and of the member in responses."""

    cluster: int
    member: int


class StoredContent(NamedTuple):
    """The content of a back end at the start of the server.

    ``compacted`` is the compacted revision, 0 if there is none. ``changes`` are (key, record), oldest first. ``leases``
    are (id, time to live in seconds).
    """

    identity: Identity
    compacted: int
    changes: Sequence[tuple[bytes, Record]]
    leases: Sequence[tuple[int, int]]


class Size(NamedTuple):
    """The size of the store in bytes, and the number of these bytes that are in use."""

    total: int
    in_use: int


class Commit(NamedTuple):
    """The outcome of a batch: the duration of its transaction in seconds.

    ``was_full`` is true if the disk was full, and the batch fitted after the deletion of the reserve file.
    """

    seconds: float
    was_full: bool


class Batch:
    """Changes that the back end stores in one transaction.

    ``revision`` is the revision of the last change, ``size`` the estimated bytes of all changes. ``granted`` are new
    leases as (id, time to live), ``revoked`` are the ids of expired leases. ``compacted`` is the new compacted
    revision, 0 if there is none. ``deleted_rows`` are the rows that a compaction deletes.
    """

    __slots__ = ("changes", "compacted", "deleted_rows", "granted", "revision", "revoked", "size")

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self.granted: list[tuple[int, int]] = []
        self.revoked: list[int] = []
        self.compacted = 0
        self.deleted_rows: list[int] = []
        self.revision = 0
        self.size = 0

    @property
    def plain(self) -> bool:
        """True if the batch contains only changes."""
        return not (self.granted or self.revoked or self.compacted or self.deleted_rows)


class NoRoom(Exception):
    """The disk is full, also without the reserve file. Nothing of the batch was stored."""


class History(NamedTuple):
    """Changes of a range of keys, oldest first.

    No change up to the revision ``upto`` is missing.
    """

    changes: list[Change]
    upto: int


Written = Callable[[Commit | Exception], None]
Values = Callable[[dict[int, bytes] | Exception], None]
Found = Callable[[History | Exception], None]


class Backend(Protocol):
    """A back end, which stores each change under its row number (see ``row_of``).

    Callbacks run on the event loop, in a later iteration than the call.
    """

    def load(self) -> StoredContent:
        """Return the stored content. Called once, in a thread."""

    def write(self, batch: Batch, written: Written) -> None:
        """Store a batch in one transaction. The caller waits for ``written`` before the next call.

        ``written`` gets NoRoom if the disk is full. Any other exception ends the store.
        """

    def values(self, rows: Sequence[int], found: Values) -> None:
        """Read the values of rows: row → value. Rows that a compaction has deleted are missing."""

    def changes(self, span: Span, first: int, last: int, found: Found) -> None:
        """Read changes of a range of keys, from the revision ``first`` to at most ``last``.

        The result contains all changes of each revision in it, and at least one revision.
        """

    def shrink(self, all_of_it: bool, done: Callable[[], None]) -> None:
        """Release unused space if there is much; if ``all_of_it`` is true, release all unused space.

        Then create a deleted reserve file again, and call ``done``.
        """

    @property
    def short(self) -> bool:
        """True while the reserve file is missing, since the disk is or was full."""

    @property
    def size(self) -> Size:
        """The approximate size of the store."""

    def close(self) -> None:
        """Close files and end threads. A callback that is not scheduled yet is never called."""
