"""Addresses as Go parses them: IP, CIDR, MAC, request URI and mail address (VAL-006)."""

import re
from functools import partial

_HEX = frozenset("0123456789abcdefABCDEF")
_UNQUOTED_SPACE = " \t"


def _ipv4_bytes(text: str) -> bool:
    parts = text.split(".")
    if len(parts) != 4:
        return False
    return all(part.isascii() and part.isdigit() and _octet(part) for part in parts)


def _octet(part: str) -> bool:
    digits = part.lstrip("0")  # upstream: leading zeros are accepted
    return len(digits) <= 3 and int(digits or 0) <= 255


def _ipv6(text: str, sloppy: bool) -> bool:
    """Tell whether the text is an IPv6 address without a zone, the last 32 bits possibly dotted."""
    head, double, tail = text.partition("::")
    if double and "::" in tail:
        return False
    groups = [*_groups(head), *_groups(tail)] if double else text.split(":")
    if (double and (head.endswith(":") or tail.startswith(":"))) or len(groups) > 8:
        return False
    size = 0
    for place, group in enumerate(groups):
        if "." in group:
            last = place == len(groups) - 1 and (not double or bool(tail))
            if not last or not (_ipv4_bytes(group) and (sloppy or not _padded(group))):
                return False
            size += 2
        elif not (0 < len(group) <= 4 and _HEX.issuperset(group)):
            return False
        else:
            size += 1
    return size < 8 if double else size == 8


def _groups(text: str) -> list[str]:
    return text.split(":") if text else []


def _padded(dotted: str) -> bool:
    return any(len(part) > 1 and part[0] == "0" for part in dotted.split("."))


def ipv4(text: str) -> bool:
    """Tell whether the text is an IP address with a dot in it; leading zeros are accepted."""
    return "." in text and _sloppy_ip(text)


def ipv6(text: str) -> bool:
    """Tell whether the text is an IP address with a colon in it, without a zone."""
    return ":" in text and _first_sign(text) == ":" and _ipv6(text, sloppy=False)


def _first_sign(text: str) -> str:
    return next((char for char in text if char in ".:"), "")


def _sloppy_ip(text: str) -> bool:
    sign = _first_sign(text)
    return _ipv4_bytes(text) if sign == "." else sign == ":" and _ipv6(text, sloppy=True)


def cidr(text: str) -> bool:
    """Tell whether the text is an address, a slash and a prefix length; leading zeros are accepted."""
    address, slash, length = text.partition("/")
    if not slash or not (length.isascii() and length.isdigit()) or len(length.lstrip("0")) > 3:
        return False
    limit = 32 if _first_sign(address) == "." else 128
    return _sloppy_ip(address) and int(length) <= limit


_MACS = tuple(
    re.compile(pattern + r"\Z")
    for size in (6, 8, 20)
    for pattern in (
        rf"[0-9a-fA-F]{{2}}(?::[0-9a-fA-F]{{2}}){{{size - 1}}}",
        rf"[0-9a-fA-F]{{2}}(?:-[0-9a-fA-F]{{2}}){{{size - 1}}}",
        rf"[0-9a-fA-F]{{4}}(?:\.[0-9a-fA-F]{{4}}){{{size // 2 - 1}}}",
    )
)


def mac(text: str) -> bool:
    """Tell whether the text is a hardware address of 6, 8 or 20 bytes."""
    return any(pattern.match(text) for pattern in _MACS)


_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*\Z")
_BAD_ESCAPE = re.compile(r"%(?![0-9a-fA-F]{2})")
_HOST_ESCAPE = re.compile(r"%([0-9a-fA-F]{2})")
_PORT = re.compile(r"(?::[0-9]*)?\Z")
_USER_INFO = re.compile(r"[A-Za-z0-9\-._:~!$&'()*+,;=%@]*\Z")
_HOST = re.compile(r"[A-Za-z0-9\-_.~!$&'()*+,;=:\[\]<>\"%\u0080-\U0010ffff]*\Z")


def request_uri(text: str) -> bool:
    """Tell whether Go's url.ParseRequestURI takes the text: an absolute URI or an absolute path."""
    if not text or any(ord(char) < 0x20 or ord(char) == 0x7F for char in text):
        return False
    if text == "*":
        return True
    parts = _split_scheme(text)
    if parts is None:
        return False
    scheme, rest = parts
    rest = rest.partition("?")[0]
    if not rest.startswith("/"):
        return bool(scheme)  # opaque
    if rest.startswith("//") and (scheme or not rest.startswith("///")):
        authority, slash, path = rest[2:].partition("/")
        if scheme or not rest.startswith("///"):
            return (_viewless(scheme) or _authority(authority)) and _BAD_ESCAPE.search(slash + path) is None
    return _BAD_ESCAPE.search(rest) is None


def _viewless(_: str) -> bool:
    return False


def _split_scheme(text: str) -> tuple[str, str] | None:
    """Return scheme and rest, the scheme empty for a path; None when neither is possible."""
    for place, char in enumerate(text):
        if char.isascii() and char.isalpha():
            continue
        if char in "0123456789+-.":
            if place == 0:
                return ("", text) if text.startswith("/") else None
            continue
        if char == ":":
            return (text[:place], text[place + 1 :]) if place else None
        break
    return ("", text) if text.startswith("/") else None


def _authority(text: str) -> bool:
    user, at, host = text.rpartition("@")
    if at and (_USER_INFO.match(user) is None or _BAD_ESCAPE.search(user)):
        return False
    return _host(host)


def _host(host: str) -> bool:
    if host.startswith("["):
        end = host.rfind("]")
        return end > 0 and _PORT.match(host[end + 1 :]) is not None and _HOST.match(host[:end]) is not None
    colon = host.rfind(":")
    if colon >= 0 and _PORT.match(host[colon:]) is None:
        return False
    if _BAD_ESCAPE.search(host) or _HOST.match(host) is None:
        return False
    # an escape in a host may only stand for a byte outside ASCII
    return all(int(code, 16) >= 0x80 for code in _HOST_ESCAPE.findall(host))


email = partial(bool)
