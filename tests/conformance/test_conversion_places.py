"""Conversion webhooks: addresses (service map, DNS names) and trust (CA bundles)."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from apiext.conformance.support import tls
from apiext.conformance.support.conversion_webhook import (
    Webhook,
    answer,
    crontab,
    reason,
    running_webhook,
    serve_crontabs,
)
from apiext.conformance.support.http_client import DEFINITIONS, Client
from apiext.conformance.support.waiting import until
from tests.support.processes import SERVE, Server, running_server

SERVICE = "example-conversion-webhook-server.default"


@pytest.fixture(scope="module")
def hook(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Webhook]:
    """A webhook with a certificate for a service."""
    names = (f"{SERVICE}.svc", "127.0.0.1")
    with running_webhook(tmp_path_factory.mktemp("service"), names) as webhook:
        webhook.answer = answer(crontab)
        yield webhook


@pytest.fixture(scope="module")
def map_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of --service-resolver, empty at first."""
    path = tmp_path_factory.mktemp("map") / "services.yaml"
    path.write_text("{}\n")
    return path


@pytest.fixture(scope="module")
def mapped(tmp_path_factory: pytest.TempPathFactory, map_file: Path) -> Iterator[Server]:
    """A server with --service-resolver."""
    flags = ["--insecure", "--port=0", f"--service-resolver={map_file}"]
    with running_server(flags, tmp_path_factory.mktemp("mapped")) as server:
        yield server


@pytest.fixture
def api(mapped: Server) -> Client:
    """A client of that server."""
    return Client(mapped.url)


def set_client_config(api: Client, group: str, **client_config: Any) -> None:
    """Change the clientConfig of a definition's webhook."""
    webhook = {"conversionReviewVersions": ["v1"], "clientConfig": client_config}
    path = f"{DEFINITIONS}/crontabs.{group}"
    patch = [{"op": "replace", "path": "/spec/conversion/webhook", "value": webhook}]
    api.patch(path, patch, "application/json-patch+json").expect(200)


@pytest.mark.rows("VER-009")
def test_service_resolver_locates_conversion_webhooks(api: Client, hook: Webhook, map_file: Path) -> None:
    tabs = serve_crontabs(api, hook)
    tabs.create("v1beta1", "a", hostPort="a:1")
    name, namespace = SERVICE.split(".")
    service = {"name": name, "namespace": namespace, "path": "/crdconvert"}
    set_client_config(api, tabs.group, service=service, caBundle=hook.authority.bundle)
    missing = api.get(tabs.path("v1", "a"))
    assert missing.status == 500
    assert f'Post "https://{SERVICE}.svc:443/crdconvert?timeout=30s": dial tcp: lookup' in missing.json["message"]

    map_file.write_text(f"{SERVICE}:443: 127.0.0.1:{hook.port}\n")
    found = until(lambda: api.get(tabs.path("v1", "a")).status == 200, "the service is found")
    assert found
    assert tabs.get("v1", "a")["host"] == "a"
    assert hook.paths[-1] == "/crdconvert?timeout=30s"
    assert hook.headers[-1]["host"] == f"{SERVICE}.svc:443"

    set_client_config(api, tabs.group, service={**service, "port": 1234}, caBundle=hook.authority.bundle)
    assert api.get(tabs.path("v1", "a")).status == 500
    map_file.write_text(f"{SERVICE}:443: 127.0.0.1:1\n{SERVICE}:1234: 127.0.0.1:{hook.port}\n")
    until(lambda: api.get(tabs.path("v1", "a")).status == 200, "the service is found at its port")


@pytest.mark.rows("VER-009")
def test_service_name_outside_ascii_is_encoded(api: Client, hook: Webhook) -> None:
    tabs = serve_crontabs(api, hook)
    tabs.create("v1beta1", "a", hostPort="a:1")
    set_client_config(api, tabs.group, service={"name": "ümlaut", "namespace": "n"})
    message: str = api.get(tabs.path("v1", "a")).expect(500)["message"]
    _, _, why = message.partition(" failed: ")
    assert why.startswith('Post "https://%C3%BCmlaut.n.svc:443/?timeout=30s": dial tcp: lookup xn--mlaut-jva.n.svc')


CERTIFICATES = {
    "expired": "tls: failed to verify certificate: x509: certificate has expired or is not yet valid",
    "foreign": "tls: failed to verify certificate: x509: certificate signed by unknown authority",
    "another name": "tls: failed to verify certificate: x509: cannot validate certificate for 127.0.0.1 because it "
    "doesn't contain any IP SANs",
    "no TLS": "tls: first record does not look like a TLS handshake",
    "system roots": "tls: failed to verify certificate: x509: certificate signed by unknown authority",
}


@pytest.mark.rows("VER-009", "VER-008")
@pytest.mark.parametrize("fault", CERTIFICATES)
def test_webhook_with_untrusted_connection_is_not_called(
    api: Client, hook: Webhook, tmp_path: Path, fault: str
) -> None:
    tabs = serve_crontabs(api, hook)
    tabs.create("v1beta1", "a", hostPort="a:1")
    how: dict[str, dict[str, Any]] = {
        "expired": {"expired": True},
        "foreign": {"signer": tls.authority("somebody else")},
        "another name": {"names": ("example.org",)},
        "no TLS": {"plain": True},
    }
    with running_webhook(tmp_path, **how.get(fault, {})) as other:
        other.answer = answer(crontab)
        config = other.client_config("/convert")
        if fault == "system roots":
            del config["caBundle"]
        set_client_config(api, tabs.group, **config)
        found = api.get(tabs.path("v1", "a"))
        assert found.status == 500
        about = f"conversion webhook for {tabs.group}/v1beta1, Kind=CronTab failed: "
        wanted = f'{about}Post "{other.url("/convert")}?timeout=30s": {CERTIFICATES[fault]}'
        assert reason(found.json["message"]).startswith(wanted), found.json["message"]
        assert other.reviews == []


def test_start_fails_with_invalid_service_resolver_file(tmp_path: Path) -> None:
    path = tmp_path / "map.yaml"
    path.write_text("a.b:443: [1]\n")
    flags = ["--insecure", "--port=0", f"--data-dir={tmp_path / 'data'}", f"--service-resolver={path}"]
    ended = subprocess.run([*SERVE, *flags], capture_output=True, timeout=60, check=False)
    assert ended.returncode == 2, ended.stderr
    assert str(path) in ended.stderr.decode()
