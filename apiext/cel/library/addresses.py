"""Parse IP addresses as Go's net/netip does, with its error texts."""

import re
from typing import TYPE_CHECKING, TypeAlias

from apiext.cel.quotes import go_quote

if TYPE_CHECKING:  # imported on first use: few rules need it
    import ipaddress

Address: TypeAlias = "ipaddress.IPv4Address | ipaddress.IPv6Address"
_HEX = re.compile(r"[0-9a-fA-F]*")
_FIRST = re.compile(r"[.:%]")
_GROUPS = 8


class Refused(ValueError):
    """The error of a text that is not an IP address; the message is Go's."""


def parse(text: str) -> tuple[Address, str]:
    """Return an address and its zone, "" without a zone. Raise Refused for an invalid text."""
    from ipaddress import IPv4Address, IPv6Address

    try:
        first = _FIRST.search(text)
        if first is None:
            raise Refused("unable to parse IP")
        if first[0] == "%":
            raise Refused("missing IPv6 address")
        if first[0] == ".":
            return IPv4Address(bytes(_fields(text))), ""
        address, percent, zone = text.partition("%")
        if percent and not zone:
            raise Refused("zone must be a non-empty string")
        return IPv6Address(_groups(address)), zone
    except Refused as wrong:
        raise Refused(f"ParseAddr({go_quote(text)}): {wrong}") from None


def _at(message: str, rest: str) -> Refused:
    return Refused(f"{message} (at {go_quote(rest)})" if rest else message)


def _fields(text: str) -> list[int]:
    """Return the four numbers of an IPv4 address. Raise Refused at the first error."""
    found: list[int] = []
    digits = ""
    for at, char in enumerate(text):
        if "0" <= char <= "9":
            if digits == "0":
                raise Refused("IPv4 field has octet with leading zero")
            digits += char
            if int(digits) > 255:
                raise Refused("IPv4 field has value >255")
        elif char != ".":
            raise _at("unexpected character", text[at:])
        elif at in (0, len(text) - 1) or text[at - 1] == ".":
            raise _at("IPv4 field must have at least one digit", text[at:])
        elif len(found) == 3:
            raise Refused("IPv4 address too long")
        else:
            found.append(int(digits))
            digits = ""
    if len(found) < 3:
        raise Refused("IPv4 address too short")
    return [*found, int(digits)]


def _groups(text: str) -> bytes:
    """Return the bytes of an IPv6 address without its zone. Raise Refused at the first error."""
    found: list[int] = []
    ellipsis: int | None = None
    rest = text
    if rest.startswith("::"):
        ellipsis, rest = 0, rest[2:]
    while len(found) < _GROUPS and not (ellipsis == len(found) and not rest):
        digits = _digits(rest)
        if rest[len(digits) : len(digits) + 1] == ".":
            found += _embedded(rest, len(found), ellipsis)
            rest = ""
            break
        found.append(int(digits, 16))
        rest = rest[len(digits) :]
        if not rest:
            break
        rest = _after_colon(rest)
        if rest[0] == ":":
            if ellipsis is not None:
                raise _at("multiple :: in address", rest)
            ellipsis, rest = len(found), rest[1:]
    return b"".join(group.to_bytes(2, "big") for group in _expanded(found, ellipsis, rest))


def _digits(rest: str) -> str:
    found = _HEX.match(rest)
    assert found is not None
    if len(found[0]) > 4:
        raise _at("each group must have 4 or less digits", rest)
    if not found[0]:
        raise _at("each colon-separated field must have at least one digit", rest)
    return found[0]


def _embedded(rest: str, groups: int, ellipsis: int | None) -> tuple[int, int]:
    """Return the two groups for the IPv4 address at the end of an IPv6 address."""
    if ellipsis is None and groups != 6:
        raise _at("embedded IPv4 address must replace the final 2 fields of the address", rest)
    if groups > 6:
        raise _at("too many hex fields to fit an embedded IPv4 at the end of the address", rest)
    a, b, c, d = _fields(rest)
    return a << 8 | b, c << 8 | d


def _after_colon(rest: str) -> str:
    if rest[0] != ":":
        raise _at("unexpected character, want colon", rest)
    if len(rest) == 1:
        raise _at("colon must be followed by more characters", rest)
    return rest[1:]


def _expanded(found: list[int], ellipsis: int | None, rest: str) -> list[int]:
    if rest:
        raise _at("trailing garbage after address", rest)
    if len(found) < _GROUPS:
        if ellipsis is None:
            raise Refused("address string too short")
        return [*found[:ellipsis], *[0] * (_GROUPS - len(found)), *found[ellipsis:]]
    if ellipsis is not None:
        raise Refused("the :: must expand to at least one field of zeros")
    return found
