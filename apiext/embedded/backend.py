"""The interface of back ends, which store values: in memory or in a file."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from apiext.embedded.index import Span
from apiext.embedded.wire import Change, Record

SUBS = 1 << 20  # limit of changes of one revision: more than objects that share a lease


def row_of(record: Record) -> int:
    """Return the row number of a change: its revision, and for a deletion its index in the revision."""
    return record.revision * SUBS + (0 if record.version else record.lease)


class Identity(NamedTuple):
    """The ids of cluster and member in answers."""

    cluster: int
    member: int


class StoredContent(NamedTuple):
    """The content of a back end at the start: changes without values, oldest first; leases and their times to live."""

    identity: Identity
    compacted: int
    changes: Sequence[tuple[bytes, Record]]
    leases: Sequence[tuple[int, int]]


class Size(NamedTuple):
    """Size of the store in bytes, and the bytes in use."""

    total: int
    in_use: int


class Commit(NamedTuple):
    """The outcome of a batch: seconds of the sync, and whether the disk was full until the reserve was released."""

    seconds: float
    was_full: bool


class Batch:
    """Changes that become one transaction of the back end.

    ``revision`` is that of the last change, ``size`` the bytes of all. ``forgotten`` are rows that a compaction
    deletes.
    """

    __slots__ = ("changes", "compacted", "forgotten", "granted", "revision", "revoked", "size")

    def __init__(self) -> None:
        self.changes: list[Change] = []
        self.granted: list[tuple[int, int]] = []
        self.revoked: list[int] = []
        self.compacted = 0
        self.forgotten: list[int] = []
        self.revision = 0
        self.size = 0

    @property
    def plain(self) -> bool:
        """Report whether the batch has changes only."""
        return not (self.granted or self.revoked or self.compacted or self.forgotten)


class NoRoom(Exception):
    """The disk is full, and there is no reserve left: nothing of the batch was stored."""


class History(NamedTuple):
    """Changes of a span, oldest first, and the revision up to which they are complete."""

    changes: list[Change]
    upto: int


Written = Callable[[Commit | Exception], None]
Values = Callable[[dict[int, bytes] | Exception], None]
Found = Callable[[History | Exception], None]


class Backend(Protocol):
    """Stores values by row. Callbacks run on the event loop, in a later iteration than the call."""

    def load(self) -> StoredContent:
        """Return the stored content; called once, in a thread."""

    def write(self, batch: Batch, written: Written) -> None:
        """Store a batch, all or nothing; one at a time. Fails with NoRoom, or with an error that ends the store."""

    def values(self, rows: Sequence[int], found: Values) -> None:
        """Read the values of rows; rows that a compaction has deleted are missing."""

    def changes(self, span: Span, first: int, last: int, found: Found) -> None:
        """Read changes of a span, from a revision to at most another one: whole revisions, and at least one."""

    def shrink(self, all_of_it: bool, done: Callable[[], None]) -> None:
        """Release much unused space, or all of it; create the reserve again if it was released."""

    @property
    def short(self) -> bool:
        """Report whether the disk was full and the reserve is used up."""

    @property
    def size(self) -> Size:
        """The size of the store at the last measurement."""

    def close(self) -> None:
        """Close files and end threads; no callback is called afterwards."""
