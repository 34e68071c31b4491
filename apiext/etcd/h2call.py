"""A call on an HTTP/2 connection: its flow-control state, and its messages assembled from frames."""

import asyncio
import fcntl
import sys
import termios
from collections.abc import Callable
from contextlib import suppress
from operator import gt

from apiext.etcd import limits
from apiext.etcd.errors import INTERNAL, EtcdError
from apiext.etcd.frames import PREFIX

OnMessage = Callable[[bytes], None]
OnEnd = Callable[[EtcdError], None]


def unacknowledged(transport: asyncio.Transport | None) -> int:
    """Return the bytes that the peer's machine has not acknowledged; 0 if the system does not report it."""
    if transport is None:
        return 0
    kernel, sock = bytearray(4), transport.get_extra_info("socket")
    if sock is not None:
        with suppress(OSError):  # some systems do not report it for a socket
            fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, kernel)
    return transport.get_write_buffer_size() + int.from_bytes(kernel, sys.byteorder)


class Call:
    """One call; ``stream`` is 0 while it waits for a free stream."""

    __slots__ = (
        "_parts",
        "answer",
        "body",
        "deadline",
        "done_out",
        "graced",
        "moved",
        "on_end",
        "on_message",
        "out",
        "path",
        "size",
        "stream",
        "unacked",
        "window",
    )

    def __init__(self, path: str, deadline: float) -> None:
        self.path = path
        self.deadline = deadline
        self.stream = 0
        self.window = 0  # bytes that may be sent
        self.unacked = 0  # bytes that were received, and not returned to the peer's window yet
        self.size = 0  # bytes of a unary answer so far
        self.answer: asyncio.Future[bytes] | None = None  # of a unary call
        self.on_message: OnMessage | None = None  # of a stream
        self.on_end: OnEnd | None = None
        self.body: bytes | bytearray | None = None  # of a unary answer, or the incomplete message of a stream
        self._parts: list[bytes] | None = None
        self.out = b""  # bytes that wait for the flow-control windows
        self.done_out = True
        self.graced = False  # whether the deadline was extended, which is done once
        # its progress at the deadline; empty: a large call without an answer yet
        self.moved: tuple[int, ...] | None = None

    def grace(self, until: float) -> None:
        """Extend the deadline of a call to at least a loop time, once."""
        if self.deadline and not self.graced:
            self.graced, self.deadline = True, max(self.deadline, until)

    def moves(self, unsent: int) -> bool:
        """Report whether a call past its deadline is only slow: bytes of it were sent or received since the last check.

        ``unsent`` is the number of bytes that the peer has not acknowledged. Small calls are checked once only.
        """
        before, at = self.moved, (self.size, -len(self.out), -unsent)
        self.moved = at
        if not before:
            return before is not None or self.size > 0
        return any(map(gt, at, before))

    def collect(self, payload: bytes) -> None:
        """Add a piece of a unary answer."""
        self.size += len(payload)
        if self.body is None:
            self.body = payload  # the usual case: one frame is the whole answer
        elif self._parts is not None:
            self._parts.append(payload)
        elif len(self.body) < 5:
            self.body += payload
        else:
            # without the prefix, to avoid a second copy of a large answer
            self._parts = [bytes(self.body[5:]), payload]

    def settle(self, answer: asyncio.Future[bytes]) -> None:
        """Complete the unary answer, which must be exactly one message."""
        head = self.body
        if head is None or len(head) < 5:
            answer.set_exception(EtcdError(INTERNAL, "the answer has no message"))
            return
        compressed, length = PREFIX.unpack_from(head)
        body = bytes(head[5:]) if self._parts is None else b"".join(self._parts)
        if compressed:
            answer.set_exception(EtcdError(INTERNAL, "the answer is compressed"))
        elif len(body) != length:
            answer.set_exception(EtcdError(INTERNAL, "the answer is not one message"))
        else:
            answer.set_result(body)

    def feed(self, payload: bytes) -> EtcdError | None:
        """Process a piece of a stream and deliver its complete messages; return the error of a malformed stream."""
        rest = self.body
        if rest is None:
            data: bytes | bytearray = payload
        else:
            rest += payload
            data = rest
        at, size = 0, len(data)
        while size - at >= 5 and self.on_message is not None:
            compressed, length = PREFIX.unpack_from(data, at)
            end = at + 5 + length
            if compressed or end - at > limits.MAX_MESSAGE:
                return EtcdError(INTERNAL, "a message of the stream is compressed or too large")
            if end > size:
                break
            self.on_message(bytes(data[at + 5 : end]))
            at = end
        if at == size:
            self.body = None
        elif at or rest is None:
            self.body = bytearray(data[at:])  # grows in amortised time
        return None
