"""Failed TLS handshakes, and plain HTTP on a TLS port."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from pathlib import Path

import pytest

from apiext.auth import certificates
from apiext.http import limits
from apiext.http import tls as listener
from tests.unit.http.support import COLLECTION, Shelf, connected, on_uvloop, serving, until

TELLING = b"HTTP/1.0 400 Bad Request\r\n"
# upstream: Go's server sends this response
BODY = b"\r\n\r\nClient sent an HTTP request to an HTTPS server.\n"


def contexts(directory: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return the context of a server and that of its clients."""
    authority = certificates.load_authority(directory)
    pair = certificates.load_serving(directory, authority, certificates.serving_names("127.0.0.1"))
    ours = ssl.create_default_context(cafile=str(directory / "ca.crt"))
    return listener.tls_context(str(pair.certificate), str(pair.key)), ours


@on_uvloop
async def test_plain_http_on_a_tls_port_gets_400(tmp_path: Path) -> None:
    tls, ours = contexts(tmp_path)
    shelf = Shelf()
    async with serving(shelf, tls=tls) as listening:
        for method in ("GET", "POST", "PUT", "HEAD"):
            async with connected(listening) as client, asyncio.timeout(20):
                client.send(method, COLLECTION, b"{}" if method.startswith("P") else b"")
                answer = await client.reader.readuntil(BODY)
                assert answer.startswith(TELLING)
                assert b"Content-Length: 48\r\n" in answer  # so clients need not wait for the end of the connection
        async with connected(listening, ours) as client:
            assert (await client.ask("GET", COLLECTION)).code == 200
    assert len(shelf.calls) == 1


@pytest.mark.parametrize(
    "sent", [b"GET / HTTP/1.1\r\n\r\n", b"\x80\x01nonsense that is no record", b"PRI * HTTP/2.0\r\n"]
)
@on_uvloop
async def test_connection_without_a_handshake_is_closed(
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


TRUST = "tlsv1 alert unknown ca"
FAILURES = {
    "the client does not trust the server": (None, TRUST),
    "plain HTTP": (b"GET / HTTP/1.1\r\n\r\n", "the client speaks plain HTTP"),
    "no record of TLS": (b"\x16\x03\x01\x00\x05nonsense", "unexpected message"),
    "the client closes": (b"", ""),
}


def connect(port: int, context: ssl.SSLContext) -> None:
    """Do a TLS handshake and close the connection."""
    with socket.create_connection(("127.0.0.1", port)) as client:
        context.wrap_socket(client, server_hostname="127.0.0.1").close()


@pytest.mark.parametrize(("sent", "reason"), FAILURES.values(), ids=FAILURES)
@on_uvloop
async def test_a_failed_handshake_is_logged_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, sent: bytes | None, reason: str
) -> None:
    listener._LINES._due = 0.0
    tls, _ = contexts(tmp_path)
    counted = listener.HANDSHAKE_ERRORS.slot()
    before = counted.value
    async with serving(Shelf(), tls=tls) as listening, asyncio.timeout(20):
        for _ in range(3):
            if sent is None:
                with pytest.raises(ssl.SSLCertVerificationError):  # a client of asyncio sends no alert
                    await asyncio.to_thread(connect, listening.port, ssl.create_default_context())
                continue
            async with connected(listening) as client:
                client.writer.write(sent)
                if sent:
                    await client.reader.read(1)
        await until(lambda: counted.value == before + 3 or not reason)
    assert counted.value == before + (3 if reason else 0)
    lines = [line for line in caplog.records if line.name == "apiext.http.tls"]
    assert len(lines) == (1 if reason else 0), "one line in an interval"
    for line in lines:
        assert line.levelno == logging.WARNING
        assert reason in line.getMessage()
        assert reason in line.fields["reason"]  # type: ignore[attr-defined]


@on_uvloop
async def test_untrusted_client_certificate_gets_an_alert_and_a_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    listener._LINES._due = 0.0
    for name in ("ours", "foreign"):
        (tmp_path / name).mkdir()
    tls, ours = contexts(tmp_path / "ours")
    listener.request_client_certificates(tls, str(tmp_path / "ours" / "ca.crt"))
    foreign = certificates.load_authority(tmp_path / "foreign")
    pair = certificates.load_serving(tmp_path / "foreign", foreign, certificates.serving_names("127.0.0.1"))
    ours.load_cert_chain(pair.certificate, pair.key)
    async with serving(Shelf(), tls=tls) as listening, asyncio.timeout(20):
        reader, writer = await asyncio.open_connection("127.0.0.1", listening.port, ssl=ours)
        writer.write(b"GET / HTTP/1.1\r\n\r\n")
        with pytest.raises(ssl.SSLError, match=r"(?i)alert.unknown.ca"):
            await reader.read()
        writer.close()
    assert "the client's certificate: " in caplog.text
