"""Kubernetes' quantities: numbers with a suffix, exact."""

import re
from fractions import Fraction

from apiext.cel.overloads import Library, row
from apiext.cel.types import QUANTITY
from apiext.cel.values import INT_MAX, INT_MIN, Fault, Special, Value, no_overload

_FORM = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?(.*)\Z", re.DOTALL)
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_EXPONENT = re.compile(r"[eE]([+-]?[0-9]+)\Z")
_PLAIN_SUFFIX = re.compile(r"[eEinumkKMGTP]*[+-]?[0-9]*\Z")
MAX_EXPONENT = 1_000  # of a decimal suffix; larger ones only fill memory
_WRONG_FORM = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
_WRONG_SUFFIX = "unable to parse quantity's suffix"
_NANO = Fraction(1, 10**9)


class Quantity(Special):
    """An exact number."""

    __slots__ = ("number",)
    type_name = QUANTITY.name

    def __init__(self, number: Fraction) -> None:
        self.number = number

    def same(self, other: Value) -> bool | Fault:
        """Compare as numbers."""
        return self.number == other.number if type(other) is Quantity else no_overload()


def parse(text: str) -> Quantity | Fault:
    """Return the quantity of a text, or upstream's words on why it is none."""
    if not text:
        return Fault(_WRONG_FORM)
    if text == "0":
        return Quantity(Fraction(0))
    found = _FORM.match(text)
    assert found is not None
    sign, whole, part, suffix = found[1], found[2], found[3] or "", found[4]
    if not whole and not part:
        return Fault(_WRONG_FORM)
    if not _PLAIN_SUFFIX.match(suffix):
        return Fault(_WRONG_FORM)
    scale = _scale(suffix)
    if scale is None:
        return Fault(_WRONG_SUFFIX)
    number = Fraction(int((whole + part)[:10_000] or "0"), 10 ** len(part)) * scale
    # upstream: what is finer than nano is rounded up, away from zero
    if number % _NANO:
        number = -(-number // _NANO) * _NANO
    return Quantity(-number if sign == "-" else number)


def _scale(suffix: str) -> Fraction | None:
    if suffix in _BINARY:
        return Fraction(1 << _BINARY[suffix])
    if suffix in _DECIMAL:
        return Fraction(10) ** _DECIMAL[suffix]
    found = _EXPONENT.match(suffix)
    if found is None or len(found[1]) > 6 or abs(int(found[1])) > MAX_EXPONENT:
        return None
    return Fraction(10) ** int(found[1])


def _is_quantity(text: str) -> Value:
    return type(parse(text)) is Quantity


def _sign(quantity: Quantity) -> Value:
    return (quantity.number > 0) - (quantity.number < 0)


def _is_greater(one: Quantity, other: Quantity) -> Value:
    return one.number > other.number


def _is_less(one: Quantity, other: Quantity) -> Value:
    return one.number < other.number


def _compare(one: Quantity, other: Quantity) -> Value:
    return (one.number > other.number) - (one.number < other.number)


def _as_float(quantity: Quantity) -> Value:
    return float(quantity.number)


def _is_integer(quantity: Quantity) -> Value:
    return quantity.number.denominator == 1 and INT_MIN <= quantity.number <= INT_MAX


def _as_integer(quantity: Quantity) -> Value:
    return int(quantity.number) if _is_integer(quantity) else Fault("cannot convert value to integer")


def _add(one: Quantity, other: Quantity) -> Value:
    return Quantity(one.number + other.number)


def _add_int(one: Quantity, other: int) -> Value:
    return Quantity(one.number + other)


def _sub(one: Quantity, other: Quantity) -> Value:
    return Quantity(one.number - other.number)


def _sub_int(one: Quantity, other: int) -> Value:
    return Quantity(one.number - other)


LIBRARY = Library(
    "kubernetes.quantity",
    (
        row("quantity", "string_to_quantity", "string -> quantity", parse, "quantity('1Ki') == quantity('1024')"),
        row("isQuantity", "is_quantity_string", "string -> bool", _is_quantity, "isQuantity('1.3G')",
            "!isQuantity('1,3G')"),
        row("sign", "quantity_sign", ".quantity -> int", _sign, "quantity('-1').sign() == -1"),
        row("isGreaterThan", "quantity_is_greater_than", ".quantity, quantity -> bool", _is_greater,
            "quantity('150Mi').isGreaterThan(quantity('100Mi'))"),
        row("isLessThan", "quantity_is_less_than", ".quantity, quantity -> bool", _is_less,
            "quantity('50M').isLessThan(quantity('100M'))"),
        row("compareTo", "quantity_compare_to", ".quantity, quantity -> int", _compare,
            "quantity('200M').compareTo(quantity('0.2G')) == 0"),
        row("asApproximateFloat", "quantity_get_float", ".quantity -> double", _as_float,
            "quantity('50.5').asApproximateFloat() == 50.5"),
        row("asInteger", "quantity_get_int", ".quantity -> int", _as_integer, "quantity('50k').asInteger() == 50000"),
        row("isInteger", "quantity_is_integer", ".quantity -> bool", _is_integer, "!quantity('50.5').isInteger()"),
        row("add", "quantity_add", ".quantity, quantity -> quantity", _add,
            "quantity('50k').add(quantity('20')) == quantity('50020')"),
        row("add", "quantity_add_int", ".quantity, int -> quantity", _add_int,
            "quantity('50k').add(20) == quantity('50020')"),
        row("sub", "quantity_sub", ".quantity, quantity -> quantity", _sub,
            "quantity('50k').sub(quantity('20')) == quantity('49980')"),
        row("sub", "quantity_sub_int", ".quantity, int -> quantity", _sub_int,
            "quantity('50k').sub(-20) == quantity('50020')"),
    ),
    since=(1, 28),
    types=(QUANTITY,),
)  # fmt: skip
