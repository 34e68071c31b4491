"""Impersonation: its headers, and the permissions that they need."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace
from multidict import CIMultiDict

from apiext.auth import impersonation
from apiext.auth.authorization import Attributes, Authorizer, Decision
from apiext.auth.impersonation import Wanted, acting
from apiext.auth.user import ANONYMOUS, AUTHENTICATED, NODE_NAME, SUPERUSER, User, authenticated
from apiext.meta.status import StatusError

pytestmark = pytest.mark.rows("AUT-005")


def test_headers_set_user_and_required_permissions() -> None:
    wanted = impersonation.parse(
        [
            ("impersonate-user", "joe"),
            ("Impersonate-Group", "a"),
            ("IMPERSONATE-GROUP", "b"),
            ("Impersonate-Uid", "7"),
            ("Impersonate-Extra-Scopes", "x"),
            ("Impersonate-Extra-Scopes", "y"),
            ("Accept", "z"),
        ]
    )
    user = wanted.as_user()
    assert (user.name, user.groups, user.uid) == ("joe", ("a", "b", "system:authenticated"), "7")
    assert user.extra == (("scopes", ("x", "y")),)
    asked = [(it.verb, it.group, it.resource, it.subresource, it.name) for it in wanted.permissions(SUPERUSER, "/api")]
    assert asked == [
        ("impersonate", "", "users", "", "joe"),
        ("impersonate", "authentication.k8s.io", "uids", "", "7"),
        ("impersonate", "", "groups", "", "a"),
        ("impersonate", "", "groups", "", "b"),
        ("impersonate", "authentication.k8s.io", "userextras", "scopes", "x"),
        ("impersonate", "authentication.k8s.io", "userextras", "scopes", "y"),
    ]


@pytest.mark.parametrize(
    ("name", "groups"),
    [
        ("system:anonymous", ("system:unauthenticated",)),
        (
            "system:serviceaccount:ns:sa",
            ("system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"),
        ),
        ("system:serviceaccount:ns", ("system:authenticated",)),
        ("system:serviceaccount:N s:sa", ("system:authenticated",)),
        ("system:serviceaccount:ns:s_a", ("system:authenticated",)),
    ],
)
def test_implicit_groups_of_impersonated_users(name: str, groups: tuple[str, ...]) -> None:
    assert impersonation.Wanted(name).as_user().groups == groups


@pytest.mark.parametrize(
    ("name", "given", "groups"),
    [
        ("joe", ("system:authenticated", "a"), ("system:authenticated", "a")),
        ("joe", ("system:unauthenticated",), ("system:unauthenticated",)),
        ("system:anonymous", ("system:unauthenticated",), ("system:unauthenticated",)),
        ("system:anonymous", ("a",), ("a", "system:unauthenticated")),
        ("system:serviceaccount:ns:sa", ("a",), ("a", "system:authenticated")),
    ],
)
def test_implicit_groups_are_not_duplicated(name: str, given: tuple[str, ...], groups: tuple[str, ...]) -> None:
    assert Wanted(name, given).as_user().groups == groups


@pytest.mark.parametrize(
    ("header", "meant"),
    [("User", True), ("Group", True), ("Uid", True), ("Extra-Scopes", False)],
)
def test_headers_that_request_impersonation(header: str, meant: bool) -> None:
    named: Any = CIMultiDict({f"Impersonate-{header}": "x"})
    empty: Any = CIMultiDict({f"Impersonate-{header}": ""})
    assert impersonation.is_requested(named) is meant
    assert impersonation.is_requested(empty) is (header == "Group")  # upstream: accepts an empty group


@pytest.mark.parametrize(("sent", "key"), [("a%41", "aA"), ("A%2Fb", "a/b"), ("a%41%zz", "a%41%zz"), ("a%4", "a%4")])
def test_extra_keys_are_percent_decoded_if_valid(sent: str, key: str) -> None:
    wanted = impersonation.parse([("Impersonate-User", "joe"), (f"Impersonate-Extra-{sent}", "v")])
    assert wanted.extra == ((key, ("v",)),)


def test_first_of_repeated_user_headers_is_used() -> None:
    sent = [("Impersonate-User", "a"), ("Impersonate-User", "b"), ("Impersonate-Uid", "1"), ("Impersonate-Uid", "2")]
    wanted = impersonation.parse(sent)
    assert (wanted.user, wanted.uid) == ("a", "1")


def test_service_account_needs_permission_on_serviceaccounts() -> None:
    asked = next(iter(impersonation.Wanted("system:serviceaccount:ns:sa").permissions(ANONYMOUS, "/")))
    assert (asked.resource, asked.namespace, asked.name) == ("serviceaccounts", "ns", "sa")


def test_missing_impersonated_user_is_an_error() -> None:
    assert impersonation.is_requested({"Accept": "a", "Impersonate-Group": "b"})
    assert not impersonation.is_requested({"Accept": "a", "Impersonate-Extra-a": "b"})
    with pytest.raises(impersonation.MissingUser) as told:
        impersonation.parse([("Impersonate-Uid", "7"), ("Impersonate-Group", "a"), ("Impersonate-Extra-b", "c")])
    assert str(told.value) == (
        'requested &user.DefaultInfo{Name:"", UID:"7", Groups:[]string{"a"}, '
        'Extra:map[string][]string{"b":[]string{"c"}}} without impersonating a user name'
    )


ASKING = authenticated("alice")
REQUEST = Attributes(ASKING, "get", "/api/v1/secrets", "", "v1", "secrets", name="s")


def allowing(*allowed: str) -> tuple[Authorizer, list[str]]:
    """Return an authorizer that allows only these "verb resource name", and its list of calls."""
    asked: list[str] = []

    def authorize(attributes: Attributes) -> Decision:
        resource = attributes.resource + (f"/{attributes.subresource}" if attributes.subresource else "")
        asked.append(f"{attributes.verb} {resource} {attributes.name}")
        return Decision(asked[-1] in allowed)

    return authorize, asked


WAYS = [
    (Wanted("bob"), ["impersonate-on:user-info:get secrets s", "impersonate:user-info users bob"], AUTHENTICATED),
    (Wanted("bob"), ["impersonate users bob"], AUTHENTICATED),
    (
        Wanted("system:serviceaccount:ns:sa"),
        ["impersonate-on:serviceaccount:get secrets s", "impersonate:serviceaccount serviceaccounts sa"],
        "system:serviceaccounts:ns",
    ),
    (
        Wanted("system:node:n1"),
        ["impersonate-on:arbitrary-node:get secrets s", "impersonate:arbitrary-node nodes n1"],
        "system:nodes",
    ),
    (
        Wanted("bob", ("a", "b", "c", "d"), "7", (("a.io/b", ("x", "y", "z", "z")),)),
        ["impersonate-on:user-info:get secrets s", "impersonate:user-info users bob", "impersonate:user-info uids 7",
         "impersonate:user-info groups *", "impersonate:user-info userextras/* *"],
        "d",
    ),
    (
        Wanted("bob", ("a",), "", (("a.io/b", ("x",)),)),
        ["impersonate-on:user-info:get secrets s", "impersonate:user-info users bob",
         "impersonate:user-info groups a", "impersonate:user-info userextras/a.io/b x"],
        "a",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("wanted", "needed", "group"), WAYS)
def test_impersonation_needs_all_permissions_of_a_mode(wanted: Wanted, needed: list[str], group: str) -> None:
    authorize, _ = allowing(*needed)
    user = acting(wanted, REQUEST, authorize)
    assert (user.name, group in user.groups, user.uid) == (wanted.user, True, wanted.uid)
    for one in needed:
        with pytest.raises(StatusError) as refused:
            acting(wanted, REQUEST, allowing(*(other for other in needed if other != one))[0])
        assert refused.value.code == 403


AGENT = User(
    "system:serviceaccount:kube-system:agent",
    ("system:serviceaccounts",),
    extra=(("authentication.kubernetes.io/pod-name", ("agent-x",)), (NODE_NAME, ("n1",))),
)


def test_service_account_impersonates_its_own_node() -> None:
    """The permission is that for all nodes.

    The authorizer receives only the names of the extras.
    """
    needed = ["impersonate-on:associated-node:get secrets s", "impersonate:associated-node nodes *"]
    authorize, asked = allowing(*needed)
    users, notes = [], []

    def noted(attributes: Attributes) -> Decision:
        users.append(attributes.user)
        return authorize(attributes)

    user = acting(Wanted("system:node:n1"), replace(REQUEST, user=AGENT), noted, notes.append)
    assert (user.name, user.groups) == ("system:node:n1", ("system:nodes", "system:authenticated"))
    assert (asked, notes) == (needed, ["impersonate:associated-node"])
    keys = ("authentication.kubernetes.io/node-name", "authentication.kubernetes.io/pod-name")
    seen = replace(AGENT, extra=(("authentication.kubernetes.io/associated-node-keys", keys),))
    assert users == [seen, seen]
    with pytest.raises(StatusError) as refused:
        acting(Wanted("system:node:n1"), replace(REQUEST, user=AGENT), allowing(needed[0])[0])
    assert refused.value.message.startswith('nodes.authentication.k8s.io "*" is forbidden: User "system:serviceaccount')


@pytest.mark.parametrize(
    ("wanted", "asking"),
    [
        (Wanted("system:node:n2"), AGENT),
        (Wanted("system:node:n1", uid="7"), AGENT),
        (Wanted("system:node:n1"), replace(AGENT, name="agent")),
        (Wanted("system:node:n1"), replace(AGENT, extra=())),
        (Wanted("system:node:n1"), replace(AGENT, extra=((NODE_NAME, ("n1", "n2")),))),
        (Wanted("system:node:"), replace(AGENT, extra=((NODE_NAME, ("",)),))),
    ],
)
def test_other_nodes_are_not_associated_nodes(wanted: Wanted, asking: User) -> None:
    authorize, asked = allowing()
    with pytest.raises(StatusError):
        acting(wanted, replace(REQUEST, user=asking), authorize)
    assert not any("associated-node" in one for one in asked)


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        (Wanted("bob", ("system:masters",)), "impersonating the system:masters group is not allowed"),
        (Wanted("bob", ("",)), "impersonating the empty string group is not allowed"),
        (Wanted("bob", (), "", (("", ("x",)),)), "impersonating the empty string key in extra is not allowed"),
        (Wanted("bob", (), "", (("a.io/b", ("",)),)), "impersonating the empty string value in extra is not allowed"),
        (
            Wanted("bob", (), "", (("a", ("x",)),)),
            'impersonating an invalid key in extra is not allowed: extra.key: Invalid value: "a": must be a '
            'domain-prefixed path (such as "acme.io/foo")',
        ),
        (Wanted("bob", (), "", (("-/b", ("x",)),)), 'extra.key: Invalid value: "-/b": a lowercase RFC 1123 subdomain'),
        (
            Wanted("bob", (), "", (("a.io/Foo", ("x",)),)),
            'impersonating a non-lowercase key in extra is not allowed: "a.io/Foo"',
        ),
        (Wanted("bob", (), "", (("a.io/ ", ("x",)),)), 'extra.key: Invalid value: "a.io/ ": Invalid path'),
    ],
)
def test_values_allowed_only_by_legacy_impersonation(wanted: Wanted, says: str) -> None:
    def authorize(attributes: Attributes) -> Decision:
        return Decision(attributes.verb != "impersonate")

    with pytest.raises(StatusError) as refused:
        acting(wanted, REQUEST, authorize)
    assert says in refused.value.message
    assert acting(wanted, REQUEST, lambda _: Decision(True)).name == "bob"


def test_denial_reports_the_error_of_the_first_mode() -> None:
    with pytest.raises(StatusError) as refused:
        acting(Wanted("bob"), REQUEST, allowing()[0])
    text = 'User "alice" cannot impersonate-on:user-info:get resource "secrets" in API group "" at the cluster scope'
    assert refused.value.message == f'secrets "s" is forbidden: {text}'
    with pytest.raises(StatusError) as refused:
        acting(Wanted("system:node:n1", ("g",)), REQUEST, allowing()[0])
    assert "cannot impersonate resource" in refused.value.message
