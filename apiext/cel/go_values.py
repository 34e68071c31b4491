"""Print CEL values and types as Go prints them in error texts."""

from collections.abc import Callable
from typing import Any

from apiext.cel.conversions import shortest
from apiext.cel.times import wall_clock
from apiext.cel.types import Type
from apiext.cel.values import SECOND, Duration, Fault, Map, Optional, Timestamp, Uint, Value

_TYPES: dict[type, str] = {
    bool: "types.Bool", int: "types.Int", Uint: "types.Uint", float: "types.Double", str: "types.String",
    bytes: "types.Bytes", type(None): "types.Null", Timestamp: "types.Timestamp", Duration: "types.Duration",
    Fault: "*types.Err",
    list: "*types.baseList", Map: "*types.baseMap", Optional: "*types.Optional", Type: "*types.Type",
}  # fmt: skip
_UNITS = ((3600 * SECOND, "h"), (60 * SECOND, "m"))


def go_type(value: Value) -> str:
    """Return the Go type of a value, as %T prints it."""
    known = _TYPES.get(type(value))
    return known if known is not None else str(getattr(value, "go_type", type(value).__name__))


def show(value: Value) -> str:
    """Return a value as %v prints it."""
    write = _SHOWN.get(type(value))
    return write(value) if write is not None else str(value)


def show_type(value: Type) -> str:
    """Return the name of a type as Go prints it."""
    return f"{value.name}({', '.join(map(show_type, value.params))})" if value.params else value.name


def show_raw(raw: Any) -> str:
    """Return decoded JSON as Go's %v prints it."""
    if isinstance(raw, dict):
        return f"map[{' '.join(f'{key}:{show_raw(raw[key])}' for key in sorted(raw))}]"
    if isinstance(raw, list):
        return f"[{' '.join(map(show_raw, raw))}]"
    return "<nil>" if raw is None else show(raw)


def _duration(value: Duration) -> str:
    """Return a duration as Go prints it: ``1h2m3.5s``.

    A duration below a second has one smaller unit: ``1.5ms``.
    """
    left = abs(value.ns)
    sign = "-" if value.ns < 0 else ""
    if left < SECOND:
        for unit, name in ((1, "ns"), (1_000, "µs"), (1_000_000, "ms")):
            if left < unit * 1_000:
                return "0s" if not left else f"{sign}{_decimal(left, unit)}{name}"
    text = ""
    for unit, name in _UNITS:
        whole, left = divmod(left, unit)
        if whole or text:
            text += f"{whole}{name}"
    return f"{sign}{text}{_decimal(left, SECOND)}s"


def _decimal(ns: int, unit: int) -> str:
    whole, rest = divmod(ns, unit)
    part = str(rest).rjust(len(str(unit)) - 1, "0").rstrip("0") if rest else ""
    return f"{whole}.{part}" if part else str(whole)


def _timestamp(value: Timestamp) -> str:
    seconds, nanos = divmod(value.ns + value.offset * SECOND, SECOND)
    at = wall_clock(seconds)
    decimals = f".{nanos:09d}".rstrip("0") if nanos else ""
    offset = abs(value.offset) // 60
    zone = f"{'-' if value.offset < 0 else '+'}{offset // 60:02d}{offset % 60:02d}"
    clock = f"{at.hour:02d}:{at.minute:02d}:{at.second:02d}"
    return f"{at.year:04d}-{at.month:02d}-{at.day:02d} {clock}{decimals} {zone} {zone if value.offset else 'UTC'}"


_SHOWN: dict[type, Callable[[Value], str]] = {
    bool: lambda value: "true" if value else "false",
    type(None): lambda _: "0",
    Type: show_type,
    float: shortest,
    Uint: lambda value: str(int(value)),
    list: lambda value: f"[{', '.join(map(show, value))}]",
    Map: lambda value: f"{{{', '.join(f'{show(key)}: {show(inner)}' for key, inner in value.entries.values())}}}",
    bytes: lambda value: f"[{' '.join(map(str, value))}]",
    Optional: lambda value: f"optional({show(value.value)})" if value.present else "optional.none()",
    Timestamp: _timestamp,
    Duration: _duration,
}
