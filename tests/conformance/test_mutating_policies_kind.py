"""MutatingAdmissionPolicy and its binding: validation, defaults, generation and Tables."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from apiext.conformance.support.cases import read as read_yaml
from apiext.conformance.support.http_client import APPLY, TABLE, Client

pytestmark = pytest.mark.rows("ADM-020")

BASE = "/apis/admissionregistration.k8s.io/v1"
STRATEGIC = "application/strategic-merge-patch+json"
RULE = {"operations": ["CREATE"], "apiGroups": ["no.example.com"], "apiVersions": ["v1"], "resources": ["nothings"]}
POLICY: dict[str, Any] = {
    "matchConstraints": {"resourceRules": [RULE]},
    "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": "Object{}"}}],
    "reinvocationPolicy": "Never",
}
KINDS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "policy": (f"{BASE}/mutatingadmissionpolicies", "MutatingAdmissionPolicy", POLICY),
    "binding": (f"{BASE}/mutatingadmissionpolicybindings", "MutatingAdmissionPolicyBinding", {"policyName": "p"}),
}
ROWS: dict[str, list[dict[str, Any]]] = read_yaml(Path(__file__).with_name("mutating_policies_kind.yaml"))


def each(section: str, kind: str = "") -> pytest.MarkDecorator:
    rows = [{"kind": kind, **row} for row in ROWS[section]]
    return pytest.mark.parametrize("row", [pytest.param(row, id=f"{row['kind']}: {row['name']}") for row in rows])


def document(kind: str, change: dict[str, Any] | None, name: str = "") -> dict[str, Any]:
    """Return an object with a valid spec and this change."""
    _, named, right = KINDS[kind]
    found = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": named,
        "metadata": {"name": name or f"m-{secrets.token_hex(4)}"},
    }
    if change is None:
        return found
    return {**found, "spec": {field: value for field, value in {**right, **change}.items() if value is not None}}


def causes(answer: dict[str, Any]) -> list[str]:
    return [f"{cause['field']}: {cause['message']}" for cause in answer["details"]["causes"]]


def at(document: Any, path: str) -> Any:
    for step in path.split("."):
        document = document[int(step)] if isinstance(document, list) else document[step]
    return document


@pytest.fixture
def made(api: Client, row: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The stored object of a row; it is deleted after the test."""
    path = KINDS[row["kind"]][0]
    found = api.post(path, document(row["kind"], row.get("old", row.get("set", {})))).expect(201)
    yield found
    api.delete(f"{path}/{found['metadata']['name']}")


def check_create(api: Client, row: dict[str, Any]) -> None:
    path, kind, _ = KINDS[row["kind"]]
    body = document(row["kind"], row["set"])
    answer = api.post(f"{path}?dryRun=All", body)
    if "errors" not in row:
        answer.expect(201)
        return
    refused = answer.expect(422)
    assert causes(refused) == row["errors"]
    told = list(dict.fromkeys(row["errors"]))
    whole = told[0] if len(told) == 1 else f"[{', '.join(told)}]"
    name = body["metadata"]["name"]
    assert refused["message"] == f'{kind}.admissionregistration.k8s.io "{name}" is invalid: {whole}'


@each("policies", "policy")
def test_invalid_policies_are_refused(api: Client, row: dict[str, Any]) -> None:
    check_create(api, row)


@each("bindings", "binding")
def test_invalid_bindings_are_refused(api: Client, row: dict[str, Any]) -> None:
    check_create(api, row)


@each("bodies")
def test_policy_bodies_are_decoded_like_upstream(api: Client, row: dict[str, Any]) -> None:
    path, kind, _ = KINDS[row["kind"]]
    answer = api.post(f"{path}?dryRun=All", document(row["kind"], row["set"]))
    assert answer.warnings == ["299 - " + _quoted(text) for text in row.get("warnings", ())]
    if "refused" not in row:
        answer.expect(201)
        return
    told = f'{kind} in version "v1" cannot be handled as a {kind}: json: {row["refused"]}'
    assert answer.expect(400)["message"] == told


def _quoted(text: str) -> str:
    escaped = text.replace('"', '\\"')
    return f'"{escaped}"'


@each("updates")
def test_updates_validate_and_count_generations(api: Client, row: dict[str, Any], made: dict[str, Any]) -> None:
    place = f"{KINDS[row['kind']][0]}/{made['metadata']['name']}"
    answer = api.request("PATCH", place, row["patch"], {"Content-Type": STRATEGIC})
    if "errors" in row:
        assert causes(answer.expect(422)) == row["errors"]
        assert api.get(place).expect(200) == made
        return
    changed = answer.expect(200)
    assert changed["metadata"]["generation"] == row["generation"]
    shows = row.get("shows", {})
    assert {path: at(changed, path) for path in shows} == shows


@each("tables")
def test_tables_have_columns_of_upstream(api: Client, row: dict[str, Any], made: dict[str, Any]) -> None:
    place = f"{KINDS[row['kind']][0]}/{made['metadata']['name']}"
    table = api.get(place, {"Accept": TABLE}).expect(200)
    names = {"policy": ["Name", "Mutations", "ParamKind", "Age"], "binding": ["Name", "PolicyName", "ParamRef", "Age"]}
    assert [column["name"] for column in table["columnDefinitions"]] == names[row["kind"]]
    assert [column["priority"] for column in table["columnDefinitions"]] == [0, 0, 0, 0]
    assert table["rows"][0]["cells"][1:-1] == row["cells"]


COLUMNS = {
    "policy": [
        "Mutation indicates the number of mutations rules defined in this configuration",
        "ParamKind specifies the kind of resources used to parameterize this policy",
    ],
    "binding": [
        "PolicyName indicates the policy definition which the policy binding binded to",
        "ParamRef indicates the param resource which sets the configuration param",
    ],
}


@pytest.mark.parametrize("kind", KINDS)
def test_table_columns_have_descriptions(api: Client, kind: str) -> None:
    table = api.get(KINDS[kind][0], {"Accept": TABLE}).expect(200)
    assert [column["description"] for column in table["columnDefinitions"][1:-1]] == COLUMNS[kind]


@pytest.mark.rows("DIS-102")
def test_discovery_lists_policies_and_bindings(api: Client) -> None:
    resources = {one["name"]: one for one in api.get(BASE).expect(200)["resources"]}
    verbs = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]
    shared = {"namespaced": False, "verbs": verbs, "categories": ["api-extensions"]}
    assert resources["mutatingadmissionpolicies"] == {
        "name": "mutatingadmissionpolicies",
        "singularName": "mutatingadmissionpolicy",
        "kind": "MutatingAdmissionPolicy",
        "storageVersionHash": "mHCkTKpUTrE=",
        **shared,
    }
    assert resources["mutatingadmissionpolicybindings"] == {
        "name": "mutatingadmissionpolicybindings",
        "singularName": "mutatingadmissionpolicybinding",
        "kind": "MutatingAdmissionPolicyBinding",
        "storageVersionHash": "ZKgZT1uTmZ0=",
        **shared,
    }
    assert "mutatingadmissionpolicies/status" not in resources


def test_policies_and_bindings_get_defaults(api: Client) -> None:
    path = KINDS["policy"][0]
    excluded = {"matchConstraints": {"resourceRules": [RULE], "excludeResourceRules": [RULE]}}
    shown = api.post(f"{path}?dryRun=All", document("policy", excluded)).expect(201)
    rule = {**RULE, "scope": "*"}
    selected = {"namespaceSelector": {}, "objectSelector": {}, "matchPolicy": "Equivalent"}
    constraints = {"resourceRules": [rule], "excludeResourceRules": [rule], **selected}
    assert shown["spec"] == {**POLICY, "failurePolicy": "Fail", "matchConstraints": constraints}
    assert shown["metadata"]["generation"] == 1
    assert "status" not in shown
    bound = api.post(f"{KINDS['binding'][0]}?dryRun=All", document("binding", {"matchResources": {}})).expect(201)
    assert bound["spec"] == {"policyName": "p", "matchResources": selected}


@pytest.mark.parametrize("kind", KINDS)
def test_reserved_name_suffix_returns_a_warning(api: Client, kind: str) -> None:
    answer = api.post(f"{KINDS[kind][0]}?dryRun=All", document(kind, {}, "a.static.k8s.io"))
    text = (
        'metadata.name: names ending with ".static.k8s.io" are reserved for static manifest-based configurations and '
        "cannot be managed via the API"
    )
    assert (answer.status, answer.warnings) == (201, ["299 - " + _quoted(text)])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.rows("UPD-005")
def test_put_needs_resource_version_and_creates_nothing(api: Client, kind: str) -> None:
    path = KINDS[kind][0]
    made = api.post(path, document(kind, {})).expect(201)
    name = made["metadata"]["name"]
    refused = api.put(f"{path}/{name}", document(kind, {}, name)).expect(422)
    assert causes(refused) == ["metadata.resourceVersion: Invalid value: 0: must be specified for an update"]
    assert api.get(f"{path}/{name}/status").status == 404
    api.delete(f"{path}/{name}").expect(200)
    assert api.put(f"{path}/{name}", document(kind, {}, name)).status == 404


@pytest.mark.rows("SSA-001")
def test_apply_owns_list_fields_of_a_policy(api: Client) -> None:
    more = {
        "matchConditions": [{"name": "a", "expression": "true"}],
        "variables": [{"name": "a", "expression": "1"}],
        "paramKind": {"apiVersion": "v1", "kind": "X"},
    }
    body = document("policy", more)
    place = f"{KINDS['policy'][0]}/{body['metadata']['name']}?fieldManager=one&dryRun=All"
    applied = api.request("PATCH", place, body, {"Content-Type": APPLY}).expect(201)
    (entry,) = applied["metadata"]["managedFields"]
    assert entry["fieldsV1"] == {
        "f:spec": {
            "f:matchConditions": {'k:{"name":"a"}': {".": {}, "f:expression": {}, "f:name": {}}},
            **{f"f:{name}": {} for name in ("matchConstraints", "mutations", "paramKind", "reinvocationPolicy")},
            "f:variables": {},
        }
    }
