"""Random UUIDs: a uid for each object, an audit id for each request."""

import os

_BATCH = 256


class Uids:
    """Version 4 UUIDs, from random bytes fetched many at a time: one call of the system each would cost more."""

    __slots__ = ("_at", "_text")

    def __init__(self) -> None:
        self._text = ""
        self._at = 0

    def next(self) -> str:
        """Return a new UUID as text."""
        at, text = self._at, self._text
        if at >= len(text):
            text = self._text = os.urandom(16 * _BATCH).hex()
            at = 0
        self._at = at + 32
        h = text[at : at + 32]
        return f"{h[:8]}-{h[8:12]}-4{h[13:16]}-{_VARIANT[h[16]]}{h[17:20]}-{h[20:]}"


_VARIANT = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}
