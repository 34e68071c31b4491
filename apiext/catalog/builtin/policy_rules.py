"""Validation of the fields that validating and mutating admission policies have in common.

The error texts and their order are those of k8s pkg/apis/admissionregistration/validation. The fields of a spec are
validated in this order: failurePolicy, paramKind, matchConstraints, matchConditions, variables.
"""

import re
from collections.abc import Iterator, Sequence

from apiext.catalog.admission_cel import environment
from apiext.catalog.builtin import admission_rules as rules
from apiext.catalog.builtin.requirements import selector_errors
from apiext.cel.environment import Environment
from apiext.cel.types import DYN, Type
from apiext.documents.document import View
from apiext.meta.fields import FieldError, child, duplicate, forbidden, invalid, item, not_supported, required
from apiext.meta.syntax import dns1035_label, dns1123_subdomain, path_segment

MUTATED_OPERATIONS = ("*", "CONNECT", "CREATE", "UPDATE")
_NOT_FOUND_ACTIONS = ("Deny", "Allow")
_IDENTIFIER = re.compile(r"[_a-zA-Z][_a-zA-Z0-9]*\Z")
_RESERVED = frozenset(
    ("true", "false", "null", "in", "as", "break", "const", "continue", "else", "for", "function", "if", "import",
     "let", "loop", "package", "namespace", "return", "var", "void", "while")
)  # fmt: skip


def spec_errors(spec: View, before: View | None, operations: Sequence[str] = ()) -> Iterator[FieldError]:
    """Yield the validation errors of a policy's spec up to its matchConditions.

    ``before`` is the stored spec, None on create. ``operations`` are the operations that the policy may match; empty
    allows all operations.
    """
    if spec.get("failurePolicy") is None:
        yield required("spec.failurePolicy")
    yield from rules.one_of(spec, "spec", "failurePolicy", rules.FAILURE_POLICIES)
    if spec.get("paramKind") is not None:
        yield from _param_kind_errors(spec["paramKind"], "spec.paramKind")
    constraints = spec.get("matchConstraints")
    if constraints is None:
        yield required("spec.matchConstraints")
    else:
        yield from match_errors(constraints, "spec.matchConstraints")
        if not constraints.get("resourceRules"):
            yield required("spec.matchConstraints.resourceRules")
        yield from _operation_errors(constraints, "spec.matchConstraints", operations)
    conditions, old = spec.get("matchConditions") or [], (before or {}).get("matchConditions") or []
    if before is None or spec.get("paramKind") != before.get("paramKind") or conditions != old:
        stored = frozenset(condition.get("expression") or "" for condition in old)
        params = spec.get("paramKind") is not None
        yield from rules.condition_errors(conditions, "spec.matchConditions", stored, params=params)


def variables_errors(spec: View, stored: frozenset[str], types: dict[str, Type]) -> Iterator[FieldError]:
    """Yield the validation errors of a policy's variables, and add their types to ``types``.

    ``stored`` are expressions of the stored policy (see within_spec).
    """
    for index, variable in enumerate(spec.get("variables") or ()):
        within = within_spec(spec, variable.get("expression") or "", stored, types)
        yield from _variable_errors(variable, f"spec.variables[{index}]", within, types)


def within_spec(
    spec: View,
    text: str,
    stored: frozenset[str],
    variables: dict[str, Type] | None,
    *,
    authorizer: bool = True,
    patches: bool = False,
) -> Environment:
    """Return the CEL environment of the expression ``text`` of a policy.

    ``stored`` are expressions of the stored policy, usually those of the same field: they may use all functions. Any
    other expression may use only the functions that new expressions may use (see cel.environment).
    """
    return environment(
        params=spec.get("paramKind") is not None,
        authorizer=authorizer,
        version="stored" if text in stored else "new",
        variables=variables,
        patches=patches,
    )


def binding_errors(spec: View, operations: Sequence[str] = ()) -> Iterator[FieldError]:
    """Yield the validation errors of the spec of a binding; its policyName may be absent.

    ``operations`` has the same meaning as in spec_errors.
    """
    if policy := spec.get("policyName"):
        yield from (invalid("spec.policyName", policy, fault) for fault in dns1123_subdomain(policy))
    if spec.get("paramRef") is not None:
        yield from _param_ref_errors(spec["paramRef"], "spec.paramRef")
    if spec.get("matchResources") is not None:
        yield from match_errors(spec["matchResources"], "spec.matchResources")
        yield from _operation_errors(spec["matchResources"], "spec.matchResources", operations)


def _operation_errors(match: View, path: str, allowed: Sequence[str]) -> Iterator[FieldError]:
    for rule in match.get("resourceRules") or ():
        for operation in (allowed and rule.get("operations")) or ():
            if operation not in allowed:
                yield not_supported(f"{path}.resourceRules.operations", operation, allowed)


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
    found = rules.expression(expression, child(path, "expression"), within)
    if isinstance(found, FieldError):
        yield found
        variables[name] = DYN  # so that this error causes no errors in expressions that use the variable
    else:
        variables[name] = found.result


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
    """Yield the validation errors of a MatchResources of a policy or a binding."""
    if match.get("matchPolicy") is None:
        yield required(child(path, "matchPolicy"))
    yield from rules.one_of(match, path, "matchPolicy", rules.MATCH_POLICIES)
    for name in ("namespaceSelector", "objectSelector"):
        if match.get(name) is None:
            yield required(child(path, name))
        yield from selector_errors(match.get(name), child(path, name))
    for name in ("resourceRules", "excludeResourceRules"):
        for index, rule in enumerate(match.get(name) or ()):
            at = item(child(path, name), index)
            yield from _name_errors(rule.get("resourceNames") or (), child(at, "resourceNames"))
            yield from rules.rule_errors(rule, at)


def _name_errors(names: Sequence[str], path: str) -> Iterator[FieldError]:
    seen: set[str] = set()
    for index, name in enumerate(names):
        yield from (invalid(item(path, index), name, fault) for fault in path_segment(name))
        if name in seen:
            yield duplicate(item(path, index), name)
        seen.add(name)


def _param_ref_errors(ref: View, path: str) -> Iterator[FieldError]:
    name, selector = ref.get("name") or "", ref.get("selector")
    if name:
        yield from (invalid(child(path, "name"), name, fault) for fault in path_segment(name))
    if name and selector is not None:
        yield forbidden(child(path, "name"), "name and selector are mutually exclusive")
    yield from selector_errors(selector, child(path, "selector"))
    if name and selector is not None:
        yield forbidden(child(path, "selector"), "name and selector are mutually exclusive")
    if not name and selector is None:
        yield required(path, "one of name or selector must be specified")
    action = ref.get("parameterNotFoundAction")
    if not action:
        yield required(child(path, "parameterNotFoundAction"))
    elif action not in _NOT_FOUND_ACTIONS:
        yield not_supported(child(path, "parameterNotFoundAction"), action, _NOT_FOUND_ACTIONS)
