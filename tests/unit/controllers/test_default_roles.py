"""Default roles: the table is valid; stored roles are completed and never lose rules."""

from __future__ import annotations

from typing import Any

import pytest

from apiext.auth.authorization import Attributes
from apiext.auth.coverage import uncovered
from apiext.auth.rbac import Policy, Role, binding_in, role_in, rules_in
from apiext.auth.user import User
from apiext.catalog.builtin.rbac import (
    default_binding,
    validate_cluster_role,
    validate_cluster_role_binding,
    validate_role,
    validate_role_binding,
)
from apiext.controllers import aggregation, default_accounts, garbage, migrations
from apiext.controllers.default_roles import completed_binding, completed_role, tables
from apiext.documents.document import clone

pytestmark = pytest.mark.rows("AUT-003")

ROLES = {role["metadata"]["name"]: role for role in tables()[0]}
BINDINGS = {binding["metadata"]["name"]: binding for binding in tables()[1]}


def test_default_roles_and_bindings_are_valid() -> None:
    for role in ROLES.values():
        validate = validate_role if role["kind"] == "Role" else validate_cluster_role
        assert validate(role, None) == []
        assert bool(role["rules"]) != ("aggregationRule" in role), "an aggregated role has no rules of its own"
    for binding in BINDINGS.values():
        same: dict[str, Any] = clone(binding)
        default_binding(same)
        assert same == binding, "what is stored must not differ from the table by its defaults"
        validate = validate_role_binding if binding["kind"] == "RoleBinding" else validate_cluster_role_binding
        assert validate(binding, None) == []
        role = ROLES[binding["roleRef"]["name"]]
        assert binding["roleRef"]["kind"] == role["kind"]
        assert binding["metadata"].get("namespace") == role["metadata"].get("namespace")


@pytest.mark.parametrize("name", list(ROLES))
def test_complete_role_is_not_changed(name: str) -> None:
    stored = {**ROLES[name], "metadata": {**ROLES[name]["metadata"], "uid": "1"}}
    assert completed_role(stored, ROLES[name]) is None


def test_missing_rules_are_restored_to_role() -> None:
    wanted = ROLES["system:basic-user"]
    own = {"apiGroups": ["a"], "resources": ["b"], "verbs": ["c"]}
    stored: dict[str, Any] = {
        **wanted,
        "metadata": {"name": "x", "labels": {"a": "b"}},
        "rules": [own, wanted["rules"][0]],
    }
    change = completed_role(stored, wanted)
    assert change is not None
    lost = {"apiGroups": ["authentication.k8s.io"], "resources": ["selfsubjectreviews"], "verbs": ["create"]}
    assert change["rules"] == [own, wanted["rules"][0], lost]
    assert change["metadata"]["labels"] == {"a": "b", "kubernetes.io/bootstrapping": "rbac-defaults"}
    assert completed_role(change, wanted) is None
    emptied = completed_role({**stored, "rules": None}, wanted)
    assert emptied is not None
    assert uncovered([Role(rules_in(emptied))], rules_in(wanted)) == []


def test_aggregation_selectors_are_restored_or_removed() -> None:
    view, basic = ROLES["view"], ROLES["system:basic-user"]
    other = {"matchLabels": {"a": "b"}}
    stored = {**view, "aggregationRule": {"clusterRoleSelectors": [other]}, "rules": [{"verbs": ["get"]}]}
    change = completed_role(stored, view)
    assert change is not None
    assert change["aggregationRule"]["clusterRoleSelectors"] == [
        other,
        {"matchLabels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}},
    ]
    assert change["rules"] == [{"verbs": ["get"]}]
    plain = completed_role({**basic, "aggregationRule": {"clusterRoleSelectors": [other]}}, basic)
    assert plain == basic
    for emptied in ({}, {"aggregationRule": None}, {"aggregationRule": {"clusterRoleSelectors": None}}):
        unruled = {name: value for name, value in view.items() if name != "aggregationRule"}
        assert completed_role({**unruled, **emptied}, view) == view


def test_missing_subjects_are_restored_to_binding() -> None:
    wanted = BINDINGS["system:public-info-viewer"]
    own = {"kind": "User", "name": "joe", "apiGroup": "rbac.authorization.k8s.io"}
    change = completed_binding({**wanted, "subjects": [own, wanted["subjects"][1]]}, wanted)
    assert change is not None
    assert change["subjects"] == [own, wanted["subjects"][1], wanted["subjects"][0]]
    assert completed_binding(change, wanted) is None
    assert completed_binding({**wanted, "subjects": None}, wanted) == wanted


def test_policy_accepts_default_roles_and_bindings() -> None:
    policy = Policy()
    for name, role in ROLES.items():
        policy.put_role("", name, role_in(role))
    for name, binding in BINDINGS.items():
        policy.put_binding("", name, binding_in("", name, binding))
    assert not policy._grants


@pytest.mark.parametrize(
    ("user", "allowed", "denied"),
    [
        (garbage.USER, "get list watch patch update delete", "create deletecollection"),
        (migrations.USER, "list patch", "create get watch update delete"),
        (aggregation.USER, "", "get update"),
        (default_accounts.USER, "", "get create"),
    ],
    ids=lambda it: it.name.rpartition(":")[2] if isinstance(it, User) else "",
)
def test_controller_users_have_permissions_of_upstream(user: User, allowed: str, denied: str) -> None:
    policy = Policy()
    for name, role in ROLES.items():
        policy.put_role("", name, role_in(role))
    for name, binding in BINDINGS.items():
        policy.put_binding("", name, binding_in("", name, binding))

    def may(verb: str, group: str, resource: str, subresource: str = "") -> bool:
        return bool(policy(Attributes(user, verb, "", group, "v1", resource, subresource, "d", "a")))

    for verb in (*allowed.split(), *denied.split()):
        assert may(verb, "example.com", "widgets") is (verb in allowed.split()), verb
    assert may("create", "", "serviceaccounts") is (user is default_accounts.USER)
    assert may("escalate", "rbac.authorization.k8s.io", "clusterroles") is (user is aggregation.USER)
    migrates = ("update", "storagemigration.k8s.io", "storageversionmigrations", "status")
    assert may(*migrates) is (user in (migrations.USER, garbage.USER))
    assert may("create", "events.k8s.io", "events") is (user not in (aggregation.USER, migrations.USER))
