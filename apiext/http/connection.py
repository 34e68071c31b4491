"""One HTTP/1.1 connection: its client, request bodies, and responses.

Responses are written directly to the transport.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Iterable, Iterator, Sequence
from time import monotonic, time
from typing import TYPE_CHECKING, Any, cast

from aiohttp import web
from aiohttp.http import HttpVersion11, RawRequestMessage
from aiohttp.streams import EMPTY_PAYLOAD, StreamReader

from apiext import limits as server_limits
from apiext.auth.authentication import REFUSED_HOLDER, Holder, user_of_certificate, validity, verified_chain
from apiext.auth.user import ANONYMOUS
from apiext.documents import limits as documents_limits
from apiext.http import limits, refusals, responses
from apiext.http.exchange import Exchange, Head, Reply, Sender, StreamReply
from apiext.http.filters import audit_id
from apiext.http.incoming import Incoming
from apiext.http.protocol import Request, take_received
from apiext.http.service import Service
from apiext.http.sinks import GzipSink, UnchunkedSink, WatchSink
from apiext.http.websocket import WebSocketSink
from apiext.meta import status
from apiext.meta.status import StatusError
from apiext.scheduling.loop_budget import LoopBudget
from apiext.storage.heap import HEAP
from apiext.system.sockets import log_address, set_option

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from apiext.auth.proxies import Proxies


log = logging.getLogger(__name__)

_JOIN_BELOW = 64 * 1024  # a body with fewer bytes is written in one piece with its head
_SLOW_BODY = "Timeout: the body of the request did not arrive in time"


class _Certificate:
    """The client certificate of a connection: its holder, and when it is valid.

    ``_valid`` is (first Unix time, last Unix time).
    """

    __slots__ = ("_holder", "_valid")

    def __init__(self, connection: ssl.SSLObject, chain: Sequence[bytes], proxies: "Proxies | None") -> None:
        self._valid = 0.0, 0.0
        self._holder = REFUSED_HOLDER
        try:
            self._holder = proxies.holder(connection) if proxies else Holder(user_of_certificate(chain[0]), False)
            self._valid = validity(chain)
        except ValueError as error:  # OpenSSL can read the certificate, but the package ``cryptography`` cannot
            log.warning("the certificate of a client cannot be read, its requests are refused: %s", error)

    def holder(self) -> Holder:
        """Return the holder of the client certificate.

        While the certificate is not valid, return REFUSED_HOLDER, whose requests are rejected.
        """
        begin, end = self._valid  # checked for each request: a timer would not follow the wall clock
        return self._holder if begin <= time() <= end else REFUSED_HOLDER


class ApiHandler(Incoming):
    """A connection that handles requests one by one, with limits for bodies and responses."""

    is_allowed_page = False
    __slots__ = ("_certificate", "_secure", "_sender", "_sent", "_service", "_sink", "_sized", "holder", "waiting")

    def __init__(self, manager: web.Server, service: Service, *, loop: "AbstractEventLoop", **settings: Any) -> None:
        super().__init__(manager, service.unauthenticated, service.large_heads, loop=loop, **settings)
        self._service = service
        self._sink: WatchSink | None = None
        self._sized = False  # true if the size of the kernel's send buffer is set
        self._secure = False
        self._sender: Sender | None = None
        self._sent: object = None  # the headers from which _sender was created; None if they are large
        self._certificate: _Certificate | None = None
        self.holder: Holder | None = None
        self.waiting: asyncio.Future[None] | None = None

    # --- life of the connection ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Set TCP options, read the client certificate, and start the timeout of the first head."""
        super().connection_made(transport)
        self._service.unauthenticated.add(self)
        found = cast("ssl.SSLObject | None", transport.get_extra_info("ssl_object"))
        self._secure = found is not None
        chain = verified_chain(found) if found is not None else ()
        if found is not None and chain:
            self._certificate = _Certificate(found, chain, self._service.proxies)
        # With this option, Linux closes the connection if the client does not acknowledge sent bytes for this time, or
        # acknowledges them but reads nothing. So the time must be minutes.
        set_option(transport, socket.IPPROTO_TCP, "TCP_USER_TIMEOUT", round(limits.UNREAD_TIMEOUT * 1000))
        self.close_within(limits.HEAD_TIMEOUT)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Release the resources of this connection.

        If many connections are lost at the same time, this happens in later iterations of the event loop.
        """
        self._service.lost_connections.put(lambda: self._lost(exc))

    def _lost(self, exc: BaseException | None) -> None:
        self._service.unauthenticated.remove(self)
        self._service.unauthenticated.remove_head(self)
        sink = self._sink
        if sink is not None:
            self._sink = None
            sink.lost()
        if self.waiting is not None and not self.waiting.done():
            self.waiting.set_exception(ConnectionResetError("the client is gone"))
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Pause the deliveries of the watch: the transport's buffer is full."""
        super().pause_writing()
        if self._sink is not None:
            self._sink.pause()

    def resume_writing(self) -> None:
        """Resume the deliveries of the watch: the transport has drained."""
        super().resume_writing()
        if self._sink is not None:
            self._sink.resume()

    def end_watch(self) -> None:
        """End the watch on this connection, so that its response is complete."""
        if self._sink is not None:
            self._sink.end(b"")

    # --- answers ---

    async def answer(self, request: Request) -> bool:
        """Handle a request until its response is written, or its watch has ended.

        Return whether the connection stays open.
        """
        service = self._service
        message = request.message
        if message.version.major != 1:  # the parser accepts 0.9 and 2.0, too
            self.refuse(400, None)
            return False
        if message.path == "*" and message.method == "OPTIONS":  # upstream: Go's server answers it before any handler
            return self._send(audit_id(""), Reply(200, ""), 0)
        if self._certificate is not None:
            self.holder = self._certificate.holder()
        exchange = Exchange(self._read_head(message), self, self.loop.time())
        service.in_flight.begin()
        own = 0  # bytes of the response that no other response shares
        try:
            reply = await service.answer(exchange)
            if isinstance(reply, Reply):
                size = reply.size
                if size > limits.GZIP_FROM:
                    await service.compressor.apply(exchange, reply)
                    size = reply.size
                if exchange.promised or size > limits.ANSWER_UNWEIGHED:
                    reply = self._weighed(exchange, reply, size)
                    size = reply.size
                own = 0 if reply.shared else size
                if self._secure and size > limits.TLS_WRITE:
                    return await self._send_in_pieces(exchange.audit_id, reply, size)
                stays_open = self._send(exchange.audit_id, reply, size)
                if self.writing_paused:  # do not handle pipelined requests of a client that does not read
                    await self.drained()
                return stays_open
        finally:
            if request.payload is not EMPTY_PAYLOAD and request.payload.is_eof():
                take_received(request.payload)  # free the body, even if no handler has read it
            if exchange.user is not ANONYMOUS:
                service.unauthenticated.remove(self)
            if self._large:
                self.release_head(request)
            if exchange.promised:
                service.memory.hold(exchange, 0)
            # the client is gone; the unread response is freed when this method and its callers return
            if own and self.transport is None:
                self.loop.call_soon(HEAP.freed, own)
            service.in_flight.end()
        return await self._follow(reply, request)

    def _weighed(self, exchange: Exchange, reply: Reply, size: int) -> Reply:
        """Return the response, or an error if a response to a GET exceeds its user's memory budget.

        Responses to other methods, and responses with shared bytes, are returned in any case.
        """
        memory = self._service.memory
        # The body of the request has been released, so at most the size of the response stays reserved.
        memory.hold(exchange, min(size, exchange.promised))
        if reply.shared or exchange.method != "GET":
            return reply
        try:
            memory.hold(exchange, size)
        except StatusError as error:
            return refusals.refusal(exchange, error)
        return reply

    def _read_head(self, message: Any) -> Head:
        sender = self._sender
        if sender is None or message.raw_headers != self._sent:
            sender = self._sender = Sender(message.headers)
            self._sent = None if self.is_large(message) else message.raw_headers
        return Head(message.method, message.path, message.headers, sender)

    async def _follow(self, reply: StreamReply, request: Request) -> bool:
        """Wait for the end of a watch; return whether the connection stays open."""
        try:
            await reply.stream.done
        finally:
            self._sink = None
        return reply.stream.clean and not (self.is_last or request.message.should_close)

    async def _send_in_pieces(self, audit: str, reply: Reply, size: int) -> bool:
        """Write a large response over TLS in pieces.

        TLS encrypts all bytes of a write together, and buffers them.
        """
        parts, reply.parts = reply.parts, ()
        stays_open = self._send(audit, reply, size)
        request, transport = self.request, self.transport
        if transport is None or request is None or request.message.method == "HEAD":
            return stays_open
        loop_budget = LoopBudget()
        for piece in _pieces(parts):
            transport.writelines(piece)
            if self.writing_paused:
                await self.drained()
            await loop_budget.pause()
            if self.transport is None or self.transport.is_closing():
                return False
        return stays_open

    def _send(self, audit: str, reply: Reply, size: int) -> bool:
        """Write a response; return whether the connection stays open."""
        request, transport = self.request, self.transport
        if request is None or transport is None or transport.is_closing():
            raise ConnectionResetError("the client is gone")
        message = request.message
        close = self.is_last or self._ends(request)
        date = self._service.clock.line()
        head = responses.head(reply, date, audit, close=close, length=size, version=message.version)
        parts = () if message.method == "HEAD" else reply.parts
        if size < _JOIN_BELOW or not parts:
            transport.write(b"".join((head, *parts)))
        else:
            if not self._sized:
                # by default the kernel buffers megabytes: copying them blocks all other requests
                set_option(transport, socket.SOL_SOCKET, "SO_SNDBUF", limits.SEND_BUFFER)
                self._sized = True
            transport.writelines([head, *parts])
        return not close

    def _ends(self, request: Request) -> bool:
        """Report whether the connection closes after the response to this request."""
        message = request.message
        # the parser drops the bytes after a request for an unknown upgrade
        lost = message.upgrade and not self.is_upgraded and not self.is_alone
        # if the version is lower than 1.1, a proxy before this server may compute another end of a chunked body
        faulty = message.chunked and message.version < HttpVersion11
        ends = lost or faulty or self.is_large(message)
        return self._leave_body(request) or message.should_close or ends

    def _leave_body(self, request: Request) -> bool:
        """Report whether the body stays unread.

        The client of such a body waits for a response 100 that was not sent.
        """
        if request.continued or request.payload.is_eof() or not _expects_continue(request.message):
            return False
        request.payload.feed_eof()
        return True

    def declared_size(self) -> int:
        """Return the declared size of the body, 0 if all of it has arrived.

        Return MAX_BODY if the head declares no size.
        """
        request = self.request
        assert request is not None
        if request.payload.is_eof():
            return 0
        return int(request.message.headers.get("Content-Length", "") or documents_limits.MAX_BODY)

    async def read_body(self, limit: int) -> bytes:
        """Return the body.

        Raise a 413 over ``limit`` bytes, a 408 if it arrives too late, a 400 if it is malformed.
        """
        request = self.request
        assert request is not None
        payload = request.payload
        if payload is EMPTY_PAYLOAD:
            return b""
        if payload.is_eof() and payload.exception() is None:  # no need to wait, nor to resume reading
            found = take_received(payload)
            return self._bounded(found, limit, len(found))
        length = int(request.message.headers.get("Content-Length", "") or 0)
        self._bounded(b"", limit, length)
        if not payload.is_eof() and _expects_continue(request.message) and self.transport is not None:
            request.continued = True
            self.transport.write(responses.CONTINUE)
        try:
            async with asyncio.timeout(limits.BODY_TIMEOUT):
                return self._bounded(await _read(payload, limit), limit, length)
        except TimeoutError as error:
            raise StatusError(408, "Timeout", _SLOW_BODY) from error
        except web.RequestPayloadError as error:
            raise status.bad_request("the body of the request could not be read") from error

    def _bounded(self, data: bytes, limit: int, length: int) -> bytes:
        """Return a body; raise a 413 over the limit.

        As Go, close the connection after this error if the size of the body is unknown, or if it is more than
        BODY_SKIPPED bytes over the limit. ``length`` is the declared size of the body, 0 if it is unknown.
        """
        if len(data) <= limit >= length:
            return data
        self.is_last = self.is_last or not 0 < length <= limit + limits.BODY_SKIPPED
        raise status.too_large(limit)

    def origin(self) -> tuple[str, str]:
        """Return the request target as it was sent, and the address of the client.

        The address is empty for a Unix socket.
        """
        request, transport = self.request, self.transport
        peer = transport.get_extra_info("peername") if transport is not None else None
        return request.message.path if request is not None else "", log_address(peer[0]) if isinstance(
            peer, tuple
        ) else ""

    def open_stream(
        self, head: bytes, columns: bytes, kind: type[WatchSink] = WatchSink, unread: int = limits.WATCH_HIGH_WATER
    ) -> WatchSink:
        """Return the sink of a watch on this connection.

        The connection gets small buffers, so that the server notices a slow client early. ``unread`` is the number of
        unread bytes that pauses the watch. Raise ConnectionResetError if the client is gone.
        """
        transport = self.transport
        if transport is None:
            raise ConnectionResetError("the client is gone")
        set_option(transport, socket.SOL_SOCKET, "SO_SNDBUF", min(limits.WATCH_SEND_BUFFER, unread))
        transport.set_write_buffer_limits(high=unread)
        if kind in (WatchSink, GzipSink) and self.request is not None and self.request.message.version < HttpVersion11:
            kind = UnchunkedSink
        sink = self._sink = kind(transport, head, columns, self.loop.create_future())
        if isinstance(sink, WebSocketSink):
            sink.receive = lambda receiver: self.set_parser(cast(Any, receiver))
        return sink

    # --- failures outside of handlers ---

    def refuse(self, code: int, error: BaseException | None) -> None:
        """Write the error for a request that no handler receives, such as one with an invalid head.

        Raise ConnectionResetError if the client is gone. The caller closes the connection.
        """
        transport = self.transport
        if transport is None or transport.is_closing() or isinstance(error, ConnectionError):
            raise ConnectionResetError("the client is gone")
        if code >= 500:
            log.error("connection failed", exc_info=error)
        found = refusals.unparsed(code, error)
        raw = responses.encoded(found.document(), "application/json")
        reply = Reply(found.code, parts=(raw,))
        head = responses.head(reply, self._service.clock.line(), audit_id(""), close=True, length=len(raw))
        transport.write(head + raw)

    def log_exception(self, *args: Any, **kw: Any) -> None:
        """Log a failure, unless the client has closed the connection."""
        if not isinstance(kw.get("exc_info"), ConnectionError):
            log.error(*args, **kw)


def _pieces(parts: Iterable[bytes]) -> Iterator[list[bytes | memoryview]]:
    """Yield the parts in pieces of about limits.TLS_WRITE bytes."""
    piece: list[bytes | memoryview] = []
    size = 0
    for part in parts:
        for at in range(0, len(part), limits.TLS_WRITE):
            some = memoryview(part)[at : at + limits.TLS_WRITE]
            piece.append(some)
            size += len(some)
            if size >= limits.TLS_WRITE:
                yield piece
                piece, size = [], 0
    if piece:
        yield piece


def _expects_continue(message: RawRequestMessage) -> bool:
    return message.version >= HttpVersion11 and message.headers.get("Expect", "").lower() == "100-continue"


async def _read(payload: StreamReader, limit: int) -> bytes:
    found = bytearray()
    began = monotonic()
    while piece := await payload.readany():
        found += piece
        if len(found) > limit:
            break
        # small chunks may already be buffered: then readany never yields to the event loop
        if monotonic() - began > server_limits.LOOP_BUDGET / 4:
            await asyncio.sleep(0)
            began = monotonic()
    return bytes(found)
