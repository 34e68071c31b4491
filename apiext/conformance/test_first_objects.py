"""Objects that a server creates itself.

These are the service ``kubernetes`` and the priority classes of the system.
"""

from __future__ import annotations

import time
from typing import Any

import pytest

from apiext.conformance.support.http_client import Client
from apiext.conformance.support.waiting import pause

CLASSES = "/apis/scheduling.k8s.io/v1/priorityclasses"


@pytest.mark.parametrize(
    ("name", "value"), [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)]
)
def test_the_system_priority_classes_exist(api: Client, name: str, value: int) -> None:
    found = api.get(f"{CLASSES}/{name}").expect(200)
    assert (found["value"], found["preemptionPolicy"]) == (value, "PreemptLowerPriority")
    assert found["description"].startswith("Used for system critical pods that must ")
    assert (found["metadata"]["generation"], "globalDefault" in found) == (1, False)
    owner = found["metadata"]["managedFields"][0]
    assert owner["fieldsV1"] == {"f:description": {}, "f:preemptionPolicy": {}, "f:value": {}}
    pod: dict[str, Any] = {"priorityClassName": name, "containers": [{"name": "c", "image": "x"}]}
    api.post("/api/v1/namespaces/default/serviceaccounts", {"metadata": {"name": "default"}})
    made = api.post("/api/v1/namespaces/default/pods?dryRun=All", {"metadata": {"name": "p"}, "spec": pod}).expect(201)
    assert made["spec"]["priority"] == value


def test_the_service_of_the_server_exists(api: Client) -> None:
    found = api.get("/api/v1/namespaces/default/services/kubernetes").expect(200)
    assert found["metadata"]["labels"] == {"component": "apiserver", "provider": "kubernetes"}
    spec = found["spec"]
    assert spec["ports"] == [
        {"name": "https", "protocol": "TCP", "port": 443, "targetPort": spec["ports"][0]["targetPort"]}
    ]
    assert spec["clusterIPs"] == [spec["clusterIP"]]
    assert spec["clusterIP"].endswith((".1", "::1"))
    assert (spec["type"], spec["sessionAffinity"], spec["ipFamilyPolicy"]) == ("ClusterIP", "None", "SingleStack")
    endpoints = api.get("/api/v1/namespaces/default/endpoints/kubernetes")
    if endpoints.status == 200:
        ports = [{"name": "https", "port": spec["ports"][0]["targetPort"], "protocol": "TCP"}]
        assert endpoints.json["subsets"][0]["ports"] == ports
        slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices/kubernetes"
        shown = api.get(slices).expect(200)
        assert shown["endpoints"][0]["conditions"] == {"ready": True}
        assert shown["metadata"]["labels"] == {"kubernetes.io/service-name": "kubernetes"}


def test_the_service_of_the_server_is_created_again(api: Client) -> None:
    path = "/api/v1/namespaces/default/services/kubernetes"
    before = api.get(path).expect(200)
    api.delete(path).expect(200)
    deadline = time.monotonic() + 15  # upstream: the server checks every 10 seconds that the service exists
    while (found := api.get(path)).status == 404 and time.monotonic() < deadline:
        pause(0.1)
    again = found.expect(200)
    assert again["metadata"]["uid"] != before["metadata"]["uid"]
    assert again["spec"] == before["spec"]
