"""XSalsa20 with Poly1305: the encryption of the provider ``secretbox``.

It is the same as in NaCl's secretbox. The library ``cryptography`` has Poly1305, but not Salsa20. This module computes
Salsa20 with additions, exclusive ors and rotations of integers. No table lookup and no branch depends on a secret.
Many blocks are computed together: one large integer contains the same word of each block, in lanes of 64 bits.
"""

import struct
from array import array
from collections.abc import Iterator
from functools import lru_cache

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.poly1305 import Poly1305

NONCE, TAG, KEY = 24, 16, 32
_BLOCK = 64  # bytes of a block of the key stream
# blocks computed together; a larger number is slower, since the data do not fit into the processor's cache
_AT_ONCE = 512
_PIECE = _AT_ONCE * _BLOCK  # bytes that are processed without a release of the interpreter lock
_SIGMA = struct.unpack("<4I", b"expand 32-byte k")
_COLUMNS = (
    (4, 0, 12, 7), (8, 4, 0, 9), (12, 8, 4, 13), (0, 12, 8, 18),
    (9, 5, 1, 7), (13, 9, 5, 9), (1, 13, 9, 13), (5, 1, 13, 18),
    (14, 10, 6, 7), (2, 14, 10, 9), (6, 2, 14, 13), (10, 6, 2, 18),
    (3, 15, 11, 7), (7, 3, 15, 9), (11, 7, 3, 13), (15, 11, 7, 18),
)  # fmt: skip
_ROWS = (
    (1, 0, 3, 7), (2, 1, 0, 9), (3, 2, 1, 13), (0, 3, 2, 18),
    (6, 5, 4, 7), (7, 6, 5, 9), (4, 7, 6, 13), (5, 4, 7, 18),
    (11, 10, 9, 7), (8, 11, 10, 9), (9, 8, 11, 13), (10, 9, 8, 18),
    (12, 15, 14, 7), (13, 12, 15, 9), (14, 13, 12, 13), (15, 14, 13, 18),
)  # fmt: skip
_DOUBLE_ROUND = tuple((to, one, other, turn, 32 - turn) for to, one, other, turn in (*_COLUMNS, *_ROWS))
_DOUBLE_ROUNDS = 10


def encrypt(key: bytes, nonce: bytes, message: bytes) -> bytes:
    """Return the authentication tag, followed by the encrypted message."""
    result = _apply_stream(key, nonce, message)
    tag = Poly1305(next(result))
    ciphertext = []
    for piece in result:
        tag.update(piece)
        ciphertext.append(piece)
    return b"".join((tag.finalize(), *ciphertext))


def decrypt(key: bytes, nonce: bytes, box: bytes) -> bytes | None:
    """Decrypt the output of ``encrypt``.

    Return None if it was changed, or was encrypted with another key.
    """
    ciphertext = box[TAG:]
    result = _apply_stream(key, nonce, ciphertext)
    tag = Poly1305(next(result))
    for at in range(0, len(ciphertext), _PIECE):
        tag.update(ciphertext[at : at + _PIECE])
    try:
        tag.verify(box[:TAG])
    except InvalidSignature:
        return None
    return b"".join(result)


def salsa20(key: bytes, nonce: bytes, size: int) -> Iterator[bytes]:
    """Yield at least ``size`` bytes of Salsa20's key stream for a nonce of 8 bytes.

    The pieces consist of complete blocks. Each piece except the last has _PIECE bytes.
    """
    words, number = struct.unpack("<8I", key), struct.unpack("<2I", nonce)
    blocks = -(-size // _BLOCK)
    for first in range(0, blocks, _AT_ONCE):
        yield _blocks(words, number, first, min(_AT_ONCE, blocks - first))


def _apply_stream(key: bytes, nonce: bytes, message: bytes) -> Iterator[bytes]:
    """Yield the key of the tag, then the encrypted or decrypted message in pieces."""
    stream = salsa20(_hsalsa20(key, nonce[:16]), nonce[16:], KEY + len(message))
    part = next(stream)
    yield part[:KEY]
    part, at = part[KEY:], 0
    while at < len(message):
        piece = message[at : at + len(part)]
        yield _xored(piece, part[: len(piece)])
        at += len(piece)
        part = next(stream, b"")


def _hsalsa20(key: bytes, nonce: bytes) -> bytes:
    words, number = struct.unpack("<8I", key), struct.unpack("<4I", nonce)
    state = _after_rounds(_state(words, number), _lanes(1)[0])
    return struct.pack("<8I", *(state[at] for at in (0, 5, 10, 15, 6, 7, 8, 9)))


def _blocks(key: tuple[int, ...], nonce: tuple[int, ...], first: int, count: int) -> bytes:
    low, ones, counting = _lanes(count)
    numbers = counting + first * ones
    start = [word * ones for word in _state(key, (*nonce, 0, 0))]
    start[8], start[9] = numbers & low, numbers >> 32 & low
    words = [(begin + end) & low for begin, end in zip(start, _after_rounds(start, low), strict=True)]
    out = array("Q", bytes(_BLOCK * count))
    for pair in range(8):
        both = words[2 * pair] | words[2 * pair + 1] << 32
        out[pair::8] = array("Q", both.to_bytes(8 * count, "little"))
    return out.tobytes()


@lru_cache(16)
def _lanes(count: int) -> tuple[int, int, int]:
    """Return three integers: their lanes hold the mask 0xFFFFFFFF, 1, and the lane's number."""
    ones = int.from_bytes(b"\x01\0\0\0\0\0\0\0" * count, "little")
    counting = int.from_bytes(b"".join(number.to_bytes(8, "little") for number in range(count)), "little")
    return 0xFFFFFFFF * ones, ones, counting


def _state(key: tuple[int, ...], rest: tuple[int, ...]) -> list[int]:
    return [_SIGMA[0], *key[:4], _SIGMA[1], *rest, _SIGMA[2], *key[4:], _SIGMA[3]]


def _after_rounds(state: list[int], low: int) -> list[int]:
    """Return the state after Salsa20's twenty rounds, applied to each lane."""
    x = list(state)
    for _ in range(_DOUBLE_ROUNDS):
        for to, one, other, left, right in _DOUBLE_ROUND:
            total = x[one] + x[other] & low
            x[to] ^= (total << left | total >> right) & low
    return x


def _xored(left: bytes, right: bytes) -> bytes:
    return (int.from_bytes(left, "little") ^ int.from_bytes(right, "little")).to_bytes(len(left), "little")
