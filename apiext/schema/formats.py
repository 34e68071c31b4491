"""Validate string formats as Go does; list the formats that affect each type.

See VAL-005, VAL-006.
"""

import re
from collections.abc import Callable, Sequence
from datetime import date

from apiext.schema import addresses, mail, uris
from apiext.schema.patterns import searcher

INTEGER_FORMATS = frozenset(("int32", "int64"))
NUMBER_FORMATS = frozenset(("float", "double"))

_NO_DIGITS = bytes(sorted(frozenset(range(256)) - frozenset(b"0123456789")))
_ISBN_NOISE = re.compile(r"[\t\n\f\r -]+")
# The quantifiers are possessive, so that the time of a search is linear.
_DURATION_PART = re.compile(r"(?<![0-9])([0-9]++)[\t\n\f\r ]*+([A-Za-zµ]++)")
_GO_DURATION_PART = re.compile(r"(?:([0-9]+)(\.[0-9]*)?|(\.[0-9]+))(ns|us|µs|μs|ms|s|m|h)")
_NANOSECONDS = {"ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": 10**9, "m": 60 * 10**9}
_NANOSECONDS["h"] = 3600 * 10**9
_UNITS = frozenset(("ns", "us", "µs", "ms", "s", "m", "h", "hr", "d", "w", "wk"))
_UNIT_PREFIXES = ("nano", "micro", "milli", "sec", "min", "hour", "day", "week")
_MAX_INT64 = 2**63 - 1


def _go_duration(text: str) -> bool:
    unsigned = text[1:] if text[:1] in ("-", "+") else text
    if unsigned == "0":
        return True
    total, at = 0, 0
    while at < len(unsigned):  # match one part at a time, so that another thread can take the interpreter lock
        part = _GO_DURATION_PART.match(unsigned, at)
        if part is None:
            return False
        whole, fraction, unit = part[1] or "", part[2] or part[3] or "", part[4]
        scale = _NANOSECONDS[unit]
        total += int(whole[:20] or 0) * scale if len(whole.lstrip("0")) <= 19 else 2**64
        if len(fraction) > 1:
            total += int(float("0" + fraction[:25]) * scale)
        at = part.end()
    return at > 0 and total <= (_MAX_INT64 + 1 if text.startswith("-") else _MAX_INT64)


def duration(text: str) -> bool:
    """Return whether a text is a duration for Go's ParseDuration, or contains one in words.

    An example in words is ``2 days``. A text in words is invalid if a number before any word exceeds an int64.
    """
    if _go_duration(text):
        return True
    found = False
    for part in _DURATION_PART.finditer(text):
        number, unit = part.groups()
        if len(number.lstrip("0")) > 19 or int(number[-40:]) > _MAX_INT64:
            return False
        name = unit.lower()
        found = found or name in _UNITS or name.startswith(_UNIT_PREFIXES)
    return found


def full_date(text: str) -> bool:
    """Return whether the text is a date in Go's layout 2006-01-02."""
    if len(text) != 10 or text[4] != "-" or text[7] != "-":
        return False
    parts = (text[:4], text[5:7], text[8:])
    if not all(part.isascii() and part.isdigit() for part in parts):
        return False
    year, month, day = map(int, parts)
    try:
        date(year or 2000, month, day)  # unlike Python, Go has a year 0, which is a leap year as 2000 is
    except ValueError:
        return False
    return True


_CLOCK = re.compile(r"([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))\Z")


def date_time(text: str) -> bool:
    """Return whether the text is a date-time; a zone is required (VAL-006)."""
    if len(text.encode("utf-8", "replace")) < 4:
        return False
    parts = text.lower().split("t")
    if len(parts) < 2 or not full_date(parts[0]):
        return False
    clock = _CLOCK.match(parts[1])
    return clock is not None and clock[1] <= "23" and clock[2] <= "59" and clock[3] <= "59"


def _isbn10(text: str) -> bool:
    digits = _ISBN_NOISE.sub("", text)
    if re.fullmatch(r"[0-9]{9}[0-9X]", digits) is None:
        return False
    total = sum((place + 1) * int(digit) for place, digit in enumerate(digits[:9]))
    return (total + 10 * (10 if digits[9] == "X" else int(digits[9]))) % 11 == 0


def _isbn13(text: str) -> bool:
    digits = _ISBN_NOISE.sub("", text)
    if re.fullmatch(r"[0-9]{13}", digits) is None:
        return False
    total = sum(int(digit) * (3 if place % 2 else 1) for place, digit in enumerate(digits[:12]))
    return int(digits[12]) == (10 - total % 10) % 10


_CARD = re.compile(
    r"(?:4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}"
    r"|3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35[0-9]{3})[0-9]{11})\Z"
)


def _credit_card(text: str) -> bool:
    digits = text.encode("utf-8", "replace").translate(None, _NO_DIGITS).decode()
    if _CARD.match(digits) is None:
        return False
    total = 0
    for place, digit in enumerate(reversed(digits)):
        value = int(digit) * (2 if place % 2 else 1)
        total += value - 9 if value > 9 else value
    return total % 10 == 0


def _hostname(text: str) -> bool:
    if len(text.encode("utf-8", "replace")) > 255 or not _HOSTNAME(text):
        return False
    return all(len(label.encode("utf-8", "replace")) <= 63 for label in text.split("."))


_HOSTNAME = searcher(  # upstream's pattern also limits the length of each label; here _hostname does this
    r"^([a-zA-Z0-9\p{S}\p{L}]-?[a-zA-Z0-9\p{S}\p{L}]*"
    r"|([a-zA-Z0-9\p{S}\p{L}]([a-zA-Z0-9-\p{S}\p{L}]*[a-zA-Z0-9\p{S}\p{L}])?\.)+[a-zA-Z\p{L}]{2,})$"
)
_BYTE_NUMBER = r"(?:0|[1-9][0-9]?|1[0-9][0-9]?|2[0-4][0-9]|25[0-5])"
_SPACE = r"[\t\n\f\r ]*"


def _matches(pattern: str) -> Callable[[str], bool]:
    match = re.compile(pattern + r"\Z").match
    return lambda text: match(text) is not None


def _sized(limit: int, check: Callable[[str], bool]) -> Callable[[str], bool]:
    return lambda text: len(text) <= limit and check(text)


_HEX8 = r"[0-9a-fA-F]{8}-?[0-9a-fA-F]{4}-?"
_HEX3 = r"[0-9a-fA-F]{3}-?"
_HEX12 = r"[0-9a-fA-F]{12}"
_VARIANT = r"[89abAB]"
_LABEL = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"

CHECKS: dict[str, Callable[[str], bool]] = {
    "bsonobjectid": _matches(r"[0-9a-fA-F]{24}"),
    "uri": uris.request_uri,
    "email": mail.email,
    "hostname": _hostname,
    "ipv4": addresses.ipv4,
    "ipv6": addresses.ipv6,
    "cidr": addresses.cidr,
    "mac": addresses.mac,
    "uuid": _matches(_HEX8 + r"[0-9a-fA-F]" + _HEX3 + r"[0-9a-fA-F]" + _HEX3 + _HEX12),
    "uuid3": _matches(_HEX8 + "3" + _HEX3 + r"[0-9a-fA-F]" + _HEX3 + _HEX12),
    "uuid4": _matches(_HEX8 + "4" + _HEX3 + _VARIANT + _HEX3 + _HEX12),
    "uuid5": _matches(_HEX8 + "5" + _HEX3 + _VARIANT + _HEX3 + _HEX12),
    "isbn": lambda text: _isbn10(text) or _isbn13(text),
    "isbn10": _isbn10,
    "isbn13": _isbn13,
    "creditcard": _credit_card,
    "ssn": _sized(11, _matches(r"[0-9]{3}[- ][0-9]{2}[- ][0-9]{4}")),
    "hexcolor": _matches(r"#?(?:[0-9a-fA-F]{3}|[0-9a-fA-F]{6})"),
    "rgbcolor": _matches(
        rf"rgb\({_SPACE}{_BYTE_NUMBER}{_SPACE},{_SPACE}{_BYTE_NUMBER}{_SPACE},{_SPACE}{_BYTE_NUMBER}{_SPACE}\)"
    ),
    "byte": _matches(r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})"),
    "password": lambda _: True,
    "date": full_date,
    "duration": duration,
    "datetime": date_time,
    "k8sshortname": _sized(63, _matches(_LABEL)),
    "k8slongname": _sized(253, _matches(rf"{_LABEL}(?:\.{_LABEL})*")),
}
"""Name of a string format without dashes → its check."""


def string_check(name: str) -> Callable[[str], bool] | None:
    """Return the check of a string format, None if unknown; ignore dashes in the name."""
    return CHECKS.get(name.replace("-", ""))


def has_effect(types: Sequence[str], name: str) -> bool:
    """Return whether a format affects values of these types (VAL-005).

    Several types, or no type, count as string.
    """
    kind = types[0] if len(types) == 1 else ""
    if kind in ("", "string"):
        return name.replace("-", "") in CHECKS
    if kind == "integer":
        return name in INTEGER_FORMATS
    return kind == "number" and name in NUMBER_FORMATS
