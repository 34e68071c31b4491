"""The requests that are made all the time, written to the wire by hand.

A protobuf message that is filled again and again keeps all that it ever held, and a new one each time is slower.
"""

from collections.abc import Sequence

Guards = Sequence[tuple[bytes, int]]

# tags: field number << 3 | 0 for a number, 2 for bytes and messages
_COMPARE, _SUCCESS, _FAILURE = b"\x0a", b"\x12", b"\x1a"  # of TxnRequest
_OF_MOD_REVISION, _COMPARED_KEY, _MOD_REVISION = b"\x10\x02", b"\x1a", b"\x30"  # of Compare: equal, to a mod_revision
_RANGE, _PUT, _DELETE = b"\x0a", b"\x12", b"\x1a"  # of RequestOp
_KEY, _VALUE, _LEASE = b"\x0a", b"\x12", b"\x18"  # of PutRequest, RangeRequest and DeleteRangeRequest
_REVISION, _SERIALIZABLE, _KEYS_ONLY = b"\x20", b"\x38\x01", b"\x40\x01"  # of RangeRequest


def put(key: bytes, value: bytes, expected: int, guards: Guards, lease: int) -> bytes:
    """Return a Txn that puts the value if the key and its guards have the mod_revisions expected (0: are absent)."""
    write = _field(_KEY, key) + (_field(_VALUE, value) if value else b"")
    if lease:
        write += _LEASE + _number(lease)
    return _txn(key, expected, guards, _field(_PUT, write))


def delete(key: bytes, expected: int, guards: Guards) -> bytes:
    """Return a Txn that deletes the key if it and its guards have the mod_revisions expected."""
    return _txn(key, expected, guards, _field(_DELETE, _field(_KEY, key)))


def get(key: bytes, revision: int, serializable: bool) -> bytes:
    """Return a Range of one key, at a revision (0: now)."""
    found = _field(_KEY, key)
    if revision:
        found += _REVISION + _number(revision)
    return found + _SERIALIZABLE if serializable else found


def _txn(key: bytes, expected: int, guards: Guards, write: bytes) -> bytes:
    """Return a Txn that writes if everything is as expected, and reads what it is otherwise: the guards' keys only."""
    compares, reads = [_compare(key, expected)], [_read(_field(_KEY, key))]
    for guard, revision in guards:
        compares.append(_compare(guard, revision))
        reads.append(_read(_field(_KEY, guard) + _KEYS_ONLY))
    return b"".join((*compares, _field(_SUCCESS, write), *reads))


def _compare(key: bytes, revision: int) -> bytes:
    return _field(_COMPARE, _OF_MOD_REVISION + _field(_COMPARED_KEY, key) + _MOD_REVISION + _number(revision))


def _read(wanted: bytes) -> bytes:
    return _field(_FAILURE, _field(_RANGE, wanted))


def _field(tag: bytes, content: bytes) -> bytes:
    return tag + _number(len(content)) + content


def _number(value: int) -> bytes:
    """Return a varint; negative numbers are those of int64."""
    if 0 <= value < 128:
        return _SHORT[value]
    value &= 0xFFFF_FFFF_FFFF_FFFF
    found = bytearray()
    while value > 127:
        found.append(value & 127 | 128)
        value >>= 7
    found.append(value)
    return bytes(found)


_SHORT = [bytes((value,)) for value in range(128)]
