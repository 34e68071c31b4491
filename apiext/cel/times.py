"""Parse timestamps and durations, and print timestamps, as Go does."""

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import NamedTuple, TypeVar

from apiext.cel.effort import spend_work
from apiext.cel.quotes import go_quote, time_quote
from apiext.cel.values import INT_MAX, INT_MIN, SECOND

_RFC3339 = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[T](\d{1,2}):(\d\d):(\d\d)(?:[.,](\d+))?(?:(Z)|([+-])(\d\d):(\d\d))\Z", re.ASCII
)
_STRFMT = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)T(\d{1,2}):(\d\d):(\d\d)(?:[.,](\d+))?(?:(Z)|([+-])(\d\d):(\d\d))?\Z", re.ASCII
)
_EPOCH = date(1970, 1, 1).toordinal()
_DAY = 86_400
_DIGITS = 30  # maximal digits of a number in a duration, without leading zeros; a number with more digits overflows
_MAX_CACHED = 64  # maximal characters of a text whose value is cached
T = TypeVar("T")


def _cached(read: Callable[[str], T]) -> Callable[[str], T]:
    """Return the function with a cache for short texts."""
    known = lru_cache(maxsize=4096)(read)
    return lambda text: known(text) if len(text) <= _MAX_CACHED else read(text)


def _days(year: int, month: int, day: int) -> int | None:
    """Return the days from 1970 to a date, or None if the date does not exist.

    As in Go, the year 0 exists.
    """
    try:
        return date(year or 400, month, day).toordinal() - (0 if year else _CYCLE) - _EPOCH
    except ValueError:
        return None


def _instant(found: re.Match[str]) -> tuple[int, int] | None:
    """Return (nanoseconds since 1970, seconds east of UTC) of a match.

    Return None if the time does not exist.
    """
    year, month, day, hour, minute, second = (int(found[n]) for n in range(1, 7))
    days = _days(year, month, day)
    if hour > 23 or minute > 59 or second > 59 or days is None:
        return None
    east = 0
    seconds = days * _DAY + hour * 3600 + minute * 60 + second
    if found[9]:
        ahead, past = int(found[10]), int(found[11])
        if ahead > 24 or past > 60:  # Go accepts offsets of 24 hours and of 60 minutes, too
            return None
        east = (ahead * 3600 + past * 60) * (1 if found[9] == "+" else -1)
        seconds -= east
    nanos = int((found[7] or "0")[:9].ljust(9, "0"))
    return seconds * SECOND + nanos, east


@_cached
def parse_rfc3339(text: str) -> tuple[int, int] | None:
    """Return the time in a text of Go's time.RFC3339 layout, or None if it is invalid.

    The time is (nanoseconds since 1970, seconds east of UTC).
    """
    found = _RFC3339.match(text)
    return None if found is None else _instant(found)


@_cached
def parse_date_time(text: str) -> tuple[int, int] | None:
    """Return (nanoseconds since 1970, seconds east of UTC) of a date-time in data, or None.

    As in strfmt (the library that upstream uses for formats), an empty text is the beginning of 1970.
    """
    if not text:
        return 0, 0
    found = _STRFMT.match(text)
    return None if found is None else _instant(found)


def parse_date(text: str) -> tuple[int, int] | None:
    """Return (nanoseconds since 1970, 0) of a date such as 2006-01-02, or None."""
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", text, re.ASCII):
        return None
    days = _days(*map(int, text.split("-")))
    return None if days is None else (days * _DAY * SECOND, 0)


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
_PART = re.compile(r"(\d*)(?:(\.)(\d*))?(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
# (names of a unit, nanoseconds): a word that begins with the last name also denotes the unit
_WORD_UNITS: tuple[tuple[tuple[str, ...], int], ...] = (
    (("ns", "nano"), 1), (("us", "µs", "micro"), 1000), (("ms", "milli"), 1_000_000), (("s", "sec"), SECOND),
    (("m", "min"), 60 * SECOND), (("h", "hr", "hour"), 3600 * SECOND), (("d", "day"), _DAY * SECOND),
    (("w", "wk", "week"), 7 * _DAY * SECOND),
)  # fmt: skip
_WORDS = re.compile(r"(?<![0-9])([0-9]++)[\t\n\f\r ]*+([A-Za-zµ]+)")


@_cached
def parse_duration(text: str) -> int | None:
    """Return the nanoseconds of a duration as Go's time.ParseDuration does, or None."""
    rest = text[1:] if text[:1] in ("+", "-") else text
    if rest == "0":
        return 0
    total, at = 0, 0
    while at < len(rest):
        found = _PART.match(rest, at)
        if found is None or not (found[1] or found[3]):
            return None
        digits = found[1].lstrip("0")
        if len(digits) > _DIGITS:
            return None
        unit = _UNITS[found[4]]
        total += int(digits or "0") * unit
        if found[3]:
            total += int(found[3][:18]) * unit // 10 ** len(found[3][:18])
        at = found.end()
        if total > INT_MAX + 1:
            return None
    if not rest:
        return None
    total = -total if text[0] == "-" else total
    return total if INT_MIN <= total <= INT_MAX else None


@_cached
def parse_go_or_word_duration(text: str) -> int | None:
    """Return the nanoseconds of a duration in data, or None.

    The duration is in Go's form, or consists of integers with words, such as ``2 days`` (the library strfmt).
    Other text is ignored, if at least one unit is known.
    """
    ns = parse_duration(text)
    if ns is not None:
        return ns
    total, known = 0, False
    for number, word in _WORDS.findall(text):
        digits = number.lstrip("0") or "0"
        if len(digits) > _DIGITS or int(digits) > INT_MAX:
            return None
        unit = _unit(word.lower())
        known = known or bool(unit)
        total += int(digits) * unit
    return _wrapped(total) if known else None


def _unit(word: str) -> int:
    for names, unit in _WORD_UNITS:
        if word in names or word.startswith(names[-1]):
            return unit
    return 0


def _wrapped(number: int) -> int:
    """Return a number wrapped to the range of int64."""
    return (number + INT_MAX + 1) % (2 * INT_MAX + 2) - INT_MAX - 1


_NUMBER = {"2006": re.compile(r"[0-9]{4}"), "15": re.compile(r"[0-9][0-9]?")}
_TWO_DIGITS = re.compile(r"[0-9]{2}")
_FRACTION = re.compile(r"[.,][0-9]+")
_DATE = (("", "2006"), ("-", "01"), ("-", "02"))
_CLOCK = (("T", "15"), (":", "04"), (":", "05"))
_BOUNDS = {"01": ("month", 1, 12), "15": ("hour", 0, 23), "04": ("minute", 0, 59), "05": ("second", 0, 59)}


def refusal_of_date_time(text: str) -> str:
    """Return the error text of an invalid date-time in data.

    The error is that of the last layout that upstream tries.
    """
    return _refusal(text, "2006-01-02T15:04:05", (*_DATE, *_CLOCK))


def refusal_of_date(text: str) -> str:
    """Return the error text of an invalid date in data."""
    return _refusal(text, "2006-01-02", _DATE)


def _refusal(text: str, layout: str, parts: tuple[tuple[str, str], ...]) -> str:
    """Return Go's error text for a text that does not fit a layout.

    ``parts`` are pairs (preceding text, part of the layout).
    """
    head, rest = f"parsing time {time_quote(text)}", text
    for before, part in parts:
        wanted = before
        if rest.startswith(before):
            rest, wanted = rest[len(before) :], part
            number = _NUMBER.get(part, _TWO_DIGITS).match(rest)
        if wanted == before or number is None:
            return f'{head} as "{layout}": cannot parse {time_quote(rest)} as "{wanted}"'
        name, least, most = _BOUNDS.get(part, ("", 0, 9999))
        if not least <= int(number[0]) <= most:
            return f"{head}: {name} out of range"
        rest = rest[number.end() :]
    fraction = _FRACTION.match(rest) if parts[-1][1] == "05" else None
    rest = rest[fraction.end() :] if fraction is not None else rest
    return f"{head}: extra text: {time_quote(rest)}" if rest else f"{head}: day out of range"


def format_timestamp(ns: int, offset: int = 0) -> str:
    """Return a timestamp in RFC 3339 format with the necessary decimals.

    ``offset`` is in seconds east of UTC.
    """
    seconds, nanos = divmod(ns + offset * SECOND, SECOND)
    at = wall_clock(seconds)
    decimals = f".{nanos:09d}".rstrip("0") if nanos else ""
    zone = "Z"
    if offset:
        zone = f"{'-' if offset < 0 else '+'}{abs(offset) // 3600:02d}:{abs(offset) // 60 % 60:02d}"
    day = f"{at.year:04d}-{at.month:02d}-{at.day:02d}"
    return f"{day}T{at.hour:02d}:{at.minute:02d}:{at.second:02d}{decimals}{zone}"


class Clock(NamedTuple):
    """The fields of a wall clock; weekday 0 is Sunday, and years may be 0 or 10,000."""

    year: int
    month: int
    day: int
    year_day: int
    weekday: int
    hour: int
    minute: int
    second: int


def wall_clock(seconds: int) -> Clock:
    """Return the wall clock for a time in seconds since 1970."""
    days, rest = divmod(seconds, _DAY)
    years = 0  # 400 or -400, a cycle of the calendar, if the date is outside Python's range
    number = days + _EPOCH
    if not 1 <= number <= _LAST_DAY:
        years = 400 if number < 1 else -400
        number += _CYCLE if number < 1 else -_CYCLE
    day = date.fromordinal(number)
    year_day = number - date(day.year, 1, 1).toordinal()
    weekday = day.isoweekday() % 7
    hour, minute = rest // 3600, rest // 60 % 60
    return Clock(day.year - years, day.month, day.day, year_day, weekday, hour, minute, rest % 60)


_CYCLE = 146_097  # days of 400 years, after which the calendar repeats, also its weekdays
_LAST_DAY = date.max.toordinal()
_KNOWN_ZONES = (-62_135_500_000, 253_402_200_000)  # range of seconds in which Python knows the offset of a zone
_NAME = 255  # maximal characters of a zone's name, which is the name of a file
_LOOKED_UP = 500  # opening the file of a zone counts as much work as reading this number of elements (effort.py)
_WHOLE = re.compile(r"[+-]?\d+", re.ASCII)


def in_zone(ns: int, zone: str) -> Clock | str:
    """Return the wall clock of a time in a zone (a name or ±hh:mm), or Go's error text."""
    seconds = ns // SECOND
    if ":" in zone:
        east = _offset(zone)
    elif zone in ("", "UTC", "Local"):
        east = 0
    else:
        east = _offset_of_name(seconds, zone)
    return east if isinstance(east, str) else wall_clock(seconds + east)


def _offset(zone: str) -> int | str:
    numbers: list[int] = []
    for part in zone.split(":", 1):
        if not _WHOLE.fullmatch(part):
            return f"strconv.Atoi: parsing {go_quote(part)}: invalid syntax"
        number = _number(part)
        if number is None:
            return f"strconv.Atoi: parsing {go_quote(part)}: value out of range"
        numbers.append(number)
    past = numbers[1]
    minutes_east = numbers[0] * 60 + (-past if zone[0] == "-" else past)
    return int(_wrapped(minutes_east * 60 * SECOND) / SECOND)


@lru_cache(256)
def _zone(name: str) -> tzinfo | None:
    """Return the zone with this name, or None if it does not exist."""
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError  # imported on first use: only zone names need it

    spend_work(_LOOKED_UP)
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


def _number(text: str) -> int | None:
    """Return the int of digits with an optional sign, or None if it exceeds 64 bits."""
    digits = text.lstrip("+-").lstrip("0")
    number = int(digits or "0") if len(digits) <= _DIGITS else INT_MAX + 2
    number = -number if text[0] == "-" else number
    return number if INT_MIN <= number <= INT_MAX else None


def _offset_of_name(seconds: int, zone: str) -> int | str:
    if ".." in zone or zone[0] in "/\\":
        return "time: invalid location name"
    found = _zone(zone) if len(zone) <= _NAME else None
    if found is None:
        return f"unknown time zone {zone}"
    known = min(max(seconds, _KNOWN_ZONES[0]), _KNOWN_ZONES[1])
    offset = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=known)).astimezone(found).utcoffset()
    assert offset is not None
    return offset // timedelta(seconds=1)
