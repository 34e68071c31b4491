"""Flags of kube-apiserver for cluster IPs and node ports of services."""

import re
from collections.abc import Mapping
from ipaddress import IPv4Network, IPv6Network, ip_network

from apiext.config import ConfigError, ServiceRanges

_USUAL = ServiceRanges()
FLAGS: tuple[tuple[str, str, str, str], ...] = (
    (
        "service-cluster-ip-range",
        "CIDR of cluster IPs, or one CIDR for each IP family",
        ",".join(map(str, _USUAL.networks)),
        "CIDR[,CIDR]",
    ),
    (
        "service-node-port-range",
        "range of node ports that services receive",
        f"{_USUAL.ports.start}-{_USUAL.ports.stop - 1}",
        "PORT-PORT",
    ),
)
"""(name, help text, default, metavar) of each flag."""

_RANGE, _PORTS = (name for name, *_ in FLAGS)


def read(values: Mapping[str, str]) -> ServiceRanges:
    """Parse the values of the flags; raise ConfigError for an invalid value.

    The text for an invalid network is upstream's.
    """
    return ServiceRanges(_networks(values[_RANGE]), _ports(values[_PORTS]))


def _networks(text: str) -> tuple[IPv4Network | IPv6Network, ...]:
    if not text:
        return _USUAL.networks
    found = []
    for each, fault in zip(text.split(","), ("[0] is not a valid cidr", "[1] is not an ip net"), strict=False):
        try:
            if "/" not in each:
                raise ValueError
            found.append(ip_network(each, strict=False))
        except ValueError as error:
            raise ConfigError(f"{_RANGE}{fault}") from error
    if text.count(",") > 1:
        raise ConfigError(f"--{_RANGE} must not contain more than two entries")
    if len({network.version for network in found}) < len(found):
        raise ConfigError(f"--{_RANGE}[0] and --{_RANGE}[1] must be of different IP family")
    return tuple(found)


def _ports(text: str) -> range:
    """Parse a range of ports: ``30000-32767``, the same as ``30000+2767``, or one port."""
    if not text:
        return _USUAL.ports
    found = re.fullmatch(r"([0-9]{1,6})(?:([-+])([0-9]{1,6}))?", text.strip())
    if found is None:
        raise ConfigError(f"--{_PORTS} {text}: expected ports such as 30000-32767")
    low = int(found[1])
    high = low if found[2] is None else int(found[3]) + (low if found[2] == "+" else 0)
    if high > 65535 or low > 65535:
        raise ConfigError(f"--{_PORTS}: the port range cannot be greater than 65535: {text}")
    if high < low:
        raise ConfigError(f"--{_PORTS}: end port cannot be less than start port: {text}")
    return range(low, high + 1)
