"""The official Python client, used as an operator or a script does."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import yaml

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # the generated client emits warnings
    kubernetes = pytest.importorskip("kubernetes", reason="the official Python client is not installed")
    from kubernetes import watch

pytestmark = [pytest.mark.usefixtures("clean"), pytest.mark.filterwarnings("ignore::DeprecationWarning")]

MANIFESTS = Path(__file__).with_name("manifests")
WHERE = ("stable.example.com", "v1", "default", "crontabs")


def manifest(name: str) -> dict[str, Any]:
    read: dict[str, Any] = yaml.safe_load((MANIFESTS / name).read_text())
    return read


@pytest.fixture
def client(kubeconfig: str) -> Any:
    """A client with the kubeconfig."""
    return kubernetes.config.new_client_from_config(kubeconfig)


@pytest.mark.rows("CND-004", "CND-006", "RV-009", "RV-012", "WRI-007", "KUB-006")
def test_python_client_creates_definition_and_objects(client: Any) -> None:
    definitions = kubernetes.client.ApiextensionsV1Api(client)
    objects = kubernetes.client.CustomObjectsApi(client)
    definitions.create_custom_resource_definition(manifest("resourcedefinition.yaml"))
    for event in watch.Watch().stream(
        definitions.list_custom_resource_definition,
        field_selector="metadata.name=crontabs.stable.example.com",
        timeout_seconds=20,
    ):
        conditions = event["object"].status.conditions or []
        if any(it.type == "Established" and it.status == "True" for it in conditions):
            break
    else:
        raise AssertionError("never established")

    made = objects.create_namespaced_custom_object(*WHERE, manifest("my-crontab.yaml"))
    since = made["metadata"]["resourceVersion"]
    name = made["metadata"]["name"]
    patched = objects.patch_namespaced_custom_object(*WHERE, name, {"spec": {"replicas": 2}})
    assert patched["spec"]["replicas"] == 2
    patched["spec"]["image"] = "other"
    replaced = objects.replace_namespaced_custom_object(*WHERE, name, patched)
    assert objects.get_namespaced_custom_object(*WHERE, name) == replaced
    with pytest.raises(kubernetes.client.ApiException) as stale:
        objects.replace_namespaced_custom_object(*WHERE, name, made)
    assert stale.value.status == 409
    assert [it["spec"]["image"] for it in objects.list_namespaced_custom_object(*WHERE)["items"]] == ["other"]
    objects.delete_namespaced_custom_object(*WHERE, name)

    seen = []
    stream = watch.Watch()
    for event in stream.stream(
        objects.list_namespaced_custom_object, *WHERE, resource_version=since, timeout_seconds=20
    ):
        seen.append((event["type"], event["object"]["spec"].get("image")))
        if event["type"] == "DELETED":
            stream.stop()
    assert seen == [("MODIFIED", "my-awesome-cron-image"), ("MODIFIED", "other"), ("DELETED", "other")]
    with pytest.raises(kubernetes.client.ApiException) as missing:
        objects.get_namespaced_custom_object(*WHERE, name)
    assert missing.value.status == 404
    definitions.delete_custom_resource_definition("crontabs.stable.example.com")


@pytest.mark.rows("NSP-001", "NSP-003", "DIS-109")
def test_python_client_lists_namespaces_and_reads_version(client: Any) -> None:
    core = kubernetes.client.CoreV1Api(client)
    assert "default" in [namespace.metadata.name for namespace in core.list_namespace().items]
    assert kubernetes.client.VersionApi(client).get_code().major == "1"
