"""Defaults and validation of roles and role bindings.

Rows of go_types/types/rbac.yaml name these functions.
"""

from collections.abc import Iterator, Sequence

from apiext.catalog.builtin.requirements import selector_errors
from apiext.documents.document import Document, View
from apiext.meta.fields import Errors, FieldError, invalid, not_supported, required
from apiext.meta.syntax import dns1123_subdomain, path_segment

GROUP = "rbac.authorization.k8s.io"
_ROLES = ("Role", "ClusterRole")


def default_binding(document: Document) -> None:
    """Set the default apiGroup of a binding's roleRef, and of its users and groups, in place."""
    reference = document.get("roleRef") or {}
    if not reference.get("apiGroup"):
        document["roleRef"] = {**reference, "apiGroup": GROUP}
    for subject in document.get("subjects") or ():
        if not subject.get("apiGroup") and subject.get("kind") in ("User", "Group"):
            subject["apiGroup"] = GROUP


def stored_role(document: View) -> Document:
    """Return a role with null in place of empty or missing rules.

    Upstream stores roles in protobuf, which cannot represent an empty list.
    """
    return {**document, "rules": document.get("rules") or None}


def validate_role(new: View, old: View | None) -> list[FieldError]:
    """Return the validation errors of a role; ``old`` is None on create."""
    errors = _rules(new, namespaced=True)
    errors += _verbs(new)
    return errors


def validate_cluster_role(new: View, old: View | None) -> list[FieldError]:
    """Return the validation errors of a cluster role; ``old`` is None on create."""
    errors = _rules(new, namespaced=False)
    aggregation = new.get("aggregationRule")
    if aggregation is not None and not aggregation.get("clusterRoleSelectors"):
        text = "at least one clusterRoleSelector required if aggregationRule is non-nil"
        errors.append(required("aggregationRule.clusterRoleSelectors", text))
    for index, selector in enumerate((aggregation or {}).get("clusterRoleSelectors") or ()):
        errors += _selector(selector, f"aggregationRule.clusterRoleSelectors[{index}]")
    errors += _verbs(new)
    return errors


def _selector(selector: View, path: str) -> list[FieldError]:
    errors = Errors(selector_errors(selector, path))
    if errors:
        errors.append(invalid(path, None, "invalid label selector."))
    return errors


def _rules(new: View, *, namespaced: bool) -> list[FieldError]:
    errors = Errors()
    for index, rule in enumerate(new.get("rules") or ()):
        errors += _rule(rule, f"rules[{index}]", namespaced=namespaced)
    return errors


def _verbs(new: View) -> Iterator[FieldError]:
    """Yield the errors of rules without verbs.

    They follow all other errors: upstream's declarative validation, which runs last, reports them.
    """
    rules = new.get("rules") or ()
    return (required(f"rules[{index}].verbs") for index, rule in enumerate(rules) if not rule.get("verbs"))


def _rule(rule: View, path: str, *, namespaced: bool) -> list[FieldError]:
    errors = Errors()
    urls = rule.get("nonResourceURLs")
    if urls:
        if namespaced:
            errors.append(
                invalid(f"{path}.nonResourceURLs", urls, "namespaced rules cannot apply to non-resource URLs")
            )
        if rule.get("apiGroups") or rule.get("resources") or rule.get("resourceNames"):
            text = "rules cannot apply to both regular resources and non-resource URLs"
            errors.append(invalid(f"{path}.nonResourceURLs", urls, text))
        return errors
    if not rule.get("apiGroups"):
        errors.append(required(f"{path}.apiGroups", "resource rules must supply at least one api group"))
    if not rule.get("resources"):
        errors.append(required(f"{path}.resources", "resource rules must supply at least one resource"))
    return errors


def validate_role_binding(new: View, old: View | None) -> list[FieldError]:
    """Return the validation errors of a role binding; ``old`` is None on create."""
    return _binding(new, old, _ROLES, namespaced=True)


def validate_cluster_role_binding(new: View, old: View | None) -> list[FieldError]:
    """Return the validation errors of a cluster role binding; ``old`` is None on create."""
    return _binding(new, old, _ROLES[1:], namespaced=False)


def _binding(new: View, old: View | None, kinds: Sequence[str], *, namespaced: bool) -> list[FieldError]:
    reference = new.get("roleRef") or {}
    errors = Errors()
    group, kind, name = (reference.get(field, "") for field in ("apiGroup", "kind", "name"))
    if group != GROUP:
        errors.append(not_supported("roleRef.apiGroup", group, (GROUP,)))
    if kind not in kinds:
        errors.append(not_supported("roleRef.kind", kind, kinds))
    if name:
        errors += (invalid("roleRef.name", name, fault) for fault in path_segment(name))
    subjects = new.get("subjects") or ()
    for index, subject in enumerate(subjects):
        errors += _subject(subject, f"subjects[{index}]", namespaced=namespaced)
    if old is not None and reference != (old.get("roleRef") or {}):
        # upstream: the error shows the names of the internal type
        # So it shows APIGroup instead of the JSON name apiGroup.
        shown = {"APIGroup": group, "Kind": kind, "Name": name}
        errors.append(invalid("roleRef", shown, "field is immutable"))
    # upstream: errors of declarative validation come last
    errors += (required(f"subjects[{index}].name") for index, it in enumerate(subjects) if not it.get("name"))
    if not name:
        errors.append(required("roleRef.name"))
    return errors


def _subject(subject: View, path: str, *, namespaced: bool) -> list[FieldError]:
    errors = Errors()
    name, kind, group = (subject.get(field, "") for field in ("name", "kind", "apiGroup"))
    if kind == "ServiceAccount":
        if name:
            errors += [invalid(f"{path}.name", name, fault) for fault in dns1123_subdomain(name)]
        if group:
            errors.append(not_supported(f"{path}.apiGroup", group, ("",)))
        if not namespaced and not subject.get("namespace"):
            errors.append(required(f"{path}.namespace"))
    elif kind in ("User", "Group"):
        if group != GROUP:
            errors.append(not_supported(f"{path}.apiGroup", group, (GROUP,)))
    else:
        errors.append(not_supported(f"{path}.kind", kind, ("ServiceAccount", "User", "Group")))
    return errors
