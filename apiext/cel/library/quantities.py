"""Kubernetes' quantities: numbers with a suffix, exact."""

import re

from apiext.cel.overloads import Library, row
from apiext.cel.types import QUANTITY
from apiext.cel.values import INT_MAX, INT_MIN, Fault, Special, Value, no_overload

_FORM = re.compile(r"([+-]?)([0-9]*)(?:\.([0-9]*))?(.*)\Z", re.DOTALL)
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_EXPONENT = re.compile(r"[eE]([+-]?[0-9]+)\Z")
_PLAIN_SUFFIX = re.compile(r"[eEinumkKMGTP]*[+-]?[0-9]*\Z")
MAX_EXPONENT = 1_000  # of a decimal suffix; larger ones only fill memory
MAX_DIGITS = 4_000  # of a quantity; more only fill memory
_WRONG_FORM = "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
_WRONG_SUFFIX = "unable to parse quantity's suffix"
_NANOS = 10**9


class Quantity(Special):
    """An exact number, in billionths."""

    __slots__ = ("nanos",)
    type_name = QUANTITY.name

    def __init__(self, nanos: int) -> None:
        self.nanos = nanos

    def same(self, other: Value) -> bool | Fault:
        """Compare as numbers."""
        return self.nanos == other.nanos if type(other) is Quantity else no_overload()


def parse(text: str) -> Quantity | Fault:
    """Return the quantity of a text, or upstream's words on why it is none."""
    found = _FORM.match(text)
    assert found is not None
    sign, whole, part, suffix = found[1], found[2], found[3] or "", found[4]
    if not (whole or part) or not _PLAIN_SUFFIX.match(suffix) or len(text) > MAX_DIGITS:
        return Fault(_WRONG_FORM)
    number = int(whole + part) * _NANOS
    if suffix in _BINARY:
        number, power = number << _BINARY[suffix], -len(part)
    elif suffix in _DECIMAL:
        power = _DECIMAL[suffix] - len(part)
    else:
        exponent = _EXPONENT.match(suffix)
        if exponent is None or len(exponent[1]) > 6 or abs(int(exponent[1])) > MAX_EXPONENT:
            return Fault(_WRONG_SUFFIX)
        power = int(exponent[1]) - len(part)
    # what is finer than a billionth is rounded up, away from zero, as upstream does
    number = number * 10**power if power >= 0 else -(-number // 10**-power)
    return Quantity(-number if sign == "-" else number)


def _is_quantity(text: str) -> Value:
    return type(parse(text)) is Quantity


def _sign(quantity: Quantity) -> Value:
    return (quantity.nanos > 0) - (quantity.nanos < 0)


def _is_greater(one: Quantity, other: Quantity) -> Value:
    return one.nanos > other.nanos


def _is_less(one: Quantity, other: Quantity) -> Value:
    return one.nanos < other.nanos


def _compare(one: Quantity, other: Quantity) -> Value:
    return (one.nanos > other.nanos) - (one.nanos < other.nanos)


def _as_float(quantity: Quantity) -> Value:
    return quantity.nanos / _NANOS


def _is_integer(quantity: Quantity) -> Value:
    return not quantity.nanos % _NANOS and INT_MIN <= quantity.nanos // _NANOS <= INT_MAX


def _as_integer(quantity: Quantity) -> Value:
    return quantity.nanos // _NANOS if _is_integer(quantity) else Fault("cannot convert value to integer")


def _add(one: Quantity, other: Quantity) -> Value:
    return Quantity(one.nanos + other.nanos)


def _add_int(one: Quantity, other: int) -> Value:
    return Quantity(one.nanos + other * _NANOS)


def _sub(one: Quantity, other: Quantity) -> Value:
    return Quantity(one.nanos - other.nanos)


def _sub_int(one: Quantity, other: int) -> Value:
    return Quantity(one.nanos - other * _NANOS)


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
