"""Decode base64 with the URL-safe alphabet as Go does."""

import base64
import re

_GOOD = re.compile(r"[A-Za-z0-9_-]*+={0,2}\Z")
_OTHER = re.compile(rb"[^A-Za-z0-9_\r\n-]")
_UNSKIPPED = re.compile(rb"[^\r\n]")
_PADDING = ord("=")


def read_base64(text: str) -> bytes | int:
    """Decode padded base64 that may contain line breaks.

    For invalid text return the index at which Go fails.
    """
    if len(text) % 4 or not _GOOD.match(text):
        wrong = _first_wrong(text.encode("utf-8", "surrogatepass"))
        if wrong is not None:
            return wrong
        text = text.replace("\r", "").replace("\n", "")
    return base64.urlsafe_b64decode(text)


def _first_wrong(raw: bytes) -> int | None:
    """Return the index at which Go reports invalid base64 (CorruptInputError), or None."""
    found = _OTHER.search(raw)
    at = found.start() if found is not None else len(raw)
    within = (at - raw.count(b"\r", 0, at) - raw.count(b"\n", 0, at)) % 4
    if found is None:
        return at - within if within else None
    if raw[at] != _PADDING or within < 2:
        return at
    rest = _UNSKIPPED.search(raw, at + 1)
    if within == 2:
        if rest is None:
            return len(raw)
        if raw[rest.start()] != _PADDING:
            return rest.start() - 1
        rest = _UNSKIPPED.search(raw, rest.end())
    return rest.start() if rest is not None else None
