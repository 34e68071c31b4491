"""Validation of parts that webhook configurations and admission policies share.

These parts are rules, CEL expressions and match conditions. Texts and their order are those of k8s
pkg/apis/admissionregistration/validation (ADM-003, ADM-006).
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from apiext.catalog.admission_cel import BOOL, compiled, environment
from apiext.cel.environment import Environment, Program
from apiext.cel.types import Type
from apiext.documents.document import View
from apiext.meta.fields import (
    INTERNAL,
    FieldError,
    child,
    duplicate,
    invalid,
    item,
    not_supported,
    required,
    too_many,
)
from apiext.meta.syntax import qualified_name

MOST_CONDITIONS = 64
UNPLANNED = "program instantiation failed"  # first words of the error if cel-go cannot plan a type-checked expression
FAILURE_POLICIES = ("Fail", "Ignore")
MATCH_POLICIES = ("Equivalent", "Exact")
_OPERATIONS = ("*", "CONNECT", "CREATE", "DELETE", "UPDATE")
_SCOPES = ("*", "Cluster", "Namespaced")


def one_of(owner: View, path: str, name: str, allowed: Sequence[str]) -> Iterator[FieldError]:
    """Yield the error of a field whose value is not an allowed value; an absent field is valid."""
    value = owner.get(name)
    if value is not None and value not in allowed:
        yield not_supported(child(path, name), value, allowed)


def rule_errors(rule: View, path: str) -> Iterator[FieldError]:
    """Yield the errors of the operations, groups, versions, resources and scope of a rule."""
    operations = rule.get("operations") or ()
    yield from _wildcard_errors(operations, child(path, "operations"), "operations")
    for index, operation in enumerate(operations):
        if operation not in _OPERATIONS:
            yield not_supported(item(child(path, "operations"), index), operation, _OPERATIONS)
    yield from _wildcard_errors(rule.get("apiGroups"), child(path, "apiGroups"), "API groups")
    versions = rule.get("apiVersions") or ()
    yield from _wildcard_errors(versions, child(path, "apiVersions"), "API versions")
    for index, version in enumerate(versions):
        if not version:
            yield required(item(child(path, "apiVersions"), index))
    yield from _resource_errors(rule.get("resources") or (), child(path, "resources"))
    yield from one_of(rule, path, "scope", _SCOPES)


def _wildcard_errors(values: Sequence[str] | None, path: str, noun: str) -> Iterator[FieldError]:
    if not values:
        yield required(path)
    elif len(values) > 1 and "*" in values:
        yield invalid(path, list(values), f"if '*' is present, must not specify other {noun}")


def _resource_errors(resources: Sequence[str], path: str) -> Iterator[FieldError]:
    if not resources:
        yield required(path)
    whole: set[str] = set()  # each x of a resource x/*
    parts: set[str] = set()  # each x of a resource */x
    bare = False
    for index, name in enumerate(resources):
        if not name:
            yield required(item(path, index))
            continue
        resource, slash, sub = name.partition("/")
        if not slash:
            bare = name != "*"  # upstream: only the last resource without a subresource is checked against *
            continue
        if resource in whole:
            yield invalid(item(path, index), name, f"if '{resource}/*' is present, must not specify {name}")
        if sub in parts:
            yield invalid(item(path, index), name, f"if '*/{sub}' is present, must not specify {name}")
        if sub == "*":
            whole.add(resource)
        if resource == "*":
            parts.add(sub)
    if len(resources) > 1 and "*/*" in resources:
        yield invalid(path, list(resources), "if '*/*' is present, must not specify other resources")
    if "*" in resources and bare:
        text = "if '*' is present, must not specify other resources without subresources"
        yield invalid(path, list(resources), text)


def expression(
    text: str, path: str, within: Environment, wanted: Sequence[Type] = (), *, shown: str | None = None
) -> Program | FieldError:
    """Return the program of an expression, or its error.

    ``wanted`` are the types that the result may have. The error shows ``shown`` instead of the expression, unless
    ``shown`` is None.
    """
    found = compiled(text, within, wanted)
    if not isinstance(found, str):
        return found
    if found.startswith(UNPLANNED):
        return FieldError(INTERNAL, path, f"Internal error: {found}")
    return invalid(path, text if shown is None else shown, found)


def expression_errors(
    text: str, path: str, within: Environment, wanted: Sequence[Type], *, shown: str | None = None
) -> Iterator[FieldError]:
    """Yield the error of an invalid expression; the arguments are those of ``expression``."""
    found = expression(text, path, within, wanted, shown=shown)
    if isinstance(found, FieldError):
        yield found


def condition_errors(
    conditions: Sequence[Mapping[str, Any]] | None, path: str, stored: frozenset[str], *, params: bool = False
) -> Iterator[FieldError]:
    """Yield the errors of matchConditions.

    ``stored`` are the expressions of the stored object: an update may keep them even if they use functions that new
    expressions may not use (ADM-006). If ``params`` is true, expressions may use the variable ``params``.
    """
    conditions = conditions or ()
    if len(conditions) > MOST_CONDITIONS:
        yield too_many(path, len(conditions), MOST_CONDITIONS)
    names: set[str] = set()
    # further conditions are not validated, since the list is too long anyway
    for index, condition in enumerate(conditions[: 2 * MOST_CONDITIONS]):
        at = item(path, index)
        text, name = (condition.get("expression") or "").strip(), condition.get("name") or ""
        if not text:
            yield required(child(at, "expression"))
        else:
            version = "stored" if text in stored else "new"
            within = environment(params=params, version=version)
            yield from expression_errors(text, child(at, "expression"), within, BOOL)
        if not name:
            yield required(child(at, "name"))
            continue
        yield from (invalid(child(at, "name"), name, fault) for fault in qualified_name(name))
        if name in names:
            yield duplicate(child(at, "name"), name)
        names.add(name)
