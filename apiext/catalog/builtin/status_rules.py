"""Validation of status writes for several built-in kinds.

The kinds are pods, workloads, autoscalers, budgets, ingresses and claims. Rows of go_types/types name the
functions. Each returns the errors of a write; ``old`` is the stored object.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

from apiext.catalog.builtin import ips
from apiext.catalog.builtin.condition_rules import condition_errors
from apiext.catalog.builtin.pod_rules import at_least_zero
from apiext.catalog.builtin.quantity_rules import is_native
from apiext.documents.document import Document, View
from apiext.go_types.quantities import value_of
from apiext.meta import syntax
from apiext.meta.fields import (
    INTERNAL,
    Errors,
    FieldError,
    child,
    duplicate,
    forbidden,
    invalid,
    item,
    not_supported,
    required,
    too_long,
)

Validate = Callable[[View, View | None], list[FieldError]]

_RESIZES = (
    "ControllerResizeInProgress", "ControllerResizeInfeasible", "NodeResizeInProgress", "NodeResizeInfeasible",
    "NodeResizePending",
)  # fmt: skip


def _status(document: View | None) -> View:
    return (document or {}).get("status") or {}


def _counters(*counts: str, at_most_replicas: Sequence[str] = (), ready: str = "") -> Validate:
    """Return the function that validates the counts in a status.

    No count may be negative. The counts in ``at_most_replicas`` may not exceed ``replicas``. If ``ready`` is not empty,
    availableReplicas may not exceed readyReplicas; ``ready`` is the name of readyReplicas in the error. If
    collisionCount is one of the counts, an update may neither decrease nor remove it.
    """

    def validate(new: View, old: View | None) -> list[FieldError]:
        status, before = _status(new), _status(old).get("collisionCount")
        errors = Errors()
        for name in counts:
            errors += at_least_zero(status.get(name), f"status.{name}")
        for name in at_most_replicas:
            if (status.get(name) or 0) > (status.get("replicas") or 0):
                errors.append(invalid(f"status.{name}", status[name], "cannot be greater than status.replicas"))
        available = status.get("availableReplicas") or 0
        if ready and available > (status.get("readyReplicas") or 0):
            errors.append(invalid("status.availableReplicas", available, f"cannot be greater than {ready}"))
        count = status.get("collisionCount")
        if before is not None and "collisionCount" in counts and (count is None or count < before):
            errors.append(invalid("status.collisionCount", count or 0, "cannot be decremented"))
        return errors

    return validate


validate_deployment_status = _counters(
    "observedGeneration", "replicas", "updatedReplicas", "readyReplicas", "availableReplicas", "unavailableReplicas",
    "terminatingReplicas", "collisionCount",
    at_most_replicas=("updatedReplicas", "readyReplicas", "availableReplicas"), ready="readyReplicas",
)  # fmt: skip
validate_stateful_set_status = _counters(
    "replicas", "readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas", "observedGeneration",
    "collisionCount",
    at_most_replicas=("readyReplicas", "currentReplicas", "updatedReplicas", "availableReplicas"),
    ready="status.readyReplicas",
)  # fmt: skip
validate_replica_set_status = _counters(
    "replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas", "observedGeneration",
    "terminatingReplicas",
    at_most_replicas=("fullyLabeledReplicas", "readyReplicas", "availableReplicas"), ready="readyReplicas",
)  # fmt: skip
"""Also the validation of replication controllers, which have no ``terminatingReplicas``."""
validate_daemon_set_status = _counters(
    "currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady", "observedGeneration",
    "updatedNumberScheduled", "numberAvailable", "numberUnavailable", "collisionCount",
)  # fmt: skip
_budget_counts = _counters("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")
_autoscaler_counts = _counters("currentReplicas", "desiredReplicas")


def validate_budget_status(new: View, old: View | None) -> list[FieldError]:
    """Return the validation errors of the status of a pod disruption budget."""
    errors = Errors(condition_errors(_status(new).get("conditions") or (), "status.conditions"))
    errors += _budget_counts(new, old)
    return errors


def validate_autoscaler_status(new: View, old: View | None) -> list[FieldError]:
    """Return the validation errors of the status of a horizontal pod autoscaler."""
    errors = Errors()
    for index, condition in enumerate(_status(new).get("conditions") or ()):
        errors += at_least_zero(condition.get("observedGeneration"), f"status.conditions[{index}].observedGeneration")
    errors += _autoscaler_counts(new, old)
    return errors


def validate_ingress_status(new: View, old: View | None) -> list[FieldError]:
    """Return the validation errors of the load balancer's addresses in the status of an ingress."""
    stored = [point.get("ip") or "" for point in _points(old)]
    errors = Errors()
    for index, point in enumerate(_points(new)):
        path = f"status.loadBalancer.ingress[{index}]"
        if address := point.get("ip"):
            errors += ips.address_errors(child(path, "ip"), address, stored)
        if name := point.get("hostname"):
            at = child(path, "hostname")
            errors += (invalid(at, name, fault) for fault in syntax.dns1123_subdomain(name))
            if ips.address_of(name) is not None:
                errors.append(invalid(at, name, "must be a DNS name, not an IP address"))
    return errors


def _points(document: View | None) -> Sequence[View]:
    return (_status(document).get("loadBalancer") or {}).get("ingress") or ()


def validate_claim_status(new: View, old: View | None) -> list[FieldError]:
    """Return the errors of amounts and resizes in the status of a persistent volume claim.

    A claim without ``spec.accessModes`` is an error, too.
    """
    status = _status(new)
    errors = Errors()
    if not (new.get("spec") or {}).get("accessModes"):
        errors.append(required("Spec.accessModes"))
    for name, quantity in sorted((status.get("capacity") or {}).items()):
        errors += _amount(quantity, item("status.capacity", name))
    path = "status.allocatedResourceStatuses"
    for name, resize in sorted((status.get("allocatedResourceStatuses") or {}).items()):
        errors += _claim_resource(name, path)
        if resize not in _RESIZES:
            errors.append(not_supported(path, name, _RESIZES))
    path = "status.allocatedResources"
    for name, quantity in sorted((status.get("allocatedResources") or {}).items()):
        faults = list(_claim_resource(name, path))
        errors += faults or _amount(quantity, item(path, name))
    return errors


def _amount(quantity: str, path: str) -> Iterator[FieldError]:
    value = value_of(quantity)
    if value < 0:
        yield invalid(path, -(-value.numerator // value.denominator), "must be a valid resource quantity")


def _claim_resource(name: str, path: str) -> Iterator[FieldError]:
    faults = syntax.qualified_name(name)
    yield from (invalid(path, name, fault) for fault in faults)
    if not faults and is_native(name) and name != "storage":
        yield not_supported(path, name, ("storage",))


# --- pods ---

_SYSTEM_CONDITIONS = ("PodScheduled", "Ready", "Initialized")
_STATUSES: Mapping[str, str] = {"containerStatuses": "containers", "initContainerStatuses": "initContainers"}
"""Field of the status → field of the spec with the same containers."""
_EPHEMERAL = "ephemeralContainerStatuses"
_HEALTHS = ("Healthy", "Unhealthy", "Unknown")
_LARGEST_UID, _LARGEST_GID = 2**32 - 1, 2**31 - 1
_NO_REVIVAL = "may not be transitioned to non-terminated state"


def validate_pod_status(new: View, old: View | None) -> list[FieldError]:
    """Return the validation errors of the status of a pod."""
    spec: View = new.get("spec") or {}
    status, before = _status(new), _status(old)
    errors = Errors(_pod_conditions(status.get("conditions") or ()))
    errors += _nominated(status, before, bound=bool(((old or {}).get("spec") or {}).get("nodeName")))
    if (generation := status.get("observedGeneration") or 0) < 0:
        errors.append(invalid("status.observedGeneration", generation, "must be a non-negative integer"))
    if old is not None and (status.get("qosClass") or "") != (before.get("qosClass") or ""):
        errors.append(invalid("status.qosClass", status.get("qosClass") or "", "field is immutable"))
    errors += _revived(spec, status, before)
    errors += _claim_statuses(spec, status.get("resourceClaimStatuses") or ())
    errors += _addresses(status, before, "podIP")
    errors += _addresses(status, before, "hostIP")
    for field in (*_STATUSES, _EPHEMERAL):
        for index, container in enumerate(status.get(field) or ()):
            errors += _user(container, f"status.{field}[{index}].user.linux", spec)
    errors += _allocations(spec, status)
    for field in (*_STATUSES, _EPHEMERAL):
        for index, container in enumerate(status.get(field) or ()):
            errors += _mounted_images(container, f"status.{field}[{index}].volumeMounts")
    return errors


def _pod_conditions(conditions: Sequence[View]) -> Iterator[FieldError]:
    for index, condition in enumerate(conditions):
        path, kind = f"status.conditions[{index}]", condition.get("type") or ""
        if (generation := condition.get("observedGeneration") or 0) < 0:
            yield invalid(child(path, "observedGeneration"), generation, "must be a non-negative integer")
        if kind not in _SYSTEM_CONDITIONS:
            yield from (invalid(child(path, "Type"), kind, fault) for fault in syntax.qualified_name(kind))


def _nominated(status: View, before: View, *, bound: bool) -> Iterator[FieldError]:
    path, name = "status.nominatedNodeName", status.get("nominatedNodeName") or ""
    if name and name != before.get("nominatedNodeName"):
        yield from (invalid(path, name, fault) for fault in syntax.dns1123_subdomain(name))
        if bound:
            yield forbidden(path, "may not be set on pods that are already bound to a node")


def _revived(spec: View, status: View, before: View) -> Iterator[FieldError]:
    """Yield an error for each terminated container that runs again against its restart policy.

    A terminated ephemeral container may never run again. If a rule of any container has the action
    RestartAllContainers, all containers that are not ephemeral may run again.
    """
    containers = {name: spec.get(name) or () for name in _STATUSES.values()}
    rules = [rule for some in containers.values() for one in some for rule in one.get("restartPolicyRules") or ()]
    if not any(rule.get("action") == "RestartAllContainers" for rule in rules):
        for field, name in _STATUSES.items():
            yield from _revived_of(field, status, before, {one.get("name"): one for one in containers[name]}, spec)
    yield from _revived_of(_EPHEMERAL, status, before, {}, spec)


def _revived_of(
    field: str, status: View, before: View, containers: Mapping[str | None, View], spec: View
) -> Iterator[FieldError]:
    running = {one.get("name") for one in status.get(field) or () if _terminated(one) is None}
    for index, one in enumerate(before.get(field) or ()):
        last, name = _terminated(one), one.get("name")
        if last is not None and name in running:
            container = containers.get(name)
            if container is None or not _restarts(container, spec, last.get("exitCode") or 0):
                yield forbidden(f"status.{field}[{index}].state", _NO_REVIVAL)


def _terminated(status: View) -> View | None:
    ended: View | None = (status.get("state") or {}).get("terminated")
    return ended


def _restarts(container: View, spec: View, code: int) -> bool:
    """Return whether a container starts again after this exit code.

    If the container has a restart policy, its first restart rule that matches the exit code decides. Without such a
    rule, the restart policy of the container decides, or that of the pod if the container has none.
    """
    policy = container.get("restartPolicy")
    if policy is not None:
        for rule in container.get("restartPolicyRules") or ():
            codes = rule.get("exitCodes") or {}
            listed = code in (codes.get("values") or ())
            if codes and listed is (codes.get("operator") == "In"):
                return rule.get("action") in ("Restart", "RestartAllContainers") or _by_policy(policy, code)
    return _by_policy(policy or spec.get("restartPolicy"), code)


def _by_policy(policy: str | None, code: int) -> bool:
    return code != 0 if policy == "OnFailure" else policy != "Never"


def _claim_statuses(spec: View, statuses: Sequence[View]) -> Iterator[FieldError]:
    names, seen = {claim.get("name") for claim in spec.get("resourceClaims") or ()}, set[str]()
    for index, status in enumerate(statuses):
        path, name = f"status.resourceClaimStatuses[{index}]", status.get("name") or ""
        if name not in names:
            yield invalid(child(path, "name"), name, "must match the name of an entry in `spec.resourceClaims`")
        if name in seen:
            yield duplicate(child(path, "name"), name)
        seen.add(name)
        if claim := status.get("resourceClaimName"):
            yield from (
                invalid(child(path, "resourceClaimName"), claim, fault) for fault in syntax.dns1123_subdomain(claim)
            )


def _addresses(status: View, before: View, single: str) -> Iterator[FieldError]:
    """Yield the errors of ``podIPs`` or ``hostIPs``.

    Their first address must equal ``podIP`` or ``hostIP``.
    """
    field = f"{single}s"
    path, first = f"status.{field}", status.get(single) or ""
    found: Sequence[View] = status.get(field) or ()
    mismatch = invalid(f"{path}[0].ip", found[0].get("ip") or "", f"must be equal to `{single}`") if found else None
    if single == "hostIP" and mismatch is not None and first != (found[0].get("ip") or ""):
        yield mismatch
    stored = [one.get("ip") or "" for one in before.get(field) or ()]
    for index, one in enumerate(found):
        yield from ips.address_errors(item(path, index), one.get("ip") or "", stored)
    if len(found) > 1:
        parsed = [ips.address_of(one.get("ip") or "") for one in found]
        for index, (one, address) in enumerate(zip(found, parsed, strict=True)):
            if address is None:
                text = f"failed to check for dual stack with error:invalid IP[{index}]: {one.get('ip') or ''}"
                yield FieldError(INTERNAL, path, f"Internal error: {text}")
                break
        if len(found) > 2 or {address.version for address in parsed if address} != {4, 6}:
            yield invalid(path, _shown(found), "may specify no more than one IP for each IP family")
    if single == "podIP":
        if bool(first) is not bool(found):
            yield invalid(path, _shown(found), "podIP and podIPs must either both be set or both be unset")
        elif mismatch is not None and first != (found[0].get("ip") or ""):
            yield mismatch


def _shown(addresses: Sequence[View]) -> list[Document] | None:
    """Return addresses with the field names of upstream's internal type, as errors show them."""
    return [{"IP": one.get("ip") or ""} for one in addresses] or None


def _user(container: View, path: str, spec: View) -> Iterator[FieldError]:
    user: View | None = (container.get("user") or {}).get("linux")
    if user is None:
        return
    if (spec.get("os") or {}).get("name") == "windows":
        yield forbidden(path, "cannot be set for a windows pod")
        return
    if not 0 <= (uid := user.get("uid") or 0) <= _LARGEST_UID:
        yield invalid(child(path, "uid"), uid, f"must be between 0 and {_LARGEST_UID}, inclusive")
    groups = [(child(path, "gid"), user.get("gid") or 0)]
    groups += [
        (f"{path}.supplementalGroups[{index}]", gid) for index, gid in enumerate(user.get("supplementalGroups") or ())
    ]
    for at, gid in groups:
        if not 0 <= gid <= _LARGEST_GID:
            yield invalid(at, gid, f"must be between 0 and {_LARGEST_GID}, inclusive")


def _allocations(spec: View, status: View) -> Iterator[FieldError]:
    for field, name in _STATUSES.items():
        containers = {one.get("name"): one for one in spec.get(name) or ()}
        for index, one in enumerate(status.get(field) or ()):
            path = f"status.{field}[{index}].allocatedResourcesStatus"
            for number, allocated in enumerate(one.get("allocatedResourcesStatus") or ()):
                yield from _allocated(allocated, item(path, number), containers.get(one.get("name")))
    for index, one in enumerate(status.get(_EPHEMERAL) or ()):
        if one.get("allocatedResourcesStatus"):
            path = f"status.{_EPHEMERAL}[{index}].allocatedResourcesStatus"
            yield forbidden(path, "must not be specified in container status")


def _allocated(allocated: View, path: str, container: View | None) -> Iterator[FieldError]:
    name: str = allocated.get("name") or ""
    resources: View = (container or {}).get("resources") or {}
    if container is not None:
        if name.startswith("claim:"):
            claims = [
                f"claim:{one.get('name') or ''}" + (f"/{one['request']}" if one.get("request") else "")
                for one in resources.get("claims") or ()
            ]
            if name not in claims:
                yield invalid(child(path, "name"), name, _CLAIM_FAULT)
        elif name not in (resources.get("requests") or {}):
            yield invalid(child(path, "name"), name, "must match one of the container's resource requests")
    seen = set[str]()
    for index, one in enumerate(allocated.get("resources") or ()):
        at, health, identity = f"{path}.resources[{index}]", one.get("health") or "", one.get("resourceID") or ""
        if health not in _HEALTHS:
            yield not_supported(child(at, "health"), health, _HEALTHS)
        if identity in seen:
            yield duplicate(child(at, "resourceID"), identity)
        seen.add(identity)


_CLAIM_FAULT = (
    "must match one of the container's resource claims as 'claim:<claimName>/<requestName>' when "
    "container.resources.claims[*].request is set or 'claim:<claimName>' when it is empty"
)


def _mounted_images(container: View, path: str) -> Iterator[FieldError]:
    for index, mount in enumerate(container.get("volumeMounts") or ()):
        image: View | None = (mount.get("volumeStatus") or {}).get("image")
        at = f"{path}[{index}].volumeStatus.imageVolumeStatus.imageRef"
        reference = (image or {}).get("imageRef") or ""
        if image is not None and not reference:
            yield required(at, "imageRef must not be empty")
        elif len(reference.encode()) > _LONGEST_REFERENCE:
            yield too_long(at, _LONGEST_REFERENCE)


_LONGEST_REFERENCE = 256
