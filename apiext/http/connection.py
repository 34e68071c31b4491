"""One HTTP/1.1 connection: aiohttp's parser and keep-alive, our answers written straight to the transport.

The names with a leading underscore are aiohttp's; each has a contract test, and the versions allowed are pinned.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Iterable, Iterator, Sequence
from time import monotonic, time
from typing import TYPE_CHECKING, Any, Protocol, cast

from aiohttp import web
from aiohttp.http import HttpProcessingError, HttpVersion11, RawRequestMessage
from aiohttp.streams import EMPTY_PAYLOAD, StreamReader
from aiohttp.web_protocol import _ErrInfo

from apiext import limits as server_limits
from apiext.auth.authentication import Holder, user_of_certificate, validity, verified_chain
from apiext.auth.user import ANONYMOUS, REFUSED, User
from apiext.documents import limits as documents_limits
from apiext.http import limits, refusals, responses
from apiext.http.exchange import Exchange, Handler, Reply, StreamReply
from apiext.http.gate import audit_id
from apiext.http.heads import Head, Sender
from apiext.http.memory import Memory
from apiext.http.sinks import GzipSink, UnchunkedSink, WatchSink
from apiext.http.slices import Slices
from apiext.http.strangers import Strangers
from apiext.http.turns import Request, Turns
from apiext.http.websocket import WebSocketSink
from apiext.meta import status
from apiext.meta.status import StatusError
from apiext.sockets import set_option, shown
from apiext.storage.heap import HEAP
from apiext.turn import Turn

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop

    from apiext.auth.proxies import Proxies

# Bytes of the first piece of a head that are parsed before its end has arrived.
HEAD_PIECE = 4 * 1024

log = logging.getLogger(__name__)

HEAD_END = b"\r\n\r\n"
_MANY = 100  # fields of a head that is not looked at
_FIELD = 300  # bytes of memory that a field takes besides its text
_JOIN_BELOW = 64 * 1024  # bytes of a body that is sent in one piece with its head
_SLOW_BODY = "Timeout: the body of the request did not arrive in time"


class Service(Protocol):
    """What connections share."""

    answer: Handler
    clock: responses.SecondClock
    compressor: responses.Compressor
    proxies: "Proxies | None"
    farewells: Slices
    large_heads: Slices
    memory: Memory
    strangers: Strangers
    active: int

    def all_done(self) -> None:
        """Take note that the last request which counted in ``active`` has its answer."""


class ApiHandler(Turns):
    """A connection: parse requests, answer them one after another, and bound the heads and bodies that are kept."""

    is_allowed_page = False
    __slots__ = (
        "_alone",
        "_head",
        "_holder",
        "_large",
        "_pieces",
        "_postponed",
        "_request",
        "_secure",
        "_sender",
        "_sent",
        "_service",
        "_sink",
        "_sized",
        "_stale",
        "_tail",
        "_valid",
        "certificate_user",
        "is_proxy",
        "waiting",
    )

    def __init__(self, manager: web.Server, service: Service, *, loop: "AbstractEventLoop", **settings: Any) -> None:
        super().__init__(manager, loop=loop, **settings)
        self._service = service
        self._sink: WatchSink | None = None
        self._sized = False
        self._secure = False
        self._request: Request | None = None
        self._sender: Sender | None = None
        self._sent: object = None  # the headers that say so, unless they are large
        self._head = 0  # bytes of a head that is not complete
        self._pieces: list[bytes] = []  # of them those that are not parsed yet
        self._postponed = False  # whether these wait for a turn in which their whole head is parsed
        self._tail = b""  # the last three bytes that came, whoever takes them
        self._stale = False  # whether the parser may think that reading is paused when it is not
        self._large = False  # whether so much came that the last head may be large
        self._holder: Holder | None = None  # of the client certificate ...
        self._valid = (0.0, 0.0)  # ... and between which wall clock times it counts
        self._alone = False  # whether the last request had all that came with it
        self.waiting: asyncio.Future[None] | None = None
        self.certificate_user: User | None = None
        self.is_proxy = False

    # --- life of the connection ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Set TCP options, find the client certificate's user, and give the first head its time."""
        super().connection_made(transport)
        self._service.strangers.came(self)
        found = cast("ssl.SSLObject | None", transport.get_extra_info("ssl_object"))
        self._secure = found is not None
        chain = verified_chain(found) if found is not None else ()
        if found is not None and chain:
            self._believe(found, chain)
        # Linux ends those, too, whose peer acknowledges but takes nothing: a reader may pause for minutes
        set_option(transport, socket.IPPROTO_TCP, "TCP_USER_TIMEOUT", round(limits.UNREAD_TIMEOUT * 1000))
        if self._keepalive_handle is not None:
            self._keepalive_handle.cancel()
        self._next_keepalive_close_time = self._loop.time() + limits.HEAD_TIMEOUT
        self._keepalive_handle = self._loop.call_at(self._next_keepalive_close_time, self._process_keepalive)

    def _believe(self, connection: ssl.SSLObject, chain: Sequence[bytes]) -> None:
        """Take note of the user that a client certificate names, and of the times between which it counts."""
        proxies = self._service.proxies
        try:
            self._holder = proxies.holder(connection) if proxies else Holder(user_of_certificate(chain[0]), False)
            self._valid = validity(chain)
        except ValueError as error:  # OpenSSL can read it, Python's library cannot
            log.warning("the certificate of a client cannot be read, its requests are refused: %s", error)
            self._holder = Holder(REFUSED, False)
        self._check_validity(self._holder)

    def _check_validity(self, holder: Holder) -> None:
        """Refuse the user of a client certificate that is not valid by the wall clock, which timers do not follow."""
        begin, end = self._valid
        valid = begin <= time() <= end
        self.certificate_user, self.is_proxy = (holder.user, holder.is_proxy) if valid else (REFUSED, False)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Let go of all that this connection holds, or soon, as many others are lost with it."""
        self._service.farewells.put(lambda: self._lost(exc))

    def _lost(self, exc: BaseException | None) -> None:
        self._service.strangers.known(self)
        self._service.strangers.ended(self)
        sink = self._sink
        if sink is not None:
            self._sink = None
            sink.lost()
        if self.waiting is not None and not self.waiting.done():
            self.waiting.set_exception(ConnectionResetError("the client is gone"))
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """The transport has too much waiting: stop the watch's deliveries."""
        super().pause_writing()
        if self._sink is not None:
            self._sink.pause()

    def resume_writing(self) -> None:
        """The transport has drained."""
        super().resume_writing()
        if self._sink is not None:
            self._sink.resume()

    def resume_reading(self, resume_parser: bool = True) -> None:
        """Read on if reading was paused: aiohttp asks for it behind each piece of a body.

        A parser that was told to pause by the end of a body, as by its last chunk, stops in the next body instead.
        """
        self._stale = self._stale or (self._reading_paused and not resume_parser)
        if self._reading_paused or (self._stale and resume_parser):
            super().resume_reading(resume_parser)

    @property
    def is_new(self) -> bool:
        """Whether no request has come yet: the first may be on its way."""
        return not self._request_count

    @property
    def is_idle(self) -> bool:
        """Whether no request is under way."""
        return self._waiter is not None and not self._waiter.done() and not self._messages

    def cut_off(self) -> None:
        """Close the connection at once, whatever is not sent yet: one over TLS would else wait for its client."""
        transport = self.transport
        self.force_close()
        self._parser = None  # these hold the head; the rest goes soon
        self._pieces.clear()
        self._messages.clear()
        if transport is not None:
            transport.abort()

    def retire(self) -> None:
        """Close the connection now if it is idle, else after the answer that is under way."""
        if self.is_idle:
            self.force_close()
        else:
            self._close = True

    def end_watch(self) -> None:
        """End the watch on this connection properly."""
        if self._sink is not None:
            self._sink.end(b"")

    # --- from bytes to requests ---

    def data_received(self, data: bytes) -> None:
        """Parse bytes, and queue the requests that they complete; the parent does it while a request is under way."""
        waiter = self._waiter
        if (
            waiter is None
            or waiter.done()
            or self._messages
            or self._payload_parser is not None
            or self._upgraded
            or self._paused
            or self._close
            or self._force_close
            or self._parser is None
        ):
            self._take(data)
            return
        if self._postponed:
            self._pieces.append(data)
            return
        if self._head or len(data) > HEAD_PIECE:
            piece, data = data, self._gathered(data)
            if not data:
                return
            if data.find(HEAD_END) > limits.HEAD_KEPT:
                self._postpone(data, piece)
                return
        self._parse(data)

    def _postpone(self, data: bytes, piece: bytes) -> None:
        """Parse a large head in a turn of the loop in which no other one is parsed; ``piece`` came last of it."""
        self._service.strangers.began(self, piece, parsed=False)
        if self.transport is None:  # it was the largest
            return
        self._pieces.append(data)
        self._postponed = True
        self._pause_transport_reading()
        self._service.large_heads.put(self._parse_postponed)

    def _parse_postponed(self) -> None:
        self._postponed = False
        if self.transport is None or self._parser is None or self._force_close:
            return
        data = b"".join(self._pieces)
        self._pieces.clear()
        self._parse(data)
        if not self._reading_paused and not self._buffer_paused:
            self._resume_transport_reading()

    def _parse(self, data: bytes) -> None:
        """Parse what came while no request was under way, and answer it at once or queue it."""
        before = self._tail
        self._keep_tail(data)
        assert self._parser is not None
        try:
            messages, upgraded, tail = self._parser.feed_data(data)
        except HttpProcessingError as error:
            messages, upgraded, tail = [(_ErrInfo(400, error, error.message), EMPTY_PAYLOAD)], False, b""
        size = self._head + len(data)
        begun = _begun(before + data, 0, messages) if messages and len(data) > HEAD_PIECE else 0
        self._large = size > limits.HEAD_KEPT
        if self._head or self._large or not messages or begun:
            large = self._large and self._head + data.find(HEAD_END) > limits.HEAD_KEPT
            self._unfinished(data, begun, whole=bool(messages) and not large)
            if self.transport is None:  # it was the largest
                return
        self._head = begun if messages else size
        if self._head > limits.MAX_HEAD:
            messages = [_too_long()]
        self._alone = _is_one_head(data)
        self._queue(messages)
        self._upgraded = upgraded
        if upgraded and tail:
            self._message_tail = tail

    def _take(self, data: bytes) -> None:
        """Do as the parent does, but read the body that a request of a retired connection waits for.

        Who sends a head behind a request that is under way, or trailers behind its body, that have no end, is cut off.
        """
        if self._pieces:  # writing was paused between two of them
            data = self._joined(data)
        tail = self._tail
        self._keep_tail(data)
        message: Any = None
        body: StreamReader = EMPTY_PAYLOAD
        if self._messages:
            message, body = self._messages[-1]
        elif self._request is not None:
            message, body = self._request.message, self._request.payload
        self._alone = self.is_new and _is_one_head(data)
        before = self._request_count, body.total_bytes, body.is_eof()
        queued = len(self._messages)
        waited_for = self._close and not body.is_eof()
        self._close = self._close and not waited_for
        super().data_received(data)
        self._close = self._close or waited_for
        if self._messages and isinstance(self._messages[-1][0], _ErrInfo) and not body.is_eof():
            body.set_exception(web.RequestPayloadError("what follows is no body"))  # else it would be waited for
        whole = (self._request_count, body.total_bytes, body.is_eof()) != before or self._upgraded
        size = self._head + len(data)
        begun = 0
        if len(data) > HEAD_PIECE and body.is_eof() and whole and not self._upgraded:
            joined, at = tail + data, 0
            if message is not None and not before[2]:  # the rest of its body comes first
                at = (
                    joined.rfind(HEAD_END) + len(HEAD_END)
                    if message.chunked
                    else len(tail) + body.total_bytes - before[1]
                )
            begun = _begun(joined, at, list(self._messages)[queued:])
        self._large = self._large or size > limits.HEAD_KEPT
        if self._head or begun or (data and not whole):
            self._unfinished(data, begun, whole=whole)
        self._head = begun if whole else size
        if self._head > limits.MAX_HEAD:
            self.force_close()

    def _gathered(self, data: bytes) -> bytes:
        """Return the rest of a head once its end is there, and nothing before.

        Parsing it in pieces would cost the processor and two more copies of what may never end.
        """
        if HEAD_END in data or HEAD_END in self._tail + data[:3]:
            return self._joined(data) if self._pieces else data
        self._keep_tail(data)
        self._pieces.append(data)
        self._head += len(data)
        self._service.strangers.began(self, data, parsed=False)
        if self._head > limits.MAX_HEAD:
            self._pieces.clear()
            self._queue([_too_long()])
        return b""

    def _joined(self, data: bytes) -> bytes:
        """Return what was kept back of a head, and what came now."""
        pieces = self._pieces
        self._head -= sum(map(len, pieces))
        data = b"".join((*pieces, data))
        pieces.clear()
        return data

    def _keep_tail(self, data: bytes) -> None:
        """Keep the last bytes that came: the end of a head may be cut into pieces, also behind another request."""
        self._tail = data[-3:] if len(data) > 2 else (self._tail + data)[-3:]

    def _unfinished(self, data: bytes, begun: int, *, whole: bool) -> None:
        """Count a head among those of all connections until it is whole, or if it is large until it is answered.

        ``begun`` are the last bytes of the data that begin another head behind a whole one.
        """
        strangers = self._service.strangers
        if whole:
            strangers.ended(self)
            data = data[len(data) - begun :]
        if data:
            strangers.began(self, data, parsed=True)

    def _queue(self, messages: Sequence[Any]) -> None:
        if not messages:
            return
        self._request_count += len(messages)
        self._messages.extend(messages)
        waiter = self._waiter
        if waiter is not None and not waiter.done():
            waiter.set_result(None)
        if not self._buffer_paused and len(self._messages) >= self._max_msg_queue_size:
            self._pause_reading_for_buffer()

    # --- the way through filters and routes ---

    async def answer(self, request: Request) -> bool:
        """Answer one request and write it; returns when the answer is out, for a watch when it has ended."""
        service = self._service
        self._request = request
        message = request.message
        if message.version.major != 1:  # the parser takes 0.9 and 2.0 as well
            self.refuse(400, None)
            return False
        if message.path == "*" and message.method == "OPTIONS":  # upstream: Go's server answers it before any handler
            return self._send(audit_id(""), Reply(200, ""), 0)
        if self._holder is not None:
            self._check_validity(self._holder)
        exchange = Exchange(self._read_head(message), self, self._loop.time())
        service.active += 1
        own = 0  # bytes of the answer that no other answer shares
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
                    return await self._send_in_turns(exchange.audit_id, reply, size)
                kept = self._send(exchange.audit_id, reply, size)
                if self._paused:  # who pipelines requests and does not read gets no more answers
                    await self._drain_helper()
                return kept
        finally:
            if request.payload is not EMPTY_PAYLOAD and request.payload.is_eof():
                request.payload._buffer.clear()  # an idle connection keeps no body, also if no handler read it
            if exchange.user is not ANONYMOUS:
                service.strangers.known(self)
            if self._large:
                self._release_head(request)
            if exchange.promised:
                service.memory.hold(exchange, 0)
            if own and self.transport is None:  # unread: it is freed with the frames that hold it
                self._loop.call_soon(HEAP.freed, own)
            service.active -= 1
            if not service.active:
                service.all_done()
        return await self._follow(reply, request)

    def _release_head(self, request: Request) -> None:
        """Let go of a head that may be large, since its request is answered."""
        if not self._head:
            self._service.strangers.ended(self)
        if self._is_large(request.message):
            request.payload.feed_eof()  # the connection ends, and does not wait for a body with it in memory

    def _weighed(self, exchange: Exchange, reply: Reply, size: int) -> Reply:
        """Return an answer for which its user has memory until its client has taken it, a refusal of a read else."""
        memory = self._service.memory
        memory.hold(exchange, min(size, exchange.promised))  # the body is of the past
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
            self._sent = None if self._is_large(message) else message.raw_headers
        return Head(message.method, message.path, message.headers, sender)

    async def _follow(self, reply: StreamReply, request: Request) -> bool:
        """Wait for the end of a watch; its events are written by the storage layer."""
        try:
            await reply.stream.done
        finally:
            self._sink = None
        return reply.stream.clean and not (self._close or request.message.should_close)

    async def _send_in_turns(self, audit: str, reply: Reply, size: int) -> bool:
        """Write a large answer over TLS, which encrypts all that it is given at once, and holds it."""
        parts, reply.parts = reply.parts, ()
        kept = self._send(audit, reply, size)
        request, transport = self._request, self.transport
        if transport is None or request is None or request.message.method == "HEAD":
            return kept
        turn = Turn()
        for piece in _pieces(parts):
            transport.writelines(piece)
            if self._paused:
                await self._drain_helper()
            await turn.give()
            if self.transport is None or self.transport.is_closing():
                return False
        return kept

    def _send(self, audit: str, reply: Reply, size: int) -> bool:
        """Write an answer; return whether the connection may go on."""
        request, transport = self._request, self.transport
        if request is None or transport is None or transport.is_closing():
            raise ConnectionResetError("the client is gone")
        message = request.message
        close = self._close or self._ends(request)
        date = self._service.clock.line()
        head = responses.head(reply, date, audit, close=close, length=size, version=message.version)
        parts = () if message.method == "HEAD" else reply.parts
        if size < _JOIN_BELOW or not parts:
            transport.write(b"".join((head, *parts)))
        else:
            if not self._sized:
                # with the kernel's own size it takes megabytes at a stretch, while nobody else is answered
                set_option(transport, socket.SOL_SOCKET, "SO_SNDBUF", limits.SEND_BUFFER)
                self._sized = True
            transport.writelines([head, *parts])
        return not close

    def _ends(self, request: Request) -> bool:
        """Whether the connection ends with this request's answer."""
        message = request.message
        # the parser drops what came in one piece with a request for an upgrade that it does not know
        lost = message.upgrade and not self._upgraded and not self._alone
        faulty = message.chunked and message.version < HttpVersion11  # others may read another end of it
        ends = lost or faulty or self._is_large(message)
        return self._leave_body(request) or message.should_close or ends

    def _is_large(self, message: RawRequestMessage) -> bool:
        """Whether a head takes so much memory that the parser is not to keep it until the next one comes."""
        fields = message.raw_headers
        if not self._large and len(fields) <= _MANY:
            return False
        return sum(len(name) + len(value) + _FIELD for name, value in fields) > limits.HEAD_KEPT

    def _leave_body(self, request: Request) -> bool:
        """Whether the body stays unread because its client waits for a 100 that it will not get."""
        if request.continued or request.payload.is_eof() or not _expects_continue(request.message):
            return False
        request.payload.feed_eof()
        return True

    def declared_size(self) -> int:
        """Return how many bytes of a body are still to come, MAX_BODY if the head does not tell."""
        request = self._request
        assert request is not None
        if request.payload.is_eof():
            return 0
        return int(request.message.headers.get("Content-Length", "") or documents_limits.MAX_BODY)

    async def read_body(self, limit: int) -> bytes:
        """Return the body; StatusError 413 over ``limit`` bytes, 408 when it does not arrive in time."""
        request = self._request
        assert request is not None
        payload = request.payload
        if payload is EMPTY_PAYLOAD:
            return b""
        if payload.is_eof() and payload.exception() is None:  # all is here: nothing has to wait, nor to be resumed
            found = b"".join(payload._buffer)
            payload._buffer.clear()
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
        """Return a body; StatusError 413 over the limit. What is left of a long one ends the connection, as Go's.

        ``length`` is that of the whole body, 0 if it is not known.
        """
        if len(data) <= limit >= length:
            return data
        self._close = self._close or not 0 < length <= limit + limits.BODY_SKIPPED
        raise status.too_large(limit)

    def origin(self) -> tuple[str, str]:
        """Return the request target as it was sent, and the address of the client, empty when it has none."""
        request, transport = self._request, self.transport
        peer = transport.get_extra_info("peername") if transport is not None else None
        return request.message.path if request is not None else "", shown(peer[0]) if isinstance(peer, tuple) else ""

    def open_stream(
        self, head: bytes, columns: bytes, kind: type[WatchSink] = WatchSink, unread: int = limits.WATCH_HIGH_WATER
    ) -> WatchSink:
        """Return the sink of a watch on this connection, with buffers that notice a slow client early.

        ``unread`` are the bytes from which on what the client has not read pauses the watch.
        """
        transport = self.transport
        if transport is None:
            raise ConnectionResetError("the client is gone")
        set_option(transport, socket.SOL_SOCKET, "SO_SNDBUF", min(limits.WATCH_SEND_BUFFER, unread))
        transport.set_write_buffer_limits(high=unread)
        if (
            kind in (WatchSink, GzipSink)
            and self._request is not None
            and self._request.message.version < HttpVersion11
        ):
            kind = UnchunkedSink
        sink = self._sink = kind(transport, head, columns, self._loop.create_future())
        if isinstance(sink, WebSocketSink):
            sink.receive = lambda receiver: self.set_parser(cast(Any, receiver))
        return sink

    # --- what goes wrong below the routes ---

    def refuse(self, code: int, error: BaseException | None) -> None:
        """Answer what no handler saw: a head that cannot be parsed, or a bug in this module; then close."""
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
        """Log a failure, unless it only says that the client went away."""
        if not isinstance(kw.get("exc_info"), ConnectionError):
            log.error(*args, **kw)


def _is_one_head(data: bytes) -> bool:
    """Tell whether bytes are the head of one request, and nothing else."""
    return 0 <= data.find(HEAD_END) == len(data) - len(HEAD_END)


def _too_long() -> tuple[_ErrInfo, StreamReader]:
    """Return what stands for the request of a head that is too long."""
    return _ErrInfo(431, refusals.HeadTooLong(), ""), EMPTY_PAYLOAD


def _begun(data: bytes, at: int, messages: Iterable[tuple[Any, StreamReader]]) -> int:
    """Return how many last bytes of the data begin a head behind these messages, of which the first begins at ``at``.

    Bodies in chunks that hold the end of a head make it too many.
    """
    for message, payload in messages:
        if isinstance(message, _ErrInfo) or not payload.is_eof():
            return 0
        end = data.find(HEAD_END, at)
        at = end + len(HEAD_END) if end >= 0 else at
        if payload is not EMPTY_PAYLOAD:
            at = data.rfind(HEAD_END, at) + len(HEAD_END) if message.chunked else at + payload.total_bytes
    return max(0, len(data) - at)


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
        if (
            monotonic() - began > server_limits.LOOP_BUDGET / 4
        ):  # each piece may bring the next at once, of small chunks
            await asyncio.sleep(0)
            began = monotonic()
    return bytes(found)
