"""The port between the core and what keeps values: memory or a file."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from apiext.embedded.index import Span
from apiext.embedded.wire import Change, Record

SUBS = 1 << 20  # changes that one revision may have: more than objects that share a lease


def row_of(record: Record) -> int:
    """Return the number under which a change is kept: its revision, and for a deletion its place in that."""
    return record.revision * SUBS + (0 if record.version else record.lease)


class Identity(NamedTuple):
    """The ids that answers carry."""

    cluster: int
    member: int


class Kept(NamedTuple):
    """The content of a back end at the start: changes without values, oldest first; leases and their times to live."""

    identity: Identity
    compacted: int
    changes: Sequence[tuple[bytes, Record]]
    leases: Sequence[tuple[int, int]]


class Size(NamedTuple):
    """Bytes that the store takes, and those of them that are in use."""

    total: int
    in_use: int


class Commit(NamedTuple):
    """The outcome of a batch: seconds that the sync took, and whether the disk was full until room was made."""

    seconds: float
    was_full: bool


class Batch:
    """Changes that become one transaction of the back end.

    ``revision`` is that of the last one, ``size`` their bytes. ``forgotten`` are rows that a compaction
    drops.
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
        """True if the batch has only changes."""
        return not (self.granted or self.revoked or self.compacted or self.forgotten)


class NoRoom(Exception):
    """The disk is full, and there was nothing left to release: nothing of the batch was kept."""


class History(NamedTuple):
    """Changes of a span, oldest first, and the revision up to which they are all of them."""

    changes: list[Change]
    upto: int


Written = Callable[[Commit | Exception], None]
Values = Callable[[dict[int, bytes] | Exception], None]
Found = Callable[[History | Exception], None]


class Backend(Protocol):
    """Keeps values by row. Callbacks run on the loop, in a later turn than the call."""

    def load(self) -> Kept:
        """Return the stored content; called once, in a thread."""

    def write(self, batch: Batch, written: Written) -> None:
        """Keep a batch, all or nothing; one at a time. Fails with NoRoom, or with what ends the store."""

    def values(self, rows: Sequence[int], found: Values) -> None:
        """Read the values of rows; those that a compaction dropped are missing."""

    def changes(self, span: Span, first: int, last: int, found: Found) -> None:
        """Read changes of a span from one revision on, to another at most: whole revisions, at least one of them."""

    def shrink(self, all_of_it: bool, done: Callable[[], None]) -> None:
        """Give unused space back where there is much of it, or all of it; fill the reserve again if that is gone."""

    @property
    def short(self) -> bool:
        """True if the disk was full and the reserve is used up."""

    @property
    def size(self) -> Size:
        """The size of the store when it was last measured."""

    def close(self) -> None:
        """Close files and end threads; nothing is called any more."""
