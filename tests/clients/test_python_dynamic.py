"""The dynamic client of the Python client: it discovers all resources and subresources."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import yaml

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # the generated client emits warnings
    kubernetes = pytest.importorskip("kubernetes", reason="the official Python client is not installed")
    from kubernetes import dynamic
    from kubernetes.dynamic import exceptions

from apiext.conformance.support.waiting import until

pytestmark = [pytest.mark.usefixtures("clean"), pytest.mark.filterwarnings("ignore::DeprecationWarning")]

SESSION = Path(__file__).with_name("manifests") / "session"


def manifest(name: str) -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load((SESSION / name).read_text())
    return read


@pytest.fixture
def client(kubeconfig: str, tmp_path: Path) -> Any:
    """A dynamic client with a new cache."""
    plain = kubernetes.config.new_client_from_config(kubeconfig)
    return dynamic.DynamicClient(plain, cache_file=str(tmp_path / "discovery.json"))


@pytest.fixture
def crontabs(client: Any) -> Any:
    """The established resource of the recorded sessions."""
    definitions = client.resources.get(api_version="apiextensions.k8s.io/v1", kind="CustomResourceDefinition")
    made = definitions.create(body=manifest("crd.yaml"))

    def established() -> bool:
        conditions = definitions.get(name=made.metadata.name).status.conditions or []
        return any(it.type == "Established" and it.status == "True" for it in conditions)

    until(established, "the definition is established", within=10)
    return client.resources.get(api_version="stable.example.com/v1", kind="CronTab")


@pytest.mark.rows("KUB-006", "SRV-001", "WRI-007", "WRI-012")
def test_dynamic_client_creates_patches_and_deletes(crontabs: Any) -> None:
    made = crontabs.create(body=manifest("cr.yaml"), namespace="default")
    assert (made.kind, made.spec.replicas) == ("CronTab", 1)
    assert crontabs.get(name="a", namespace="default").to_dict() == made.to_dict()
    with pytest.raises(exceptions.ConflictError):
        crontabs.create(body=manifest("cr.yaml"), namespace="default")
    tried = crontabs.create(body=manifest("cr-b.yaml"), namespace="default", dry_run="All")
    assert tried.metadata.uid
    assert [it.metadata.name for it in crontabs.get(namespace="default").items] == ["a"]
    merged = crontabs.patch(
        body={"metadata": {"name": "a"}, "spec": {"replicas": 4}},
        namespace="default",
        content_type="application/merge-patch+json",
    )
    assert merged.spec.replicas == 4
    steps = [{"op": "replace", "path": "/spec/replicas", "value": 5}]
    patched = crontabs.patch(body=steps, name="a", namespace="default", content_type="application/json-patch+json")
    assert patched.spec.replicas == 5
    replaced = crontabs.replace(body={**patched.to_dict(), "spec": {"cronSpec": "x"}}, namespace="default")
    assert replaced.spec.to_dict() == {"cronSpec": "x"}
    with pytest.raises(exceptions.UnprocessibleEntityError):
        crontabs.create(body=manifest("cr-invalid.yaml"), namespace="default")
    with pytest.raises(exceptions.NotFoundError):
        crontabs.get(name="nosuch", namespace="default")
    assert crontabs.delete(name="a", namespace="default").status == "Success"


@pytest.mark.rows("KUB-006", "SSA-001", "SSA-008")
def test_dynamic_client_applies_server_side(crontabs: Any) -> None:
    first = crontabs.server_side_apply(body=manifest("cr.yaml"), namespace="default", field_manager="one")
    assert first.metadata.managedFields[0].manager == "one"
    again = crontabs.server_side_apply(body=manifest("cr.yaml"), namespace="default", field_manager="one")
    assert again.metadata.resourceVersion == first.metadata.resourceVersion
    with pytest.raises(exceptions.ConflictError) as met:
        crontabs.server_side_apply(body=manifest("cr2.yaml"), namespace="default", field_manager="two")
    assert 'conflict with \\"one\\": .spec.replicas' in str(met.value.body)
    forced = crontabs.server_side_apply(
        body=manifest("cr2.yaml"), namespace="default", field_manager="two", force_conflicts=True
    )
    assert forced.spec.replicas == 2


@pytest.mark.rows("KUB-006", "SRV-005", "SRV-008")
def test_dynamic_client_patches_status_and_scale(crontabs: Any) -> None:
    crontabs.create(body=manifest("cr.yaml"), namespace="default")
    body = {"metadata": {"name": "a"}, "status": {"replicas": 3}, "spec": {"replicas": 9}}
    told = crontabs.status.patch(body=body, namespace="default", content_type="application/merge-patch+json")
    assert (told.status.replicas, told.spec.replicas) == (3, 1)
    scale = crontabs.scale.get(name="a", namespace="default")
    assert (scale.kind, scale.spec.replicas, scale.status.replicas) == ("Scale", 1, 3)
    scaled = crontabs.scale.patch(
        body={"metadata": {"name": "a"}, "spec": {"replicas": 6}},
        namespace="default",
        content_type="application/merge-patch+json",
    )
    assert scaled.spec.replicas == 6
    assert crontabs.get(name="a", namespace="default").spec.replicas == 6


@pytest.mark.rows("KUB-006", "SEL-005", "RV-009")
def test_dynamic_client_selects_and_watches(crontabs: Any) -> None:
    crontabs.create(body=manifest("cr.yaml"), namespace="default")
    crontabs.create(body=manifest("cr-b.yaml"), namespace="default")
    assert [it.metadata.name for it in crontabs.get(namespace="default", label_selector="app=x").items] == ["a", "b"]
    found = crontabs.get(namespace="default", field_selector="metadata.name=b").items
    assert [it.metadata.name for it in found] == ["b"]
    seen = [
        (event["type"], event["object"].metadata.name)
        for event in crontabs.watch(namespace="default", label_selector="app=x", timeout=2)
    ]
    assert seen == [("ADDED", "a"), ("ADDED", "b")]
    crontabs.delete(namespace="default", label_selector="app=x")
    assert crontabs.get(namespace="default").items == []
