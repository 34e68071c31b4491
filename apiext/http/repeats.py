"""Creates whose heads came before on their connection: nobody parses them again.

The head of a create names no object, so a client sends the same again and again, but for the length of the body. What
came in one piece, head and body, is taken here, and only while aiohttp's parser is known to be between two messages.
"""

import re
from typing import Any

from aiohttp.http import HttpVersion11, RawRequestMessage
from aiohttp.streams import EMPTY_PAYLOAD, StreamReader

from apiext import limits
from apiext.http.heads import Head, Sender

HEAD_END = b"\r\n\r\n"
_LENGTH = re.compile(rb"\r\nContent-Length: ([0-9]{1,7})\r\n", re.IGNORECASE)
_BODY = re.compile(rb"\n(?:Content-Length|Transfer-Encoding):", re.IGNORECASE)


class Whole:
    """A create that came in one piece: aiohttp's message, what its head says, and its body."""

    __slots__ = ("body", "head", "message")

    def __init__(self, message: Any, head: Head, body: bytes) -> None:
        self.message = message
        self.head = head
        self.body = body


class Repeats:
    """The heads of the last creates of a connection, by their bytes without the length of the body.

    ``due`` are the bytes until the parser is between two messages, fewer than 0 where that is not known.
    """

    __slots__ = ("_known", "due")

    def __init__(self) -> None:
        self._known: dict[bytes, tuple[Any, Head]] = {}
        self.due = 0

    def find(self, data: bytes) -> Whole | None:
        """Return the request that these bytes are if its head is known and nothing is missing or follows."""
        if self.due != 0 or not self._known:
            return None
        split = _split(data)
        if split is None or len(data) != split[1]:
            return None
        known = self._known.get(split[0])
        return Whole(*known, data[split[1] - split[2] :]) if known is not None else None

    def read(self, data: bytes, message: Any, payload: StreamReader) -> Whole | None:
        """Return the one request that the parser made of these bytes if it is a whole create, and keep its head."""
        before, self.due = self.due, -1
        if payload is EMPTY_PAYLOAD:
            if data.endswith(HEAD_END):  # there is but one
                self.due = 0
            return None
        split = _split(data) if before == 0 else None
        if split is None:
            return None
        self.due = split[1] - len(data)
        key = split[0]
        if self.due or not payload.is_eof() or len(key) > limits.REPEATED_HEAD or not _is_plain(message):
            return None
        if len(self._known) >= limits.REPEATED_HEADS:
            self._known.clear()
        head = Head(message.method, message.path, message.headers, Sender(message.headers))
        self._known[key] = message, head
        return Whole(message, head, data[split[1] - split[2] :])

    def pass_by(self, data: bytes) -> None:
        """Take note of bytes that the parser is given while nobody waits for a request."""
        due = self.due
        if due == 0 and data:  # the first of a connection, mostly
            split = _split(data)
            due = split[1] if split is not None else len(data) if is_one_head(data) and not _BODY.search(data) else -1
        self.due = max(due - len(data), -1)


def is_one_head(data: bytes) -> bool:
    """Whether bytes are the head of one request, and nothing else."""
    return 0 <= data.find(HEAD_END) == len(data) - len(HEAD_END)


def _split(data: bytes) -> tuple[bytes, int, int] | None:
    """Return a head without its Content-Length, and the lengths of the message and of its body."""
    end = data.find(HEAD_END)
    found = _LENGTH.search(data, 0, end + 2) if end >= 0 else None
    if found is None:
        return None
    start, stop = found.span(1)
    length = int(data[start:stop])
    return data[:start] + data[stop:end], end + len(HEAD_END) + length, length


def _is_plain(message: Any) -> bool:
    """Whether a message is an HTTP/1.1 create of few fields that keeps its connection and waits for nothing."""
    return (
        isinstance(message, RawRequestMessage)
        and len(message.raw_headers) <= limits.REPEATED_FIELDS
        and message.method == "POST"
        and message.version == HttpVersion11
        and not (message.should_close or message.upgrade or message.chunked)
        and "Expect" not in message.headers
    )
