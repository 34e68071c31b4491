"""Responses of etcd as Python values."""

from typing import Any, NamedTuple

from msgspec import Struct

PUT, DELETE = 0, 1


class KeyValue(NamedTuple):
    """A key at one revision. ``version`` counts its puts since ``create_revision``; both are 0 for a deleted key."""

    key: bytes
    value: bytes
    mod_revision: int
    create_revision: int
    version: int


class RangeResult(Struct, frozen=True):
    """A page of a range. ``revision`` is the head revision of the read, ``count`` the size of the whole range."""

    kvs: list[KeyValue]
    more: bool
    count: int
    revision: int


class WriteResult(NamedTuple):
    """The outcome of a write: ``ok``, and the revision of the write; or a conflict.

    After a conflict ``revision`` is the head revision, ``current`` the current state of the key (None: absent), and
    ``guards`` are the mod_revisions of the guards (0: absent).
    """

    ok: bool
    revision: int
    current: KeyValue | None = None
    guards: tuple[int, ...] = ()


class Status(Struct, frozen=True):
    """The status of one member of the cluster; sizes in bytes."""

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
    """A change of a key: ``kind`` is PUT or DELETE. The ``kv`` of a deletion has only the key and its revision."""

    kind: int
    kv: KeyValue
    prev: KeyValue | None


class Batch(NamedTuple):
    """All changes of the watched range since the last batch, up to ``revision``; ``progress`` if there are none."""

    events: list[WatchEvent]
    revision: int
    progress: bool


def key_value(kv: Any) -> KeyValue:
    """Return a protobuf KeyValue as a tuple."""
    return KeyValue(kv.key, kv.value, kv.mod_revision, kv.create_revision, kv.version)
