"""The client of a KMS plug-in on a unix socket.

It uses the HTTP/2 transport of the etcd client.
"""

import asyncio
import logging
import os
from collections.abc import Mapping
from time import perf_counter
from typing import Any
from urllib.parse import unquote

from google.protobuf.message import DecodeError

from apiext.etcd.dial import dial
from apiext.etcd.errors import DEADLINE_EXCEEDED, INTERNAL, UNKNOWN, EtcdError
from apiext.etcd.transport import TLS, Endpoint, Transport
from apiext.kms import limits, messages, metrics

# Seconds between two attempts to connect to a plug-in while a call waits.
KMS_DIAL_EVERY = 0.25

log = logging.getLogger(__name__)

_CODES = (
    "OK", "Canceled", "Unknown", "InvalidArgument", "DeadlineExceeded", "NotFound", "AlreadyExists",
    "PermissionDenied", "ResourceExhausted", "FailedPrecondition", "Aborted", "OutOfRange", "Unimplemented",
    "Internal", "Unavailable", "DataLoss", "Unauthenticated",
)  # fmt: skip
_LATE = "context deadline exceeded"
_UNREACHED = f"{_LATE} while waiting for connections to become ready"
_DIALLING = (
    'latest balancer error: connection error: desc = "transport: Error while dialing: dial unix {}: connect: {}"'
)
_UNREADABLE = "grpc: failed to unmarshal the received message: proto: cannot parse invalid wire-format data"


def code_name(code: int) -> str:
    """Return the name of a gRPC status as Go prints it."""
    return _CODES[code] if 0 <= code < len(_CODES) else f"Code({code})"


class PluginError(Exception):
    """A call to a plug-in has failed.

    ``reached`` is true if the plug-in itself reported the error, or if its response cannot be parsed.
    """

    def __init__(self, code: int, message: str, reached: bool) -> None:
        super().__init__(code, message, reached)
        self.code = code
        # the label in metrics, with UNKNOWN for invalid codes, since plug-ins can send any number
        self.status = code_name(code if code < len(_CODES) else UNKNOWN)
        self.message = message[: limits.KMS_TEXT]
        self.reached = reached

    def __str__(self) -> str:
        return f"rpc error: code = {code_name(self.code)} desc = {self.message}"


def socket_of(endpoint: str) -> str:
    """Return the socket path of an endpoint, ``@name`` for an abstract socket.

    Return "" if there is none. Parse the endpoint as Go's url.Parse does, but also accept ``unix:@name``.
    """
    rest = endpoint.partition(":")[2].partition("#")[0].partition("?")[0]
    if rest.startswith("//"):
        rest = rest[2:].partition("/")[1] + rest[2:].partition("/")[2]
    path = unquote(rest)
    if path.startswith("/@"):
        return path[1:]
    return path if path.startswith(("/", "@")) else ""


class Plugin:
    """The client of a plug-in. A call opens a connection if there is none.

    ``timeout`` is the maximum time of a call in seconds.
    """

    def __init__(self, name: str, endpoint: str, timeout: float) -> None:
        self.name = name
        self.timeout = timeout
        self._endpoint = Endpoint("unix", path=socket_of(endpoint))
        self._connection: Transport | None = None
        self._dialling = asyncio.Lock()
        self._unreached = _UNREACHED

    async def status(self) -> Any:
        """Return the StatusResponse; raise PluginError."""
        return await self._call(messages.STATUS, messages.StatusRequest(), messages.StatusResponse)

    async def encrypt(self, uid: str, plain: bytes) -> Any:
        """Return the EncryptResponse for a new data key; raise PluginError."""
        return await self._call(
            messages.ENCRYPT, messages.EncryptRequest(plaintext=plain, uid=uid), messages.EncryptResponse
        )

    async def decrypt(self, uid: str, source: bytes, key_id: str, annotations: Mapping[str, bytes]) -> bytes:
        """Return the decrypted data key; raise PluginError."""
        request = messages.DecryptRequest(ciphertext=source, uid=uid, key_id=key_id)
        request.annotations.update(annotations)
        answer = await self._call(messages.DECRYPT, request, messages.DecryptResponse)
        return bytes(answer.plaintext)

    async def close(self) -> None:
        """Close the connection. Running calls fail."""
        if self._connection is not None:
            self._connection.abort()

    async def _call(self, path: str, request: Any, answer: Any) -> Any:
        began, status = perf_counter(), _CODES[0]
        try:
            return answer.FromString(await self._answer(path, request.SerializeToString()))
        except PluginError as error:
            status = error.status
            raise
        except DecodeError as error:
            status = code_name(INTERNAL)
            raise PluginError(INTERNAL, _UNREADABLE, reached=True) from error
        finally:
            metrics.CALLS.observe(perf_counter() - began, self.name, path, status)

    async def _answer(self, path: str, request: bytes) -> bytes:
        """Call the plug-in; raise PluginError.

        If the connection is lost, repeat the call until the timeout. Raise the error if two calls in succession were
        sent before the connection was lost, since the plug-in may have received both.
        """
        sent = received = False
        try:
            async with asyncio.timeout(self.timeout):
                while True:
                    connection, sent = await self._connected(), True
                    try:
                        return await connection.unary(path, request, self.timeout)
                    except EtcdError as error:
                        if error.sent and (connection.live or received):
                            reached = connection.live and error.code != DEADLINE_EXCEEDED
                            raise PluginError(error.code, error.message, reached=reached) from error
                        received, sent = error.sent, False
                        if connection.live:  # the plug-in refuses streams, for example while it stops
                            await asyncio.sleep(KMS_DIAL_EVERY)
        except TimeoutError as error:
            raise PluginError(DEADLINE_EXCEEDED, _LATE if sent else self._unreached, reached=False) from error

    async def _connected(self) -> Transport:
        async with self._dialling:
            while self._connection is None or not self._connection.live:
                try:
                    self._connection = await dial(self._endpoint, TLS(), _never, largest=limits.KMS_ANSWER)
                    self._unreached = _UNREACHED
                except EtcdError as error:
                    why = _UNREACHED
                    if isinstance(error.__cause__, OSError) and error.__cause__.errno:
                        why = _DIALLING.format(self._endpoint.path, os.strerror(error.__cause__.errno).lower())
                    if self._unreached != why:
                        log.warning(
                            "the plug-in of the KMS provider %s cannot be reached: %s", self.name, error.message
                        )
                    self._unreached = why
                    await asyncio.sleep(KMS_DIAL_EVERY)
            return self._connection


def _never(work: Any) -> None:
    """Discard the coroutine, since this transport has no background tasks."""
    work.close()
