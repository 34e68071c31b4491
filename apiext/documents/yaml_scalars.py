"""Resolve YAML scalars to values and keys, in the dialect of sigs.k8s.io/yaml (DEC-001)."""

import base64
import binascii
import math
import re
import struct
from decimal import Decimal
from typing import Any

from apiext.documents.errors import DecodeError
from apiext.documents.floats import shortest
from apiext.documents.integral import Unsupported, integral
from apiext.text.quotes import go_quote

TAG = "tag:yaml.org,2002:"
BOOLS = {
    word: truth
    for truth, words in ((True, ("y", "yes", "true", "on")), (False, ("n", "no", "false", "off")))
    for name in words
    for word in (name, name.capitalize(), name.upper())
}
NULLS = frozenset(("", "~", "null", "Null", "NULL"))
_INTEGER = re.compile(r"(?:[-+]?(?:0[xX][0-9a-fA-F]+|0[oO][0-7]+|0[bB][01]+|0[0-7]*|[1-9][0-9]*)|0b[-+][01]+)\Z")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?\Z")
_BETWEEN_DIGITS = re.compile(r"(?<=[0-9])_(?=[0-9])")
_TIME = (
    r"[0-9]{4}-[0-9]{1,2}-[0-9]{1,2}(?:(?:[Tt]|[ \t]+)[0-9]{1,2}:[0-9]{1,2}:[0-9]{1,2}(?:\.[0-9]*)?[ \t]*"
    r"(?:Z|[-+][0-9:]+)?)?"
)
_IS_TIME = re.compile(rf"{_TIME}\Z")
_NO_TEXT = re.compile(
    rf"(?:[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?|{_TIME})\Z"
)  # matches numbers of base 60, and times
_NOT_FINITE = {
    sign + word: float(f"{sign}{number}")
    for number in ("inf", "nan")
    for word in (f".{number}", f".{'NaN' if number == 'nan' else 'Inf'}", f".{number.upper()}")
    for sign in ("", "+", "-")
    if number == "inf" or not sign
}
_BASES = {"x": 16, "o": 8, "b": 2}
_RESOLVABLE = frozenset(("bool", "int", "float", "null", "timestamp"))
_NAMES = {type(None): "null", bool: "bool", int: "int", float: "float", str: "str"}
_LONGEST = 400  # characters of a text that is parsed as an integer; a longer text may become a float
_INT_MIN, _INT_MAX, _UINT64_END = -(2**63), 2**63 - 1, 2**64


def resolve(text: str) -> Any:
    """Return the value of a plain scalar.

    Integers from -2**63 to 2**64 - 1 are exact, but an integer over 2**63 - 1 with a plus sign becomes a float. Decimal
    integers out of this range become floats. Integers out of this range with a prefix such as ``0x``, and numbers over
    the range of float64, stay strings.
    """
    if text in NULLS:
        return None
    if text[0].isalpha():
        return BOOLS.get(text, text)
    if text in _NOT_FINITE:
        return _NOT_FINITE[text]
    plain = _BETWEEN_DIGITS.sub("", text) if text[0] in "._" else text.replace("_", "")
    if _INTEGER.match(plain) and len(plain) <= _LONGEST:
        number = _integer(plain)
        if _INT_MIN <= number <= _INT_MAX or (plain[0] not in "+-" and number < _UINT64_END):
            return number
    if _FLOAT.match(plain) and math.isfinite(real := float(plain)):
        return real
    return text


def _integer(text: str) -> int:
    digits = text.lstrip("+-")
    base = _BASES.get(digits[1:2].lower(), 8 if digits[0] == "0" and len(digits) > 1 else 10)
    number = int(digits[2:] if digits[1:2].lower() in _BASES else digits, base)
    return -number if text[0] == "-" else number


_NO_BREAKS = {ord("\n"): None, ord("\r"): None}  # characters that Go's base64 decoder skips


def tagged(tag: str, text: str) -> Any:
    """Return the value of a scalar with an explicit tag.

    Raise DecodeError if the text does not fit the tag. Return the text itself for a valid ``!!timestamp``, and for each
    tag that is neither ``!!binary`` nor in _RESOLVABLE.
    """
    name = tag.removeprefix(TAG)
    if name == "binary" and tag != name:
        try:
            return base64.b64decode(text.translate(_NO_BREAKS), validate=True).decode(errors="replace")
        except binascii.Error as error:
            raise DecodeError("yaml: !!binary value contains invalid base64 data") from error
    if name not in _RESOLVABLE or tag == name:
        return text
    value = resolve(text)
    if name == "timestamp" and _IS_TIME.match(text):
        return text
    found = _NAMES[value.__class__]
    if name == "float" and found == "int":
        return float(value)
    if found != name:
        raise DecodeError(f"yaml: cannot decode !!{found} `{text}` as a !!{name}")
    return value


def as_value(native: Any) -> Any:
    """Return a scalar as upstream converts it to JSON. Raise Unsupported for NaN and infinity.

    A float that is a whole number in the range of int64 becomes an integer; an integer out of this range becomes a
    float.
    """
    if native.__class__ is int:
        return native if _INT_MIN <= native <= _INT_MAX else float(native)
    return integral(native) if native.__class__ is float else native


def as_key(native: Any) -> str | None:
    """Return a scalar as a key of a JSON object, or None if upstream refuses it.

    Upstream refuses null and integers over 2**63 - 1.
    """
    if native.__class__ is str:
        key: str = native
        return key
    if native.__class__ is bool:
        return "true" if native else "false"
    if native.__class__ is float:
        return _short_float(native)  # upstream: a float key is printed with the digits of a float32
    return str(native) if native.__class__ is int and native <= _INT_MAX else None


def unsupported_key(native: Any, shown: str) -> Unsupported:
    """Return the error of a key for which ``as_key`` returns None.

    ``shown`` is the printed value of the entry.
    """
    kind, key = ("%!s(<nil>)", "<nil>") if native is None else ("uint64", f"{native:#x}")
    return Unsupported(f"unsupported map key of type: {kind}, key: {key}, value: {shown}")


def shown_key(native: Any) -> str:
    """Return a key as Go's ``%#v`` prints it; the text "None" for a key that ``as_key`` refuses."""
    return go_quote(native) if native.__class__ is str else str(as_key(native))


def _short_float(value: float) -> str:
    """Return a float as Go's %g prints a float32; return NaN and infinity as YAML writes them."""
    short = _single(value)
    if not math.isfinite(short):
        return ".nan" if math.isnan(short) else ".inf" if short > 0 else "-.inf"
    if short == 0:
        return "-0" if math.copysign(1, value) < 0 else "0"
    shown = (f"{short:.{digits}e}" for digits in range(9))  # nine digits distinguish all float32 values
    return shortest(Decimal(next(text for text in shown if _single(float(text)) == short)).normalize())


def _single(value: float) -> float:
    """Return the float32 nearest to a float."""
    try:
        return float(struct.unpack("f", struct.pack("f", value))[0])
    except OverflowError:
        return math.copysign(math.inf, value)


def is_ambiguous(text: str) -> bool:
    """Return whether a string needs quotes, so that YAML 1.1 and 1.2 read it as a string."""
    return resolve(text).__class__ is not str or bool(_NO_TEXT.match(text))
