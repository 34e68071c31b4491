"""Values in apply configurations that JSON cannot represent, as Go prints them in messages."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from math import isfinite
from typing import Any

from apiext.cel.go_values import show
from apiext.cel.quotes import go_quote
from apiext.cel.raw import Native
from apiext.cel.values import SECOND, Duration, Fault, Map, Timestamp, Uint, Value


class NotFinite(Exception):
    """A number that JSON cannot represent: infinite or NaN."""


class GoData:
    """A value that JSON cannot represent, with the texts in which Go prints it.

    The texts are the value (%v), the type (%T) and the Go syntax (%#v).
    """

    __slots__ = ("_value", "go_name")

    def __init__(self, raw: Native) -> None:
        self._value = raw.value
        self.go_name = raw.go_name

    def __str__(self) -> str:
        value = self._value
        if value is None:
            return "NULL_VALUE"
        if type(value) is list:
            return f"[{' '.join(map(show, value))}]"
        if type(value) is Map:
            return f"map[{' '.join(sorted(f'{show(key)}:{show(inner)}' for key, inner in value.entries.values()))}]"
        return value.message if type(value) is Fault else show(value)

    @property
    def go_syntax(self) -> str:
        """The value as Go's %#v prints it."""
        write = _SYNTAX.get(type(self._value))
        return write(self._value) if write is not None else f"({self.go_name})"


def _literal(value: Value) -> str:
    return go_quote(value) if type(value) is str else show(value)


def _entries(value: Map) -> Iterator[str]:
    return (f"{_literal(key)}:{_literal(inner)}" for key, inner in value.entries.values())


def _date(ns: int) -> str:
    seconds, nanos = divmod(ns, SECOND)
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=seconds)
    parts = (at.year, f"time.{at:%B}", at.day, at.hour, at.minute, at.second, nanos, "time.UTC")
    return f"time.Date({', '.join(map(str, parts))})"


_SYNTAX: dict[type, Callable[[Value], str]] = {
    type(None): lambda value: "0",
    Duration: lambda value: str(value.ns),
    Uint: hex,
    list: lambda value: f"[]ref.Val{{{', '.join(map(_literal, value))}}}",
    Map: lambda value: f"map[ref.Val]ref.Val{{{', '.join(sorted(_entries(value)))}}}",
    Timestamp: lambda value: _date(value.ns),
    bytes: lambda value: f"[]uint8{{{', '.join(f'{byte:#x}' for byte in value)}}}",
}


def printable(raw: Any) -> Any:
    """Return the data with GoData in place of each Native value.

    Raise NotFinite for infinity and NaN. A Native (cel/raw.py) stands for a value that JSON cannot represent. An empty
    list is returned itself, not a copy, since the caller recognises NO_SLICE (Go's nil slice, cel.objects) by identity.
    """
    if type(raw) is dict:
        return {name: printable(value) for name, value in raw.items()}
    if type(raw) is list:
        return [printable(value) for value in raw] if raw else raw
    if type(raw) is float and not isfinite(raw):
        raise NotFinite(f"json: unsupported value: {show(raw)}")
    return GoData(raw) if isinstance(raw, Native) else raw
