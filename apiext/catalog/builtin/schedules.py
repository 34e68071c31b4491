"""Validation of schedules and time zones of cron jobs (upstream: the parser of robfig/cron)."""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from apiext.meta.time import parse_duration


class Bounds(NamedTuple):
    """The range of one field of a cron schedule, and the names of its values, such as ``jan``."""

    minimum: int
    maximum: int
    names: tuple[str, ...] = ()


_FIELDS = (
    Bounds(0, 59),
    Bounds(0, 23),
    Bounds(1, 31),
    Bounds(1, 12, ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")),
    Bounds(0, 6, ("sun", "mon", "tue", "wed", "thu", "fri", "sat")),
)
_DESCRIPTORS = ("@yearly", "@annually", "@monthly", "@weekly", "@daily", "@midnight", "@hourly")
_EVERY = "@every "
_IS_NUMBER = re.compile("[+-]?[0-9]+").fullmatch
_MAX_DIGITS = 18
_IS_ZONE_PART = re.compile("[A-Za-z._0-9+-]{1,14}").fullmatch


class ScheduleError(ValueError):
    """A field of a schedule is malformed; the message is upstream's."""


def schedule_error(schedule: str) -> str:
    """Return upstream's error for a schedule, empty if the schedule is valid."""
    zone, rest = "", schedule
    if schedule.startswith(("TZ=", "CRON_TZ=")):
        zone, space, rest = schedule.partition(" ")
        if not space:
            return "invalid schedule format: TZ or CRON_TZ requires a space and a cron expression after the timezone"
        name = zone.partition("=")[2]
        if not is_zone(name):
            return f"provided bad location {name}: unknown time zone {name}"
        rest = rest.strip()
    if rest.startswith("@"):
        return _descriptor_error(rest)
    parts = rest.split()
    if len(parts) != len(_FIELDS):
        return f"expected exactly {len(_FIELDS)} fields, found {len(parts)}: [{' '.join(parts)}]"
    try:
        for part, bounds in zip(parts, _FIELDS, strict=True):
            for one in part.split(","):
                if one:
                    _check_range(one, bounds)
    except ScheduleError as error:
        return str(error)
    return ""


def _descriptor_error(descriptor: str) -> str:
    if descriptor in _DESCRIPTORS:
        return ""
    if not descriptor.startswith(_EVERY):
        return f"unrecognized descriptor: {descriptor}"
    try:
        parse_duration(descriptor.removeprefix(_EVERY))
    except ValueError as error:
        return f"failed to parse duration {descriptor}: {error}"
    return ""


def _check_range(text: str, bounds: Bounds) -> None:
    """Validate a part of a field, such as ``*/5`` or ``mon-fri``.

    Raise ScheduleError if it is malformed.
    """
    limits, *steps = text.split("/")
    first, *others = limits.split("-")
    if first in ("*", "?"):
        start, end = bounds.minimum, bounds.maximum
    else:
        start = end = _value(first, bounds)
        if len(others) > 1:
            raise ScheduleError(f"too many hyphens: {text}")
        if others:
            end = _value(others[0], bounds)
    if len(steps) > 1:
        raise ScheduleError(f"too many slashes: {text}")
    step = _number(steps[0]) if steps else 1
    if steps and not others:
        end = bounds.maximum
    if start < bounds.minimum:
        raise ScheduleError(f"beginning of range ({start}) below minimum ({bounds.minimum}): {text}")
    if end > bounds.maximum:
        raise ScheduleError(f"end of range ({end}) above maximum ({bounds.maximum}): {text}")
    if start > end:
        raise ScheduleError(f"beginning of range ({start}) beyond end of range ({end}): {text}")
    if not step:
        raise ScheduleError(f"step of range should be a positive number: {text}")


def _value(text: str, bounds: Bounds) -> int:
    name = text.lower()
    return bounds.names.index(name) + bounds.minimum if name in bounds.names else _number(text)


def _number(text: str) -> int:
    if not _IS_NUMBER(text) or len(text) > _MAX_DIGITS:
        raise ScheduleError(f'failed to parse int from {text}: strconv.Atoi: parsing "{text}": invalid syntax')
    if int(text) < 0:
        raise ScheduleError(f"negative number ({int(text)}) not allowed: {text}")
    return int(text)


# --- zones ---


def zone_errors(zone: str) -> Iterator[str]:
    """Yield upstream's errors for a time zone."""
    if not zone:
        yield "timeZone must be nil or non-empty string"
    elif any(part in (".", "..") or part[:1] == "-" or not _IS_ZONE_PART(part) for part in zone.split("/")):
        yield f"unknown time zone {zone}"
    elif zone.lower() == "local":
        yield "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"
        if zone != "Local":
            yield f"unknown time zone {zone}"
    elif not is_zone(zone):
        yield f"unknown time zone {zone}"


def is_zone(name: str) -> bool:
    """Return whether the system's time zone database has a time zone.

    ``UTC``, ``Local`` and the empty name are always valid. Without a database, every name is valid.
    """
    return name in ("", "UTC", "Local") or _has_zone(name) or not _has_zone(_KNOWN)


_KNOWN = "Europe/Berlin"


@lru_cache(256)
def _has_zone(name: str) -> bool:
    from zoneinfo import ZoneInfo  # imported here, since few schedules have a time zone

    try:
        ZoneInfo.no_cache(name)
    except (LookupError, ValueError, OSError):
        return False
    return True
