"""Go's scalar types that only built-in kinds have: times with microseconds, quantities, numbers that may be texts."""

import re
from dataclasses import dataclass
from datetime import UTC
from typing import Any

from apiext.crd.typed import Decoding, Mismatch
from apiext.documents.encoding import json_kind
from apiext.documents.errors import DecodeError
from apiext.meta import time

MICRO_LAYOUT = "2006-01-02T15:04:05.000000Z07:00"
_ZERO = "0001-01-01T00:00:00.000000Z"  # Go's zero time, which it writes as null
_QUANTITY = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?")
_BAD_QUANTITY = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"


@dataclass(frozen=True, slots=True)
class MicroTime:
    """A metav1.MicroTime: RFC 3339 with exactly six digits of a second, null when unset (clients.md §4)."""

    go: str = "v1.MicroTime"
    zero: Any = None

    def decode(self, value: Any, path: str, into: Decoding) -> Any:
        """Return the time in UTC; raises DecodeError with Go's text."""
        if value is None:
            return None
        if value.__class__ is not str:
            raise Mismatch(json_kind(value), "string", into.owner, into.fields)
        try:
            moment = time.parse(value, micros=True)
        except ValueError as error:
            raise DecodeError(str(error).replace(time.LAYOUT, MICRO_LAYOUT)) from error
        try:
            text = moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
        except OverflowError as error:  # an offset that leaves the years that can be written
            raise DecodeError("Time.MarshalJSON: year outside of range [0,9999]") from error
        return None if text == _ZERO else text


@dataclass(frozen=True, slots=True)
class IntOrText:
    """An intstr.IntOrString."""

    go: str = "intstr.IntOrString"
    zero: Any = 0

    def decode(self, value: Any, path: str, into: Decoding) -> Any:
        """Return the number or the text."""
        if value.__class__ is str or (value.__class__ is int and -(2**31) <= value < 2**31):
            return value
        if value is not None:
            into.mismatch(value, "int32", "int32")
        return 0


@dataclass(frozen=True, slots=True)
class Quantity:
    """A resource.Quantity, kept as it is written; a number becomes its text."""

    go: str = "resource.Quantity"
    zero: Any = "0"

    def decode(self, value: Any, path: str, into: Decoding) -> Any:
        """Return the text; raises DecodeError with Go's text."""
        if value is None:
            return "0"
        text = value if value.__class__ is str else str(value) if value.__class__ in (int, float) else ""
        if not _QUANTITY.fullmatch(text):
            raise DecodeError(_BAD_QUANTITY)
        return text
