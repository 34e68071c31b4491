"""The interface of a connection to one etcd endpoint: unary calls and streams."""

import asyncio
import ssl
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol
from urllib.parse import urlsplit

from msgspec import Struct

from apiext.etcd.errors import EtcdError
from apiext.system.certificates import load_pair, relax_verification


class Stream(Protocol):
    """One open bidirectional stream."""

    def send(self, message: bytes) -> None:
        """Queue a message; do nothing if the stream has ended."""

    def cancel(self) -> None:
        """End the stream without a call of its ``on_end``."""


class Transport(Protocol):
    """One connection. Call its methods only on the event loop that opened it."""

    live: bool
    """True if the connection accepts new calls."""
    last_byte_at: float
    """Time of the event loop at which the last byte was received."""
    lost: asyncio.Future[None]
    """A future that is done soon after ``live`` has become false."""
    closed: asyncio.Future[None]
    """A future that is done when the connection is closed."""

    @property
    def last_response_at(self) -> float:
        """Time of the event loop at which the last response to a unary call was complete."""

    def unary(self, path: str, message: bytes, timeout: float) -> asyncio.Future[bytes]:
        """Return the future of the response; its exception is an EtcdError.

        Cancelling the future ends the call.
        """

    def stream(self, path: str, on_message: Callable[[bytes], None], on_end: Callable[[EtcdError], None]) -> Stream:
        """Open a stream; ``on_end`` is called once when the server or the connection ends it.

        Raise EtcdError if the connection accepts no more streams.
        """

    def set_token(self, token: str) -> None:
        """Send this auth token with every later call."""

    def drain(self) -> None:
        """Accept no new calls, end streams, wait for unary calls, then close."""

    def abort(self) -> None:
        """Close the connection at once. Open calls fail."""


class TLS(Struct, frozen=True):
    """Paths of PEM files, and the expected name in the server's certificate.

    Each new connection reads the files again, so that it uses rotated certificates. If ``server_name`` is empty, the
    certificate must have the host of the endpoint.
    """

    ca: str = ""
    cert: str = ""
    key: str = ""
    server_name: str = ""

    def context(self) -> ssl.SSLContext:
        """Return a new client context that offers HTTP/2."""
        context = relax_verification(ssl.create_default_context(cafile=self.ca or None))
        if self.cert:
            load_pair(context, self.cert, self.key or None)
        context.set_alpn_protocols(["h2"])
        return context


class Endpoint(Struct, frozen=True):
    """The address of one member of the etcd cluster."""

    scheme: str  # http, https, unix
    host: str = ""
    port: int = 0
    path: str = ""

    @property
    def authority(self) -> str:
        """The header :authority of requests."""
        if self.scheme == "unix":
            return "localhost"
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    def __str__(self) -> str:
        return f"unix://{self.path}" if self.scheme == "unix" else f"{self.scheme}://{self.authority}"


def parse_endpoint(text: str) -> Endpoint:
    """Parse ``http://host:port``, ``https://host:port``, ``unix:///path`` or ``host:port``.

    Raise ValueError for another scheme, an invalid port, or a text without a host or path.
    """
    if text.startswith("unix:"):
        path = text.removeprefix("unix:").removeprefix("//")
        if not path:
            raise ValueError(f"etcd endpoint {text!r} has no path")
        return Endpoint("unix", path=path)
    url = urlsplit(text if "://" in text else f"http://{text}")
    if url.scheme not in {"http", "https"} or not url.hostname:
        raise ValueError(f"etcd endpoint {text!r} is neither http://host:port, https://host:port nor unix:///path")
    return Endpoint(url.scheme, url.hostname, url.port or 2379)


Spawn = Callable[[Coroutine[Any, Any, None]], object]
Dial = Callable[[Endpoint, TLS, Spawn], Awaitable[Transport]]
"""Opens a connection, with a timeout. Raises EtcdError with ``sent=False``, since no request has been sent."""
