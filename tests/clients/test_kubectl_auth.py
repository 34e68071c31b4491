"""RBAC with kubectl: tasks of users and administrators."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.clients.kubectl import Kubectl
from tests.support.processes import Server, running_server

RECONCILE = """
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: NAME}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [get, list]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: NAME, namespace: default}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: NAME}
subjects: [{kind: User, name: ann-NAME, apiGroup: rbac.authorization.k8s.io}]
"""


@pytest.fixture(scope="module")
def rbac_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with the authorization mode RBAC."""
    with running_server(["--port=0", "--authorization-mode=RBAC"], tmp_path_factory.mktemp("judging")) as started:
        yield started


@pytest.fixture
def admin(kubectl_of: Kubectl, rbac_server: Server) -> Kubectl:
    return replace(kubectl_of, kubeconfig=str(rbac_server.ready["kubeconfig"]))


@pytest.mark.rows("KUB-004", "AUT-003", "AUT-005")
def test_kubectl_auth_checks_and_reconciles_permissions(admin: Kubectl) -> None:
    name = f"r-{secrets.token_hex(3)}"
    joe, ann = f"--as=joe-{name}", f"--as=ann-{name}"
    listed = admin("auth", "can-i", "--list", joe)
    assert re.search(r"^selfsubjectaccessreviews.authorization.k8s.io +\[\] +\[\] +\[create\]$", listed, re.M), listed
    assert re.search(r"^ +\[/apis/\*\] +\[\] +\[get\]$", listed, re.M), listed
    assert "*.*" in admin("auth", "can-i", "--list")
    assert admin("auth", "can-i", "list", "configmaps") == "yes\n"
    assert admin.run("auth", "can-i", "list", "configmaps", joe).stdout == "no\n"
    assert admin("auth", "can-i", "list", "configmaps", joe, "--as-group=system:masters") == "yes\n"
    where = 'in API group "" in the namespace "default"'
    refused = f'configmaps is forbidden: User "joe-{name}" cannot list resource "configmaps" {where}\n'
    assert admin.fails("get", "configmaps", joe).endswith(refused)
    admin("create", "clusterrole", name, "--verb=get", "--resource=configmaps")
    admin("create", "rolebinding", name, f"--clusterrole={name}", f"--user=joe-{name}")
    assert admin("auth", "can-i", "get", "configmaps/a", joe) == "yes\n"
    assert admin.run("auth", "can-i", "get", "configmaps/a", joe, "-n", "kube-system").stdout == "no\n"
    file = admin.home / "roles.yaml"
    file.write_text(RECONCILE.replace("NAME", name))
    first = admin("auth", "reconcile", "-f", str(file))
    assert first.count("reconciled") == 2, first
    assert admin("auth", "can-i", "list", "configmaps", joe) == "yes\n", "what was there stays"
    assert admin("auth", "can-i", "list", "configmaps", ann) == "yes\n"
    admin("auth", "reconcile", "-f", str(file), "--remove-extra-subjects", "--remove-extra-permissions")
    assert admin.run("auth", "can-i", "list", "configmaps", joe).stdout == "no\n"
    admin("delete", "clusterrole", name)
    assert "not found" in admin.run("auth", "can-i", "list", "configmaps", ann).stdout


@pytest.mark.rows("KUB-004", "AUT-003", "SSA-001")
def test_namespace_admin_grants_only_own_permissions(admin: Kubectl) -> None:
    place = f"team-{secrets.token_hex(3)}"
    amy, bob, here = f"--as=amy-{place}", f"--as=bob-{place}", f"--namespace={place}"
    admin("create", "namespace", place)
    admin("create", "rolebinding", "amy", "--clusterrole=admin", f"--user=amy-{place}", here)
    assert admin("create", "configmap", "c", "--from-literal=a=b", amy, here) == "configmap/c created\n"
    assert admin("create", "rolebinding", "bob", "--clusterrole=view", f"--user=bob-{place}", amy, here)
    assert "c " in admin("get", "configmaps", bob, here)
    assert "cannot list resource" in admin.fails("get", "secrets", bob, here)
    assert "cannot delete resource" in admin.fails("delete", "configmap", "c", bob, here)
    refused = admin.fails(
        "create", "rolebinding", "all", "--clusterrole=cluster-admin", f"--user=amy-{place}", amy, here
    )
    assert "is attempting to grant RBAC permissions not currently held" in refused
    assert '{APIGroups:["*"], Resources:["*"], Verbs:["*"]}' in refused
    file = admin.home / "configmap.yaml"
    file.write_text("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: d}\ndata: {a: b}\n")
    assert "serverside-applied" in admin("apply", "--server-side", "-f", str(file), amy, here)
    assert "cannot patch resource" in admin.fails("apply", "--server-side", "-f", str(file), bob, here)
    admin("delete", "namespace", place, "--wait=false")
