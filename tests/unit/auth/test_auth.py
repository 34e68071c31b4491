"""Authentication and authorization of a request."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from apiext.auth.authentication import (
    BadCredential,
    Credentials,
    NoAuthentication,
    TokenFileError,
    parse_token_file,
    read_token_file,
)
from apiext.auth.authorization import (
    MODES,
    Attributes,
    Decision,
    Modes,
    Rule,
    always_allow,
    authorizer_of,
    denial,
    is_public,
    rules_of,
)
from apiext.auth.rbac import Policy, binding_in, role_in
from apiext.auth.user import ANONYMOUS, MASTERS, REFUSED, SUPERUSER, User, authenticated

ALICE = authenticated("alice", ("devs",))

pytestmark = pytest.mark.rows("AUT-001", "AUT-003")


def test_users_are_classified_by_name_and_group() -> None:
    assert ALICE.groups == ("devs", "system:authenticated")
    assert not ALICE.is_master
    assert SUPERUSER.is_master
    assert ANONYMOUS.is_anonymous
    assert not ALICE.is_anonymous


@pytest.mark.parametrize("header", ["Bearer secret", "bearer secret", " BEARER secret ", "Bearer secret x"])
def test_bearer_token_authenticates(header: str) -> None:
    assert Credentials({"secret": ALICE}).authenticate(header, None) == ALICE


@pytest.mark.parametrize("header", ["", "Basic abc", "Bearer", "Bearer ", "Bearer  secret", "Bearer\tsecret"])
def test_header_without_bearer_token_is_no_credential(header: str) -> None:
    known = Credentials({"secret": ALICE})
    assert known.authenticate(header, None) is None
    assert known.authenticate(header, SUPERUSER) == SUPERUSER


@pytest.mark.parametrize("header", ["Bearer other", "Bearer secret", ""])
def test_certificate_takes_precedence_over_token(header: str) -> None:
    assert Credentials({"secret": ALICE}).authenticate(header, SUPERUSER) == SUPERUSER


def test_refused_certificate_needs_a_valid_token() -> None:
    known = Credentials({"secret": ALICE})
    assert known.authenticate("Bearer secret", REFUSED) == ALICE
    for header in ("", "Basic abc", "Bearer other"):
        with pytest.raises(BadCredential):
            known.authenticate(header, REFUSED)


def test_no_authentication_makes_each_client_superuser() -> None:
    assert NoAuthentication().authenticate("Bearer whatever", None) == SUPERUSER


def test_token_file_is_parsed(tmp_path: Path) -> None:
    file = tmp_path / "tokens.csv"
    file.write_text('t1,alice,u1,"devs,ops"\n\nt2, bob ,u2\n,nobody,u3\n')
    users = read_token_file(file)
    assert users == {
        "t1": User("alice", ("devs", "ops", "system:authenticated"), "u1"),
        "t2": User("bob", ("system:authenticated",), "u2"),
    }


def test_token_file_with_a_bad_line() -> None:
    with pytest.raises(TokenFileError, match="line 2: expected at least 3 columns, found 2"):
        parse_token_file(["a,b,c", "a,b"])
    with pytest.raises(TokenFileError, match="line 2: field larger than"):
        parse_token_file(["a,b,c", "a," + "b" * 200_000])


@given(st.text(), st.text())
def test_only_the_exact_token_authenticates(token: str, other: str) -> None:
    known = Credentials({token: ALICE})
    meant = f"Bearer {other}".strip().partition(" ")[2].partition(" ")[0]  # upstream: ignores the text after the token
    try:
        found = known.authenticate(f"Bearer {other}", None)
    except BadCredential:
        assert meant != token
        return
    assert found is None or meant == token


def test_always_allow_and_always_deny_modes() -> None:
    wish = Attributes(ALICE, "get", "/x")
    master = Attributes(User("root", (MASTERS,)), "get", "/x")
    assert MODES["AlwaysAllow"](wish)
    assert not MODES["AlwaysDeny"](wish)
    assert MODES["AlwaysDeny"](master)


@pytest.mark.parametrize(
    ("path", "public"),
    [
        ("/healthz", True),
        ("/readyz/etcd", True),
        ("/version", True),
        ("/versions", False),
        ("/", False),
        ("/api", False),
    ],
)
def test_public_paths(path: str, public: bool) -> None:
    assert is_public(path) is public


@pytest.mark.rows("ERR-18")
@pytest.mark.parametrize(
    ("attributes", "message", "details"),
    [
        (
            Attributes(ALICE, "list", "/x", "example.com", "v1", "widgets"),
            'widgets.example.com is forbidden: User "alice" cannot list resource "widgets" in API group "example.com" '
            "at the cluster scope",
            {"group": "example.com", "kind": "widgets"},
        ),
        (
            Attributes(ALICE, "update", "/x", "example.com", "v1", "widgets", "status", "d", "a"),
            'widgets.example.com "a" is forbidden: User "alice" cannot update resource "widgets/status" in API group '
            '"example.com" in the namespace "d"',
            {"name": "a", "group": "example.com", "kind": "widgets"},
        ),
        (
            Attributes(User("<b>"), "get", "/a&b", at_path=True),
            'forbidden: User "&lt;b&gt;" cannot get path "/a&amp;b"',
            {},
        ),
    ],
)
def test_forbidden_status_of_a_denied_request(attributes: Attributes, message: str, details: dict[str, str]) -> None:
    error = denial(attributes)
    assert (error.code, error.message, error.details) == (403, message, details)
    assert denial(attributes, "because").message == f"{message}: because"


def test_authorization_modes_are_called_in_order() -> None:
    wish = Attributes(ALICE, "get", "/x", at_path=True)
    said = Modes([lambda _: Decision(False, "one"), lambda _: Decision(False), lambda _: Decision(False, "two")])(wish)
    assert said == Decision(False, "one\ntwo")
    assert Modes([lambda _: Decision(False, "one"), lambda _: Decision(True, "two")])(wish) == Decision(True, "two")
    assert Modes([])(Attributes(SUPERUSER, "get", "/x")).allowed
    assert authorizer_of(["AlwaysAllow", "RBAC"], Policy()) is always_allow


def test_rules_of_a_user_combine_all_modes() -> None:
    policy = Policy()
    policy.put_role("", "r", role_in({"rules": [{"verbs": ["get"], "nonResourceURLs": ["/x"]}]}))
    policy.put_binding("", "b", binding_in("", "b", {"roleRef": {"kind": "ClusterRole", "name": "r"}, "subjects": [
        {"kind": "Group", "name": "devs"}]}))  # fmt: skip
    found = rules_of(authorizer_of(["RBAC", "AlwaysAllow"], policy), ALICE, "ns")
    assert found.rules == (Rule(("get",), paths=("/x",)), *rules_of(always_allow, ALICE, "ns").rules)
    assert not rules_of(authorizer_of(["AlwaysDeny"], policy), SUPERUSER, "ns").rules, "masters have none of their own"
