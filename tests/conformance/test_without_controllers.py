"""A server with the flags of envtest: no controller of kube-controller-manager runs."""

from collections.abc import Iterator

import pytest

from apiext.conformance.support.http_client import Client
from tests.support.processes import running_server

NAMESPACES = "/api/v1/namespaces"


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    flags = ["--insecure", "--port=0", "--controllers=-namespace-controller"]
    with running_server(flags, tmp_path_factory.mktemp("alone")) as server:
        yield Client(server.url)


def test_deleted_namespace_stays_terminating(client: Client) -> None:
    client.post(NAMESPACES, {"metadata": {"name": "left"}}).expect(201)
    client.post(f"{NAMESPACES}/left/configmaps", {"metadata": {"name": "a"}}).expect(201)
    deleted = client.request("DELETE", f"{NAMESPACES}/left").expect(200)
    assert deleted["status"] == {"phase": "Terminating"}
    refused = client.post(f"{NAMESPACES}/left/configmaps", {"metadata": {"name": "b"}}).expect(403)
    assert refused["details"]["causes"][0]["reason"] == "NamespaceTerminating"
    client.request("DELETE", f"{NAMESPACES}/left/configmaps/a").expect(200)
    assert client.get(f"{NAMESPACES}/left").expect(200) == deleted


def test_finalize_removes_a_deleted_namespace(client: Client) -> None:
    client.post(NAMESPACES, {"metadata": {"name": "done"}}).expect(201)
    deleted = client.request("DELETE", f"{NAMESPACES}/done").expect(200)
    client.put(f"{NAMESPACES}/done/finalize", {**deleted, "spec": {"finalizers": []}}).expect(200)
    client.get(f"{NAMESPACES}/done").expect(404)


def test_first_namespaces_exist(client: Client) -> None:
    names = {item["metadata"]["name"] for item in client.get(NAMESPACES).expect(200)["items"]}
    assert names >= {"default", "kube-system"}
