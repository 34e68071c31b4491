"""The responses of etcd as Python values."""

from typing import Any, NamedTuple

from msgspec import Struct

PUT, DELETE = 0, 1


class KeyValue(NamedTuple):
    """The state of a key.

    ``version`` is the number of its puts since ``create_revision``; both are 0 after a deletion.
    """

    key: bytes
    value: bytes
    mod_revision: int
    create_revision: int
    version: int


class RangeResult(Struct, frozen=True):
    """A page of a range.

    ``revision`` is the head revision of the store, ``count`` the number of keys in the range.
    """

    kvs: list[KeyValue]
    more: bool
    count: int
    revision: int


class WriteResult(NamedTuple):
    """The outcome of a write.

    If ``ok``, ``revision`` is the revision of the write. Otherwise there was a conflict: the key, or a guard (a key
    that the write requires to be unchanged), had changed. After a conflict, ``revision`` is the head revision.
    ``current`` is the current state of the key, None if the key does not exist. ``guards`` are the mod_revisions of the
    guards, 0 for a guard that does not exist. If a response was lost and a read has shown the conflict, ``revision`` is
    the mod_revision of ``current``, and ``guards`` is empty.
    """

    ok: bool
    revision: int
    current: KeyValue | None = None
    guards: tuple[int, ...] = ()


class Status(Struct, frozen=True):
    """The status of one member of the cluster. The sizes are in bytes."""

    version: str
    cluster_id: int
    member_id: int
    db_size: int
    db_size_in_use: int
    leader: int
    revision: int
    errors: tuple[str, ...]


class Alarm(Struct, frozen=True):
    """An alarm that a member raised: NOSPACE or CORRUPT."""

    member_id: int
    kind: str


class WatchEvent(NamedTuple):
    """A change of a key.

    ``kind`` is PUT or DELETE. For DELETE, ``kv`` has only the key and the revision of the deletion.

    ``prev`` is the previous state, if the watch requested it.
    """

    kind: int
    kv: KeyValue
    prev: KeyValue | None


class Batch(NamedTuple):
    """All changes of the watched range since the last batch, up to ``revision``.

    ``progress`` is true if there are no changes.
    """

    events: list[WatchEvent]
    revision: int
    progress: bool


def key_value(kv: Any) -> KeyValue:
    """Return a protobuf KeyValue as a tuple."""
    return KeyValue(kv.key, kv.value, kv.mod_revision, kv.create_revision, kv.version)
