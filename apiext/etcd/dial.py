"""Connections to an endpoint over HTTP/2: by TCP, TLS, or a unix socket.

A unix socket has a path of any length, or an abstract name such as ``@name``.
"""

import asyncio
import os
import socket
import ssl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from apiext.etcd import limits
from apiext.etcd.errors import UNAVAILABLE, EtcdError
from apiext.etcd.h2 import Connection
from apiext.etcd.transport import TLS, Endpoint, Spawn, Transport

SUN_PATH = 100  # bytes of a socket path that all operating systems accept; their limits are 104 to 108 bytes


async def dial(endpoint: Endpoint, tls: TLS, _spawn: Spawn, *, largest: int = limits.MAX_MESSAGE) -> Transport:
    """Connect to an endpoint over HTTP/2; raise EtcdError with ``sent=False`` if that fails.

    ``largest`` is the maximum size of a response in bytes.
    """
    loop = asyncio.get_running_loop()
    connection = Connection(endpoint.authority, endpoint.scheme, loop, largest)
    try:
        async with asyncio.timeout(limits.CONNECT_TIMEOUT):
            await _connect(loop, connection, endpoint, tls)
            await connection.ready
    except EtcdError as error:
        raise EtcdError(error.code, f"{endpoint}: {error.message}", sent=False) from error
    except TimeoutError as error:
        raise EtcdError(
            UNAVAILABLE, f"{endpoint}: no response within {limits.CONNECT_TIMEOUT:g}s", sent=False
        ) from error
    except (OSError, ValueError) as error:  # malformed certificates raise ValueError
        raise EtcdError(UNAVAILABLE, f"{endpoint}: {_reason(error, endpoint)}", sent=False) from error
    finally:
        if not connection.ready.done() or connection.ready.cancelled():
            connection.abort()
        else:
            # retrieves the exception, since asyncio logs exceptions that no code retrieves
            connection.ready.exception()
    return connection


def _reason(error: Exception, endpoint: Endpoint) -> str:
    if str(error):
        return str(error)
    return "the connection was closed" + (": is it an https endpoint?" if endpoint.scheme == "https" else "")


async def _connect(loop: asyncio.AbstractEventLoop, connection: Connection, endpoint: Endpoint, tls: TLS) -> None:
    if endpoint.scheme == "unix" and endpoint.path.startswith("@"):
        abstract = socket.socket(socket.AF_UNIX)
        abstract.setblocking(False)
        try:
            await loop.sock_connect(abstract, f"\0{endpoint.path[1:]}")
            await loop.create_unix_connection(lambda: connection, sock=abstract)
        except BaseException:
            abstract.close()
            raise
        return
    if endpoint.scheme == "unix":
        with short_path(endpoint.path) as path:
            await loop.create_unix_connection(lambda: connection, path)
        return
    context: ssl.SSLContext | None = tls.context() if endpoint.scheme == "https" else None
    name = (tls.server_name or endpoint.host) if context else None
    reached = await _reach(loop, endpoint)
    try:
        transport, _ = await loop.create_connection(lambda: connection, sock=reached, ssl=context, server_hostname=name)
    except BaseException:
        reached.close()
        raise
    if context is not None and transport.get_extra_info("ssl_object").selected_alpn_protocol() != "h2":
        raise EtcdError(UNAVAILABLE, "the server does not speak HTTP/2", sent=False)


async def _reach(loop: asyncio.AbstractEventLoop, endpoint: Endpoint) -> socket.socket:
    """Connect to the addresses of the endpoint in turn, until one accepts.

    Each address gets an equal part of the time that is left.
    """
    found = await loop.getaddrinfo(endpoint.host, endpoint.port, type=socket.SOCK_STREAM)
    deadline = loop.time() + limits.CONNECT_TIMEOUT
    failed: OSError = OSError(f"{endpoint.host} has no address")
    for left, (family, kind, protocol, _, address) in zip(range(len(found), 0, -1), found, strict=True):
        reached = socket.socket(family, kind, protocol)
        try:
            reached.setblocking(False)
            async with asyncio.timeout((deadline - loop.time()) / left):
                await loop.sock_connect(reached, address)
            return reached
        except OSError as error:  # TimeoutError is a subclass of OSError
            reached.close()
            failed = error
        except BaseException:
            reached.close()
            raise
    raise failed


@contextmanager
def short_path(path: str) -> Iterator[str]:
    """Yield a path of the same socket that is short enough to connect to it."""
    if len(os.fsencode(path)) <= SUN_PATH:
        yield path
        return
    where = Path(path)
    if Path("/proc/self/fd").is_dir():
        directory = os.open(where.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            yield f"/proc/self/fd/{directory}/{where.name}"
        finally:
            os.close(directory)
        return
    with tempfile.TemporaryDirectory(dir="/tmp") as scratch:
        link = Path(scratch) / "d"
        link.symlink_to(where.parent)
        yield str(link / where.name)
