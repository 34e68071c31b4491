"""The audit webhook: batches, retries, and the credentials of its kubeconfig."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from apiext.audit import limits
from apiext.audit import webhook as webhook_module
from apiext.audit.counters import Counters
from apiext.audit.events import Event
from apiext.audit.policy import RECEIVED
from apiext.audit.webhook import Webhook
from apiext.config import AuditConfig, AuditDelivery
from apiext.webhooks.client import Client
from apiext.webhooks.credentials import ANONYMOUS, CredentialsError
from apiext.webhooks.remote import remote_of
from apiext.webhooks.target import Target
from tests.unit.audit.support import event

pytestmark = pytest.mark.rows("AUD-001")


class Collector:
    """A plain HTTP server that records batches; its responses have ``codes``, then 200."""

    def __init__(self, *codes: int) -> None:
        self.codes = list(codes)
        self.heads: list[bytes] = []
        self.lists: list[dict[str, Any]] = []

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0])
                self.heads.append(head)
                self.lists.append(json.loads(await reader.readexactly(size)))
                code = self.codes.pop(0) if self.codes else 200
                writer.write(b"HTTP/1.1 %d X\r\nContent-Length: 0\r\n\r\n" % code)
        except asyncio.IncompleteReadError:
            pass
        finally:
            writer.close()


def kubeconfig(tmp_path: Path, server: str, cluster: dict[str, Any] | None = None, user: object = None) -> Path:
    """Write the kubeconfig of a webhook; return its path."""
    path = tmp_path / "webhook.yaml"
    document = {
        "clusters": [{"name": "c", "cluster": {"server": server, **(cluster or {})}}],
        "users": [{"name": "u", "user": user or {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path.write_text(yaml.safe_dump(document))
    return path


async def run_webhook(
    tmp_path: Path, collector: Collector, delivery: AuditDelivery, act: Callable[[Webhook], Awaitable[None]]
) -> Counters:
    """Run a webhook against a collector, and return its metrics."""
    server = await asyncio.start_server(collector, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    remote = remote_of(kubeconfig(tmp_path, f"http://127.0.0.1:{port}/audit", user={"token": "sesame"}))
    config = AuditConfig(webhook_file="x", initial_backoff=0.001, webhook=delivery)
    counters, client = Counters(), Client()
    async with server, asyncio.TaskGroup() as group:
        webhook = Webhook(remote, client, config, counters)
        webhook.start(group)
        await act(webhook)
        await webhook.stop()
        await client.close()
    return counters


async def test_events_are_sent_as_an_event_list(tmp_path: Path) -> None:
    collector = Collector()

    async def act(webhook: Webhook) -> None:
        for number in range(3):
            assert webhook.put(event(name=str(number))) is None

    counters = await run_webhook(tmp_path, collector, AuditDelivery(mode="batch", max_batch=400, max_wait=30), act)
    assert len(collector.lists) == 1
    found = collector.lists[0]
    assert {**found, "items": []} == {"kind": "EventList", "apiVersion": "audit.k8s.io/v1", "metadata": {}, "items": []}
    assert [item["requestURI"] for item in found["items"]] == ["/0", "/1", "/2"]
    head = collector.heads[0].decode()
    assert head.startswith("POST /audit?timeout=30s HTTP/1.1\r\n")
    assert "Authorization" not in head  # upstream: sends credentials over TLS only
    assert "kind" not in found["items"][0]
    assert not list(counters.errors.lines())


async def test_failed_call_is_retried(tmp_path: Path) -> None:
    collector = Collector(500, 404)

    async def act(webhook: Webhook) -> None:
        waiting = webhook.put(event(RECEIVED))
        assert waiting is not None
        assert await waiting

    counters = await run_webhook(tmp_path, collector, AuditDelivery(mode="blocking-strict"), act)
    assert len(collector.lists) == 3
    assert not list(counters.errors.lines())


async def test_events_are_dropped_and_counted_after_all_retries(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    collector = Collector(*[503] * 10)
    pauses: list[float] = []

    async def wait(self: Webhook, seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(Webhook, "_wait", wait)

    async def act(webhook: Webhook) -> None:
        waiting = webhook.put(event())
        assert waiting is not None
        assert not await waiting

    counters = await run_webhook(tmp_path, collector, AuditDelivery(mode="blocking"), act)
    assert len(collector.lists) == limits.AUDIT_TRIES
    for number, seconds in enumerate(pauses):
        least = 0.001 * webhook_module.AUDIT_BACKOFF**number
        assert least <= seconds <= least * (1 + webhook_module.AUDIT_BACKOFF_JITTER)
    assert len(pauses) == limits.AUDIT_TRIES - 1
    assert counters.errors.slot("webhook").value == 1


@pytest.mark.parametrize("mode", ["batch", "blocking", "blocking-strict"])
async def test_unexpected_error_drops_only_its_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, mode: str
) -> None:
    collector, post, tries = Collector(), Client.post, list[bytes]()

    async def fails_once(self: Client, target: Target, body: bytes, *args: Any, **more: Any) -> bytes:
        tries.append(body)
        if len(tries) == 1:
            raise LookupError("a bug")
        return await post(self, target, body, *args, **more)

    monkeypatch.setattr(Client, "post", fails_once)

    async def act(webhook: Webhook) -> None:
        for expected in (False, True):
            waiting = webhook.put(event())
            if waiting is not None:
                assert await waiting is expected
            async with asyncio.timeout(20):
                while len(tries) < 1 + expected:  # noqa: ASYNC110 - another task calls the webhook
                    await asyncio.sleep(0.001)

    counters = await run_webhook(tmp_path, collector, AuditDelivery(mode=mode, max_batch=1, max_wait=30), act)
    assert len(collector.lists) == 1
    assert counters.errors.slot("webhook").value == 1
    assert "Traceback" in caplog.text


async def test_unencodable_events_are_dropped_and_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    collector = Collector()
    monkeypatch.setattr(Event, "item", property(lambda _: 1 / 0))

    async def act(webhook: Webhook) -> None:
        waiting = webhook.put(event())
        assert waiting is not None
        assert not await waiting

    counters = await run_webhook(tmp_path, collector, AuditDelivery(mode="blocking-strict"), act)
    assert not collector.lists
    assert counters.errors.slot("webhook").value == 1


async def test_a_cancelled_wait_does_not_cancel_the_event(tmp_path: Path) -> None:
    collector = Collector()

    async def act(webhook: Webhook) -> None:
        waiting = webhook.put(event())
        assert waiting is not None
        waiting.cancel()

    await run_webhook(tmp_path, collector, AuditDelivery(mode="blocking"), act)
    assert len(collector.lists) == 1


async def test_a_large_batch_is_sent_in_parts(tmp_path: Path) -> None:
    collector = Collector()
    delivery = AuditDelivery(
        mode="batch", max_batch=400, max_wait=30, truncated=True, max_event_bytes=600, max_batch_bytes=1000
    )

    async def act(webhook: Webhook) -> None:
        for name in ("a", "b", "n" * 700, "c"):
            webhook.put(event(name=name))

    counters = await run_webhook(tmp_path, collector, delivery, act)
    assert [len(found["items"]) for found in collector.lists] == [2, 1]
    assert counters.errors.slot("truncate").value == 1


def test_kubeconfig_sets_url_ca_and_user(tmp_path: Path) -> None:
    ca = base64.b64encode(b"PEM").decode()
    cluster = {"certificate-authority-data": ca, "tls-server-name": "inner"}
    remote = remote_of(kubeconfig(tmp_path, "https://audit.example:8443/k8s", cluster))
    target = remote.target
    assert (target.host, target.port, target.path, target.server_name) == ("audit.example", 8443, "/k8s", "inner")
    assert (target.ca, target.plain, target.url) == (b"PEM", False, "https://audit.example:8443/k8s")
    assert remote_of(kubeconfig(tmp_path, "https://a", user={"token": "sesame"})).user is not ANONYMOUS
    plain = remote_of(kubeconfig(tmp_path, "http://127.0.0.1/k8s")).target
    assert (plain.host, plain.port, plain.plain, plain.url) == ("127.0.0.1", 80, True, "http://127.0.0.1/k8s")


@pytest.mark.parametrize(
    ("server", "cluster", "then"),
    [
        ("", {}, "cluster 'c' does not exist or has no server"),
        ("ftp://a", {}, "is no https URL"),
        ("https://a", {"insecure-skip-tls-verify": True}, "insecure-skip-tls-verify is not supported"),
        ("https://a", {"proxy-url": "http://p"}, "proxy-url is not supported"),
        ("https://a", {"certificate-authority": "missing.crt"}, "certificate-authority: "),
    ],
)
def test_invalid_kubeconfig_is_refused(tmp_path: Path, server: str, cluster: dict[str, Any], then: str) -> None:
    with pytest.raises(CredentialsError, match=then):
        remote_of(kubeconfig(tmp_path, server, cluster))


@pytest.mark.parametrize("server", ["https://me:hu#sh@a", "ftp://me:hush@a", "https://me:hush@a:99999"])
def test_error_of_invalid_server_url_hides_the_password(tmp_path: Path, server: str) -> None:
    with pytest.raises(CredentialsError, match="server: it is not an https or http URL") as caught:
        remote_of(kubeconfig(tmp_path, server))
    assert "hu" not in str(caught.value).removeprefix(str(tmp_path))


def test_a_kubeconfig_without_its_context_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "empty.yaml"
    path.write_text("{}")
    with pytest.raises(CredentialsError, match="there is no context None"):
        remote_of(path)
