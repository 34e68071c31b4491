"""A server with the flags of envtest: no controller of kube-controller-manager runs."""

from collections.abc import Iterator

import pytest

from apiext.conformance.support.http_client import Client
from tests.support.processes import running_server

NAMESPACES = "/api/v1/namespaces"


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    flags = ["--insecure", "--port=0", "--controllers=-namespace-controller"]
    with running_server(flags, tmp_path_factory.mktemp("alone")) as server:
        yield Client(server.url)


def test_deleted_namespace_stays_terminating(alone: Client) -> None:
    alone.post(NAMESPACES, {"metadata": {"name": "left"}}).expect(201)
    alone.post(f"{NAMESPACES}/left/configmaps", {"metadata": {"name": "a"}}).expect(201)
    deleted = alone.request("DELETE", f"{NAMESPACES}/left").expect(200)
    assert deleted["status"] == {"phase": "Terminating"}
    refused = alone.post(f"{NAMESPACES}/left/configmaps", {"metadata": {"name": "b"}}).expect(403)
    assert refused["details"]["causes"][0]["reason"] == "NamespaceTerminating"
    alone.request("DELETE", f"{NAMESPACES}/left/configmaps/a").expect(200)
    assert alone.get(f"{NAMESPACES}/left").expect(200) == deleted


def test_finalize_removes_a_deleted_namespace(alone: Client) -> None:
    alone.post(NAMESPACES, {"metadata": {"name": "done"}}).expect(201)
    deleted = alone.request("DELETE", f"{NAMESPACES}/done").expect(200)
    alone.put(f"{NAMESPACES}/done/finalize", {**deleted, "spec": {"finalizers": []}}).expect(200)
    alone.get(f"{NAMESPACES}/done").expect(404)


def test_first_namespaces_exist(alone: Client) -> None:
    names = {item["metadata"]["name"] for item in alone.get(NAMESPACES).expect(200)["items"]}
    assert names >= {"default", "kube-system"}
