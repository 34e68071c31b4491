"""Parse the values of flags; raise a ConfigError that names the flag for an invalid value."""

import math
import re

from apiext.config import ConfigError
from apiext.meta.time import parse_duration


def integer(flag: str, text: str) -> int:
    """Parse a whole number."""
    if not re.fullmatch("[+-]?[0-9]{1,18}", text):
        raise ConfigError(f"--{flag} {text}: expected a whole number")
    return int(text)


def count(flag: str, text: str) -> int:
    """Parse a whole number of at least 0."""
    number = integer(flag, text)
    if number < 0:
        raise ConfigError(f"--{flag} can not be negative value")
    return number


def boolean(flag: str, text: str) -> bool:
    """Parse a boolean; an empty value is false."""
    if text.lower() in ("", "false", "0", "f", "no"):
        return False
    if text.lower() in ("true", "1", "t", "yes"):
        return True
    raise ConfigError(f"--{flag} {text}: expected true or false")


def duration(flag: str, text: str) -> float:
    """Parse a Go duration such as 1m30s, or a number of seconds."""
    try:
        seconds = float(text) if re.fullmatch(r"[0-9]+(\.[0-9]*)?|\.[0-9]+", text) else parse_duration(text)
    except ValueError as error:
        raise ConfigError(f"--{flag} {text}: expected a duration such as 90s or 1m30s") from error
    if not 0 <= seconds < math.inf:
        raise ConfigError(f"--{flag} {text}: expected a duration such as 90s or 1m30s")
    return seconds


def names(text: str) -> tuple[str, ...]:
    """Split a list at its commas, without blanks around the parts and without empty parts."""
    return tuple(name.strip() for name in text.split(",") if name.strip())
