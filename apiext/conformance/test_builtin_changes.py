"""Updates of built-in objects: fields that the server keeps, sets or rejects.

The results are compared with kube-apiserver.
"""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Any

import pytest

from apiext.conformance.support.cases import Case, case_name, read
from apiext.conformance.support.definitions import definition
from apiext.conformance.support.http_client import MERGE, TABLE, Client
from apiext.conformance.test_builtin_kinds import STRATEGIC, at

FILES = ("builtin_changes.yaml", "builtin_status.yaml")
ROWS = [Case(row) for file in FILES for row in read(Path(__file__).with_name(file))]
WAYS = {"patch": ("PATCH", MERGE), "strategic": ("PATCH", STRATEGIC), "put": ("PUT", "application/json")}


@pytest.mark.rows("NSP-002", "UPD-006", "WRI-003", "WRI-004", "SRV-012")
@pytest.mark.parametrize("case", ROWS, ids=case_name)
def test_changes(api: Client, case: Case) -> None:
    name = f"c-{secrets.token_hex(4)}"
    made = definition(f"{name}.example.com") if case.definition else case.body or {}
    made = {"metadata": {"name": name, **(case.metadata or {})}, **made}
    name = made["metadata"]["name"]
    place = f"{case.path}/{name}"
    api.post(case.path, made).expect(201)
    for step in case.steps:
        way = next(iter(WAYS.keys() & step.keys()))
        method, media_type = WAYS[way]
        body = {**step[way], "metadata": {"name": name, **step[way].get("metadata", {})}}
        told = {"Content-Type": media_type}
        answer = api.request(method, place + step.get("at", ""), body, told, **step.get("with", {}))
        assert answer.status == step["code"], (step, answer.text)
        assert {path: at(answer.json, path) for path in step.get("shows", {})} == step.get("shows", {}), step
        assert step.get("says", "") in (answer.json.get("message") or ""), step
        if "warns" in step:
            assert answer.warnings == [f'299 - "unknown field \\"{name}\\""' for name in step["warns"]], step
    api.delete(place).expect(200)


RBAC = "/apis/rbac.authorization.k8s.io/v1"


@pytest.mark.rows("TAB-001")
@pytest.mark.parametrize(
    ("path", "rows"),
    [
        (f"{RBAC}/clusterroles", None),
        (f"{RBAC}/namespaces/default/roles", None),
        (f"{RBAC}/clusterrolebindings", []),
        ("/api/v1/namespaces/default/configmaps", []),
    ],
)
def test_an_empty_table(api: Client, path: str, rows: list[Any] | None) -> None:
    """``rows`` of an empty Table is null for kinds with a column Created At, else empty."""
    assert api.get(f"{path}?fieldSelector=metadata.name=nobody", {"Accept": TABLE}).expect(200)["rows"] == rows


@pytest.mark.rows("TAB-002")
def test_accounts_of_a_binding(api: Client) -> None:
    place = f"{RBAC}/namespaces/default/rolebindings"
    subjects = [{"kind": "ServiceAccount", "name": "a", "namespace": "b"}, {"kind": "ServiceAccount", "name": "c"}]
    body = {"metadata": {"name": "x"}, "roleRef": {"kind": "Role", "name": "x"}, "subjects": subjects}
    table = api.request("POST", f"{place}?dryRun=All", body, {"Accept": TABLE}).expect(201)
    assert table["rows"][0]["cells"][-1] == "b/a, /c"
