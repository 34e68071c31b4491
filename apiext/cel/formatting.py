"""Replace the clauses of a format string, such as ``%.2f``, as CEL's ``format`` does."""

import math
import re
from collections.abc import Callable
from typing import Protocol

from apiext.cel import limits
from apiext.cel.conversions import to_string
from apiext.cel.effort import spend, spend_text
from apiext.cel.quotes import go_quote
from apiext.cel.types import Type
from apiext.cel.values import (
    NIL,
    Broken,
    Duration,
    Fault,
    Timestamp,
    Uint,
    Value,
    View,
    element,
    elements,
    is_list,
    is_map,
    type_name,
)

DEFAULT_PRECISION = 6
_DIGITS = re.compile(r"[0-9]+\Z")

REFUSALS = {
    "s": "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and "
    "timestamps, was given {}",
    "d": "decimal clause can only be used on integers, was given {}",
    "f": "fixed-point clause can only be used on doubles, was given {}",
    "e": "scientific clause can only be used on doubles, was given {}",
    "b": "only integers and bools can be formatted as binary, was given {}",
    "x": "only integers, byte buffers, and strings can be formatted as hex, was given {}",
    "o": "octal clause can only be used on integers, was given {}",
}
REFUSALS["X"] = REFUSALS["x"]


class FormatError(ValueError):
    """The error of a failed ``format``.

    ``blamed`` is the id of the wrong argument's node, or -1 for the call.
    """

    def __init__(self, message: str, blamed: int = -1) -> None:
        super().__init__(message)
        self.blamed = blamed


class Arguments(Protocol):
    """The arguments of CEL's function ``format``.

    These are values during the evaluation, and nodes during the check of types.
    """

    def clause(self, kind: str, precision: int, index: int) -> str:
        """Return the formatted argument of a clause, or "" during the check of types.

        Raise FormatError.
        """

    def need(self, index: int, ended: bool) -> None:
        """Raise FormatError if no argument has this index.

        ``ended`` is true if the format ends after the ``%``.
        """


def read_clauses(text: str, arguments: Arguments) -> str:
    """Return a string with its clauses replaced. Raise FormatError with upstream's text."""
    out: list[str] = []
    at, index, size = 0, 0, len(text)
    length = 0
    while True:
        found = text.find("%", at)
        if found < 0:
            out.append(text[at:])
            return "".join(out)
        out.append(text[at:found])
        at = found + 1
        if text[at : at + 1] == "%":
            out.append("%")
            at += 1
            continue
        arguments.need(index, at >= size)
        if at >= size:
            raise FormatError("unexpected end of string")
        kind, precision, at = _clause(text, at)
        made = arguments.clause(kind, precision, index)
        length += len(made)
        spend_text(len(made), wide=not made.isascii())
        if length > limits.MAX_TEXT:
            raise FormatError("error during formatting: text too long")
        out.append(made)
        index += 1


def _clause(text: str, at: int) -> tuple[str, int, int]:
    """Return (letter of a clause, precision, index after the clause)."""
    head = "could not parse formatting clause: "
    precision = DEFAULT_PRECISION
    if text[at] == ".":
        end = at + 1
        while end < len(text) and "0" <= text[end] <= "9":
            end += 1
        if end >= len(text):
            raise FormatError(head + "error while parsing precision: could not find end of precision specifier")
        digits = text[at + 1 : end]
        if not _DIGITS.match(digits) or len(digits) > 18:
            why = "invalid syntax" if not digits else "value out of range"
            raise FormatError(
                f"{head}error while parsing precision: error while converting precision to integer: "
                f'strconv.Atoi: parsing "{digits}": {why}'
            )
        precision = int(digits)
        if precision > limits.MAX_PRECISION:
            raise FormatError(
                f"{head}error while parsing precision: precision {precision} exceeds maximum allowed precision "
                f"{limits.MAX_PRECISION}"
            )
        at = end
    if text[at] not in REFUSALS:
        first = chr(text[at].encode("utf-8", "surrogatepass")[0])  # upstream reads the text byte by byte
        raise FormatError(f'{head}unrecognized formatting clause "{first}"')
    return text[at], precision, at + 1


class _Values:
    """The arguments of an evaluated ``format`` call."""

    def __init__(self, values: Value) -> None:
        self.values = values

    def need(self, index: int, ended: bool) -> None:
        if index >= len(self.values):
            raise FormatError(f"index {index} out of range")

    def clause(self, kind: str, precision: int, index: int) -> str:
        value = element(self.values, index)
        try:
            return _CLAUSES[kind](value, precision)
        except FormatError as wrong:
            raise FormatError(f"error during formatting: {wrong}") from None


def format_text(text: str, values: Value) -> Value:
    """Return a string with its clauses replaced by values.

    On a FormatError, return a fault with its text.
    """
    try:
        return read_clauses(text, _Values(values))
    except FormatError as wrong:
        return Fault(str(wrong))


def _refuse(kind: str, value: Value) -> FormatError:
    return FormatError(REFUSALS[kind].format(type_name(value)))


def _string(value: Value, precision: int = 0) -> str:
    if value is None:
        return "null"
    if is_list(value) or is_map(value):
        spend(len(value) + 1)
    if is_list(value):
        made = ", ".join(_inner(inner) for inner in elements(value))
        spend_text(len(made), wide=not made.isascii())
        return f"[{made}]"
    if is_map(value):
        pairs = sorted((_pair(value, key) for key in elements(value)), key=lambda pair: pair[0])
        made = ", ".join(f"{key}:{inner}" for key, inner in pairs)
        spend_text(len(made), wide=not made.isascii())
        return f"{{{made}}}"
    if type(value) in (int, Uint, float, bool, str, Timestamp, bytes, Duration) or isinstance(value, Type):
        text = to_string(value)
        if type(text) is Fault:
            raise FormatError(f"could not convert argument {go_quote(text.message)} to string")
        return str(text)
    raise _refuse("s", value)


def _pair(values: Value, key: Value) -> tuple[str, str]:
    if key is None and isinstance(values, View):
        raise Broken(NIL)
    name, found = _key(key), values.find(key)
    if found is None:
        raise FormatError(f"could not find key: {name}")
    return name, _inner(found[1])


def _key(value: Value) -> str:
    if type(value) not in (str, bool, int, Uint):
        raise FormatError(f"no formatting function for map key of type {type_name(value)}")
    return go_quote(value) if type(value) is str else _string(value)


def _inner(value: Value) -> str:
    """Return a value inside a list or map as a CEL literal."""
    kind = type(value)
    if kind is str:
        return go_quote(value)
    if kind is bytes:
        return "b" + go_quote(_string(value))
    if kind is float:
        text = go_fixed(value, DEFAULT_PRECISION)
        return text if value - value == 0 else go_quote(text)
    if kind is Timestamp or kind is Duration:
        return ("timestamp(" if kind is Timestamp else "duration(") + go_quote(_string(value)) + ")"
    if not (kind in (int, Uint, bool) or value is None or isinstance(value, Type) or is_list(value) or is_map(value)):
        raise FormatError(f"no formatting function for {type_name(value)}")
    return _string(value)


def _decimal(value: Value, precision: int) -> str:
    if type(value) not in (int, Uint):
        raise _refuse("d", value)
    return str(int(value))


_NO_NUMBERS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}


def _real(kind: str, value: Value) -> float:
    if type(value) is str and value in _NO_NUMBERS:
        return _NO_NUMBERS[value]
    if type(value) is not float:
        raise _refuse(kind, value)
    return value


def _fixed(value: Value, precision: int) -> str:
    return localized(_real("f", value), "f", precision)


def _scientific(value: Value, precision: int) -> str:
    text = localized(_real("e", value), "e", DEFAULT_PRECISION)
    return text.rjust(precision)  # as upstream, where the precision is the width of the text


def localized(number: float, kind: str, precision: int) -> str:
    """Return a number as Go's printer for en_US writes it, such as ``1,234.500000``.

    For the kind "e", an example is ``1.234500×10⁰³``.
    """
    if math.isnan(number):
        return "NaN"
    if number in (float("inf"), float("-inf")):
        return "∞" if number > 0 else "-∞"
    number = number or 0.0  # -0.0 becomes 0.0
    if kind == "f":
        return f"{number:,.{precision}f}"
    mantissa, _, exponent = f"{number:.{precision}e}".partition("e")
    raised = f"{int(exponent):03d}" if int(exponent) < 0 else f"{int(exponent):02d}"
    return mantissa + "×10" + "".join(_RAISED[char] for char in raised)


_RAISED = dict(zip("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹", strict=True))


def go_fixed(number: float, precision: int) -> str:
    """Return a number as Go's %f writes it."""
    if math.isnan(number):
        return "NaN"
    if number in (float("inf"), float("-inf")):
        return "+Inf" if number > 0 else "-Inf"
    return f"{number:.{precision}f}"


def _binary(value: Value, precision: int) -> str:
    if type(value) is bool:
        return "1" if value else "0"
    if type(value) not in (int, Uint):
        raise _refuse("b", value)
    return f"{int(value):b}"


def _hex(value: Value, precision: int) -> str:
    if type(value) is str:
        return value.encode("utf-8", "surrogatepass").hex()
    if type(value) is bytes:
        return value.hex()
    if type(value) not in (int, Uint):
        raise _refuse("x", value)
    return f"{int(value):x}"


def _upper_hex(value: Value, precision: int) -> str:
    return _hex(value, precision).upper()


def _octal(value: Value, precision: int) -> str:
    if type(value) not in (int, Uint):
        raise _refuse("o", value)
    return f"{int(value):o}"


_CLAUSES: dict[str, Callable[[Value, int], str]] = {
    "s": _string, "d": _decimal, "f": _fixed, "e": _scientific, "b": _binary, "x": _hex, "X": _upper_hex, "o": _octal
}  # fmt: skip
