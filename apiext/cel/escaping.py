"""Escape property names to CEL identifiers, and unescape such identifiers."""

import re

from apiext.cel.builder import RESERVED

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_SPECIAL = re.compile(r"__|[-./]")
_OTHER = re.compile(r"[^a-zA-Z0-9\-./_]")
_ESCAPED = re.compile(r"__[^_]+__")
_WORDS = {"__": "__underscores__", ".": "__dot__", "-": "__dash__", "/": "__slash__"}
_BACK = {"underscores": "__", "dot": ".", "dash": "-", "slash": "/"}


def escape(name: str) -> str | None:
    """Return the CEL identifier of a property name, or None if the name cannot be escaped.

    See CEL-004.
    """
    if name in RESERVED:
        return f"__{name}__"
    if "__" not in name and _PLAIN.match(name):
        return name
    if not name or (name[0].isascii() and name[0].isdigit()) or _OTHER.search(name):
        return None
    return _SPECIAL.sub(lambda found: _WORDS[found[0]], name)


class _Unknown(Exception):
    """The error of an invalid escape sequence."""


def unescape(identifier: str) -> str | None:
    """Return the property name of an identifier, or None if it has an invalid escape sequence."""
    if "__" not in identifier:
        return identifier

    def back(found: re.Match[str]) -> str:
        inner = found[0][2:-2]
        if inner in _BACK:
            return _BACK[inner]
        if inner in RESERVED and found[0] == identifier:
            return inner
        raise _Unknown

    try:
        return _ESCAPED.sub(back, identifier)
    except _Unknown:
        return None
