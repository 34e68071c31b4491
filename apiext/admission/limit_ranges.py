"""LimitRanger: defaults and limits of the resources of pods and claims.

Upstream: plugin/pkg/admission/limitranger.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from math import ceil
from typing import Any

from apiext.admission.attributes import Attributes
from apiext.admission.object_lookup import CLAIMS, LIMIT_RANGES, PODS, ObjectLookup, forbidden
from apiext.documents.document import Document, View
from apiext.go_types.pod_resources import Amounts, limits_of, requests_of
from apiext.go_types.quantities import canonical, value_of

ANNOTATION = "kubernetes.io/limit-ranger"
_MAX_MILLI = (2**63 - 1) // 1000
_NONE: Amounts = {}


async def set_defaults(attributes: Attributes, new: Document, lookup: ObjectLookup) -> None:
    """Set the default requests and limits of the LimitRanges in the containers of a pod.

    The pod is new or resized.
    """
    if attributes.resource != PODS or not _is_limited(attributes):
        return
    for found in await _limit_ranges(attributes, lookup):
        notes = list(_set_defaults(new["spec"], found))
        if notes:
            annotations = new["metadata"].get("annotations") or {}
            text = f"LimitRanger plugin set: {'; '.join(notes)}"
            new["metadata"]["annotations"] = {**annotations, ANNOTATION: text}


async def check_limits(attributes: Attributes, new: Document, lookup: ObjectLookup) -> None:
    """Deny a pod or a claim that violates a LimitRange of its namespace."""
    if not _is_limited(attributes):
        return
    check = _claim_errors if attributes.resource == CLAIMS else _pod_errors
    for found in await _limit_ranges(attributes, lookup):
        errors = list(dict.fromkeys(check(new.get("spec") or {}, found)))
        if errors:
            raise forbidden(attributes, errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]")


def _is_limited(attributes: Attributes) -> bool:
    """Report whether limits apply to a write.

    Limits apply to no update of a pod except a resize, and to no update of an object during its deletion.
    """
    old = attributes.old
    if old is not None and (old.get("metadata") or {}).get("deletionTimestamp"):
        return False
    if attributes.subresource == "resize":
        return attributes.operation == "UPDATE"
    return not (attributes.resource == PODS and attributes.operation == "UPDATE")


async def _limit_ranges(attributes: Attributes, lookup: ObjectLookup) -> list[list[View]]:
    """Return the ``spec.limits`` of each LimitRange of the namespace."""
    found = await lookup.every(LIMIT_RANGES, attributes.namespace or "")
    return [(one.get("spec") or {}).get("limits") or [] for one in found]


# --- defaults ---


def _set_defaults(spec: Document, limits: Sequence[View]) -> Iterator[str]:
    """Set defaults in a pod.

    For each container, yield a note if its requests changed, and one if its limits did.
    """
    default_requests: dict[str, str] = {}
    default_limits: dict[str, str] = {}
    for limit in limits:
        if limit.get("type") == "Container":
            default_requests.update(limit.get("defaultRequest") or {})
            default_limits.update(limit.get("default") or {})
    for field, called in (("containers", "container"), ("initContainers", "init container")):
        for container in spec.get(field) or ():
            resources = dict(container.get("resources") or {})
            defaults = (("requests", default_requests), ("limits", default_limits))
            added = {part: _add(resources, part, wanted) for part, wanted in defaults}
            if any(added.values()):
                container["resources"] = resources
            for part, names in added.items():
                if names:
                    yield f"{', '.join(names)} {part[:-1]} for {called} {container.get('name') or ''}"


def _add(resources: Document, part: str, wanted: Mapping[str, str]) -> list[str]:
    """Add missing amounts to the requests or limits of a container (``part``).

    Return the names of these amounts.
    """
    given = resources.get(part) or {}
    missing = sorted(wanted.keys() - given.keys())
    if missing:
        resources[part] = {**given, **{name: wanted[name] for name in missing}}
    return missing


# --- limits ---


def _claim_errors(spec: View, limits: Sequence[View]) -> Iterator[str]:
    requests = (spec.get("resources") or {}).get("requests") or _NONE
    for limit in limits:
        if limit.get("type") == "PersistentVolumeClaim":
            yield from _each(limit, "min", _below, requests, _NONE)
            yield from _each(limit, "max", _request_above, requests, _NONE)


def _pod_errors(spec: View, limits: Sequence[View]) -> Iterator[str]:
    for limit in limits:
        if limit.get("type") == "Container":
            for field in ("containers", "initContainers"):
                for container in spec.get(field) or ():
                    resources = container.get("resources") or {}
                    yield from _errors(limit, resources.get("requests") or _NONE, resources.get("limits") or _NONE)
        elif limit.get("type") == "Pod":
            yield from _errors(limit, requests_of(spec), limits_of(spec))


def _errors(limit: View, requests: Amounts, limits: Amounts) -> Iterator[str]:
    yield from _each(limit, "min", _below, requests, limits)
    yield from _each(limit, "max", _above, requests, limits)
    yield from _each(limit, "maxLimitRequestRatio", _ratio_above, requests, limits)


Constraint = Callable[[str, str, str, str | None, str | None], str]
"""(resource, type, enforced quantity, request, limit) → the error; empty if the constraint holds."""


def _each(limit: View, field: str, constraint: Constraint, requests: Amounts, limits: Amounts) -> Iterator[str]:
    kind = limit.get("type") or ""
    for name, enforced in sorted((limit.get(field) or {}).items()):
        if error := constraint(name, kind, enforced, requests.get(name), limits.get(name)):
            yield error


def _below(name: str, kind: str, enforced: str, request: str | None, limit: str | None) -> str:
    text = f"minimum {name} usage per {kind} is {canonical(enforced)}"
    if request is None:
        return f"{text}.  No request is specified"
    requested, limited, minimum = _comparable(request, limit or "0", enforced)
    if requested < minimum:
        return f"{text}, but request is {canonical(request)}"
    return f"{text}, but limit is {canonical(limit)}" if limit is not None and limited < minimum else ""


def _request_above(name: str, kind: str, enforced: str, request: str | None, limit: str | None) -> str:
    text = f"maximum {name} usage per {kind} is {canonical(enforced)}"
    if request is None:
        return f"{text}.  No request is specified"
    requested, _, maximum = _comparable(request, "0", enforced)
    return f"{text}, but request is {canonical(request)}" if requested > maximum else ""


def _above(name: str, kind: str, enforced: str, request: str | None, limit: str | None) -> str:
    text = f"maximum {name} usage per {kind} is {canonical(enforced)}"
    if limit is None:
        return f"{text}.  No limit is specified"
    requested, limited, maximum = _comparable(request or "0", limit, enforced)
    if limited > maximum:
        return f"{text}, but limit is {canonical(limit)}"
    return f"{text}, but request is {canonical(request)}" if request is not None and requested > maximum else ""


def _ratio_above(name: str, kind: str, enforced: str, request: str | None, limit: str | None) -> str:
    text = f"{name} max limit to request ratio per {kind} is {canonical(enforced)}"
    requested, limited, _ = _comparable(request or "0", limit or "0", enforced)
    if not requested:
        return f"{text}, but no request is specified or request is 0"
    if not limited:
        return f"{text}, but no limit is specified or limit is 0"
    if limited / requested > value_of(enforced):
        return f"{text}, but provided ratio is {float(limited / requested):f}"
    return ""


def _comparable(request: str, limit: str, enforced: str) -> tuple[Fraction, Fraction, Fraction]:
    """Return request, limit and enforced quantity in thousandths, rounded up.

    If one of them is too large for int64 in thousandths, return all three rounded up to integers.
    """
    values: list[Any] = [value_of(text) for text in (request, limit, enforced)]
    scale = 1000 if all(ceil(value) <= _MAX_MILLI for value in values) else 1
    first, second, third = (Fraction(ceil(value * scale)) for value in values)
    return first, second, third
