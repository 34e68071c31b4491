"""Documents that a client has already are not sent again: ETags, and when a document last changed (RFC 9110, 13.1)."""

import time
from collections.abc import Callable
from email.utils import formatdate, parsedate_to_datetime

from apiext.http import limits
from apiext.http.exchange import Exchange, Reply

NEVER = -1.0
"""The time of a date that says nothing, in seconds since the epoch."""


class Conditional:
    """Knows of each document since when it is what it is, and answers those who have it."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now = now
        # document → its ETag, the second of its last change, and the same as text
        self._since: dict[str, tuple[str, int, str]] = {}

    def unchanged(self, exchange: Exchange, name: str, tag: str) -> Reply | None:
        """Return the 304 for a client that has the document of this ETag, else None."""
        given = exchange.headers.get("If-None-Match", "")
        if given:
            tags = {each.strip().removeprefix("W/") for each in given.split(",")}
            known = tag in tags or "*" in tags
        else:
            known = self._changed(name, tag)[1] <= _seconds(exchange.headers.get("If-Modified-Since", ""))
        return Reply(304, "", (), self.headers(name, tag)) if known else None

    def headers(self, name: str, tag: str) -> list[tuple[str, str]]:
        """Return the headers that tell which document this is."""
        return [("ETag", tag), ("Last-Modified", self._changed(name, tag)[2])]

    def forget(self, gone: Callable[[str], bool]) -> None:
        """Forget documents that are gone, by name."""
        for name in [name for name in self._since if gone(name)]:
            del self._since[name]

    def _changed(self, name: str, tag: str) -> tuple[str, int, str]:
        """Return since when a document is what it is, as _since has it; no two states of it have the same second."""
        known = self._since.get(name)
        if known is None or known[0] != tag:
            if len(self._since) >= limits.PUBLISHED_PATHS:
                self._since.clear()
            second = max(int(self._now()), known[1] + 1 if known else 0)
            known = self._since[name] = (tag, second, formatdate(second, usegmt=True))
        return known


def _seconds(date: str) -> float:
    """Return the time of an HTTP date in seconds since the epoch; a text that is none says nothing."""
    try:
        return parsedate_to_datetime(date).timestamp() if date else NEVER
    except (ValueError, OverflowError, OSError):
        return NEVER
