"""Validation of webhook configurations (ADM-003).

The rows of these kinds in go_types/types/*.yaml name these functions. Texts and their order are those of k8s
pkg/apis/admissionregistration/validation. The validation of policies is in policies.py and mutations.py.
"""

from collections.abc import Iterator, Sequence

from apiext.catalog.builtin import mutations, policies
from apiext.catalog.builtin.admission_rules import (
    FAILURE_POLICIES,
    MATCH_POLICIES,
    condition_errors,
    one_of,
    rule_errors,
)
from apiext.catalog.builtin.requirements import selector_errors
from apiext.crd.rules_of_conversion import REVIEW_VERSIONS, address_errors, recognizes, review_errors
from apiext.documents.document import View
from apiext.meta.fields import FieldError, as_many_as_shown, child, duplicate, invalid, item, required
from apiext.meta.syntax import dns1123_subdomain

_NO_VERSIONS = f"must specify one of {', '.join(REVIEW_VERSIONS)}"
_STATIC = ".static.k8s.io"
_NO_SIDE_EFFECTS = ("None", "NoneOnDryRun")
_SIDE_EFFECTS = ("None", "NoneOnDryRun", "Some", "Unknown")


def validate_mutating(new: View, old: View | None) -> list[FieldError]:
    """Return the validation errors of a MutatingWebhookConfiguration; ``old`` is None on create."""
    return list(as_many_as_shown(_configuration_errors(new, old, mutating=True)))


def validate_validating(new: View, old: View | None) -> list[FieldError]:
    """Return the validation errors of a ValidatingWebhookConfiguration.

    ``old`` is None on create.
    """
    return list(as_many_as_shown(_configuration_errors(new, old, mutating=False)))


def validate_policy(new: View, old: View | None) -> list[FieldError]:
    """Return the validation errors of a ValidatingAdmissionPolicy; ``old`` is None on create."""
    return list(as_many_as_shown(policies.policy_errors(new, old)))


def validate_binding(new: View, old: View | None) -> list[FieldError]:
    """Return the validation errors of a ValidatingAdmissionPolicyBinding.

    ``old`` is None on create.
    """
    return list(as_many_as_shown(policies.binding_errors(new)))


def validate_mutating_policy(new: View, old: View | None) -> list[FieldError]:
    """Return the validation errors of a MutatingAdmissionPolicy; ``old`` is None on create."""
    return list(as_many_as_shown(mutations.policy_errors(new, old)))


def validate_mutating_binding(new: View, old: View | None) -> list[FieldError]:
    """Return the validation errors of a MutatingAdmissionPolicyBinding.

    ``old`` is None on create.
    """
    return list(as_many_as_shown(mutations.binding_errors(new)))


def static_warnings(new: View, old: View | None) -> list[str]:
    """Return the warning about a name that upstream reserves for configurations from files."""
    if not (new.get("metadata") or {}).get("name", "").endswith(_STATIC):
        return []
    reserved = "are reserved for static manifest-based configurations and cannot be managed via the API"
    return [f'metadata.name: names ending with "{_STATIC}" {reserved}']


def webhook_warnings(new: View, old: View | None) -> list[str]:
    """Return warnings about a reserved name and about rules without effect (ADM-001).

    Rules have no effect for resources that webhooks never receive.
    """
    found = static_warnings(new, old)
    for index, hook in enumerate(new.get("webhooks") or ()):
        for place, rule in enumerate(hook.get("rules") or ()):
            where = f"webhooks[{index}].rules[{place}]"
            found += [
                f"{where}: {name} is excluded from admission webhooks; this rule will have no effect"
                for name in _excluded(rule)
            ]
    return found


def _excluded(rule: View) -> list[str]:
    """Return the review resources that a rule names, each once, in the order of the rule.

    Return an empty list if the rule has a wildcard. See KEP-5793.
    """
    groups, resources = rule.get("apiGroups") or (), rule.get("resources") or ()
    if "*" in groups or "*" in resources:
        return []
    named = (f"{resource}.{group}" for group in dict.fromkeys(groups) for resource in dict.fromkeys(resources))
    return [name for name in named if name in _REVIEWS]


_REVIEWS = frozenset(
    (
        "selfsubjectreviews.authentication.k8s.io",
        "tokenreviews.authentication.k8s.io",
        "localsubjectaccessreviews.authorization.k8s.io",
        "selfsubjectaccessreviews.authorization.k8s.io",
        "selfsubjectrulesreviews.authorization.k8s.io",
        "subjectaccessreviews.authorization.k8s.io",
    )
)


def _configuration_errors(new: View, old: View | None, *, mutating: bool) -> Iterator[FieldError]:
    """Yield the validation errors of a webhook configuration.

    As upstream, an update may keep these faults of the old configuration: unknown review versions, equal names, the
    side effects Some and Unknown, invalid values in selectors, and unchanged match conditions.
    """
    hooks: Sequence[View] = new.get("webhooks") or ()
    before: Sequence[View] | None = None if old is None else (old.get("webhooks") or ())
    recognized = before is None or all(_recognized(hook) for hook in before)
    unique = before is None or len({hook.get("name") for hook in before}) == len(before)
    harmless = before is None or all(hook.get("sideEffects") in _NO_SIDE_EFFECTS for hook in before)
    values = before is None or not any(map(_bad_selectors, before))
    unchanged = before is not None and [hook.get("matchConditions") for hook in hooks] == [
        hook.get("matchConditions") for hook in before
    ]
    stored = frozenset(
        condition.get("expression", "") for hook in before or () for condition in hook.get("matchConditions") or ()
    )
    names: set[str] = set()
    for index, hook in enumerate(hooks):
        path = f"webhooks[{index}]"
        yield from _hook_errors(hook, path, mutating=mutating, harmless=harmless, values=values)
        if not unchanged:
            yield from condition_errors(hook.get("matchConditions"), child(path, "matchConditions"), stored)
        versions, at = hook.get("admissionReviewVersions"), child(path, "admissionReviewVersions")
        yield from review_errors(versions, at, _NO_VERSIONS, recognized=recognized)
        name = hook.get("name") or ""
        if unique and name:
            if name in names:
                yield duplicate(child(path, "name"), name)
            names.add(name)


def _recognized(hook: View) -> bool:
    versions = hook.get("admissionReviewVersions") or ()
    return not versions or recognizes(versions)


def _bad_selectors(hook: View) -> bool:
    return any(next(selector_errors(hook.get(name), ""), None) for name in ("namespaceSelector", "objectSelector"))


def _hook_errors(hook: View, path: str, *, mutating: bool, harmless: bool, values: bool) -> Iterator[FieldError]:
    yield from _name_errors(hook.get("name") or "", child(path, "name"))
    for index, rule in enumerate(hook.get("rules") or ()):
        yield from rule_errors(rule, item(child(path, "rules"), index))
    yield from one_of(hook, path, "failurePolicy", FAILURE_POLICIES)
    yield from one_of(hook, path, "matchPolicy", MATCH_POLICIES)
    allowed = _NO_SIDE_EFFECTS if harmless else _SIDE_EFFECTS
    if hook.get("sideEffects") is None:
        yield required(child(path, "sideEffects"), f"must specify one of {', '.join(allowed)}")
    yield from one_of(hook, path, "sideEffects", allowed)
    seconds = hook.get("timeoutSeconds")
    if seconds is not None and not 1 <= seconds <= 30:
        yield invalid(child(path, "timeoutSeconds"), seconds, "the timeout value must be between 1 and 30 seconds")
    for name in ("namespaceSelector", "objectSelector"):
        yield from selector_errors(hook.get(name), child(path, name), values=values)
    if mutating:
        yield from one_of(hook, path, "reinvocationPolicy", mutations.REINVOCATION_POLICIES)
    yield from address_errors(hook.get("clientConfig") or {}, child(path, "clientConfig"))


def _name_errors(name: str, path: str) -> Iterator[FieldError]:
    if not name:
        yield required(path)
    elif faults := dns1123_subdomain(name):
        yield invalid(path, name, ",".join(faults))
    elif name.count(".") < 2:
        yield invalid(path, name, "should be a domain with at least three segments separated by dots")
