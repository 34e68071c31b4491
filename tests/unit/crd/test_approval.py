"""Approval of definitions in protected groups."""

from __future__ import annotations

import pytest

from apiext.crd.approval import approval_condition, is_protected

pytestmark = pytest.mark.rows("CRD-038", "CND-008")
_NEEDED = 'protected groups must have approval annotation "api-approved.kubernetes.io"'
_SEE = "see https://github.com/kubernetes/enhancements/pull/1111"


@pytest.mark.parametrize(
    ("group", "protected"),
    [
        ("k8s.io", True),
        ("x.k8s.io", True),
        ("kubernetes.io", True),
        ("a.b.kubernetes.io", True),
        ("notk8s.io", False),
        ("k8s.io.example.com", False),
    ],
)
def test_kubernetes_domains_are_protected_groups(group: str, protected: bool) -> None:
    assert is_protected(group) is protected


@pytest.mark.parametrize(
    ("annotation", "status", "reason", "message"),
    [
        (None, "False", "MissingAnnotation", f"{_NEEDED}, {_SEE}"),
        ("", "False", "MissingAnnotation", f"{_NEEDED}, {_SEE}"),
        ("unapproved, try out", "False", "UnapprovedAnnotation", 'not approved: "unapproved, try out"'),
        ("https://github.com/x/1", "True", "ApprovedAnnotation", "approved in https://github.com/x/1"),
        (
            "/pull/1",
            "False",
            "InvalidAnnotation",
            f'{_NEEDED} with either a URL or a reason starting with "unapproved", {_SEE}',
        ),
        (
            "mailto:a@b.c",
            "False",
            "InvalidAnnotation",
            f'{_NEEDED} with either a URL or a reason starting with "unapproved", {_SEE}',
        ),
    ],
)
def test_approval_condition_follows_annotation(annotation: str | None, status: str, reason: str, message: str) -> None:
    annotations = {} if annotation is None else {"api-approved.kubernetes.io": annotation}
    document = {"metadata": {"annotations": annotations}, "spec": {"group": "x.k8s.io"}}
    condition = approval_condition(document)
    assert condition == {
        "type": "KubernetesAPIApprovalPolicyConformant",
        "status": status,
        "reason": reason,
        "message": message,
    }


@pytest.mark.parametrize(
    ("annotation", "reason"),
    [
        ("HTTPS://x", "Approved"),
        ("https://x/a pull", "Approved"),
        ("a+b-c.1://x/#y", "Approved"),
        ("https://x#y", "Invalid"),
        ("https://[::1]:443/x", "Approved"),
        ("https://x:port/", "Invalid"),
        ("https://x/%zz", "Invalid"),
        ("https://a b/", "Invalid"),
        ("https://[::1/", "Invalid"),
        ("https:///x", "Invalid"),
        ("https://x/\n", "Invalid"),
        ("//x/1", "Invalid"),
        ("Unapproved", "Invalid"),
        (" unapproved", "Invalid"),
    ],
)
def test_approval_annotation_is_parsed_as_url(annotation: str, reason: str) -> None:
    annotations = {"api-approved.kubernetes.io": annotation}
    condition = approval_condition({"metadata": {"annotations": annotations}, "spec": {"group": "x.k8s.io"}})
    assert condition is not None
    assert condition["reason"] == f"{reason}Annotation"


def test_unprotected_group_gets_no_approval_condition() -> None:
    assert approval_condition({"spec": {"group": "example.com"}}) is None
