"""Validation of workloads and volumes: selectors, templates, strategies, immutable fields."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from apiext.catalog.builtin import pod_rules
from apiext.catalog.builtin.ips import network_errors
from apiext.catalog.builtin.pod_rules import at_least_zero, template_errors
from apiext.catalog.builtin.requirements import selector_errors
from apiext.documents.document import View
from apiext.documents.equality import same
from apiext.meta import syntax
from apiext.meta.fields import Errors, FieldError, duplicate, forbidden, invalid, not_supported, required
from apiext.meta.selectors import LabelSelector, SelectorError

_IMMUTABLE = "field is immutable"
_PERCENT = re.compile("[0-9]+%")


def _selector(spec: View, of: str) -> tuple[list[FieldError], LabelSelector | None]:
    """Return the validation errors of a selector, and the selector, None if it has errors."""
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
        return [*errors, invalid("spec.selector", given, "invalid label selector")], None


def _template(spec: View, selector: LabelSelector | None, of: str) -> Iterator[FieldError]:
    """Yield the validation errors of the template of pods that always run."""
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
    """Yield the errors of fields that an update may not change."""
    before: View | None = None if old is None else old.get("spec") or {}
    spec = new.get("spec") or {}
    for name in names:
        if before is not None and not same(spec.get(name), before.get(name)):
            yield invalid(f"spec.{name}", spec.get(name), _IMMUTABLE)


def _share(value: Any, path: str) -> Iterator[FieldError]:
    """Yield the validation errors of a number or a percentage."""
    if isinstance(value, int):
        yield from at_least_zero(value, path)
    elif value is not None and _percent(value) is None:
        text = "a valid percent string must be a numeric string followed by an ending '%' (e.g. '1%',  or '93%', "
        yield invalid(path, value, f"{text}regex used for validation is '[0-9]+%')")


def _percent(value: Any) -> int | None:
    """Return the number of a percentage, at most 1000; None for another value."""
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
    found, selector = _selector(spec, "deployment")
    errors += found
    if not any("invalid label selector" in one.body for one in found):
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
    found, selector = _selector(spec, "deployment")
    errors += found
    if not any("invalid label selector" in one.body for one in found):
        errors += _template(spec, selector, "ReplicaSet")
    errors += _fixed(new, old, "selector")
    return errors


def validate_daemon_set(new: View, old: View | None) -> list[FieldError]:
    """Return the validation errors of a daemon set."""
    spec: View = new.get("spec") or {}
    errors = Errors(_fixed(new, old, "selector"))
    found, selector = _selector(spec, "daemonset")
    errors += found if spec.get("selector") is not None else ()
    errors += _template(spec, selector, "DaemonSet")
    errors += _counts(spec, "minReadySeconds", "revisionHistoryLimit")
    return errors


def validate_stateful_set(new: View, old: View | None) -> list[FieldError]:
    """Return the validation errors of a stateful set; its pods have the volumes of its claim templates."""
    spec: View = new.get("spec") or {}
    errors = Errors()
    policy = spec.get("podManagementPolicy")
    if policy not in ("OrderedReady", "Parallel"):
        errors.append(invalid("spec.podManagementPolicy", policy, "must be 'OrderedReady' or 'Parallel'"))
    for index, claim in enumerate(spec.get("volumeClaimTemplates") or ()):
        errors += claim_errors(claim.get("spec") or {}, f"spec.volumeClaimTemplates[{index}].spec")
    errors += _counts(spec, "replicas", "minReadySeconds")
    service = spec.get("serviceName") or ""
    if service and (old is None or (old.get("spec") or {}).get("serviceName") != service):
        errors += (invalid("spec.serviceName", service, fault) for fault in syntax.dns1123_label(service))
    found, selector = _selector(spec, "statefulset")
    errors += found
    template: View = spec.get("template") or {}
    pods: View = template.get("spec") or {}
    claims = [(one.get("metadata") or {}).get("name") or "" for one in spec.get("volumeClaimTemplates") or ()]
    own: list[View] = [{"name": name, "persistentVolumeClaim": {}} for name in dict.fromkeys(claims)]
    volumes = [*own, *(one for one in pods.get("volumes") or () if one.get("name") not in claims)]
    pods = {name: value for name, value in pods.items() if name not in ("hostname", "subdomain")} | {"volumes": volumes}
    errors += _template({**spec, "template": {**template, "spec": pods}}, selector, "StatefulSet")
    errors += _fixed(new, old, "selector", "volumeClaimTemplates", "serviceName", "podManagementPolicy")
    return errors


def validate_replication_controller(new: View, old: View | None) -> list[FieldError]:
    """Return the validation errors of a replication controller."""
    spec: View = new.get("spec") or {}
    errors = Errors(_counts(spec, "minReadySeconds"))
    selector: Mapping[str, str] = spec.get("selector") or {}
    if not selector:
        errors.append(required("spec.selector"))
    errors += _counts(spec, "replicas")
    template = spec.get("template")
    if template is None:
        errors.append(required("spec.template"))
        return errors
    labels = (template.get("metadata") or {}).get("labels") or {}
    if selector and any(labels.get(key) != value for key, value in selector.items()):
        errors.append(_mismatch(labels))
    errors += template_errors(template, "spec.template")
    errors += _always(template, "ReplicationController")
    return errors


def validate_pod_template(new: View, old: View | None) -> list[FieldError]:
    """Return the validation errors of a pod template."""
    return Errors(template_errors(new.get("template") or {}, "template"))


# --- jobs ---

_JOB_COUNTS = (
    "parallelism",
    "completions",
    "activeDeadlineSeconds",
    "backoffLimit",
    "ttlSecondsAfterFinished",
    "backoffLimitPerIndex",
    "maxFailedIndexes",
)


def _job(spec: View, path: str) -> Iterator[FieldError]:
    for name in _JOB_COUNTS:
        yield from at_least_zero(spec.get(name), f"{path}.{name}")
    mode = spec.get("completionMode")
    if mode is not None and mode not in ("NonIndexed", "Indexed"):
        yield not_supported(f"{path}.completionMode", mode, ("NonIndexed", "Indexed"))
    if mode == "Indexed" and spec.get("completions") is None:
        yield required(f"{path}.completions", "when completion mode is Indexed")
    template: View = spec.get("template") or {}
    yield from template_errors(template, f"{path}.template")
    restart, at = (template.get("spec") or {}).get("restartPolicy"), f"{path}.template.spec.restartPolicy"
    if restart not in ("OnFailure", "Never"):
        if restart == "Always":
            yield required(at, 'valid values: "OnFailure", "Never"')
        else:
            yield not_supported(at, restart, ("Never", "OnFailure"))


def validate_job(new: View, old: View | None) -> list[FieldError]:
    """Return the validation errors of a job."""
    spec: View = new.get("spec") or {}
    errors = Errors(_job(spec, "spec"))
    selector = spec.get("selector")
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
    if selector is None:
        errors += (required("spec.selector"), _mismatch(labels))
    else:
        errors += selector_errors(selector, "spec.selector")
        try:
            if not LabelSelector.from_document(selector).matches(labels):
                errors.append(_mismatch(labels))
        except SelectorError:
            errors.append(invalid("spec.selector", selector, "invalid label selector"))
    if old is None:
        return errors
    errors += _fixed(new, old, "selector", "completionMode", "podFailurePolicy", "backoffLimitPerIndex")
    if not _may_change_template(old):
        errors += _fixed(new, old, "template")
    return errors


def _may_change_template(job: View) -> bool:
    """Report whether a job is suspended, has no active pods, and has not started or has the Suspended condition."""
    spec, status = job.get("spec") or {}, job.get("status") or {}
    if not spec.get("suspend") or status.get("active"):
        return False
    conditions = status.get("conditions") or ()
    return status.get("startTime") is None or any(
        one.get("type") == "Suspended" and one.get("status") == "True" for one in conditions
    )


def _parts(schedule: str) -> list[str]:
    """Return the fields of a schedule, without a time zone before them."""
    parts = schedule.split()
    return parts[1:] if parts[:1] and parts[0].startswith(("TZ=", "CRON_TZ=")) else parts


def validate_cron_job(new: View, old: View | None) -> list[FieldError]:
    """Return the validation errors of a cron job."""
    spec: View = new.get("spec") or {}
    errors = Errors()
    schedule = spec.get("schedule") or ""
    if not schedule:
        errors.append(required("spec.schedule"))
    elif not schedule.startswith("@") and len(parts := _parts(schedule)) != 5:
        text = f"expected exactly 5 fields, found {len(parts)}: [{' '.join(parts)}]"
        errors.append(invalid("spec.schedule", schedule, text))
    elif "TZ" in schedule and old is None:
        text = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
        errors.append(invalid("spec.schedule", schedule, text))
    errors += _counts(spec, "startingDeadlineSeconds")
    policy = spec.get("concurrencyPolicy")
    errors += pod_rules.supported(policy, "spec.concurrencyPolicy", ("Allow", "Forbid", "Replace"))
    errors += _counts(spec, "successfulJobsHistoryLimit", "failedJobsHistoryLimit")
    errors += _job((spec.get("jobTemplate") or {}).get("spec") or {}, "spec.jobTemplate.spec")
    name = (new.get("metadata") or {}).get("name") or ""
    if old is None and len(name) > 52:
        errors.append(invalid("metadata.name", name, "must be no more than 52 characters"))
    return errors


# --- autoscaling, budgets, volumes, nodes ---


def validate_autoscaler(new: View, old: View | None) -> list[FieldError]:
    """Return the validation errors of the bounds, target and metrics of an autoscaler."""
    spec: View = new.get("spec") or {}
    errors = Errors()
    least, most = spec.get("minReplicas"), spec.get("maxReplicas") or 0
    if least is not None and most < least:
        errors.append(invalid("spec.maxReplicas", most, "must be greater than or equal to `minReplicas`"))
    target = spec.get("scaleTargetRef") or {}
    for name in ("kind", "name"):
        path, value = f"spec.scaleTargetRef.{name}", target.get(name) or ""
        faults = syntax.path_segment(value)
        errors += (invalid(path, value, fault) for fault in faults) if value else (required(path),)
    errors += _target_version(target, None if old is None else (old.get("spec") or {}).get("scaleTargetRef"))
    if least == 0 and not any(one.get("type") in ("External", "Object") for one in spec.get("metrics") or ()):
        text = "must specify at least one Object or External metric to support scaling to zero replicas"
        errors.append(forbidden("spec.metrics", text))
    errors += at_least_zero(least, "spec.minReplicas")
    if not most:
        errors.append(required("spec.maxReplicas"))
    elif most < 0:
        errors.append(invalid("spec.maxReplicas", most, "must be greater than or equal to 1"))
    return errors


def _target_version(target: View, before: View | None) -> Iterator[FieldError]:
    """Yield the error of a target without an API group; an update keeps the one that it does not change."""
    version = target.get("apiVersion") or ""
    if before is not None and (before.get("apiVersion") or "") == version:
        return
    if version == "v1" and target.get("kind") == "ReplicationController":
        return
    if version.count("/") > 1:
        yield invalid("spec.scaleTargetRef.apiVersion", version, f"unexpected GroupVersion string: {version}")
    elif "/" not in version or version.startswith("/"):
        yield invalid("spec.scaleTargetRef.apiVersion", version, "apiVersion must specify API group")


def validate_budget(new: View, old: View | None) -> list[FieldError]:
    """Return the validation errors of a pod disruption budget."""
    spec: View = new.get("spec") or {}
    errors = Errors()
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        errors.append(invalid("spec", spec, "minAvailable and maxUnavailable cannot be both set"))
    for name in ("minAvailable", "maxUnavailable"):
        errors += _share(spec.get(name), f"spec.{name}")
    errors += selector_errors(spec.get("selector"), "spec.selector")
    return errors


def validate_claim(new: View, old: View | None) -> list[FieldError]:
    """Return the validation errors of a claim."""
    spec: View = new.get("spec") or {}
    errors = Errors(claim_errors(spec, "spec"))
    if old is not None and not same(_claimed(spec), _claimed(old.get("spec") or {})):
        text = (
            "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
        )
        errors.append(forbidden("spec", text))
    return errors


def claim_errors(spec: View, path: str) -> Iterator[FieldError]:
    """Yield the validation errors of the spec of a claim."""
    modes = spec.get("accessModes") or ()
    if not modes:
        yield required(f"{path}.accessModes", "at least 1 access mode is required")
    known = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
    yield from (not_supported(f"{path}.accessModes", mode, known) for mode in modes if mode not in known)
    if "storage" not in ((spec.get("resources") or {}).get("requests") or {}):
        yield required(f"{path}.resources[storage]")
    name = spec.get("storageClassName")
    if name:
        yield from (invalid(f"{path}.storageClassName", name, fault) for fault in syntax.dns1123_subdomain(name))
    mode = spec.get("volumeMode")
    if mode is not None and mode not in ("Block", "Filesystem"):
        yield not_supported(f"{path}.volumeMode", mode, ("Block", "Filesystem"))


def _claimed(spec: View) -> View:
    """Return the part of a claim that no update may change; an unbound claim may get its volume."""
    free = ("resources", "volumeAttributesClassName", "volumeName", "storageClassName")
    return {name: value for name, value in spec.items() if name not in free}


_CLASS_FIELDS = ("parameters", "provisioner", "reclaimPolicy", "volumeBindingMode")


def validate_storage_class(new: View, old: View | None) -> list[FieldError]:
    """Return the validation errors of a storage class."""
    errors = Errors()
    if not new.get("provisioner"):
        errors.append(required("provisioner"))
    if new.get("reclaimPolicy") not in ("Delete", "Retain"):
        errors.append(not_supported("reclaimPolicy", new.get("reclaimPolicy"), ("Delete", "Retain")))
    errors += pod_rules.supported(
        new.get("volumeBindingMode"), "volumeBindingMode", ("Immediate", "WaitForFirstConsumer")
    )
    if old is not None:
        changed = (name for name in _CLASS_FIELDS if not same(new.get(name), old.get(name)))
        errors += (invalid(name, new.get(name), _IMMUTABLE) for name in changed)
    return errors


def validate_volume(new: View, old: View | None) -> list[FieldError]:
    """Return the validation errors of a persistent volume."""
    spec: View = new.get("spec") or {}
    errors = Errors()
    known = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
    modes = spec.get("accessModes") or ()
    if not modes:
        errors.append(required("spec.accessModes"))
    errors += (not_supported("spec.accessModes", mode, known) for mode in modes if mode not in known)
    capacity = spec.get("capacity") or {}
    if not capacity:
        errors.append(required("spec.capacity"))
    if list(capacity) != ["storage"]:
        errors.append(not_supported("spec.capacity", spec.get("capacity"), ("storage",)))
    sources = _sources(spec)
    if not sources:
        errors.append(required("spec", "must specify a volume type"))
    extra = [name for name in sources if name != "flexVolume"][1:]  # as kube-apiserver: such a volume may be a second
    errors += (forbidden(f"spec.{name}", "may not specify more than 1 volume type") for name in extra)
    if old is not None and not same(*_fixed_sources(sources, _sources(old.get("spec") or {}))):
        text = "spec.persistentvolumesource is immutable after creation"
        errors.append(forbidden("spec.persistentvolumesource", text))
    return errors


def _fixed_sources(new: View, old: View) -> tuple[View, View]:
    """Return two sources of a volume without the secret that expands it, which one without it may get."""
    secret, csi, before = "controllerExpandSecretRef", new.get("csi"), old.get("csi")
    if csi is not None and before is not None and before.get(secret) is None:
        new = {**new, "csi": {name: value for name, value in csi.items() if name != secret}}
    return new, old


_NO_SOURCE = frozenset(
    (
        "accessModes",
        "capacity",
        "claimRef",
        "mountOptions",
        "nodeAffinity",
        "persistentVolumeReclaimPolicy",
        "storageClassName",
        "volumeAttributesClassName",
        "volumeMode",
    )
)


def _sources(spec: View) -> dict[str, Any]:
    return {name: value for name, value in spec.items() if name not in _NO_SOURCE and value is not None}


_LIMITED = ("Container", "PersistentVolumeClaim", "Pod")


def validate_limit_range(new: View, old: View | None) -> list[FieldError]:
    """Return the validation errors of the types of a limit range."""
    errors = Errors()
    seen: set[str] = set()
    for index, limit in enumerate((new.get("spec") or {}).get("limits") or ()):
        path, kind = f"spec.limits[{index}].type", limit.get("type") or ""
        faults = syntax.qualified_name(kind)
        errors += (invalid(path, kind, fault) for fault in faults)
        if not faults and "/" not in kind and kind not in _LIMITED:
            errors.append(invalid(path, kind, "must be a standard limit type or fully qualified"))
        if kind in seen:
            errors.append(duplicate(path, kind))
        seen.add(kind)
    return errors


def validate_runtime_class(new: View, old: View | None) -> list[FieldError]:
    """Return the validation errors of the node selector and the tolerations of a runtime class."""
    errors = Errors()
    scheduling = new.get("scheduling") or {}
    for key, value in sorted((scheduling.get("nodeSelector") or {}).items()):
        at = "scheduling.nodeSelector"
        errors += (invalid(at, key, fault) for fault in syntax.qualified_name(key))
        errors += (invalid(at, value, fault) for fault in syntax.label_value(value))
    errors += pod_rules.toleration_errors(scheduling.get("tolerations") or (), "scheduling.tolerations")
    return errors


def validate_node(new: View, old: View | None) -> list[FieldError]:
    """Return the validation errors of the address ranges of a node."""
    errors = Errors()
    for index, cidr in enumerate((new.get("spec") or {}).get("podCIDRs") or ()):
        errors += network_errors(f"spec.podCIDRs[{index}]", cidr, ())
    return errors


def validate_revision(new: View, old: View | None) -> list[FieldError]:
    """Return the validation errors of a controller revision that has no data."""
    return Errors([required("data", "data is mandatory")] if new.get("data") is None else [])
