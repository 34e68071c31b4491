"""Print values as upstream prints internal types in errors (DIS-04).

The form is JSON with Go's field names and zero values.
"""

from collections.abc import Callable, Mapping
from typing import Any

from apiext.documents.encoding import encode_in_order
from apiext.text.quotes import html_escaped

Render = Callable[[Any], Any]
"""A printer: returns a JSON value as Go would encode it, with Go's field names and zero values."""


def go_json(value: Any) -> str:
    """Return compact JSON as Go's encoder writes it: ``<``, ``>`` and ``&`` are escaped.

    Keys are not sorted.
    """
    return html_escaped(encode_in_order(value).decode())


def _plain(zero: Any) -> Render:
    return lambda value: zero if value is None else value


def in_order(value: Any) -> Any:
    """Return a JSON value in which all objects have sorted keys, as Go prints maps."""
    if isinstance(value, Mapping):
        return {name: in_order(value[name]) for name in sorted(value)}
    return [in_order(item) for item in value] if isinstance(value, list) else value


POINTER: Render = _plain(None)
TEXT: Render = _plain("")
FLAG: Render = _plain(False)
NUMBER: Render = _plain(0)


def many(render: Render) -> Render:
    """Return the printer of a list: ``render`` prints each item; None becomes null."""
    return lambda value: None if value is None else [render(item) for item in value]


def by_name(render: Render) -> Render:
    """Return the printer of a map: ``render`` prints each value; None becomes null."""
    return lambda value: None if value is None else {name: render(value[name]) for name in sorted(value)}


def struct(*members: tuple[str, str, Render]) -> Render:
    """Return the printer of a struct, given (Go name, JSON name, printer) of each field."""

    def render(value: Any) -> Any:
        return {go: show(value.get(name)) for go, name, show in members}

    return render


def optional(render: Render) -> Render:
    """Return the printer of a pointer: ``render`` prints the value; None becomes null."""
    return lambda value: None if value is None else render(value)
