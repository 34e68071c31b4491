"""Plain HTTP where TLS is spoken."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest

from apiext.auth import certificates
from apiext.http import limits, server
from tests.unit.http.support import COLLECTION, Shelf, connected, on_uvloop, serving

TELLING = b"HTTP/1.0 400 Bad Request\r\n"
BODY = b"\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"


def contexts(directory: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return the context of a server and that of its clients."""
    authority = certificates.load_authority(directory)
    pair = certificates.load_serving(directory, authority, certificates.serving_names("127.0.0.1"))
    ours = ssl.create_default_context(cafile=str(directory / "ca.crt"))
    return server.tls_context(str(pair.certificate), str(pair.key)), ours


@on_uvloop
async def test_a_plain_request_is_told_that_tls_is_spoken(tmp_path: Path) -> None:
    tls, ours = contexts(tmp_path)
    shelf = Shelf()
    async with serving(shelf, tls=tls) as listening:
        for method in ("GET", "POST", "PUT", "HEAD"):
            async with connected(listening) as client, asyncio.timeout(20):
                client.send(method, COLLECTION, b"{}" if method.startswith("P") else b"")
                answer = await client.reader.readuntil(BODY)
                assert answer.startswith(TELLING)
                assert b"Content-Length: 48\r\n" in answer  # who waits for the end is not kept waiting
        async with connected(listening, ours) as client:
            assert (await client.ask("GET", COLLECTION)).code == 200
    assert len(shelf.calls) == 1


@pytest.mark.parametrize(
    "sent", [b"GET / HTTP/1.1\r\n\r\n", b"\x80\x01nonsense that is no record", b"PRI * HTTP/2.0\r\n"]
)
@on_uvloop
async def test_a_connection_without_tls_has_an_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    monkeypatch.setattr(limits, "HANDSHAKE", 0.3)
    tls, _ = contexts(tmp_path)
    async with serving(Shelf(), tls=tls) as listening, connected(listening) as client:
        client.writer.write(sent)
        try:
            received = await asyncio.wait_for(client.reader.read(), 20)
        except ConnectionResetError:
            received = b""
        assert received.startswith(TELLING) is sent.startswith(b"GET")
