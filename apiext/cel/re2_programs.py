"""Compile RE2 programs with the private extension module of google-re2.

The public API of google-re2 is the fallback.
"""

from functools import cache
from typing import Any, NamedTuple


class Api(NamedTuple):
    """The classes of programs and options, and the ``anchor`` for a match anywhere in a text.

    A program has ``ok()``, ``error()``, ``ProgramSize()`` and ``Match(anchor, text, start, end)``, which returns spans.
    """

    program: Any
    options: Any
    anywhere: Any


@cache
def api() -> Api:
    """Return the classes of google-re2's extension module.

    If a release of google-re2 has changed this module, return the classes of ``public``.
    """
    try:
        from re2 import _re2  # imported on first use: it takes 2.6 MB

        return Api(_re2.RE2, _re2.RE2.Options, _re2.RE2.Anchor.UNANCHORED)
    except (ImportError, AttributeError):  # the module is private, so a release may change it
        return public()


def public() -> Api:
    """Return equivalent classes that use the public API of google-re2.

    A match takes twice the time.
    """
    import re2

    class Program:
        """A program that searches a text for a match."""

        __slots__ = ("_compiled", "_why")

        def __init__(self, pattern: bytes, options: Any) -> None:
            self._compiled, self._why = None, b""
            try:
                self._compiled = re2.compile(pattern, options)
            except re2.error as wrong:
                self._why = wrong.args[0]

        def ok(self) -> bool:
            return self._compiled is not None

        def error(self) -> bytes:
            return self._why

        def ProgramSize(self) -> int:  # noqa: N802 (as the extension)
            return -1 if self._compiled is None else int(self._compiled.programsize)

        def Match(self, _: None, text: bytes, start: int, end: int) -> list[tuple[int, int]]:  # noqa: N802
            found = self._compiled.search(text, start, end) if self._compiled else None
            return [found.span() if found else (-1, -1)]

    return Api(Program, re2.Options, None)
