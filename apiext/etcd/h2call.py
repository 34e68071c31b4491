"""A call on an HTTP/2 connection: flow control, and messages assembled from DATA frames."""

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
    """Return the number of bytes that are buffered, or sent without an acknowledgement.

    Sent bytes are counted only if the system reports them.
    """
    if transport is None:
        return 0
    unsent, sock = bytearray(4), transport.get_extra_info("socket")
    if sock is not None:
        with suppress(OSError):  # some operating systems do not support TIOCOUTQ for sockets
            fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, unsent)
    return transport.get_write_buffer_size() + int.from_bytes(unsent, sys.byteorder)


class Call:
    """One call.

    ``stream`` is the id of its HTTP/2 stream, 0 while the call waits for a free stream.
    """

    __slots__ = (
        "_parts",
        "answer",
        "body",
        "deadline",
        "done_out",
        "extended",
        "on_end",
        "on_message",
        "out",
        "path",
        "progress",
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
        self.unacked = 0  # received bytes without a WINDOW_UPDATE
        self.size = 0  # received bytes of a unary response
        self.answer: asyncio.Future[bytes] | None = None  # only for a unary call
        self.on_message: OnMessage | None = None  # only for a stream
        self.on_end: OnEnd | None = None
        # received bytes of a unary response, or of an incomplete message of a stream
        self.body: bytes | bytearray | None = None
        self._parts: list[bytes] | None = None
        self.out = b""  # bytes that wait for the flow-control windows
        self.done_out = True
        self.extended = False  # True after ``extend``
        # progress at the last check; before the first check, () for a request that waits for the flow-control windows,
        # and None for other requests
        self.progress: tuple[int, ...] | None = None

    def extend(self, until: float) -> None:
        """Extend the deadline to at least ``until`` (event loop time). A second call has no effect."""
        if self.deadline and not self.extended:
            self.extended, self.deadline = True, max(self.deadline, until)

    def has_progressed(self, unsent: int) -> bool:
        """Report whether bytes were sent or received since the last check.

        If so, the call is slow, but not stuck. ``unsent`` is the result of ``unacknowledged``. The first
        check has no earlier values to compare. It counts a request that had to wait for the flow-control windows as
        progressed, and another request only if bytes of its response were received.
        """
        before, at = self.progress, (self.size, -len(self.out), -unsent)
        self.progress = at
        if not before:
            return before is not None or self.size > 0
        return any(map(gt, at, before))

    def collect(self, payload: bytes) -> None:
        """Add the payload of a DATA frame to a unary response."""
        self.size += len(payload)
        if self.body is None:
            self.body = payload  # usually one frame contains the complete response
        elif self._parts is not None:
            self._parts.append(payload)
        elif len(self.body) < 5:
            self.body += payload
        else:
            # The gRPC prefix is cut off here. Otherwise ``settle`` would have to copy a large response again.
            self._parts = [bytes(self.body[5:]), payload]

    def settle(self, answer: asyncio.Future[bytes]) -> None:
        """Set the result of the future to the unary response.

        Set an EtcdError if the response is not exactly one uncompressed message.
        """
        head = self.body
        if head is None or len(head) < 5:
            answer.set_exception(EtcdError(INTERNAL, "the response has no message"))
            return
        compressed, length = PREFIX.unpack_from(head)
        body = bytes(head[5:]) if self._parts is None else b"".join(self._parts)
        if compressed:
            answer.set_exception(EtcdError(INTERNAL, "the response is compressed"))
        elif len(body) != length:
            answer.set_exception(EtcdError(INTERNAL, "the response is not one message"))
        else:
            answer.set_result(body)

    def feed(self, payload: bytes) -> EtcdError | None:
        """Add the payload of a DATA frame to a stream, and deliver complete messages.

        Return an error if a message is malformed.
        """
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
            self.body = bytearray(data[at:])  # a bytearray, since appending to a bytes object copies the object
        return None
