"""Roles, bindings and reviews of an allowed size harm neither the server that judges by them nor its next start."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.http_client import Client
from tests.support.processes import Server, running_server
from tests.support.strain import memory, strained
from tests.support.waiting import until

RBAC = "/apis/rbac.authorization.k8s.io/v1"
INSIDE = f"{RBAC}/namespaces/default"
FLAGS = ["--insecure", "--port=0", "--authorization-mode=RBAC"]
JOE = {"Impersonate-User": "joe"}
WIDE = 20_000  # resources, and as many names, of one rule
RULES = 15_000  # in each of the other roles
ROLES = 4
GROUPS = 550_000


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("roles")


@pytest.fixture(scope="module")
def server(directory: Path) -> Iterator[Server]:
    """A server of our own, since the others would suffer."""
    with running_server(FLAGS, directory) as started:
        yield started


def role(name: str, *rules: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": name}, "rules": list(rules)}


def rule(**fields: list[str]) -> dict[str, Any]:
    return {"apiGroups": [""], "verbs": ["get"], "resources": ["pods"], **fields}


def bind(admin: Client, name: str) -> None:
    reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name}
    joe = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "joe"}
    body = {"metadata": {"name": name}, "roleRef": reference, "subjects": [joe]}
    admin.post(f"{INSIDE}/rolebindings", body).expect(201)


def may(admin: Client, path: str) -> bool:
    return admin.get(path, JOE).status != 403


@pytest.mark.rows("AUT-003")
def test_a_wide_role(server: Server) -> None:
    admin = Client(server.url)
    names, resources = ([f"{letter}{number}" for number in range(WIDE)] for letter in "nr")
    before = memory(server, "VmRSS")
    with strained(server, mib=100):
        made = role("wide", rule(resources=[*resources, "configmaps"], resourceNames=names))
        admin.post(f"{INSIDE}/roles", made).expect(201)
        bind(admin, "wide")
        until(lambda: may(admin, f"/api/v1/namespaces/default/configmaps/n{WIDE - 1}"), "the role counts")
        assert not may(admin, "/api/v1/namespaces/default/configmaps/other")
    assert memory(server, "VmRSS") - before < 40


@pytest.mark.rows("AUT-003")
def test_many_rules_of_one_user(server: Server) -> None:
    admin = Client(server.url)
    for number in range(ROLES):
        name = f"many{number}"
        made = role(name, *(rule(resourceNames=[f"n{number}-{one}"]) for one in range(RULES)))
        admin.post(f"{INSIDE}/roles", made).expect(201)
        bind(admin, name)
    last = {"verb": "get", "resource": "pods", "namespace": "default", "name": f"n{ROLES - 1}-{RULES - 1}"}
    until(lambda: review(admin, "joe", [], last), "the roles count")
    with strained(server, mib=20):
        for _ in range(100):
            assert not may(admin, "/api/v1/namespaces/default/pods")
    question = {"apiVersion": "authorization.k8s.io/v1", "spec": {"namespace": "default"}}
    with strained(server, cpu=3, mib=200):
        found = admin.post("/apis/authorization.k8s.io/v1/selfsubjectrulesreviews", question, JOE)
    assert len(found.expect(201)["status"]["resourceRules"]) > ROLES * RULES


def review(admin: Client, user: str, groups: list[str], wanted: dict[str, str]) -> bool:
    spec = {"user": user, "groups": groups, "resourceAttributes": wanted}
    found = admin.post("/apis/authorization.k8s.io/v1/subjectaccessreviews", {"spec": spec}).expect(201)
    return bool(found["status"]["allowed"])


@pytest.mark.rows("AUT-003")
def test_a_review_of_many_groups(server: Server) -> None:
    admin = Client(server.url)
    groups = ["g"] * GROUPS
    wanted = {"verb": "get", "resource": "pods"}
    with strained(server, cpu=3, mib=200):
        assert not review(admin, "", groups, wanted)
    assert review(admin, "", [*groups, "system:masters"], wanted)


@pytest.mark.rows("AUT-003")
def test_the_next_start(server: Server, directory: Path) -> None:
    """The last one: it ends the server of the others."""
    admin = Client(server.url)
    assert server.process is not None
    server.process.terminate()
    server.process.wait(30)
    with running_server(FLAGS, directory) as again:
        admin = Client(again.url)
        assert may(admin, f"/api/v1/namespaces/default/configmaps/n{WIDE - 1}")
        assert not may(admin, "/api/v1/namespaces/default/configmaps/other")
        assert memory(again, "VmHWM") < 400
