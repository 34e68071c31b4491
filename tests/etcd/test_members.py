"""Choice of etcd members and users.

The cases are learners, users with access to one prefix, and names with several addresses.
"""

from __future__ import annotations

import asyncio
import socket
import time
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from apiext.etcd import dial, errors
from apiext.etcd.client import Etcd
from apiext.etcd.transport import TLS, Dial, Endpoint
from apiext.etcd.versions import orders_progress
from apiext.storage.keys import Keys
from tests.etcd.conftest import BINARIES, TRANSPORTS, Binary, free_port, running
from tests.etcd.test_calls import Listener
from tests.etcd.test_faults import NEWEST, post

BOTH = pytest.mark.parametrize("transport", TRANSPORTS)


def peers(name: str, port: int, cluster: str) -> list[str]:
    """Return flags of a member that other members can reach."""
    url = f"http://127.0.0.1:{port}"
    return [f"--name={name}", f"--listen-peer-urls={url}", f"--initial-advertise-peer-urls={url}",
            f"--initial-cluster={cluster}"]  # fmt: skip


@BOTH
async def test_client_leaves_a_learner_for_a_voter(tmp_path: Path, transport: Dial) -> None:
    first, second = free_port(), free_port()
    for name in ("voter", "learner"):
        (tmp_path / name).mkdir()
    cluster = f"voter=http://127.0.0.1:{first}"
    with running(NEWEST, tmp_path / "voter", *peers("voter", first, cluster)) as voter:
        await asyncio.to_thread(
            post, voter, "cluster/member/add", peerURLs=[f"http://127.0.0.1:{second}"], isLearner=True
        )
        flags = [
            *peers("learner", second, f"{cluster},learner=http://127.0.0.1:{second}"),
            "--initial-cluster-state=existing",
        ]
        with running(NEWEST, tmp_path / "learner", *flags) as learner:
            client = Etcd([learner.url, voter.url], transport=transport)
            await client.start()
            heard = Listener()
            heard.watch(client, b"/", await client.head_revision() + 1)
            assert (await client.create(b"/a", b"1")).ok
            await heard.until(1)
            voter.stop()
            voter.start()
            written = False
            async with asyncio.timeout(30):
                while not written:  # a write during the stop may fail, or its outcome may be unknown
                    with suppress(errors.Unavailable, errors.UnknownOutcome):
                        written = (await client.create(f"/{time.monotonic()}".encode(), b"1")).ok
                await heard.until(2)
            await client.close()


class UnavailableProxy(grpc.GenericRpcHandler):  # type: ignore[misc]
    """A gRPC proxy without an available etcd."""

    def service(self, details: grpc.HandlerCallDetails) -> Any:
        async def refuse(_: Any, context: grpc.aio.ServicerContext[Any, Any]) -> None:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "no healthy upstream")

        of = grpc.stream_stream_rpc_method_handler if details.method.endswith("/Watch") else None
        return (of or grpc.unary_unary_rpc_method_handler)(refuse)


@BOTH
async def test_client_leaves_a_proxy_without_an_etcd(tmp_path: Path, transport: Dial) -> None:
    port, proxy = free_port(), grpc.aio.server()
    proxy.add_generic_rpc_handlers((UnavailableProxy(),))
    proxy.add_insecure_port(f"127.0.0.1:{port}")
    await proxy.start()
    with running(NEWEST, tmp_path) as etcd:
        client = Etcd([f"http://127.0.0.1:{port}", etcd.url], transport=transport)
        await client.start(10)
        heard = Listener()
        heard.watch(client, b"/", await client.head_revision() + 1)
        assert (await client.create(b"/a", b"1")).ok
        await heard.until(1)
        await client.close()
    await proxy.stop(None)


@BOTH
@pytest.mark.parametrize("binary", BINARIES, ids=lambda binary: binary.text)
async def test_client_needs_access_to_one_prefix_only(tmp_path: Path, binary: Binary, transport: Dial) -> None:
    with running(binary, tmp_path) as etcd:
        for name in ("root", "app"):
            post(etcd, "auth/user/add", name=name, password="secret")
            post(etcd, "auth/role/add", name=name)
            post(etcd, "auth/user/grant", user=name, role=name)
        whole = {"permType": "READWRITE", "key": "L3JlZ2lzdHJ5Lw==", "range_end": "L3JlZ2lzdHJ5MA=="}  # /registry/
        post(etcd, "auth/role/grant", name="app", perm=whole)
        post(etcd, "auth/enable")
        keys = Keys("/registry")
        client = Etcd([etcd.url], transport=transport, user="app", password="secret", probe=keys.absent.encode())
        await client.start()
        heard = Listener()
        heard.watch(client, b"/registry/", await client.head_revision() + 1)
        assert (await client.create(b"/registry/a", b"1")).ok
        await heard.until(1)
        assert await client.get(keys.absent.encode()) is None
        assert client.progress_requests_ok is orders_progress(binary.version), "also where it is not told"
        with pytest.raises(errors.AuthError):
            await client.create(b"/another", b"1")
        await client.close()


async def test_dial_tries_each_address_of_a_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The first address never answers: the accept queue of its socket is full."""
    loop = asyncio.get_running_loop()
    silent = socket.create_server(("127.0.0.1", 0), backlog=0)
    with closing(silent), running(NEWEST, tmp_path) as etcd:
        held = [socket.socket() for _ in range(8)]
        for one in held:
            one.setblocking(False)
            one.connect_ex(silent.getsockname())

        async def resolve(host: str, port: int, **_: Any) -> list[Any]:
            addresses = [silent.getsockname(), ("127.0.0.1", port)]
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", address) for address in addresses]

        monkeypatch.setattr(loop, "getaddrinfo", resolve)
        reached = await dial._reach(loop, Endpoint("http", "etcd.example", etcd.port))
        with closing(reached):
            assert reached.getpeername()[1] == etcd.port
        for one in held:
            one.close()


async def test_dial_reports_the_error_of_the_last_address(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()

    async def resolve(host: str, port: int, **_: Any) -> list[Any]:
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", free_port())) for _ in range(2)]

    monkeypatch.setattr(loop, "getaddrinfo", resolve)
    with pytest.raises(errors.EtcdError, match="Connect"):
        await dial.dial(Endpoint("http", "etcd.example", 1), TLS(), lambda work: work.close())
