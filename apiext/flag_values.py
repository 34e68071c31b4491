"""Parse values of flags as kube-apiserver does; a ConfigError names the flag."""

import math
import re

from apiext.config import ConfigError
from apiext.meta.time import parse_duration


def integer(flag: str, text: str) -> int:
    """Return a whole number."""
    if not re.fullmatch("[+-]?[0-9]{1,18}", text):
        raise ConfigError(f"--{flag} {text}: expected a whole number")
    return int(text)


def count(flag: str, text: str) -> int:
    """Return a whole number of 0 or more."""
    number = integer(flag, text)
    if number < 0:
        raise ConfigError(f"--{flag} can not be negative value")
    return number


def boolean(flag: str, text: str) -> bool:
    """Return the value of a switch; an empty text is false."""
    if text.lower() in ("", "false", "0", "f", "no"):
        return False
    if text.lower() in ("true", "1", "t", "yes"):
        return True
    raise ConfigError(f"--{flag} {text}: expected true or false")


def duration(flag: str, text: str) -> float:
    """Return seconds of a Go duration such as 1m30s, or of a bare number."""
    try:
        seconds = float(text) if re.fullmatch(r"[0-9]+(\.[0-9]*)?|\.[0-9]+", text) else parse_duration(text)
    except ValueError as error:
        raise ConfigError(f"--{flag} {text}: expected a duration such as 90s or 1m30s") from error
    if not 0 <= seconds < math.inf:
        raise ConfigError(f"--{flag} {text}: expected a duration such as 90s or 1m30s")
    return seconds


def names(text: str) -> tuple[str, ...]:
    """Return the parts of a comma-separated list, without spaces around them and without empty ones."""
    return tuple(name.strip() for name in text.split(",") if name.strip())
