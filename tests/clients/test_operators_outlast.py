"""Operators, informers and commands outlast kills of the server and of etcd.

The server is killed first, then etcd. No client needs a restart.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from apiext.conformance.support.definitions import establish
from apiext.conformance.support.http_client import Client
from apiext.conformance.support.waiting import pause, until
from tests.clients import kubectl, toolchain
from tests.clients.conftest import KUBECTLS, secure_client
from tests.clients.kubectl import MANIFESTS
from tests.clients.test_python_families import needed
from tests.support.processes import Etcd, Server, running_etcd, start_server, stop

CRONTABS = "/apis/stable.example.com/v1/namespaces/default/crontabs"
MAPS = "/api/v1/namespaces/default/configmaps"
STORIES = toolchain.HERE / "stories"
WITHIN = 60.0  # seconds until each program has noticed a change; some programs wait for seconds before a retry


class World:
    """An etcd and a server over it.

    Tests kill them and start them again with the same port and data.
    """

    def __init__(self, etcd: Etcd, directory: Path) -> None:
        self.etcd = etcd
        self._directory = directory
        self._port = 0
        self._begin()

    def _begin(self) -> None:
        flags = [f"--port={self._port}", f"--etcd-servers={self.etcd.url}"]
        self.server: Server = start_server(self._directory, flags)
        self._port = urlsplit(self.server.url).port or 0

    @property
    def api(self) -> Client:
        """A client of the server."""
        return secure_client(self.server)

    def kill_the_server(self) -> None:
        """Kill the server and start it again with the same data and port."""
        os.kill(self.server.pid, signal.SIGKILL)
        assert self.server.process is not None
        self.server.process.wait(30)
        pause(1.0)
        self._begin()

    def restart_etcd(self) -> None:
        """Kill etcd and start it again, while the server runs."""
        command = Path(f"/proc/{self.etcd.process.pid}/cmdline").read_bytes().decode().split("\0")[:-1]
        self.etcd.process.kill()
        self.etcd.process.wait()
        pause(2.0)
        with (self.etcd.directory / "etcd.log").open("ab") as log:
            self.etcd.process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        until(lambda: self.api.get("/readyz").status == 200, "the server is ready again", 20)


@dataclass
class Follower:
    """A program that watches crontabs, and its expected reactions to a new and a deleted object."""

    name: str
    command: Sequence[str]
    directory: Path
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def output(self) -> list[str]:
        """The lines of its output."""
        return (self.directory / f"{self.name}.said").read_text(errors="replace").splitlines()

    def saw_create(self, api: Client, name: str) -> bool:
        """Report whether the program has printed a new object."""
        return f"+{name}" in self.output

    def saw_delete(self, api: Client, name: str) -> bool:
        """Report whether the program has printed a deletion."""
        return f"-{name}" in self.output

    @contextlib.contextmanager
    def running(self, kubeconfig: str) -> Iterator[subprocess.Popen[bytes]]:
        """Run the program."""
        with (self.directory / f"{self.name}.said").open("wb") as out:
            process = subprocess.Popen(
                list(self.command),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=out,
                cwd=self.directory,
                env={**os.environ, "KUBECONFIG": kubeconfig, "HOME": str(self.directory), **self.environment},
            )
        try:
            yield process
        finally:
            stop(process)


class Kopf(Follower):
    """A kopf operator: it sets a status, and its finalizer delays deletions until its cleanup."""

    def saw_create(self, api: Client, name: str) -> bool:
        return (api.get(f"{CRONTABS}/{name}").json.get("status") or {}).get("phase") == "Scheduled"

    def saw_delete(self, api: Client, name: str) -> bool:
        return f"cleaned up {name}" in self.output


class Manager(Follower):
    """A controller-runtime manager with leader election: it creates a config map per object."""

    def saw_create(self, api: Client, name: str) -> bool:
        answer = api.get(f"{MAPS}/{name}")
        return answer.status == 200 and answer.json["data"] == {"image": f"image-of-{name}"}

    def saw_delete(self, api: Client, name: str) -> bool:
        return api.get(f"{MAPS}/{name}").status == 404  # the server's garbage collector deletes it


class Maps(Follower):
    """A program that watches config maps; the test writes one for each crontab."""

    def saw_create(self, api: Client, name: str) -> bool:
        return f"+beside-{name}" in self.output

    def saw_delete(self, api: Client, name: str) -> bool:
        return f"-beside-{name}" in self.output


def _python(directory: Path) -> Iterator[Follower]:
    needed("kopf")
    kopf = [sys.executable, "-m", "kopf", "run", "--namespace=default", str(STORIES / "with_kopf.py")]
    yield Kopf("kopf", kopf, directory)
    yield Follower("watch", [sys.executable, str(STORIES / "with_kubernetes_watch.py")], directory)
    if importlib.util.find_spec("kubernetes.informer"):
        yield Maps("informer", [sys.executable, str(STORIES / "with_kubernetes_informer.py")], directory)


def _go(directory: Path) -> Iterator[Follower]:
    yield Manager("manager", [toolchain.go_build("go_envtest", "./manager"), "outlast"], directory)


def _rust(directory: Path) -> Iterator[Follower]:
    yield Follower("kube-rs", [toolchain.cargo_build("rust_kube"), "outlast"], directory)


def _java(directory: Path) -> Iterator[Follower]:
    for name in ("fabric8", "official"):
        yield Follower(name, [*toolchain.java_command("java_clients", name), "Outlast"], directory)


def _write(api: Client, name: str) -> None:
    head = {"apiVersion": "stable.example.com/v1", "kind": "CronTab", "metadata": {"name": name}}
    api.post(CRONTABS, {**head, "spec": {"image": f"image-of-{name}"}}).expect(201)
    api.post(MAPS, {"metadata": {"name": f"beside-{name}"}}).expect(201)


def _remove(api: Client, name: str) -> None:
    api.delete(f"{CRONTABS}/{name}").expect(200)
    api.delete(f"{MAPS}/beside-{name}").expect(200)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """An etcd and a server, with the definition and one object."""
    with running_etcd(tmp_path / "etcd") as etcd:
        world = World(etcd, tmp_path / "server")
        try:
            wanted: Any = yaml.safe_load((MANIFESTS / "resourcedefinition.yaml").read_text(encoding="utf-8"))
            loose = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
            wanted["spec"]["versions"][0]["subresources"] = {"status": {}}
            wanted["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["status"] = loose
            establish(world.api, wanted)
            _write(world.api, "was-there")
            yield world
        finally:
            assert world.server.process is not None
            stop(world.server.process)
            stop(etcd.process)


def _wait_all(followers: Sequence[Follower], seen: Callable[[Follower], bool], what: str) -> None:
    for each in followers:
        until(lambda each=each: seen(each), f"{each.name} takes note of {what}; it said {each.output[-5:]}", WITHIN)  # type: ignore[misc]


@pytest.mark.rows("KUB-006", "RV-009", "RV-010", "WRI-017")
@pytest.mark.parametrize(
    "programs",
    [
        pytest.param(_python, marks=pytest.mark.client("kopf"), id="python"),
        pytest.param(_go, marks=[pytest.mark.client("controller-runtime manager"), pytest.mark.long], id="go"),
        pytest.param(_rust, marks=[pytest.mark.client("kube-rs 5.0.0"), pytest.mark.long], id="rust"),
        pytest.param(_java, marks=[pytest.mark.client("fabric8 kubernetes-client 8.0.0"), pytest.mark.long], id="java"),
    ],
)
def test_operators_survive_restarts_of_server_and_etcd(
    world: World, tmp_path: Path, programs: Callable[[Path], Iterator[Follower]]
) -> None:
    followers = list(programs(tmp_path))
    kubeconfig = str(world.server.ready["kubeconfig"])
    with contextlib.ExitStack() as stack:
        running = [stack.enter_context(each.running(kubeconfig)) for each in followers]
        _wait_all(followers, lambda it: it.saw_create(world.api, "was-there"), "what was there")
        for fault in (world.kill_the_server, world.restart_etcd) * (1 if programs is _python else 2):
            number = f"{fault.__name__.replace('_', '-')}-{world.server.pid}"
            _write(world.api, f"before-{number}")
            _wait_all(followers, lambda it, name=f"before-{number}": it.saw_create(world.api, name), "a new one")  # type: ignore[misc]
            fault()
            back = time.monotonic()
            _write(world.api, f"after-{number}")
            _wait_all(followers, lambda it, name=f"after-{number}": it.saw_create(world.api, name), "one after it")  # type: ignore[misc]
            names = ", ".join(each.name for each in followers)
            print(f"{names}: converged {time.monotonic() - back:.1f} s after {fault.__name__}")
            _remove(world.api, f"before-{number}")
            _wait_all(followers, lambda it, name=f"before-{number}": it.saw_delete(world.api, name), "a deletion")  # type: ignore[misc]
        assert [process.poll() for process in running] == [None] * len(running), "one of them gave up"
        for each in followers:
            told = [line for line in each.output if line.startswith(("-", "cleaned up"))]
            assert len(told) == len(set(told)), f"{each.name} was told of a deletion twice: {told}"
        _remove(world.api, "was-there")  # while the operator with the finalizer runs
        until(lambda: world.api.get(f"{CRONTABS}/was-there").status == 404, "it is gone", WITHIN)


@pytest.mark.client("kubectl get -w and wait")
@pytest.mark.rows("KUB-006", "RV-009")
def test_kubectl_watch_survives_an_etcd_restart(world: World, tmp_path: Path) -> None:
    if not KUBECTLS:
        pytest.skip("no kubectl on this machine: put one on PATH or name some in KUBECTL_PATHS")
    path = KUBECTLS[max(KUBECTLS, key=lambda it: tuple(map(int, it.split("."))))]
    kubeconfig = str(world.server.ready["kubeconfig"])
    _write(world.api, "awaited")
    get = Follower("get", [path, "get", "crontabs", "--watch", "--output-watch-events", "--no-headers"], tmp_path)
    wait = Follower("wait", [path, "wait", "--for=delete", "crontab/awaited", "--timeout=90s"], tmp_path)

    def has_printed(kind: str, name: str) -> bool:
        return [kind, name] in [line.split()[:2] for line in get.output]

    with get.running(kubeconfig) as watching, wait.running(kubeconfig) as waiting:
        until(lambda: has_printed("ADDED", "awaited"), f"it is listed: {get.output}", WITHIN)
        pause(1.0)  # until the watch of the other command is open, too
        world.restart_etcd()
        _write(world.api, "later")
        until(lambda: has_printed("ADDED", "later"), f"it goes on: {get.output}", WITHIN)
        _remove(world.api, "awaited")
        until(lambda: has_printed("DELETED", "awaited"), f"it goes on: {get.output}", WITHIN)
        assert waiting.wait(WITHIN) == 0, wait.output
        assert watching.poll() is None, get.output
        world.kill_the_server()
        assert watching.wait(WITHIN) is not None, "it hangs on a server that is gone"
    assert kubectl.Kubectl(path, (1,), kubeconfig, tmp_path)("get", "crontab", "later", "-o", "name")
