"""Canonical form of quantities: ``0.5`` → ``500m``, ``1024Mi`` → ``1Gi``.

Upstream: resource.Quantity.
"""

import re
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fractions import Fraction

_PARTS = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?(.*)")
_BINARY = ("Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_SUFFIXES = {power: suffix for suffix, power in _DECIMAL.items()}
_MAX = 2**63 - 1
_NANO = 9
_DIGITS = 60  # number of exact digits of a mantissa: more than 2**63 * 10**9 * 1024**6 has
_MAX_CACHED = 40  # maximum length of a quantity in the cache, in characters


def canonical(text: str, places: int = _NANO) -> str:
    """Return a well-formed quantity as Go prints it.

    The value is rounded away from zero to ``places`` decimal places. An absolute value over 2**63 - 1 is reduced
    to 2**63 - 1.
    """
    return _cached(text, places) if len(text) <= _MAX_CACHED else _canonical(text, places)


def _canonical(text: str, places: int) -> str:
    value, form = _parsed(text)
    return _printed(_rounded(value, places), form)


def _printed(value: "Fraction", form: str) -> str:
    if form == "Ki" and (abs(value) < 1024 or value.denominator != 1):
        form = ""
    if form == "Ki":
        return _binary(int(value))
    return _decimal(value, form)


_cached = lru_cache(1024)(_canonical)


def value_of(text: str) -> "Fraction":
    """Return the value of a quantity."""
    return _parsed(text)[0]


def plus(one: str, other: str) -> str:
    """Return a sum as Go's Add prints it: in the format of the first addend that is not zero."""
    (value, form), (more, its_form) = _parsed(one), _parsed(other)
    return _printed(value + more, form if value else its_form)


def minus(one: str, other: str) -> str:
    """Return a difference as Go's Sub prints it.

    It is in the format of the first quantity that is not zero.
    """
    (value, form), (less, its_form) = _parsed(one), _parsed(other)
    return _printed(value - less, form if value else its_form)


def _parsed(text: str) -> "tuple[Fraction, str]":
    """Return the value and the format of a quantity.

    The format is ``Ki`` for powers of 1024, ``e`` for decimal exponents, else empty.
    """
    from fractions import Fraction  # the start of the server does not need it (decision 36)

    found = _PARTS.fullmatch(text)
    assert found is not None, "the caller has validated the text"
    sign, suffix = found[1], found[4]
    mantissa, power = _number(found[2], found[3] or "")
    if suffix in _BINARY:
        mantissa, form = mantissa * 1024 ** (_BINARY.index(suffix) + 1), "Ki"
    elif suffix in _DECIMAL:
        power, form = power + _DECIMAL[suffix], ""
    else:
        power, form = power + int(suffix[1:]), "e"
    value = mantissa * Fraction(10) ** max(-400, min(power, 400))  # beyond ±400, the next line caps or rounds the value
    value = min(_rounded(value, _NANO), Fraction(_MAX))
    if form == "Ki" and 0 < value < 1:
        form = ""
    return (-value if sign == "-" else value), form


def _number(whole: str, digits: str) -> tuple[int, int]:
    """Return a number as mantissa and power of ten.

    Round up a mantissa of more than _DIGITS digits.
    """
    text, power = (whole + digits).lstrip("0"), -len(digits)
    rest = text[_DIGITS:]
    return int(text[:_DIGITS] or 0) + (rest.strip("0") != ""), power + len(rest)


def _rounded(value: "Fraction", places: int) -> "Fraction":
    """Round a value away from zero to this number of decimal places."""
    scaled = abs(value) * 10**places
    up = -(-scaled.numerator // scaled.denominator)
    return type(value)(up if value >= 0 else -up, 10**places)


def _binary(value: int) -> str:
    power = 0
    while value and value % 1024 == 0 and power < len(_BINARY):
        value //= 1024
        power += 1
    return f"{value}{_BINARY[power - 1] if power else ''}"


def _decimal(value: "Fraction", form: str) -> str:
    if not value:
        return "0"
    number, power = value * 10**_NANO, -_NANO
    mantissa = int(number)
    while mantissa % 1000 == 0 and (power < 18 or form == "e"):
        mantissa //= 1000
        power += 3
    if form == "e":
        return f"{mantissa}e{power}" if power else str(mantissa)
    return f"{mantissa}{_SUFFIXES[power]}"
