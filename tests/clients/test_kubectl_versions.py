"""The examples of several versions in the Kubernetes documentation, with every kubectl."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from apiext.conformance.support.definitions import fresh_group
from apiext.conformance.support.http_client import DEFINITIONS, Client
from apiext.conformance.support.waiting import until
from tests.clients.kubectl import Kubectl
from tests.support.processes import Server

EXAMPLES = {
    case["name"]: case["definition"]
    for case in yaml.safe_load(
        Path(__file__).parents[1].joinpath("conformance", "manifests", "versions.yaml").read_text(encoding="utf-8")
    )
}


@pytest.fixture
def group(server: Server) -> Iterator[str]:
    """A new group; its definition is deleted after the test."""
    name = fresh_group()
    yield name
    api = Client(server.url)
    api.delete(f"{DEFINITIONS}/crontabs.{name}")
    until(lambda: api.get(f"{DEFINITIONS}/crontabs.{name}").status == 404, "the definition is gone")


def example(name: str, group: str) -> dict[str, Any]:
    wanted: dict[str, Any] = json.loads(json.dumps(EXAMPLES[name]))
    wanted["metadata"]["name"] = f"crontabs.{group}"
    wanted["spec"]["group"] = group
    return wanted


def write(kubectl: Kubectl, document: dict[str, Any]) -> str:
    path = kubectl.home / "manifest.yaml"
    path.write_text(yaml.safe_dump(document), encoding="utf-8")
    return str(path)


@pytest.mark.rows("B1-002", "B1-003", "B1-005", "VER-001", "VER-003", "KUB-001", "KUB-004")
def test_v1beta1_manifest_is_applied_and_changed(kubectl_of: Kubectl, group: str) -> None:
    wanted = example("several versions of one schema, of old", group)
    said = kubectl_of.run("apply", "-f", write(kubectl_of, wanted))
    assert said.stdout == f"customresourcedefinition.apiextensions.k8s.io/crontabs.{group} created\n", said.stderr
    assert "apiextensions.k8s.io/v1beta1 CustomResourceDefinition is deprecated in v1.16+" in said.stderr
    kubectl_of("wait", "--for=condition=Established", f"crd/crontabs.{group}", "--timeout=10s")
    assert kubectl_of("apply", "-f", write(kubectl_of, wanted)).endswith(" unchanged\n")
    wanted["spec"]["additionalPrinterColumns"] = [{"name": "Host", "type": "string", "JSONPath": ".host"}]
    assert kubectl_of("apply", "-f", write(kubectl_of, wanted)).endswith(" configured\n")
    crontab = {"apiVersion": f"{group}/v1beta1", "kind": "CronTab", "metadata": {"name": "one"}, "host": "localhost"}
    kubectl_of("apply", "-f", write(kubectl_of, crontab))
    assert kubectl_of("get", f"crontabs.{group}").split() == ["NAME", "HOST", "one", "localhost"]
    for resource, version in ((f"crontabs.{group}", "v1"), (f"crontabs.v1beta1.{group}", "v1beta1")):
        shown = yaml.safe_load(kubectl_of("get", resource, "one", "-o", "yaml"))
        assert (shown["apiVersion"], shown["host"]) == (f"{group}/{version}", "localhost")


@pytest.mark.rows("SRV-016", "VER-001", "VER-014", "KUB-004")
def test_deprecated_versions_warn_and_unserved_one_is_not_found(kubectl_of: Kubectl, group: str) -> None:
    kubectl_of("apply", "-f", write(kubectl_of, example("deprecated versions", group)))
    kubectl_of("wait", "--for=condition=Established", f"crd/crontabs.{group}", "--timeout=10s")
    for version, words in (
        ("v1alpha1", "example.com/v1alpha1 CronTab is deprecated; see http://example.com/v1alpha1-v1"),
        ("v1beta1", f"{group}/v1beta1 CronTab is deprecated; use {group}/v1 CronTab"),
    ):
        said = kubectl_of.run("get", f"crontabs.{version}.{group}")
        assert said.returncode == 0
        assert f"Warning: {words}" in said.stderr
    assert "Warning" not in kubectl_of.run("get", f"crontabs.v1.{group}").stderr
    kubectl_of("apply", "-f", write(kubectl_of, example("a version that is served no more", group)))
    assert kubectl_of("get", "crd", f"crontabs.{group}", "-o", "jsonpath={.status.storedVersions}") == '["v1"]'
    assert "error" in kubectl_of.fails("get", "--raw", f"/apis/{group}/v1beta1/crontabs").lower()
