"""Variables of each kind of policy expression; the rows also hold for kube-apiserver."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from apiext.conformance.support.admission import (
    BINDINGS,
    MUTATING_BINDINGS,
    MUTATING_POLICIES,
    POLICIES,
    document,
    json_patch,
    settled,
    stored,
)
from apiext.conformance.support.cases import Case, case_name, read
from apiext.conformance.support.http_client import Answer, Client
from tests.support.processes import Server

NAMESPACES = "/api/v1/namespaces"
ROWS = [Case(row) for row in read(Path(__file__).with_name("policy_views.yaml"))]


@pytest.fixture(scope="module")
def namespace(server: Server) -> Iterator[str]:
    """A namespace with labels, annotations and an owner."""
    api, name = Client(server.url), f"views-{secrets.token_hex(4)}"
    uid = api.get(f"{NAMESPACES}/default").expect(200)["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "Namespace", "name": "default", "uid": uid}
    metadata = {"name": name, "labels": {"a": "b"}, "annotations": {"c": "d"}, "ownerReferences": [owner]}
    api.post(NAMESPACES, {"metadata": metadata}).expect(201)
    param = {"metadata": {"name": "param"}, "data": {"k": "v"}}
    api.post(f"{NAMESPACES}/{name}/configmaps", param).expect(201)
    yield name
    api.delete(f"{NAMESPACES}/{name}")


@contextlib.contextmanager
def bound_policy(api: Client, namespace: str, path: str, spec: dict[str, Any]) -> Iterator[str]:
    """Create a policy for ConfigMaps of the namespace for the block; yield its name."""
    name = f"views-{secrets.token_hex(4)}"
    about = {"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}
    within = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}
    spec = {"matchConstraints": {"resourceRules": [about], **within}, **spec}
    binding: dict[str, Any] = {"policyName": name}
    if "paramKind" in spec:
        binding["paramRef"] = {"name": "param", "namespace": namespace, "parameterNotFoundAction": "Deny"}
    if path == POLICIES:
        binding["validationActions"] = ["Deny"]
    bindings = BINDINGS if path == POLICIES else MUTATING_BINDINGS
    with (
        stored(api, path, document(path, name, spec=spec)),
        stored(api, bindings, document(bindings, name, spec=binding)),
    ):
        settled(api, path)
        yield name
    settled(api, path)


def create_config_map(api: Client, namespace: str) -> Answer:
    """Create a ConfigMap in the namespace as a dry run."""
    wanted = {"metadata": {"name": "a", "labels": {"x": "y"}}, "data": {"k": "v"}}
    return api.post(f"{NAMESPACES}/{namespace}/configmaps", wanted, dryRun="All")


@pytest.mark.rows("ADM-006", "ADM-020")
@pytest.mark.parametrize("case", ROWS, ids=case_name)
def test_expressions_see_the_variables_of_their_kind(api: Client, namespace: str, case: Case) -> None:
    shared = {"variables": case.variables or []}
    if case.params:
        shared["paramKind"] = {"apiVersion": "v1", "kind": "ConfigMap"}
    if case.makes:
        mutation = json_patch(f"[JSONPatch{{op: 'add', path: '/data/found', value: {case.makes}}}]")
        spec = {"reinvocationPolicy": "Never", "mutations": [mutation], **shared}
        with bound_policy(api, namespace, MUTATING_POLICIES, spec):
            made = create_config_map(api, namespace).expect(201)
        assert made["data"]["found"] == case.text
        return
    validation = {"expression": case.judges or "false", "message": "plain"}
    if case.says:
        validation["messageExpression"] = case.says
    spec = {"validations": [] if case.notes else [validation], **shared}
    if case.notes:
        spec["auditAnnotations"] = [{"key": "a", "valueExpression": case.notes}]
    if case.when:
        spec["matchConditions"] = [{"name": "a", "expression": case.when}]
    with bound_policy(api, namespace, POLICIES, spec) as name:
        answer = create_config_map(api, namespace)
    if case.text is None:
        answer.expect(201)
        return
    assert answer.expect(422)["message"].partition(f"'{name}' denied request: ")[2] == case.text
