"""Fixtures: servers as users run them, kubeconfigs, and each installed kubectl."""

from __future__ import annotations

import base64
import ssl
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from apiext.conformance.support.http_client import DEFINITIONS, Client
from apiext.conformance.support.waiting import until
from tests.clients import kubectl
from tests.clients.kubectl import Kubectl
from tests.clients.matrix import pytest_runtest_makereport
from tests.support.processes import PLAIN_FLAGS, Server, named_or_running, running_server

__all__ = ["pytest_runtest_makereport"]  # for the table of client families

KUBECTLS = kubectl.found()
STORIES = ("crontabs.stable.example.com", "shirts.stable.example.com")


@pytest.fixture(scope="session")
def server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A new server with plain http and few API groups.

    Old kubectls read only five groups per second.
    """
    with named_or_running(request.config.getoption("--server"), PLAIN_FLAGS, tmp_path_factory.mktemp("clients")) as it:
        yield it


@pytest.fixture(scope="session")
def kubeconfig(server: Server, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The kubeconfig that the server wrote, or a new one for the server of ``--server``."""
    if written := server.ready.get("kubeconfig"):
        return str(written)
    path = tmp_path_factory.mktemp("kubeconfig") / "config"
    named = {"cluster": {"server": server.url}, "name": "given"}
    context = {"context": {"cluster": "given", "user": ""}, "name": "given"}
    path.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [named],
                "contexts": [context],
                "current-context": "given",
            }
        )
    )
    return str(path)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def _each(versions: Iterable[str]) -> list[Any]:
    """Return versions as parameters for tests.

    CI tests the oldest, the middle and the newest. All other versions have the mark ``long``.
    """
    known = sorted(versions, key=_numbers)
    often = {*known[:1], *known[len(known) // 2 : len(known) // 2 + 1], *known[-1:]}
    return [pytest.param(it, marks=[] if it in often else [pytest.mark.long]) for it in known] or ["none"]


@pytest.fixture(params=_each({*KUBECTLS, kubectl.of_modules()} - {""}))
def kubectl_of(request: pytest.FixtureRequest, kubeconfig: str, tmp_path: Path) -> Kubectl:
    """Each installed kubectl, and the newest, which is built from its Go module."""
    if request.param == "none":
        pytest.skip("no kubectl on this machine: put one on PATH or name some in KUBECTL_PATHS")
    path = KUBECTLS.get(request.param) or kubectl.built(request.param)
    return Kubectl(path, _numbers(request.param), kubeconfig, tmp_path)


@pytest.fixture
def clean(server: Server) -> Iterator[Client]:
    """A client; the definitions of all stories are deleted before and after the test."""
    client = Client(server.url)
    _remove(client)
    yield client
    _remove(client)


@pytest.fixture(scope="session")
def secure_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with default flags: https, a token, and a kubeconfig with both."""
    with running_server(["--port=0"], tmp_path_factory.mktemp("secure")) as started:
        yield started


@pytest.fixture
def secure(secure_server: Server) -> Iterator[Client]:
    """A client of ``secure_server``.

    The definitions of all stories are deleted before and after the test.
    """
    client = secure_client(secure_server)
    _remove(client)
    yield client
    _remove(client)


def secure_client(server: Server) -> Client:
    """Return a client with the CA and the token of the kubeconfig that a server wrote."""
    kubeconfig = yaml.safe_load(Path(server.ready["kubeconfig"]).read_text(encoding="utf-8"))
    authority = base64.b64decode(kubeconfig["clusters"][0]["cluster"]["certificate-authority-data"])
    token = kubeconfig["users"][0]["user"]["token"]
    tls = ssl.create_default_context(cadata=authority.decode())
    return Client(server.url, {"Authorization": f"Bearer {token}"}, tls)


def _remove(client: Client) -> None:
    for name in STORIES:
        path = f"{DEFINITIONS}/{name}"
        if client.get(path).status == 404:
            continue
        collection = f"/apis/stable.example.com/v1/{name.partition('.')[0]}"
        answer = client.get(collection)
        for item in answer.json["items"] if answer.status == 200 else []:
            place = collection.replace("/v1/", f"/v1/namespaces/{item['metadata']['namespace']}/")
            client.patch(f"{place}/{item['metadata']['name']}", {"metadata": {"finalizers": None}})
        client.delete(path)
        until(lambda path=path: client.get(path).status == 404, f"{name} is gone")  # type: ignore[misc]
