"""Calls of a plug-in over gRPC on a unix socket, and their errors."""

import asyncio
import os
import uuid
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import SimpleNamespace

import grpc
import pytest

from apiext.etcd.errors import UNAVAILABLE, EtcdError
from apiext.kms import limits, metrics
from apiext.kms import plugin as plugin_module
from apiext.kms.messages import DECRYPT, ENCRYPT
from apiext.kms.plugin import Plugin, PluginError, code_name, socket_of
from tests.support import kms_plugin
from tests.support.kms_plugin import NOTE, running_plugin, turned

pytestmark = pytest.mark.rows("OPS-003")
NOTES = {NOTE: b"by key-1"}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[kms_plugin.Plugin]:
    """Run a plug-in."""
    with running_plugin(tmp_path / "kms.sock") as running:
        yield running


@pytest.fixture
async def plugin(server: kms_plugin.Plugin) -> AsyncIterator[Plugin]:
    """Return a client of the plug-in."""
    made = Plugin("wire", server.endpoint, 20.0)
    yield made
    await made.close()


async def decrypt_error(plugin: Plugin) -> PluginError:
    with pytest.raises(PluginError) as found:
        await plugin.decrypt("u", turned("key-1", b"s" * 32), "key-1", NOTES)
    return found.value


def socket_paths(directory: Path, where: str) -> tuple[str, str]:
    """Return the configured and the real path of a socket.

    They differ as servers cannot listen at long paths.
    """
    path = f"@apiext-{uuid.uuid4()}" if where == "@" else str(directory / where)
    if where in ("@", "kms.sock"):
        return path, path
    reached = str(directory / "short.sock")
    Path(path).parent.mkdir(parents=True)
    Path(path).symlink_to(reached)
    return path, reached


@pytest.mark.parametrize("where", ["kms.sock", "d" * 60 + "/" + "e" * 60 + "/kms.sock", "@"])
async def test_calls_reach_sockets_at_any_path(tmp_path: Path, where: str) -> None:
    path, reached = socket_paths(tmp_path, where)
    with running_plugin(reached) as server:
        endpoint = server.endpoint if path == reached else f"unix://{path}"
        plugin = Plugin("wire", endpoint, 3.0)
        answer = await plugin.status()
        assert (answer.version, answer.healthz, answer.key_id) == ("v2", "ok", "key-1")
        sealed = await plugin.encrypt("uid-1", b"s" * 32)
        assert (sealed.key_id, dict(sealed.annotations)) == ("key-1", NOTES)
        assert await plugin.decrypt("uid-2", sealed.ciphertext, "key-1", NOTES) == b"s" * 32
        assert server.calls == [("Status", ""), ("Encrypt", "uid-1"), ("Decrypt", "uid-2")]
        await plugin.close()


async def test_many_calls_share_a_connection(server: kms_plugin.Plugin, plugin: Plugin) -> None:
    keys = [os.urandom(32) for _ in range(50)]
    found = await asyncio.gather(*(plugin.decrypt("u", turned("key-1", key), "key-1", NOTES) for key in keys))
    assert found == keys


async def test_error_text_of_a_plugin_is_reported(server: kms_plugin.Plugin, plugin: Plugin) -> None:
    server.fault = (grpc.StatusCode.PERMISSION_DENIED, "not you: \u00fc\n")
    error = await decrypt_error(plugin)
    assert str(error) == "rpc error: code = PermissionDenied desc = not you: \u00fc\n"
    assert error.reached
    server.fault = (grpc.StatusCode.UNKNOWN, "x" * 3000)
    assert len((await decrypt_error(plugin)).message) == limits.KMS_TEXT
    counted = metrics.CALLS.slot("wire", DECRYPT, "PermissionDenied")
    assert counted.count == 1


async def test_invalid_messages_are_errors(server: kms_plugin.Plugin, plugin: Plugin) -> None:
    server.garbage = b"\xff\xff\xff"
    error = await decrypt_error(plugin)
    assert error.message == (
        "grpc: failed to unmarshal the received message: proto: cannot parse invalid wire-format data"
    )
    assert error.reached


async def test_slow_call_fails_at_its_deadline(server: kms_plugin.Plugin, plugin: Plugin) -> None:
    server.delay, plugin.timeout = 0.6, 0.3
    error = await decrypt_error(plugin)
    assert str(error) == "rpc error: code = DeadlineExceeded desc = context deadline exceeded"
    assert not error.reached
    server.delay, plugin.timeout = 0.0, 20.0
    assert await plugin.decrypt("u", turned("key-1", b"s" * 32), "key-1", NOTES)


async def test_client_reconnects_to_a_restarted_plugin(
    server: kms_plugin.Plugin, plugin: Plugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plugin_module, "KMS_DIAL_EVERY", 0.02)
    await plugin.status()
    server.stop()
    server.start()
    assert (await plugin.status()).healthz == "ok"  # on a new connection
    server.stop()
    plugin.timeout = 0.3
    error = await decrypt_error(plugin)
    assert str(error) == (
        'rpc error: code = DeadlineExceeded desc = latest balancer error: connection error: desc = "transport: Error '
        f'while dialing: dial unix {server.path}: connect: no such file or directory"'
    )
    plugin.timeout = 20.0
    waiting = asyncio.gather(plugin.status())
    await asyncio.sleep(0.1)
    server.start()
    assert (await waiting)[0].healthz == "ok"


async def test_response_over_the_size_limit_is_refused(
    server: kms_plugin.Plugin, plugin: Plugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "KMS_ANSWER", 1000)
    server.changed["Encrypt"] = {"ciphertext": b"x" * 2000}
    with pytest.raises(PluginError) as found:
        await plugin.encrypt("u", b"s")
    assert (found.value.status, found.value.reached) == ("ResourceExhausted", True)
    assert metrics.CALLS.slot("wire", ENCRYPT, "ResourceExhausted").count == 1


@pytest.mark.parametrize("junk", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0" * 1000, b""])
async def test_server_without_grpc_is_reported_as_not_ready(tmp_path: Path, junk: bytes) -> None:
    async def answer(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(junk)
        await writer.drain()
        writer.close()

    path = tmp_path / "junk.sock"
    listening = await asyncio.start_unix_server(answer, path)
    async with listening:
        plugin = Plugin("wire", f"unix://{path}", 0.2)
        error = await decrypt_error(plugin)
    assert error.message == "context deadline exceeded while waiting for connections to become ready"
    assert not error.reached


@pytest.mark.parametrize(
    ("endpoint", "path"),
    [
        ("unix:///run/kms.sock", "/run/kms.sock"),
        ("unix:/run/kms.sock", "/run/kms.sock"),
        ("unix://host/run/kms.sock", "/run/kms.sock"),
        ("unix:///run/a%20b.sock?x=y#z", "/run/a b.sock"),
        ("unix:///@name", "@name"),
        ("unix:@name", "@name"),
        ("unix:///@name/more", "@name/more"),
        ("unix:relative", ""),
        ("unix://host", ""),
    ],
)
def test_socket_path_is_parsed_from_the_endpoint(endpoint: str, path: str) -> None:
    assert socket_of(endpoint) == path


def test_status_codes_have_grpc_names() -> None:
    assert [code_name(code) for code in (0, 1, 14, 16, 17, -1)] == [
        "OK",
        "Canceled",
        "Unavailable",
        "Unauthenticated",
        "Code(17)",
        "Code(-1)",
    ]


async def test_refused_streams_are_repeated_with_a_pause(plugin: Plugin, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    async def refused(path: str, *_: object) -> bytes:
        calls.append(path)
        await asyncio.sleep(0)
        raise EtcdError(UNAVAILABLE, "the stream was refused", sent=False)

    async def connected() -> SimpleNamespace:
        return SimpleNamespace(live=True, unary=refused)

    monkeypatch.setattr(plugin_module, "KMS_DIAL_EVERY", 0.1)
    monkeypatch.setattr(Plugin, "_connected", lambda _: connected())
    plugin.timeout = 0.35
    assert "DeadlineExceeded" in str(await decrypt_error(plugin))
    assert 2 <= len(calls) <= 4
