"""Roles, bindings and reviews of an allowed size on a server with RBAC.

The server is restarted afterwards.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from apiext.conformance.support.http_client import Client
from apiext.conformance.support.waiting import until
from tests.hostile.harness import PLAIN, Victim, running_victim

RBAC = "/apis/rbac.authorization.k8s.io/v1"
INSIDE = f"{RBAC}/namespaces/default"
JOE = {"Impersonate-User": "joe"}
WIDE = 20_000  # number of resources, and of names, in a rule
RULES = 10_000  # rules in each of the other roles
ROLES = 2
GROUPS = 300_000
LAST = f"/api/v1/namespaces/default/configmaps/n{WIDE - 1}"
pytestmark = pytest.mark.rows("AUT-003")


@pytest.fixture(scope="module")
def rbac_victim(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Victim]:
    """A server with RBAC."""
    with running_victim(tmp_path_factory.mktemp("roles"), (*PLAIN, "--authorization-mode=RBAC")) as running:
        yield running


def role(name: str, *rules: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": name}, "rules": list(rules)}


def rule(**fields: list[str]) -> dict[str, Any]:
    return {"apiGroups": [""], "verbs": ["get"], "resources": ["pods"], **fields}


def bind(admin: Client, name: str) -> None:
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
    joe = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "joe"}
    body = {"metadata": {"name": name}, "roleRef": reference, "subjects": [joe]}
    admin.post(f"{INSIDE}/rolebindings", body).expect(201)


def is_allowed(admin: Client, path: str) -> bool:
    return admin.get(path, JOE).status != 403


def review(admin: Client, user: str, groups: list[str], wanted: dict[str, str]) -> bool:
    spec = {"user": user, "groups": groups, "resourceAttributes": wanted}
    found = admin.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", {"spec": spec}).expect(201)
    return bool(found["status"]["allowed"])


def test_wide_role_does_not_block_the_server(rbac_victim: Victim) -> None:
    admin = rbac_victim.api
    names, resources = ([f"{letter}{number}" for number in range(WIDE)] for letter in "nr")
    with rbac_victim.attacked():
        made = role("wide", rule(resources=[*resources, "configmaps"], resourceNames=names))
        admin.post(f"{INSIDE}/roles", made).expect(201)
        bind(admin, "wide")
        until(lambda: is_allowed(admin, LAST), "the role counts")
        assert not is_allowed(admin, "/api/v1/namespaces/default/configmaps/other")


def test_many_rules_of_a_user_do_not_block_the_server(rbac_victim: Victim) -> None:
    admin = rbac_victim.api
    for number in range(ROLES):
        name = f"many{number}"
        made = role(name, *(rule(resourceNames=[f"n{number}-{one}"]) for one in range(RULES)))
        admin.post(f"{INSIDE}/roles", made).expect(201)
        bind(admin, name)
    last = {"verb": "get", "resource": "pods", "namespace": "default", "name": f"n{ROLES - 1}-{RULES - 1}"}
    until(lambda: review(admin, "joe", [], last), "the roles count")
    with rbac_victim.attacked():
        for _ in range(100):
            assert not is_allowed(admin, "/api/v1/namespaces/default/pods")
    question = {"apiVersion": "authorization.k8s.io/v1", "spec": {"namespace": "default"}}
    with rbac_victim.attacked():
        found = admin.post("/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", question, JOE)
    assert len(found.expect(201)["status"]["resourceRules"]) >= ROLES * RULES


def test_review_of_many_groups_does_not_block_the_server(rbac_victim: Victim) -> None:
    admin = rbac_victim.api
    groups = ["g"] * GROUPS
    wanted = {"verb": "get", "resource": "pods"}
    with rbac_victim.attacked():
        assert not review(admin, "", groups, wanted)
    assert review(admin, "", [*groups, "system:masters"], wanted)


def test_server_restarts_with_many_roles(rbac_victim: Victim) -> None:
    rbac_victim.restart()
    assert is_allowed(rbac_victim.api, LAST)
