"""Convert floats without a fraction to integers, as upstream's YAML to JSON conversion does."""

import math
from decimal import Decimal

from apiext.documents.errors import DecodeError

_INT_MIN, _INT_MAX = -(2**63), 2**63 - 1


class Unsupported(DecodeError):
    """The error of a YAML value or key without an equivalent in JSON.

    Upstream reports this error only after it has read the whole text.
    """


def integral(number: float) -> int | float:
    """Return an integral float in the range of int64 as an int, and other floats unchanged.

    Raise Unsupported for NaN and infinity.
    """
    if not math.isfinite(number):
        sign = "" if math.isnan(number) else "+" if number > 0 else "-"
        raise Unsupported(f"json: unsupported value: {sign}{'NaN' if math.isnan(number) else 'Inf'}")
    if not number.is_integer():
        return number
    whole = int(Decimal(repr(number)))  # as Go prints it: the shortest digits that identify the float, then zeros
    return whole if _INT_MIN <= whole <= _INT_MAX else number
