"""DNS lookups in a separate thread pool.

Concurrent calls for the same name share one lookup. The event loop's default pool has few threads, and the lookup of an
unknown name blocks a thread for many seconds. Other webhooks, and reconnects to etcd, must not wait for that lookup.
"""

import asyncio
import contextlib
import socket
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address

from apiext.webhooks import limits
from apiext.webhooks.errors import Unreachable

Network = IPv4Network | IPv6Network


class Names:
    """Looks up the addresses of hosts, and rejects addresses in the ``denied`` networks."""

    __slots__ = ("_asked", "_denied", "_threads")

    def __init__(self, denied: Sequence[Network] = ()) -> None:
        self._denied = denied
        self._asked: dict[str, asyncio.Future[list[str]]] = {}  # host → its lookup in progress
        self._threads = ThreadPoolExecutor(limits.WEBHOOK_LOOKUPS, "lookup")

    async def find(self, host: str, *, given: bool = False) -> list[str]:
        """Return the addresses of a host in the order to try.

        Raise Unreachable if the host has no address, or only denied addresses. ``given`` is true for a host that the
        operator has configured; then no network is denied.
        """
        try:
            found = [str(ip_address(host))]
        except ValueError:
            found = await self._looked_up(host)
        return found if given else self._allowed(host, found)

    async def _looked_up(self, host: str) -> list[str]:
        if not host.isascii():  # hosts.in_dns returns such a host only if it has no DNS name
            raise Unreachable(f"dial tcp: lookup {host}: no such host")
        asked = self._asked.get(host)
        if asked is None:
            asked = asyncio.get_running_loop().run_in_executor(self._threads, _addresses, host)
            self._asked[host] = asked
            asked.add_done_callback(lambda done: self._over(host, done))
        try:
            return await asyncio.shield(asked)
        except (socket.gaierror, UnicodeError) as error:
            raise Unreachable(f"dial tcp: lookup {host}: no such host") from error

    def check(self, host: str) -> None:
        """Raise Unreachable for a host that is a denied address.

        ``find`` checks host names after their lookup.
        """
        with contextlib.suppress(ValueError):
            self._allowed(host, [str(ip_address(host))])

    def _allowed(self, host: str, addresses: list[str]) -> list[str]:
        found = [one for one in addresses if not self._is_denied(one)] if self._denied else addresses
        if not found:
            raise Unreachable(f"dial tcp: lookup {host}: {addresses[0]} is in a network of --webhook-deny-cidrs")
        return found

    def _is_denied(self, address: str) -> bool:
        found = ip_address(address)
        if found.is_unspecified:  # a connection to 0.0.0.0 or :: reaches this machine
            found = ip_address("127.0.0.1" if found.version == 4 else "::1")
        inner = found.ipv4_mapped if isinstance(found, IPv6Address) else None
        return any(one in network for one in (found, *([inner] if inner else [])) for network in self._denied)

    def close(self) -> None:
        """Stop lookups, without waiting for those in flight."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _over(self, host: str, done: asyncio.Future[list[str]]) -> None:
        del self._asked[host]
        if not done.cancelled():
            done.exception()  # marks the exception as retrieved, in case all callers were cancelled


def _addresses(host: str) -> list[str]:
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))
