"""Go's scalar types that only built-in kinds have: quantities, numbers that may be texts."""

import re
from dataclasses import dataclass
from typing import Any

from apiext.crd.typed import INT32, Decoding, Mismatch
from apiext.documents.errors import DecodeError
from apiext.documents.places import Place

_QUANTITY = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?")
_BAD_QUANTITY = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"


@dataclass(frozen=True, slots=True)
class IntOrText:
    """An intstr.IntOrString."""

    go: str = "intstr.IntOrString"
    zero: Any = 0

    def decode(self, value: Any, place: Place, into: Decoding) -> Any:
        """Return the number or the text; raises DecodeError, as a type that reads itself stops at its fault."""
        if value.__class__ is str:
            return value
        own = Decoding(into.owner, into.fields)
        number = INT32.decode(value, place, own)
        if own.fault is not None:
            if isinstance(own.fault, Mismatch):
                own.fault.restored = f"json: cannot unmarshal {own.fault.found} into Go value of type int32"
            raise own.fault
        return number


@dataclass(frozen=True, slots=True)
class Quantity:
    """A resource.Quantity, kept as it is written; a number becomes its text."""

    go: str = "resource.Quantity"
    zero: Any = "0"

    def decode(self, value: Any, place: Place, into: Decoding) -> Any:
        """Return the text; raises DecodeError with Go's text."""
        if value is None:
            return "0"
        text = value if value.__class__ is str else str(value) if value.__class__ in (int, float) else ""
        if not _QUANTITY.fullmatch(text):
            raise DecodeError(_BAD_QUANTITY)
        return text
