"""The hand-written response parser reads the same values as the message classes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiext.etcd import messages
from apiext.etcd.answers import revision_written
from apiext.etcd.values import WriteResult
from apiext.etcd.writes import read_result

numbers = st.one_of(st.integers(0, 300), st.integers(0, 2**63 - 1))
headers = st.fixed_dictionaries(
    {}, optional=dict.fromkeys(("cluster_id", "member_id", "revision", "raft_term"), numbers)
)


def txn_response(header: dict[str, int], *, succeeded: bool, put: bool = False, read: int = 0) -> Any:
    """Return the response of a Txn with a put, a deletion, or ``read`` keys that were read."""
    found = messages.TxnResponse(header=header, succeeded=succeeded)
    if succeeded:
        one = found.responses.add()
        done = one.response_put if put else one.response_delete_range
        done.header.revision = header.get("revision", 0)
    for number in range(read):
        kvs = found.responses.add().response_range.kvs
        kvs.add(key=b"\x10\x01", value=b"\n\x02\x18\x07\x10\x01\x1a", mod_revision=number + 1)
    return found


@given(headers, st.booleans(), st.integers(0, 2))
def test_revision_is_parsed_from_write_responses(header: dict[str, int], put: bool, read: int) -> None:
    raw = txn_response(header, succeeded=True, put=put).SerializeToString()
    revision = header.get("revision", 0)
    assert revision_written(raw) == (revision or None)
    assert read_result(raw) == WriteResult(True, revision)
    refused = txn_response(header, succeeded=False, read=read + 1).SerializeToString()
    assert revision_written(refused) is None
    assert read_result(refused).ok is False


@given(
    st.binary(max_size=40)
    | st.lists(st.sampled_from([b"\n", b"\x04", b"\x18", b"\x10\x01", b"\x1a", b"\x80"])).map(b"".join)
)
def test_arbitrary_bytes_yield_no_wrong_revision(raw: bytes) -> None:
    found = revision_written(raw)
    if found is not None:
        told = messages.TxnResponse.FromString(raw[: raw[1] + 4])
        assert (told.succeeded, told.header.revision) == (True, found)


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"\n\x00\x10\x01\x1a\x00", id="no revision"),
        pytest.param(b"\n\x03\x18\x07\x10\x01\x1a\x00", id="a longer header"),
        pytest.param(b"\n\x04\x18\x07\x10\x01\x1a\x00", id="header that contains the bytes of success"),
        pytest.param(b"\n\x02\x18\x07\x10\x00\x1a\x00", id="no success"),
        pytest.param(b"\n\x0b\x18" + b"\xff" * 9 + b"\x01\x10\x01", id="a negative revision"),
        pytest.param(b"\n\x02\x18\x07\x10\x01\x22\x00", id="unknown field"),
        pytest.param(b"\n\x04\x18\x07\x28\x01\x10\x01\x1a\x00", id="unknown header field"),
    ],
)
def test_unusual_responses_fall_back_to_message_classes(raw: bytes) -> None:
    assert revision_written(raw) is None


def test_shortest_write_response_is_parsed() -> None:
    assert revision_written(b"\n\x02\x18\x07\x10\x01") == 7
