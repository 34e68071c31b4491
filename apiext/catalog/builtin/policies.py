"""What is wrong with validating admission policies and their bindings (k8s admissionregistration/validation)."""

import re
from collections.abc import Iterator, Sequence

from apiext.catalog.admission_cel import BOOL, TEXT, TEXT_OR_NULL, compiled, environment
from apiext.catalog.builtin import admission_rules as rules
from apiext.cel.environment import Environment
from apiext.cel.types import DYN, Type
from apiext.documents.document import View
from apiext.meta.fields import FieldError, child, duplicate, forbidden, invalid, item, not_supported, required
from apiext.meta.syntax import dns1035_label, dns1123_subdomain, path_segment, qualified_name

MOST_ANNOTATIONS = 20
LONGEST_ANNOTATION = 5 * 1024  # bytes of a valueExpression
_REASONS = ("Forbidden", "Invalid", "RequestEntityTooLarge")
_ACTIONS = ("Audit", "Deny", "Warn")
_NOT_FOUND_ACTIONS = ("Deny", "Allow")
_IDENTIFIER = re.compile(r"[_a-zA-Z][_a-zA-Z0-9]*\Z")
_RESERVED = frozenset(
    ("true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if", "import",
     "let", "loop", "package", "namespace", "return", "var", "void", "while")
)  # fmt: skip
_NOTHING = "validations or auditAnnotations must contain at least one item"


def policy_errors(new: View, old: View | None) -> Iterator[FieldError]:
    """Yield what is wrong with a policy; old is None on create."""
    spec: View = new.get("spec") or {}
    before: View = (old or {}).get("spec") or {}
    if spec.get("failurePolicy") is None:
        yield required("spec.failurePolicy")
    yield from rules.one_of(spec, "spec", "failurePolicy", rules.FAILURE_POLICIES)
    has_params = spec.get("paramKind") is not None
    if has_params:
        yield from _param_kind_errors(spec["paramKind"], "spec.paramKind")
    constraints = spec.get("matchConstraints")
    if constraints is None:
        yield required("spec.matchConstraints")
    else:
        yield from match_errors(constraints, "spec.matchConstraints")
        if not constraints.get("resourceRules"):
            yield required("spec.matchConstraints.resourceRules")
    same = old is not None and all(spec.get(name) == before.get(name) for name in ("paramKind", "matchConditions"))
    if not same:
        known = frozenset(condition.get("expression", "") for condition in before.get("matchConditions") or ())
        yield from rules.condition_errors(spec.get("matchConditions"), "spec.matchConditions", known, params=has_params)
    yield from _expressions(new, spec, before, has_params)


def _expressions(new: View, spec: View, before: View, has_params: bool) -> Iterator[FieldError]:
    known = _known(before)
    variables: dict[str, Type] | None = {} if spec.get("variables") else None
    for index, variable in enumerate(spec.get("variables") or ()):
        assert variables is not None
        within = _within(variable.get("expression") or "", known, has_params, variables)
        yield from _variable_errors(variable, f"spec.variables[{index}]", within, variables)
    validations, annotations = spec.get("validations") or (), spec.get("auditAnnotations") or ()
    if not validations and not annotations:
        yield required("spec.validations", _NOTHING)
        yield required("spec.auditAnnotations", _NOTHING)
        return
    for index, validation in enumerate(validations):
        yield from _validation_errors(validation, f"spec.validations[{index}]", known, has_params, variables)
    if len(annotations) > MOST_ANNOTATIONS:
        text = f"must not have more than {MOST_ANNOTATIONS} auditAnnotations"
        yield invalid("spec.auditAnnotations", list(annotations), text)
    keys: set[str] = set()
    name = (new.get("metadata") or {}).get("name") or ""
    for index, annotation in enumerate(annotations):
        path = f"spec.auditAnnotations[{index}]"
        within = _within(annotation.get("valueExpression") or "", known, has_params, variables)
        yield from _annotation_errors(annotation, path, name, within)
        key = annotation.get("key") or ""
        if key in keys:
            yield duplicate(child(path, "key"), key)
        keys.add(key)


def _known(before: View) -> frozenset[str]:
    """Return the expressions that an old policy has: they may use all of the language."""
    fields = (("variables", "expression"), ("validations", "expression"), ("validations", "messageExpression"),
              ("auditAnnotations", "valueExpression"))  # fmt: skip
    return frozenset(each.get(field) or "" for name, field in fields for each in before.get(name) or ())


def _within(
    text: str, known: frozenset[str], params: bool, variables: dict[str, Type] | None, authorizer: bool = True
) -> Environment:
    version = "stored" if text in known else "new"
    return environment(params=params, authorizer=authorizer, version=version, variables=variables)


def _variable_errors(
    variable: View, path: str, within: Environment, variables: dict[str, Type]
) -> Iterator[FieldError]:
    name, expression = variable.get("name") or "", variable.get("expression") or ""
    if not name.strip():
        yield required(child(path, "name"), "name is not specified")
    elif not _IDENTIFIER.match(name) or name in _RESERVED:
        yield invalid(child(path, "name"), name, "must be a valid CEL identifier")
    if not expression.strip():
        yield required(child(path, "expression"), "expression is not specified")
        return
    found = compiled(expression, within)
    if isinstance(found, str):
        yield invalid(child(path, "expression"), expression, found)
        variables[name] = DYN  # what uses it is not to blame
    else:
        variables[name] = found.result


def _validation_errors(
    validation: View, path: str, known: frozenset[str], params: bool, variables: dict[str, Type] | None
) -> Iterator[FieldError]:
    expression = validation.get("expression") or ""
    teller, message = validation.get("messageExpression") or "", validation.get("message") or ""
    if not expression.strip():
        yield required(child(path, "expression"), "expression is not specified")
    else:
        found = compiled(expression, _within(expression, known, params, variables), BOOL)
        if isinstance(found, str):
            yield invalid(child(path, "expression"), expression, found)
    if teller and not teller.strip():
        yield invalid(child(path, "messageExpression"), teller, "must be non-empty if specified")
    elif teller:
        found = compiled(teller, _within(teller, known, params, variables, authorizer=False), TEXT)
        if isinstance(found, str):
            yield invalid(child(path, "messageExpression"), teller, found)
    if message and not message.strip():
        yield invalid(child(path, "message"), message, "must be non-empty if specified")
    elif any(char in message.strip() for char in "\n\r"):
        yield invalid(child(path, "message"), message, "must not contain line breaks")
    reason = validation.get("reason")
    if reason is not None and reason not in _REASONS:
        yield not_supported(child(path, "reason"), reason, _REASONS)


def _annotation_errors(annotation: View, path: str, name: str, within: Environment) -> Iterator[FieldError]:
    key, expression = annotation.get("key") or "", (annotation.get("valueExpression") or "").strip()
    if name:
        whole = f"{name}/{key}"
        yield from (invalid(child(path, "key"), whole, fault) for fault in qualified_name(whole))
    else:
        yield invalid(child(path, "key"), key, "requires metadata.name be non-empty")
    at = child(path, "valueExpression")
    if not expression:
        yield required(at, "valueExpression is not specified")
    elif len(expression.encode()) > LONGEST_ANNOTATION:
        yield required(at, f"must not exceed {LONGEST_ANNOTATION} bytes in length")
    else:
        found = compiled(expression, within, TEXT_OR_NULL)
        if isinstance(found, str):
            yield invalid(at, annotation.get("valueExpression"), found)


def _param_kind_errors(kind: View, path: str) -> Iterator[FieldError]:
    given, at = kind.get("apiVersion") or "", child(path, "apiVersion")
    group, slash, version = given.partition("/")
    if not slash:
        group, version = "", given
    if not given:
        yield required(at)
    elif "/" in version:
        yield invalid(at, given, f"unexpected GroupVersion string: {given}")
    else:
        if group and (faults := dns1123_subdomain(group)):
            yield invalid(at, group, ",".join(faults))
        if not version:
            yield invalid(at, given, "version must be specified")
        elif faults := dns1035_label(version):
            yield invalid(at, version, ",".join(faults))
    name, at = kind.get("kind") or "", child(path, "kind")
    if not name:
        yield required(at)
    elif faults := dns1035_label(name.lower()):
        yield invalid(at, name, "may have mixed case, but should otherwise match: " + ",".join(faults))


def match_errors(match: View, path: str) -> Iterator[FieldError]:
    """Yield what is wrong with what a policy or a binding matches."""
    if match.get("matchPolicy") is None:
        yield required(child(path, "matchPolicy"))
    yield from rules.one_of(match, path, "matchPolicy", rules.MATCH_POLICIES)
    for name in ("namespaceSelector", "objectSelector"):
        if match.get(name) is None:
            yield required(child(path, name))
        yield from rules.selector_errors(match.get(name), child(path, name))
    for name in ("resourceRules", "excludeResourceRules"):
        for index, rule in enumerate(match.get(name) or ()):
            at = item(child(path, name), index)
            yield from _name_errors(rule.get("resourceNames") or (), child(at, "resourceNames"))
            yield from rules.rule_errors(rule, at)


def _name_errors(names: Sequence[str], path: str) -> Iterator[FieldError]:
    for index, name in enumerate(names):
        yield from (invalid(item(path, index), name, fault) for fault in path_segment(name))
        if name in names[:index]:
            yield duplicate(item(path, index), name)


def binding_errors(new: View) -> Iterator[FieldError]:
    """Yield what is wrong with a binding."""
    spec: View = new.get("spec") or {}
    policy = spec.get("policyName") or ""
    if not policy:
        yield required("spec.policyName")
    else:
        yield from (invalid("spec.policyName", policy, fault) for fault in dns1123_subdomain(policy))
    if spec.get("paramRef") is not None:
        yield from _param_ref_errors(spec["paramRef"], "spec.paramRef")
    if spec.get("matchResources") is not None:
        yield from match_errors(spec["matchResources"], "spec.matchResources")
    yield from _action_errors(spec.get("validationActions") or (), "spec.validationActions")


def _param_ref_errors(ref: View, path: str) -> Iterator[FieldError]:
    name, selector = ref.get("name") or "", ref.get("selector")
    if name:
        yield from (invalid(child(path, "name"), name, fault) for fault in path_segment(name))
    if name and selector is not None:
        yield forbidden(child(path, "name"), "name and selector are mutually exclusive")
    yield from rules.selector_errors(selector, child(path, "selector"))
    if name and selector is not None:
        yield forbidden(child(path, "selector"), "name and selector are mutually exclusive")
    if not name and selector is None:
        yield required(path, "one of name or selector must be specified")
    action = ref.get("parameterNotFoundAction")
    if not action:
        yield required(child(path, "parameterNotFoundAction"))
    elif action not in _NOT_FOUND_ACTIONS:
        yield not_supported(child(path, "parameterNotFoundAction"), action, _NOT_FOUND_ACTIONS)


def _action_errors(actions: Sequence[str], path: str) -> Iterator[FieldError]:
    for index, action in enumerate(actions):
        if action not in _ACTIONS:
            yield not_supported(item(path, index), action, _ACTIONS)
        if action in actions[:index]:
            yield duplicate(item(path, index), action)
    if "Deny" in actions and "Warn" in actions:
        text = (
            "must not contain both Deny and Warn (repeating the same validation failure information in the API "
            "response and headers serves no purpose)"
        )
        yield invalid(path, list(actions), text)
    if not actions:
        yield required(path, "at least one validation action is required")
