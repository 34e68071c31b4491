"""Validation of resource quantities in containers, pods, quotas and limit ranges.

Upstream: apis/core.
"""

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from fractions import Fraction

from apiext.documents.document import View
from apiext.go_types.quantities import canonical, value_of
from apiext.meta import syntax
from apiext.meta.fields import (
    Errors,
    FieldError,
    Named,
    child,
    duplicate,
    forbidden,
    invalid,
    item,
    not_found,
    not_supported,
    required,
)

_CONTAINER = ("cpu", "memory", "ephemeral-storage")
_COUNTED = (
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
)
_MEASURED = tuple(f"{part}{name}" for part in ("", "requests.", "limits.") for name in _CONTAINER)
_QUOTA = frozenset((*_COUNTED, *_MEASURED, "requests.storage"))
_STANDARD = _QUOTA | {"storage"}
_HUGE, _REQUESTED_HUGE = "hugepages-", "requests.hugepages-"
_NATIVE = "kubernetes.io/"
_LIMITED = ("Container", "PersistentVolumeClaim", "Pod")
_POD_SCOPES = frozenset(
    ("Terminating", "NotTerminating", "NotBestEffort", "PriorityClass", "CrossNamespacePodAffinity")
)
_SCOPES = _POD_SCOPES | {"BestEffort", "VolumeAttributesClass"}
_OF_POD_SCOPES = frozenset(("pods", "cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory"))
_EXISTING = ("BestEffort", "NotBestEffort", "Terminating", "NotTerminating", "CrossNamespacePodAffinity")
_OPPOSITES = (("BestEffort", "NotBestEffort"), ("Terminating", "NotTerminating"))

Quantities = Mapping[str, str]
NameErrors = Callable[[str, str], Iterator[FieldError]]


# --- names ---


def _is_huge(name: str) -> bool:
    return name.startswith(_HUGE)


def is_native(name: str) -> bool:
    """Return whether a resource name is Kubernetes' own, such as ``cpu`` or ``kubernetes.io/x``."""
    return "/" not in name or _NATIVE in name


def _is_extended(name: str) -> bool:
    if is_native(name) or name.startswith("requests."):
        return False
    return not syntax.qualified_name(f"requests.{name}")


def may_overcommit(name: str) -> bool:
    """Return whether a container may request less of this resource than its limit."""
    return is_native(name) and not _is_huge(name)


def _name_errors(name: str, path: str) -> Iterator[FieldError]:
    faults = syntax.qualified_name(name)
    yield from (invalid(path, Named(name), fault) for fault in faults)
    if not faults and "/" not in name and name not in _STANDARD and not name.startswith((_HUGE, _REQUESTED_HUGE)):
        yield invalid(path, Named(name), "must be a standard resource type or fully qualified")


def container_name_errors(name: str, path: str) -> Iterator[FieldError]:
    """Yield the validation errors of the name of a resource in a container, such as ``cpu``."""
    yield from _name_errors(name, path)
    if "/" not in name:
        if name not in _CONTAINER and not _is_huge(name):
            yield invalid(path, Named(name), "must be a standard resource for containers")
    elif not is_native(name) and not _is_extended(name):
        yield invalid(path, Named(name), "doesn't follow extended resource name standard")


def _pod_name_errors(name: str, path: str) -> Iterator[FieldError]:
    errors = list(_name_errors(name, path))
    yield from errors
    if not errors and name not in ("cpu", "memory") and not _is_huge(name):
        yield not_supported(path, name, ("cpu", "hugepages-", "memory"))


def _quota_name_errors(name: str, path: str) -> Iterator[FieldError]:
    yield from _name_errors(name, path)
    if "/" not in name and name not in _QUOTA and not name.startswith((_HUGE, _REQUESTED_HUGE)):
        yield invalid(path, Named(name), "must be a standard resource for quota")


def quantity_errors(name: str, quantity: str, path: str) -> Iterator[FieldError]:
    """Yield the validation errors of a quantity.

    A quantity must not be negative. The quantity of a countable or extended resource must be an integer.
    """
    value = value_of(quantity)
    if value < 0:
        yield invalid(path, quantity, "must be greater than or equal to 0")
    if (name in _COUNTED or _is_extended(name)) and _milli(value) % 1000:
        yield invalid(path, Named(quantity), "must be an integer")


def _milli(value: Fraction) -> int:
    scaled = value * 1000
    return -(-scaled.numerator // scaled.denominator)


# --- containers and pods ---


def requirement_errors(
    resources: View | None, path: str, claims: Collection[str] = (), *, of_pod: bool = False
) -> Iterator[FieldError]:
    """Yield the validation errors of requests, limits and claims.

    ``claims`` are the names of the pod's resource claims. ``of_pod`` is true for pod-level resources and false for the
    resources of a container.
    """
    if not resources:
        return
    names = _pod_name_errors if of_pod else container_name_errors
    limits: Quantities = resources.get("limits") or {}
    requests: Quantities = resources.get("requests") or {}
    for name, quantity in limits.items():
        yield from _amount(name, quantity, item(child(path, "limits"), name), names)
    at_all = child(path, "requests")
    for name, quantity in requests.items():
        yield from _named(name, quantity, item(at_all, name), names)
        limit = limits.get(name)
        if limit is None:
            if not may_overcommit(name):
                yield required(child(path, "limits"), "Limit must be set for non overcommitable resources")
        elif value_of(quantity) != value_of(limit) and not may_overcommit(name):
            yield invalid(at_all, quantity, f"must be equal to {name} limit of {limit}")
        elif value_of(quantity) > value_of(limit):
            yield invalid(at_all, quantity, f"must be less than or equal to {name} limit of {limit}")
        yield from _huge(name, quantity, item(at_all, name))
    found = {*limits, *requests}
    if not found & {"cpu", "memory"} and any(map(_is_huge, found)):
        yield forbidden(path, "HugePages require cpu or memory")
    yield from _claims(resources.get("claims") or (), claims, child(path, "claims"))


def _named(name: str, quantity: str, path: str, names: NameErrors) -> Iterator[FieldError]:
    yield from names(name, path)
    yield from quantity_errors(name, quantity, path)


def _amount(name: str, quantity: str, path: str, names: NameErrors) -> Iterator[FieldError]:
    yield from _named(name, quantity, path, names)
    yield from _huge(name, quantity, path)


def _huge(name: str, quantity: str, path: str) -> Iterator[FieldError]:
    if not _is_huge(name):
        return
    page = name.removeprefix(_HUGE)
    size = value_of(page) if _IS_SIZE(page) else Fraction(0)
    if size <= 0 or size.denominator != 1 or value_of(quantity) % size:
        yield invalid(path, quantity, f"{quantity} is not positive integer multiple of {name}")


_IS_SIZE = re.compile(r"[0-9]+(?:\.[0-9]*)?(?:[KMGTPE]i|[numkMGTPE])?").fullmatch


def _claims(claims: Sequence[View], known_claims: Collection[str], path: str) -> Iterator[FieldError]:
    names: set[str] = set()
    for index, claim in enumerate(claims):
        at, name, request = item(path, index), claim.get("name") or "", claim.get("request") or ""
        if not name:
            yield required(at)
            continue
        if name in names:
            yield duplicate(at, name)
        else:
            key = f"{name}/{request}" if request else name
            if request:
                yield from (invalid(child(at, "request"), request, fault) for fault in syntax.dns1123_label(request))
            if key in names:
                yield duplicate(at, key)
            elif not request:
                yield from (duplicate(at, name) for other in names if other.partition("/")[0] == name)
            names.add(key)
        if name not in known_claims:
            listed = f": {', '.join(sorted(known_claims))}" if known_claims else " which is empty"
            yield not_found(at, name, f"must be one of the names in pod.spec.resourceClaims{listed}")


# --- quotas ---


def validate_quota(new: View, old: View | None) -> list[FieldError]:
    """Return the validation errors of a resource quota."""
    spec: View = new.get("spec") or {}
    hard: Quantities = spec.get("hard") or {}
    errors = Errors(_quota_amounts(hard, "spec.hard"))
    errors += _quota_scopes(spec, hard)
    errors += _scope_selector(spec, hard)
    if old is not None and set(spec.get("scopes") or ()) != set((old.get("spec") or {}).get("scopes") or ()):
        errors.append(invalid("spec.scopes", spec.get("scopes"), "field is immutable"))
    return errors


def validate_quota_status(new: View, old: View | None) -> list[FieldError]:
    """Return the validation errors of the status of a resource quota."""
    status = new.get("status") or {}
    errors = Errors(_quota_amounts(status.get("hard") or {}, "status.hard"))
    errors += _quota_amounts(status.get("used") or {}, "status.used")
    return errors


def _quota_amounts(amounts: Quantities, path: str) -> Iterator[FieldError]:
    for name, quantity in amounts.items():
        yield from _named(name, quantity, item(path, name), _quota_name_errors)


def _fits(scope: str, name: str) -> bool:
    if scope in _POD_SCOPES:
        return name in _OF_POD_SCOPES
    if scope == "BestEffort":
        return name == "pods"
    return scope != "VolumeAttributesClass" or name in ("persistentvolumeclaims", "requests.storage")


def _is_quota(name: str) -> bool:
    return name in _QUOTA or name.startswith((_HUGE, _REQUESTED_HUGE))


def _quota_scopes(spec: View, hard: Quantities) -> Iterator[FieldError]:
    scopes, path = spec.get("scopes") or (), "spec.scopes"
    for scope in scopes:
        if scope not in _SCOPES:
            yield invalid(path, list(scopes), "unsupported scope")
        for name in sorted(hard):
            if _is_quota(name) and not _fits(scope, name):
                yield invalid(path, list(scopes), "unsupported scope applied to resource")
    if any(set(pair) <= set(scopes) for pair in _OPPOSITES):
        yield invalid(path, list(scopes), "conflicting scopes")


def _scope_selector(spec: View, hard: Quantities) -> Iterator[FieldError]:
    selector, path = spec.get("scopeSelector"), "spec.scopeSelector.matchExpressions"
    found: set[str] = set()
    for one in (selector or {}).get("matchExpressions") or ():
        scope, operator, values = one.get("scopeName") or "", one.get("operator") or "", one.get("values") or ()
        found.add(scope)
        if scope not in _SCOPES:
            yield invalid(child(path, "scopeName"), Named(scope), "unsupported scope")
        for name in sorted(hard):
            if _is_quota(name) and not _fits(scope, name):
                yield invalid(path, selector, "unsupported scope applied to resource")
        if scope in _EXISTING and operator != "Exists":
            text = (
                "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, ResourceQuotaScopeNotTerminating,"
                " ResourceQuotaScopeBestEffort, ResourceQuotaScopeNotBestEffort or"
                " ResourceQuotaScopeCrossNamespacePodAffinity"
            )
            yield invalid(child(path, "operator"), Named(operator), text)
        if operator in ("In", "NotIn"):
            if not values:
                text = "must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
                yield required(child(path, "values"), text)
        elif operator in ("Exists", "DoesNotExist"):
            if values:
                text = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"
                yield invalid(child(path, "values"), list(values), text)
        else:
            yield invalid(child(path, "operator"), Named(operator), "not a valid selector operator")
    if any(set(pair) <= found for pair in _OPPOSITES):
        yield invalid(path, spec.get("scopes"), "conflicting scopes")


# --- limit ranges ---


def validate_limit_range(new: View, old: View | None) -> list[FieldError]:
    """Return the validation errors of a limit range."""
    errors = Errors()
    seen: set[str] = set()
    for index, limit in enumerate((new.get("spec") or {}).get("limits") or ()):
        path, kind = item("spec.limits", index), limit.get("type") or ""
        faults = syntax.qualified_name(kind)
        at = child(path, "type")
        errors += (invalid(at, Named(kind), fault) for fault in faults)
        if not faults and "/" not in kind and kind not in _LIMITED:
            errors.append(invalid(at, Named(kind), "must be a standard limit type or fully qualified"))
        if kind in seen:
            errors.append(duplicate(at, Named(kind)))
        seen.add(kind)
        errors += _limit(limit, kind, path)
    return errors


_LIMIT_FIELDS = ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio")


def _limit(limit: View, kind: str, path: str) -> Iterator[FieldError]:
    names = container_name_errors if kind in ("Pod", "Container") else _name_errors
    fields: dict[str, Quantities] = {}
    for field in _LIMIT_FIELDS:
        amounts: Quantities = limit.get(field) or {}
        if kind == "Pod" and field.startswith("default"):
            if amounts:
                yield forbidden(child(path, field), "may not be specified when `type` is 'Pod'")
            amounts = {}
        unbound = not {"storage"} & {*fields.get("min", ()), *fields.get("max", ())}
        if kind == "PersistentVolumeClaim" and field == "maxLimitRequestRatio" and unbound:
            text = "either minimum or maximum storage value is required, but neither was provided"
            yield required(child(path, "limits"), text)
        for name in amounts:
            yield from names(name, item(child(path, field), name))
        fields[field] = amounts
    for name in dict.fromkeys(name for field in _LIMIT_FIELDS for name in fields[field]):
        yield from _bounds(name, {field: fields[field][name] for field in _LIMIT_FIELDS if name in fields[field]}, path)


_ORDER = (
    ("min", "max", "min", "min", "min value {} is greater than max value {}"),
    (
        "min",
        "defaultRequest",
        "defaultRequest",
        "defaultRequest",
        "min value {} is greater than default request value {}",
    ),
    (
        "defaultRequest",
        "max",
        "defaultRequest",
        "defaultRequest",
        "default request value {} is greater than max value {}",
    ),
    (
        "defaultRequest",
        "default",
        "defaultRequest",
        "defaultRequest",
        "default request value {} is greater than default limit value {}",
    ),
    ("min", "default", "default", "min", "min value {} is greater than default value {}"),
    ("default", "max", "default", "max", "default value {} is greater than max value {}"),
)
"""(lower field, higher field, field in the path of the error, field whose value the error shows, text)."""


def _bounds(name: str, given: Quantities, path: str) -> Iterator[FieldError]:
    for less, more, field, shown, text in _ORDER:
        if less in given and more in given and value_of(given[less]) > value_of(given[more]):
            yield invalid(item(child(path, field), name), Named(given[shown]), text.format(given[less], given[more]))
    ratio, low, high = given.get("maxLimitRequestRatio"), given.get("min"), given.get("max")
    at = item(child(path, "maxLimitRequestRatio"), name)
    if ratio is not None and value_of(ratio) < 1:
        yield invalid(at, Named(ratio), f"ratio {ratio} is less than 1")
    if ratio is not None and low is not None and high is not None and value_of(low):
        max_ratio = value_of(high) / value_of(low)
        if value_of(ratio) > max_ratio:
            yield invalid(at, Named(ratio), f"ratio {ratio} is greater than max/min = {float(max_ratio):.6f}")
    default, request = given.get("default"), given.get("defaultRequest")
    if (
        default is not None
        and request is not None
        and not may_overcommit(name)
        and value_of(default) != value_of(request)
    ):
        text = f"default value {default} must equal to defaultRequest value {request} in {name}"
        yield invalid(item(child(path, "defaultRequest"), name), Named(request), text)


def sum_of(quantities: Sequence[str]) -> str:
    """Return the sum of quantities as a quantity, rounded up to thousandths."""
    total = sum((value_of(one) for one in quantities), Fraction(0))
    return canonical(f"{_milli(total)}m")
