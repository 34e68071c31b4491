"""The HTTP proxy for calls of webhooks (VER-010).

Environment variables configure the proxy. Calls use tunnels through the proxy.
"""

import asyncio
import ipaddress
import re
import ssl
from base64 import b64encode
from collections.abc import Mapping
from typing import cast
from urllib.parse import unquote, urlsplit

from msgspec import Struct

from apiext.webhooks import hosts, limits
from apiext.webhooks.errors import Broken, Unreachable
from apiext.webhooks.wire import Connection

_PROXIES = ("HTTPS_PROXY", "https_proxy")
_EXCEPTIONS = ("NO_PROXY", "no_proxy")
_ONE_WORD = re.compile(r"[!-~]+").fullmatch
_HOST_AND_PORT = re.compile(r"(\[[^\[\]]*\]|[^:\[\]]*):([^:\[\]]*)").fullmatch
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Proxy(Struct, frozen=True):
    """A proxy for CONNECT requests.

    ``credentials`` is the base64 form of user:password, or empty. ``exceptions`` is the value of NO_PROXY.
    """

    host: str
    port: int
    credentials: str = ""
    exceptions: str = ""

    def serves(self, host: str, port: int) -> bool:
        """Report whether calls to a host use the proxy.

        Localhost, loopback addresses and hosts of NO_PROXY do not use it.
        """
        address = _address(host)
        if host.lower() == "localhost" or (address is not None and address.is_loopback):
            return False
        where = host.lower(), str(port), address
        return not any(_names(text.strip().lower(), *where) for text in self.exceptions.split(","))


def proxy_of(environment: Mapping[str, str]) -> Proxy | None:
    """Return the proxy for https in the environment variables, as Go reads them.

    Return None without a valid proxy.
    """
    exceptions = next((environment[name] for name in _EXCEPTIONS if environment.get(name)), "")
    try:
        return _read(environment.get(_named(environment), ""), exceptions)
    except ValueError:
        return None


def fault(environment: Mapping[str, str]) -> str:
    """Return a warning if the proxy in the environment is invalid, else an empty string.

    The warning does not quote the proxy, which may contain a password.
    """
    named = _named(environment)
    if not named or proxy_of(environment) is not None:
        return ""
    return f"{named} is not the URL of a proxy, http://host:port: webhooks are called without a proxy"


def _named(environment: Mapping[str, str]) -> str:
    return next((name for name in _PROXIES if environment.get(name)), "")


def _read(text: str, exceptions: str) -> Proxy | None:
    """Parse the URL of a proxy; for an invalid URL, return None or raise ValueError."""
    parts = urlsplit(text if "://" in text else f"http://{text}")
    host = hosts.in_dns(parts.hostname or "")
    if parts.scheme != "http" or not _ONE_WORD(host):
        return None  # proxies with TLS or SOCKS are not supported
    if parts.query or parts.fragment:
        return None  # such a URL has a password that contains ? or # without an escape
    host.encode("idna")  # raises UnicodeError, a ValueError, for an invalid name
    login = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}" if parts.username else ""
    return Proxy(host, parts.port or 80, b64encode(login.encode()).decode() if login else "", exceptions)


def _names(exception: str, host: str, port: str, address: _Address | None) -> bool:
    """Report whether an entry of NO_PROXY matches a host.

    ``a.b`` matches the domain and its subdomains, ``.a.b`` only the subdomains.
    """
    if not exception or exception == "*":
        return bool(exception)
    if (network := _network(exception)) is not None:
        return address is not None and address in network
    split = _HOST_AND_PORT(exception)
    named, at = (split[1].strip("[]"), split[2]) if split else (exception, "")
    if not named or at not in ("", port):
        return False
    if (one := _address(named)) is not None:
        return one == address
    name = hosts.in_dns(named.removeprefix("*") if named.startswith("*.") else named)
    return host == name or host.endswith(name if name.startswith(".") else f".{name}")


def _address(host: str) -> _Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _network(text: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(text, strict=False) if "/" in text else None
    except ValueError:
        return None  # not a CIDR


class _Handshake(asyncio.Protocol):
    """Receives the head of a proxy's response to CONNECT."""

    def __init__(self) -> None:
        self.head = bytearray()
        self.done: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        if self.done.done():
            return
        searched = max(len(self.head) - 3, 0)
        self.head += data
        end = self.head.find(b"\r\n\r\n", searched)
        if (len(self.head) if end < 0 else end) > limits.WEBHOOK_HEAD:
            self.done.set_exception(Broken("proxyconnect tcp: the answer has no end"))
        elif end >= 0:
            self.done.set_result(bytes(self.head))

    def connection_lost(self, error: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(Broken("proxyconnect tcp: unexpected EOF"))


async def tunnel(proxy: Proxy, host: str, port: int, context: ssl.SSLContext, name: str) -> Connection:
    """Return a connection to a host through the proxy.

    Raises OSError, ssl.SSLError, Broken, Unreachable.
    """
    if not _ONE_WORD(host):  # a line break would begin another header, or another request
        raise Unreachable(f"dial tcp: lookup {host}: no such host")
    loop = asyncio.get_running_loop()
    raw, handshake = await loop.create_connection(_Handshake, proxy.host, proxy.port)
    authority = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    login = f"Proxy-Authorization: Basic {proxy.credentials}\r\n" if proxy.credentials else ""
    try:
        raw.write(f"CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n{login}\r\n".encode("ascii"))
        status = (await handshake.done).split(b"\r\n", 1)[0].split(b" ", 2)
        if len(status) < 2 or status[1] != b"200":
            raise Broken(status[2].decode("latin-1") if len(status) == 3 else "proxyconnect tcp: malformed answer")
        connection = Connection()
        secure = await loop.start_tls(raw, connection, context, server_hostname=name)
    except BaseException:
        raw.abort()
        raise
    connection.connection_made(cast(asyncio.Transport, secure))
    return connection
