"""Send HTTP/1.1 on raw sockets.

The load generator must cost little compared with the server.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

PIECE = 1 << 20


KINDS = {"PATCH": "application/merge-patch+json"}


def request(method: str, path: str, body: bytes = b"", headers: str = "", kind: str = "") -> bytes:
    """Return the bytes of a request.

    ``kind`` is the Content-Type. The default is JSON, for a PATCH a merge patch.
    """
    if body:
        headers += f"Content-Length: {len(body)}\r\nContent-Type: {kind or KINDS.get(method, 'application/json')}\r\n"
    return f"{method} {path} HTTP/1.1\r\nHost: bench\r\n{headers}\r\n".encode() + body


@dataclass
class Run:
    """The results of a run.

    They are the number of requests, total seconds, bytes of the last body, and seconds of each request.
    """

    count: int = 0
    seconds: float = 0.0
    size: int = 0
    took: list[float] = field(default_factory=list)


class Line:
    """A persistent connection, with at most one request at a time."""

    def __init__(self, address: tuple[str, int]) -> None:
        self.socket = socket.create_connection(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.began = 0.0
        self._head = b""
        self._left = -1

    def send(self, data: bytes) -> None:
        """Send a request."""
        self.began = time.perf_counter()
        self._head, self._left = b"", -1
        self.socket.sendall(data)

    def receive(self) -> int:
        """Read available bytes; return the size of the body, or -1 if the response is incomplete."""
        data = self.socket.recv(PIECE)
        if not data:
            raise ConnectionError("the server hung up")
        if self._left < 0:
            self._head += data
            end = self._head.find(b"\r\n\r\n")
            if end < 0:
                return -1
            head, rest = self._head[:end].lower(), len(self._head) - end - 4
            if not head.startswith(b"http/1.1 2"):
                raise AssertionError(self._head[:2000].decode("utf-8", "replace"))
            at = head.index(b"content-length:") + 15
            self.size = int(head[at : (head.find(b"\r\n", at) + 1 or len(head) + 1) - 1])
            self._left = self.size - rest
        else:
            self._left -= len(data)
        return self.size if self._left == 0 else -1

    def ask(self, data: bytes) -> int:
        """Send a request and wait for its response; return the size of the body."""
        self.send(data)
        while (size := self.receive()) < 0:
            pass
        return size


def run(address: tuple[str, int], requests: Iterable[bytes], lines: int = 1) -> Run:
    """Send requests over ``lines`` connections.

    A connection sends the next request after each response.
    """
    todo, done = iter(requests), Run()
    poll = select.epoll()
    open_lines: dict[int, Line] = {}
    began = time.perf_counter()
    for _ in range(lines):
        _begin(address, todo, open_lines, poll)
    while open_lines:
        for number, _ in poll.poll():
            line = open_lines[number]
            size = line.receive()
            if size < 0:
                continue
            done.count += 1
            done.size = size
            done.took.append(time.perf_counter() - line.began)
            following = next(todo, None)
            if following is None:
                poll.unregister(number)
                open_lines.pop(number).socket.close()
            else:
                line.send(following)
    done.seconds = time.perf_counter() - began
    poll.close()
    return done


def _begin(address: tuple[str, int], todo: Iterator[bytes], lines: dict[int, Line], poll: select.epoll) -> None:
    first = next(todo, None)
    if first is not None:
        line = Line(address)
        lines[line.socket.fileno()] = line
        poll.register(line.socket.fileno(), select.EPOLLIN)
        line.send(first)


class Watchers:
    """Open watches, ``count`` of each path; their bytes are counted but not stored."""

    def __init__(self, address: tuple[str, int], path: str | Iterable[str], count: int = 1) -> None:
        self._poll = select.epoll()
        self._sockets: dict[int, socket.socket] = {}
        self.received: dict[int, int] = {}
        self.times: list[float] = []
        self.lines = 0
        self._buffer = bytearray(PIECE)
        for one in (path,) if isinstance(path, str) else path:
            for _ in range(count):
                sock = socket.create_connection(address)
                sock.sendall(request("GET", one))
                self._sockets[sock.fileno()] = sock
        for number, sock in self._sockets.items():
            head = b""
            while b"\r\n\r\n" not in head:
                head += sock.recv(65536)
            if not head.startswith(b"HTTP/1.1 200"):
                raise AssertionError(head[:500])
            self.received[number] = len(head) - head.index(b"\r\n\r\n") - 4
            self.lines += head.count(b'{"type":')
            sock.setblocking(False)
            self._poll.register(number, select.EPOLLIN)

    def receive(self, wait: float) -> None:
        """Read the bytes that arrive within ``wait`` seconds."""
        for number, _ in self._poll.poll(wait):
            sock = self._sockets[number]
            while True:
                try:
                    got = sock.recv_into(self._buffer)
                except BlockingIOError:
                    break
                if got == 0:
                    raise ConnectionError("the server ended a watch")
                self.received[number] += got
                if len(self._sockets) == 1:
                    self.lines += self._buffer.count(b"\n\r\n", 0, got)
                if got < PIECE:
                    break
            self.times.append(time.perf_counter())

    @property
    def size(self) -> int:
        """The number of bytes that the only watch has received."""
        (size,) = self.received.values()
        return size

    def until_lines(self, more: int, within: float = 120.0) -> None:
        """Read the only watch until it has received ``more`` further events."""
        wanted, end = self.lines + more, time.monotonic() + within
        while self.lines < wanted:
            self.receive(1.0)
            assert time.monotonic() < end, f"{wanted - self.lines} of {more} events never came"

    def until(self, size: int, within: float = 120.0) -> None:
        """Read until every watch has received ``size`` bytes.

        Raise AssertionError after ``within`` seconds.
        """
        end = time.monotonic() + within
        while min(self.received.values()) < size:
            self.receive(1.0)
            if time.monotonic() > end:
                behind = sum(got < size for got in self.received.values())
                raise AssertionError(f"{behind} watchers were not sent everything")

    def close(self) -> None:
        """Close all watches."""
        self._poll.close()
        for sock in self._sockets.values():
            sock.close()
