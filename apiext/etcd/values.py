"""Responses of etcd as plain values."""

from typing import Any, NamedTuple

from msgspec import Struct

PUT, DELETE = 0, 1


class KeyValue(NamedTuple):
    """A key at one revision. ``version`` counts its puts since ``create_revision``; a deleted key has 0 in both."""

    key: bytes
    value: bytes
    mod_revision: int
    create_revision: int
    version: int


class RangeResult(Struct, frozen=True):
    """Part of a range; ``revision`` is the head when it was read, ``count`` counts the whole range."""

    kvs: list[KeyValue]
    more: bool
    count: int
    revision: int


class WriteResult(NamedTuple):
    """A write that happened (``revision`` is its own), or what stood in its way.

    When not ok: ``revision`` is the head, ``current`` the key as it is (None: absent), and ``guards`` the
    mod_revisions that the guards have (0: absent).
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
    """A change of a key: ``kind`` is PUT or DELETE; a deletion's ``kv`` has the key and the deletion's revision."""

    kind: int
    kv: KeyValue
    prev: KeyValue | None


class Batch(NamedTuple):
    """All changes of the watched range up to ``revision``; ``progress`` when there are none and time just went on."""

    events: list[WatchEvent]
    revision: int
    progress: bool


def key_value(kv: Any) -> KeyValue:
    """Copy a KeyValue message."""
    return KeyValue(kv.key, kv.value, kv.mod_revision, kv.create_revision, kv.version)
