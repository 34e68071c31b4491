"""WebSockets (RFC 6455) for watches: the handshake, and frames to and from the client.

A client may send only limits.WEBSOCKET_INPUT bytes between two pings of the server.
"""

import asyncio
import hashlib
import re
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Callable

from apiext.http import limits
from apiext.http.exchange import Exchange, Headers
from apiext.http.sinks import NO_COLUMNS, Transport, WatchSink
from apiext.http.streams import Form
from apiext.meta import status
from apiext.meta.status import StatusError

# Seconds between pings of a watch over WebSocket.
WEBSOCKET_PING = 30.0
# Bytes that each frame of a client counts for limits.WEBSOCKET_INPUT, in addition to its payload.
WEBSOCKET_FRAME = 64

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0x0, 0x1, 0x2, 0x8, 0x9, 0xA
NORMAL, PROTOCOL_ERROR, NO_TEXT, TOO_BIG = 1000, 1002, 1007, 1009
_UNSENT = (1004, 1005, 1006, 1015)  # codes that must not be sent in a frame
BEARER = "base64url.bearer.authorization.k8s.io."
KNOWN_PROTOCOLS = ("binary.k8s.io", "base64.binary.k8s.io")
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_FINAL = 0x80
_MASKED = 0x80
_CONTROL = 0x8
_CONTROL_SIZE = 125
_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+").fullmatch

# --- the handshake ---


def is_requested(exchange: Exchange) -> bool:
    """Report whether a request is a WebSocket handshake."""
    headers = exchange.headers
    if headers.get("Upgrade", "").lower() != "websocket" or exchange.method != "GET":
        return False
    return "upgrade" in (token.strip().lower() for token in headers.get("Connection", "").split(","))


def check(headers: Headers) -> None:
    """Raise a 400 for a malformed handshake."""
    if headers.get("Sec-WebSocket-Version") != "13":
        raise status.bad_request("websocket: the Sec-WebSocket-Version must be 13")
    if _size_of_key(headers.get("Sec-WebSocket-Key", "").strip()) != 16:
        raise status.bad_request("websocket: the Sec-WebSocket-Key must be 16 bytes in base64")
    if not all(map(_TOKEN, _protocols(headers))):
        raise status.bad_request("websocket: the Sec-WebSocket-Protocol must be a list of tokens")


def is_foreign(exchange: Exchange) -> bool:
    """Report whether a page of another origin opens a WebSocket without permission.

    The flag --cors-allowed-origins gives the permission. Scripts of any page may open a WebSocket to any server, and
    the browser adds its client certificate. Only a token that the script itself sends proves that it is authorized.
    """
    origin = exchange.headers.get("Origin", "")
    if not origin or exchange.connection.is_allowed_page or not is_requested(exchange):
        return False
    return origin.lower().partition("://")[2] != exchange.headers.get("Host", "").lower()


def no_token(origin: str) -> StatusError:
    """Return the 403 for a page of another origin that sends no bearer token."""
    return StatusError(403, "Forbidden", f"forbidden: a WebSocket from the origin {origin} needs a bearer token")


def _size_of_key(key: str) -> int:
    try:
        return len(b64decode(key, validate=True))
    except (Base64Error, ValueError):
        return 0


def authorization(headers: Headers) -> str:
    """Return the Authorization header, or "" if the client sends no credentials.

    Browsers send a token in the subprotocol instead of the header. Then return the header with this token.
    """
    given = headers.get("Authorization", "")
    if given:
        return given
    token = next((it for it in _protocols(headers) if it.startswith(BEARER)), "")
    if not token:
        return ""
    coded = token.removeprefix(BEARER)
    try:
        found = b64decode(coded + "=" * (-len(coded) % 4), altchars=b"-_", validate=True).decode()
    except (Base64Error, ValueError):
        found = coded  # an invalid token, which authentication rejects
    return f"Bearer {found}"


def _protocols(headers: Headers) -> list[str]:
    offered = headers.get("Sec-WebSocket-Protocol", "").split(",", limits.WEBSOCKET_PROTOCOLS)
    return [it for part in offered if (it := part.strip())]  # without the empty text of a missing header


def head(headers: Headers, date: bytes, audit_id: str) -> bytes:
    """Return the 101 response, with a known subprotocol if the client offers one.

    Otherwise it has the first offered subprotocol, if there is one. The frames of a watch are equal for all
    subprotocols.
    """
    key = headers.get("Sec-WebSocket-Key", "").strip().encode()
    accept = b64encode(hashlib.sha1(key + _GUID, usedforsecurity=False).digest())
    offered = [it for it in _protocols(headers) if not it.startswith(BEARER)]
    chosen = next((it for it in offered if it in KNOWN_PROTOCOLS), offered[0] if offered else "")
    protocol = f"Sec-WebSocket-Protocol: {chosen}\r\n".encode() if chosen else b""
    return (
        b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        b"Sec-WebSocket-Accept: %b\r\n%b%bAudit-Id: %b\r\n\r\n" % (accept, protocol, date, audit_id.encode())
    )


# --- frames ---


def frame(opcode: int, payload: bytes) -> bytes:
    """Return one unmasked, unfragmented frame."""
    size = len(payload)
    if size <= _CONTROL_SIZE:
        return bytes((_FINAL | opcode, size)) + payload
    if size < 1 << 16:
        return bytes((_FINAL | opcode, 126)) + size.to_bytes(2, "big") + payload
    return bytes((_FINAL | opcode, 127)) + size.to_bytes(8, "big") + payload


def split(data: bytes) -> tuple[int, bytes, bytes]:
    """Return opcode and payload of the first frame, and the remaining bytes.

    Frames of the server are not masked.
    """
    size, start = data[1], 2
    if size > _CONTROL_SIZE:
        start = 4 if size == 126 else 10
        size = int.from_bytes(data[2:start], "big")
    return data[0] & 0xF, data[start : start + size], data[start + size :]


def form(binary: bool) -> Form:
    """Return the encoding of events as frames: text for JSON, binary for protobuf.

    A text frame contains a line of JSON, a binary frame contains a protobuf message.
    """
    opcode = BINARY if binary else TEXT
    end = b"" if binary else b"\n"

    def event(data: bytes, revision: int = 0) -> bytes:
        return frame(opcode, data + end)

    return Form(
        key=("websocket", binary),
        event=event,
        initial=event,
        bookmark=lambda data, revision, end: event(data),
        error=event,
        content_type="",
    )


class WebSocketSink(WatchSink):
    """Sends a watch in WebSocket frames.

    ``receive`` is called after the 101 with the parser of client frames.
    """

    __slots__ = ("_pinging", "allowed", "receive")

    def __init__(self, transport: Transport, head: bytes, columns: bytes, done: asyncio.Future[None]) -> None:
        super().__init__(transport, head, columns, done)
        self.receive: Callable[[Receiver], None] | None = None
        self.allowed = limits.WEBSOCKET_INPUT  # bytes that the client may send until the next ping
        self._pinging: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Send the 101, read frames of the client, and start the pings."""
        super().start()
        if self.receive is not None and not self.closed:
            self.receive(Receiver(self))
        self._ping()

    def _ping(self) -> None:
        if self.closed:
            return
        self.allowed = limits.WEBSOCKET_INPUT
        if self._pinging is not None and not self.paused:
            self.write(frame(PING, b""))
        self._pinging = asyncio.get_running_loop().call_later(WEBSOCKET_PING, self._ping)

    def send_close(self, code: int) -> None:
        """Close the stream with a code."""
        if not self.closed:
            self.write(frame(CLOSE, code.to_bytes(2, "big")))
            self.lost()

    def _with_columns(self, data: bytes) -> bytes:
        opcode, payload, rest = split(data)
        if opcode != TEXT or NO_COLUMNS not in payload:
            return data
        columns, self._columns = self._columns, b""
        return frame(TEXT, payload.replace(NO_COLUMNS, columns, 1)) + rest

    def _finished(self) -> bool:
        """Send the close frame; return False, since the connection cannot be reused."""
        self.write(frame(CLOSE, NORMAL.to_bytes(2, "big")))
        return False

    def _close(self) -> None:
        if self._pinging is not None:
            self._pinging.cancel()
        super()._close()


class Receiver:
    """Reads the frames of a client: responds to pings and ends the watch at a close frame.

    An invalid frame also ends the watch. Other frames are skipped.
    """

    __slots__ = ("_at", "_buffer", "_pongs", "_sink", "_skip", "_within")

    def __init__(self, sink: WebSocketSink) -> None:
        self._sink = sink
        self._buffer = b""
        self._at = 0  # offset of the next frame in the buffer
        self._skip = 0  # bytes of the current frame that have not arrived
        self._pongs: list[bytes] = []
        self._within = False  # true within a message of several frames

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        """Parse bytes of the connection; the returned pair is the interface of aiohttp's parsers."""
        sink = self._sink
        skipped = min(self._skip, len(data))
        self._skip -= skipped
        self._buffer += data[skipped:]
        while not sink.closed and self._frame():
            pass
        self._answer()
        self._buffer = b"" if sink.closed else self._buffer[self._at :]
        self._at = 0
        return False, b""

    def feed_eof(self) -> None:
        """Do nothing: the connection closes the sink."""

    def _frame(self) -> bool:
        """Parse one frame of the buffer.

        Return False if it is incomplete, or if it has ended the stream.
        """
        data, start = self._buffer, self._at
        if len(data) < start + 2:
            return False
        opcode, size, at = data[start] & 0xF, data[start + 1] & 0x7F, start + 2
        if data[start] & 0x70 or not data[start + 1] & _MASKED:  # no extension was negotiated; clients must mask
            return self._refuse(PROTOCOL_ERROR)
        final = bool(data[start] & _FINAL)
        if opcode & _CONTROL:
            return self._control(opcode, size, final=final)
        if opcode > BINARY or self._within is not (opcode == CONTINUATION):
            return self._refuse(PROTOCOL_ERROR)
        if size > _CONTROL_SIZE:
            at += 2 if size == 126 else 8
            if len(data) < at:
                return False
            size = int.from_bytes(data[start + 2 : at], "big")
        if not self._may_send(size):
            return False
        self._within = not final
        self._at = min(end := at + 4 + size, len(data))
        self._skip = end - self._at
        return True

    def _control(self, opcode: int, size: int, *, final: bool) -> bool:
        if size > _CONTROL_SIZE or not final or opcode not in (CLOSE, PING, PONG):
            return self._refuse(PROTOCOL_ERROR)
        data, start = self._buffer, self._at
        end = start + 6 + size
        if len(data) < end or not self._may_send(size):
            return False
        self._at = end
        if opcode != PONG:
            mask = data[start + 2 : start + 6] * (size // 4 + 1)
            payload = bytes(byte ^ key for byte, key in zip(data[start + 6 : end], mask, strict=False))
            if opcode == CLOSE:
                return self._refuse(_close_code(payload))
            self._pongs.append(frame(PONG, payload))
        return True

    def _may_send(self, size: int) -> bool:
        """Count a frame, since even small frames cost time.

        Close the stream if the client sends too much.
        """
        self._sink.allowed -= size + WEBSOCKET_FRAME
        return self._sink.allowed >= 0 or self._refuse(TOO_BIG)

    def _answer(self) -> None:
        """Respond to pings, unless the client reads too slowly."""
        if self._pongs and not self._sink.paused:
            self._sink.write(b"".join(self._pongs))
        self._pongs.clear()

    def _refuse(self, code: int) -> bool:
        """Close the stream with a code."""
        self._answer()
        self._sink.send_close(code)
        return False


def _close_code(payload: bytes) -> int:
    """Return the code of the response to a close frame."""
    code = int.from_bytes(payload[:2], "big") if payload else NORMAL
    if len(payload) == 1 or not 1000 <= code < 5000 or code in _UNSENT:
        code = PROTOCOL_ERROR
    try:
        payload[2:].decode()
    except UnicodeDecodeError:
        code = NO_TEXT
    return code
