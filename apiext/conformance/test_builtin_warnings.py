"""Warnings about built-in objects.

The module also tests the fields that a new pod gets from its labels, annotations and containers.
"""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

import pytest

from apiext.conformance.support.cases import read
from apiext.conformance.support.http_client import MERGE, Client

PODS = "/api/v1/namespaces/default/pods"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
CRON_JOBS = "/apis/batch/v1/namespaces/default/cronjobs"
CASES: list[dict[str, Any]] = read(Path(__file__).with_name("builtin_warnings.yaml"))
OLD_LABEL = {"beta.kubernetes.io/os": "linux"}
CONTAINERS: list[dict[str, Any]] = [{"name": "c", "image": "x"}]


def texts(values: list[str]) -> list[str]:
    """Return the texts in Warning headers."""
    return [value.removeprefix('299 - "').removesuffix('"').replace('\\"', '"') for value in values]


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=f"{index}-{case['object']['kind']}") for index, case in enumerate(CASES)]
)
def test_a_create_has_the_warnings_of_kube_apiserver(api: Client, case: dict[str, Any]) -> None:
    answer = api.post(f"{case['path']}?dryRun=All", case["object"])
    answer.expect(201)
    assert texts(answer.warnings) == case["warnings"]


def test_only_a_changed_template_has_warnings(api: Client) -> None:
    name = f"w-{secrets.token_hex(4)}"
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": CONTAINERS, "nodeSelector": OLD_LABEL}}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    text = (
        'spec.template.spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14; use "kubernetes.io/os" instead'
    )
    try:
        created = api.post(DEPLOYMENTS, {"metadata": {"name": name}, "spec": spec})
        assert texts(created.warnings) == [text]
        labelled = api.patch(f"{DEPLOYMENTS}/{name}", {"metadata": {"labels": {"a": "b"}}}, MERGE)
        assert (labelled.status, labelled.warnings) == (200, [])
        scaled = api.patch(f"{DEPLOYMENTS}/{name}", {"spec": {"replicas": 3}}, MERGE)
        assert (scaled.status, texts(scaled.warnings)) == (200, [text])
    finally:
        api.delete(f"{DEPLOYMENTS}/{name}")


def test_a_cron_job_without_a_time_zone_has_no_warning(api: Client) -> None:
    name = f"w-{secrets.token_hex(4)}"
    job = {"spec": {"template": {"spec": {"restartPolicy": "Never", "containers": CONTAINERS}}}}
    spec = {"schedule": "0 3 * * *", "jobTemplate": job}
    try:
        assert api.post(CRON_JOBS, {"metadata": {"name": name}, "spec": spec}).warnings == []
        changed = api.patch(f"{CRON_JOBS}/{name}", {"spec": {"schedule": "0 4 * * *"}}, MERGE)
        assert (changed.status, changed.warnings) == (200, [])
    finally:
        api.delete(f"{CRON_JOBS}/{name}")


def test_label_keys_of_a_new_pod_become_expressions(api: Client) -> None:
    term = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"x": "y"}}}
    affinity = {
        "podAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [{**term, "matchLabelKeys": ["app", "missing"]}],
        },
        "podAntiAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 1, "podAffinityTerm": {**term, "mismatchLabelKeys": ["app"]}}
            ],
        },
    }
    spread = {
        "maxSkew": 1,
        "topologyKey": "zone",
        "whenUnsatisfiable": "DoNotSchedule",
        "matchLabelKeys": ["app"],
        "labelSelector": {"matchLabels": {"x": "y"}},
    }
    spec = {"containers": CONTAINERS, "affinity": affinity, "topologySpreadConstraints": [spread]}
    pod = {"metadata": {"name": "a", "labels": {"app": "web"}}, "spec": spec}
    made = api.post(f"{PODS}?dryRun=All", pod).expect(201)["spec"]
    inside, outside = ({"key": "app", "operator": operator, "values": ["web"]} for operator in ("In", "NotIn"))
    near = made["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0]
    far = made["affinity"]["podAntiAffinity"]["preferredDuringSchedulingIgnoredDuringExecution"][0]
    assert near["labelSelector"]["matchExpressions"] == [inside]
    assert far["podAffinityTerm"]["labelSelector"]["matchExpressions"] == [outside]
    assert made["topologySpreadConstraints"][0]["labelSelector"]["matchExpressions"] == [inside]


@pytest.mark.parametrize(
    ("annotation", "whole", "profile"),
    [
        ("unconfined", None, {"type": "Unconfined"}),
        ("runtime/default", None, {"type": "RuntimeDefault"}),
        ("localhost/mine", None, {"type": "Localhost", "localhostProfile": "mine"}),
        ("localhost/", None, None),
        ("localhost/ a", None, None),
        ("unconfined", {"type": "Unconfined"}, None),
        ("unconfined", {"type": "RuntimeDefault"}, {"type": "Unconfined"}),
    ],
)
def test_an_app_armor_annotation_becomes_a_field(
    api: Client, annotation: str, whole: dict[str, str] | None, profile: dict[str, str] | None
) -> None:
    annotations = {"container.apparmor.security.beta.kubernetes.io/c": annotation}
    security = {"securityContext": {"appArmorProfile": whole}} if whole else {}
    pod = {"metadata": {"name": "a", "annotations": annotations}, "spec": {"containers": CONTAINERS, **security}}
    answer = api.post(f"{PODS}?dryRun=All", pod)
    container = answer.expect(201)["spec"]["containers"][0]
    assert container.get("securityContext", {}).get("appArmorProfile") == profile
    assert bool(answer.warnings) == (whole != {"type": "Unconfined"})


def limited(requests: dict[str, str], limits: dict[str, str], **fields: str) -> dict[str, Any]:
    """Return a container with these requests and limits."""
    return {**CONTAINERS[0], "resources": {"requests": requests, "limits": limits}, **fields}


@pytest.mark.parametrize(
    ("given", "containers", "stored"),
    [
        (
            {"requests": {"cpu": "1"}},
            [limited({"memory": "1Gi"}, {"cpu": "500m"})],
            {"limits": {"cpu": "1"}, "requests": {"cpu": "1", "memory": "1Gi"}},
        ),
        (
            {"limits": {"cpu": "2"}},
            [limited({"cpu": "100m", "memory": "1Gi"}, {})],
            {"limits": {"cpu": "2"}, "requests": {"cpu": "100m", "memory": "1Gi"}},
        ),
        (
            {"limits": {"memory": "2Gi"}},
            [limited({"cpu": "100m"}, {"cpu": "1", "memory": "1Gi"}), limited({"cpu": "100m"}, {"cpu": "1"}, name="d")],
            {"limits": {"cpu": "2", "memory": "2Gi"}, "requests": {"cpu": "200m", "memory": "1Gi"}},
        ),
        (
            {"requests": {"cpu": "1"}},
            [limited({"cpu": "1", "hugepages-2Mi": "4Mi"}, {"hugepages-2Mi": "4Mi"})],
            {"limits": {"hugepages-2Mi": "4Mi"}, "requests": {"cpu": "1", "hugepages-2Mi": "4Mi"}},
        ),
        (
            {"requests": {"cpu": "3"}},
            [limited({"cpu": "1"}, {"cpu": "2"})],
            {"limits": {"cpu": "3"}, "requests": {"cpu": "3"}},
        ),
    ],
)
def test_resources_of_a_pod_have_defaults_by_its_containers(
    api: Client, given: dict[str, Any], containers: list[dict[str, Any]], stored: dict[str, Any]
) -> None:
    pod = {"metadata": {"name": "a"}, "spec": {"containers": containers, "resources": given}}
    assert api.post(f"{PODS}?dryRun=All", pod).expect(201)["spec"]["resources"] == stored
