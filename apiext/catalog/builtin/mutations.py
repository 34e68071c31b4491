"""Validation of mutating admission policies and their bindings.

Upstream: admissionregistration/validation.
"""

from collections.abc import Iterator

from apiext.catalog.admission_cel import PATCH_TYPES
from apiext.catalog.builtin import admission_rules as rules
from apiext.catalog.builtin import policy_rules
from apiext.catalog.builtin.policy_rules import MUTATED_OPERATIONS, within_spec
from apiext.cel.types import Type
from apiext.documents.document import View
from apiext.meta.fields import FieldError, child, invalid, not_supported, required

REINVOCATION_POLICIES = ("IfNeeded", "Never")


def policy_errors(new: View, old: View | None) -> Iterator[FieldError]:
    """Yield the validation errors of a policy; ``old`` is None on create."""
    spec: View = new.get("spec") or {}
    before: View | None = None if old is None else old.get("spec") or {}
    yield from policy_rules.spec_errors(spec, before, MUTATED_OPERATIONS)
    variables: dict[str, Type] = {}
    # As in upstream, the expressions of variables may use only the functions for new expressions, even if the stored
    # policy has the same expressions.
    yield from policy_rules.variables_errors(spec, frozenset(), variables)
    mutations = spec.get("mutations") or ()
    if not mutations:
        yield required("spec.mutations", "mutations must contain at least one item")
    stored = _stored_expressions(before or {})
    for index, mutation in enumerate(mutations):
        yield from _mutation_errors(mutation, f"spec.mutations[{index}]", spec, stored, variables)
    if not spec.get("reinvocationPolicy"):
        yield required("spec.reinvocationPolicy")
    else:
        yield from rules.one_of(spec, "spec", "reinvocationPolicy", REINVOCATION_POLICIES)


def _mutation_errors(
    mutation: View, path: str, spec: View, stored: frozenset[str], variables: dict[str, Type]
) -> Iterator[FieldError]:
    kind = mutation.get("patchType") or ""
    if not kind:
        yield required(child(path, "patchType"))
        return
    if kind not in PATCH_TYPES:
        yield not_supported(child(path, "patchType"), kind, tuple(PATCH_TYPES))
        return
    field, wanted = PATCH_TYPES[kind]
    if mutation.get(field) is None:
        yield required(child(path, field), f"must be specified when patchType is {kind}")
    else:
        written = mutation[field].get("expression") or ""
        at, text = child(child(path, field), "expression"), written.strip()
        if not text:
            yield required(at)
        else:
            within = within_spec(spec, written, stored, variables, patches=True)
            yield from rules.expression_errors(text, at, within, wanted)
    for other, _ in PATCH_TYPES.values():
        if other != field and mutation.get(other) is not None:
            yield invalid(child(path, other), f"{{{other}}}", f"must not be specified when patchType is {kind}")


def _stored_expressions(before: View) -> frozenset[str]:
    """Return the stored expressions of applyConfiguration, which may use all functions.

    As in upstream, the stored expressions of jsonPatch are left out.
    """
    applied = (mutation.get("applyConfiguration") for mutation in before.get("mutations") or ())
    return frozenset(each.get("expression") or "" for each in applied if each is not None)


def binding_errors(new: View) -> Iterator[FieldError]:
    """Yield the validation errors of a binding."""
    spec: View = new.get("spec") or {}
    if not spec.get("policyName"):
        yield required("spec.policyName")
    yield from policy_rules.binding_errors(spec, MUTATED_OPERATIONS)
