"""Base64 in the alphabet of URLs, as Go reads it."""

import base64
import re

_GOOD = re.compile(r"[A-Za-z0-9_-]*+={0,2}\Z")
_CHARS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
_SKIPPED = "\r\n"


def read_base64(text: str) -> bytes | int:
    """Return the bytes of a padded text, or at which of its bytes Go's decoder gives up; line breaks are skipped."""
    if len(text) % 4 or not _GOOD.match(text):
        wrong = _first_wrong(text.encode("utf-8", "surrogatepass").decode("latin-1"))
        if wrong is not None:
            return wrong
        text = "".join(char for char in text if char not in _SKIPPED)
    return base64.urlsafe_b64decode(text)


def _first_wrong(text: str) -> int | None:
    """Return where a text, one character for each byte, stops being base64."""
    places = [at for at, char in enumerate(text) if char not in _SKIPPED]
    size = len(text)
    for number, at in enumerate(places):
        if text[at] in _CHARS:
            continue
        within = number % 4
        if text[at] != "=" or within < 2:
            return at
        rest = places[number + 1 :]
        if within == 2:
            if not rest:
                return size
            if text[rest[0]] != "=":
                return rest[0] - 1
            rest = rest[1:]
        return rest[0] if rest else None
    left = len(places) % 4
    return size - left if left else None
