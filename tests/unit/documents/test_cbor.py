"""Stored CBOR: values of an independent encoder are read, invalid bytes are errors."""

import contextlib
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiext.documents import cbor
from apiext.storage.values import json_object

pytestmark = pytest.mark.rows("NEG-009")

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
)


def head(major: int, argument: int) -> bytes:
    if argument < 24:
        return bytes([major << 5 | argument])
    for size, more in ((1, 24), (2, 25), (4, 26), (8, 27)):
        if argument < 1 << 8 * size:
            return bytes([major << 5 | more]) + argument.to_bytes(size, "big")
    raise AssertionError(argument)


def encode_cbor(value: Any, strings: int = 2) -> bytes:
    """Return CBOR with strings of the major type ``strings``.

    They are byte strings (2), as of Kubernetes, or text (3).
    """
    if value is None or isinstance(value, bool):
        return {None: b"\xf6", False: b"\xf4", True: b"\xf5"}[value]
    if isinstance(value, int):
        return head(0, value) if value >= 0 else head(1, -1 - value)
    if isinstance(value, float):
        return b"\xfb" + struct.pack(">d", value)
    if isinstance(value, str):
        raw = value.encode()
        return head(strings, len(raw)) + raw
    if isinstance(value, list):
        return head(4, len(value)) + b"".join(encode_cbor(item, strings) for item in value)
    pairs = b"".join(encode_cbor(name, strings) + encode_cbor(item, strings) for name, item in value.items())
    return head(5, len(value)) + pairs


@given(VALUES, st.sampled_from((2, 3)))
def test_encoded_cbor_is_decoded(value: Any, strings: int) -> None:
    assert cbor.decode(cbor.SELF_DESCRIBED + encode_cbor(value, strings)) == value


@given(st.binary(max_size=60))
def test_random_bytes_decode_or_raise_cbor_error(data: bytes) -> None:
    with contextlib.suppress(cbor.CborError):
        cbor.decode(data)


@pytest.mark.parametrize(
    ("data", "value"),
    [("f93e00", 1.5), ("fa47c35000", 100000.0), ("d64101", "AQ=="), ("d541ff", "_w"), ("d742abcd", "ABCD")],
)
def test_short_floats_and_tagged_bytes_are_decoded(data: str, value: Any) -> None:
    assert cbor.decode(bytes.fromhex(data)) == value


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("", "cut off"), ("58", "cut off"), ("9a7fffffff", "cut off"), ("9f01ff", "indefinite"), ("f7", "simple value"),
        ("f97e00", "not finite"), ("41ff", "no UTF-8"), ("a10102", "no string"), ("a2416101416102", "twice"),
        ("1bffffffffffffffff", "64 bits"), ("3bffffffffffffffff", "64 bits"), ("c074", "tag 0"), ("d601", "tag 22"),
        ("0101", "1 bytes follow"), ("81" * 300 + "01", "nested"),
    ],
)  # fmt: skip
def test_invalid_cbor_is_an_error(data: str, text: str) -> None:
    with pytest.raises(cbor.CborError, match=text):
        cbor.decode(bytes.fromhex(data))


def test_stored_cbor_object_becomes_json() -> None:
    stored = cbor.SELF_DESCRIBED + encode_cbor({"kind": "K", "metadata": {"name": "a"}, "n": 1})
    assert json_object(stored) == b'{"kind":"K","metadata":{"name":"a"},"n":1}\n'
    with pytest.raises(ValueError, match="cannot unmarshal array into Go value of type map"):
        json_object(cbor.SELF_DESCRIBED + encode_cbor([1]))
