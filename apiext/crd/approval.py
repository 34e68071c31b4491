"""Require an approval for definitions in protected groups (CRD-038, CND-008)."""

from collections.abc import Callable

from apiext.crd.conditions import condition
from apiext.crd.definition import APPROVAL
from apiext.documents.document import Document, View
from apiext.meta.fields import FieldError, invalid, required
from apiext.text.quotes import go_quote

ANNOTATION = "api-approved.kubernetes.io"
PATH = f"metadata.annotations[{ANNOTATION}]"
_PROTECTED = ("k8s.io", "kubernetes.io")
_NEEDED = f"protected groups must have approval annotation {go_quote(ANNOTATION)}"
_SEE = "see https://github.com/kubernetes/enhancements/pull/1111"

MISSING, BYPASSED, APPROVED, INVALID = "missing", "bypassed", "approved", "invalid"


def is_protected(group: str) -> bool:
    """Return whether a group is k8s.io or kubernetes.io, or a subdomain of these names."""
    return any(group == name or group.endswith(f".{name}") for name in _PROTECTED)


def approval_state(annotations: View | None) -> tuple[str, str]:
    """Return (state, reason): the state is missing, bypassed, approved or invalid."""
    annotation = (annotations or {}).get(ANNOTATION) or ""
    if not annotation:
        return MISSING, f"{_NEEDED}, {_SEE}"
    if annotation.startswith("unapproved"):
        return BYPASSED, f"not approved: {go_quote(annotation)}"
    if _has_host(annotation):
        return APPROVED, f"approved in {annotation}"
    return INVALID, f'{_NEEDED} with either a URL or a reason starting with "unapproved", {_SEE}'


def _has_host(annotation: str) -> bool:
    from apiext.cel.library import urls  # imported on first use, since it imports CEL's types (decision 36)

    try:
        url = urls.parse(annotation)
    except ValueError:
        return False
    return bool(url.scheme and url.host)


_ERRORS: dict[str, Callable[[str, str], FieldError]] = {
    MISSING: lambda value, reason: required(PATH, reason),
    INVALID: lambda value, reason: invalid(PATH, value, reason),
}


def approval_errors(new: View, old: View | None) -> list[FieldError]:
    """Return the errors of the approval annotation of a definition in a protected group.

    An update that does not change the state of the approval has no errors. See CRD-038.
    """
    if not is_protected((new.get("spec") or {}).get("group") or ""):
        return []
    annotations = (new.get("metadata") or {}).get("annotations") or {}
    state, reason = approval_state(annotations)
    if old is not None and approval_state((old.get("metadata") or {}).get("annotations"))[0] == state:
        return []
    error = _ERRORS.get(state)
    return [error(annotations.get(ANNOTATION, ""), reason)] if error else []


_CONDITIONS = {
    MISSING: ("False", "MissingAnnotation"),
    BYPASSED: ("False", "UnapprovedAnnotation"),
    APPROVED: ("True", "ApprovedAnnotation"),
    INVALID: ("False", "InvalidAnnotation"),
}


def approval_condition(document: View) -> Document | None:
    """Return the approval condition of a definition, or None if its group is not protected.

    See CND-008.
    """
    if not is_protected((document.get("spec") or {}).get("group") or ""):
        return None
    state, reason = approval_state((document.get("metadata") or {}).get("annotations"))
    status, short = _CONDITIONS[state]
    return condition(APPROVAL, status, short, reason)
