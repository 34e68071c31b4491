"""HTTP/2: frames, header blocks of requests, and the decoder of response header blocks."""

import struct
from urllib.parse import unquote

import hpack

from apiext.etcd import limits
from apiext.etcd.errors import INTERNAL, PERMISSION_DENIED, UNAUTHENTICATED, UNAVAILABLE, UNKNOWN

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
DATA, HEADERS, PRIORITY, RST_STREAM, SETTINGS, PUSH_PROMISE, PING, GOAWAY, WINDOW_UPDATE, CONTINUATION = range(10)
END_STREAM, ACK, END_HEADERS, PADDED, PRIORITISED = 0x1, 0x1, 0x4, 0x8, 0x20
PROTOCOL_ERROR, FLOW_CONTROL_ERROR, FRAME_SIZE_ERROR, REFUSED_STREAM, CANCEL = 1, 3, 6, 7, 8
HEADER_TABLE_SIZE, ENABLE_PUSH, MAX_CONCURRENT_STREAMS, INITIAL_WINDOW_SIZE, MAX_FRAME_SIZE = 1, 2, 3, 4, 5

FRAME_HEAD = struct.Struct(">IBI")  # length << 8 | type, flags, stream
PREFIX = struct.Struct(">BI")  # prefix of a gRPC message: compressed flag, length
MESSAGE_HEAD = struct.Struct(">IBIBI")  # FRAME_HEAD, then PREFIX
SETTING = struct.Struct(">HI")
MAX_WINDOW = (1 << 31) - 1
MAX_STREAM_ID = (1 << 31) - 1


class ProtocolFault(Exception):
    """The peer violated HTTP/2. The client must close the connection with this error code."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """Return one frame."""
    return len(payload).to_bytes(3, "big") + bytes((kind, flags)) + stream.to_bytes(4, "big") + payload


def settings(values: dict[int, int]) -> bytes:
    """Return a SETTINGS frame."""
    return frame(SETTINGS, 0, 0, b"".join(SETTING.pack(name, value) for name, value in values.items()))


def window_update(stream: int, amount: int) -> bytes:
    """Return a WINDOW_UPDATE frame: the peer may send ``amount`` more bytes."""
    return frame(WINDOW_UPDATE, 0, stream, amount.to_bytes(4, "big"))


def unpad(payload: bytes) -> bytes:
    """Return the payload of a PADDED frame without its padding; raise ProtocolFault."""
    if not payload or payload[0] >= len(payload):
        raise ProtocolFault(PROTOCOL_ERROR, "padding is longer than its frame")
    return payload[1 : len(payload) - payload[0]]


def _literal(text: bytes) -> bytes:
    # An HPACK string without Huffman coding begins with its length, an integer with a 7-bit prefix.
    size = len(text)
    if size < 127:
        return bytes((size,)) + text
    size -= 127
    out = bytearray(b"\x7f")
    while size >= 128:
        out.append(size & 127 | 128)
        size >>= 7
    out.append(size)
    return bytes(out) + text


def request_block(scheme: str, authority: str, path: str, extra: dict[str, str]) -> bytes:
    """Return the header block of a gRPC call.

    Any connection can use it, since it adds nothing to the HPACK table.
    """
    block = (
        b"\x83"  # :method POST
        + (b"\x87" if scheme == "https" else b"\x86")
        + b"\x04"  # :path
        + _literal(path.encode())
        + b"\x01"  # :authority
        + _literal(authority.encode())
        + b"\x0f\x10"  # content-type
        + _literal(b"application/grpc")
        + b"\x00"
        + _literal(b"te")
        + _literal(b"trailers")
    )
    # The additional headers are "never indexed" (RFC 7541, 6.2.3), since one of them may be the auth token.
    return block + b"".join(b"\x10" + _literal(name.encode()) + _literal(text.encode()) for name, text in extra.items())


Head = tuple[int, int, str]
"""(HTTP status, 0 if absent; gRPC status, -1 if absent; gRPC message)"""

_HTTP_TO_GRPC = {400: INTERNAL, 401: UNAUTHENTICATED, 403: PERMISSION_DENIED, 429: UNAVAILABLE} | dict.fromkeys(
    (502, 503, 504), UNAVAILABLE
)


def http_error(status: int) -> tuple[int, str]:
    """Return (gRPC status, text) for a failed HTTP response that is not from gRPC."""
    return _HTTP_TO_GRPC.get(status, UNKNOWN), f"the endpoint answered with HTTP status {status}"


class HeaderReader:
    """Decoder of header blocks of responses.

    If the peer uses no dynamic HPACK table, up to 64 blocks without an error are cached.
    """

    def __init__(self) -> None:
        self._hpack = hpack.Decoder(max_header_list_size=limits.MAX_HEADERS)
        self.cached: dict[bytes, Head] = {}
        self._stateless = True

    def read(self, block: bytes) -> Head:
        """Decode the block; raise ProtocolFault for an invalid block."""
        head = self.cached.get(block)
        if head is not None:
            return head
        head = self._decode(block)
        if self._hpack.header_table.dynamic_entries:
            # Later blocks may refer to the HPACK table, so the decoder must read every block in order.
            self._stateless = False
            self.cached = {}
        elif self._stateless and head[1] <= 0 and len(self.cached) < 64:
            self.cached[block] = head
        return head

    def _decode(self, block: bytes) -> Head:
        try:
            fields = dict(self._hpack.decode(block, raw=True))
            status = int(fields.get(b":status", b"0"))
            code = int(fields.get(b"grpc-status", b"-1"))
        except (hpack.HPACKError, ValueError) as fault:
            raise ProtocolFault(PROTOCOL_ERROR, f"bad response headers: {fault}") from fault
        return status, code, unquote(fields.get(b"grpc-message", b"").decode("utf-8", "replace"))
