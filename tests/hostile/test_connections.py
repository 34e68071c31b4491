"""Connections of unauthenticated clients: incomplete request heads, and idle connections."""

from __future__ import annotations

import contextlib
import resource
import select
import socket
from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit

import pytest

from apiext.conformance.support.waiting import pause, until
from tests.hostile.harness import Victim


@contextlib.contextmanager
def connections(victim: Victim, count: int) -> Iterator[list[socket.socket]]:
    """Open ``count`` connections for the block."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < count + 200:
        pytest.skip(f"this system gives {hard} descriptors to a process")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, count + 200), hard))
    address = urlsplit(victim.server.url)
    try:
        with contextlib.ExitStack() as stack:
            held = []
            for number in range(count):
                held.append(stack.enter_context(socket.create_connection((address.hostname, address.port), timeout=30)))
                if number % 100 == 0:
                    pause(0.01)
            yield held
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def is_open(line: socket.socket) -> bool:
    """Report whether the server has not closed a connection."""
    poll = select.poll()
    poll.register(line, select.POLLIN | select.POLLHUP | select.POLLERR)
    return not poll.poll(0)


def send_all(lines: Sequence[socket.socket], piece: bytes) -> None:
    """Send bytes on each open connection."""
    for line in lines:
        with contextlib.suppress(OSError):
            line.sendall(piece)


@pytest.mark.parametrize(
    ("count", "fields", "size"), [(300, 17, 60_000), (2_000, 1_990, 20)], ids=["long fields", "short fields"]
)
def test_server_survives_endless_request_heads(victim: Victim, count: int, fields: int, size: int) -> None:
    many = max(1, 60_000 // size)
    with victim.attacked(), connections(victim, count) as lines:
        send_all(lines, b"GET /version HTTP/1.1\r\nHost: x\r\n")
        for first in range(0, fields, many):
            some = range(first, min(first + many, fields))
            send_all(lines, b"".join(b"X-%d: %b\r\n" % (number, b"v" * size) for number in some))
        print(sum(map(is_open, lines)), "are still open")


def test_a_long_head_in_pieces_is_answered(victim: Victim) -> None:
    address = urlsplit(victim.server.url)
    with socket.create_connection((address.hostname, address.port), timeout=30) as line:
        line.sendall(b"GET /version HTTP/1.1\r\nHost: x\r\n")
        for number in range(16):
            line.sendall(b"X-%d: %b\r\n" % (number, b"v" * 60_000))
        line.sendall(b"\r\n")
        assert line.recv(15) == b"HTTP/1.1 200 OK"


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_a_head_in_small_pieces_is_answered(victim: Victim, size: int) -> None:
    address = urlsplit(victim.server.url)
    head = b"GET /version HTTP/1.1\r\nHost: x\r\n\r\n"
    with socket.create_connection((address.hostname, address.port), timeout=30) as line:
        line.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for _ in range(2):
            for at in range(0, len(head), size):
                line.sendall(head[at : at + size])
                pause(0.001)
            answer = b""
            while not answer.endswith(b"}") and b"}\n" not in answer:
                answer += line.recv(4096)
            assert answer.startswith(b"HTTP/1.1 200 OK")


def test_server_survives_long_heads_without_bodies(victim: Victim) -> None:
    head = b"POST /api/v1/namespaces HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer none\r\nContent-Length: 9\r\n"
    with victim.attacked(), connections(victim, 300) as lines:
        for line in lines:
            with contextlib.suppress(OSError):
                line.sendall(head + b"".join(b"X-%d: %b\r\n" % (number, b"v" * 60_000) for number in range(16)))
                line.sendall(b"Accept: \r\n\r\n")


def test_oldest_idle_connections_are_closed_at_the_limit(victim: Victim) -> None:
    with victim.attacked(), connections(victim, 2_600) as lines:
        until(lambda: sum(map(is_open, lines)) < 2_100, "the oldest connections are closed", within=10)
        assert sum(map(is_open, lines[-1_500:])) == 1_500, "the newest are not closed"
