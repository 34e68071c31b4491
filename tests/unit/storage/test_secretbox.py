"""XSalsa20 with Poly1305, with published test vectors."""

from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiext.storage import secretbox

# set 6 of the ECRYPT vectors of Salsa20: key, nonce, XOR of the first 2,048 blocks
SALSA = [
    (
        "0053A6F94C9FF24598EB3E91E4378ADD3083D6297CCF2275C81B6EC11467BA0D",
        "0D74DB42A91077DE",
        "C349B6A51A3EC9B712EAED3F90D8BCEE69B7628645F251A996F55260C62EF31F"
        "D6C6B0AEA94E136C9D984AD2DF3578F78E457527B03A0450580DD874F63B1AB9",
    ),
    (
        "0558ABFE51A4F74A9DF04396E93C8FE23588DB2E81D4277ACD2073C6196CBF12",
        "167DE44BB21980E7",
        "C3EAAF32836BACE32D04E1124231EF47E101367D6305413A0EEB07C60698A287"
        "6E4D031870A739D6FFDDD208597AFF0A47AC17EDB0167DD67EBA84F1883D4DFD",
    ),
    (
        "0A5DB00356A9FC4FA2F5489BEE4194E73A8DE03386D92C7FD22578CB1E71C417",
        "1F86ED54BB2289F0",
        "3CD23C3DC90201ACC0CF49B440B6C417F0DC8D8410A716D5314C059E14B1A8D9"
        "A9FB8EA3D9C8DAE12B21402F674AA95C67B1FC514E994C9D3F3A6E41DFF5BBA6",
    ),
    (
        "0F62B5085BAE0154A7FA4DA0F34699EC3F92E5388BDE3184D72A7DD02376C91C",
        "288FF65DC42B92F9",
        "E00EBCCD70D69152725F9987982178A2E2E139C7BCBE04CA8A0E99E318D9AB76"
        "F988C8549F75ADD790BA4F81C176DA653C1A043F11A958E169B6D2319F4EEC1A",
    ),
]
X_KEY, X_NONCE = b"this is 32-byte key for xsalsa20", b"24-byte nonce for xsalsa"
X_STREAM = (
    "4848297feb1fb52fb66d81609bd547fabcbe7026edc8b5e5e449d088bfa69c08"
    "8f5d8da1d791267c2c195a7f8cae9c4b4050d08ce6d3a151ec265f3a58e47648"
)
# made by NaCl: keys, nonce and message are one repeated byte
BOX = (
    "8442bc313f4626f1359e3b50122b6ce6fe66ddfe7d39d14e637eb4fd5b45beadab55198df6ab5368439792a23c87db70"
    "acb6156dc5ef957ac04f6276cf6093b84be77ff0849cc33e34b7254d5a8f65ad"
)


@pytest.mark.rows("OPS-003")
@pytest.mark.parametrize(("key", "nonce", "folded"), SALSA)
def test_salsa20_key_stream_equals_test_vectors(key: str, nonce: str, folded: str) -> None:
    stream = b"".join(secretbox.salsa20(bytes.fromhex(key), bytes.fromhex(nonce), 131072))
    blocks = (int.from_bytes(stream[at : at + 64], "big") for at in range(0, len(stream), 64))
    assert reduce(int.__xor__, blocks) == int(folded, 16)


@pytest.mark.rows("OPS-003")
def test_xsalsa20_key_stream_equals_test_vector() -> None:
    assert sealed_zeros(32).hex() == X_STREAM[64:]


def sealed_zeros(size: int) -> bytes:
    """Return the key stream without its first 32 bytes, which are the key of the tag."""
    return secretbox.encrypt(X_KEY, X_NONCE, bytes(size))[secretbox.TAG :]


@pytest.mark.rows("OPS-003")
def test_secretbox_equals_box_of_nacl() -> None:
    key, nonce, message = b"\1" * 32, b"\2" * 24, b"\3" * 64
    assert secretbox.encrypt(key, nonce, message).hex() == BOX
    assert secretbox.decrypt(key, nonce, bytes.fromhex(BOX)) == message


@given(st.binary(max_size=300), st.binary(min_size=32, max_size=32), st.binary(min_size=24, max_size=24), st.data())
def test_secretbox_decrypts_only_unchanged_boxes(message: bytes, key: bytes, nonce: bytes, data: st.DataObject) -> None:
    box = bytearray(secretbox.encrypt(key, nonce, message))
    assert secretbox.decrypt(key, nonce, bytes(box)) == message
    box[data.draw(st.integers(0, len(box) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    assert secretbox.decrypt(key, nonce, bytes(box)) is None


@pytest.mark.parametrize("size", [64 * 1024 - 33, 64 * 1024, 64 * 1024 + 1, 200_001])
def test_key_stream_starts_equally_for_all_lengths(size: int) -> None:
    stream = sealed_zeros(size)
    assert len(stream) == size
    assert stream.startswith(bytes.fromhex(X_STREAM)[32:])
    assert sealed_zeros(size + 70_000)[:size] == stream
