"""Hand-written requests equal the requests of the message classes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiext.etcd import messages, requests

MOD = 2  # Compare.CompareTarget

keys = st.binary(min_size=1, max_size=200)
values = st.binary(max_size=400)
revisions = st.one_of(st.integers(0, 300), st.integers(0, 2**63 - 1))
leases = st.one_of(st.just(0), st.integers(-(2**63), 2**63 - 1))
guards = st.lists(st.tuples(keys, revisions), max_size=3)


def expected_txn(key: bytes, expected: int, guarded: list[tuple[bytes, int]]) -> Any:
    """Return a Txn without its write."""
    txn = messages.TxnRequest()
    for name, revision in [(key, expected), *guarded]:
        txn.compare.add(target=MOD, key=name, mod_revision=revision)
        txn.failure.add().request_range.key = name
    for read in txn.failure[1:]:
        read.request_range.keys_only = True
    return txn


@given(keys, values, revisions, guards, leases)
def test_put_request_equals_the_message_class(
    key: bytes, value: bytes, expected: int, guarded: list[tuple[bytes, int]], lease: int
) -> None:
    wanted = expected_txn(key, expected, guarded)
    write = wanted.success.add().request_put
    write.key, write.value, write.lease = key, value, lease
    assert messages.TxnRequest.FromString(requests.put(key, value, expected, guarded, lease)) == wanted


@given(keys, revisions, guards)
def test_delete_request_equals_the_message_class(key: bytes, expected: int, guarded: list[tuple[bytes, int]]) -> None:
    wanted = expected_txn(key, expected, guarded)
    wanted.success.add().request_delete_range.key = key
    assert messages.TxnRequest.FromString(requests.delete(key, expected, guarded)) == wanted


@given(keys, revisions, st.booleans())
def test_get_request_equals_the_message_class(key: bytes, revision: int, serializable: bool) -> None:
    wanted = messages.RangeRequest(key=key, revision=revision, serializable=serializable)
    assert messages.RangeRequest.FromString(requests.get(key, revision, serializable=serializable)) == wanted


@pytest.mark.parametrize("size", [127, 128, 16_383, 16_384, 1_600_000])
def test_length_prefixes_of_large_values_are_valid(size: int) -> None:
    raw = requests.put(b"/k", bytes(size), 1, [], 0)
    assert len(messages.TxnRequest.FromString(raw).success[0].request_put.value) == size
