"""Admission webhooks with server flags, with proxies, and with several servers."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from apiext.conformance.support.admission import MUTATING, VALIDATING, configured, document, rule, webhook
from apiext.conformance.support.admission_webhook import Answer, deny, page, running_webhook
from apiext.conformance.support.definitions import serve
from apiext.conformance.support.http_client import Client
from apiext.conformance.support.waiting import prompt, until
from tests.support.processes import SERVE, Etcd, running_server

FLAGS = ["--insecure", "--port=0"]


@pytest.fixture
def flags(own_etcd: Etcd, tmp_path: Path) -> list[str]:
    return [*FLAGS, f"--etcd-servers={own_etcd.url}", f"--etcd-prefix=/{tmp_path.name}"]


@pytest.mark.rows("ADM-002")
def test_webhook_configuration_of_a_peer_applies_within_a_second(flags: list[str], tmp_path: Path) -> None:
    with (
        running_server(flags, tmp_path / "one") as first,
        running_server(flags, tmp_path / "two") as second,
        running_webhook(tmp_path) as hook,
    ):
        one, two = Client(first.url), Client(second.url)
        widgets = serve(one)
        hook.answer = deny("no")

        def refused() -> bool:
            return two.post(widgets.path(), widgets.make("a"), dryRun="All").status == 400

        with configured(one, VALIDATING, webhook("v", hook.client_config(), rule(widgets))):
            until(refused, "the other server asks the webhook", 1)
        until(lambda: not refused(), "the other server asks nobody", 1)


@pytest.mark.rows("ADM-002")
def test_configurations_survive_a_restart(flags: list[str], tmp_path: Path) -> None:
    with running_webhook(tmp_path) as hook:
        hook.answer = deny("no")
        with running_server(flags, tmp_path / "one") as first:
            api = Client(first.url)
            widgets = serve(api)
            wanted = document(VALIDATING, webhooks=[webhook("v", hook.client_config(), rule(widgets))])
            api.post(VALIDATING, wanted).expect(201)
        with running_server(flags, tmp_path / "one") as again:
            Client(again.url).post(widgets.path(), widgets.make("a")).expect(400)


@pytest.mark.rows("LIM-003")
@pytest.mark.parametrize("workers", [1, 2])
def test_shutdown_returns_504_to_writes_waiting_for_a_webhook(flags: list[str], tmp_path: Path, workers: int) -> None:
    more = [f"--workers={workers}"]
    with running_webhook(tmp_path) as hook, running_server([*flags, *more], tmp_path / "server") as server:
        api = Client(server.url)
        widgets = serve(api)
        slow = webhook("v", hook.client_config(), rule(widgets), timeoutSeconds=30)
        api.post(VALIDATING, document(VALIDATING, webhooks=[slow])).expect(201)
        hook.answer = lambda _: {"allowed": hook.released.wait(60)}
        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(api.post, widgets.path(), widgets.make("a"))
            try:
                until(hook.requests, "the webhook is asked")
                assert server.process is not None
                server.process.send_signal(signal.SIGTERM)
                began = time.monotonic()
                assert writing.result(60).expect(504)["reason"] == "Timeout"
                assert server.process.wait(60) == 0
                prompt(time.monotonic() - began, 6.0, "its end")
            finally:
                hook.released.set()
    with running_server(flags, tmp_path / "server") as again:
        Client(again.url).get(widgets.path("a")).expect(404)


@pytest.mark.rows("ADM-001")
@pytest.mark.parametrize("plugin", ["MutatingAdmissionWebhook", "ValidatingAdmissionWebhook"])
def test_disabled_webhook_plugin_calls_no_webhook(flags: list[str], tmp_path: Path, plugin: str) -> None:
    off = f"--disable-admission-plugins={plugin}"
    with running_server([*flags, off], tmp_path / "one") as server, running_webhook(tmp_path) as hook:
        api = Client(server.url)
        widgets = serve(api)
        both = webhook("v", hook.client_config(), rule(widgets))
        with configured(api, MUTATING, both), configured(api, VALIDATING, both):
            widgets.create("a")
        assert len(hook.reviews) == 1


@pytest.mark.rows("ADM-008", "VER-009")
def test_service_resolver_locates_admission_webhooks(flags: list[str], tmp_path: Path) -> None:
    with running_webhook(tmp_path, ("hook.system.svc",)) as hook:
        services = tmp_path / "services.yaml"
        services.write_text(f"hook.system:8443: 127.0.0.1:{hook.port}\n")
        with running_server([*flags, f"--service-resolver={services}"], tmp_path / "one") as server:
            api = Client(server.url)
            widgets = serve(api)
            service = {"name": "hook", "namespace": "system", "port": 8443, "path": "/judge"}
            there = {"service": service, "caBundle": hook.authority.bundle}
            with configured(api, VALIDATING, webhook("v", there, rule(widgets))):
                widgets.create("a")
        assert hook.paths == ["/judge?timeout=10s"]
        assert hook.headers[0]["host"] == "hook.system.svc:8443"


@pytest.mark.differs("services of webhooks are found by DNS")
@pytest.mark.rows("ADM-011", "VER-009")
def test_webhook_of_an_unknown_service_fails_with_dns_error(api: Client) -> None:
    widgets = serve(api)
    service = {"service": {"name": "hook", "namespace": "nowhere", "path": "/x"}}
    with configured(api, VALIDATING, webhook("v", service, rule(widgets))):
        found = api.post(widgets.path(), widgets.make("a")).expect(500)
    post = 'Post "https://hook.nowhere.svc:443/x?timeout=10s": dial tcp: lookup hook.nowhere.svc: no such host'
    assert found["message"].endswith(post)


@pytest.mark.rows("ADM-008", "VER-009")
def test_webhook_calls_use_credentials_of_the_kubeconfig(flags: list[str], tmp_path: Path) -> None:
    with running_webhook(tmp_path) as hook:
        users = [{"name": f"127.0.0.1:{hook.port}", "user": {"token": "secret"}}]
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(json.dumps({"users": users}))
        settings = {
            "apiVersion": "apiserver.config.k8s.io/v1",
            "kind": "WebhookAdmissionConfiguration",
            "kubeConfigFile": str(kubeconfig),
        }
        config = {
            "apiVersion": "apiserver.config.k8s.io/v1",
            "kind": "AdmissionConfiguration",
            "plugins": [{"name": "ValidatingAdmissionWebhook", "configuration": settings}],
        }
        file = tmp_path / "admission.yaml"
        file.write_text(json.dumps(config))
        with running_server([*flags, f"--admission-control-config-file={file}"], tmp_path / "server") as server:
            api = Client(server.url)
            widgets = serve(api)
            client, about = hook.client_config(), rule(widgets)
            with (
                configured(api, VALIDATING, webhook("v", client, about)),
                configured(api, MUTATING, webhook("m", client, about)),
            ):
                widgets.create("a")
        assert [headers.get("authorization") for headers in hook.headers] == [None, "Bearer secret"]


def test_start_fails_with_invalid_admission_configuration(tmp_path: Path) -> None:
    file = tmp_path / "admission.yaml"
    file.write_text("kind: Config")
    flags = [*FLAGS, f"--data-dir={tmp_path / 'data'}", f"--admission-control-config-file={file}"]
    ended = subprocess.run([*SERVE, *flags], capture_output=True, timeout=60, check=False)
    assert ended.returncode == 2, ended.stderr
    said = f"--admission-control-config-file {file}: expected AdmissionConfiguration, not None, Kind=Config"
    assert said in ended.stderr.decode()


@pytest.mark.rows("ADM-008")
def test_webhook_call_with_retry_after_is_retried(api: Client, tmp_path: Path) -> None:
    widgets = serve(api)
    with (
        running_webhook(tmp_path) as hook,
        configured(api, VALIDATING, webhook("v", hook.client_config(), rule(widgets))),
    ):

        def unavailable(times: int) -> Answer:
            return lambda _: page(503, b"", Retry_After="0") if len(hook.reviews) <= times else {"allowed": True}

        hook.answer = unavailable(10)
        api.post(widgets.path(), widgets.make("a"), dryRun="All").expect(201)
        assert len(hook.reviews) == 11
        assert len({request["uid"] for request in hook.requests()}) == 1
        hook.forget()
        hook.answer = unavailable(11)
        refused = api.post(widgets.path(), widgets.make("a"), dryRun="All").expect(500)
    assert refused["message"].endswith("the server is currently unable to handle the request")


@pytest.mark.rows("ADM-011", "VER-009")
@pytest.mark.parametrize(
    ("names", "why"),
    [
        (("a.svc",), "cannot validate certificate for 127.0.0.1 because it doesn't contain any IP SANs"),
        (("a.svc", "10.0.0.1"), "certificate is valid for 10.0.0.1, not 127.0.0.1"),
    ],
)
def test_webhook_certificate_for_another_address_is_refused(
    api: Client, tmp_path: Path, names: tuple[str, ...], why: str
) -> None:
    widgets = serve(api)
    with (
        running_webhook(tmp_path, names) as hook,
        configured(api, VALIDATING, webhook("v", hook.client_config(), rule(widgets))),
    ):
        refused = api.post(widgets.path(), widgets.make("a"), dryRun="All").expect(500)
    assert refused["message"].endswith(f": tls: failed to verify certificate: x509: {why}")


@pytest.mark.rows("VER-010")
@pytest.mark.parametrize("value", ["http://proxy:notaport", "http://[::1", "http://user:hush#ss@proxy:3128"])
def test_invalid_https_proxy_is_logged_once(flags: list[str], tmp_path: Path, value: str) -> None:
    with running_server([*flags, "--workers=2"], tmp_path, env={"HTTPS_PROXY": value}) as server:
        Client(server.url).get("/api").expect(200)
    log = (tmp_path / "server.log").read_text()
    assert (
        log.count("HTTPS_PROXY is not the URL of a proxy, http://host:port: webhooks are called without a proxy") == 1
    )
    assert "hush" not in log
    assert "Traceback" not in log
