"""Parse and print times and durations as Kubernetes does.

The forms are RFC 3339 in seconds or microseconds, Go durations, and ages in tables.
"""

import re
from datetime import UTC, datetime, timedelta, timezone
from functools import lru_cache
from math import inf
from time import time
from typing import NoReturn

from apiext.meta import limits
from apiext.text.quotes import time_quote

ZERO_TIME = "0001-01-01T00:00:00Z"
"""Go's zero time, which stands for an absent time."""
_LAYOUT, _MICRO_LAYOUT = "2006-01-02T15:04:05Z07:00", "2006-01-02T15:04:05.000000Z07:00"
_ZULU = re.compile(
    r"(?!0000)[0-9]{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]Z"
).fullmatch
_ZONE = re.compile(r"Z|([+-])([0-9]{2}):([0-9]{2})")
_FRACTION = re.compile(r"[.,][0-9]+")
_MICROS = re.compile(r"[.,][0-9]{6}")
_PARTS = (  # (preceding text, Go's layout of the part, minimal and maximal digits, name, lowest and highest value)
    ("", "2006", 4, 4, "year", 0, 9999),
    ("-", "01", 2, 2, "month", 1, 12),
    ("-", "02", 2, 2, "day", 0, 99),
    ("T", "15", 1, 2, "hour", 0, 23),
    (":", "04", 2, 2, "minute", 0, 59),
    (":", "05", 2, 2, "second", 0, 59),
)
_DIGITS = re.compile(r"[0-9]*")


def now() -> str:
    """Return the current time in UTC and seconds: ``2026-01-02T03:04:05Z``."""
    return _of_second(int(time()))


@lru_cache(1)
def _of_second(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def render(moment: datetime) -> str:
    """Return a time as Kubernetes writes it: in UTC and seconds."""
    return moment.astimezone(UTC).replace(microsecond=0, tzinfo=None).isoformat() + "Z"


def parse(text: str, *, micros: bool = False) -> datetime:
    """Parse an RFC 3339 text. Raise ValueError with the text of Go's time.Parse.

    If ``micros`` is true, the layout requires six digits for the fraction of the second. The year 0000 is read as 0001,
    since datetime has no year 0.
    """
    if not micros and _ZULU(text):
        return datetime.fromisoformat(text)
    rest = text
    numbers: list[int] = []
    for literal, layout, least, most, name, low, high in _PARTS:
        if not rest.startswith(literal):
            _refuse(text, rest, literal)
        rest = rest[len(literal) :]
        digits = _DIGITS.match(rest[:most])
        assert digits is not None
        if digits.end() < least:
            _refuse(text, rest, layout)
        number = int(digits.group())
        if not low <= number <= high:
            raise ValueError(f"parsing time {time_quote(text)}: {name} out of range")
        numbers.append(number)
        rest = rest[digits.end() :]
    fraction = (_MICROS if micros else _FRACTION).match(rest)
    if micros and fraction is None:
        _refuse(text, rest, ".000000")
    part = int(fraction.group()[1:7].ljust(6, "0")) if fraction else 0
    rest = rest[fraction.end() :] if fraction else rest
    zone = _ZONE.match(rest)
    if zone is None:
        _refuse(text, rest, "Z07:00")
    if rest[zone.end() :]:
        raise ValueError(f"parsing time {time_quote(text)}: extra text: {time_quote(rest[zone.end() :])}")
    year, month, day, hour, minute, second = numbers
    try:
        return datetime(year or 1, month, day, hour, minute, second, part, tzinfo=_offset(zone))
    except ValueError as error:
        raise ValueError(f"parsing time {time_quote(text)}: day out of range") from error


@lru_cache(limits.TIMES_SEEN)  # many objects of a list were created in the same second
def _timestamp(text: str) -> float:
    return parse(text).timestamp()


def normalize(text: str) -> str:
    """Convert an RFC 3339 text to UTC and seconds. Raise the ValueError of ``parse``.

    Return "" for Go's zero time, and for a time whose conversion to UTC leads out of the years 1 to 9999.
    """
    return _normal(text) if len(text) <= limits.TIME_TEXT else _normal.__wrapped__(text)


@lru_cache(limits.TIMES_SEEN)  # clients write objects with the times that they have read; many times are equal
def _normal(text: str) -> str:
    if _ZULU(text):
        return "" if text == ZERO_TIME else text
    moment = parse(text)
    try:
        text = render(moment)
    except OverflowError:  # in UTC, the year is outside the range of datetime
        return ""
    return "" if text == ZERO_TIME else text


def normalize_micros(text: str) -> str:
    """Convert an RFC 3339 text to UTC and microseconds; return "" for Go's zero time.

    Raise ValueError.
    """
    try:
        moment = parse(text, micros=True)
    except ValueError as error:
        raise ValueError(str(error).replace(_LAYOUT, _MICRO_LAYOUT)) from error
    try:
        text = moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
    except OverflowError as error:  # in UTC, the year is outside the range that Go prints
        raise ValueError("Time.MarshalJSON: year outside of range [0,9999]") from error
    return "" if text == "0001-01-01T00:00:00.000000Z" else text


def _offset(zone: re.Match[str]) -> timezone:
    if zone.group() == "Z":
        return UTC
    minutes = int(zone.group(2)) * 60 + int(zone.group(3))
    minutes = min(minutes, 24 * 60 - 1)
    return timezone(timedelta(minutes=-minutes if zone.group(1) == "-" else minutes))


def _refuse(text: str, rest: str, layout: str) -> NoReturn:
    raise ValueError(
        f"parsing time {time_quote(text)} as {time_quote(_LAYOUT)}: "
        f"cannot parse {time_quote(rest)} as {time_quote(layout)}"
    )


class Ages:
    """Ages for table cells at a fixed time, and the period in which the ages stay valid.

    See TAB-003. ``at`` is the fixed time in seconds since 1970. All ages requested so far are valid while ``since <=
    now < until``. The caller must not use cached cells outside this period, not even before ``since``: a clock may be
    set back.
    """

    __slots__ = ("_known", "at", "since", "until")

    def __init__(self, at: float) -> None:
        self.at = at
        self.since, self.until = -inf, inf
        self._known: dict[str, str] = {}

    def of(self, stamp: str) -> str:
        """Return the age of an RFC 3339 time, ``<unknown>`` for Go's zero time.

        Return ``<invalid>`` for a malformed time, and for a time two seconds or more in the future.
        """
        known = self._known.get(stamp)
        if known is None:
            known = self._known[stamp] = self._shown(stamp)
        return known

    def _shown(self, stamp: str) -> str:
        try:
            then = _timestamp(stamp) if len(stamp) <= limits.TIME_TEXT else _timestamp.__wrapped__(stamp)
        except ValueError:
            return "<invalid>"
        if then == _ZERO:
            return "<unknown>"
        passed = self.at - then
        text, first, last = _duration(int(passed if passed < _LONGEST else _LONGEST))
        self.since, self.until = max(self.since, then + first), min(self.until, then + last)
        return text


_ZERO = -62_135_596_800  # ZERO_TIME in seconds since the epoch
_LONGEST = 2**63 / 10**9  # seconds of Go's longest duration


_MINUTE, _HOUR, _DAY, _YEAR = 60, 3600, 86_400, 365 * 86_400
_STEPS = (  # (upper bound in seconds, unit, its suffix, smaller unit or 0, its suffix)
    (10 * _MINUTE, _MINUTE, "m", 1, "s"),
    (3 * _HOUR, _MINUTE, "m", 0, ""),
    (8 * _HOUR, _HOUR, "h", _MINUTE, "m"),
    (48 * _HOUR, _HOUR, "h", 0, ""),
    (8 * _DAY, _DAY, "d", _HOUR, "h"),
    (2 * _YEAR, _DAY, "d", 0, ""),
    (8 * _YEAR, _YEAR, "y", _DAY, "d"),
)


def human_duration(seconds: float) -> str:
    """Return a duration as kubectl prints it in tables: 5s, 3m, 2d3h."""
    return _duration(int(seconds))[0]


@lru_cache(limits.TIMES_SEEN)
def _duration(whole: int) -> tuple[str, float, float]:
    """Return (text of a duration in whole seconds, start and end of its range).

    The range contains the durations with this text.
    """
    if whole < -1:
        return "<invalid>", -inf, -2
    if whole < 1:
        return "0s", -1, 1  # "0s" is also the text between -2 s and -1 s; a range that is too short is safe
    if whole < 2 * _MINUTE:
        return f"{whole}s", whole, whole + 1
    for below, unit, sign, smaller, smaller_sign in _STEPS:
        if whole < below:
            rest = whole % unit // smaller if smaller else 0
            text = f"{whole // unit}{sign}{rest}{smaller_sign}" if rest else f"{whole // unit}{sign}"
            step = smaller or unit
            return text, whole - whole % step, whole - whole % step + step
    first = whole - whole % _YEAR
    return f"{whole // _YEAR}y", first, first + _YEAR


def seconds_between(start: str, end: str) -> float:
    """Return the seconds from one RFC 3339 time to another.

    Raise ValueError for an invalid text.
    """
    return _timestamp(end) - _timestamp(start)


_UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_TERM = re.compile(r"([0-9]*)(\.[0-9]*)?([^0-9.]*)")


def parse_duration(text: str) -> float:
    """Return the seconds of a Go duration (``1h30m``).

    Raise ValueError with the text of time.ParseDuration.
    """
    rest = text[1:] if text[:1] in ("-", "+") else text
    if rest == "0":
        return 0.0
    if not rest:
        raise ValueError(f"time: invalid duration {time_quote(text)}")
    total, at = 0.0, 0
    while at < len(rest):
        term = _TERM.match(rest, at)
        assert term is not None
        number, fraction, unit = term.group(1), term.group(2) or "", term.group(3)
        if not number and fraction in ("", "."):
            raise ValueError(f"time: invalid duration {time_quote(text)}")
        if not unit:
            raise ValueError(f"time: missing unit in duration {time_quote(text)}")
        if unit not in _UNITS:
            raise ValueError(f"time: unknown unit {time_quote(unit)} in duration {time_quote(text)}")
        total += float(f"{number or 0}{fraction}0" if fraction else number) * _UNITS[unit]
        at = term.end()
    if total >= 2**63 / 1e9:
        raise ValueError(f"time: invalid duration {time_quote(text)}")
    return -total if text[0] == "-" else total
