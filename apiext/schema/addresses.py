"""Recognise IP, CIDR and MAC addresses as Go parses them (VAL-006)."""

import re

_HEX = frozenset("0123456789abcdefABCDEF")


def _ipv4_bytes(text: str) -> bool:
    parts = text.split(".")
    if len(parts) != 4:
        return False
    return all(part.isascii() and part.isdigit() and _octet(part) for part in parts)


def _octet(part: str) -> bool:
    digits = part.lstrip("0")  # upstream: accepts leading zeros
    return len(digits) <= 3 and int(digits or 0) <= 255


def _ipv6(text: str, sloppy: bool) -> bool:
    """Return whether the text is an IPv6 address without a zone.

    The text may end with an IPv4 address. If ``sloppy`` is true, the numbers of this IPv4 address may have leading
    zeros.
    """
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
    """Return whether the text is an IP address that contains a dot.

    The address is an IPv4 address, or, as upstream, an IPv6 address that ends with one. Its decimal numbers may have
    leading zeros.
    """
    return "." in text and _sloppy_ip(text)


def ipv6(text: str) -> bool:
    """Return whether the text is an IPv6 address without a zone.

    If the text ends with an IPv4 address, the numbers of this address must not have leading zeros.
    """
    return ":" in text and _first_sign(text) == ":" and _ipv6(text, sloppy=False)


def _first_sign(text: str) -> str:
    return next((char for char in text if char in ".:"), "")


def _sloppy_ip(text: str) -> bool:
    sign = _first_sign(text)
    return _ipv4_bytes(text) if sign == "." else sign == ":" and _ipv6(text, sloppy=True)


def cidr(text: str) -> bool:
    """Return whether the text is an IP address, a slash and a valid prefix length.

    The prefix length and the decimal numbers of the address may have leading zeros.
    """
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
        rf"[0-9a-fA-F]{{{size * 2}}}",
    )
)


def mac(text: str) -> bool:
    """Return whether the text is a hardware address of 6, 8 or 20 bytes."""
    return any(pattern.match(text) for pattern in _MACS)


def strict_ip(text: str) -> bool:
    """Return whether the text is an IP address without leading zeros and without a zone."""
    return ipv6(text) or (_first_sign(text) == "." and _ipv4_bytes(text) and not _padded(text))
