"""Validation of workloads, budgets, runtime classes, nodes and revisions.

The functions validate templates, strategies and immutable fields.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from apiext.catalog.builtin.annotation_rules import node_annotation_errors
from apiext.catalog.builtin.claims import claim_errors
from apiext.catalog.builtin.ips import is_network, network_errors
from apiext.catalog.builtin.node_selectors import taint_errors, toleration_errors
from apiext.catalog.builtin.pod_rules import at_least_zero, template_errors
from apiext.catalog.builtin.quantity_rules import quantity_errors, requirement_errors
from apiext.catalog.builtin.requirements import selector_errors
from apiext.documents.document import View
from apiext.documents.equality import same
from apiext.meta import objectmeta, syntax
from apiext.meta.fields import INTERNAL, Errors, FieldError, duplicate, forbidden, invalid, not_supported, required
from apiext.meta.selectors import LabelSelector, SelectorError

_IMMUTABLE = "field is immutable"
_UNPARSED = "invalid label selector"
_PERCENT = re.compile("[0-9]+%")


def _selector(spec: View, of: str, unparsed: str | None) -> tuple[list[FieldError], LabelSelector | None]:
    """Return the validation errors of a selector, and the selector.

    The selector is None if it is absent or cannot be parsed. ``unparsed`` is the text of an additional error of a
    selector that cannot be parsed; with None there is no such error.
    """
    given = spec.get("selector")
    errors: list[FieldError] = []
    if given is None:
        errors.append(required("spec.selector"))
    else:
        errors += selector_errors(given, "spec.selector")
        if not given.get("matchLabels") and not given.get("matchExpressions"):
            errors.append(invalid("spec.selector", given, f"empty selector is invalid for {of}"))
    try:
        return errors, LabelSelector.from_document(given) if given is not None else None
    except SelectorError:
        return errors if unparsed is None else [*errors, invalid("spec.selector", given, unparsed)], None


def _template(spec: View, selector: LabelSelector | None, of: str) -> Iterator[FieldError]:
    """Yield the validation errors of a pod template whose restart policy must be Always."""
    template: View = spec.get("template") or {}
    labels: Mapping[str, str] = (template.get("metadata") or {}).get("labels") or {}
    if selector is None:
        if spec.get("selector") is None:  # an absent selector selects nothing
            yield _mismatch(labels)
    elif not selector.empty and not selector.matches(labels):
        yield _mismatch(labels)
    yield from template_errors(template, "spec.template")
    yield from _always(template, of)


def _mismatch(labels: Mapping[str, str]) -> FieldError:
    return invalid("spec.template.metadata.labels", labels or None, "`selector` does not match template `labels`")


def _always(template: View, of: str) -> Iterator[FieldError]:
    pods: View = template.get("spec") or {}
    if pods.get("restartPolicy") != "Always":
        yield not_supported("spec.template.spec.restartPolicy", pods.get("restartPolicy"), ("Always",))
    if pods.get("activeDeadlineSeconds") is not None:
        text = f"activeDeadlineSeconds in {of} is not Supported"
        yield forbidden("spec.template.spec.activeDeadlineSeconds", text)


def _counts(spec: View, *names: str) -> Iterator[FieldError]:
    for name in names:
        yield from at_least_zero(spec.get(name), f"spec.{name}")


def _fixed(new: View, old: View | None, *names: str) -> Iterator[FieldError]:
    """Yield the errors of changes of immutable fields in the spec."""
    before: View | None = None if old is None else old.get("spec") or {}
    spec = new.get("spec") or {}
    for name in names:
        if before is not None and not same(spec.get(name), before.get(name)):
            yield invalid(f"spec.{name}", spec.get(name), _IMMUTABLE)


def _share(value: Any, path: str) -> Iterator[FieldError]:
    """Yield the validation errors of a value that must be a number or a percentage."""
    if isinstance(value, int):
        yield from at_least_zero(value, path)
    elif value is not None and _percent(value) is None:
        text = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', "
        yield invalid(path, value, f"{text}regex used for validation is '[0-9]+%')")


def _percent(value: Any) -> int | None:
    """Return the number of a percentage; None for any other value.

    A number of more than three digits becomes 1000.
    """
    if not isinstance(value, str) or not _PERCENT.fullmatch(value):
        return None
    digits = value[:-1].lstrip("0")
    return int(digits or 0) if len(digits) <= 3 else 1000


def _is_zero(value: Any) -> bool:
    return not (value if isinstance(value, int) else _percent(value))


def validate_deployment(new: View, old: View | None) -> list[FieldError]:
    """Return the validation errors of a deployment."""
    spec: View = new.get("spec") or {}
    errors = Errors(_counts(spec, "replicas"))
    found, selector = _selector(spec, "deployment", _UNPARSED)
    errors += found
    if selector is not None or spec.get("selector") is None:
        errors += _template(spec, selector, "ReplicaSet")
    errors += _deployment_strategy(spec.get("strategy") or {})
    errors += _counts(spec, "minReadySeconds", "revisionHistoryLimit", "progressDeadlineSeconds")
    deadline, ready = spec.get("progressDeadlineSeconds"), spec.get("minReadySeconds") or 0
    if deadline is not None and deadline <= ready:
        errors.append(invalid("spec.progressDeadlineSeconds", deadline, "must be greater than minReadySeconds"))
    errors += _fixed(new, old, "selector")
    return errors


def _deployment_strategy(strategy: View) -> Iterator[FieldError]:
    kind, rolling = strategy.get("type"), strategy.get("rollingUpdate")
    path = "spec.strategy.rollingUpdate"
    if kind == "Recreate":
        if rolling is not None:
            yield forbidden(path, "may not be specified when strategy `type` is 'Recreate'")
    elif kind == "RollingUpdate":
        for name in ("maxUnavailable", "maxSurge"):
            yield from _share((rolling or {}).get(name), f"{path}.{name}")
        missing, more = (rolling or {}).get("maxUnavailable"), (rolling or {}).get("maxSurge")
        if _is_zero(missing) and _is_zero(more):
            yield invalid(f"{path}.maxUnavailable", missing, "may not be 0 when `maxSurge` is 0")
        if (_percent(missing) or 0) > 100:
            yield invalid(f"{path}.maxUnavailable", missing, "must not be greater than 100%")
    else:
        yield not_supported("spec.strategy", strategy, ("Recreate", "RollingUpdate"))


def validate_replica_set(new: View, old: View | None) -> list[FieldError]:
    """Return the validation errors of a replica set."""
    spec: View = new.get("spec") or {}
    errors = Errors(_counts(spec, "replicas", "minReadySeconds"))
    found, selector = _selector(spec, "deployment", _UNPARSED)
    errors += found
    if selector is not None or spec.get("selector") is None:
        errors += _template(spec, selector, "ReplicaSet")
    errors += _fixed(new, old, "selector")
    return errors


def validate_daemon_set(new: View, old: View | None) -> list[FieldError]:
    """Return the validation errors of a daemon set."""
    spec: View = new.get("spec") or {}
    errors = Errors(_fixed(new, old, "selector"))
    found, selector = _selector(spec, "daemonset", None)
    errors += found if spec.get("selector") is not None else ()
    errors += _template(spec, selector, "DaemonSet")
    errors += _counts(spec, "minReadySeconds")
    errors += _daemon_strategy(spec.get("updateStrategy") or {})
    errors += _counts(spec, "revisionHistoryLimit")
    return errors


def _daemon_strategy(strategy: View) -> Iterator[FieldError]:
    kind, rolling = strategy.get("type"), strategy.get("rollingUpdate")
    path = "spec.updateStrategy.rollingUpdate"
    if kind != "RollingUpdate":
        if kind != "OnDelete":
            yield not_supported("spec.updateStrategy", strategy, ("RollingUpdate", "OnDelete"))
    elif rolling is None:
        yield required(path)
    else:
        missing, more = rolling.get("maxUnavailable"), rolling.get("maxSurge")
        for name in ("maxUnavailable", "maxSurge"):
            yield from _share(rolling.get(name), f"{path}.{name}")
        for name in ("maxUnavailable", "maxSurge"):
            if (_percent(rolling.get(name)) or 0) > 100:
                yield invalid(f"{path}.{name}", rolling.get(name), "must not be greater than 100%")
        if not _is_zero(missing) and not _is_zero(more):
            yield invalid(f"{path}.maxSurge", more, "may not be set when maxUnavailable is non-zero")
        elif _is_zero(missing) and _is_zero(more):
            yield required(f"{path}.maxUnavailable", "cannot be 0 when maxSurge is 0")


def validate_stateful_set(new: View, old: View | None) -> list[FieldError]:
    """Return the validation errors of a stateful set.

    As upstream, its pod template is validated with the volumes of the claim templates, and without hostname and
    subdomain.
    """
    spec: View = new.get("spec") or {}
    errors = Errors()
    policy = spec.get("podManagementPolicy")
    if policy not in ("OrderedReady", "Parallel"):
        errors.append(invalid("spec.podManagementPolicy", policy, "must be 'OrderedReady' or 'Parallel'"))
    errors += _stateful_strategy(spec.get("updateStrategy") or {})
    retention: View = spec.get("persistentVolumeClaimRetentionPolicy") or {}
    for name in ("whenDeleted", "whenScaled") if retention else ():
        if retention.get(name) not in ("Retain", "Delete"):
            path = f"spec.persistentVolumeClaimRetentionPolicy.{name}"
            errors.append(not_supported(path, retention.get(name) or "", ("Retain", "Delete")))
    templates: Sequence[View] = spec.get("volumeClaimTemplates") or ()
    for index, claim in enumerate(templates if old is None else ()):  # an update cannot change them
        errors += claim_errors(claim.get("spec") or {}, f"spec.volumeClaimTemplates[{index}].spec", template=True)
    errors += _counts(spec, "replicas", "minReadySeconds")
    errors += at_least_zero((spec.get("ordinals") or {}).get("start"), "spec.ordinals.start")
    service = spec.get("serviceName") or ""
    if service and old is None:
        errors += (invalid("spec.serviceName", service, fault) for fault in syntax.dns1123_label(service))
    found, selector = _selector(spec, "statefulset", "")
    errors += found
    template: View = spec.get("template") or {}
    pods: View = template.get("spec") or {}
    claims = [(one.get("metadata") or {}).get("name") or "" for one in templates]
    own: list[View] = [{"name": name, "persistentVolumeClaim": {"claimName": name}} for name in dict.fromkeys(claims)]
    volumes = [*own, *(one for one in pods.get("volumes") or () if one.get("name") not in claims)]
    pods = {name: value for name, value in pods.items() if name not in ("hostname", "subdomain")} | {"volumes": volumes}
    if selector is not None or spec.get("selector") is None:
        errors += _template({**spec, "template": {**template, "spec": pods}}, selector, "StatefulSet")
    else:
        errors += _always(template, "StatefulSet")
    errors += _fixed(new, old, "selector", "volumeClaimTemplates", "serviceName", "podManagementPolicy")
    return errors


def _stateful_strategy(strategy: View) -> Iterator[FieldError]:
    kind, rolling = strategy.get("type"), strategy.get("rollingUpdate")
    path = "spec.updateStrategy.rollingUpdate"
    if not kind:
        yield required("spec.updateStrategy")
    elif kind == "OnDelete":
        if rolling is not None:
            yield invalid(path, rolling, "only allowed for updateStrategy 'RollingUpdate'")
    elif kind != "RollingUpdate":
        yield invalid("spec.updateStrategy", strategy, "must be 'RollingUpdate' or 'OnDelete'")
    elif rolling is not None:
        yield from at_least_zero(rolling.get("partition"), f"{path}.partition")
        missing = rolling.get("maxUnavailable")
        if missing is None:
            return
        yield from _share(missing, f"{path}.maxUnavailable")
        if _is_zero(missing):
            yield invalid(f"{path}.maxUnavailable", missing, "cannot be 0")
        if (_percent(missing) or 0) > 100:
            yield invalid(f"{path}.maxUnavailable", missing, "must not be greater than 100%")


def validate_replication_controller(new: View, old: View | None) -> list[FieldError]:
    """Return the validation errors of a replication controller, with those of a new name.

    As upstream, a prefix of a generated name is not validated.
    """
    spec: View = new.get("spec") or {}
    name: str = (new.get("metadata") or {}).get("name") or ""
    errors = Errors(_replication_errors(spec))
    if name and old is None:
        errors += (invalid("metadata.name", name, fault) for fault in syntax.long_name(name))
    return errors


def _replication_errors(spec: View) -> Iterator[FieldError]:
    selector: Mapping[str, str] = spec.get("selector") or {}
    if not selector:
        yield required("spec.selector")
    template = spec.get("template")
    if template is None:
        yield required("spec.template")
        return
    labels = (template.get("metadata") or {}).get("labels") or {}
    if selector and any(labels.get(key) != value for key, value in selector.items()):
        yield _mismatch(labels)
    yield from template_errors(template, "spec.template")
    yield from _always(template, "ReplicationController")


def validate_pod_template(new: View, old: View | None) -> list[FieldError]:
    """Return the validation errors of a pod template."""
    return Errors(template_errors(new.get("template") or {}, "template"))


# --- budgets, classes, nodes, revisions ---


def validate_budget(new: View, old: View | None) -> list[FieldError]:
    """Return the validation errors of a pod disruption budget."""
    spec: View = new.get("spec") or {}
    errors = Errors()
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        errors.append(invalid("spec", spec, "minAvailable and maxUnavailable cannot be both set"))
    for name in ("minAvailable", "maxUnavailable"):
        errors += _share(spec.get(name), f"spec.{name}")
        if (_percent(spec.get(name)) or 0) > 100:
            errors.append(invalid(f"spec.{name}", spec[name], "must not be greater than 100%"))
    errors += selector_errors(spec.get("selector"), "spec.selector")
    policy, supported_values = spec.get("unhealthyPodEvictionPolicy"), ("AlwaysAllow", "IfHealthyBudget")
    if policy is not None and policy not in supported_values:
        errors.append(not_supported("spec.unhealthyPodEvictionPolicy", policy, supported_values))
    return errors


def validate_runtime_class(new: View, old: View | None) -> list[FieldError]:
    """Return the validation errors of a runtime class."""
    handler: str = new.get("handler") or ""
    errors = Errors()
    if old is not None and handler:
        errors += (invalid("handler", handler, fault) for fault in syntax.dns1123_label(handler))
    overhead = (new.get("overhead") or {}).get("podFixed")
    if overhead is not None:
        errors += requirement_errors({"limits": overhead}, "overhead")
    scheduling = new.get("scheduling") or {}
    errors += objectmeta.label_errors(scheduling.get("nodeSelector") or {}, "scheduling.nodeSelector")
    tolerations = scheduling.get("tolerations") or ()
    errors += toleration_errors(tolerations, "scheduling.tolerations")
    for index, one in enumerate(tolerations):
        if one in tolerations[:index]:
            errors.append(duplicate(f"scheduling.tolerations[{index}]", one))
    if old is not None and not same(new.get("handler"), old.get("handler")):
        errors.append(invalid("handler", None, _IMMUTABLE))
    if not handler:
        errors.append(required("handler"))
    elif old is None:
        errors += (invalid("handler", handler, fault) for fault in syntax.short_name(handler))
    return errors


def validate_node(new: View, old: View | None) -> list[FieldError]:
    """Return the validation errors of a node."""
    spec, status = new.get("spec") or {}, new.get("status") or {}
    annotations: Mapping[str, str] = (new.get("metadata") or {}).get("annotations") or {}
    errors = Errors(node_annotation_errors(annotations, "metadata.annotations"))
    errors += taint_errors(spec.get("taints") or (), "metadata.taints")
    errors += _node_resources(status)
    ranges: Sequence[str] = spec.get("podCIDRs") or ()
    for index, cidr in enumerate(ranges):
        errors += network_errors(f"spec.podCIDRs[{index}]", cidr, ())
    unparsed = next((index for index, cidr in enumerate(ranges) if not is_network(cidr)), None)
    if len(ranges) > 1 and unparsed is not None:
        cause = f"invalid CIDR[{unparsed}]: <nil> (invalid CIDR address: {ranges[unparsed]})"
        text = f"Internal error: invalid PodCIDRs. failed to check with dual stack with error:{cause}"
        errors.append(FieldError(INTERNAL, "spec.podCIDRs", text))
    if len(ranges) > 1 and (len(ranges) > 2 or (":" in ranges[0]) is (":" in ranges[1])):
        errors.append(invalid("spec.podCIDRs", list(ranges), "may specify no more than one CIDR for each IP family"))
    if old is not None:
        errors += _node_changes(spec, old.get("spec") or {})
    return errors


def validate_node_status(new: View, old: View | None) -> list[FieldError]:
    """Return the validation errors of the status of a node."""
    status = new.get("status") or {}
    errors = Errors(_node_resources(status))
    addresses = status.get("addresses") or ()
    for index, one in enumerate(addresses):
        if one in addresses[:index]:
            errors.append(duplicate(f"status.addresses[{index}]", one))
    return errors


def _node_resources(status: View) -> Iterator[FieldError]:
    for field in ("capacity", "allocatable"):
        for name, quantity in (status.get(field) or {}).items():
            yield from quantity_errors(name, quantity, f"status.{field}.{name}")


def _node_changes(spec: View, before: View) -> Iterator[FieldError]:
    ranges, was = spec.get("podCIDRs") or (), before.get("podCIDRs") or ()
    text = 'node updates may not change podCIDR except from "" to valid'
    if was and len(was) != len(ranges):
        yield forbidden("spec.podCIDRs", text)
    else:
        yield from (forbidden("spec.podCIDRs", text) for one, last in zip(ranges, was, strict=False) if one != last)
    provider, last = spec.get("providerID") or "", before.get("providerID") or ""
    if last and provider != last:
        yield invalid("spec.providerID", None, f"field cannot be {'modified' if provider else 'cleared'} once set")
    if (spec.get("externalID") or "") != (before.get("externalID") or ""):
        yield forbidden("spec.externalID", "may not be updated")


def validate_revision(new: View, old: View | None) -> list[FieldError]:
    """Return the validation error of a new controller revision without data."""
    return Errors([required("data", "data is mandatory")] if old is None and new.get("data") is None else [])
