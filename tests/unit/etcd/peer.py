"""The server side of an HTTP/2 connection in memory; a test sends each frame."""

import asyncio
from dataclasses import dataclass
from typing import Any

import hpack

from apiext.etcd import frames
from apiext.etcd.frames import frame, settings
from apiext.etcd.h2 import Connection

OK_HEAD = [(b":status", b"200"), (b"content-type", b"application/grpc")]
OK_TRAILERS = [(b"grpc-status", b"0"), (b"grpc-message", b"")]


@dataclass
class Frame:
    kind: int
    flags: int
    stream: int
    payload: bytes


def message(body: bytes, compressed: int = 0) -> bytes:
    return bytes((compressed,)) + len(body).to_bytes(4, "big") + body


class Peer(asyncio.Transport):
    """A transport whose peer is the test."""

    def __init__(self, connection: Connection) -> None:
        super().__init__()
        self.connection = connection
        self.out = b""
        self.closed = self.aborted = False
        self._encoder = hpack.Encoder()
        self._encoder.header_table_size = 0
        self._decoder = hpack.Decoder()
        self._greeted = False
        connection.connection_made(self)

    # -- the transport's side

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.out += bytes(data)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            asyncio.get_running_loop().call_soon(self.connection.connection_lost, None)

    def abort(self) -> None:
        self.aborted = True
        self.close()

    # -- the test's side

    def say(self, *parts: bytes, pieces: int = 0) -> None:
        """Send frames to the client, in one piece or in pieces of ``pieces`` bytes."""
        data = b"".join(parts)
        for at in range(0, len(data), pieces or len(data) or 1):
            if not self.closed:
                self.connection.data_received(data[at : at + (pieces or len(data))])

    def greet(self, values: dict[int, int] | None = None) -> None:
        self.say(settings(values or {}))

    async def heard(self) -> list[Frame]:
        """Return the frames that the client has sent since the last call."""
        await turn()
        data, self.out = self.out, b""
        if not self._greeted:
            assert data.startswith(frames.PREFACE)
            data = data[len(frames.PREFACE) :]
            self._greeted = True
        heard = []
        while data:
            word, flags, stream = frames.FRAME_HEAD.unpack_from(data)
            size = word >> 8
            heard.append(Frame(word & 0xFF, flags, stream, data[9 : 9 + size]))
            data = data[9 + size :]
        return heard

    def read_head(self, block: bytes) -> dict[bytes, bytes]:
        return {bytes(name): bytes(text) for name, text in self._decoder.decode(block, raw=True)}

    def block(self, fields: list[tuple[bytes, bytes]]) -> bytes:
        return bytes(self._encoder.encode(fields))

    def head(self, stream: int, fields: list[tuple[bytes, bytes]] | None = None, end: bool = False) -> bytes:
        flags = frames.END_HEADERS | (frames.END_STREAM if end else 0)
        return frame(frames.HEADERS, flags, stream, self.block(fields or OK_HEAD))

    def trailers(self, stream: int, code: int = 0, text: str = "") -> bytes:
        fields = [(b"grpc-status", str(code).encode()), (b"grpc-message", text.encode())]
        return self.head(stream, fields, end=True)

    def answer(self, stream: int, body: bytes) -> bytes:
        """Return the frames of a unary response."""
        return self.head(stream) + frame(frames.DATA, 0, stream, message(body)) + self.trailers(stream)


async def turn() -> None:
    """Run the callbacks that are due."""
    for _ in range(4):
        await asyncio.sleep(0)


async def connected(values: dict[int, int] | None = None) -> Peer:
    """Return a peer after the exchange of the connection prefaces."""
    peer = Peer(Connection("etcd:2379", "http", asyncio.get_running_loop()))
    peer.greet(values)
    await peer.heard()
    return peer
