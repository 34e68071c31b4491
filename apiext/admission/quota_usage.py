"""Evaluators of the quota usage of pods, services and claims, beyond the number of objects.

Upstream: pkg/quota/v1/evaluator/core and apiserver/pkg/quota/v1. For all other resources, a quota limits only the
number of objects, as ``count/<resource>.<group>`` (some core resources: also ``<resource>``). ``hard`` means the field
spec.hard of a quota: the names of the limited amounts, with their limits.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import timedelta
from functools import lru_cache
from typing import NamedTuple

from apiext.admission.attributes import Attributes
from apiext.admission.object_lookup import CLAIMS, PODS
from apiext.documents.document import View
from apiext.go_types.pod_resources import Amounts, all_limits_of, all_requests_of
from apiext.go_types.quantities import canonical, minus, plus, value_of
from apiext.meta.names import GroupResource
from apiext.meta.time import now, parse

SERVICES = GroupResource("", "services")
_ZERO, _ONE = "0", "1"
_COUNT = "count/"
_REQUESTS, _LIMITS = "requests.", "limits."
_HUGE_PAGES = "hugepages-"
_DEVICE_CLASS = "deviceclass.resource.kubernetes.io/"
_STORAGE_CLASS = ".storageclass.storage.k8s.io/"
_ALIASES = frozenset(("configmaps", "resourcequotas", "replicationcontrollers", "secrets"))
"""Core resources that quotas also count under their plain name, such as ``secrets``."""


class Requirement(NamedTuple):
    """A scope of a quota: its name, operator and values."""

    scope: str
    operator: str
    values: Sequence[str]


class Evaluator(NamedTuple):
    """Measures how objects of a resource use a quota.

    ``handles`` reports whether a write may change the usage. ``tracks`` reports whether a name in ``hard`` belongs to
    the resource. ``usage`` returns the amounts of an object. ``in_scope`` reports whether an object is in a scope.
    ``missing(names, object)`` returns the error for an object that must specify an amount but does not; else empty.
    """

    handles: Callable[[Attributes], bool]
    tracks: Callable[[str], bool]
    usage: Callable[[View], Amounts]
    in_scope: Callable[[Requirement, View], bool] = lambda _, __: False
    missing: Callable[[Iterable[str], View], str] = lambda _, __: ""


@lru_cache(1024)
def evaluator_of(resource: GroupResource) -> Evaluator:
    """Return the evaluator of a resource."""
    if (found := _EVALUATORS.get(resource)) is not None:
        return found
    names = (
        count_of(resource),
        *((resource.resource,) if not resource.group and resource.resource in _ALIASES else ()),
    )
    usage = dict.fromkeys(names, _ONE)
    return Evaluator(_creates, lambda name: name in names, lambda _: usage)


def count_of(resource: GroupResource) -> str:
    """Return the name under which quotas count the objects of a resource."""
    return f"{_COUNT}{resource}"


def measured(name: str) -> GroupResource | None:
    """Return the resource that a name in ``hard`` limits, None for an unknown name."""
    if name.startswith(_COUNT):
        resource, _, group = name.removeprefix(_COUNT).partition(".")
        return GroupResource(group, resource)
    if name in _ALIASES:
        return GroupResource("", name)
    return next((resource for resource, one in _EVALUATORS.items() if one.tracks(name)), None)


def requirements_of(spec: View) -> list[Requirement]:
    """Return the scopes of a quota, from ``scopes`` and ``scopeSelector``."""
    expressions = (spec.get("scopeSelector") or {}).get("matchExpressions") or ()
    found = [(one.get("scopeName") or "", one.get("operator") or "", one.get("values") or ()) for one in expressions]
    return [Requirement(*one) for one in [*((scope, "Exists", ()) for scope in spec.get("scopes") or ()), *found]]


def matches(evaluator: Evaluator, spec: View, found: View) -> bool:
    """Report whether an object is in all scopes of a quota."""
    return all(evaluator.in_scope(requirement, found) for requirement in requirements_of(spec))


# --- amounts ---


def added(one: Amounts, other: Amounts) -> dict[str, str]:
    """Return the sums of the amounts with the same name; keep the other amounts."""
    total = dict(one)
    for name, amount in other.items():
        total[name] = plus(total[name], amount) if name in total else amount
    return total


def subtracted(one: Amounts, other: Amounts) -> dict[str, str]:
    """Return ``one`` minus ``other`` for each name in ``one``; negative amounts become zero."""
    found = {name: minus(amount, other[name]) if name in other else amount for name, amount in one.items()}
    return {name: amount if value_of(amount) > 0 else _ZERO for name, amount in found.items()}


def equal(one: Amounts, other: Amounts) -> bool:
    """Report whether ``one`` and ``other`` have the same names with equal values."""
    return one.keys() == other.keys() and all(value_of(one[name]) == value_of(other[name]) for name in one)


def higher(one: Amounts, other: Amounts) -> dict[str, str]:
    """Return for each name in ``one`` the higher of its amounts in ``one`` and ``other``."""
    return {
        name: other[name] if name in other and value_of(other[name]) > value_of(amount) else amount
        for name, amount in one.items()
    }


def amounts_text(amounts: Amounts) -> str:
    """Return amounts as text for a message, such as ``cpu=1,memory=2Gi``."""
    return ",".join(f"{name}={canonical(amounts[name])}" for name in sorted(amounts))


# --- pods ---


_COMPUTED = frozenset(
    (
        "count/pods", "pods", "cpu", "memory", "ephemeral-storage", "requests.cpu", "requests.memory",
        "requests.ephemeral-storage", "limits.cpu", "limits.memory", "limits.ephemeral-storage",
    )
)  # fmt: skip
_DEMANDED = frozenset(("cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"))
"""Amounts that each container must specify if a quota limits them.

A pod that itself specifies cpu, memory or huge pages is an exception.
"""
_NATIVE = "kubernetes.io/"


def _tracks_of_pods(name: str) -> bool:
    if name in _COMPUTED or name.startswith((_HUGE_PAGES, f"{_REQUESTS}{_HUGE_PAGES}")):
        return True
    is_native = "/" not in name or _NATIVE in name
    return name.startswith(_REQUESTS) and (not is_native or name.startswith(f"{_REQUESTS}{_DEVICE_CLASS}"))


def _compute(requests: Amounts, limits: Amounts) -> dict[str, str]:
    """Return the requests and limits of a pod or container, named as in quotas, and ``pods``: 1."""
    found = {"pods": _ONE}
    for name in ("cpu", "memory", "ephemeral-storage"):
        if name in requests:
            found[name] = found[f"{_REQUESTS}{name}"] = requests[name]
        if name in limits:
            found[f"{_LIMITS}{name}"] = limits[name]
    for name, amount in requests.items():
        if name.startswith(_HUGE_PAGES):
            found[name] = found[f"{_REQUESTS}{name}"] = amount
        is_extended = "/" in name and _NATIVE not in name and not name.startswith(_REQUESTS)
        if is_extended or name.startswith(_DEVICE_CLASS):
            found[f"{_REQUESTS}{name}"] = amount
    return found


def _usage_of_pod(pod: View) -> Amounts:
    """Return the amounts of a pod; a pod that is not alive uses only ``count/pods``."""
    counted = {"count/pods": _ONE}
    if not _is_alive(pod):
        return counted
    spec = pod.get("spec") or {}
    return {**counted, **_compute(all_requests_of(spec), all_limits_of(spec))}


def _is_alive(pod: View) -> bool:
    """Report whether a pod uses resources.

    A pod uses no resources if it has ended, or after its deletionTimestamp plus its grace period.
    """
    if (pod.get("status") or {}).get("phase") in ("Failed", "Succeeded"):
        return False
    metadata = pod["metadata"]
    due, grace = metadata.get("deletionTimestamp"), metadata.get("deletionGracePeriodSeconds")
    return due is None or grace is None or parse(now()) <= parse(due) + timedelta(seconds=grace)


def _missing_of_pod(names: Iterable[str], pod: View) -> str:
    spec = pod.get("spec") or {}
    own = spec.get("resources") or {}
    if any(
        name in ("cpu", "memory") or name.startswith(_HUGE_PAGES)
        for part in ("requests", "limits")
        for name in own.get(part) or ()
    ):
        return ""
    demanded, lacking = _DEMANDED.intersection(names), dict[str, set[str]]()
    for field in ("containers", "initContainers"):
        for container in spec.get(field) or ():
            resources = container.get("resources") or {}
            given = _compute(resources.get("requests") or {}, resources.get("limits") or {})
            for name in demanded - given.keys():
                lacking.setdefault(name, set()).add(container.get("name") or "")
    if not lacking:
        return ""
    return "must specify " + "; ".join(f"{name} for: {','.join(sorted(lacking[name]))}" for name in sorted(lacking))


def _handles_pod(attributes: Attributes) -> bool:
    if attributes.subresource == "resize":
        return attributes.operation == "UPDATE"
    if attributes.subresource:
        return False
    if attributes.operation == "UPDATE":
        return _has_deadline(attributes.new or {}) != _has_deadline(attributes.old or {})
    return attributes.operation == "CREATE"


def _has_deadline(pod: View) -> bool:
    seconds = (pod.get("spec") or {}).get("activeDeadlineSeconds")
    return seconds is not None and seconds >= 0


def _pod_in_scope(requirement: Requirement, pod: View) -> bool:
    scope, spec = requirement.scope, pod.get("spec") or {}
    is_best_effort = (pod.get("status") or {}).get("qosClass") == "BestEffort"
    if scope == "PriorityClass":
        name = spec.get("priorityClassName") or ""
        return bool(name) if requirement.operator == "Exists" else _selects(requirement, name)
    found = {
        "Terminating": _has_deadline(pod),
        "NotTerminating": not _has_deadline(pod),
        "BestEffort": is_best_effort,
        "NotBestEffort": not is_best_effort,
        "CrossNamespacePodAffinity": _crosses_namespaces(spec.get("affinity") or {}),
    }
    return found.get(scope, False)


def _selects(requirement: Requirement, value: str) -> bool:
    """Report whether a requirement selects a value, as a label selector does.

    An empty value means no value.
    """
    if requirement.operator == "Exists":
        return bool(value)
    if requirement.operator == "DoesNotExist":
        return not value
    is_named = bool(value) and value in requirement.values
    return is_named if requirement.operator == "In" else not is_named


def _crosses_namespaces(affinity: View) -> bool:
    for kind in ("podAffinity", "podAntiAffinity"):
        found = affinity.get(kind) or {}
        preferred = found.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
        terms = [*(one.get("podAffinityTerm") or {} for one in preferred)]
        terms += found.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
        if any(term.get("namespaces") or term.get("namespaceSelector") is not None for term in terms):
            return True
    return False


# --- services and claims ---


def _usage_of_service(service: View) -> Amounts:
    spec = service.get("spec") or {}
    ports, kind = spec.get("ports") or (), spec.get("type")
    opened = 0
    if kind in ("NodePort", "LoadBalancer"):
        allocates = kind == "NodePort" or spec.get("allocateLoadBalancerNodePorts") is not False
        opened = len(ports) if allocates else sum(1 for port in ports if port.get("nodePort"))
    return {
        "count/services": _ONE,
        "services": _ONE,
        "services.loadbalancers": _ONE if kind == "LoadBalancer" else _ZERO,
        "services.nodeports": str(opened),
    }


_OF_SERVICES = frozenset(("count/services", "services", "services.loadbalancers", "services.nodeports"))
_CLAIMED = ("persistentvolumeclaims", "requests.storage")


def _tracks_of_claims(name: str) -> bool:
    return name in ("count/persistentvolumeclaims", *_CLAIMED) or name.endswith(
        tuple(f"{_STORAGE_CLASS}{one}" for one in _CLAIMED)
    )


def _usage_of_claim(claim: View) -> Amounts:
    spec, status = claim.get("spec") or {}, claim.get("status") or {}
    annotations = claim["metadata"].get("annotations") or {}
    storage_class = annotations.get("volume.beta.kubernetes.io/storage-class", spec.get("storageClassName") or "")
    found = {"persistentvolumeclaims": _ONE}
    size = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    if size is not None:
        allocated = (status.get("allocatedResources") or {}).get("storage")
        if allocated is not None and value_of(allocated) > value_of(size):
            size = allocated
        found["requests.storage"] = canonical(size, 0)
    of_class = {f"{storage_class}{_STORAGE_CLASS}{name}": amount for name, amount in found.items()}
    return {"count/persistentvolumeclaims": _ONE, **found, **(of_class if storage_class else {})}


def _attributes_classes(claim: View) -> set[str]:
    status = claim.get("status") or {}
    names = (
        (claim.get("spec") or {}).get("volumeAttributesClassName"),
        status.get("currentVolumeAttributesClassName"),
        (status.get("modifyVolumeStatus") or {}).get("targetVolumeAttributesClassName"),
    )
    return {name for name in names if name}


def _claim_in_scope(requirement: Requirement, claim: View) -> bool:
    if requirement.scope != "VolumeAttributesClass":
        return False
    return any(_selects(requirement, name) for name in _attributes_classes(claim) or {""})


def _handles_claim(attributes: Attributes) -> bool:
    if attributes.subresource == "status":
        new, old = attributes.new or {}, attributes.old or {}
        allocated = [(one.get("status") or {}).get("allocatedResources") for one in (new, old)]
        return allocated[0] != allocated[1] or _attributes_classes(new) != _attributes_classes(old)
    return not attributes.subresource


def _creates(attributes: Attributes) -> bool:
    return attributes.operation == "CREATE" and not attributes.subresource


_EVALUATORS: Mapping[GroupResource, Evaluator] = {
    PODS: Evaluator(_handles_pod, _tracks_of_pods, _usage_of_pod, _pod_in_scope, _missing_of_pod),
    SERVICES: Evaluator(lambda one: not one.subresource, _OF_SERVICES.__contains__, _usage_of_service),
    CLAIMS: Evaluator(_handles_claim, _tracks_of_claims, _usage_of_claim, _claim_in_scope),
}
"""Resource → its evaluator. For all other resources, quotas only count objects."""
