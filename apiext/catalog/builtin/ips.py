"""IP addresses and CIDRs in fields of built-in kinds.

Upstream: apimachinery/util/validation/ip.go. A stored value may violate these strict rules, and an update may keep such
a value.
"""

import re
from collections.abc import Collection, Iterator
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from apiext.meta.fields import FieldError, invalid
from apiext.text.quotes import go_quote

_NO_ADDRESS = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)"
_NO_NETWORK = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"


def address_of(text: str) -> IPv4Address | IPv6Address | None:
    """Parse an IP address; return None if it is invalid. As upstream, accept leading zeros."""
    if "%" in text:
        return None
    try:
        return ip_address(_without_zeros(text) if ":" not in text else text)
    except ValueError:
        return None


def address_errors(path: str, text: str, kept: Collection[str]) -> Iterator[FieldError]:
    """Yield the error of an invalid address.

    ``kept`` are values of the stored object, which cause no error.
    """
    address = None if text in kept else address_of(text)
    if text not in kept and address is None:
        yield invalid(path, text, _NO_ADDRESS)
    elif address is not None and _has_zeros(text):
        yield invalid(path, text, "must not have leading 0s")
    elif _is_mapped(address):
        yield invalid(path, text, "must not be an IPv4-mapped IPv6 address")


def canonical_address_errors(path: str, text: str) -> Iterator[FieldError]:
    """Yield the error of an address that is invalid or not in canonical form."""
    faults = list(address_errors(path, text, ()))
    yield from faults
    shown = str(address_of(text))
    if not faults and shown != text:
        yield invalid(path, text, f"must be in canonical form ({go_quote(shown)})")


def special_errors(path: str, text: str) -> Iterator[FieldError]:
    """Yield the errors of an address that is invalid, unspecified, loopback or link-local."""
    address = address_of(text)
    if address is None:
        yield invalid(path, text, "must be a valid IP address")
        return
    if address.is_unspecified:
        yield invalid(path, text, f"may not be unspecified ({text})")
    if address.is_loopback:
        yield invalid(path, text, "may not be in the loopback range (127.0.0.0/8, ::1/128)")
    if address.is_link_local:
        yield invalid(path, text, "may not be in the link-local range (169.254.0.0/16, fe80::/10)")
    if address in _LINK_LOCAL_GROUPS[address.version]:
        yield invalid(path, text, "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)")


# Go checks ff02::/16, but the message names ff02::/10
_LINK_LOCAL_GROUPS = {4: ip_network("224.0.0.0/24"), 6: ip_network("ff02::/16")}


def address_warnings(path: str, text: str) -> Iterator[str]:
    """Yield the warnings about the form of an address."""
    address = address_of(text)
    if address is None:
        return
    shown = str(getattr(address, "ipv4_mapped", None) or address)
    if _has_zeros(text) or _is_mapped(address):
        yield f"{path}: non-standard IP address {go_quote(text)} is invalid: use {go_quote(shown)}"
    elif address.version == 6 and shown != text:
        yield f"{path}: IPv6 address {go_quote(text)} should be in RFC 5952 canonical format ({go_quote(shown)})"


def network_errors(path: str, text: str, kept: Collection[str]) -> Iterator[FieldError]:
    """Yield the error of an invalid CIDR.

    ``kept`` are values of the stored object, which cause no error.
    """
    if text in kept:
        return
    network = network_of(text)
    if network is None:
        yield invalid(path, text, _NO_NETWORK)
    elif _has_zeros(text):
        yield invalid(path, text, "must not have leading 0s in IP or prefix length")
    elif _is_mapped(network.network_address):
        yield invalid(path, text, "must not have an IPv4-mapped IPv6 address")
    elif address_of(text.partition("/")[0]) != network.network_address:
        yield invalid(path, text, "must not have bits set beyond the prefix length")


def is_network(text: str) -> bool:
    """Report whether the text is a CIDR.

    As upstream, accept leading zeros, and bits beyond the prefix length.
    """
    return network_of(text) is not None


def network_warnings(path: str, text: str) -> Iterator[str]:
    """Yield the warnings about the form of a CIDR."""
    network = network_of(text)
    if network is None:
        return
    address, shown, clean = address_of(text.partition("/")[0]), go_quote(str(network)), True
    if address != network.network_address:
        clean, one = False, go_quote(f"{address}/{network.max_prefixlen}")
        yield f"{path}: CIDR value {go_quote(text)} is ambiguous in this context (should be {shown} or {one}?)"
    if _has_zeros(text) or _is_mapped(network.network_address):
        clean = False
        yield f"{path}: non-standard CIDR value {go_quote(text)} is invalid: use {shown}"
    if clean and network.version == 6 and str(network) != text:
        yield f"{path}: IPv6 CIDR value {go_quote(text)} should be in RFC 5952 canonical format ({shown})"


def is_strict_subset(part: IPv4Network | IPv6Network, whole: IPv4Network | IPv6Network) -> bool:
    """Return whether a network is in another one and has a longer prefix.

    As in Go, IPv4-mapped IPv6 addresses are IPv4 addresses, but their prefixes are compared as they are.
    """
    first = whole.network_address
    plain, length = _plain(first), whole.prefixlen - (96 if _is_mapped(first) else 0)
    return _plain(part.network_address) in ip_network((plain, length)) and whole.prefixlen < part.prefixlen


def _plain(address: IPv4Address | IPv6Address) -> IPv4Address | IPv6Address:
    return getattr(address, "ipv4_mapped", None) or address


def network_of(text: str) -> IPv4Network | IPv6Network | None:
    """Parse a CIDR; return None if it is invalid. As upstream, accept leading zeros."""
    first, _, length = text.partition("/")
    address = address_of(first)
    if address is None or not re.fullmatch("[0-9]{1,9}", length):
        return None
    try:
        return ip_network((address, int(length)), strict=False)
    except ValueError:
        return None


def _without_zeros(text: str) -> str:
    return re.sub(r"(?<![0-9])0+(?=[0-9])", "", text)


def _has_zeros(text: str) -> bool:
    """Report whether a number in an IPv4 address, or a prefix length, has leading zeros."""
    address, _, length = text.partition("/")
    return (":" not in address and _without_zeros(address) != address) or _without_zeros(length) != length


def _is_mapped(address: IPv4Address | IPv6Address | None) -> bool:
    return isinstance(address, IPv6Address) and address.ipv4_mapped is not None
