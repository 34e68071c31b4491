"""Validation of validating admission policies and their bindings.

Upstream: admissionregistration/validation.
"""

from collections.abc import Iterator, Mapping, Sequence

from apiext.catalog.admission_cel import BOOL, TEXT, TEXT_OR_NULL
from apiext.catalog.builtin import admission_rules as rules
from apiext.catalog.builtin import policy_rules
from apiext.catalog.builtin.policy_rules import within_spec
from apiext.cel.types import Type
from apiext.documents.document import View
from apiext.meta.fields import FieldError, child, duplicate, invalid, item, not_supported, required
from apiext.meta.syntax import qualified_name

MOST_ANNOTATIONS = 20
LONGEST_ANNOTATION = 5 * 1024  # maximum size of a valueExpression in bytes
_REASONS = ("Forbidden", "Invalid", "RequestEntityTooLarge")
_ACTIONS = ("Audit", "Deny", "Warn")
_FIELDS = (("expression", "validations"), ("messageExpression", "validations"), ("valueExpression", "auditAnnotations"))
_NOTHING = "validations or auditAnnotations must contain at least one item"
_StoredExpressions = Mapping[str, frozenset[str]]  # name of a field → its stored expressions


def policy_errors(new: View, old: View | None) -> Iterator[FieldError]:
    """Yield the validation errors of a policy; ``old`` is None on create."""
    spec: View = new.get("spec") or {}
    before: View | None = None if old is None else old.get("spec") or {}
    yield from policy_rules.spec_errors(spec, before)
    yield from _expressions(new, spec, before or {})


def _expressions(new: View, spec: View, before: View) -> Iterator[FieldError]:
    variables: dict[str, Type] | None = {} if spec.get("variables") else None
    # as upstream, an expression that the stored policy already has may use all functions (see within_spec)
    stored = {field: frozenset(each.get(field) or "" for each in before.get(name) or ()) for field, name in _FIELDS}
    if variables is not None:
        yield from policy_rules.variables_errors(spec, stored["expression"], variables)
    validations, annotations = spec.get("validations") or (), spec.get("auditAnnotations") or ()
    if not validations and not annotations:
        yield required("spec.validations", _NOTHING)
        yield required("spec.auditAnnotations", _NOTHING)
        return
    for index, validation in enumerate(validations):
        yield from _validation_errors(validation, f"spec.validations[{index}]", spec, stored, variables)
    if len(annotations) > MOST_ANNOTATIONS:
        text = f"must not have more than {MOST_ANNOTATIONS} auditAnnotations"
        # upstream: the error shows the names of the internal type
        # So it shows Key instead of the JSON name key.
        shown = [{"Key": it.get("key", ""), "ValueExpression": it.get("valueExpression", "")} for it in annotations]
        yield invalid("spec.auditAnnotations", shown, text)
    keys: set[str] = set()
    name = (new.get("metadata") or {}).get("name") or ""
    for index, annotation in enumerate(annotations):
        path = f"spec.auditAnnotations[{index}]"
        yield from _annotation_errors(annotation, path, name, spec, stored, variables)
        key = annotation.get("key") or ""
        if key in keys:
            yield duplicate(child(path, "key"), key)
        keys.add(key)


def _validation_errors(
    validation: View, path: str, spec: View, stored: _StoredExpressions, variables: dict[str, Type] | None
) -> Iterator[FieldError]:
    text = validation.get("expression") or ""
    message_expression, message = validation.get("messageExpression") or "", validation.get("message") or ""
    if not text.strip():
        yield required(child(path, "expression"), "expression is not specified")
    else:
        within = within_spec(spec, text, stored["expression"], variables)
        yield from rules.expression_errors(text, child(path, "expression"), within, BOOL)
    if message_expression and not message_expression.strip():
        yield invalid(child(path, "messageExpression"), message_expression, "must be non-empty if specified")
    elif message_expression:
        within = within_spec(spec, message_expression, stored["messageExpression"], variables, authorizer=False)
        yield from rules.expression_errors(message_expression, child(path, "messageExpression"), within, TEXT)
    if message and not message.strip():
        yield invalid(child(path, "message"), message, "must be non-empty if specified")
    elif any(char in message.strip() for char in "\n\r"):
        yield invalid(child(path, "message"), message, "must not contain line breaks")
    reason = validation.get("reason")
    if reason is not None and reason not in _REASONS:
        yield not_supported(child(path, "reason"), reason, _REASONS)


def _annotation_errors(
    annotation: View, path: str, name: str, spec: View, stored: _StoredExpressions, variables: dict[str, Type] | None
) -> Iterator[FieldError]:
    key, written = annotation.get("key") or "", annotation.get("valueExpression") or ""
    if name:
        whole = f"{name}/{key}"
        yield from (invalid(child(path, "key"), whole, fault) for fault in qualified_name(whole))
    else:
        yield invalid(child(path, "key"), key, "requires metadata.name be non-empty")
    at, text = child(path, "valueExpression"), written.strip()
    if not text:
        yield required(at, "valueExpression is not specified")
    elif len(text.encode()) > LONGEST_ANNOTATION:
        yield required(at, f"must not exceed {LONGEST_ANNOTATION} bytes in length")
    else:
        within = within_spec(spec, written, stored["valueExpression"], variables)
        yield from rules.expression_errors(text, at, within, TEXT_OR_NULL, shown=written)


def binding_errors(new: View) -> Iterator[FieldError]:
    """Yield the validation errors of a binding."""
    spec: View = new.get("spec") or {}
    yield from policy_rules.binding_errors(spec)
    yield from _action_errors(spec.get("validationActions") or (), "spec.validationActions")
    yield from (required(f"spec.{name}") for name in ("policyName", "validationActions") if not spec.get(name))


def _action_errors(actions: Sequence[str], path: str) -> Iterator[FieldError]:
    seen: set[str] = set()
    for index, action in enumerate(actions):
        if action not in _ACTIONS:
            yield not_supported(item(path, index), action, _ACTIONS)
        if action in seen:
            yield duplicate(item(path, index), action)
        seen.add(action)
    if "Deny" in actions and "Warn" in actions:
        text = (
            "must not contain both Deny and Warn (repeating the same validation failure information in the API "
            "response and headers serves no purpose)"
        )
        yield invalid(path, list(actions), text)
