"""Subresources of pods, nodes and services; component statuses; two versions of autoscalers."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

import pytest
import yaml

from apiext.conformance.support.cases import at
from apiext.conformance.support.http_client import MERGE, Client

PODS = "/api/v1/namespaces/default/pods"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
SERVICES = "/api/v1/namespaces/default/services"
SCALERS = "/apis/autoscaling/{}/namespaces/default/horizontalpodautoscalers"
STRATEGIC = "application/strategic-merge-patch+json"
CASES: list[dict[str, Any]] = yaml.safe_load(Path(__file__).with_name("pod_endpoints.yaml").read_text())
PLAIN = {"containers": [{"name": "c", "image": "x"}]}


def filled(value: Any, name: str) -> Any:
    if isinstance(value, str):
        return value.replace("{name}", name)
    if isinstance(value, dict):
        return {key: filled(one, name) for key, one in value.items()}
    return [filled(one, name) for one in value] if isinstance(value, list) else value


@pytest.mark.parametrize("case", [pytest.param(case, id=case["name"].replace(" ", "-")) for case in CASES])
def test_subresources_of_a_pod(api: Client, case: dict[str, Any]) -> None:
    name = f"p-{secrets.token_hex(4)}"
    pod = {"metadata": {"name": name, "labels": {"app": name}}, "spec": case.get("spec", PLAIN)}
    budgets = [f"{name}-{index}" for index in range(len(case.get("budgets", ())))]
    selector = {"matchLabels": {"app": name}}
    try:
        api.post(PODS, pod).expect(201)
        if "status" in case:
            api.patch(f"{PODS}/{name}/status", {"status": case["status"]}, MERGE).expect(200)
        for budget, spec in zip(budgets, case.get("budgets", ()), strict=True):
            api.post(BUDGETS, {"metadata": {"name": budget}, "spec": {**spec, "selector": selector}}).expect(201)
        for step in filled(case["requests"], name):
            if "budget" in step:
                api.patch(f"{BUDGETS}/{budgets[0]}/status", {"status": step["budget"]}, MERGE).expect(200)
                continue
            send(api, f"{PODS}/{name}", step)
        if "then" in case:
            pod = api.get(f"{PODS}/{name}").expect(200)
            assert {path: at(pod, path) for path in case["then"]} == case["then"]
        if case.get("counted"):
            found = api.get(f"{BUDGETS}/{budgets[0]}").expect(200)["status"]
            assert found["disruptionsAllowed"] == 0
            assert list(found["disruptedPods"]) == [name]
            assert found["conditions"][0]["reason"] == "InsufficientPods"
    finally:
        for budget in budgets:
            api.delete(f"{BUDGETS}/{budget}")
        api.delete(f"{PODS}/{name}?gracePeriodSeconds=0")


def send(api: Client, path: str, step: dict[str, Any]) -> None:
    method = next(word for word in ("get", "post", "patch", "delete", "head", "options") if word in step)
    url = f"{path}/{step[method]}"
    body: Any = step.get("sent")
    if method == "patch":
        reply = api.patch(url, body, STRATEGIC)
    elif method == "post":
        reply = api.post(url, body or {})
    else:
        reply = api.request(method.upper(), url)
    assert reply.status == step["code"], (step, reply.text)
    if "body" in step:
        assert reply.text == step["body"]
    if "says" in step:
        assert step["says"] in reply.json["message"]
    if "cause" in step:
        assert step["cause"] in reply.json["details"]["causes"][0]["message"]


def test_a_binding_names_its_pod(api: Client) -> None:
    name = f"p-{secrets.token_hex(4)}"
    api.post(PODS, {"metadata": {"name": name}, "spec": PLAIN}).expect(201)
    try:
        binding = {"metadata": {"name": name}, "target": {"kind": "Node", "name": "n"}}
        found = api.post(PODS.replace("/pods", "/bindings"), binding).expect(201)
        assert (found["kind"], found["status"]) == ("Status", "Success")
        assert api.get(f"{PODS}/{name}").expect(200)["spec"]["nodeName"] == "n"
    finally:
        api.delete(f"{PODS}/{name}?gracePeriodSeconds=0")


def test_a_proxy_request_to_a_node_without_an_address_is_a_500(api: Client) -> None:
    name = f"n-{secrets.token_hex(4)}"
    api.post("/api/v1/nodes", {"metadata": {"name": name}}).expect(201)
    try:
        for place in (name, f"{name}:10250"):
            reply = api.get(f"/api/v1/nodes/{place}/proxy/metrics")
            assert (reply.status, reply.json["message"]) == (500, "no preferred addresses found; known addresses: []")
        assert api.get("/api/v1/nodes/no-such-node/proxy").expect(404)["message"] == 'nodes "no-such-node" not found'
    finally:
        api.delete(f"/api/v1/nodes/{name}")


def test_a_service_has_no_endpoints(api: Client) -> None:
    name = f"s-{secrets.token_hex(4)}"
    api.post(SERVICES, {"metadata": {"name": name}, "spec": {"ports": [{"name": "web", "port": 80}]}}).expect(201)
    try:
        for place in (name, f"{name}:80", f"http:{name}:web"):
            message = api.get(f"{SERVICES}/{place}/proxy/x").expect(503)["message"]
            assert message == f'no endpoints available for service "{name}"'
        message = api.get(f"{SERVICES}/{name}:81/proxy").expect(503)["message"]
        assert message == f'no service port 81 found for service "{name}"'
        message = api.get(f"{SERVICES}/ftp:{name}:80/proxy").expect(400)["message"]
        assert message == f'invalid service request "ftp:{name}:80"'
    finally:
        api.delete(f"{SERVICES}/{name}")


def test_there_are_no_component_statuses(api: Client) -> None:
    assert api.get("/api/v1/componentstatuses").expect(200)["items"] == []
    assert api.post("/api/v1/componentstatuses", {}).status == 405


def test_versions_of_an_autoscaler_show_the_same(api: Client) -> None:
    name = f"h-{secrets.token_hex(4)}"
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}
    pods = {"metric": {"name": "m"}, "target": {"type": "AverageValue", "averageValue": "5"}}
    cpu = {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}}
    spec: dict[str, Any] = {
        "maxReplicas": 3,
        "scaleTargetRef": target,
        "metrics": [{"type": "Pods", "pods": pods}, {"type": "Resource", "resource": cpu}],
        "behavior": {"scaleDown": {"stabilizationWindowSeconds": 5}},
    }
    old, new = SCALERS.format("v1"), SCALERS.format("v2")
    try:
        made = api.post(new, {"metadata": {"name": name}, "spec": spec}).expect(201)
        shown = api.get(f"{old}/{name}").expect(200)
        assert shown["spec"]["targetCPUUtilizationPercentage"] == 50
        annotation = "autoscaling.alpha.kubernetes.io/metrics"
        assert shown["metadata"]["annotations"][annotation] == (
            '[{"type":"Pods","pods":{"metricName":"m","targetAverageValue":"5"}}]'
        )
        api.put(f"{old}/{name}", {**shown, "spec": {**shown["spec"], "targetCPUUtilizationPercentage": 70}}).expect(200)
        back = api.get(f"{new}/{name}").expect(200)
        cpu["target"]["averageUtilization"] = 70  # type: ignore[index]
        assert back["spec"] == {**made["spec"], "metrics": spec["metrics"]}
        assert "annotations" not in back["metadata"]
    finally:
        api.delete(f"{new}/{name}")
