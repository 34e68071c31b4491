"""The server instead of kube-apiserver in envtest.

Tests are the flags that envtest passes, and the suite of an operator.
"""

from __future__ import annotations

import re
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from apiext.conformance.support.http_client import Client
from apiext.conformance.support.waiting import until
from tests.clients import toolchain
from tests.conformance.test_tls import Authority
from tests.support.processes import free_port, stop
from tests.support.shared import ROOT

READY_WITHIN = 20.0  # seconds that envtest waits for /healthz
STOP_WITHIN = 20.0  # seconds from SIGTERM to SIGKILL
NEED_DEPLOYMENTS = ("should reject create request for webhook that rejects all requests",)
"""Specs of controller-runtime's own suite that create an object of apps/v1, which is not served here."""


@pytest.fixture(scope="module")
def assets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory for KUBEBUILDER_ASSETS."""
    directory = tmp_path_factory.mktemp("assets") / "of envtest"
    command = [sys.executable, "-m", "apiext", "envtest-assets", str(directory)]
    assert toolchain.succeed(command, ROOT).splitlines()[-1] == f"export KUBEBUILDER_ASSETS='{directory}'"
    return directory


@pytest.mark.client("envtest")
@pytest.mark.rows("AUT-001", "AUT-002", "NSP-001", "HLT-001", "DIS-101")
def test_launcher_meets_the_contract_of_envtest(assets: Path, tmp_path: Path) -> None:
    launcher = assets / "kube-apiserver"
    told = toolchain.succeed([str(launcher), "--help"], tmp_path)
    assert not re.search(r"^\s*--insecure-port\b", told, re.M)
    assert toolchain.succeed([str(launcher), "--version"], tmp_path).startswith("Kubernetes v1.")
    clients, serving = Authority(tmp_path), tmp_path / "certs"
    serving.mkdir()
    certificate, key = Authority(serving).issue("apiserver")
    signer = rsa.generate_private_key(65537, 2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )
    (serving / "sa-signer.key").write_bytes(signer)
    (serving / "sa-signer.crt").write_bytes(certificate.read_bytes())
    assert (certificate.name, key.name) == ("apiserver.crt", "apiserver.key")
    port = free_port()
    flags = [
        "--allow-privileged=true", "--authorization-mode=RBAC", "--bind-address=127.0.0.1", f"--cert-dir={serving}",
        f"--client-ca-file={clients.file}", "--disable-admission-plugins=ServiceAccount",
        f"--etcd-servers=http://127.0.0.1:{free_port()}", f"--secure-port={port}", f"--service-account-issuer=https://127.0.0.1:{port}/",
        f"--service-account-key-file={serving}/sa-signer.crt",
        f"--service-account-signing-key-file={serving}/sa-signer.key", "--service-cluster-ip-range=10.0.0.0/24",
        "--etcd-prefix=/envtest", "--feature-gates=SomeGate=true", "--runtime-config=api/all=true", "--v=0",
    ]  # fmt: skip
    log = tmp_path / "log"
    began = time.monotonic()
    with log.open("wb") as out:
        process = subprocess.Popen([str(launcher), *flags], stdout=out, stderr=out, cwd=tmp_path)
    try:
        until(lambda: _healthy(port, process, log), "/healthz answers without credentials", READY_WITHIN)
        print(f"ready after {time.monotonic() - began:.2f} s")
        tls = ssl.create_default_context()
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
        tls.load_cert_chain(*map(str, clients.issue("admin", "system:masters")))
        api = Client(f"https://127.0.0.1:{port}", tls=tls)
        for name in ("default", "kube-system", "kube-public", "kube-node-lease"):
            assert api.get(f"/api/v1/namespaces/{name}").expect(200)["status"]["phase"] == "Active"
        _assert_roles_count(api, f"https://127.0.0.1:{port}", clients)
        anonymous = ssl.create_default_context()
        anonymous.check_hostname, anonymous.verify_mode = False, ssl.CERT_NONE
        assert Client(f"https://127.0.0.1:{port}", tls=anonymous).get("/api/v1/namespaces").status == 401
        assert (serving / "apiext").is_dir(), "what a run leaves must go with its certificates"
    finally:
        began = time.monotonic()
        assert stop(process, STOP_WITHIN) == 0, log.read_text()
    print(f"stopped after {time.monotonic() - began:.2f} s")


def _assert_roles_count(api: Client, url: str, clients: Authority) -> None:
    """Check that a user of a certificate gets the permissions of a role as soon as it is bound."""
    tls = ssl.create_default_context()
    tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    tls.load_cert_chain(*map(str, clients.issue("joe", "devs")))
    joe, path = Client(url, tls=tls), "/api/v1/namespaces/default/configmaps"
    refused = joe.get(path).expect(403)
    text = 'User "joe" cannot list resource "configmaps" in API group "" in the namespace "default"'
    assert refused["message"] == f"configmaps is forbidden: {text}"
    group = "rbac.authorization.k8s.io"
    roles = f"/apis/{group}/v1/namespaces/default/roles"
    rule = {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list", "create"]}
    api.post(roles, {"metadata": {"name": "writers"}, "rules": [rule]}).expect(201)
    binding = {
        "metadata": {"name": "devs"},
        "roleRef": {"apiGroup": group, "kind": "Role", "name": "writers"},
        "subjects": [{"kind": "Group", "apiGroup": group, "name": "devs"}],
    }
    api.post(f"/apis/{group}/v1/namespaces/default/rolebindings", binding).expect(201)
    until(lambda: joe.get(path).status == 200, "the role counts", 5)
    joe.post(path, {"metadata": {"name": "mine"}}).expect(201)
    joe.get("/api/v1/configmaps").expect(403)


def _healthy(port: int, process: subprocess.Popen[bytes], log: Path) -> bool:
    assert process.poll() is None, log.read_text()
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with urllib.request.urlopen(f"https://127.0.0.1:{port}/healthz", timeout=5, context=context) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def _environment(assets: Path) -> dict[str, str]:
    """Return the environment of the suites.

    They print the server's log, so that a failed start shows its error.
    """
    return {
        "KUBEBUILDER_ASSETS": str(assets),
        "KUBEBUILDER_ATTACH_CONTROL_PLANE_OUTPUT": "true",
        "KUBECONFIG": "",
    }


@pytest.mark.client("envtest")
@pytest.mark.rows("KUB-006", "RV-013", "CND-004", "WRI-017", "NSP-005", "AUT-002", "ADM-002")
def test_unmodified_envtest_suites_pass_in_parallel(assets: Path) -> None:
    suite = toolchain.go_build("go_envtest", test=True)
    environment = _environment(assets)
    with ThreadPoolExecutor() as pool:  # `go test ./...` runs packages in parallel
        runs = [
            pool.submit(toolchain.succeed, [suite, "-test.v"], toolchain.HERE / "go_envtest", 180, environment)
            for _ in range(2)
        ]
    for run in runs:
        said = run.result()
        ready = re.search(r"ready after (\d+) ms", said)
        assert ready, said
        print(f"control plane and definitions ready after {ready[1]} ms")
        passed = re.findall(r"^--- PASS: (\w+)", said, re.M)
        assert len(passed) == 5, said[-4000:]


@pytest.mark.client("envtest")
@pytest.mark.rows("KUB-006", "CND-004", "DEL-005", "NSP-001", "AUT-002")
def test_controller_runtime_envtest_suite_passes(assets: Path) -> None:
    sources = toolchain.go_sources("sigs.k8s.io/controller-runtime", of="go_envtest")
    suite = toolchain.go_build(str(sources), "./pkg/envtest", test=True)
    environment = _environment(assets) | {"GOMEGA_DEFAULT_EVENTUALLY_TIMEOUT": "30s"}
    command = [suite, "-test.v", "-ginkgo.no-color", f"-ginkgo.skip={'|'.join(NEED_DEPLOYMENTS)}"]
    said = toolchain.succeed(command, sources / "pkg" / "envtest", 300, environment)
    counts = re.search(r"(\d+) Passed \| (\d+) Failed \| \d+ Pending \| (\d+) Skipped", said)
    assert counts, said[-4000:]
    print(f"{counts[1]} specs passed, {counts[3]} left out since they create a Deployment")
    assert int(counts[1]) >= 27
    assert (int(counts[2]), int(counts[3])) == (0, len(NEED_DEPLOYMENTS))
