"""Error texts of Go's protobuf decoder for malformed messages.

A walk over the fields of a message finds its error.
"""

from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from apiext.http import limits

UNKNOWN = "proto: wrong wire data"
"""The text of an error that the walk does not find.

Go may accept such bytes, for example in a string that is not UTF-8, but this server does not.
"""

_EOF = "unexpected EOF"
_NEGATIVE = "proto: negative length found during unmarshaling"
_LENGTH = 2  # wire type
_SIZES = {1: 8, 5: 4}  # wire type → bytes
_WIRE = {  # type of a field → wire type; all other types have 0
    FieldDescriptor.TYPE_STRING: 2,
    FieldDescriptor.TYPE_BYTES: 2,
    FieldDescriptor.TYPE_MESSAGE: 2,
    FieldDescriptor.TYPE_DOUBLE: 1,
    FieldDescriptor.TYPE_FLOAT: 5,
}
_EXTENSION = "xKubernetes"
_INITIALS = {  # name of a field → its name in Go
    "apiVersion": "APIVersion",
    "caBundle": "CABundle",
    "id": "ID",
    "jsonPath": "JSONPath",
    "uid": "UID",
    "url": "URL",
}


class _Wrong(Exception):
    """An error in the message, with Go's text."""


def fault(descriptor: Any, raw: bytes) -> str:
    """Return Go's text of the first error in a malformed message (upstream: generated.pb.go)."""
    try:
        _Walk().message(descriptor, raw, 0)
    except _Wrong as wrong:
        return str(wrong)
    return UNKNOWN


class _Walk:
    """A walk over a limited number of fields and levels.

    An error beyond these limits gets the text UNKNOWN.
    """

    def __init__(self) -> None:
        self._left = limits.WALKED_FIELDS

    def message(self, descriptor: Any, raw: bytes, depth: int) -> None:
        """Raise the first error of a message; return if the walk finds none."""
        at = 0
        while at < len(raw):
            self._left -= 1
            if self._left < 0 or depth > limits.WALKED_DEPTH:
                raise _Wrong(UNKNOWN)
            begin = at
            tag, at = _varint(raw, at)
            number, wire = (tag >> 3) & 0xFFFFFFFF, tag & 7
            number -= (number & 0x80000000) << 1  # a signed 32-bit number
            if wire == 4:
                raise _Wrong(f"proto: {descriptor.name}: wiretype end group for non-group")
            if number <= 0:
                raise _Wrong(f"proto: {descriptor.name}: illegal tag {number} (wire type {tag})")
            field = descriptor.fields_by_number.get(number)
            at = _skip(raw, begin) if field is None else self._field(field, wire, (raw, at), depth)
            if at > len(raw):
                raise _Wrong(_EOF)

    def _field(self, field: Any, wire: int, position: tuple[bytes, int], depth: int) -> int:
        """Return the offset of the end of a known field, which may be after the end of the message."""
        raw, at = position
        if wire != _WIRE.get(field.type, 0):
            raise _Wrong(f"proto: wrong wireType = {wire} for field {_go_name(field.name)}")
        if wire in _SIZES:
            return at + _SIZES[wire]
        length, at = _varint(raw, at)
        if wire != _LENGTH:
            return at
        end = at + _positive(length)
        if end <= len(raw) and field.message_type is not None:
            self.message(field.message_type, raw[at:end], depth + 1)
        return end


def _go_name(name: str) -> str:
    if name.startswith(_EXTENSION):
        return f"X{name[len(_EXTENSION) :]}"
    return _INITIALS.get(name) or name[:1].upper() + name[1:]


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    """Return an unsigned number of 64 bits and the offset of its end."""
    number = 0
    for shift in range(0, 64, 7):
        if at >= len(raw):
            raise _Wrong(_EOF)
        byte = raw[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number & 0xFFFFFFFFFFFFFFFF, at
    raise _Wrong("proto: integer overflow")


def _positive(length: int) -> int:
    if length >= 2**63:
        raise _Wrong(_NEGATIVE)
    return length


def _skip(raw: bytes, at: int) -> int:
    """Return the offset of the end of an unknown field, in which groups may nest.

    The offset may be after the end of the message.
    """
    depth = 0
    while at < len(raw):
        tag, at = _varint(raw, at)
        wire = tag & 7
        if wire in _SIZES:
            at += _SIZES[wire]
        elif wire == _LENGTH:
            length, at = _varint(raw, at)
            at += _positive(length)
        elif wire == 0:
            _, at = _varint(raw, at)
        elif wire > 5:
            raise _Wrong(f"proto: illegal wireType {wire}")
        else:
            depth += 1 if wire == 3 else -1
        if depth < 0:
            raise _Wrong("proto: unexpected end of group")
        if depth == 0:
            return at
    raise _Wrong(_EOF)
