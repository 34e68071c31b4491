"""Kubernetes' quantities: exact numbers with a suffix.

Upstream represents them as an int64 or as a big number.
"""

import re

from apiext.cel import limits
from apiext.cel.costs import READ
from apiext.cel.overloads import Library, row
from apiext.cel.types import QUANTITY
from apiext.cel.values import INT_MAX, INT_MIN, Fault, Special, Value, no_overload

_FORM = re.compile(r"([+-]?)(0*+)([0-9]*+)(\.?)([0-9]*+)([eEinumkKMGTP]*+[+-]?[0-9]*+)\Z")
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_EXPONENT = re.compile(r"[eE]([+-]?[0-9]+)\Z")
_POWERS = (-323, 308)  # exponents of ten in the range of doubles
_WRONG_FORM = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
_WRONG_NUMBER = "unable to parse numeric part of quantity"
_WRONG_SUFFIX = "unable to parse quantity's suffix"
_NANO = -9  # smallest exponent of a quantity; smaller parts are rounded
_DIGITS = 18  # decimal digits that always fit an int64
_BINARY_DIGITS = 15


class Quantity(Special):
    """A number times a power of ten.

    ``short`` is true if upstream represents the number as an int64. Only such a quantity can be converted to an
    integer. ``made`` is true for the result of an addition or subtraction; upstream fails if such a result is on the
    right of ``==``.
    """

    __slots__ = ("exponent", "made", "number", "short")
    type_name = QUANTITY.name

    @property
    def go_type(self) -> str:  # type: ignore[override]
        """Return the name of the Go type that upstream uses."""
        return "*cel.Quantity" if self.made else "cel.Quantity"

    def __init__(self, number: int, exponent: int = 0, *, short: bool = True, made: bool = False) -> None:
        self.number = number
        self.exponent = exponent
        self.short = short
        self.made = made

    def same(self, other: Value) -> bool | Fault:
        """Return whether both quantities are the same number."""
        return _order(self, other) == 0 if type(other) is Quantity and not other.made else no_overload()


def _aligned(one: Quantity, other: Quantity) -> tuple[int, int, int]:
    """Return both numbers scaled to a common exponent, and the exponent."""
    least = min(one.exponent, other.exponent)
    return one.number * 10 ** (one.exponent - least), other.number * 10 ** (other.exponent - least), least


def _order(one: Quantity, other: Quantity) -> int:
    first, second, _ = _aligned(one, other)
    return (first > second) - (first < second)


def _fits(number: int) -> bool:
    return INT_MIN <= number <= INT_MAX


def parse(text: str) -> Quantity | Fault:
    """Parse a text as a quantity; return upstream's fault for an invalid text."""
    found = _FORM.match(text)
    if found is None or not text or len(text) > limits.MAX_DIGITS:
        return Fault(_WRONG_FORM)
    sign, zeros, whole, _, part, suffix = found.groups()
    whole, binary = whole or "0", _BINARY.get(suffix)
    exponent = _DECIMAL.get(suffix, 0)
    if binary is None and suffix not in _DECIMAL:
        written = _EXPONENT.match(suffix)
        if written is None or len(written[1]) > 6 or abs(int(written[1])) > limits.MAX_EXPONENT:
            return Fault(_WRONG_SUFFIX)
        exponent = int(written[1])
    number = int(whole + part)
    if binary is None:
        room = _DIGITS - len(whole + part)
    else:
        room = -1 if part else _BINARY_DIGITS - len(whole) - binary * 3 // 10 - 1
    exponent -= len(part)
    if room >= 0 and exponent >= _NANO and _fits(number << (binary or 0)):
        number <<= binary or 0
        return Quantity(-number if sign == "-" else number, exponent)
    if not zeros and not found[3] and not part:
        return Fault(_WRONG_NUMBER)
    return _long(number << (binary or 0), exponent, sign == "-", binary is not None)


def _long(number: int, exponent: int, negative: bool, binary: bool) -> Quantity:
    if number:  # upstream rounds parts below a billionth away from zero
        shift = exponent - _NANO
        number, exponent = number * 10**shift if shift >= 0 else -(-number // 10**-shift), _NANO
    if binary and number > INT_MAX * 10**-exponent:
        number, exponent = INT_MAX, 0
    return Quantity(-number if negative else number, exponent, short=False)


def _as_float(quantity: Quantity) -> Value:
    try:
        base = float(quantity.number)
    except OverflowError:
        base = float("inf") if quantity.number > 0 else float("-inf")
    return base * _power_of_ten(quantity.exponent) if quantity.exponent else base


def _power_of_ten(exponent: int) -> float:
    """Return a power of ten as Go's math.Pow10 does.

    The result is the product of two known powers of ten, or their quotient for a negative exponent.
    """
    if not _POWERS[0] <= exponent <= _POWERS[1]:
        return 0.0 if exponent < 0 else float("inf")
    whole, rest = divmod(abs(exponent), 32)
    if exponent < 0:
        return float(f"1e-{whole * 32}") / float(f"1e{rest}")
    return float(f"1e{whole * 32}") * float(f"1e{rest}")


def _as_int(quantity: Quantity) -> int | None:
    if not quantity.short or quantity.exponent < 0:
        return None
    number = quantity.number * 10**quantity.exponent
    return number if _fits(number) else None


def _as_integer(quantity: Quantity) -> Value:
    number = _as_int(quantity)
    return Fault("cannot convert value to integer") if number is None else number


def _add(one: Quantity, other: Quantity) -> Quantity:
    if one.short and other.short:
        if not other.number:
            return Quantity(one.number, one.exponent, made=True)
        if not one.number:
            return Quantity(other.number, other.exponent, made=True)
    first, second, exponent = _aligned(one, other)
    short = one.short and other.short and all(map(_fits, (first, second, first + second)))
    return Quantity(first + second, exponent, short=short, made=True)


def _sub(one: Quantity, other: Quantity) -> Value:
    if other.short and other.number == INT_MIN:  # in Go the negative of this number is the number itself
        wrapped = _add(one, other)
        if wrapped.short:
            return wrapped
    return _add(one, Quantity(-other.number, other.exponent, short=other.short))


LIBRARY = Library(
    "kubernetes.quantity",
    (
        row("quantity", "string_to_quantity", "string -> quantity", parse, "quantity('1Ki') == quantity('1024')",
            cost=READ),
        row("isQuantity", "is_quantity_string", "string -> bool", lambda text: type(parse(text)) is Quantity,
            "isQuantity('1.3G')", "!isQuantity('1,3G')", cost=READ),
        row("sign", "quantity_sign", "quantity -> int", lambda one: (one.number > 0) - (one.number < 0),
            "sign(quantity('-1')) == -1"),
        row("isGreaterThan", "quantity_is_greater_than", ".quantity, quantity -> bool",
            lambda one, other: _order(one, other) > 0,
            "quantity('150Mi').isGreaterThan(quantity('100Mi'))"),
        row("isLessThan", "quantity_is_less_than", ".quantity, quantity -> bool",
            lambda one, other: _order(one, other) < 0,
            "quantity('50M').isLessThan(quantity('100M'))"),
        row("compareTo", "quantity_compare_to", ".quantity, quantity -> int", _order,
            "quantity('200M').compareTo(quantity('0.2G')) == 0"),
        row("asApproximateFloat", "quantity_get_float", ".quantity -> double", _as_float,
            "quantity('50.5').asApproximateFloat() == 50.5"),
        row("asInteger", "quantity_get_int", ".quantity -> int", _as_integer, "quantity('50k').asInteger() == 50000"),
        row("isInteger", "quantity_is_integer", ".quantity -> bool", lambda one: _as_int(one) is not None,
            "!quantity('50.5').isInteger()"),
        row("add", "quantity_add", ".quantity, quantity -> quantity", _add,
            "quantity('50k').add(quantity('20')) == quantity('50020')"),
        row("add", "quantity_add_int", ".quantity, int -> quantity", lambda one, other: _add(one, Quantity(other)),
            "quantity('50k').add(20) == quantity('50020')"),
        row("sub", "quantity_sub", ".quantity, quantity -> quantity", _sub,
            "quantity('50k').sub(quantity('20')) == quantity('49980')"),
        row("sub", "quantity_sub_int", ".quantity, int -> quantity", lambda one, other: _sub(one, Quantity(other)),
            "quantity('50k').sub(-20) == quantity('50020')"),
    ),
    since=(1, 28),
)  # fmt: skip
