"""RBAC decisions: rules, subjects of bindings, and the reasons of refusals."""

from __future__ import annotations

import re
import time
import tracemalloc
from typing import Any

import orjson
import pytest

from apiext import limits as server_limits
from apiext.auth import limits as auth_limits
from apiext.auth.authorization import Attributes, Decision, Rule
from apiext.auth.coverage import TooManyPermissions, described, uncovered
from apiext.auth.rbac import Policy, Role, binding_in, document_of, role_in, rule_in
from apiext.auth.user import User, authenticated
from apiext.conformance.support.cases import Case, case_name, load
from apiext.conformance.support.waiting import prompt

pytestmark = pytest.mark.rows("AUT-003")

JOE = authenticated("joe", ("devs",))
READ = {"apiGroups": [""], "resources": ["pods"], "verbs": ["get"]}
_ASKED = re.compile(r"(\S+) ([^\s/][^\s/]*)(?:/(\S+))?(?: of (\S+))?(?: by (\S+))?")


def parse_request(text: str, user: User = JOE, namespace: str = "") -> Attributes:
    verb, _, path = text.partition(" ")
    if path.startswith("/"):
        return Attributes(user, verb, path, at_path=True)
    found = _ASKED.fullmatch(text)
    assert found, text
    group = (found[4] or "").strip('"')
    return Attributes(user, verb, "", group, "v1", found[2], found[3] or "", namespace, found[5] or "")


def bound(role: str, *subjects: dict[str, str], kind: str = "ClusterRole") -> dict[str, Any]:
    return {"roleRef": {"kind": kind, "name": role}, "subjects": list(subjects)}


def user(name: str) -> dict[str, str]:
    return {"kind": "User", "name": name}


@pytest.mark.parametrize("case", load(__file__, "rbac"), ids=case_name)
def test_role_rule_allows_and_refuses_requests(case: Case) -> None:
    policy = Policy()
    policy.put_role("", "r", role_in({"rules": [case["rule"]]}))
    policy.put_binding("", "b", binding_in("", "b", bound("r", user("joe"))))
    for text in case.get("allows", ()):
        assert policy(parse_request(text)).allowed, text
    for text in case.get("refuses", ()):
        assert not policy(parse_request(text)).allowed, text


def test_allow_reason_names_binding_role_and_subject() -> None:
    policy = Policy()
    policy.put_role("", "c", role_in({"rules": [READ]}))
    policy.put_role("ns", "r", role_in({"rules": [{**READ, "verbs": ["list"]}]}))
    policy.put_binding("", "all", binding_in("", "all", bound("c", user("x"), {"kind": "Group", "name": 'de"vs'})))
    policy.put_binding(
        "ns", "here", binding_in("ns", "here", bound("r", {"kind": "ServiceAccount", "name": "sa"}, kind="Role"))
    )
    weird = authenticated("w", ('de"vs',))
    reason = 'RBAC: allowed by ClusterRoleBinding "all" of ClusterRole "c" to Group "de\\"vs"'
    assert policy(parse_request("get pods", weird)) == Decision(True, reason)
    account = User("system:serviceaccount:ns:sa")
    reason = 'RBAC: allowed by RoleBinding "here/ns" of Role "r" to ServiceAccount "sa/ns"'
    assert policy(parse_request("list pods", account, "ns")) == Decision(True, reason)
    assert policy(parse_request("list pods", account, "other")) == Decision(False)


def test_reason_names_the_first_binding_and_subject() -> None:
    policy = Policy()
    policy.put_role("", "c", role_in({"rules": [READ]}))
    policy.put_binding("", "b", binding_in("", "b", bound("c", {"kind": "Group", "name": "devs"}, user("joe"))))
    assert policy(parse_request("get pods")).reason.endswith(
        'ClusterRoleBinding "b" of ClusterRole "c" to Group "devs"'
    )
    policy.put_binding("", "a", binding_in("", "a", bound("c", user("joe"))))
    assert 'ClusterRoleBinding "a"' in policy(parse_request("get pods")).reason


def test_missing_roles_are_reported_in_the_reason() -> None:
    policy = Policy()
    policy.put_binding("", "a", binding_in("", "a", bound("c", user("joe"))))
    one = 'clusterrole.rbac.authorization.k8s.io "c" not found'
    assert policy(parse_request("get pods")) == Decision(False, f"RBAC: {one}")
    policy.put_binding("ns", "b", binding_in("ns", "b", bound("r", user("joe"), kind="Role")))
    policy.put_binding("ns", "c", binding_in("ns", "c", bound("r", user("joe"), kind="Role")))
    other = 'role.rbac.authorization.k8s.io "r" not found'
    assert policy(parse_request("get pods", namespace="ns")).reason == f"RBAC: [{one}, {other}]"
    assert policy.rules_for(JOE, "ns").fault == f"[{one}, {other}]"
    policy.put_binding("", "a", binding_in("", "a", bound("c", user("joe"), kind="Other")))
    assert policy(parse_request("get pods")).reason == 'RBAC: unsupported role reference kind: "Other"'


def test_role_and_binding_changes_apply_at_once() -> None:
    policy = Policy()
    may = parse_request("get pods")
    policy.put_role("", "c", role_in({"rules": [READ]}))
    policy.put_binding("", "b", binding_in("", "b", bound("c", user("joe"))))
    assert policy(may).allowed
    policy.put_role("", "c", role_in({"rules": None}))
    assert not policy(may).allowed
    policy.put_role("", "c", role_in({"rules": [READ]}))
    assert policy(may).allowed
    policy.put_binding("", "b", binding_in("", "b", bound("c")))
    assert not policy(may).allowed
    policy.put_binding("", "b", binding_in("", "b", bound("c", user("joe"))))
    policy.remove_role("", "c")
    assert not policy(may).allowed
    policy.put_role("", "c", role_in({"rules": [READ]}))
    policy.remove_binding("", "b")
    policy.remove_binding("", "b")
    assert not policy(may).allowed


def test_cached_permissions_of_users_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auth_limits, "GRANTS_CACHED", 3)
    policy = Policy()
    for number in range(10):
        assert not policy(parse_request("get pods", User(f"u{number}"), f"ns{number}")).allowed
        assert sum(map(len, policy._grants.values())) == policy._cached <= 3


@pytest.mark.parametrize(
    "extra", [("x" * auth_limits.GRANT_BYTES,), tuple(map(str, range(auth_limits.GRANT_BYTES // 64)))]
)
def test_users_with_large_groups_are_not_cached(extra: tuple[str, ...]) -> None:
    policy = Policy()
    policy.put_role("", "c", role_in({"rules": [READ]}))
    policy.put_binding("", "b", binding_in("", "b", bound("c", {"kind": "Group", "name": "last"})))
    for user_of_many in User("joe", (*extra, "last")), User("x" * auth_limits.GRANT_BYTES, ("last",)):
        assert policy(parse_request("get pods", user_of_many, "ns")).allowed
        assert not policy._grants
    assert policy(parse_request("get pods", User("joe", ("last",)), "ns")).allowed
    assert policy._cached == 1


def test_missing_permissions_are_compact_and_sorted() -> None:
    held = [Role((rule_in(READ),))]
    wanted = [
        rule_in({"apiGroups": ["", "apps"], "resources": ["pods"], "verbs": ["list", "get"]}),
        rule_in({"apiGroups": [""], "resources": ["pods"], "resourceNames": ["b", "a"], "verbs": ["get", "delete"]}),
        rule_in({"nonResourceURLs": ["/x"], "verbs": ["get", "put"]}),
    ]
    assert described(uncovered(held, wanted)) == [
        '{APIGroups:[""], Resources:["pods"], ResourceNames:["a"], Verbs:["delete"]}',
        '{APIGroups:[""], Resources:["pods"], ResourceNames:["b"], Verbs:["delete"]}',
        '{APIGroups:[""], Resources:["pods"], Verbs:["list"]}',
        '{APIGroups:["apps"], Resources:["pods"], Verbs:["list" "get"]}',
        '{NonResourceURLs:["/x"], Verbs:["get"]}',
        '{NonResourceURLs:["/x"], Verbs:["put"]}',
    ]


@pytest.mark.parametrize(
    ("held", "wanted", "covers"),
    [
        ("*/scale", "deployments/scale", True),
        ("*/scale", "deployments", False),
        ("*/scale", "deployments/status", False),
        ("deployments", "deployments/scale", False),
        ("*", "deployments/scale", True),
        ("*", "*/scale", True),
        ("*/scale", "*/scale", True),
        ("deployments/scale", "*/scale", False),
        ("deployments/scale", "*", False),
    ],
)
def test_coverage_of_subresource_rules(held: str, wanted: str, covers: bool) -> None:
    role = Role((Rule(("get",), ("apps",), (held,)),))
    assert (not uncovered([role], [Rule(("get",), ("apps",), (wanted,))])) is covers


def test_too_many_permissions_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auth_limits, "PERMISSIONS_COMPARED", 100)
    large = Rule(tuple("abcdefghijk"), tuple("abcdefghijk"), ("pods",))
    with pytest.raises(TooManyPermissions):
        uncovered([Role((rule_in(READ),))], [large])
    assert not uncovered([Role((large,))], [large])
    assert not uncovered([Role((Rule(("*",), ("*",), ("*",)),))], [large, large])
    with pytest.raises(TooManyPermissions):
        uncovered([Role((Rule(("*",), ("*",), ("*",)),))], [Rule(tuple(map(str, range(101))), paths=("/x",))])


def named(count: int, *verbs: str) -> tuple[Rule, ...]:
    """Return rules that each allow access to one resource name."""
    return tuple(Rule(verbs, ("",), ("configmaps",), names=(f"n{number}",)) for number in range(count))


@pytest.mark.parametrize(("verb", "lacking"), [("get", 0), ("list", 8_000)])
def test_many_resource_name_rules_are_compared_fast(verb: str, lacking: int) -> None:
    held = [Role(named(8_000, "get")), Role((Rule(("get",), ("",), ("secrets",)),))]
    began = time.process_time()
    assert len(uncovered(held, named(8_000, verb))) == lacking
    prompt(time.process_time() - began, 0.5, "8,000 rules beside as many")


def test_rules_over_the_limit_are_refused_fast() -> None:
    began = time.process_time()
    with pytest.raises(TooManyPermissions):
        uncovered([Role(named(4_000, "get"))], named(auth_limits.PERMISSIONS_COMPARED + 1, "list"))
    prompt(time.process_time() - began, 0.5, "16,385 rules beside 4,000")


def dense(count: int) -> tuple[Rule, ...]:
    """Return rules with too many verbs, groups and names to index all combinations."""
    many = tuple(map(str, range(8)))
    return tuple(Rule((f"v{number}", *many), many, ("configmaps", *many), names=many) for number in range(count))


def test_comparison_over_the_work_limit_is_refused() -> None:
    held = [Role(dense(4_000))]
    assert uncovered(held, named(900, "get")) == [*named(900, "get")]
    with pytest.raises(TooManyPermissions, match="too many rules to compare with those of the writer"):
        uncovered(held, named(1_000, "get"))


RULES = 30_000  # in a role of 1.5 MB, the maximum size in etcd
MANY_RULES = {
    "verbs": [Rule((f"v{number}",), ("",), ("pods",)) for number in range(RULES)],
    "groups": [Rule(("get",), (f"g{number}",), ("pods",)) for number in range(RULES)],
    "resources": [Rule(("get",), ("",), (f"r{number}",)) for number in range(RULES)],
    "names": [Rule(("get",), ("",), ("pods",), names=(f"n{number}",)) for number in range(RULES)],
    "the same rule": [Rule(("list",), ("",), ("pods",))] * RULES,
    "paths": [Rule(("get",), paths=(f"/p{number}",)) for number in range(RULES)],
    "prefixes": [Rule(("get",), paths=(f"/p{number}/*",)) for number in range(RULES)],
    "prefixes of many lengths": [Rule(("get",), paths=(f"/{'p' * number}/*",)) for number in range(1_700)],
    "verbs of a path": [Rule((f"v{number}",), paths=("/x",)) for number in range(RULES)],
}
ASKED_OF_MANY = ("get pods by x", "get pods", "get other/log", "get /x", f"get /{'p' * 2_000}")


@pytest.mark.slow
@pytest.mark.parametrize("rules", MANY_RULES.values(), ids=MANY_RULES)
def test_a_decision_does_not_take_longer_with_more_rules(rules: list[Rule]) -> None:
    policy = Policy()
    for number in range(5):  # together 150,000 rules of one user
        policy.put_role("", f"r{number}", Role(tuple(rules)))
        policy.put_binding("", f"b{number}", binding_in("", f"b{number}", bound(f"r{number}", user("joe"))))
    questions = [parse_request(text, namespace="ns") for text in ASKED_OF_MANY]
    for question in questions:
        assert not policy(question).allowed
    began = time.process_time()
    for question in questions:
        policy(question)
    prompt(time.process_time() - began, server_limits.LOOP_BUDGET, "five decisions by 150,000 rules")


WIDE_RULES = {
    "resources and names": {"resources": 20_000, "resourceNames": 20_000},
    "verbs and resources": {"verbs": 20_000, "resources": 20_000},
    "everything": {"verbs": 10_000, "apiGroups": 10_000, "resources": 10_000, "resourceNames": 10_000},
    "verbs and paths": {"verbs": 20_000, "nonResourceURLs": 20_000},
}


@pytest.mark.slow
@pytest.mark.parametrize("counts", WIDE_RULES.values(), ids=WIDE_RULES)
def test_the_memory_of_a_role_is_linear_in_its_bytes(counts: dict[str, int]) -> None:
    rule = {field: [f"{field[0]}{number}" for number in range(count)] for field, count in counts.items()}
    rule = {"verbs": ["get"], **rule}
    if "nonResourceURLs" not in counts:
        rule = {"apiGroups": [""], **rule}
    raw = orjson.dumps({"rules": [rule]})
    tracemalloc.start()
    try:
        role = role_in(orjson.loads(raw))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 20 * 2**20, f"{peak / 2**20:.0f} MiB for {len(raw) >> 10} KiB"
    if "nonResourceURLs" in counts:
        assert role.allows_path("v1" if "verbs" in counts else "get", "n19999")
    else:
        name = "r19999" if counts.get("resourceNames") == 20_000 else "r1"
        assert role.allows(rule["verbs"][1 % len(rule["verbs"])], rule["apiGroups"][-1], ("r1",), name)
        assert not role.allows("get", "other", ("r1",), name)


def test_rule_round_trips_through_its_document() -> None:
    rule = Rule(("get",), ("",), ("pods",), names=("a",))
    assert document_of(rule) == {**READ, "resourceNames": ["a"]}
    assert rule_in(document_of(rule)) == rule
