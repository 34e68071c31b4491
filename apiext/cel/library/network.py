"""IP addresses and networks, as Go's netip parses and prints them."""

import re
from typing import TYPE_CHECKING

from apiext.cel.costs import READ, READ_TWICE, Cost, scaled
from apiext.cel.library.addresses import Address, Refused, parse
from apiext.cel.overloads import Library, row
from apiext.cel.quotes import go_quote
from apiext.cel.ranges import ONE, TRAVERSAL, CallCost, CallSizes, Range, add, scale
from apiext.cel.types import CIDR, IP
from apiext.cel.values import Fault, Special, Value, cost_size, no_overload

if TYPE_CHECKING:  # imported on first use: few rules need it
    import ipaddress

_DECIMAL = re.compile(r"[0-9]+\Z")


class Ip(Special):
    """An IP address."""

    __slots__ = ("address",)
    type_name = IP.name
    go_type = "cel.IP"

    def __init__(self, address: Address) -> None:
        self.address = address

    def __str__(self) -> str:
        return str(self.address)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Ip) and self.address == other.address

    def __hash__(self) -> int:
        return hash(self.address)

    def same(self, other: Value) -> bool | Fault:
        """Compare addresses."""
        return self.address == other.address if type(other) is Ip else no_overload()

    def size(self) -> int | None:
        """Return the number of bytes of the address."""
        return self.address.max_prefixlen // 8


class Network(Special):
    """An IP address with a prefix length."""

    __slots__ = ("address", "bits")
    type_name = CIDR.name
    go_type = "cel.CIDR"

    def __init__(self, address: Address, bits: int) -> None:
        self.address = address
        self.bits = bits

    def __str__(self) -> str:
        return f"{self.address}/{self.bits}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Network) and (self.address, self.bits) == (other.address, other.bits)

    def __hash__(self) -> int:
        return hash((self.address, self.bits))

    def same(self, other: Value) -> bool | Fault:
        """Compare addresses and prefix lengths."""
        if type(other) is not Network:
            return no_overload()
        return self.address == other.address and self.bits == other.bits

    def size(self) -> int | None:
        """Return the number of bytes that the prefix covers."""
        return -(-self.bits // 8)


def _mapped(address: Address) -> "ipaddress.IPv4Address | None":
    """Return the IPv4 address that is mapped into an IPv6 address, or None."""
    return None if address.version == 4 else address.ipv4_mapped


def _read_ip(text: str) -> Ip | Fault:
    try:
        address, zone = parse(text)
    except Refused as wrong:
        return Fault(f"IP Address {go_quote(text)} parse error during conversion from string: {wrong}")
    if zone:
        return Fault(f"IP address {go_quote(text)} with zone value is not allowed")
    if _mapped(address) is not None:
        return Fault(f"IPv4-mapped IPv6 address {go_quote(text)} is not allowed")
    return Ip(address)


def _read_network(text: str) -> Network | Fault:
    parsing = "network address parse error during conversion from string: "
    head, slash, bits = text.rpartition("/")

    def refuse(reason: str) -> Fault:
        return Fault(f"{parsing}{parsing}netip.ParsePrefix({go_quote(text)}): {reason}")

    if not slash:
        return refuse("no '/'")
    try:
        address, zone = parse(head)
    except Refused as wrong:
        return refuse(str(wrong))
    if zone:
        return refuse("IPv6 zones cannot be present in a prefix")
    if (len(bits) > 1 and (not "1" <= bits[0] <= "9")) or not _DECIMAL.match(bits):
        return refuse(f"bad bits after slash: {go_quote(bits)}")
    if len(bits) > 4 or int(bits) > address.max_prefixlen:
        return refuse("prefix length out of range")
    if _mapped(address) is not None:
        return Fault(f"{parsing}IPv4-mapped IPv6 address {go_quote(text)} is not allowed")
    return Network(address, int(bits))


def _is_canonical(text: str) -> Value:
    found = _read_ip(text)
    return found if type(found) is Fault else str(found) == text


def _is_global_unicast(ip: Ip) -> Value:
    a = ip.address
    if a.version == 4 and int(a) == 0xFFFFFFFF:
        return False
    return not (a.is_unspecified or a.is_loopback or a.is_multicast or a.is_link_local)


def _is_link_local_multicast(ip: Ip) -> Value:
    a = ip.address
    if a.version == 4:
        return int(a) >> 8 == 0xE00000
    return int(a) >> 112 & 0xFF0F == 0xFF02


def _prefix(address: Address, bits: int) -> int:
    return int(address) >> (address.max_prefixlen - bits)


def _contains_ip(network: Network, ip: Ip) -> Value:
    if network.address.version != ip.address.version:
        return False
    return _prefix(network.address, network.bits) == _prefix(ip.address, network.bits)


def _contains_ip_text(network: Network, text: str) -> Value:
    ip = _read_ip(text)  # as upstream: the reason of an invalid address is not reported
    return _contains_ip(network, ip) if isinstance(ip, Ip) else no_overload()


def _contains_network(network: Network, inner: Value) -> Value:
    if type(inner) is Fault:
        return inner
    if network.address.version != inner.address.version or network.bits > inner.bits:
        return False
    return _prefix(network.address, network.bits) == _prefix(inner.address, network.bits)


def _contains_network_text(network: Network, text: str) -> Value:
    return _contains_network(network, _read_network(text))


def _masked(network: Network) -> Value:
    keep = network.address.max_prefixlen - network.bits
    return Network(type(network.address)(int(network.address) >> keep << keep), network.bits)


_SIZE: Range = (4, 16)  # bytes of an address


def _compare(args: list[Value], result: Value) -> int:
    return scaled(2 * cost_size(args[0]))


def _compare_estimated(call: CallSizes) -> CallCost:
    return scale(add(_SIZE, _SIZE), TRAVERSAL), None


def _compare_lengths(args: list[Value], result: Value) -> int:
    return _compare(args, result) + scaled(cost_size(args[0])) + 1


def _compare_lengths_estimated(call: CallSizes) -> CallCost:
    return add(add(_compare_estimated(call)[0], scale(_SIZE, TRAVERSAL)), ONE), None


def _parsing(cost: Cost) -> Cost:
    """Return a cost that also includes parsing the second argument."""

    def charge(args: list[Value], result: Value) -> int:
        return cost.charge(args, result) + scaled(cost_size(args[1]))

    def estimate(call: CallSizes) -> CallCost | None:
        made = cost.estimate(call)
        return made and (add(made[0], scale(call.size(1), TRAVERSAL)), None)

    return Cost(charge, estimate)


_CONTAINS_IP = Cost(_compare, _compare_estimated, by_name=True)
_CONTAINS_CIDR = Cost(_compare_lengths, _compare_lengths_estimated, by_name=True)

ADDRESSES = Library(
    "kubernetes.net.ip",
    (
        row("ip", "string_to_ip", "string -> ip", _read_ip, "ip('127.0.0.1').family() == 4", cost=READ),
        row("family", "ip_family", ".ip -> int", lambda ip: ip.address.version, "ip('::1').family() == 6"),
        row("ip.isCanonical", "ip_is_canonical", "string -> bool", _is_canonical, "!ip.isCanonical('::0')",
            cost=READ_TWICE),
        row("isUnspecified", "ip_is_unspecified", ".ip -> bool", lambda ip: ip.address.is_unspecified,
            "ip('::').isUnspecified()"),
        row("isLoopback", "ip_is_loopback", ".ip -> bool", lambda ip: ip.address.is_loopback,
            "ip('127.0.0.1').isLoopback()"),
        row("isLinkLocalMulticast", "ip_is_link_local_multicast", ".ip -> bool", _is_link_local_multicast,
            "ip('224.0.0.1').isLinkLocalMulticast()"),
        row("isLinkLocalUnicast", "ip_is_link_local_unicast", ".ip -> bool", lambda ip: ip.address.is_link_local,
            "ip('fe80::1').isLinkLocalUnicast()"),
        row("isGlobalUnicast", "ip_is_global_unicast", ".ip -> bool", _is_global_unicast,
            "ip('192.168.0.1').isGlobalUnicast()"),
        row("isIP", "is_ip", "string -> bool", lambda text: type(_read_ip(text)) is Ip, "isIP('::1')",
            "!isIP('1.2.3')", cost=READ),
        row("string", "ip_to_string", "ip -> string", str, "string(ip('::0')) == '::'"),
    ),
    since=(1, 30),
    types=(IP,),
)  # fmt: skip
NETWORKS = Library(
    "kubernetes.net.cidr",
    (
        row("cidr", "string_to_cidr", "string -> cidr", _read_network, "cidr('10.0.0.0/8').prefixLength() == 8",
            cost=READ),
        row("containsIP", "cidr_contains_ip_string", ".cidr, string -> bool", _contains_ip_text,
            "cidr('10.0.0.0/8').containsIP('10.1.2.3')", cost=_parsing(_CONTAINS_IP)),
        row("containsIP", "cidr_contains_ip_ip", ".cidr, ip -> bool", _contains_ip,
            "!cidr('10.0.0.0/8').containsIP(ip('11.0.0.1'))", cost=_CONTAINS_IP),
        row("containsCIDR", "cidr_contains_cidr_string", ".cidr, string -> bool", _contains_network_text,
            "cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16')", cost=_parsing(_CONTAINS_CIDR)),
        row("containsCIDR", "cidr_contains_cidr", ".cidr, cidr -> bool", _contains_network,
            "!cidr('10.0.0.0/16').containsCIDR(cidr('10.0.0.0/8'))", cost=_CONTAINS_CIDR),
        row("ip", "cidr_ip", ".cidr -> ip", lambda network: Ip(network.address),
            "cidr('10.1.0.0/8').ip() == ip('10.1.0.0')"),
        row("prefixLength", "cidr_prefix_length", ".cidr -> int", lambda network: network.bits,
            "cidr('::/64').prefixLength() == 64"),
        row("masked", "cidr_masked", ".cidr -> cidr", _masked, "cidr('10.1.0.0/8').masked() == cidr('10.0.0.0/8')"),
        row("isCIDR", "is_cidr", "string -> bool", lambda text: type(_read_network(text)) is Network,
            "isCIDR('10.0.0.0/8')", "!isCIDR('10.0.0.0/33')", cost=READ),
        row("string", "cidr_to_string", "cidr -> string", str, "string(cidr('::0/8')) == '::/8'"),
    ),
    since=(1, 30),
    types=(CIDR, IP),
)  # fmt: skip
