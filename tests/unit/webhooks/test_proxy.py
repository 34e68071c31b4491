"""Connections to webhooks through a proxy."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from apiext.conformance.support import admission_webhook as hooks
from apiext.webhooks import errors, proxy
from apiext.webhooks.client import Client
from apiext.webhooks.proxy import Proxy, proxy_of, tunnel
from apiext.webhooks.target import target_of
from tests.support.processes import free_port

pytestmark = pytest.mark.rows("VER-010")

ENVIRONMENTS: list[tuple[dict[str, str], Proxy | None]] = [
    ({}, None),
    ({"HTTP_PROXY": "http://p:1"}, None),
    ({"HTTPS_PROXY": "http://p.example.com:3128"}, Proxy("p.example.com", 3128)),
    ({"https_proxy": "p.example.com"}, Proxy("p.example.com", 80)),
    ({"HTTPS_PROXY": "http://me:a%20b@p:1", "NO_PROXY": ".svc"}, Proxy("p", 1, "bWU6YSBi", ".svc")),
]
UNUSABLE = [
    "socks5://p:1", "http://proxy:notaport", "http://proxy:99999", "http://[::1", "http://user:pa#ss@proxy:3128",
    "http://user:pa?ss@proxy:3128", "user:pass", "http://", "http://a b:1", "http://a..b:1", f"http://{'a' * 64}:1",
    "http://us\udcffer:pw@proxy:1", "http://[::1]x:1",
]  # fmt: skip
EXCEPTIONS = [  # golang.org/x/net/http/httpproxy
    ("hook.example:9443", "hook.example", 9443, False),
    ("hook.example:9443", "hook.example", 443, True),
    ("hook.example:9443", "a.hook.example", 9443, False),
    ("hook.example:", "hook.example", 443, False),
    (".example:9443", "hook.example", 9443, False),
    (".example", "example", 443, True),
    ("*.example:443", "hook.example", 443, False),
    ("*.example", "example", 443, True),
    ("*hook.example", "hook.example", 443, True),
    ("Hook.Example:443", "hook.example", 443, False),
    ("bücher.example", "xn--bcher-kva.example", 443, False),
    ("10.0.0.1:9443", "10.0.0.1", 9443, False),
    ("10.0.0.1:9443", "10.0.0.1", 443, True),
    ("10.0.0.1", "10.0.0.1", 443, False),
    ("fd00::1", "fd00::1", 443, False),
    ("[fd00::1]:9443", "fd00::1", 9443, False),
    ("[fd00::1]:9443", "fd00::1", 443, True),
    ("[fd00::1]", "fd00::1", 443, True),
    ("fd00::/8", "fd00::1", 443, False),
    ("10.0.0.0/8", "fd00::1", 443, True),
    (":443", "hook.example", 443, True),
    (" , ,*", "hook.example", 443, False),
    ("a, hook.example:1 ,b", "hook.example", 1, False),
]
HOSTS = [
    ("a.example.com", True), ("localhost", False), ("127.0.0.1", False), ("::1", False), ("hook.system.svc", False),
    ("10.1.2.3", False), ("11.1.2.3", True), ("exact.example.org", False), ("other.example.org", True),
    ("below.exact.example.org", False), ("inexact.example.org", True),
]  # fmt: skip


@pytest.mark.parametrize(("environment", "found"), ENVIRONMENTS, ids=str)
def test_proxy_is_read_from_environment(environment: dict[str, str], found: Proxy | None) -> None:
    assert proxy_of(environment) == found


@pytest.mark.parametrize("text", UNUSABLE, ids=range(len(UNUSABLE)))
@pytest.mark.parametrize("name", ["HTTPS_PROXY", "https_proxy"])
def test_invalid_proxy_is_ignored_and_reported_without_url(name: str, text: str) -> None:
    assert proxy_of({name: text}) is None
    fault = proxy.fault({name: text})
    assert fault == f"{name} is not the URL of a proxy, http://host:port: webhooks are called without a proxy"


@pytest.mark.parametrize("environment", [environment for environment, _ in ENVIRONMENTS], ids=str)
def test_valid_proxy_has_no_fault(environment: dict[str, str]) -> None:
    assert proxy.fault(environment) == ""


@pytest.mark.parametrize(("host", "served"), HOSTS)
def test_no_proxy_hosts_bypass_proxy(host: str, served: bool) -> None:
    assert Proxy("p", 1, "", ".svc,10.0.0.0/8,exact.example.org").serves(host, 443) is served


@pytest.mark.parametrize(("exceptions", "host", "port", "served"), EXCEPTIONS)
def test_no_proxy_is_parsed_as_in_go(exceptions: str, host: str, port: int, served: bool) -> None:
    assert Proxy("p", 1, "", exceptions).serves(host, port) is served


class Tunnels:
    """A proxy that connects every tunnel to one port of this machine."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.answer = b"HTTP/1.1 200 Connection established\r\n\r\n"
        self.asked: list[bytes] = []
        self.tasks: list[asyncio.Task[Any]] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.tasks.append(task)
        writers = [writer]
        try:
            self.asked.append(await reader.readuntil(b"\r\n\r\n"))
            writer.write(self.answer)
            if b" 200 " in self.answer:
                inner, outer = await asyncio.open_connection("127.0.0.1", self.port)
                writers.append(outer)
                await asyncio.gather(self.pump(reader, outer), self.pump(inner, writer))
        finally:
            for each in writers:
                each.close()
                with contextlib.suppress(OSError):
                    await each.wait_closed()

    async def pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65536):
                sink.write(data)
        sink.close()


@contextlib.asynccontextmanager
async def running(tunnels: Tunnels) -> AsyncIterator[int]:
    server = await asyncio.start_server(tunnels.serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]
        await asyncio.gather(*tunnels.tasks)


async def test_webhook_is_called_through_proxy_tunnel(tmp_path: Path) -> None:
    with hooks.running_webhook(tmp_path, ("hook.example.com",)) as webhook:
        tunnels = Tunnels(webhook.port)
        async with running(tunnels) as port:
            client = Client(environment={"HTTPS_PROXY": f"http://me:pw@127.0.0.1:{port}"})
            target = target_of({"url": "https://hook.example.com/x", "caBundle": webhook.authority.bundle})
            for _ in range(3):
                assert b"allowed" in await client.post(target, b'{"request":{}}', 5)
            assert webhook.connections == 1
            (asked,) = tunnels.asked
            assert asked.startswith(b"CONNECT hook.example.com:443 HTTP/1.1\r\nHost: hook.example.com:443\r\n")
            assert b"Proxy-Authorization: Basic bWU6cHc=\r\n" in asked
            stranger = target_of({"url": "https://other.example.com/x", "caBundle": webhook.authority.bundle})
            with pytest.raises(errors.Untrusted, match="x509"):
                await client.post(stranger, b"{}", 5)
            await client.close()


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (b"HTTP/1.1 407 Proxy Authentication Required\r\n\r\n", "Proxy Authentication Required$"),
        (b"", "proxyconnect tcp: unexpected EOF$"),
        (b"nonsense\r\n\r\n", "proxyconnect tcp: malformed answer$"),
    ],
)
async def test_proxy_refusal_is_an_error(answer: bytes, text: str) -> None:
    tunnels = Tunnels(0)
    tunnels.answer = answer
    async with running(tunnels) as port:
        client = Client(environment={"HTTPS_PROXY": f"http://127.0.0.1:{port}"})
        with pytest.raises(errors.CallError, match=text):
            await client.post(target_of({"url": "https://hook.example.com/"}), b"{}", 5)
        await client.close()


async def test_unreachable_proxy_is_an_error() -> None:
    port = free_port()
    client = Client(environment={"HTTPS_PROXY": f"http://127.0.0.1:{port}"})
    text = f"proxyconnect tcp: dial tcp 127.0.0.1:{port}: connect: connection refused$"
    with pytest.raises(errors.Unreachable, match=text):
        await client.post(target_of({"url": "https://hook.example.com/"}), b"{}", 5)


@pytest.mark.parametrize("host", ["a:80 HTTP/1.1\r\nX: y\r\n\r\n", "a b", "a\nb", "ü", ""], ids=repr)
async def test_invalid_host_is_not_sent_to_proxy(host: str) -> None:
    tunnels = Tunnels(0)
    tunnels.answer = b"HTTP/1.1 503 no\r\n\r\n"
    async with running(tunnels) as port:
        to, context = Proxy("127.0.0.1", port), ssl.create_default_context()
        with pytest.raises(errors.Unreachable, match=r"no such host$"):
            await tunnel(to, host, 443, context, "a")
    assert not tunnels.asked
