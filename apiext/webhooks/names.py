"""Addresses of hosts: a name is looked up once for all who wait, in threads of its own.

The loop has few threads for that, and a name that nobody resolves holds one for many seconds: other webhooks, and the
way back to etcd, must not wait behind it.
"""

import asyncio
import socket
from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_address

from apiext import limits
from apiext.webhooks.errors import Unreachable


class Names:
    """Looks hosts up."""

    __slots__ = ("_asked", "_threads")

    def __init__(self) -> None:
        self._asked: dict[str, asyncio.Future[list[str]]] = {}
        self._threads = ThreadPoolExecutor(limits.WEBHOOK_LOOKUPS, "lookup")

    async def find(self, host: str) -> list[str]:
        """Return the addresses of a host in the order to try; raises Unreachable."""
        try:
            return [str(ip_address(host))]
        except ValueError:
            pass
        if not host.isascii():  # it has no name in DNS, whatever a resolver would make of it
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

    def close(self) -> None:
        """Look nothing up any more; nobody waits for what is asked still."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _over(self, host: str, done: asyncio.Future[list[str]]) -> None:
        del self._asked[host]
        if not done.cancelled():
            done.exception()  # looked at, though everybody who asked may be gone


def _addresses(host: str) -> list[str]:
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))
