"""A transport of the etcd client over grpc.aio.

The same tests run with it and with our own HTTP/2.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import grpc
import grpc.aio

from apiext.etcd import limits as etcd_limits
from apiext.etcd.errors import CANCELLED, UNAVAILABLE, EtcdError
from apiext.etcd.transport import TLS, Endpoint, Spawn, Transport

_OPTIONS = (
    ("grpc.max_receive_message_length", etcd_limits.MAX_MESSAGE),
    ("grpc.max_send_message_length", etcd_limits.MAX_MESSAGE),
    ("grpc.keepalive_time_ms", int(etcd_limits.PING_EVERY * 1000)),
    ("grpc.keepalive_timeout_ms", int(etcd_limits.PING_WAIT * 1000)),
    ("grpc.enable_retries", 0),  # only our client may repeat a Txn
    ("grpc.use_local_subchannel_pool", 1),  # else two channels share one connection
)


def _error(fault: grpc.aio.AioRpcError) -> EtcdError:
    text = fault.details() or ""
    unsent = fault.code() is grpc.StatusCode.UNAVAILABLE and "failed to connect" in text
    return EtcdError(fault.code().value[0], text, sent=not unsent)


class GrpcStream:
    """An open stream: a queue of messages to the server, and a task that receives messages."""

    def __init__(self) -> None:
        self.ended = False
        self._out: asyncio.Queue[bytes] = asyncio.Queue()
        self.task: asyncio.Task[None] | None = None

    def send(self, message: bytes) -> None:
        """Queue a message."""
        self._out.put_nowait(message)

    def cancel(self) -> None:
        """Cancel the stream without a message to the server."""
        self.ended = True
        if self.task is not None:
            self.task.cancel()

    async def messages(self) -> AsyncIterator[bytes]:
        """Yield the messages to send."""
        while True:
            yield await self._out.get()


class GrpcTransport:
    """A grpc.aio channel to one endpoint; implements Transport."""

    def __init__(self, channel: grpc.aio.Channel, spawn: Spawn) -> None:
        loop = asyncio.get_running_loop()
        self.live = True
        self.last_byte_at = self.last_response_at = loop.time()
        self.lost: asyncio.Future[None] = loop.create_future()
        self.closed: asyncio.Future[None] = loop.create_future()
        self._loop = loop
        self._channel = channel
        self._spawn = spawn
        self._token = ""
        self._open = 0
        self._streams: set[GrpcStream] = set()

    def unary(self, path: str, message: bytes, timeout: float) -> asyncio.Future[bytes]:
        """Return the future of the response."""
        answer: asyncio.Future[bytes] = self._loop.create_future()
        if not self.live:
            answer.set_exception(EtcdError(UNAVAILABLE, "connection closed", sent=False))
        else:
            self._open += 1
            call = self._channel.unary_unary(path)(message, timeout=timeout, metadata=self._metadata())
            call.add_done_callback(lambda _: self._settle())
            self._spawn(self._answer(call, answer))
        return answer

    async def _answer(self, call: grpc.aio.UnaryUnaryCall, answer: asyncio.Future[bytes]) -> None:
        answer.add_done_callback(lambda done: call.cancel() if done.cancelled() else None)
        try:
            body = await call
        except grpc.aio.AioRpcError as fault:
            self.last_byte_at = (
                self._loop.time() if fault.code() is not grpc.StatusCode.DEADLINE_EXCEEDED else self.last_byte_at
            )
            if not answer.done():
                answer.set_exception(_error(fault))
        except asyncio.CancelledError:
            if not answer.done():
                answer.set_exception(EtcdError(CANCELLED, "the etcd client is closed"))
        else:
            self.last_byte_at = self.last_response_at = self._loop.time()
            if not answer.done():
                answer.set_result(body)

    def stream(self, path: str, on_message: Callable[[bytes], None], on_end: Callable[[EtcdError], None]) -> GrpcStream:
        """Open a bidirectional stream."""
        if not self.live:
            raise EtcdError(UNAVAILABLE, "connection closed", sent=False)
        stream = GrpcStream()
        self._streams.add(stream)
        task = self._spawn(self._listen(stream, path, on_message, on_end))
        stream.task = task if isinstance(task, asyncio.Task) else None
        return stream

    async def _listen(
        self, stream: GrpcStream, path: str, on_message: Callable[[bytes], None], on_end: Callable[[EtcdError], None]
    ) -> None:
        error = EtcdError(UNAVAILABLE, "the server ended the stream")
        call = self._channel.stream_stream(path)(stream.messages(), metadata=(*self._metadata(), ("hasleader", "true")))
        try:
            async for message in call:
                self.last_byte_at = self._loop.time()
                on_message(message)
        except grpc.aio.AioRpcError as fault:
            error = _error(fault)
        except asyncio.CancelledError:
            error = EtcdError(UNAVAILABLE, "the connection is closing")
            raise
        finally:
            call.cancel()
            self._streams.discard(stream)
            if not stream.ended:
                stream.ended = True
                on_end(error)

    def set_token(self, token: str) -> None:
        """Send this auth token with every later call."""
        self._token = token

    def _metadata(self) -> tuple[tuple[str, str], ...]:
        return (("token", self._token),) if self._token else ()

    def drain(self) -> None:
        """Refuse new calls; close after the open calls have finished."""
        self.live = False
        if not self.lost.done():
            self.lost.set_result(None)
        for stream in list(self._streams):
            if stream.task is not None:
                stream.task.cancel()  # its listener gets the cancellation
        self._settle(0)

    def abort(self) -> None:
        """Close at once."""
        self.drain()
        self._open = 0
        self._settle(0)

    def _settle(self, finished: int = 1) -> None:
        self._open -= finished
        if not self.live and self._open <= 0 and not self.closed.done():
            self.closed.set_result(None)

    async def notice_loss(self) -> None:
        """Drain when the connection is lost.

        So our client, not grpc, chooses the next endpoint.
        """
        state = self._channel.get_state(try_to_connect=False)
        while state is grpc.ChannelConnectivity.READY:
            await self._channel.wait_for_state_change(state)
            state = self._channel.get_state(try_to_connect=False)
        self.drain()

    async def close_at_end(self, notice: object) -> None:
        """Close the channel after the last call, or when the client is closed."""
        try:
            await asyncio.wait([self.closed])
        finally:
            if isinstance(notice, asyncio.Task):
                notice.cancel()
            await self._channel.close()
            self.abort()


async def dial(endpoint: Endpoint, tls: TLS, spawn: Spawn) -> Transport:
    """Connect to an endpoint with grpc.aio; raise EtcdError with ``sent=False`` if this fails."""
    target = str(endpoint) if endpoint.scheme == "unix" else endpoint.authority
    try:
        if endpoint.scheme == "https":
            options = (*_OPTIONS, *((("grpc.ssl_target_name_override", tls.server_name),) if tls.server_name else ()))
            channel = grpc.aio.secure_channel(target, _credentials(tls), options)
        else:
            channel = grpc.aio.insecure_channel(target, (*_OPTIONS, ("grpc.default_authority", endpoint.authority)))
    except OSError as error:
        raise EtcdError(UNAVAILABLE, f"{endpoint}: {error}", sent=False) from error
    try:
        async with asyncio.timeout(etcd_limits.CONNECT_TIMEOUT):
            await _ready(channel)
    except (TimeoutError, ConnectionError) as error:
        raise EtcdError(UNAVAILABLE, f"{endpoint}: {error or 'no answer in time'}", sent=False) from error
    finally:
        if channel.get_state() is not grpc.ChannelConnectivity.READY:
            await channel.close()
    transport = GrpcTransport(channel, spawn)
    spawn(transport.close_at_end(spawn(transport.notice_loss())))
    return transport


async def _ready(channel: grpc.aio.Channel) -> None:
    state = channel.get_state(try_to_connect=True)
    while state is not grpc.ChannelConnectivity.READY:
        if state is grpc.ChannelConnectivity.TRANSIENT_FAILURE:
            raise ConnectionError("the connection failed")
        await channel.wait_for_state_change(state)
        state = channel.get_state(try_to_connect=True)


def _credentials(tls: TLS) -> grpc.ChannelCredentials:
    ca, cert, key = (Path(path).read_bytes() if path else None for path in (tls.ca, tls.cert, tls.key or tls.cert))
    return grpc.ssl_channel_credentials(ca, key, cert)
