"""The stored form of values encrypted with a plug-in's key.

The tests cover round trips and upstream's errors.
"""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiext.kms.envelope import KEY, SEED, Envelope, InvalidEnvelope, packed, split, tail, unpacked
from tests.support.kms_plugin import message

NAMES = st.from_regex(r"[a-z]([-a-z0-9]{0,10}[a-z0-9])?\.[a-z]{1,10}", fullmatch=True)
NOTES = st.dictionaries(NAMES, st.binary(max_size=40), max_size=4)


@pytest.mark.rows("OPS-003")
@given(
    data=st.one_of(st.binary(min_size=1, max_size=300), st.integers(1, 70_000).map(bytes)),
    kind=st.sampled_from((KEY, SEED)),
    key_id=st.text(st.characters(codec="utf-8"), min_size=1, max_size=200),
    source=st.binary(min_size=1, max_size=200),
    notes=NOTES,
)
def test_packed_values_are_unpacked(
    data: bytes, kind: int, key_id: str, source: bytes, notes: dict[str, bytes]
) -> None:
    rest = tail(kind, key_id, source, notes)
    raw = packed(data, rest)
    fields = {"keyID": key_id, "encryptedDEKSource": source, "encryptedDEKSourceType": kind, "annotations": notes}
    assert raw == message("EncryptedObject", encryptedData=data, **fields).SerializeToString(deterministic=True)
    assert split(raw) == (data, rest)
    found = unpacked(raw)
    assert found == Envelope(data, kind, key_id, source, notes, found.digest)
    assert unpacked(rest + packed(data, b"")).digest == found.digest  # in any order
    assert unpacked(packed(b"other", rest)).digest == found.digest
    assert unpacked(packed(data, tail(kind, key_id, source + b"x", notes))).digest != found.digest


@given(raw=st.binary(max_size=60))
def test_invalid_envelopes_are_not_split(raw: bytes) -> None:
    parts = split(raw)
    if parts is not None:
        assert packed(*parts) == raw or raw[1] >= 128  # a length may have more bytes than necessary
    with contextlib.suppress(InvalidEnvelope):
        unpacked(raw)
