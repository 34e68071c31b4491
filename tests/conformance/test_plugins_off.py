"""Disabled plug-ins and controllers of built-in kinds, and certificate signing requests."""

from __future__ import annotations

import base64
import secrets
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from apiext.conformance.support.http_client import Client
from apiext.conformance.support.waiting import until
from tests.support.processes import running_server

NAMESPACES = "/api/v1/namespaces"
REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
POD = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
PLUGINS = (
    "LimitRanger", "ServiceAccount", "PodSecurity", "StorageObjectInUseProtection", "CertificateSubjectRestriction",
    "ResourceQuota",
)  # fmt: skip


def request(organization: str, signer: str = "kubernetes.io/kube-apiserver-client") -> dict[str, Any]:
    """Return a CertificateSigningRequest for an organization."""
    name = x509.Name([x509.NameAttribute(x509.NameOID.ORGANIZATION_NAME, organization)])
    signed = x509.CertificateSigningRequestBuilder().subject_name(name)
    pem = signed.sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    spec = {"signerName": signer, "usages": ["client auth"], "request": base64.b64encode(pem).decode()}
    return {"metadata": {"name": f"r-{secrets.token_hex(4)}"}, "spec": spec}


def enforcing_plugins(api: Client, namespace: str) -> set[str]:
    """Return the names of the plug-ins that change or refuse writes in a new namespace."""
    place, found = f"{NAMESPACES}/{namespace}", set()
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    api.post(NAMESPACES, {"metadata": {"name": namespace, "labels": labels}}).expect(201)
    api.post(f"{place}/serviceaccounts", {"metadata": {"name": "default"}})

    def refusal_text(path: str, body: dict[str, Any]) -> str:
        answer = api.post(f"{path}?dryRun=All", body)
        return str(answer.json.get("message", "")) if answer.status == 403 else ""

    if "violates PodSecurity" in refusal_text(f"{place}/pods", POD):
        found.add("PodSecurity")
    api.patch(place, {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": None}}}).expect(200)
    if "error looking up" in refusal_text(
        f"{place}/pods", {**POD, "spec": {**POD["spec"], "serviceAccountName": "no"}}
    ):
        found.add("ServiceAccount")
    limit = {"type": "PersistentVolumeClaim", "max": {"storage": "1Mi"}}
    api.post(f"{place}/limitranges", {"metadata": {"name": "l"}, "spec": {"limits": [limit]}}).expect(201)
    if "maximum storage usage" in refusal_text(
        f"{place}/persistentvolumeclaims", {"metadata": {"name": "c"}, "spec": CLAIM}
    ):
        found.add("LimitRanger")
    volume = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}}
    made = api.post("/api/v1/persistentvolumes?dryRun=All", {"metadata": {"name": "v"}, "spec": volume}).expect(201)
    if made["metadata"].get("finalizers"):
        found.add("StorageObjectInUseProtection")
    if "system:masters" in refusal_text(REQUESTS, request("system:masters")):
        found.add("CertificateSubjectRestriction")
    hard = {"count/configmaps": "0"}
    quotas = f"{place}/resourcequotas"
    api.post(quotas, {"metadata": {"name": "q"}, "spec": {"hard": hard}}).expect(201)
    until(lambda: api.get(f"{quotas}/q").json["status"].get("used"), "the usage is counted")
    if "exceeded quota" in refusal_text(f"{place}/configmaps", {"metadata": {"name": "c"}}):
        found.add("ResourceQuota")
    return found


def test_all_plugins_are_enabled_by_default(api: Client) -> None:
    assert enforcing_plugins(api, f"on-{secrets.token_hex(4)}") == set(PLUGINS)


@pytest.mark.parametrize("plugin", PLUGINS)
def test_each_plugin_can_be_disabled(tmp_path: Path, plugin: str) -> None:
    with running_server(["--insecure", "--port=0", f"--disable-admission-plugins={plugin}"], tmp_path) as server:
        assert enforcing_plugins(Client(server.url), "off") == {*PLUGINS} - {plugin}


def test_system_masters_is_refused_only_for_the_client_signer(api: Client) -> None:
    message = api.post(REQUESTS, refused := request("system:masters")).expect(403)["message"]
    name = refused["metadata"]["name"]
    text = "use of kubernetes.io/kube-apiserver-client signer with system:masters group is not allowed"
    assert message == f'certificatesigningrequests.certificates.k8s.io "{name}" is forbidden: {text}'
    api.post(f"{REQUESTS}?dryRun=All", request("system:nodes")).expect(201)
    api.post(f"{REQUESTS}?dryRun=All", request("system:masters", "a.example.com/b")).expect(201)


def test_a_claim_that_a_pod_uses_is_deleted_after_the_pod(api: Client) -> None:
    namespace = f"used-{secrets.token_hex(4)}"
    place = f"{NAMESPACES}/{namespace}"
    api.post(NAMESPACES, {"metadata": {"name": namespace}}).expect(201)
    api.post(f"{place}/persistentvolumeclaims", {"metadata": {"name": "c"}, "spec": CLAIM}).expect(201)
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]
    spec = {**POD["spec"], "volumes": volumes, "nodeName": "n", "terminationGracePeriodSeconds": 0}
    api.post(f"{place}/pods", {**POD, "spec": spec}).expect(201)
    claim = f"{place}/persistentvolumeclaims/c"
    assert api.delete(claim).expect(200)["metadata"]["finalizers"] == ["kubernetes.io/pvc-protection"]
    api.post(f"{place}/persistentvolumeclaims", {"metadata": {"name": "free"}, "spec": CLAIM}).expect(201)
    api.delete(f"{place}/persistentvolumeclaims/free").expect(200)
    until(lambda: api.get(f"{place}/persistentvolumeclaims/free").status == 404, "the unused claim is deleted")
    assert api.get(claim).expect(200)["metadata"]["deletionTimestamp"]
    api.delete(f"{place}/pods/p").expect(200)
    until(lambda: api.get(claim).status == 404, "the claim is deleted")
    api.delete(place)


def test_bound_volume_is_deleted_after_its_release(api: Client) -> None:
    name = f"v-{secrets.token_hex(4)}"
    spec = {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}}
    place = f"/api/v1/persistentvolumes/{name}"
    api.post("/api/v1/persistentvolumes", {"metadata": {"name": name}, "spec": spec}).expect(201)
    api.patch(f"{place}/status", {"status": {"phase": "Bound"}}).expect(200)
    assert api.delete(place).expect(200)["metadata"]["finalizers"] == ["kubernetes.io/pv-protection"]
    api.patch(f"{place}/status", {"status": {"phase": "Released"}}).expect(200)
    until(lambda: api.get(place).status == 404, "the volume is deleted")
