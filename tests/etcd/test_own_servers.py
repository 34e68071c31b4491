"""apiext.testing: servers for tests, and the fixtures of the pytest plug-in."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from apiext.conformance.support.definitions import definition
from apiext.conformance.support.waiting import until
from apiext.testing import ApiError, Server, ServerNotReady, directories
from apiext.testing.child import STARTER
from apiext.tools import kubeconfig
from apiext.tools.access import from_kubeconfig
from tests.support.processes import log_lines, running_server

pytest_plugins = ["pytester"]
MANIFESTS = Path(__file__).parents[1] / "clients" / "manifests"
only_linux = pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux has abstract sockets, and tells children of their parent's death"
)
CRONTABS = "/apis/stable.example.com/v1/namespaces/default/crontabs"


@pytest.fixture(scope="module")
def api() -> Iterator[Server]:
    with Server() as server:
        yield server


@pytest.fixture(autouse=True)
def reset_server(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "api" in request.fixturenames:
        request.getfixturevalue("api").reset()


def configmap(name: str, **metadata: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **metadata}, "data": {"a": "b"}}


def crontab(**metadata: Any) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((MANIFESTS / "my-crontab.yaml").read_text())
    found["metadata"] |= metadata
    return found


def test_apply_creates_definitions_before_objects(api: Server) -> None:
    found = api.apply([crontab(name="mine"), MANIFESTS / "resourcedefinition.yaml"])
    assert [one["kind"] for one in found] == ["CustomResourceDefinition", "CronTab"]
    assert api.api.get(f"{CRONTABS}/mine").code == 200
    api.apply(configmap("here"), namespace="kube-public")
    assert api.api.get("/api/v1/namespaces/kube-public/configmaps/here").code == 200
    with pytest.raises(ValueError, match=r"ConfigMap x-: apply needs metadata\.name"):
        api.apply([configmap("first"), {**configmap(""), "metadata": {"generateName": "x-"}}])
    assert api.api.get("/api/v1/namespaces/default/configmaps/first").code == 404, "nothing was applied"


def test_reset_deletes_all_but_the_initial_objects(api: Server) -> None:
    before = {item["metadata"]["name"] for item in api.api.get("/api/v1/namespaces").document["items"]}
    crontabs = yaml.safe_load((MANIFESTS / "resourcedefinition.yaml").read_text())
    crontabs["metadata"]["finalizers"] = ["example.com/never"]
    api.apply(crontabs)
    api.apply(
        [
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "mine"}},
            configmap("kept-by-nobody", namespace="mine", finalizers=["example.com/never"]),
            configmap("in-default", finalizers=["example.com/never"]),
            crontab(finalizers=["example.com/never"]),
            crontab(name="elsewhere", namespace="mine", finalizers=["example.com/never"]),
        ]
    )
    api.reset()
    assert {item["metadata"]["name"] for item in api.api.get("/api/v1/namespaces").document["items"]} == before
    assert api.api.get("/api/v1/configmaps").document["items"] == []
    assert api.api.get(CRONTABS).code == 404
    api.apply(MANIFESTS / "resourcedefinition.yaml")
    assert api.api.get(CRONTABS).document["items"] == []


def test_reset_succeeds_with_unavailable_webhooks(api: Server) -> None:
    nowhere = {"url": "https://127.0.0.1:1/"}
    rule = {"apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"], "operations": ["*"], "scope": "*"}
    hook = {
        "name": "never.example.com", "clientConfig": nowhere, "rules": [rule], "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }  # fmt: skip
    crontabs = yaml.safe_load((MANIFESTS / "resourcedefinition.yaml").read_text())
    spec = crontabs["spec"]
    spec["versions"].append({**spec["versions"][0], "name": "v2", "storage": False})
    webhook = {"clientConfig": nowhere, "conversionReviewVersions": ["v1"]}
    spec["conversion"] = {"strategy": "Webhook", "webhook": webhook}
    api.apply([crontabs, crontab(finalizers=["example.com/never"])])
    kind = "ValidatingWebhookConfiguration"
    api.apply({"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": {"name": "never"},
               "webhooks": [hook]})  # fmt: skip
    with pytest.raises(ApiError, match="failed calling webhook"):
        api.apply(configmap("refused"))
    api.reset()
    api.apply(configmap("taken"))


def test_apply_raises_errors_of_the_server(api: Server) -> None:
    with pytest.raises(
        ApiError, match=r'no matches for kind "CronTab" in version "stable\.example\.com/v1"'
    ) as missing:
        api.apply(crontab())
    assert missing.value.code == 404
    with pytest.raises(ApiError, match="Invalid value") as invalid:
        api.apply(configmap("Not a name"))
    assert invalid.value.code == 422
    first, other = definition("first.example.com"), definition("first.example.com", "others")
    other["spec"]["names"]["kind"] = first["spec"]["names"]["kind"]
    api.apply(first)
    with pytest.raises(ApiError, match=r"is not served: .*already in use") as taken:
        api.apply(other)
    assert taken.value.code == 409


def test_secure_server_has_a_token_and_a_ca() -> None:
    with Server(secure=True) as server:
        assert server.url.startswith("https://")
        assert server.token
        assert "BEGIN CERTIFICATE" in Path(server.ca_file).read_text()
        assert server.environment == {"KUBECONFIG": str(server.kubeconfig)}
        server.apply(configmap("one"))
        kubeconfig = server.kubeconfig
    assert not kubeconfig.exists()
    with pytest.raises(ServerNotReady, match="not running"):
        server.apply(configmap("two"))


@pytest.mark.rows("AUT-001")
@pytest.mark.parametrize("name", ["alice", "alice-of-a-far-country" * 5])
def test_printed_kubeconfig_authenticates_its_user(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Server(secure=True) as server:
        asked = ["print", f"--data-dir={server.kubeconfig.parent}", f"--user={name}", "--groups=devs"]
        assert kubeconfig.run(asked) == 0
        file = tmp_path / "alice"
        file.write_text(capsys.readouterr().out)
        access = from_kubeconfig(file)
        review = b'{"apiVersion":"authentication.k8s.io/v1","kind":"SelfSubjectReview"}'
        url = f"{access.url}/apis/authentication.k8s.io/v1/selfsubjectreviews"
        request = urllib.request.Request(url, review, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, context=access.tls) as answer:
            user = json.load(answer)["status"]["userInfo"]
    assert (user["username"], user["groups"]) == (name, ["devs", "system:authenticated"])


def test_failed_start_raises_the_reason() -> None:
    with (
        pytest.raises(ServerNotReady, match="there is no --etcd-transport any more"),
        Server("--etcd-transport=grpc"),
    ):
        pass


def test_requests_are_logged_at_verbosity_2(tmp_path: Path) -> None:
    crontabs = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    with running_server(["--insecure", "--port=0", "--v=2"], tmp_path) as server:
        for path in ("/api/v1/namespaces/default", "/nowhere", f"{crontabs}?watch=true&timeoutSeconds=1"):
            wanted = urllib.request.Request(server.url + path, headers={"Audit-ID": "mine", "User-Agent": "me/1"})
            with contextlib.suppress(urllib.error.HTTPError), urllib.request.urlopen(wanted, timeout=20) as answer:
                answer.read()
    assert server.log is not None
    told = log_lines(server.log.read_text())
    lines = [line for line in told if line.get("event") == "request"]
    assert [(line["verb"], line["uri"], line["code"]) for line in lines] == [
        ("get", "/api/v1/namespaces/default", 200),
        ("get", "/nowhere", 404),
        ("watch", f"{crontabs}?watch=true&timeoutSeconds=1", 200),
    ]
    assert {(line["auditID"], line["userAgent"], line["user"], line["source"]) for line in lines} == {
        ("mine", "me/1", "admin", "127.0.0.1")
    }
    assert lines[0]["bytes"] > 100
    assert lines[2]["milliseconds"] > 900


@pytest.mark.parametrize("abstract", [False, pytest.param(True, marks=only_linux)])
def test_server_notifies_systemd_of_start_and_stop(tmp_path: Path, abstract: bool) -> None:
    place = f"@{tmp_path.name}-{os.getpid()}" if abstract else str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told:
        told.bind(place.replace("@", "\0", 1) if abstract else place)
        told.settimeout(20)
        with running_server(["--insecure", "--port=0"], tmp_path / "data", env={"NOTIFY_SOCKET": place}) as server:
            assert told.recv(100) == b"READY=1"
            with urllib.request.urlopen(f"{server.url}/readyz", timeout=20) as answer:
                assert answer.read() == b"ok"
        assert told.recv(100) == b"STOPPING=1"


def test_requests_are_not_logged_at_verbosity_1(tmp_path: Path) -> None:
    with (
        running_server(["--insecure", "--port=0", "--v=1"], tmp_path) as server,
        urllib.request.urlopen(f"{server.url}/readyz/etcd", timeout=20) as answer,
    ):
        answer.read()
    assert server.log is not None
    assert "/readyz" not in server.log.read_text()


def test_a_server_can_be_started_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("json", "logging", "apiext"):  # modules in the current directory, which the server must not import
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the wrong one')\n")
    monkeypatch.chdir(tmp_path)
    server = Server()
    for _ in range(2):
        with server:
            assert server.apply(configmap("mine"))
            pid = server._process.pid if server._process is not None else 0
    assert not _runs(pid)


ON_A_THREAD = """
import threading

thread = threading.Thread(target=server.start)
thread.start()
thread.join()
"""


@only_linux
@pytest.mark.parametrize("start", ["server.start()", ON_A_THREAD])
def test_server_ends_when_its_test_process_is_killed(start: str) -> None:
    code = (
        f"import os, signal\nfrom apiext.testing import Server\nserver = Server()\n{start}\n"
        "print(server._process.pid, server.kubeconfig, flush=True)\nos.kill(os.getpid(), signal.SIGKILL)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL
    pid, kubeconfig = done.stdout.split()
    until(lambda: not _runs(int(pid)), "the server has ended", 20.0)

    def swept() -> bool:
        directories.sweep()
        return not Path(kubeconfig).parents[1].exists()

    until(swept, "nobody holds its directory", 20.0)


@only_linux
def test_server_keeps_the_mark_of_its_directory_open(api: Server) -> None:
    assert api._process is not None
    held = {os.readlink(each) for each in Path(f"/proc/{api._process.pid}/fd").iterdir()}
    assert str(api.kubeconfig.parents[1] / directories.MARK) in held


def test_a_server_outlives_the_thread_that_started_it() -> None:
    server = Server()
    try:
        asyncio.run(asyncio.to_thread(server.start))  # the thread ends with the event loop
        assert server._process is not None
        with pytest.raises(subprocess.TimeoutExpired):
            server._process.wait(1.5)
        assert server.apply(configmap("mine"))
    finally:
        server.stop()
    until(lambda: STARTER not in [one.name for one in threading.enumerate()], "the starter has ended", 20.0)


def test_errors_of_a_start_in_a_thread_are_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(FileNotFoundError, match="/nowhere/python"):
        asyncio.run(asyncio.to_thread(Server().start))


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


PASSING = """
import json, os, subprocess, urllib.request

def names(url):
    with urllib.request.urlopen(url + "/api/v1/namespaces") as answer:
        return [item["metadata"]["name"] for item in json.load(answer)["items"]]

def test_a_namespace(kube_api, kube_namespace):
    assert kube_namespace in names(kube_api.url)
    assert os.environ["KUBECONFIG"] == str(kube_api.kubeconfig)

def test_another(kube_api, kube_namespace):
    kube_api.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}, kube_namespace)
    kube_api.reset()
    assert kube_namespace not in names(kube_api.url)
"""
EARLY = """
import kubernetes  # before there is a server: it reads KUBECONFIG now

def test_it(kube_api, kube_namespace):
    kubernetes.config.load_kube_config()
    assert kube_namespace in [it.metadata.name for it in kubernetes.client.CoreV1Api().list_namespace().items]
"""
FAILING = """
def test_it(kube_api):
    kube_api.log_tail = lambda: "what the server wrote"
    assert False

def test_without():
    assert False
"""


def run_pytest(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return pytester.runpytest_subprocess("-p", "no:cacheprovider", "-p", "apiext.testing.plugin", *arguments)


@pytest.fixture
def without_other_plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run pytest as in a user's project: only with the plug-in apiext.testing.

    The plug-in is installed or comes from the sources.
    """
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))


@pytest.mark.usefixtures("without_other_plugins")
def test_pytest_fixtures_provide_server_and_namespace(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(PASSING)
    pytester.makeini("[pytest]\nkube_api_flags = --kubernetes-version=1.30.0 --quiet\n")
    run_pytest(pytester).assert_outcomes(passed=2)


@pytest.mark.usefixtures("without_other_plugins")
@pytest.mark.parametrize("listed", ["", "example.com"])
def test_environment_bypasses_proxies_for_the_server(
    listed: str, pytester: pytest.Pytester, api: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = api.environment
    for name in ("http_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.setenv(name, listed)
    wanted = f"{listed},127.0.0.1".strip(",")
    assert api.environment == {**before, "NO_PROXY": wanted, "no_proxy": wanted}
    pytester.makepyfile(PASSING)
    run_pytest(pytester, f"--kube-api-url={api.url}").assert_outcomes(passed=2)
    monkeypatch.setenv("no_proxy", "*")
    assert api.environment == before


@pytest.mark.usefixtures("without_other_plugins")
def test_client_imported_before_the_start_finds_the_server(pytester: pytest.Pytester, api: Server) -> None:
    pytester.makepyfile(EARLY)
    run_pytest(pytester, f"--kube-api-url={api.url}").assert_outcomes(passed=1)


@pytest.mark.usefixtures("without_other_plugins")
def test_kube_api_url_option_uses_a_running_server(pytester: pytest.Pytester, api: Server) -> None:
    pytester.makepyfile(PASSING)
    run_pytest(pytester, f"--kube-api-url={api.url}").assert_outcomes(passed=2)
    assert os.environ.get("KUBECONFIG") != str(api.kubeconfig)


@pytest.mark.usefixtures("without_other_plugins")
def test_failed_test_report_contains_the_server_log(pytester: pytest.Pytester, api: Server) -> None:
    pytester.makepyfile(FAILING)
    done = run_pytest(pytester, f"--kube-api-url={api.url}")
    done.assert_outcomes(failed=2)
    assert str(done.stdout).count("what the server wrote\n") == 1
    assert str(done.stdout).count("apiext server") == 1
