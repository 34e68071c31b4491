"""Recognise request URIs as Go's net/url parses them (VAL-006)."""

import re

from apiext.schema.addresses import ipv6

_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*):", re.ASCII)
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")
_BAD_ESCAPE = re.compile(r"%(?![0-9a-fA-F]{2})")
_ASCII_ESCAPE = re.compile(r"%(?!25)[0-7]")
_ESCAPE = re.compile(r"%([0-9a-fA-F]{2})")
_PORT = re.compile(r"(?::[0-9]*)?\Z")
_USER = re.compile(r"[A-Za-z0-9\-._:~!$&'()*+,;=%@]*\Z")
_HOST_CHARS = r"A-Za-z0-9\-_.~!$&'()*+,;=:\[\]<>\""
_HOST = re.compile(rf"[{_HOST_CHARS}%\u0080-\U0010ffff]*\Z")
_PLAIN_HOST_CHAR = re.compile(rf"[{_HOST_CHARS} %]")


def request_uri(text: str) -> bool:
    """Return whether Go's url.ParseRequestURI accepts the text.

    It accepts an absolute URI, an absolute path, and ``*``.
    """
    if not text or _CONTROL.search(text):
        return False
    if text == "*":
        return True
    found = _SCHEME.match(text)
    if text.startswith(":"):
        return False
    scheme = found[1].lower() if found else ""
    rest = (text[found.end() :] if found else text).partition("?")[0]
    if not rest.startswith("/"):
        return bool(scheme)
    if scheme and rest.startswith("//"):
        authority, slash, path = rest[2:].partition("/")
        return _authority(scheme, authority) and _BAD_ESCAPE.search(slash + path) is None
    return _BAD_ESCAPE.search(rest) is None


def _authority(scheme: str, text: str) -> bool:
    user, at, host = text.rpartition("@")
    if at and (_USER.match(user) is None or _BAD_ESCAPE.search(user)):
        return False
    return _literal(host) if "[" in host else _host(scheme, host)


def _host(scheme: str, host: str) -> bool:
    colon = host.find(":")
    if colon >= 0:
        if scheme not in ("http", "https"):
            colon = host.rfind(":")
        if _PORT.match(host[colon:]) is None:
            return False
    return _plain(host)


def _plain(host: str) -> bool:
    """Return whether a host has only allowed characters.

    Escapes may only encode ``%`` and non-ASCII bytes.
    """
    return _HOST.match(host) is not None and _BAD_ESCAPE.search(host) is None and _ASCII_ESCAPE.search(host) is None


def _literal(host: str) -> bool:
    """Return whether a host in brackets is an IPv6 address, with an optional zone and port."""
    end = host.rfind("]")
    if host.rfind("[") != 0 or end < 0 or _PORT.match(host[end + 1 :]) is None:
        return False
    address, percent, zone = host[1:end].partition("%25")
    if percent:
        return ipv6(address) and bool(zone) and _zone(zone)
    return ipv6(address)


def _zone(zone: str) -> bool:
    if _HOST.match(zone) is None or _BAD_ESCAPE.search(zone):
        return False
    codes = (int(code, 16) for code in _ESCAPE.findall(zone))
    return all(code == 0x25 or _PLAIN_HOST_CHAR.match(chr(code)) for code in codes)
