"""Validation of autoscalers (upstream: apis/autoscaling/validation)."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from apiext.catalog.builtin.pod_rules import at_least_zero
from apiext.catalog.builtin.quantity_rules import container_name_errors
from apiext.documents.document import View
from apiext.go_types.filling import cpu_metric
from apiext.go_types.quantities import value_of
from apiext.meta import syntax
from apiext.meta.fields import Errors, FieldError, Named, child, forbidden, invalid, item, not_supported, required

_METRICS = ("ContainerResource", "External", "Object", "Pods", "Resource")
_TARGETS = ("Utilization", "Value", "AverageValue")
_SELECTS = ("Disabled", "Max", "Min")
_POLICIES = ("Percent", "Pods")
_POSITIVE = "must be greater than zero"
_MAX_WINDOW, _MAX_PERIOD = 3600, 1800


def validate_autoscaler(new: View, old: View | None) -> list[FieldError]:
    """Return the validation errors of an autoscaler."""
    spec: View = new.get("spec") or {}
    errors = Errors()
    minimum, maximum = spec.get("minReplicas"), spec.get("maxReplicas") or 0
    if minimum is not None and maximum < minimum:
        errors.append(invalid("spec.maxReplicas", maximum, "must be greater than or equal to `minReplicas`"))
    before = None if old is None else (old.get("spec") or {}).get("scaleTargetRef")
    target: View = spec.get("scaleTargetRef") or {}
    errors += _reference(target, "spec.scaleTargetRef")
    if before is None or (before.get("apiVersion") or "") != (target.get("apiVersion") or ""):
        errors += _group_version(target, "spec.scaleTargetRef", empty=False)
    metrics: Sequence[View] = spec.get("metrics") or ()
    utilization = spec.get("targetCPUUtilizationPercentage")  # only autoscaling/v1 has this field
    if utilization is not None:
        metrics = [cpu_metric(utilization)]
    for index, metric in enumerate(metrics):
        errors += _metric(metric, item("spec.metrics", index))
    if minimum == 0 and not any(one.get("type") in ("External", "Object") for one in metrics):
        text = "must specify at least one Object or External metric to support scaling to zero replicas"
        errors.append(forbidden("spec.metrics", text))
    behavior: View = spec.get("behavior") or {}
    for name in ("scaleUp", "scaleDown"):
        if behavior.get(name) is not None:
            errors += _scaling(behavior[name], f"spec.behavior.{name}")
    errors += at_least_zero(minimum, "spec.minReplicas")
    if not maximum:
        errors.append(required("spec.maxReplicas"))
    elif maximum < 0:
        errors.append(invalid("spec.maxReplicas", maximum, "must be greater than or equal to 1"))
    return errors


def _reference(target: View, path: str) -> Iterator[FieldError]:
    for name in ("kind", "name"):
        at, value = child(path, name), target.get(name) or ""
        yield from (invalid(at, value, fault) for fault in syntax.path_segment(value)) if value else (required(at),)


def _group_version(target: View, path: str, *, empty: bool) -> Iterator[FieldError]:
    """Yield the error of the API version of a reference.

    ``empty`` is true if the version may have no group, as in the core group.
    """
    version, at = target.get("apiVersion") or "", child(path, "apiVersion")
    if version.count("/") > 1:
        yield invalid(at, version, f"unexpected GroupVersion string: {version}")
    elif empty or (version == "v1" and target.get("kind") == "ReplicationController"):
        return
    elif "/" not in version or version.startswith("/"):
        yield invalid(at, version, "apiVersion must specify API group")


# --- metrics ---


def _metric(metric: View, path: str) -> Iterator[FieldError]:
    kind = metric.get("type") or ""
    if not kind:
        yield required(child(path, "type"), "must specify a metric source type")
    if kind not in _METRICS:
        yield not_supported(child(path, "type"), kind, _METRICS)
    given = [name for name in _SOURCES if metric.get(name) is not None]
    for name in given[:1]:
        yield from _SOURCES[name](metric[name], child(path, name))
    wanted = kind[:1].lower() + kind[1:] if kind in _METRICS else ""
    if wanted and wanted not in given:
        yield required(child(path, wanted), "must populate information for the given metric source")
    elif not wanted:
        yield not_supported(child(path, "type"), kind, _METRICS)
    if len(given) != 1:
        others = (name for name in given if name != wanted)
        yield from (forbidden(child(path, name), "must populate the given metric source only") for name in others)


def _object(source: View, path: str) -> Iterator[FieldError]:
    described: View = source.get("describedObject") or {}
    yield from _reference(described, child(path, "describedObject"))
    yield from _group_version(described, child(path, "describedObject"), empty=True)
    yield from _named(source, path)
    target = source.get("target") or {}
    if target.get("value") is None and target.get("averageValue") is None:
        yield required(child(path, "target.averageValue"), "must set either a target value or averageValue")


def _external(source: View, path: str) -> Iterator[FieldError]:
    yield from _named(source, path)
    target = source.get("target") or {}
    value, average = target.get("value"), target.get("averageValue")
    if value is None and average is None:
        text = "must set either a target value for metric or a per-pod target"
        yield required(child(path, "target.averageValue"), text)
    if value is not None and average is not None:
        text = "may not set both a target value for metric and a per-pod target"
        yield forbidden(child(path, "target.value"), text)


def _pods(source: View, path: str) -> Iterator[FieldError]:
    yield from _named(source, path)
    if (source.get("target") or {}).get("averageValue") is None:
        yield required(child(path, "target.averageValue"), "must specify a positive target averageValue")


def _resource(source: View, path: str) -> Iterator[FieldError]:
    if not source.get("name"):
        yield required(child(path, "name"), "must specify a resource name")
    yield from _usage(source, path)


def _container_resource(source: View, path: str) -> Iterator[FieldError]:
    name, container = source.get("name") or "", source.get("container") or ""
    if not name:
        yield required(child(path, "name"), "must specify a resource name")
    else:
        yield from container_name_errors(name, child(path, "name"))
    at = child(path, "container")
    if not container:
        yield required(at, "must specify a container")
    else:
        yield from (invalid(at, container, fault) for fault in syntax.dns1123_label(container))
    yield from _usage(source, path)


def _usage(source: View, path: str) -> Iterator[FieldError]:
    target, path = source.get("target") or {}, child(path, "target")
    yield from _target(target, path)
    share, average = target.get("averageUtilization"), target.get("averageValue")
    if share is None and average is None:
        text = "must set either a target raw value or a target utilization"
        yield required(child(path, "averageUtilization"), text)
    if share is not None and average is not None:
        text = "may not set both a target raw value and a target utilization"
        yield forbidden(child(path, "averageValue"), text)


def _named(source: View, path: str) -> Iterator[FieldError]:
    name, at = (source.get("metric") or {}).get("name") or "", child(path, "metric.name")
    if not name:
        yield required(at, "must specify a metric name")
    yield from (invalid(at, name, fault) for fault in syntax.path_segment(name))
    yield from _target(source.get("target") or {}, child(path, "target"))


def _target(target: View, path: str) -> Iterator[FieldError]:
    kind, share = target.get("type") or "", target.get("averageUtilization")
    if not kind:
        yield required(child(path, "type"), "must specify a metric target type")
    if kind not in _TARGETS:
        yield invalid(child(path, "type"), Named(kind), "must be either Utilization, Value, or AverageValue")
    for name in ("value", "averageValue"):
        quantity = target.get(name)
        if quantity is not None and value_of(quantity) <= 0:
            yield invalid(child(path, name), Named(quantity), "must be positive")
    if share is not None and share < 1:
        yield invalid(child(path, "averageUtilization"), share, "must be greater than 0")


_SOURCES: Mapping[str, Callable[[View, str], Iterator[FieldError]]] = {
    "object": _object,
    "external": _external,
    "pods": _pods,
    "resource": _resource,
    "containerResource": _container_resource,
}


# --- behavior ---


def _scaling(rules: View, path: str) -> Iterator[FieldError]:
    window, select, tolerance = (
        rules.get("stabilizationWindowSeconds"),
        rules.get("selectPolicy"),
        rules.get("tolerance"),
    )
    at = child(path, "stabilizationWindowSeconds")
    if window is not None and window < 0:
        yield invalid(at, window, "must be greater than or equal to zero")
    if window is not None and window > _MAX_WINDOW:
        yield invalid(at, window, f"must be less than or equal to {_MAX_WINDOW}")
    if select is not None and select not in _SELECTS:
        yield not_supported(child(path, "selectPolicy"), select, _SELECTS)
    policies = rules.get("policies") or ()
    if not policies:
        yield required(child(path, "policies"), "must specify at least one Policy")
    for index, policy in enumerate(policies):
        at, kind = item(child(path, "policies"), index), policy.get("type") or ""
        value, period = policy.get("value") or 0, policy.get("periodSeconds") or 0
        if kind not in _POLICIES:
            yield not_supported(child(at, "type"), kind, _POLICIES)
        if value <= 0:
            yield invalid(child(at, "value"), value, _POSITIVE)
        if period <= 0:
            yield invalid(child(at, "periodSeconds"), period, _POSITIVE)
        if period > _MAX_PERIOD:
            yield invalid(child(at, "periodSeconds"), period, f"must be less than or equal to {_MAX_PERIOD}")
    if tolerance is not None and value_of(tolerance) < 0:
        yield invalid(child(path, "tolerance"), tolerance, "must be greater than or equal to 0")
