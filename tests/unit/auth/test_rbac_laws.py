"""Decisions with indexes equal those of a simple evaluation of all roles and bindings.

This holds for any order of changes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiext.auth import limits
from apiext.auth.authorization import Attributes, Rule
from apiext.auth.coverage import uncovered
from apiext.auth.rbac import Policy, Role, binding_in, role_in, rule_in, rule_names
from apiext.auth.user import User

pytestmark = pytest.mark.rows("AUT-003")

VERBS, GROUPS, NAMES = ["get", "list", "*"], ["", "a.io", "*"], ["x", "y", ""]
RESOURCES = ["pods", "pods/log", "*/log", "jobs", "*", "jobs/scale", "*/scale"]
PATHS = ["/a", "/a/*", "/a/b", "*", "/*", "/a**"]
NAMESPACES = ["", "one", "two"]


def several(values: list[str], least: int = 1) -> st.SearchStrategy[list[str]]:
    return st.lists(st.sampled_from(values), min_size=least, max_size=3)


RULES = st.one_of(
    st.fixed_dictionaries(
        {"verbs": several(VERBS), "apiGroups": several(GROUPS), "resources": several(RESOURCES)},
        optional={"resourceNames": several(NAMES, 0)},
    ),
    st.fixed_dictionaries({"verbs": several(VERBS), "nonResourceURLs": several(PATHS)}),
)
SUBJECTS = st.one_of(
    st.fixed_dictionaries({"kind": st.just("User"), "name": st.sampled_from(["joe", "system:serviceaccount:one:sa"])}),
    st.fixed_dictionaries({"kind": st.just("Group"), "name": st.sampled_from(["devs", "ops"])}),
    st.fixed_dictionaries(
        {"kind": st.just("ServiceAccount"), "name": st.just("sa")}, optional={"namespace": st.sampled_from(NAMESPACES)}
    ),
)
USERS = st.sampled_from(
    [User("joe"), User("joe", ("devs",)), User("x", ("ops", "devs")), User("system:serviceaccount:one:sa")]
)
CHANGES = st.one_of(
    st.tuples(
        st.just("role"), st.sampled_from(NAMESPACES), st.sampled_from("ab"), st.none() | st.lists(RULES, max_size=2)
    ),
    st.tuples(
        st.just("binding"),
        st.sampled_from(NAMESPACES),
        st.sampled_from("ab"),
        st.none()
        | st.fixed_dictionaries(
            {
                "roleRef": st.fixed_dictionaries(
                    {"kind": st.sampled_from(["Role", "ClusterRole"]), "name": st.sampled_from("ab")}
                ),
                "subjects": st.lists(SUBJECTS, max_size=3),
            }
        ),
    ),
)
ASKED = st.builds(
    Attributes,
    USERS,
    st.sampled_from(["get", "list", "use"]),
    st.sampled_from(["/a", "/a/b", "/ab", "/"]),
    st.sampled_from(["", "a.io", "b.io"]),
    st.just("v1"),
    st.sampled_from(["pods", "jobs"]),
    st.sampled_from(["", "log", "scale"]),
    st.sampled_from([*NAMESPACES, "three"]),
    st.sampled_from(NAMES),
    st.booleans(),
)


@dataclass
class Naive:
    """A model that evaluates all objects for each request."""

    roles: dict[tuple[str, str], list[dict[str, Any]]] = field(default_factory=dict)
    bindings: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)

    def rules(self, user: User, namespace: str) -> list[dict[str, Any]]:
        found = []
        for (place, _), binding in sorted(self.bindings.items()):
            if place not in ("", namespace) or not any(means(one, user, place) for one in binding["subjects"]):
                continue
            role = binding["roleRef"]
            found += self.roles.get((place if role["kind"] == "Role" else "", role["name"]), [])
        return found

    def allows(self, asked: Attributes) -> bool:
        namespace = asked.namespace
        return any(matches(rule, asked) for rule in self.rules(asked.user, namespace))


def means(subject: dict[str, str], user: User, namespace: str) -> bool:
    if subject["kind"] == "User":
        return subject["name"] == user.name
    if subject["kind"] == "Group":
        return subject["name"] in user.groups
    place = subject.get("namespace") or namespace
    return bool(place) and user.name == f"system:serviceaccount:{place}:{subject['name']}"


def matches(rule: dict[str, Any], asked: Attributes) -> bool:
    def has(name: str, value: str) -> bool:
        return "*" in rule.get(name, ()) or value in rule.get(name, ())

    if not has("verbs", asked.verb):
        return False
    if asked.at_path:
        urls = rule.get("nonResourceURLs", ())
        return any(url == asked.path or (url.endswith("*") and asked.path.startswith(url.rstrip("*"))) for url in urls)
    whole = f"{asked.resource}/{asked.subresource}" if asked.subresource else asked.resource
    named = has("resources", whole) or (
        bool(asked.subresource) and f"*/{asked.subresource}" in rule.get("resources", ())
    )
    names = rule.get("resourceNames")
    return has("apiGroups", asked.group) and named and (not names or asked.name in names)


@pytest.mark.parametrize("listed", [0, 2, 16])
@given(changes=st.lists(CHANGES, max_size=8), questions=st.lists(ASKED, min_size=1, max_size=6))
def test_decisions_equal_those_of_the_naive_model(changes: list[Any], questions: list[Attributes], listed: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "RULES_LISTED", listed)  # so that few rules are indexed like many
        compare(changes, questions)


def compare(changes: list[Any], questions: list[Attributes]) -> None:
    policy, model = Policy(), Naive()
    for kind, namespace, name, given_ in changes:
        known: dict[Any, Any] = model.roles if kind == "role" else model.bindings
        if given_ is None:
            known.pop((namespace, name), None)
            remove = policy.remove_role if kind == "role" else policy.remove_binding
            remove(namespace, name)
        else:
            known[namespace, name] = given_
            if kind == "role":
                policy.put_role(namespace, name, role_in({"rules": given_}))
            else:
                policy.put_binding(namespace, name, binding_in(namespace, name, given_))
        for asked in questions:
            assert policy(asked).allowed == model.allows(asked), asked
            rules = [rule_in(rule) for rule in model.rules(asked.user, asked.namespace)]
            assert list(policy.rules_for(asked.user, asked.namespace).rules) == rules


PLACES = [("pods", ""), ("pods", "log"), ("jobs", "scale"), ("x", "")]
ATOMS = list(product(["get", "list", "use"], ["", "a.io"], PLACES, NAMES))


@given(st.lists(RULES, max_size=3), st.lists(RULES, max_size=3))
def test_covered_rules_allow_no_further_permission(held: list[dict[str, Any]], wanted: list[dict[str, Any]]) -> None:
    mine, theirs = Role(tuple(map(rule_in, held))), Role(tuple(map(rule_in, wanted)))
    missing = uncovered([mine], theirs.rules)
    more = [
        atom
        for atom in ATOMS
        if theirs.allows(atom[0], atom[1], rule_names(*atom[2]), atom[3])
        and not mine.allows(atom[0], atom[1], rule_names(*atom[2]), atom[3])
    ]
    assert missing or not more
    both = Role((*mine.rules, *missing))
    assert not uncovered([both], theirs.rules), "with what was lacking nothing is"
    assert all(isinstance(piece, Rule) and len(piece.verbs) == 1 for piece in missing)


@given(st.lists(RULES, max_size=3))
def test_role_covers_its_own_rules(rules: list[dict[str, Any]]) -> None:
    role = Role(tuple(map(rule_in, rules)))
    assert not uncovered([role], role.rules)
