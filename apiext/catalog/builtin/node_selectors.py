"""Validation of fields that restrict on which nodes pods run.

These are affinities, tolerations, spread constraints and taints. Upstream: apis/core/validation.
"""

from collections.abc import Iterator, Sequence

from apiext.catalog.builtin.requirements import selector_errors
from apiext.documents.document import View
from apiext.meta import syntax
from apiext.meta.fields import (
    DUPLICATE,
    FieldError,
    Named,
    child,
    duplicate,
    forbidden,
    go_value,
    invalid,
    item,
    not_supported,
    required,
)

_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_ACTIONS = ("DoNotSchedule", "ScheduleAnyway")
_POLICIES = ("Honor", "Ignore")
_POSITIVE = "must be greater than zero"
_NO_OPERATOR = "not a valid selector operator"
_WEIGHT = "must be in the range 1-100"
_REQUIRED, _PREFERRED = (
    "requiredDuringSchedulingIgnoredDuringExecution",
    "preferredDuringSchedulingIgnoredDuringExecution",
)


def _label_name(key: str, path: str) -> Iterator[FieldError]:
    yield from (invalid(path, key, fault) for fault in syntax.qualified_name(key))


# --- nodes ---


def node_selector_errors(selector: View, path: str) -> Iterator[FieldError]:
    """Yield the validation errors of a node selector."""
    at = child(path, "nodeSelectorTerms")
    terms = selector.get("nodeSelectorTerms") or ()
    if not terms:
        yield required(at, "must have at least one node selector term")
    for index, term in enumerate(terms):
        yield from _node_term(term, item(at, index), values=True)


def _node_term(term: View, path: str, *, values: bool) -> Iterator[FieldError]:
    """Yield the validation errors of a node selector term.

    Validate label values only if ``values`` is true.
    """
    for index, one in enumerate(term.get("matchExpressions") or ()):
        yield from _node_requirement(one, item(child(path, "matchExpressions"), index), values=values)
    for index, one in enumerate(term.get("matchFields") or ()):
        yield from _node_field(one, item(child(path, "matchFields"), index))


def _node_requirement(one: View, path: str, *, values: bool) -> Iterator[FieldError]:
    operator, given, at = one.get("operator") or "", one.get("values") or (), child(path, "values")
    if operator in ("In", "NotIn"):
        if not given:
            yield required(at, "must be specified when `operator` is 'In' or 'NotIn'")
    elif operator in ("Exists", "DoesNotExist"):
        if given:
            yield forbidden(at, "may not be specified when `operator` is 'Exists' or 'DoesNotExist'")
    elif operator in ("Gt", "Lt"):
        if len(given) != 1:
            yield required(at, "must be specified single value when `operator` is 'Lt' or 'Gt'")
    else:
        yield invalid(child(path, "operator"), Named(operator), _NO_OPERATOR)
    yield from _label_name(one.get("key") or "", child(path, "key"))
    for index, value in enumerate(given if values else ()):
        yield from (invalid(item(at, index), value, fault) for fault in syntax.label_value(value))


def _node_field(one: View, path: str) -> Iterator[FieldError]:
    operator, given, key = one.get("operator") or "", one.get("values") or (), one.get("key") or ""
    at = child(path, "values")
    if operator not in ("In", "NotIn"):
        yield invalid(child(path, "operator"), Named(operator), _NO_OPERATOR)
    elif len(given) != 1:
        yield required(at, "must be only one value when `operator` is 'In' or 'NotIn' for node field selector")
    if key != "metadata.name":
        yield invalid(child(path, "key"), key, "not a valid field selector key")
        return
    for index, value in enumerate(given):
        yield from (invalid(item(at, index), value, fault) for fault in syntax.dns1123_subdomain(value))


# --- pods ---


def affinity_errors(affinity: View | None, path: str) -> Iterator[FieldError]:
    """Yield the validation errors of the affinities of a pod."""
    if affinity is None:
        return
    nodes = affinity.get("nodeAffinity")
    if nodes is not None:
        at = child(path, "nodeAffinity")
        if nodes.get(_REQUIRED) is not None:
            yield from node_selector_errors(nodes[_REQUIRED], child(at, _REQUIRED))
        for index, term in enumerate(nodes.get(_PREFERRED) or ()):
            here = item(child(at, _PREFERRED), index)
            yield from _weight(term, here)
            yield from _node_term(term.get("preference") or {}, child(here, "preference"), values=False)
    for name in ("podAffinity", "podAntiAffinity"):
        if affinity.get(name) is not None:
            yield from _pod_affinity(affinity[name], child(path, name))


def _weight(term: View, path: str) -> Iterator[FieldError]:
    weight = term.get("weight") or 0
    if not 0 < weight <= 100:
        yield invalid(child(path, "weight"), weight, _WEIGHT)


def _pod_affinity(affinity: View, path: str) -> Iterator[FieldError]:
    for index, term in enumerate(affinity.get(_REQUIRED) or ()):
        yield from _pod_term(term, item(child(path, _REQUIRED), index))
    for index, term in enumerate(affinity.get(_PREFERRED) or ()):
        at = item(child(path, _PREFERRED), index)
        yield from _weight(term, at)
        yield from _pod_term(term.get("podAffinityTerm") or {}, child(at, "podAffinityTerm"))


def _pod_term(term: View, path: str) -> Iterator[FieldError]:
    for name in ("labelSelector", "namespaceSelector"):
        yield from selector_errors(term.get(name), child(path, name))
    for name in term.get("namespaces") or ():
        yield from (invalid(child(path, "namespace"), name, fault) for fault in syntax.dns1123_label(name))
    yield from _label_keys(term, path)
    key = term.get("topologyKey") or ""
    if not key:
        yield required(child(path, "topologyKey"), "can not be empty")
    yield from _label_name(key, child(path, "topologyKey"))


def _label_keys(term: View, path: str) -> Iterator[FieldError]:
    """Yield the validation errors of matchLabelKeys and mismatchLabelKeys."""
    selector = term.get("labelSelector")
    matching, other = term.get("matchLabelKeys") or (), term.get("mismatchLabelKeys") or ()
    for name, keys in (("matchLabelKeys", matching), ("mismatchLabelKeys", other)):
        at = child(path, name)
        if keys and selector is None:
            yield forbidden(at, "must not be specified when labelSelector is not set")
            continue
        for index, key in enumerate(keys):
            yield from _label_name(key, item(at, index))
    selected = set((selector or {}).get("matchLabels") or ())
    for one in (selector or {}).get("matchExpressions") or ():
        key = one.get("key") or ""
        if key in matching and key in selected:
            index = len(matching) - 1 - list(reversed(matching)).index(key)
            yield invalid(item(path, index), key, "exists in both matchLabelKeys and labelSelector")
        selected.add(key)
    for index, key in enumerate(matching):
        if key in other:
            at = item(child(path, "matchLabelKeys"), index)
            yield invalid(at, key, "exists in both matchLabelKeys and mismatchLabelKeys")


def spread_errors(constraints: Sequence[View], path: str) -> Iterator[FieldError]:
    """Yield the validation errors of the topology spread constraints of a pod."""
    for index, one in enumerate(constraints):
        at = item(path, index)
        skew, key, action = one.get("maxSkew") or 0, one.get("topologyKey") or "", one.get("whenUnsatisfiable") or ""
        if skew <= 0:
            yield invalid(child(at, "maxSkew"), skew, _POSITIVE)
        if not key:
            yield required(child(at, "topologyKey"), "can not be empty")
        if action not in _ACTIONS:
            yield not_supported(child(at, "whenUnsatisfiable"), action, _ACTIONS)
        rest = (
            (other.get("topologyKey") or "", other.get("whenUnsatisfiable") or "") for other in constraints[index + 1 :]
        )
        if (key, action) in rest:
            yield duplicate(child(at, "{topologyKey, whenUnsatisfiable}"), f"{{{key}, {action}}}")
        domains = one.get("minDomains")
        if domains is not None and domains <= 0:
            yield invalid(child(at, "minDomains"), domains, _POSITIVE)
        if domains is not None and action != "DoNotSchedule":
            text = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"
            yield invalid(child(at, "minDomains"), domains, text)
        for name in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
            if one.get(name) not in (None, *_POLICIES):
                yield not_supported(child(at, name), one[name], _POLICIES)
        yield from _label_keys({name: value for name, value in one.items() if name != "mismatchLabelKeys"}, at)
        yield from selector_errors(one.get("labelSelector"), child(at, "labelSelector"))


# --- taints and tolerations ---


def toleration_errors(tolerations: Sequence[View], path: str) -> Iterator[FieldError]:
    """Yield the validation errors of the tolerations of a pod."""
    for index, one in enumerate(tolerations):
        at, key, value = item(path, index), one.get("key") or "", one.get("value") or ""
        operator, effect = one.get("operator") or "", one.get("effect") or ""
        if key:
            yield from _label_name(key, child(at, "key"))
        elif operator != "Exists":
            text = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
            yield invalid(child(at, "operator"), Named(operator), text)
        if one.get("tolerationSeconds") is not None and effect != "NoExecute":
            text = "effect must be 'NoExecute' when `tolerationSeconds` is set"
            yield invalid(child(at, "effect"), Named(effect), text)
        if operator in ("Equal", ""):
            faults = syntax.label_value(value)
            if faults:
                yield invalid(child(at, "operator"), value, ";".join(faults))
        elif operator == "Exists":
            if value:
                yield invalid(child(at, "operator"), value, "value must be empty when `operator` is 'Exists'")
        else:
            supported_values = ("Equal", "Exists", "Lt", "Gt") if operator in ("Lt", "Gt") else ("Equal", "Exists")
            yield not_supported(child(at, "operator"), operator, supported_values)
        if effect and effect not in _EFFECTS:
            yield not_supported(child(at, "effect"), effect, _EFFECTS)


def taint_errors(taints: Sequence[View], path: str) -> Iterator[FieldError]:
    """Yield the validation errors of the taints of a node."""
    seen: set[tuple[str, str]] = set()
    for index, one in enumerate(taints):
        at, key, value, effect = (
            item(path, index),
            one.get("key") or "",
            one.get("value") or "",
            one.get("effect") or "",
        )
        yield from _label_name(key, child(at, "key"))
        faults = syntax.label_value(value)
        if faults:
            yield invalid(child(at, "value"), value, ";".join(faults))
        if not effect:
            yield required(child(at, "effect"))
        elif effect not in _EFFECTS:
            yield not_supported(child(at, "effect"), effect, _EFFECTS)
        if (effect, key) in seen:
            text = f"Duplicate value: {go_value(one)}: taints must be unique by key and effect pair"
            yield FieldError(DUPLICATE, at, text)
        seen.add((effect, key))
