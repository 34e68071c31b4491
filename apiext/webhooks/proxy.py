"""The way out through a proxy: which targets take it by the environment, and a tunnel to them (VER-010)."""

import asyncio
import ipaddress
import re
import ssl
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast
from urllib.parse import unquote, urlsplit

from apiext import limits
from apiext.webhooks.errors import Broken, Unreachable
from apiext.webhooks.wire import Connection

_PROXIES = ("HTTPS_PROXY", "https_proxy")
_EXCEPTIONS = ("NO_PROXY", "no_proxy")
_ONE_WORD = re.compile(r"[!-~]+").fullmatch


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy that makes tunnels. ``credentials`` are user and password as it is told them, empty for none."""

    host: str
    port: int
    credentials: str = ""
    exceptions: str = ""

    def serves(self, host: str) -> bool:
        """Tell whether a host is reached through the proxy: never this machine, nor what NO_PROXY names."""
        address = _address(host)
        if host.lower() == "localhost" or (address is not None and address.is_loopback):
            return False
        if any(_names(text.strip().lower(), host.lower()) for text in self.exceptions.split(",")):
            return False
        return address is None or not any(address in network for network in _networks(self.exceptions))


def proxy_of(environment: Mapping[str, str]) -> Proxy | None:
    """Return the proxy for https that the environment names, as Go reads it; None when there is none."""
    text = next((environment[name] for name in _PROXIES if environment.get(name)), "")
    if not text:
        return None
    parts = urlsplit(text if "://" in text else f"http://{text}")
    if parts.scheme != "http" or not parts.hostname:
        return None  # tunnels through TLS and SOCKS are not spoken
    login = f"{unquote(parts.username or '')}:{unquote(parts.password or '')}" if parts.username else ""
    exceptions = next((environment[name] for name in _EXCEPTIONS if environment.get(name)), "")
    return Proxy(parts.hostname, parts.port or 80, b64encode(login.encode()).decode() if login else "", exceptions)


def _names(exception: str, host: str) -> bool:
    """Tell whether an entry of NO_PROXY names a host: itself and what is below it, or with a dot only that."""
    if not exception or exception == "*":
        return bool(exception)
    name = exception.removeprefix("*")
    return host == name or host.endswith(name if name.startswith(".") else f".{name}")


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _networks(exceptions: str) -> list[ipaddress.IPv4Network | ipaddress.IPv6Network]:
    found = []
    for text in exceptions.split(","):
        try:
            found.append(ipaddress.ip_network(text.strip(), strict=False))
        except ValueError:
            continue  # a name
    return found


class _Handshake(asyncio.Protocol):
    """Waits for the head of a proxy's answer to CONNECT."""

    def __init__(self) -> None:
        self.head = b""
        self.done: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        self.head += data
        if self.done.done():
            return
        if b"\r\n\r\n" in self.head:
            self.done.set_result(self.head)
        elif len(self.head) > limits.WEBHOOK_HEAD:
            self.done.set_exception(Broken("proxyconnect tcp: the answer has no end"))

    def connection_lost(self, error: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(Broken("proxyconnect tcp: unexpected EOF"))


async def tunnel(proxy: Proxy, host: str, port: int, context: ssl.SSLContext, name: str) -> Connection:
    """Return a connection to a host through the proxy; raises OSError, ssl.SSLError, Broken, Unreachable."""
    if not _ONE_WORD(host):  # a line end would begin another header, or another request
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
