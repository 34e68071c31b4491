"""The client with real HTTPS servers: requests, reused connections, limits and errors."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import re
import socket
import threading
import time
import tracemalloc
from collections.abc import AsyncIterator, Awaitable
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import pytest

from apiext.conformance.support import admission_webhook as hooks
from apiext.conformance.support import tls
from apiext.conformance.support.waiting import prompt
from apiext.webhooks import breaker as breaker_module
from apiext.webhooks import errors, limits
from apiext.webhooks.answers import Answer
from apiext.webhooks.breaker import Breaker
from apiext.webhooks.client import Client, refusal
from apiext.webhooks.names import Names
from apiext.webhooks.resolver import Resolver
from apiext.webhooks.target import Target, target_of
from apiext.webhooks.trust import Contexts
from tests.support.processes import free_port

REVIEW = b'{"apiVersion":"v1","kind":"Test","request":{"uid":"1"}}'


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    client = Client()
    yield client
    await client.close()


@contextlib.contextmanager
def hook(tmp_path: Path, **how: Any) -> Any:
    with hooks.running_webhook(tmp_path, **how) as webhook:
        yield webhook, target_of(webhook.client_config("/hook"))


@pytest.mark.rows("ADM-008", "VER-009")
async def test_requests_are_json_with_a_timeout(tmp_path: Path, client: Client) -> None:
    with hook(tmp_path) as (webhook, target):
        answer = await client.post(target, REVIEW, 9.2)
        assert b'"allowed": true' in answer
        assert webhook.paths == ["/hook?timeout=10s"]
        assert webhook.headers[0]["content-type"] == "application/json"
        assert webhook.headers[0]["host"] == f"127.0.0.1:{webhook.port}"


async def test_connections_are_reused(tmp_path: Path, client: Client) -> None:
    with hook(tmp_path) as (webhook, target):
        for _ in range(5):
            await client.post(target, REVIEW, 5)
        assert webhook.connections == 1
        await asyncio.gather(*(client.post(target, REVIEW, 5) for _ in range(4)))
        assert webhook.connections <= 4


async def test_closed_connection_is_replaced(tmp_path: Path, client: Client) -> None:
    with hook(tmp_path) as (webhook, target):
        webhook.answer = lambda _: hooks.page(200, b"{}", Connection="close")
        assert await client.post(target, REVIEW, 5) == b"{}"
        assert await client.post(target, REVIEW, 5) == b"{}"
        webhook.answer = hooks.allow
        await client.post(target, REVIEW, 5)
        webhook.answer = lambda _: hooks.Raw(hooks.silent)
        with pytest.raises(errors.Broken, match=r'^Post "https://127.0.0.1:\d+/hook\?timeout=5s": EOF$'):
            await client.post(target, REVIEW, 5)


async def test_system_roots_are_loaded_once() -> None:
    contexts = Contexts()
    async with asyncio.TaskGroup() as group:
        gone = group.create_task(contexts.context_for(b""))
        others = [group.create_task(contexts.context_for(b"")) for _ in range(10)]
        await asyncio.sleep(0)
        gone.cancel()
    assert len({id(task.result()) for task in others}) == 1
    assert await contexts.context_for(b"") is others[0].result()


@pytest.mark.rows("VER-009")
async def test_hanging_dns_lookup_does_not_block_other_hosts(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, answered = list[str](), threading.Event()

    def lookup(host: str, port: int, *_: Any, **__: Any) -> Any:
        asked.append(host)
        if host == "hung.test":
            answered.wait(20)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    try:
        async with asyncio.TaskGroup() as group:
            hung = target_of({"url": "https://hung.test/"})
            first = group.create_task(client.post(hung, REVIEW, 20, owner="hung"))
            waiting = [group.create_task(client.post(hung, REVIEW, 20, owner="hung")) for _ in range(40)]
            async with asyncio.timeout(20):
                while not asked:  # noqa: ASYNC110 - a thread does it
                    await asyncio.sleep(0.001)
            first.cancel()  # the other calls still wait for its lookup
            with pytest.raises(errors.Unreachable, match="connection refused"):
                await client.post(target_of({"url": f"https://ok.test:{free_port()}/"}), REVIEW, 5)
            assert asked == ["hung.test", "ok.test"]
            for task in waiting:
                task.cancel()
    finally:
        answered.set()


async def test_refused_connection_has_error_of_go(client: Client) -> None:
    port = free_port()
    target = target_of({"url": f"https://127.0.0.1:{port}/x"})
    with pytest.raises(errors.Unreachable) as caught:
        await client.post(target, REVIEW, 10)
    said = f'Post "https://127.0.0.1:{port}/x?timeout=10s": dial tcp 127.0.0.1:{port}: connect: connection refused'
    assert str(caught.value) == said
    assert caught.value.code == 503


async def test_unknown_host_has_error_of_go(client: Client) -> None:
    with pytest.raises(errors.Unreachable, match=r"dial tcp: lookup no\.such\.svc: no such host$"):
        await client.post(target_of({"service": {"name": "no", "namespace": "such"}}), REVIEW, 10)


async def test_hanging_webhook_times_out_at_deadline(tmp_path: Path, client: Client) -> None:
    with hook(tmp_path) as (webhook, target):
        webhook.answer = webhook.hang
        began = time.monotonic()
        with pytest.raises(errors.TimedOut, match=r'\?timeout=1s": context deadline exceeded$'):
            await client.post(target, REVIEW, 0.2)
        prompt(time.monotonic() - began, 2)


async def test_slow_body_times_out_at_deadline(tmp_path: Path, client: Client) -> None:
    def half(exchange: Any) -> None:
        exchange.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
        exchange.wfile.flush()
        webhook.released.wait(30)

    with hook(tmp_path) as (webhook, target):
        webhook.answer = lambda _: hooks.Raw(half)
        text = r"^unexpected error when reading response body. Please retry. Original error: context deadline exceeded$"
        with pytest.raises(errors.TimedOut, match=text):
            await client.post(target, REVIEW, 0.3)


async def test_reset_within_body_is_not_retried(tmp_path: Path, client: Client) -> None:
    with hook(tmp_path) as (webhook, target):
        webhook.answer = lambda _: hooks.Raw(hooks.reset)
        with pytest.raises(errors.Broken, match=r"^unexpected error when reading response body"):
            await client.post(target, REVIEW, 5)
        assert len(webhook.reviews) == 1


@pytest.mark.parametrize(
    "answer", [hooks.Raw(hooks.endless), hooks.page(200, b" " * 20_000_000)], ids=["endless", "big"]
)
async def test_response_size_is_limited(tmp_path: Path, client: Client, answer: hooks.Raw) -> None:
    with hook(tmp_path) as (webhook, target):
        webhook.answer = lambda _: answer
        text = f"the answer exceeds the limit of {limits.WEBHOOK_ANSWER} bytes$"
        with pytest.raises(errors.TooLarge, match=text):
            await client.post(target, REVIEW, 20)


@pytest.mark.rows("ADM-008")
@pytest.mark.parametrize("code", [301, 302, 307, 308])
async def test_redirects_are_never_followed(tmp_path: Path, client: Client, code: int) -> None:
    with hook(tmp_path) as (webhook, target):
        webhook.answers["/hook"] = lambda _: hooks.page(code, b"", Location=webhook.url("/other"))
        text = f"^the server responded with the status code {code} but did not return more information$"
        with pytest.raises(errors.Refused, match=text):
            await client.post(target, REVIEW, 5)
        assert webhook.paths == ["/hook?timeout=5s"]


# texts of NewGenericServerResponse
STATUSES = [
    (404, b"nothing", "text/plain", "the server could not find the requested resource"),
    (403, b" go away \n", "text/plain", "go away"),
    (500, b"boom", "text/plain", 'an error on the server ("boom") has prevented the request from succeeding'),
    (500, b"{}", "application/json", 'an error on the server ("unknown") has prevented the request from succeeding'),
    (502, b'a "b"', "text/html", 'an error on the server ("a \\"b\\"") has prevented the request from succeeding'),
    (503, b"", "", "the server is currently unable to handle the request"),
    (
        500,
        b'{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no luck","code":507}',
        "x/json",
        "no luck",
    ),
    (418, b"tea", "text/plain", "the server responded with the status code 418 but did not return more information"),
    (200, b"", "text/x", "0-length response with status code: 200 and content type: text/x"),
    (204, b"", "", "0-length response with status code: 204 and content type: application/json"),
]


@pytest.mark.parametrize(("code", "body", "kind", "text"), STATUSES)
async def test_unsuccessful_responses_have_errors_of_go(
    tmp_path: Path, client: Client, code: int, body: bytes, kind: str, text: str
) -> None:
    with hook(tmp_path) as (webhook, target):
        webhook.answer = lambda _: hooks.page(code, body, kind)
        with pytest.raises(errors.CallError) as caught:
            await client.post(target, REVIEW, 5)
        assert str(caught.value) == text
        assert caught.value.code == {200: 503, 204: 503, 500: 507 if b"luck" in body else 500}.get(code, code)


@pytest.mark.parametrize(
    ("code", "after", "calls"),
    [
        (429, "0", 11),
        (500, "0", 11),
        (503, "+0", 11),
        (599, "-1", 11),
        (503, "soon", 1),
        (503, "1.5", 1),
        (503, "", 1),
        (404, "0", 1),
        (409, "0", 1),
    ],
)
async def test_retry_after_is_obeyed(tmp_path: Path, client: Client, code: int, after: str, calls: int) -> None:
    with hook(tmp_path) as (webhook, target):
        webhook.answer = lambda _: hooks.page(code, b"no", "text/plain", Retry_After=after)
        with pytest.raises(errors.Refused):
            await client.post(target, REVIEW, 60)
        assert len(webhook.reviews) == calls
        assert webhook.connections == 1
        webhook.forget()
        webhook.answer = lambda _: hooks.page(code, b"", Retry_After=after) if len(webhook.reviews) < calls else {}
        if calls > 1:
            assert b'"response"' in await client.post(target, REVIEW, 60)


async def test_retry_after_beyond_the_deadline_is_a_timeout(tmp_path: Path, client: Client) -> None:
    with hook(tmp_path) as (webhook, target):
        webhook.answer = lambda _: hooks.page(503, b"", Retry_After="3600")
        with pytest.raises(errors.TimedOut, match=r'^Post "https://[^"]*\?timeout=1s": context deadline exceeded$'):
            await client.post(target, REVIEW, 0.5)
        assert len(webhook.reviews) == 1


TRUST = [
    (
        {"expired": True},
        "tls: failed to verify certificate: x509: certificate has expired or is not yet valid: current time ",
    ),
    (
        {"signer": tls.authority("foreign")},
        "tls: failed to verify certificate: x509: certificate signed by unknown authority",
    ),
    (
        {"names": ("other.example.com",)},
        "tls: failed to verify certificate: x509: cannot validate certificate for 127.0.0.1 because it doesn't contain "
        "any IP SANs",
    ),
    ({"plain": True}, "tls: first record does not look like a TLS handshake"),
]


@pytest.mark.rows("VER-009")
@pytest.mark.parametrize(("how", "text"), TRUST, ids=["expired", "foreign", "name", "plain"])
async def test_untrusted_certificate_has_error_of_go(
    tmp_path: Path, client: Client, how: dict[str, Any], text: str
) -> None:
    with hook(tmp_path, **how) as (webhook, target):
        with pytest.raises(errors.Untrusted) as caught:
            await client.post(target, REVIEW, 5)
        assert str(caught.value).startswith(f'Post "https://127.0.0.1:{webhook.port}/hook?timeout=5s": {text}')
        assert webhook.reviews == []


NAMESAKE = tls.authority("webhook")  # the certificates of the webhooks have this subject, too
NAMESAKES = [
    ({}, NAMESAKE, ""),
    ({}, tls.authority("webhook"), "certificate signed by unknown authority"),
    ({"expired": True}, NAMESAKE, "certificate has expired or is not yet valid: current time "),
    ({"names": ("127.0.0.2",)}, NAMESAKE, "certificate is valid for 127.0.0.2, not 127.0.0.1"),
]


@pytest.mark.rows("VER-009")
@pytest.mark.parametrize(("how", "trusted", "text"), NAMESAKES, ids=["valid", "foreign", "expired", "name"])
async def test_certificate_with_subject_of_its_ca_is_verified(
    tmp_path: Path, client: Client, how: dict[str, Any], trusted: tls.TestAuthority, text: str
) -> None:
    with hook(tmp_path, signer=NAMESAKE, **how) as (webhook, _):
        target = target_of({"url": webhook.url(), "caBundle": trusted.bundle})
        if text:
            with pytest.raises(errors.Untrusted, match=re.escape(f"failed to verify certificate: x509: {text}")):
                await client.post(target, REVIEW, 5)
        else:
            assert b'"allowed": true' in await client.post(target, REVIEW, 5)
        assert len(webhook.reviews) == (not text)


async def test_ca_bundle_without_certificates_is_an_error(client: Client) -> None:
    target = target_of({"url": "https://127.0.0.1:1/", "caBundle": "bm90aGluZw=="})
    with pytest.raises(errors.Untrusted, match="unable to load root certificates"):
        await client.post(target, REVIEW, 5)


async def test_system_roots_are_used_without_ca_bundle(tmp_path: Path, client: Client) -> None:
    with hook(tmp_path) as (webhook, _), pytest.raises(errors.Untrusted, match=r"signed by unknown authority$"):
        await client.post(target_of({"url": webhook.url()}), REVIEW, 5)


@pytest.mark.rows("VER-009")
async def test_service_map_resolves_service(tmp_path: Path) -> None:
    names = ("hook.system.svc",)
    with hooks.running_webhook(tmp_path, names) as webhook:
        file = tmp_path / "services.yaml"
        file.write_text(f"hook.system:8443: 127.0.0.1:{webhook.port}\n")
        client = Client(Resolver(str(file)), denied=LOOPBACK)  # denied addresses only apply to hosts of webhook URLs
        service = {"name": "hook", "namespace": "system", "port": 8443, "path": "/convert"}
        target = target_of({"service": service, "caBundle": webhook.authority.bundle})
        assert b"allowed" in await client.post(target, REVIEW, 5)
        assert webhook.headers[0]["host"] == "hook.system.svc:8443"
        assert webhook.paths == ["/convert?timeout=5s"]
        await client.close()


def test_service_map_is_reloaded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "services.yaml"
    file.write_text("a.b: 127.0.0.1:1\n")
    resolver = Resolver(str(file))
    assert resolver.find("a.b", 443) == ("127.0.0.1", 1)
    file.write_text("a.b:443: '[::1]:22'\nc.d: 127.0.0.1:3\n")
    assert resolver.find("a.b", 443) == ("::1", 22)
    file.write_text("nonsense\n")
    assert [resolver.find("c.d", 9) for _ in range(3)] == [("127.0.0.1", 3)] * 3
    file.unlink()
    assert [resolver.find("c.d", 9) for _ in range(3)] == [("127.0.0.1", 3)] * 3
    told = [f"{file}: expected a mapping of name.namespace:port to host:port", f"{file}: No such file or directory"]
    assert caplog.messages == [f"the map of services is invalid: {why}; the previous one stays in use" for why in told]
    file.write_text("c.d: 127.0.0.1:4\n")
    assert resolver.find("c.d", 9) == ("127.0.0.1", 4)


BAD_MAPS = [
    "[1]", "a: 1.2.3.4:5", "a.b.c: 1.2.3.4:5", "a.b: nowhere", "a.b: x:99999", "{", "a.b: 2001-99-99", "a.b: !!int x",
    "a.b: x:²", "a.b:²: x:1", "a: " + "[" * 3000,
]  # fmt: skip


@pytest.mark.parametrize("text", BAD_MAPS, ids=range(len(BAD_MAPS)))
def test_invalid_service_map_is_an_error(tmp_path: Path, text: str) -> None:
    from apiext.webhooks.resolver import ResolverError

    file = tmp_path / "services.yaml"
    file.write_text(text)
    with pytest.raises(ResolverError):
        Resolver(str(file))


TARGETS = [
    ({"url": "https://a.example.com"}, "https://a.example.com/", "a.example.com", 443),
    ({"url": "https://a.example.com:8443/x y"}, "https://a.example.com:8443/x%20y", "a.example.com", 8443),
    ({"url": "https://[::1]:1/x"}, "https://[::1]:1/x", "::1", 1),
    ({"url": "https://a.example.com:0/x"}, "https://a.example.com:0/x", "a.example.com", 0),
    ({"url": "https://bücher.example/x"}, "https://b%C3%BCcher.example/x", "xn--bcher-kva.example", 443),
    ({"service": {"name": "a", "namespace": "b"}}, "https://a.b.svc:443/", "a.b.svc", 443),
    ({"service": {"name": "a", "namespace": "b", "path": "p", "port": 7}}, "https://a.b.svc:7/p", "a.b.svc", 7),
]


@pytest.mark.rows("VER-009")
@pytest.mark.parametrize(("config", "url", "host", "port"), TARGETS)
def test_client_config_becomes_target(config: dict[str, Any], url: str, host: str, port: int) -> None:
    target = target_of(config)
    assert (target.url, target.host, target.port, target.server_name) == (url, host, port, host)


@pytest.mark.parametrize(
    "config",
    [
        {},
        {"url": "file:///etc/passwd"},
        {"url": "https://a b/"},
        {"url": "http://a"},
        {"url": "https://"},
        {"url": "https://a:x/"},
        {"url": "https://a:99999/"},
    ],
)
def test_invalid_client_config_is_bad_target(config: dict[str, Any]) -> None:
    with pytest.raises(errors.BadTarget):
        target_of(config)


async def test_circuit_opens_for_slow_failing_owner(
    tmp_path: Path, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "WEBHOOK_SLOW_FAILURE", 0.01)
    with hook(tmp_path) as (webhook, target):
        webhook.answer = webhook.hang
        for _ in range(limits.WEBHOOK_FAILURES):
            with pytest.raises(errors.TimedOut):
                await client.post(target, REVIEW, 0.05, owner="one")
        with pytest.raises(errors.CircuitOpen, match=r"context deadline exceeded \(not called again yet"):
            await client.post(target, REVIEW, 5, owner="one")
        webhook.answer = hooks.allow
        await client.post(target, REVIEW, 5, owner="two")
        monkeypatch.setattr(breaker_module, "WEBHOOK_PROBE_EVERY", 0.0)
        await _post_until_circuit_closes(client, target)
        await client.post(target, REVIEW, 5, owner="one")


async def _post_until_circuit_closes(client: Client, target: Target) -> None:
    async with asyncio.timeout(20):
        while True:
            with contextlib.suppress(errors.CircuitOpen):
                await client.post(target, REVIEW, 5, owner="one")
                return
            await asyncio.sleep(0.02)


async def test_parallel_calls_of_one_owner_are_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "WEBHOOK_PARALLEL", 2)
    client = Client()
    with hook(tmp_path) as (webhook, target):
        webhook.answer = webhook.hang
        calls = [client.post(target, REVIEW, 1.0 if number < 2 else 0.3, owner="one") for number in range(6)]
        found = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(error, errors.TimedOut) for error in found)
        assert len(webhook.reviews) == 2
    await client.close()


async def test_calls_get_slots_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "WEBHOOK_PARALLEL", 1)
    breaker, deadline, ended = Breaker(), asyncio.get_running_loop().time() + 5, list[str]()
    gates = {name: asyncio.Event() for name in "abcde"}

    async def call(name: str) -> bytes:
        await gates[name].wait()
        ended.append(name)
        return b""

    async with asyncio.TaskGroup() as group:
        tasks = {}
        for name in "abcd":
            tasks[name] = group.create_task(breaker.run(functools.partial(call, name), deadline))
            await asyncio.sleep(0)
        tasks["b"].cancel()
        gates["a"].set()
        await tasks["a"]
        tasks["c"].cancel()  # right after it got the slot
        gates["d"].set()
        await tasks["d"]
        gates["e"].set()
        await breaker.run(functools.partial(call, "e"), deadline)
    assert ended == ["a", "d", "e"]


async def test_expired_call_passes_slot_to_next_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "WEBHOOK_PARALLEL", 1)
    breaker, loop, ended = Breaker(), asyncio.get_running_loop(), list[str]()
    gate = asyncio.Event()

    async def call(name: str, until: float = 0.0) -> bytes:
        await gate.wait()
        while loop.time() < until:  # blocks the event loop, so that it gets the end and the deadline together
            pass
        ended.append(name)
        return b""

    async with asyncio.TaskGroup() as group:
        deadline = loop.time() + 0.05
        group.create_task(breaker.run(functools.partial(call, "a", deadline + 0.01), loop.time() + 5))
        await asyncio.sleep(0)
        late = group.create_task(_outcome(breaker.run(functools.partial(call, "b"), deadline)))
        given_up = group.create_task(_outcome(breaker.run(functools.partial(call, "c"), loop.time() + 0.01)))
        patient = group.create_task(breaker.run(functools.partial(call, "d"), loop.time() + 5))
        assert isinstance(await given_up, TimeoutError)
        gate.set()
        assert await patient == b""
        assert isinstance(await late, TimeoutError)
    assert ended == ["a", "d"]
    assert await breaker.run(functools.partial(call, "e"), loop.time() + 5) == b""


async def _outcome(work: Awaitable[bytes]) -> bytes | TimeoutError:
    try:
        return await work
    except TimeoutError as error:
        return error


def test_large_refusal_uses_bounded_memory() -> None:
    text = b'{"kind": "Status", "status": "Failure", "message": "no", "code": 418, "x": [%b0]}'
    assert str(refusal(Answer(400, "", text % (b"{}," * 100), True))) == "no"
    answer = Answer(400, "", text % (b"{}," * 2_000_000), True)
    tracemalloc.start()
    try:
        assert str(refusal(answer)) == "the server rejected our request for an unknown reason"
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


LOOPBACK = tuple(map(ip_network, ("127.0.0.0/8", "::1/128", "169.254.0.0/16")))


@pytest.mark.parametrize(
    ("host", "denied"),
    [
        ("127.0.0.1", True), ("127.1.2.3", True), ("::1", True), ("0.0.0.0", True), ("::", True),
        ("::ffff:127.0.0.1", True), ("169.254.169.254", True), ("localhost", True),
        ("10.0.0.1", False), ("2001:db8::1", False),
    ],
)  # fmt: skip
async def test_addresses_in_denied_networks_are_refused(host: str, denied: bool) -> None:
    names = Names(LOOPBACK)
    try:
        assert await names.find(host, given=True)
        if denied:
            with pytest.raises(errors.Unreachable, match=f"lookup {host}: .* is in a network of --webhook-deny-cidrs"):
                await names.find(host)
        else:
            assert await names.find(host) == [host]
        assert await Names().find(host)
    finally:
        names.close()


async def test_denied_networks_apply_to_each_dns_lookup(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client connects to the address that it has checked, which prevents DNS rebinding."""
    answers = iter([["203.0.113.1"], ["127.0.0.1"], ["127.0.0.1", "203.0.113.1"]])
    monkeypatch.setattr("apiext.webhooks.names._addresses", lambda host: next(answers))
    names = Names(LOOPBACK)
    assert await names.find("evil.example") == ["203.0.113.1"]
    with pytest.raises(errors.Unreachable):
        await names.find("evil.example")
    assert await names.find("evil.example") == ["203.0.113.1"]
    names.close()


async def test_a_webhook_in_a_denied_network_is_not_called(tmp_path: Path) -> None:
    with hook(tmp_path) as (webhook, target):
        client = Client(denied=LOOPBACK)
        with pytest.raises(errors.CallError, match=r"127\.0\.0\.1 is in a network of --webhook-deny-cidrs"):
            await client.post(target, REVIEW, 5)
        await client.close()
        assert not webhook.connections
        proxied = Client(environment={"HTTPS_PROXY": "http://203.0.113.1:1"}, denied=[ip_network("198.51.100.0/24")])
        with pytest.raises(errors.CallError, match="--webhook-deny-cidrs"):
            await proxied.post(target_of({"url": "https://198.51.100.7/hook"}), REVIEW, 5)
        await proxied.close()
