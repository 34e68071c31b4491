"""Encoder of frequent requests: a Txn with one write, and a Range of one key.

The classes of protobuf are slower. A reused protobuf message would also be fast, but it never releases the memory of
its largest content.
"""

from collections.abc import Sequence
from functools import lru_cache

from apiext.etcd import limits

Guards = Sequence[tuple[bytes, int]]
"""(key, expected mod_revision) of other keys: the transaction of a write also compares these revisions."""


# tags of fields: field number << 3 | type; type 0 is an integer, type 2 is bytes or a message
_COMPARE, _SUCCESS, _FAILURE = b"\x0a", b"\x12", b"\x1a"  # of TxnRequest
_OF_MOD_REVISION, _COMPARED_KEY, _MOD_REVISION = b"\x10\x02", b"\x1a", b"\x30"  # of Compare: result EQUAL, target MOD
_RANGE, _PUT, _DELETE = b"\x0a", b"\x12", b"\x1a"  # of RequestOp
_KEY, _VALUE, _LEASE = b"\x0a", b"\x12", b"\x18"  # of PutRequest; _KEY also of RangeRequest and DeleteRangeRequest
_REVISION, _SERIALIZABLE, _KEYS_ONLY = b"\x20", b"\x38\x01", b"\x40\x01"  # of RangeRequest


def put(key: bytes, value: bytes, expected: int, guards: Guards, lease: int) -> bytes:
    """Return a Txn that puts the value if key and guards have the expected mod_revisions.

    A mod_revision of 0 means that the key does not exist.
    """
    return _txn(key, expected, guards, (_PUT, value, _LEASE + _number(lease) if lease else b""))


def delete(key: bytes, expected: int, guards: Guards) -> bytes:
    """Return a Txn that deletes the key if key and guards have the expected mod_revisions."""
    return _txn(key, expected, guards, (_DELETE, b"", b""))


def get(key: bytes, revision: int, *, serializable: bool) -> bytes:
    """Return a Range request of one key at a revision (0: now)."""
    found = _field(_KEY, key)
    if revision:
        found += _REVISION + _number(revision)
    return found + _SERIALIZABLE if serializable else found


def _txn(key: bytes, expected: int, guards: Guards, write: tuple[bytes, bytes, bytes]) -> bytes:
    """Return a Txn that writes if all compares hold, and otherwise reads the key and guards.

    The guards are read without their values. ``write`` is (tag of the operation, value, bytes after the value). The
    value is copied only once.
    """
    compares, reads = _guarded(tuple(guards))
    kind, value, tail = write
    revision = _number(expected)
    compared, written, read = _before_key(len(key), len(revision))
    before = _VALUE + _number(len(value)) if value else b""
    size = len(written) + len(key) + len(before) + len(value) + len(tail)
    operation = kind + _number(size)
    return b"".join(
        (
            compared, key, _MOD_REVISION, revision, compares,
            _SUCCESS, _number(len(operation) + size), operation, written, key, before, value, tail,
            read, key, reads,
        )
    )  # fmt: skip


@lru_cache(limits.SIZES_KEPT)
def _before_key(key: int, revision: int) -> tuple[bytes, bytes, bytes]:
    """Return the bytes before the key in the compare, in the write and in the read.

    The arguments are the size of the key and the size of the encoded revision.
    """
    name = _KEY + _number(key)
    compared = _OF_MOD_REVISION + _COMPARED_KEY + name[len(_KEY) :]
    read = _RANGE + _number(len(name) + key) + name
    return (
        _COMPARE + _number(len(compared) + key + len(_MOD_REVISION) + revision) + compared,
        name,
        _FAILURE + _number(len(read) + key) + read,
    )


@lru_cache(limits.GUARDS_KEPT)
def _guarded(guards: Guards) -> tuple[bytes, bytes]:
    """Return the compares and the reads of guards.

    Cached, since most writes have the guards of an earlier write.
    """
    compares = [_compare(guard, revision) for guard, revision in guards]
    return b"".join(compares), b"".join([_read(_field(_KEY, guard) + _KEYS_ONLY) for guard, _ in guards])


def _compare(key: bytes, revision: int) -> bytes:
    return _field(_COMPARE, _OF_MOD_REVISION + _field(_COMPARED_KEY, key) + _MOD_REVISION + _number(revision))


def _read(wanted: bytes) -> bytes:
    return _field(_FAILURE, _field(_RANGE, wanted))


def _field(tag: bytes, content: bytes) -> bytes:
    return tag + _number(len(content)) + content


@lru_cache(limits.NUMBERS_KEPT)
def _number(value: int) -> bytes:
    """Return the varint of an integer; a negative integer is encoded as int64."""
    value &= 0xFFFF_FFFF_FFFF_FFFF
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    found.append(value)
    return bytes(found)
