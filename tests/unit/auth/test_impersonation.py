"""Acting as somebody else: what the headers mean and what one must be allowed for it."""

from __future__ import annotations

import pytest

from apiext.auth import impersonation
from apiext.auth.user import ANONYMOUS, SUPERUSER

pytestmark = pytest.mark.rows("AUT-005")


def test_headers_name_a_user() -> None:
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
        ("impersonate", "", "groups", "", "a"),
        ("impersonate", "", "groups", "", "b"),
        ("impersonate", "authentication.k8s.io", "userextras", "scopes", "x"),
        ("impersonate", "authentication.k8s.io", "userextras", "scopes", "y"),
        ("impersonate", "authentication.k8s.io", "uids", "", "7"),
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
    ],
)
def test_groups_that_go_without_saying(name: str, groups: tuple[str, ...]) -> None:
    assert impersonation.Wanted(name).as_user().groups == groups


def test_a_service_account_is_asked_about_as_such() -> None:
    asked = next(iter(impersonation.Wanted("system:serviceaccount:ns:sa").permissions(ANONYMOUS, "/")))
    assert (asked.resource, asked.namespace, asked.name) == ("serviceaccounts", "ns", "sa")


def test_nobody_named() -> None:
    assert impersonation.is_meant({"Accept": "a", "Impersonate-Group": "b"})
    assert not impersonation.is_meant({"Accept": "a", "Impersonate-Extra-a": "b"})
    with pytest.raises(impersonation.NobodyNamed):
        impersonation.parse([("Impersonate-Uid", "7")])
