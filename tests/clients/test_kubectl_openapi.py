"""Uses of OpenAPI documents by each version of kubectl.

The uses are explain, and validation before a request is sent.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from tests.clients.kubectl import Kubectl

pytestmark = pytest.mark.usefixtures("clean")

SERVER_SIDE_VALIDATION = (1, 25)
READS_V3 = (1, 27)
BUILT_IN = {
    "crd": ("spec", "names", "plural", "versions", "conditions"),
    "namespaces": ("finalizers", "phase"),
    "secrets": ("stringData", "immutable"),
    "configmaps": ("binaryData", "immutable"),
    "leases": ("holderIdentity", "leaseDurationSeconds"),
    "events": ("involvedObject", "reason"),
    "serviceaccounts": ("automountServiceAccountToken",),
    "validatingwebhookconfigurations": ("webhooks", "clientConfig", "caBundle"),
    "clusterroles": ("rules", "verbs"),
    "selfsubjectaccessreviews": ("resourceAttributes", "allowed"),
}


def define(kubectl: Kubectl) -> None:
    kubectl("create", "-f", "everything.yaml")
    kubectl("wait", "--for=condition=Established", "crd/shirts.stable.example.com", "--timeout=10s")


@pytest.mark.rows("KUB-001", "OAS-001", "OAS-002", "OAS-004", "OAS-005")
def test_kubectl_explains_every_schema_form(kubectl_of: Kubectl) -> None:
    kubectl = kubectl_of
    define(kubectl)
    tree = kubectl("explain", "shirts", "--recursive")
    for field in ("apiVersion", "metadata", "ownerReferences", "color", "owner", "labels", "pockets", "rest"):
        assert re.search(rf"^\s+{field}\s+<", tree, re.M), f"{field} is not in\n{tree}"
    assert "depth" in tree
    assert "size" in tree
    if kubectl.version >= READS_V3:  # v2 has no schema below preserved fields
        assert re.search(r"template\s+<Object>.*\n\s+apiVersion\s+<string>", tree)
    assert "Its color." in kubectl("explain", "shirt.spec.color")
    assert "How deep it is." in kubectl("explain", "shirt.spec.pockets.depth")
    assert "What is written on it." in kubectl("explain", "shirt.spec.labels")
    assert "does not exist" in kubectl.fails("explain", "shirt.spec.sleeves")


@pytest.mark.rows("OAS-006", "OAS-011")
@pytest.mark.parametrize("kind", BUILT_IN)
def test_kubectl_explains_built_in_kinds(kubectl_of: Kubectl, kind: str) -> None:
    tree = kubectl_of("explain", kind, "--recursive")
    for field in BUILT_IN[kind]:
        assert re.search(rf"^\s+{field}\s+<", tree, re.M), f"{field} is not in\n{tree}"


@pytest.mark.rows("KUB-001", "OAS-005", "OAS-008", "WRI-013")
def test_kubectl_validates_objects_before_sending(kubectl_of: Kubectl, tmp_path: Path) -> None:
    kubectl = kubectl_of
    define(kubectl)
    good = {
        "color": "blue", "size": "L", "owner": None, "labels": {"a": "b"}, "pockets": [{"depth": 1}],
        "template": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": {"any": "thing"}},
        "rest": {"a": "x", "b": 1},
    }  # fmt: skip
    path = tmp_path / "shirt.yaml"
    shirt = {"apiVersion": "stable.example.com/v1", "kind": "Shirt", "metadata": {"name": "one"}, "spec": good}
    path.write_text(yaml.safe_dump(shirt))
    assert kubectl("create", "-f", str(path)) == "shirt.stable.example.com/one created\n"
    assert kubectl("apply", "-f", str(path)).startswith("shirt.stable.example.com/one ")
    path.write_text(yaml.safe_dump({**shirt, "spec": {**good, "sleeves": 3}}))
    refused = kubectl.fails("apply", "-f", str(path))
    field = "spec.sleeves" if kubectl.version >= SERVER_SIDE_VALIDATION else "sleeves"
    assert f'unknown field "{field}"' in refused
    path.write_text(yaml.safe_dump({**shirt, "metadata": {"name": "two"}, "spec": {}}))
    assert "color" in kubectl.fails("create", "-f", str(path))


@pytest.mark.rows("OAS-008", "WRI-013")
def test_kubectl_validates_built_in_objects(kubectl_of: Kubectl, tmp_path: Path) -> None:
    path = tmp_path / "map.yaml"
    document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "checked"}, "data": {"a": "b"}}
    path.write_text(yaml.safe_dump(document))
    assert "configmap/checked" in kubectl_of("apply", "-f", str(path))
    path.write_text(yaml.safe_dump({**document, "date": {}}))
    assert 'unknown field "date"' in kubectl_of.fails("apply", "-f", str(path))
    kubectl_of("delete", "configmap", "checked")


@pytest.mark.rows("OAS-001", "OAS-002", "OAS-011")
def test_kubectl_explains_the_openapi_schema_field(kubectl_of: Kubectl) -> None:
    below = "spec.versions.schema.openAPIV3Schema"
    for path in (f"crd.{below}", f"crd.{below}.properties.items", f"crd.{below}.not.not"):
        told = kubectl_of("explain", path)
        assert "x-kubernetes-validations" in told or path.endswith("items"), told
    old = kubectl_of("explain", "crd.spec", "--api-version=apiextensions.k8s.io/v1beta1")
    assert re.search(r"^\s+validation\s+<", old, re.M)
    assert not re.search(r"^\s+validation\s+<", kubectl_of("explain", "crd.spec"), re.M)
