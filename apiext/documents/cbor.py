"""Decode CBOR (RFC 8949) as Kubernetes writes it (NEG-009).

A kube-apiserver may have stored objects as CBOR.
"""

import math
import struct
from base64 import b16encode, b64encode, urlsafe_b64encode
from collections.abc import Callable
from typing import Any

from apiext.documents import limits

SELF_DESCRIBED = b"\xd9\xd9\xf7"  # tag 55799, the first bytes of each object that is stored as CBOR
_SIMPLE = {20: False, 21: True, 22: None}
_TEXT_OF_BYTES: dict[int, Callable[[bytes], bytes]] = {
    21: lambda data: urlsafe_b64encode(data).rstrip(b"="),
    22: b64encode,
    23: b16encode,
}
"""Tag of a byte string → the function that encodes the bytes as text."""
_FLOATS = {25: ">e", 26: ">f", 27: ">d"}


class CborError(ValueError):
    """The error of bytes that cannot be decoded.

    They are not CBOR, have no equivalent in JSON, or need a feature that ``decode`` lacks.
    """


def decode(data: bytes) -> Any:
    """Return the decoded value; raise CborError if this fails.

    Return byte strings as strings, since Kubernetes encodes strings as byte strings. A byte string with a tag in
    _TEXT_OF_BYTES becomes base64 or hexadecimal text.
    """
    reader = _Reader(data)
    value = reader.value(0)
    if reader.at != len(data):
        raise CborError(f"{len(data) - reader.at} bytes follow the value")
    return value


class _Reader:
    """A reader with its position in the bytes."""

    __slots__ = ("at", "data")

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    def value(self, depth: int) -> Any:
        if depth > limits.MAX_DEPTH:
            raise CborError(f"nested deeper than {limits.MAX_DEPTH} levels")
        first = self._take(1)[0]
        major, more = first >> 5, first & 0x1F
        if major == 7:
            return self._simple(more)
        return _READERS[major](self, self._argument(more), depth)

    def _take(self, size: int) -> bytes:
        end = self.at + size
        if end > len(self.data):
            raise CborError("the value is cut off")
        found = self.data[self.at : end]
        self.at = end
        return found

    def _argument(self, more: int) -> int:
        if more < 24:
            return more
        if more > 27:
            raise CborError("indefinite lengths are not supported")
        return int.from_bytes(self._take(1 << (more - 24)), "big")

    def _simple(self, more: int) -> Any:
        if more in _FLOATS:
            found: float = struct.unpack(_FLOATS[more], self._take(1 << (more - 24)))[0]
            if not math.isfinite(found):
                raise CborError("a number is not finite")
            return found
        if more not in _SIMPLE:
            raise CborError(f"simple value {more} has no equivalent in JSON")
        return _SIMPLE[more]

    def number(self, argument: int, depth: int) -> int:
        return _int64(argument)

    def negative(self, argument: int, depth: int) -> int:
        return _int64(-1 - argument)

    def text(self, argument: int, depth: int) -> str:
        try:
            return self._take(argument).decode()
        except UnicodeDecodeError as error:
            raise CborError("the bytes of a string are no UTF-8") from error

    def array(self, argument: int, depth: int) -> list[Any]:
        if argument > len(self.data):
            raise CborError("the value is cut off")
        return [self.value(depth + 1) for _ in range(argument)]

    def map(self, argument: int, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for _ in range(argument):
            name = self.value(depth + 1)
            if not isinstance(name, str) or name in found:
                raise CborError(f"a key is no string, or is used twice: {name!r}")
            found[name] = self.value(depth + 1)
        return found

    def tagged(self, argument: int, depth: int) -> Any:
        if argument in _TEXT_OF_BYTES:
            first = self._take(1)[0]
            if first >> 5 != 2:
                raise CborError(f"the value of tag {argument} is not a byte string")
            return _TEXT_OF_BYTES[argument](self._take(self._argument(first & 0x1F))).decode()
        if argument != 55799:
            raise CborError(f"tag {argument} is not supported")
        return self.value(depth + 1)


_READERS: tuple[Callable[[_Reader, int, int], Any], ...] = (
    _Reader.number, _Reader.negative, _Reader.text, _Reader.text, _Reader.array, _Reader.map, _Reader.tagged,
)  # fmt: skip
"""Major type of CBOR → the function that reads a value of this type."""


def _int64(number: int) -> int:
    if not -(2**63) <= number < 2**63:
        raise CborError("an integer exceeds 64 bits")
    return number
