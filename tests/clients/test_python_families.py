"""Python client libraries besides the official client.

Each has a program as its users write it.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from apiext.conformance.support.definitions import establish
from apiext.conformance.support.http_client import Client
from apiext.conformance.support.waiting import until
from tests.clients import toolchain
from tests.clients.kubectl import MANIFESTS
from tests.support.processes import Server

STORIES = toolchain.HERE / "stories"
CRONTABS = "/apis/stable.example.com/v1/namespaces/default/crontabs"


def needed(package: str) -> None:
    """Skip the test if a package is not installed."""
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed: pip install -e '.[clients]'")


def family(package: str, *rows: str) -> object:
    marks = [pytest.mark.client(package)] + ([pytest.mark.rows(*rows)] if rows else [])
    return pytest.param(package, marks=marks, id=package)


@pytest.mark.parametrize(
    "package",
    [
        family("kr8s", "KUB-006", "DIS-101", "WRI-016"),
        family("lightkube", "KUB-006", "RV-011", "NEG-005", "WRI-021"),
        family("pykube", "KUB-006", "RV-010"),
        family("kubernetes_asyncio", "KUB-006", "RV-010", "WRI-007"),
    ],
)
@pytest.mark.usefixtures("secure")
def test_python_client_program_succeeds(package: str, secure_server: Server, tmp_path: Path) -> None:
    needed(package)
    kubeconfig = str(secure_server.ready["kubeconfig"])
    command = [sys.executable, str(STORIES / f"with_{package}.py")]
    toolchain.succeed(command, tmp_path, 60, {"KUBECONFIG": kubeconfig, "HOME": str(tmp_path)})


@pytest.mark.client("kopf")
@pytest.mark.rows("KUB-006", "WRI-017", "WRI-007", "SRV-005")
def test_kopf_operator_handles_an_object(secure: Client, secure_server: Server, tmp_path: Path) -> None:
    needed("kopf")
    wanted = yaml.safe_load((MANIFESTS / "resourcedefinition.yaml").read_text(encoding="utf-8"))
    version = wanted["spec"]["versions"][0]
    version["subresources"] = {"status": {}}
    loose = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version["schema"]["openAPIV3Schema"]["properties"]["status"] = loose
    establish(secure, wanted)
    log = tmp_path / "operator.log"
    command = [sys.executable, "-m", "kopf", "run", "--namespace=default", str(STORIES / "with_kopf.py")]
    with log.open("wb") as out:
        operator = subprocess.Popen(
            command,
            stdout=out,
            stderr=out,
            stdin=subprocess.DEVNULL,
            cwd=tmp_path,
            env={"KUBECONFIG": str(secure_server.ready["kubeconfig"]), "HOME": str(tmp_path), "PATH": ""},
        )
    try:
        check_operator(secure, log)
    finally:
        operator.terminate()
        assert operator.wait(20) == 0, log.read_text()


def check_operator(api: Client, log: Path) -> None:
    crontab = yaml.safe_load((MANIFESTS / "my-crontab.yaml").read_text(encoding="utf-8"))
    path = f"{CRONTABS}/{crontab['metadata']['name']}"
    api.post(CRONTABS, crontab).expect(201)

    def status() -> dict[str, object]:
        found: dict[str, object] = api.get(path).json.get("status") or {}
        return found

    until(lambda: status().get("phase") == "Scheduled", f"the status is set: {log}", within=30)
    seen = api.get(path).expect(200)
    assert seen["metadata"]["finalizers"] == ["stable.example.com/kopf"]
    assert seen["metadata"]["generation"] == 1
    api.patch(path, {"spec": {"replicas": 4}}).expect(200)
    until(lambda: status().get("replicas") == 4, "the change is handled", within=30)
    assert api.delete(path).expect(200)["metadata"]["deletionTimestamp"]
    until(lambda: api.get(path).status == 404, "the finalizer is gone", within=30)
    assert f"cleaned up {crontab['metadata']['name']}" in log.read_text()
