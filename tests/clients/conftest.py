"""A server as a user has it, with its kubeconfig."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.clients import kubectl
from tests.clients.kubectl import Kubectl
from tests.support.http_client import DEFINITIONS, Client
from tests.support.processes import Server
from tests.support.waiting import until

KUBECTLS = kubectl.found()
STORIES = ("crontabs.stable.example.com", "shirts.stable.example.com")


@pytest.fixture(scope="session")
def kubeconfig(server: Server, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The kubeconfig that the server wrote, or one for the server of --server."""
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


@pytest.fixture(params=sorted(KUBECTLS, key=lambda version: tuple(map(int, version.split(".")))) or ["none"])
def kubectl_of(request: pytest.FixtureRequest, kubeconfig: str, tmp_path: Path) -> Kubectl:
    """Each kubectl that is there."""
    if request.param not in KUBECTLS:
        pytest.skip("no kubectl on this machine: put one on PATH or name some in KUBECTL_PATHS")
    version = tuple(map(int, request.param.split(".")))
    return Kubectl(KUBECTLS[request.param], version, kubeconfig, tmp_path)


@pytest.fixture
def clean(server: Server) -> Iterator[Client]:
    """No definition of a story is left over, before and after."""
    client = Client(server.url)
    _remove(client)
    yield client
    _remove(client)


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
