"""The HTTP server: aiohttp's low-level server with this server's handlers, and its shutdown.

See LIM-003.
"""

import asyncio
import logging
import ssl
from typing import TYPE_CHECKING, Any, cast

from aiohttp import web
from msgspec import Struct

from apiext.audit.auditor import Auditor
from apiext.auth.authentication import Authenticator
from apiext.auth.authorization import Authorizer, always_allow
from apiext.auth.serving import ServingCertificate
from apiext.config import Listening, RequestConfig
from apiext.http import browsers, limits, responses
from apiext.http.access_log import AccessLog, logging_to
from apiext.http.connection import ApiHandler
from apiext.http.connection_limits import Descriptors, Refusal, Unauthenticated, raise_limit
from apiext.http.filters import Filter, Gate, Step, compose, filters
from apiext.http.health import Health, version_document
from apiext.http.memory import Memory
from apiext.http.metrics_expiry import MetricsExpiry
from apiext.http.openid import Issuer
from apiext.http.operations import Operations
from apiext.http.protocol import Listener, has_fast_parser
from apiext.http.resources import Resources
from apiext.http.routes import Routes
from apiext.http.service import Service
from apiext.http.tls import CertificateReload
from apiext.meta import limits as meta_limits
from apiext.system.sockets import everywhere, is_unspecified
from apiext.telemetry import Telemetry

if TYPE_CHECKING:
    from apiext.auth.proxies import Proxies

log = logging.getLogger(__name__)


class Settings(Struct, frozen=True):
    """Settings of the HTTP server. ``tls`` is None for plain HTTP."""

    listening: Listening = Listening(port=0)
    requests: RequestConfig = RequestConfig()
    tls: ssl.SSLContext | None = None
    certificate: ServingCertificate | None = None  # the certificate of ``tls``, if it may change
    version: str = "v1.35.0"
    anonymous: bool = False
    workers: int = 1  # processes behind one port; each gets an equal part of the memory budget
    access_log: AccessLog | None = None  # writes a line for each request
    proxies: "Proxies | None" = None
    issuer: Issuer | None = None


def _chain(settings: Settings, *, audited: bool, authorizes: bool) -> list[Filter | Step]:
    """Return the filters of all requests, the outermost first."""
    chain = filters(audited=audited, authorizes=authorizes)
    if settings.access_log is not None:
        chain.insert(1, logging_to(settings.access_log))
    add_headers = browsers.header_filter(settings.listening.headers, tls=settings.tls is not None)
    if add_headers is not None:
        chain.insert(1, add_headers)  # outside the filters that reject requests, so that pages can read their errors
    return chain


class HttpServer:
    """Serves the API over HTTP/1.1.

    ``start`` listens, and sets ``url`` and ``port``. ``begin_shutdown`` makes /readyz fail; ``wait_closed`` shuts down
    in order.
    """

    def __init__(
        self,
        operations: Operations,
        authenticator: Authenticator,
        authorizer: Authorizer,
        health: Health,
        settings: Settings,
        telemetry: Telemetry,
        auditor: Auditor | None = None,
    ) -> None:
        self.settings = settings
        self.health = health
        self.telemetry = telemetry
        self.port = 0
        self._gate = Gate(
            authenticator,
            authorizer,
            telemetry,
            settings.anonymous,
            settings.requests,
            auditor,
            settings.proxies,
            None
            if authenticator.uses_credentials
            else browsers.cross_origin_check(settings.listening.headers.cors_origins),
        )
        clock, compressor, memory = responses.SecondClock(), responses.Compressor(), Memory(workers=settings.workers)
        resources = Resources(operations, telemetry, clock, compressor, settings.requests.min_watch_timeout, memory)
        routes = Routes(resources, health, telemetry, version_document(settings.version), settings.issuer)
        chain = _chain(settings, audited=auditor is not None, authorizes=authorizer is not always_allow)
        self.service = Service(
            compose(self._gate, chain, routes.answer),
            memory,
            Unauthenticated(memory.given),
            clock,
            compressor,
            settings.proxies,
        )
        self._descriptors = Descriptors(raise_limit(), telemetry.refused_connections.slot())
        self._publisher = routes.publisher
        self._expiry = MetricsExpiry(operations.catalog, (self._gate.drop_deleted, routes.publisher.drop_deleted))
        self._operations = operations
        self._listener: Listener | None = None
        self._server: asyncio.Server | None = None
        self._reload: CertificateReload | None = None
        telemetry.on_scrape.append(self._gauges)

    @property
    def url(self) -> str:
        """The URL of the server for clients."""
        address = self.settings.listening.bind_address
        host = "127.0.0.1" if is_unspecified(address) else address
        shown = f"[{host}]" if ":" in host else host
        return f"{'https' if self.settings.tls else 'http'}://{shown}:{self.port}"

    @property
    def connections(self) -> list[ApiHandler]:
        """The open connections."""
        return [cast(ApiHandler, handler) for handler in self._listener.connections] if self._listener else []

    def _connection(
        self, listener: web.Server, loop: asyncio.AbstractEventLoop, settings: dict[str, Any]
    ) -> asyncio.BaseProtocol:
        """Return the protocol of a new connection.

        If no file descriptor is left for a connection, the protocol refuses all requests.
        """
        return ApiHandler(listener, self.service, loop=loop, **settings) if self._descriptors.take() else Refusal()

    async def start(self) -> None:
        """Listen on the address.

        Raise OSError for an unusable address, and RuntimeError if aiohttp has no C parser.
        """
        if not has_fast_parser():
            raise RuntimeError(
                "aiohttp runs without its C parser, but the Python parser is slow, and unsafe against smuggling"
            )
        loop = asyncio.get_running_loop()
        self._listener = Listener(
            self._connection,
            keepalive_timeout=limits.KEEPALIVE,
            access_log=None,
            auto_decompress=False,
            read_bufsize=limits.BODY_BUFFER,
            max_line_size=meta_limits.MAX_LINE,
            max_headers=limits.MAX_HEADERS,
            max_field_size=meta_limits.MAX_LINE,
        )
        settings, address, port = self.settings, self.settings.listening.bind_address, self.settings.listening.port
        shared = settings.workers > 1
        address_options: dict[str, Any] = {"host": address, "port": port, "reuse_port": shared or None}
        if is_unspecified(address):
            address_options = {"sock": everywhere(port, reuse_port=shared)}
        self._server = await loop.create_server(
            self._listener,
            **address_options,
            ssl=settings.tls,
            backlog=limits.BACKLOG,
            ssl_handshake_timeout=limits.HANDSHAKE if settings.tls else None,
        )
        self.port = self._server.sockets[0].getsockname()[1]
        if settings.tls is not None and settings.certificate is not None:
            self._reload = CertificateReload(settings.tls, settings.certificate)
            self._reload.start()
        self._expiry.start()

    def begin_shutdown(self) -> None:
        """Make /readyz fail; the server still handles requests."""
        self.health.shutting_down = True

    async def wait_closed(self, drain: float = limits.SHUTDOWN_DRAIN) -> None:
        """Shut down in order: stop accepting, finish requests, end watches, close.

        Each step has a time limit. Before the first step, /readyz fails for --shutdown-delay-duration. Requests that
        still run after ``drain`` seconds of the second step are cancelled.
        """
        self.begin_shutdown()
        if self.settings.listening.shutdown_delay:
            await asyncio.sleep(self.settings.listening.shutdown_delay)
        server, listener = self._server, self._listener
        if server is None or listener is None:
            return
        await asyncio.sleep(limits.SHUTDOWN_ACCEPT)
        server.close()
        self._expiry.stop()
        if self._reload is not None:
            self._reload.stop()
        new = [connection for connection in self.connections if connection.is_new]
        for connection in self.connections:
            if connection not in new:
                connection.retire()
        if new:  # an accepted connection may have sent a request that is not read yet
            await asyncio.sleep(limits.SHUTDOWN_FIRST)
            for connection in self.connections:
                connection.retire()
        await self._drained(drain)
        for connection in self.connections:
            connection.end_watch()
        await listener.shutdown(limits.SHUTDOWN_CLOSE)  # closing flushes the written bytes
        try:
            async with asyncio.timeout(limits.SHUTDOWN_CLOSE):
                await server.wait_closed()
        except TimeoutError:
            log.warning("some clients did not read their complete responses")
        if self.settings.access_log is not None:
            await self.settings.access_log.stop()
        self.service.compressor.close()
        self._publisher.builder.close()
        self._server = self._listener = None

    async def _drained(self, seconds: float) -> None:
        """Wait until no request is in flight.

        After ``seconds``, cancel the remaining requests: their clients get a 504.
        """
        in_flight = self.service.in_flight
        if await in_flight.ended(seconds):
            return
        log.warning("%d requests were still running at the end of the shutdown time", in_flight.count)
        self._gate.deadlines.end()
        await in_flight.ended(limits.SHUTDOWN_CANCELLED)

    def _gauges(self, telemetry: Telemetry) -> None:
        telemetry.inflight.slot("readOnly").value = self._gate.running[False]
        telemetry.inflight.slot("mutating").value = self._gate.running[True]
        telemetry.resource_objects.clear()
        for found, count in self._operations.counts():
            telemetry.resource_objects.slot(found.group, found.resource).value = count
