"""Admission plug-ins that mutate or deny pods, nodes, claims, ingresses and classes.

Most of these plug-ins read stored objects.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from typing import Any

import pytest

from apiext.conformance.support.http_client import MERGE, Client

PODS = "/api/v1/namespaces/default/pods"
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
INGRESSES = "/apis/networking.k8s.io/v1/namespaces/default/ingresses"
PRIORITIES = "/apis/scheduling.k8s.io/v1/priorityclasses"
RUNTIMES = "/apis/node.k8s.io/v1/runtimeclasses"
STORAGE = "/apis/storage.k8s.io/v1/storageclasses"
INGRESS_CLASSES = "/apis/networking.k8s.io/v1/ingressclasses"
CONTAINERS = {"containers": [{"name": "c", "image": "x"}]}
NOT_READY, UNREACHABLE = (
    {"key": f"node.kubernetes.io/{name}", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300}
    for name in ("not-ready", "unreachable")
)
CLAIM: dict[str, Any] = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
BACKEND = {"defaultBackend": {"service": {"name": "s", "port": {"number": 80}}}}


@contextlib.contextmanager
def one(api: Client, path: str, body: dict[str, Any]) -> Iterator[str]:
    """Create an object; yield its name, and delete it afterwards."""
    name = f"a-{secrets.token_hex(4)}"
    metadata = {"name": name, **body.pop("metadata", {})}
    try:
        api.post(path, {**body, "metadata": metadata}).expect(201)
        yield name
    finally:
        api.delete(f"{path}/{name}")


def made(api: Client, path: str, spec: dict[str, Any], code: int = 201, **metadata: Any) -> Any:
    """Create an object with a dry run; return its spec, or the message of the error."""
    body = {"metadata": {"name": "dry", **metadata}, "spec": spec}
    answer = api.post(f"{path}?dryRun=All", body).expect(code)
    return answer["spec"] if code == 201 else answer["message"]


def test_a_pod_without_a_class_has_the_priority_zero(api: Client) -> None:
    spec = made(api, PODS, CONTAINERS)
    assert (spec["priority"], spec["preemptionPolicy"]) == (0, "PreemptLowerPriority")
    message = made(api, PODS, {**CONTAINERS, "priority": 5}, 403)
    assert "priority (5) must not be provided in pod spec; priority admission controller computed 0" in message
    message = made(api, PODS, {**CONTAINERS, "preemptionPolicy": "Never"}, 403)
    assert "PreemptionPolicy (Never) must not be provided in pod spec" in message


def test_a_pod_has_the_priority_of_its_class(api: Client) -> None:
    message = made(api, PODS, {**CONTAINERS, "priorityClassName": "no-such-class"}, 403)
    assert message == 'pods "dry" is forbidden: no PriorityClass with name no-such-class was found'
    assert made(api, PODS, {**CONTAINERS, "priorityClassName": "system-node-critical"})["priority"] == 2_000_001_000
    with one(api, PRIORITIES, {"value": 7, "globalDefault": True, "preemptionPolicy": "Never"}) as name:
        spec = made(api, PODS, CONTAINERS)
        assert (spec["priorityClassName"], spec["priority"], spec["preemptionPolicy"]) == (name, 7, "Never")
        second = {"metadata": {"name": "second"}, "value": 8, "globalDefault": True}
        message = api.post(f"{PRIORITIES}?dryRun=All", second).expect(403)["message"]
        assert f"PriorityClass {name} is already marked as default. Only one default can exist" in message


@pytest.mark.parametrize(
    ("given", "added"),
    [
        ([], [NOT_READY, UNREACHABLE]),
        ([{"key": NOT_READY["key"], "effect": "NoExecute"}], [UNREACHABLE]),
        ([{"operator": "Exists"}], []),
        ([{"key": UNREACHABLE["key"], "operator": "Exists", "effect": "NoSchedule"}], [NOT_READY, UNREACHABLE]),
    ],
)
def test_a_pod_gets_tolerations_of_nodes_that_are_not_ready(
    api: Client, given: list[dict[str, Any]], added: list[dict[str, Any]]
) -> None:
    assert made(api, PODS, {**CONTAINERS, "tolerations": given}).get("tolerations", []) == [*given, *added]


def test_a_new_node_is_not_ready(api: Client) -> None:
    taint, other = {"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}, {"key": "a", "effect": "NoSchedule"}
    assert made(api, "/api/v1/nodes", {"taints": [other]})["taints"] == [other, taint]
    assert made(api, "/api/v1/nodes", {"taints": [taint]})["taints"] == [taint]


def test_a_runtime_class_completes_its_pods(api: Client) -> None:
    message = made(api, PODS, {**CONTAINERS, "runtimeClassName": "no-such-class"}, 403)
    assert message == 'pods "dry" is forbidden: pod rejected: RuntimeClass "no-such-class" not found'
    assert "without corresponding RuntimeClass" in made(api, PODS, {**CONTAINERS, "overhead": {"cpu": "1"}}, 403)
    scheduling = {"nodeSelector": {"a": "b"}, "tolerations": [{"key": "k", "operator": "Exists"}]}
    body = {"handler": "h", "overhead": {"podFixed": {"cpu": "1"}}, "scheduling": scheduling}
    with one(api, RUNTIMES, body) as name:
        spec = made(api, PODS, {**CONTAINERS, "runtimeClassName": name, "nodeSelector": {"z": "y"}})
        assert (spec["overhead"], spec["nodeSelector"]) == ({"cpu": "1"}, {"a": "b", "z": "y"})
        assert {"key": "k", "operator": "Exists"} in spec["tolerations"]
        message = made(api, PODS, {**CONTAINERS, "runtimeClassName": name, "nodeSelector": {"a": "c"}}, 403)
        assert "conflict: runtimeClass.scheduling.nodeSelector[a] = b; pod.spec.nodeSelector[a] = c" in message
        message = made(api, PODS, {**CONTAINERS, "runtimeClassName": name, "overhead": {"cpu": "2"}}, 403)
        assert "Pod's Overhead doesn't match RuntimeClass's defined Overhead" in message


def test_a_claim_gets_the_default_storage_class(api: Client) -> None:
    assert "storageClassName" not in made(api, CLAIMS, CLAIM)
    annotations = {"storageclass.kubernetes.io/is-default-class": "true"}
    with one(api, STORAGE, {"metadata": {"annotations": annotations}, "provisioner": "x/y"}) as name:
        assert made(api, CLAIMS, CLAIM)["storageClassName"] == name
        assert made(api, CLAIMS, {**CLAIM, "storageClassName": ""})["storageClassName"] == ""


def test_only_a_bound_claim_of_a_class_that_allows_it_grows(api: Client) -> None:
    larger = {"spec": {"resources": {"requests": {"storage": "2Gi"}}}}
    with (
        one(api, STORAGE, {"provisioner": "x/y"}) as storage,
        one(api, CLAIMS, {"spec": {**CLAIM, "storageClassName": storage}}) as name,
    ):
        assert api.patch(f"{CLAIMS}/{name}", larger, MERGE).status in (403, 422)
        api.patch(f"{CLAIMS}/{name}/status", {"status": {"phase": "Bound"}}, MERGE).expect(200)
        api.patch(f"{CLAIMS}/{name}", {"spec": {"volumeName": "v"}}, MERGE).expect(200)
        message = api.patch(f"{CLAIMS}/{name}", larger, MERGE).expect(403)["message"]
        assert "the storageclass that provisions the pvc must support resize" in message
        api.patch(f"{STORAGE}/{storage}", {"allowVolumeExpansion": True}, MERGE).expect(200)
        api.patch(f"{CLAIMS}/{name}", larger, MERGE).expect(200)


def test_an_ingress_gets_the_default_class(api: Client) -> None:
    assert "ingressClassName" not in made(api, INGRESSES, BACKEND)
    annotations = {"ingressclass.kubernetes.io/is-default-class": "true"}
    body = {"metadata": {"annotations": annotations}, "spec": {"controller": "example.com/c"}}
    with one(api, INGRESS_CLASSES, body) as name:
        assert made(api, INGRESSES, BACKEND)["ingressClassName"] == name
        old_style = made(api, INGRESSES, BACKEND, annotations={"kubernetes.io/ingress.class": "other"})
        assert "ingressClassName" not in old_style
