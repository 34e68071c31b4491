"""Timestamps and durations: their texts read and written as Go does."""

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import TypeVar

from apiext.cel.values import INT_MAX, INT_MIN, SECOND

_RFC3339 = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[T](\d{1,2}):(\d\d):(\d\d)(?:[.,](\d+))?(?:(Z)|([+-])(\d\d):(\d\d))\Z", re.ASCII
)
_STRFMT = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[tT ](\d\d):(\d\d):(\d\d)(?:[.,](\d+))?(?:([zZ])|([+-])(\d\d):?(\d\d))?\Z", re.ASCII
)
_EPOCH = date(1970, 1, 1).toordinal()
_DAY = 86_400
_DIGITS = 30  # of a number in a duration; more overflow anyhow
_REMEMBERED = 64  # characters of texts whose meaning is remembered
T = TypeVar("T")


def _remembered(read: Callable[[str], T]) -> Callable[[str], T]:
    """Remember what short texts mean."""
    known = lru_cache(maxsize=4096)(read)
    return lambda text: known(text) if len(text) <= _REMEMBERED else read(text)


def _instant(found: re.Match[str]) -> tuple[int, int] | None:
    """Return nanoseconds since 1970 and seconds east of a matched text, None when the calendar has no such time."""
    year, month, day, hour, minute, second = (int(found[n]) for n in range(1, 7))
    if hour > 23 or minute > 59 or second > 59 or year == 0:
        return None
    try:
        days = date(year, month, day).toordinal() - _EPOCH
    except ValueError:
        return None
    east = 0
    seconds = days * _DAY + hour * 3600 + minute * 60 + second
    if found[9]:
        ahead, past = int(found[10]), int(found[11])
        if ahead > 24 or past > 59:
            return None
        east = (ahead * 3600 + past * 60) * (1 if found[9] == "+" else -1)
        seconds -= east
    nanos = int((found[7] or "0")[:9].ljust(9, "0"))
    return seconds * SECOND + nanos, east


@_remembered
def parse_rfc3339(text: str) -> tuple[int, int] | None:
    """Return nanoseconds since 1970 and seconds east of a text as Go's time.RFC3339 reads it, None when it does not."""
    found = _RFC3339.match(text)
    return None if found is None else _instant(found)


@_remembered
def parse_date_time(text: str) -> tuple[int, int] | None:
    """Return nanoseconds since 1970 and seconds east of a date-time of the data (upstream: strfmt.ParseDateTime)."""
    if not text:
        return 0, 0
    found = _STRFMT.match(text)
    return None if found is None else _instant(found)


def parse_date(text: str) -> tuple[int, int] | None:
    """Return nanoseconds since 1970 of a full date, and 0 for UTC."""
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", text, re.ASCII):
        return None
    try:
        return (date.fromisoformat(text).toordinal() - _EPOCH) * _DAY * SECOND, 0
    except ValueError:
        return None


_UNITS = {
    "ns": 1,
    "us": 1000,
    "µs": 1000,
    "μs": 1000,
    "ms": 1_000_000,
    "s": SECOND,
    "m": 60 * SECOND,
    "h": 3600 * SECOND,
}
_PART = re.compile(r"(\d*)(?:(\.)(\d*))?(ns|us|µs|μs|ms|s|m|h)")
_WORD_UNITS = {
    "ns": 1, "nano": 1, "us": 1000, "µs": 1000, "μs": 1000, "micro": 1000, "ms": 1_000_000, "milli": 1_000_000,
    "s": SECOND, "sec": SECOND, "m": 60 * SECOND, "min": 60 * SECOND, "h": 3600 * SECOND, "hr": 3600 * SECOND,
    "hour": 3600 * SECOND, "d": _DAY * SECOND, "day": _DAY * SECOND, "w": 7 * _DAY * SECOND, "wk": 7 * _DAY * SECOND,
    "week": 7 * _DAY * SECOND,
}  # fmt: skip
_WORDS = re.compile(  # linear: no run of digits is tried twice
    r"(?<![\d.])([\d.]++)\s*+(nano|ns|micro|us|µs|μs|milli|ms|sec|s|min|m|hour|hr|h|day|d|week|wk|w)"
    r"(?:ond|onds|s|utes|ute)?",
    re.I,
)


@_remembered
def parse_duration(text: str) -> int | None:
    """Return nanoseconds of a duration as Go's time.ParseDuration reads it, None when it does not."""
    rest = text[1:] if text[:1] in ("+", "-") else text
    if rest == "0":
        return 0
    total, at = 0, 0
    while at < len(rest):
        found = _PART.match(rest, at)
        if found is None or not (found[1] or found[3]):
            return None
        if len(found[1]) > _DIGITS:
            return None
        unit = _UNITS[found[4]]
        total += int(found[1] or "0") * unit
        if found[3]:
            total += int(found[3][:18]) * unit // 10 ** len(found[3][:18])
        at = found.end()
        if total > INT_MAX + 1:
            return None
    if not rest:
        return None
    total = -total if text[0] == "-" else total
    return total if INT_MIN <= total <= INT_MAX else None


@_remembered
def parse_go_or_word_duration(text: str) -> int | None:
    """Return nanoseconds of a duration of the data: Go's form, or numbers with words (upstream: strfmt)."""
    ns = parse_duration(text)
    if ns is not None:
        return ns
    total, found_any = 0, False
    for found in _WORDS.finditer(text):
        try:
            total += int(float(found[1]) * _WORD_UNITS[found[2].lower()])
        except (ValueError, OverflowError):
            return None
        found_any = True
    return total if found_any else None


def format_timestamp(ns: int, offset: int = 0) -> str:
    """Return a timestamp at an offset from UTC in seconds, with as many decimals as needed."""
    seconds, nanos = divmod(ns + offset * SECOND, SECOND)
    days, rest = divmod(seconds, _DAY)
    decimals = f".{nanos:09d}".rstrip("0") if nanos else ""
    hour, minute, second = rest // 3600, rest // 60 % 60, rest % 60
    zone = "Z"
    if offset:
        zone = f"{'-' if offset < 0 else '+'}{abs(offset) // 3600:02d}:{abs(offset) // 60 % 60:02d}"
    try:
        day = date.fromordinal(days + _EPOCH)
    except (ValueError, OverflowError):  # an offset led out of the calendar
        return format_timestamp(ns)
    return f"{day.year:04d}-{day.month:02d}-{day.day:02d}T{hour:02d}:{minute:02d}:{second:02d}{decimals}{zone}"


def in_zone(ns: int, zone: str) -> datetime | str:
    """Return the wall clock of a time in a zone (a name or ±hh:mm), or Go's words on why there is none.

    Microseconds are kept as 0; years stay within 1 and 9999.
    """
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError  # only names of zones need it

    try:
        utc = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=ns // SECOND)
        if ":" in zone:
            hours, minutes = zone.split(":", 1)
            if not re.fullmatch(r"[+-]?\d+", hours) or not re.fullmatch(r"[+-]?\d+", minutes):
                wrong = minutes if re.fullmatch(r"[+-]?\d+", hours) else hours
                return f'strconv.Atoi: parsing "{wrong}": invalid syntax'
            past = int(minutes)
            offset = int(hours) * 60 + (-past if zone[0] == "-" else past)
            return utc + timedelta(minutes=offset)
        if zone in ("", "UTC"):
            return utc
        return utc.astimezone(ZoneInfo(zone))
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return f"unknown time zone {zone}"
    except OverflowError:
        return "timestamp out of range"
