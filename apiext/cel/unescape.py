"""What a quoted string or bytes literal means."""

import re

_SIMPLE = {
    "a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v",
    "\\": "\\", "'": "'", '"': '"', "`": "`", "?": "?",
}  # fmt: skip
_ESCAPES = re.compile(r"\\(?:[xX]([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-3][0-7]{2})|(.))", re.DOTALL)


class UnescapeError(ValueError):
    """Why a literal means nothing, in upstream's words."""


def unescape(quoted: str, octets: bool) -> str | bytes:
    """Return what a literal with its quotes (and r, but no b) means: a str, or bytes when ``octets``."""
    if "\r" in quoted:
        quoted = quoted.replace("\r\n", "\n").replace("\r", "\n")
    raw = quoted[0] in "rR"
    if raw:
        quoted = quoted[1:]
    inner = quoted[3:-3] if len(quoted) >= 6 and quoted[:3] in ("'''", '"""') else quoted[1:-1]
    if raw or "\\" not in inner:
        return inner.encode() if octets else inner
    if octets:
        return _bytes(inner)
    return _ESCAPES.sub(_character, inner)


def _character(found: re.Match[str]) -> str:
    """Return the character of one escape of a string."""
    for group, base in ((1, 16), (2, 16), (3, 16), (4, 8)):
        digits = found[group]
        if digits is not None:
            point = int(digits, base)
            if point > 0x10FFFF or 0xD800 <= point < 0xE000:
                raise UnescapeError("invalid unicode code point")
            return chr(point)
    return _SIMPLE[found[5]]


def _bytes(inner: str) -> bytes:
    out = bytearray()
    at = 0
    for found in _ESCAPES.finditer(inner):
        out += inner[at : found.start()].encode()
        at = found.end()
        if found[1] is not None or found[4] is not None:
            out.append(int(found[1], 16) if found[1] is not None else int(found[4], 8))
        elif found[2] is not None or found[3] is not None:
            raise UnescapeError("unable to unescape string")
        else:
            out += _SIMPLE[found[5]].encode()
    return bytes(out + inner[at:].encode())
