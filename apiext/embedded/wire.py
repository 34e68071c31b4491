"""Encoder and decoder of the frequent messages of etcd, without the protobuf library.

The messages are defined in proto/etcd.proto. Responses have etcd's order of fields, since etcd/answers.py depends on
this order.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from msgspec import Struct

from apiext.embedded import limits
from apiext.embedded.faults import unimplemented
from apiext.etcd.errors import INTERNAL, EtcdError

TERM = 2  # raft term in all responses, as in a new etcd with one member


class Record(Struct, frozen=True, gc=False):
    """The state of a key at one revision, without the value. ``version`` 0 is a deletion.

    ``lease`` is the id of the lease, 0 if there is none. For a deletion, ``lease`` is the index of the deletion among
    all deletions of its revision. The garbage collector does not track records, since there are very many.
    """

    revision: int
    created: int
    version: int
    lease: int


class Change(NamedTuple):
    """A change of a key. ``value`` is None for a deletion."""

    key: bytes
    value: bytes | None
    record: Record


class Txn(NamedTuple):
    """The only form of transaction that this server sends: compares, and one put or delete.

    ``compares`` are (key, expected mod_revision). ``value`` is None for a delete. ``otherwise`` are the encoded reads
    that the store executes if a compare fails.
    """

    compares: list[tuple[bytes, int]]
    key: bytes
    value: bytes | None
    lease: int
    otherwise: list[bytes]


# -- writing -----------------------------------------------------------------------------------------------------------


def number(value: int) -> bytes:
    """Return the varint of an integer; a negative integer is encoded as int64."""
    if 0 <= value < 128:
        return _SMALL[value]
    value &= 0xFFFF_FFFF_FFFF_FFFF
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    found.append(value)
    return bytes(found)


_SMALL = [bytes((value,)) for value in range(128)]


def field(tag: bytes, content: bytes) -> bytes:
    """Return a field: ``tag``, the length of the content, and the content."""
    return tag + number(len(content)) + content


class Headers:
    """Encoder of responses with their header: cluster id, member id, revision and raft term."""

    def __init__(self, cluster: int, member: int) -> None:
        self._before = b"\x08" + number(cluster) + b"\x10" + number(member) + b"\x18"

    def at(self, revision: int) -> bytes:
        """Return the encoded header of a response, with this revision."""
        header = self._before + number(revision) + b"\x20\x02"
        return b"\x0a" + _SMALL[len(header)] + header

    def put(self, revision: int) -> bytes:
        """Return the TxnResponse of a put that created a revision."""
        inner = b"\x0a" + field(b"", b"\x18" + number(revision))
        return self.at(revision) + b"\x10\x01\x1a" + field(b"", b"\x12" + field(b"", inner))

    def deleted(self, revision: int, count: int) -> bytes:
        """Return the TxnResponse of a delete of ``count`` keys.

        With 0 keys, ``revision`` is the head revision.
        """
        inner = b"\x0a" + field(b"", b"\x18" + number(revision)) + (b"\x10" + number(count) if count else b"")
        return self.at(revision) + b"\x10\x01\x1a" + field(b"", b"\x1a" + field(b"", inner))

    def failed(self, revision: int, found: list[bytes | None]) -> bytes:
        """Return the TxnResponse after a failed compare.

        ``found`` has the KeyValue of each read, None for a key that does not exist.
        """
        parts = [self.at(revision)]
        header = b"\x0a" + field(b"", b"\x18" + number(revision))
        for kv in found:
            inner = header if kv is None else b"".join((header, b"\x12", number(len(kv)), kv, b"\x20\x01"))
            parts.append(b"\x1a" + field(b"", b"\x0a" + field(b"", inner)))
        return b"".join(parts)


def key_value(key: bytes, value: bytes, record: Record) -> bytes:
    """Return a KeyValue message without its tag and length."""
    revision, created, lease = record.revision, record.created, record.lease
    mod = number(revision)
    return b"".join(
        (
            b"\x0a", number(len(key)), key, b"\x10", mod if created == revision else number(created), b"\x18", mod,
            b"\x20", number(record.version), b"\x2a" + number(len(value)) if value else b"", value,
            b"\x30" + number(lease) if lease else b"",
        )
    )  # fmt: skip


def event(change: Change, previous: bytes | None) -> bytes:
    """Return an event with its tag and length.

    ``previous`` is the encoded previous KeyValue, None to omit it.
    """
    key, value, record = change
    if value is None:
        kv = b"\x0a" + number(len(key)) + key + b"\x18" + number(record.revision)
        body = b"\x08\x01\x12" + number(len(kv)) + kv
    else:
        kv = key_value(key, value, record)
        body = b"\x12" + number(len(kv)) + kv
    if previous is not None:
        body += b"\x1a" + number(len(previous)) + previous
    return b"\x5a" + number(len(body)) + body


# -- reading -----------------------------------------------------------------------------------------------------------


def read_txn(raw: bytes) -> Txn:
    """Decode a TxnRequest.

    Raise EtcdError for malformed bytes, and for forms that this server does not use.
    """
    compares: list[tuple[bytes, int]] = []
    written: tuple[bytes, bytes | None, int] | None = None
    otherwise: list[bytes] = []
    try:
        for tag, content in _fields(raw):
            if tag == 0x0A:
                compares.append(_compare(_bytes(content)))
            elif tag == 0x12 and written is None:
                written = _operation(_bytes(content))
            elif tag == 0x1A:
                otherwise.append(_bytes(content))
            else:
                raise unimplemented("a transaction of several writes")
    except (IndexError, TypeError, ValueError) as error:
        raise EtcdError(INTERNAL, "the request is not a TxnRequest") from error
    if written is None:
        raise unimplemented("a transaction without a write")
    return Txn(compares, *written, otherwise)


def read_reads(otherwise: list[bytes]) -> list[tuple[bytes, bool]]:
    """Decode the reads of a transaction whose compare failed.

    Return (key, True if the value is not requested) for each read. Raise EtcdError for a read of another form.
    """
    found = []
    for operation in otherwise:
        fields = dict(_fields(operation))
        wanted = dict(_fields(_bytes(fields.get(0x0A)))) if fields.keys() == {0x0A} else {0: 0}
        if not wanted.keys() <= {0x0A, 0x38, 0x40}:
            raise unimplemented("this read of a transaction")
        found.append((_bytes(wanted.get(0x0A, b"")), bool(wanted.get(0x40))))
    return found


@lru_cache(limits.COMPARES_KEPT)
def _compare(raw: bytes) -> tuple[bytes, int]:
    fields = dict(_fields(raw))
    # only target (MOD), key and mod_revision are allowed: ``result`` is its default, EQUAL, and there is no range_end
    if fields.get(0x10) != 2 or not fields.keys() <= {0x10, 0x1A, 0x30}:
        raise unimplemented("this compare of a transaction")
    return _bytes(fields.get(0x1A, b"")), int(fields.get(0x30, 0))


def _operation(raw: bytes) -> tuple[bytes, bytes | None, int]:
    ((tag, content),) = _fields(raw)
    fields = dict(_fields(_bytes(content)))
    if tag == 0x12 and fields.keys() <= {0x0A, 0x12, 0x18}:
        return _bytes(fields.get(0x0A, b"")), _bytes(fields.get(0x12, b"")), int(fields.get(0x18, 0))
    if tag == 0x1A and fields.keys() <= {0x0A}:
        return _bytes(fields.get(0x0A, b"")), None, 0
    raise unimplemented("this write of a transaction")


def _bytes(value: bytes | int | None) -> bytes:
    if not isinstance(value, bytes):
        raise TypeError("a number in place of bytes")
    return value


def _fields(raw: bytes) -> Iterator[tuple[int, bytes | int]]:
    """Yield (tag, bytes or integer) for each field of a message.

    Raise IndexError or TypeError for malformed bytes, and EtcdError for a field number above 15.
    """
    at, size = 0, len(raw)
    while at < size:
        tag = raw[at]
        value = raw[at + 1]
        at += 2
        if tag > 127:
            raise unimplemented("a field of this number")
        if value > 127:
            value &= 127
            shift = 7
            while True:
                byte = raw[at]
                at += 1
                value |= (byte & 127) << shift
                if byte < 128:
                    break
                shift += 7
        kind = tag & 7
        if kind == 2:
            end = at + value
            if end > size:
                raise IndexError("a field is longer than its message")
            yield tag, raw[at:end]
            at = end
        elif kind == 0:
            yield tag, value
        else:
            raise TypeError("a field of an unknown form")
