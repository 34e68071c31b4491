"""Errors in the metadata of built-in kinds; compared with kube-apiserver."""

from __future__ import annotations

import secrets
from typing import Any

import pytest

from apiext.conformance.support.http_client import MERGE, Client
from apiext.conformance.test_builtin_kinds import EACH, KINDS, one

FAULTS: list[dict[str, Any]] = [
    {"labels": {"a b": "c"}},
    {"finalizers": ["unqualified"]},
    {"finalizers": ["example.com/a b"]},
    {"uid": "another"},
    {"generateName": "A_"},
]


def told(api: Client, place: str) -> list[int]:
    """Patch the metadata with each of FAULTS (dry runs).

    Return the number of errors in each response.
    """
    counts = []
    for fault in FAULTS:
        answer = api.request("PATCH", place, {"metadata": fault}, {"Content-Type": MERGE}, dryRun="All")
        fields = [cause["field"].partition("[")[0] for cause in answer.json.get("details", {}).get("causes", ())]
        assert set(fields) <= {f"metadata.{name}" for name in fault}, answer.json
        assert answer.status == (422 if fields else 200), answer.json
        counts.append(len(fields))
    return counts


@EACH
@pytest.mark.rows("WRI-003", "WRI-004", "SRV-012")
def test_faults_of_metadata_are_reported_once_if_at_all(api: Client, kind: dict[str, Any]) -> None:
    with one(api, kind) as made:
        place = f"{kind['path']}/{made['metadata']['name']}"
        found = told(api, place)
        assert found == kind.get("judged"), f"judged of {kind['path']} in builtin_kinds.yaml should be {found}"
        if "judged_status" in kind:
            found = told(api, f"{place}/status")
            assert found == kind["judged_status"], f"judged_status of {kind['path']} should be {found}"


@pytest.mark.rows("NSP-004", "WRI-004")
def test_faults_of_a_namespaces_metadata_are_reported_once(api: Client) -> None:
    name = f"k-{secrets.token_hex(4)}"
    place = f"/api/v1/namespaces/{name}"
    api.post("/api/v1/namespaces", {"metadata": {"name": name}}).expect(201)
    assert (told(api, place), told(api, f"{place}/status")) == ([1, 1, 1, 1, 1], [1, 1, 1, 1, 0])
    api.delete(place).expect(200)


@pytest.mark.rows("WRI-004", "SRV-012")
def test_fields_kept_by_a_write_of_the_status(api: Client) -> None:
    (kind,) = (kind for kind in KINDS if kind["path"].endswith("/validatingadmissionpolicies"))
    left = {
        "labels": {"a": "b"},
        "annotations": {"a": "b"},
        "finalizers": ["example.com/a"],
        "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "a", "uid": "b"}],
        "generation": 7,
        "deletionTimestamp": "2026-11-21T04:05:11Z",
    }
    # Without ``settles``, ``one`` waits for no controller.
    unsettled = {name: value for name, value in kind.items() if name != "settles"}
    with one(api, unsettled) as made:
        before = made["metadata"]
        place = f"{kind['path']}/{before['name']}/status"
        sent = {"metadata": {**left, "generateName": "k-"}}
        after = api.request("PATCH", place, sent, {"Content-Type": MERGE}).expect(200)["metadata"]
    assert {key: after.get(key) for key in left} == {key: before.get(key) for key in left}
    assert after["generateName"] == "k-"


# upstream: the metadata of a new object is validated last, and only if all other fields are valid
# So errors of other fields hide errors of the metadata.
@pytest.mark.rows("WRI-003", "SRV-012")
@pytest.mark.parametrize(
    ("about", "fields"), [("elsewhere", ["involvedObject.namespace"]), ("default", ["metadata.annotations"])]
)
def test_the_metadata_of_a_new_core_event_is_validated_last(api: Client, about: str, fields: list[str]) -> None:
    event = {
        "metadata": {"generateName": "e-", "annotations": {"a b": "c"}},
        "involvedObject": {"kind": "Pod", "name": "p", "namespace": about},
    }
    refused = api.post("/api/v1/namespaces/default/events", event).expect(422)
    assert [cause["field"] for cause in refused["details"]["causes"]] == fields


@pytest.mark.rows("WRI-014")
def test_an_outdated_annotation_of_an_account_is_warned_of_once(api: Client) -> None:
    path, name = "/api/v1/namespaces/default/serviceaccounts", f"sa-{secrets.token_hex(4)}"
    mark = "kubernetes.io/enforce-mountable-secrets"
    instead = "deprecated in v1.32+; prefer separate namespaces to isolate access to mounted secrets"
    warned = [f'299 - "metadata.annotations[{mark}]: {instead}"']
    account = {"metadata": {"name": name, "annotations": {mark: "false"}}}
    assert api.post(path, account, dryRun="All").warnings == warned
    plain = api.post(path, {"metadata": {"name": name}})
    assert (plain.status, plain.warnings) == (201, [])
    place = f"{path}/{name}"
    assert api.put(place, account).warnings == warned
    for again in api.put(place, account), api.patch(place, {"metadata": {"annotations": {mark: "true"}}}):
        assert (again.status, again.warnings) == (200, [])
    assert api.patch(place, {"metadata": {"annotations": {mark: None}}}).warnings == []
    assert api.patch(place, {"metadata": {"annotations": {mark: ""}}}).warnings == warned
    api.delete(place).expect(200)
