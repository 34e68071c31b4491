"""Print floats as Go does: in JSON, with %v, and in YAML. The three formats differ."""

import math
from decimal import Decimal

_INT_MIN, _UINT64_END = -(2**63), 2**64
_EXPONENTS_FROM = 6  # from this decimal exponent on, Go's %g prints scientific notation


def json_float(value: float) -> str:
    """Return a finite float as Go's encoding/json prints it: ``1`` for 1.0, ``1e+21`` for 1e21."""
    size = abs(value)
    if size == 0:
        return "-0" if str(value)[0] == "-" else "0"
    text = repr(value)
    if 1e-6 <= size < 1e21:
        return (format(Decimal(text), "f") if "e" in text else text).removesuffix(".0")
    mantissa, _, exponent = text.partition("e")
    return f"{mantissa}e{int(exponent):+d}"


def go_float(value: float) -> str:
    """Return a float as Go's %v prints it."""
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return "NaN" if math.isnan(value) else shortest(Decimal(repr(value)).normalize())


def yaml_float(value: float) -> str:
    """Return a float as Go writes it in YAML.

    That is an integer if the float is integral and fits 64 bits, else the form of %g.
    """
    number = Decimal(repr(value)).normalize()
    if _INT_MIN <= number < _UINT64_END and value.is_integer():
        return str(int(number))
    return shortest(number)


def shortest(number: Decimal) -> str:
    """Return a normalized number as Go's %g prints it with the fewest digits."""
    exponent = number.adjusted()
    if -5 < exponent < _EXPONENTS_FROM:
        return format(number, "f")
    return f"{number.scaleb(-exponent):f}e{exponent:+03d}"
