"""StorageVersionMigrations in v1 (served by default) and v1beta1 (with --runtime-config)."""

from __future__ import annotations

import secrets

import pytest

from apiext.conformance.support.http_client import Client
from tests.support.processes import Server

GROUP = "/apis/storagemigration.k8s.io"
PLURAL = "storageversionmigrations"
HASH = "pCjmmKOkLy4="  # hash of v1beta1, in which both are stored
DEPRECATED = (
    "storagemigration.k8s.io/v1beta1 StorageVersionMigration is deprecated in v1.37+, unavailable in v1.40+; use"
    " storagemigration.k8s.io/v1 StorageVersionMigration"
)


@pytest.mark.rows("DIS-102", "KUB-004")
def test_v1_is_served_by_default(api: Client, foreign: bool) -> None:
    found = api.get(f"{GROUP}/v1").expect(200)["resources"]
    assert [one["name"] for one in found] == [PLURAL, f"{PLURAL}/status"]
    assert found[0]["storageVersionHash"] == HASH
    group = api.get(GROUP).expect(200)
    assert group["preferredVersion"]["version"] == "v1"
    if not foreign:
        assert [one["version"] for one in group["versions"]] == ["v1"]


@pytest.mark.rows("DIS-102", "KUB-004", "SRV-016")
def test_v1_and_v1beta1_serve_the_same_migration(obliging: Server) -> None:
    api, name = Client(obliging.url), f"m-{secrets.token_hex(4)}"
    old, new = f"{GROUP}/v1beta1/{PLURAL}", f"{GROUP}/v1/{PLURAL}"
    made = api.post(old, {"metadata": {"name": name}, "spec": {"resource": {"resource": "nothings"}}})
    assert made.expect(201)["apiVersion"] == "storagemigration.k8s.io/v1beta1"
    assert made.warnings == [f'299 - "{DEPRECATED}"']
    shown = api.get(f"{new}/{name}")
    assert shown.warnings == []
    assert {**shown.expect(200), "apiVersion": made.json["apiVersion"]} == made.json
    labelled = api.patch(f"{new}/{name}", {"metadata": {"labels": {"a": "b"}}}).expect(200)
    assert labelled["apiVersion"] == "storagemigration.k8s.io/v1"
    status = {"status": {"resourceVersion": "7"}}
    api.patch(f"{new}/{name}/status", status).expect(200)
    assert api.get(f"{old}/{name}").expect(200)["status"] == status["status"]
    versions = [entry["apiVersion"] for entry in api.get(f"{old}/{name}").expect(200)["metadata"]["managedFields"]]
    assert sorted(versions) == ["storagemigration.k8s.io/v1", "storagemigration.k8s.io/v1", made.json["apiVersion"]]
    resources = api.get(f"{GROUP}/v1beta1").expect(200)["resources"]
    assert resources[0]["storageVersionHash"] == HASH
    api.delete(f"{new}/{name}").expect(200)


@pytest.mark.rows("DIS-102")
@pytest.mark.parametrize(("plural", "found"), [
    ("mutatingadmissionpolicies", "mHCkTKpUTrE="),
    ("mutatingadmissionpolicybindings", "ZKgZT1uTmZ0="),
])  # fmt: skip
def test_mutating_policies_are_stored_as_v1(api: Client, plural: str, found: str) -> None:
    resources = api.get("/apis/admissionregistration.k8s.io/v1").expect(200)["resources"]
    assert [one["storageVersionHash"] for one in resources if one["name"] == plural] == [found]
