"""Tests of Rust and Java clients.

The clients: kube-rs, fabric8's kubernetes-client, the official Java client, java-operator-sdk.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import yaml

from apiext.conformance.support.definitions import establish
from apiext.conformance.support.http_client import Client
from apiext.conformance.support.waiting import until
from tests.clients import toolchain
from tests.clients.conftest import secure_client
from tests.clients.kubectl import MANIFESTS
from tests.support.processes import ROOT, Server, start_server, stop

CRONTABS = "/apis/stable.example.com/v1/namespaces/default/crontabs"
STEPS = {
    "kube-rs": (
        "definition applied and established", "kinds discovered", "objects written",
        "applied, in conflict and by force", "status and scale",
        "lists, pages, metadata", "errors told", "deleted", "a watch from a revision",
        "watches begun in each way", "a cache filled", "leaders elected", "an owned object applied, a status too",
        "an owned object follows", "an owned object comes back", "an owner gone, its objects collected",
        "events recorded", "an operator runs", "the definition goes", "done",
    ),
    "fabric8": (
        "definition applied and established", "objects written", "edited and patched",
        "applied, in conflict and by force", "status and scale", "lists, tables, metadata", "errors told", "watches",
        "an informer follows", "deleted, with what is owned", "manifests loaded", "a leader elected",
        "the definition goes", "done",
    ),
    "official": (
        "definition created and established", "kinds discovered", "typed objects", "each patch", "plain maps",
        "dynamic objects", "a watch", "informers follow", "a leader elected", "a controller reconciles",
        "deleted, with what is owned", "the definition goes", "done",
    ),
    "operator_sdk": (
        "elected and started", "a dependent resource applied, a status and a finalizer too", "it follows",
        "it comes back", "cleaned up and collected", "done",
    ),
}  # fmt: skip
CLIENTS = {
    "kube-rs": "kube-rs 5.0.0",
    "fabric8": "fabric8 kubernetes-client 8.0.0",
    "official": "io.kubernetes:client-java 25.0.0",
    "operator_sdk": "java-operator-sdk 5.2.3 (fabric8 7.5.2)",
}


def client_parameters(*names: str) -> list[object]:
    return [pytest.param(name, marks=pytest.mark.client(CLIENTS[name]), id=name) for name in names]


def _command(client: str, mode: str = "") -> list[str]:
    if client == "kube-rs":
        return [toolchain.cargo_build("rust_kube"), *([mode] if mode else [])]
    return [*toolchain.java_command("java_clients", client), mode.capitalize() or "Story", str(MANIFESTS)]


@pytest.mark.rows("KUB-006", "SSA-001", "RV-010", "RV-013", "DEC-001", "NEG-005", "WRI-018", "CRD-008")
@pytest.mark.parametrize("client", client_parameters(*STEPS))
def test_client_program_completes_its_steps(secure: Client, secure_server: Server, tmp_path: Path, client: str) -> None:
    kubeconfig = Path(secure_server.ready["kubeconfig"])
    if client == "operator_sdk":
        kubeconfig = write_certificate_kubeconfig(kubeconfig, tmp_path / "config")
    environment = {"KUBECONFIG": str(kubeconfig), "HOME": str(tmp_path)}
    said = toolchain.succeed(_command(client), tmp_path, 240, environment)
    assert [line for line in said.splitlines() if line in STEPS[client]] == list(STEPS[client]), said[-4000:]
    left = [it["metadata"]["name"] for it in secure.get("/apis/coordination.k8s.io/v1/leases").expect(200)["items"]]
    assert [name for name in left if name.endswith("-story")] == [], "a lease is left over"


def write_certificate_kubeconfig(given: Path, written: Path) -> Path:
    """Write a kubeconfig for a user with a client certificate."""
    command = [sys.executable, "-m", "apiext", "kubeconfig", "print", f"--data-dir={given.parent}", "--user=sdk"]
    told = subprocess.run([*command, "--ttl=1h"], cwd=ROOT, capture_output=True, text=True, check=True)
    written.write_text(told.stdout, encoding="utf-8")
    return written


@contextlib.contextmanager
def _running(command: list[str], environment: dict[str, str], log: Path) -> Iterator[None]:
    with log.open("wb") as written:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=written, stderr=written, env={**os.environ, **environment}
        )
    try:
        yield
    finally:
        stop(process)


@pytest.mark.rows("KUB-006", "RV-010")
@pytest.mark.parametrize("client", client_parameters("kube-rs", "fabric8", "official"))
def test_informer_survives_server_restarts(tmp_path: Path, client: str) -> None:
    command, log = _command(client, "outlast"), tmp_path / "said"
    server = start_server(tmp_path / "server", ["--port=0"])
    port = urlsplit(server.url).port
    environment = {"KUBECONFIG": str(server.ready["kubeconfig"]), "HOME": str(tmp_path)}

    def wait_for_line(line: str) -> None:
        until(lambda: line in log.read_text(errors="replace").splitlines(), f"{client} says {line}", 90)

    def write(api: Client, name: str) -> None:
        crontab = {"apiVersion": "stable.example.com/v1", "kind": "CronTab", "metadata": {"name": name}}
        api.post(CRONTABS, crontab).expect(201)

    try:
        api = secure_client(server)
        establish(api, yaml.safe_load((MANIFESTS / "resourcedefinition.yaml").read_text(encoding="utf-8")))
        write(api, "was-there")
        with _running(command, environment, log):
            wait_for_line("+was-there")
            wait_for_line("synced")
            for number, how in enumerate((signal.SIGTERM, signal.SIGKILL)):
                write(api, f"before-{number}")
                wait_for_line(f"+before-{number}")
                os.kill(server.pid, how)
                assert server.process is not None
                server.process.wait(30)
                server = start_server(tmp_path / "server", [f"--port={port}"])
                api = secure_client(server)
                write(api, f"after-{number}")
                wait_for_line(f"+after-{number}")
                api.delete(f"{CRONTABS}/before-{number}").expect(200)
                wait_for_line(f"-before-{number}")
        said = log.read_text(errors="replace").splitlines()
        assert [said.count(f"-before-{number}") for number in (0, 1)] == [1, 1], said
    finally:
        assert server.process is not None
        stop(server.process)
