"""Listening sockets and addresses.

A server that listens on all addresses of the machine has one socket for IPv4 and IPv6, as in Go.
"""

import asyncio
import contextlib
import errno
import ipaddress
import socket

_NO_FAMILY = {errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL}
_MAPPED = "::ffff:"


def is_unspecified(address: str) -> bool:
    """Report whether an address means all addresses of the machine.

    As in upstream, these are ``0.0.0.0`` and ``::``.
    """
    try:
        return ipaddress.ip_address(address).is_unspecified
    except ValueError:
        return False


def everywhere(port: int, *, reuse_port: bool = False) -> socket.socket:
    """Return a socket that is bound to all addresses; raise OSError.

    Without IPv6, bind to all IPv4 addresses.
    """
    try:
        return _bound(socket.AF_INET6, "::", port, reuse_port)
    except OSError as error:
        if error.errno not in _NO_FAMILY:
            raise
    return _bound(socket.AF_INET, "0.0.0.0", port, reuse_port)


def bind_all(stack: contextlib.ExitStack, host: str, port: int) -> int:
    """Bind sockets to all addresses of a host name, with the same port.

    Return the port; raise OSError.
    """
    if is_unspecified(host):
        return int(stack.enter_context(everywhere(port)).getsockname()[1])
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    for family, kind, protocol, _, address in dict.fromkeys(found):
        held = stack.enter_context(socket.socket(family, kind, protocol))
        held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            held.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        held.bind((address[0], port, *address[2:]))
        port = held.getsockname()[1]
    return port


def is_taken(host: str, port: int) -> bool:
    """Report whether a process listens on this port at an address of the host name."""
    try:
        with contextlib.ExitStack() as stack:
            bind_all(stack, host, port)
    except OSError as error:
        return error.errno == errno.EADDRINUSE
    return False


def log_address(address: str) -> str:
    """Return a client's address for logs: IPv4 addresses without the prefix of IPv6 sockets."""
    return address.removeprefix(_MAPPED) if "." in address else address


def _bound(family: socket.AddressFamily, address: str, port: int, reuse_port: bool) -> socket.socket:
    with contextlib.ExitStack() as stack:
        found = stack.enter_context(socket.socket(family, socket.SOCK_STREAM))
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if reuse_port:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        if family == socket.AF_INET6:
            found.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        found.bind((address, port))
        stack.pop_all()
    return found


def set_option(transport: asyncio.BaseTransport, level: int, name: str, value: int) -> None:
    """Set a socket option.

    Do nothing if the operating system or the kind of socket does not support it.
    """
    option = getattr(socket, name, None)
    found = transport.get_extra_info("socket")
    if option is not None and found is not None:
        with contextlib.suppress(OSError):
            found.setsockopt(level, option, value)


def own_address() -> str:
    """Return the IPv4 address of this machine for its default route, "" if there is none.

    The function sends no packet.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return ""
        address: str = probe.getsockname()[0]
        return address
