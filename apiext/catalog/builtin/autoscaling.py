"""Conversion of autoscalers between autoscaling/v2 (the storage version) and autoscaling/v1.

Of the metrics, only the CPU utilization has fields in autoscaling/v1. Other metrics, conditions and the behavior are
JSON in annotations (upstream: apis/autoscaling/v1/conversion.go).
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import orjson

from apiext.documents.document import Document, View
from apiext.documents.errors import DecodeError
from apiext.documents.go_json import go_json
from apiext.go_types.filling import OLD_METRICS, UTILIZATION, cpu_metric
from apiext.go_types.tables import types_of
from apiext.go_types.typed import decode

_ANNOTATION = "autoscaling.alpha.kubernetes.io/"
_CURRENT, _CONDITIONS, _BEHAVIOR = (f"{_ANNOTATION}{name}" for name in ("current-metrics", "conditions", "behavior"))
_KEPT = frozenset((OLD_METRICS, _CURRENT, _CONDITIONS, _BEHAVIOR))
_SCALED = ("scaleTargetRef", "minReplicas", "maxReplicas")
_COUNTED = ("observedGeneration", "lastScaleTime", "currentReplicas", "desiredReplicas")

Part = tuple[str, str, bool]
"""(field of a metric in autoscaling/v1, its path in autoscaling/v2, True if the field is optional)."""

_SOURCES: Mapping[str, Sequence[Part]] = {
    "object": (
        ("target", "describedObject", False),
        ("metricName", "metric.name", False),
        ("targetValue", "target.value", False),
        ("selector", "metric.selector", True),
        ("averageValue", "target.averageValue", True),
    ),
    "pods": (
        ("metricName", "metric.name", False),
        ("targetAverageValue", "target.averageValue", False),
        ("selector", "metric.selector", True),
    ),
    "resource": (
        ("name", "name", False),
        ("targetAverageUtilization", "target.averageUtilization", True),
        ("targetAverageValue", "target.averageValue", True),
    ),
    "containerResource": (
        ("name", "name", False),
        ("targetAverageUtilization", "target.averageUtilization", True),
        ("targetAverageValue", "target.averageValue", True),
        ("container", "container", False),
    ),
    "external": (
        ("metricName", "metric.name", False),
        ("metricSelector", "metric.selector", True),
        ("targetValue", "target.value", True),
        ("targetAverageValue", "target.averageValue", True),
    ),
}
_STATUSES: Mapping[str, Sequence[Part]] = {
    "object": (
        ("target", "describedObject", False),
        ("metricName", "metric.name", False),
        ("currentValue", "current.value", False),
        ("selector", "metric.selector", True),
        ("averageValue", "current.averageValue", True),
    ),
    "pods": (
        ("metricName", "metric.name", False),
        ("currentAverageValue", "current.averageValue", False),
        ("selector", "metric.selector", True),
    ),
    "resource": (
        ("name", "name", False),
        ("currentAverageUtilization", "current.averageUtilization", True),
        ("currentAverageValue", "current.averageValue", False),
    ),
    "containerResource": (
        ("name", "name", False),
        ("currentAverageUtilization", "current.averageUtilization", True),
        ("currentAverageValue", "current.averageValue", False),
        ("container", "container", False),
    ),
    "external": (
        ("metricName", "metric.name", False),
        ("metricSelector", "metric.selector", True),
        ("currentValue", "current.value", False),
        ("currentAverageValue", "current.averageValue", True),
    ),
}
_ZEROS = {"metricName": "", "name": "", "container": "", "target": {"kind": "", "name": ""}}


def to_v1(stored: View) -> Document:
    """Convert an autoscaler from autoscaling/v2 to autoscaling/v1."""
    spec, status = stored.get("spec") or {}, stored.get("status") or {}
    metrics, current = spec.get("metrics") or (), status.get("currentMetrics") or ()
    others = [one for one in metrics if _cpu(one, "target") is None]
    kept: dict[str, Any] = {}
    if others:
        kept[OLD_METRICS] = [_old_metric(one, _SOURCES) for one in others]
    if current:
        kept[_CURRENT] = [_old_metric(one, _STATUSES) for one in current]
    if status.get("conditions"):
        kept[_CONDITIONS] = status["conditions"]
    if spec.get("behavior"):
        kept[_BEHAVIOR] = _internal(spec["behavior"])
    scaled = {name: spec[name] for name in _SCALED if name in spec}
    targets = [_cpu(one, "target") for one in metrics]
    if (target := next((one for one in targets if one is not None), None)) is not None:
        scaled["targetCPUUtilizationPercentage"] = target
    counted = {name: status[name] for name in _COUNTED if name in status}
    for one in current:
        if (utilization := _cpu(one, "current")) is not None:
            counted["currentCPUUtilizationPercentage"] = utilization
    annotations = {name: go_json(value) for name, value in kept.items()}
    return {**_with_annotations(stored, annotations), "spec": scaled, "status": counted}


def to_v2(document: View) -> Document:
    """Convert an autoscaler from autoscaling/v1 to autoscaling/v2."""
    given, status = document.get("spec") or {}, document.get("status") or {}
    annotations = (document.get("metadata") or {}).get("annotations") or {}
    spec = {name: given[name] for name in _SCALED if name in given}
    target = given.get("targetCPUUtilizationPercentage")
    metrics = _typed("Spec", "metrics", _new_metrics(_parsed(annotations, OLD_METRICS), _SOURCES, "target")) or []
    metrics += [] if target is None else [cpu_metric(target)]
    spec["metrics"] = metrics or [cpu_metric(UTILIZATION)]
    if behavior := _typed("Spec", "behavior", _external(_parsed(annotations, _BEHAVIOR))):
        spec["behavior"] = behavior
    counted = {name: status[name] for name in _COUNTED if name in status}
    found = _new_metrics(_parsed(annotations, _CURRENT), _STATUSES, "current")
    if current := _typed("Status", "currentMetrics", found):
        counted["currentMetrics"] = current
    elif (utilization := status.get("currentCPUUtilizationPercentage")) is not None:
        counted["currentMetrics"] = [
            {"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": utilization}}}
        ]
    if conditions := _typed("Status", "conditions", _parsed(annotations, _CONDITIONS)):
        counted["conditions"] = conditions
    return {
        **_with_annotations(document, {}),
        "apiVersion": "autoscaling/v2",
        "spec": spec,
        "status": counted,
    }


def _with_annotations(document: View, annotations: Mapping[str, str]) -> Document:
    """Return a copy of an object with these annotations instead of its own ones in ``_KEPT``."""
    metadata = dict(document.get("metadata") or {})
    before = metadata.pop("annotations", None) or {}
    found = {name: value for name, value in before.items() if name not in _KEPT} | dict(annotations)
    return {**document, "metadata": {**metadata, "annotations": found} if found else metadata}


def _cpu(metric: View, part: str) -> int | None:
    """Return the CPU utilization that a metric sets or reports, None for other metrics."""
    resource = metric.get("resource")
    if metric.get("type") != "Resource" or resource is None or resource.get("name") != "cpu":
        return None
    found: int | None = (resource.get(part) or {}).get("averageUtilization")
    return found


# --- metrics ---


def _old_metric(metric: View, sources: Mapping[str, Sequence[Part]]) -> Document:
    found: Document = {"type": metric.get("type") or ""}
    for name, parts in sources.items():
        source = metric.get(name)
        if source is None:
            continue
        found[name] = old = {}
        for field, path, optional in parts:
            value = _at(source, path)
            if value is not None or not optional:
                old[field] = value if value is not None else _ZEROS.get(field, "0")
    return found


def _at(value: Any, path: str) -> Any:
    for name in path.split("."):
        value = (value or {}).get(name)
    return value


def _new_metrics(old: Any, sources: Mapping[str, Sequence[Part]], valued: str) -> list[Document] | None:
    """Return the metrics of an annotation in the form of autoscaling/v2.

    Return None if its JSON is not a list of metrics.
    """
    if not isinstance(old, list) or not all(_is_metric(one, sources) for one in old):
        return None
    return [_new_metric(one, sources, valued) for one in old]


def _is_metric(old: Any, sources: Iterable[str]) -> bool:
    return isinstance(old, dict) and all(isinstance(old.get(name), dict | None) for name in sources)


def _new_metric(metric: View, sources: Mapping[str, Sequence[Part]], valued: str) -> Document:
    found: Document = {"type": metric.get("type") or ""}
    for name, parts in sources.items():
        old = metric.get(name)
        if old is None:
            continue
        new: Document = {}
        found[name] = new
        for field, path, _ in parts:
            if field in old and not _is_left_out(old, field):
                part, _, rest = path.partition(".")
                if rest:
                    new.setdefault(part, {})[rest] = old[field]
                else:
                    new[part] = old[field]
        new.setdefault(valued, {})
        if valued == "target":
            new["target"] = {"type": _target_type(new["target"]), **new["target"]}
    return found


def _is_left_out(old: View, field: str) -> bool:
    """Report whether a value is a zero that autoscaling/v1 requires beside an average value."""
    return field == "targetValue" and old.get("averageValue") is not None and old[field] == "0"


def _target_type(target: View) -> str:
    if "averageUtilization" in target:
        return "Utilization"
    return "AverageValue" if "averageValue" in target else "Value"


# --- annotations ---


def _parsed(annotations: Mapping[str, str], name: str) -> Any:
    """Return the JSON value of an annotation, None if it is absent or invalid."""
    try:
        return orjson.loads(annotations[name])
    except (KeyError, orjson.JSONDecodeError):
        return None


def _typed(part: str, field: str, value: Any) -> Any:
    """Return the value of a field of an autoscaler's Spec or Status.

    Return None for a value of a wrong type. As upstream, a conversion ignores an annotation whose JSON has a wrong
    type.
    """
    try:
        found, _ = decode(types_of("autoscaling").struct(f"HorizontalPodAutoscaler{part}"), {field: value})
    except DecodeError:
        return None
    return found.get(field)


def _renamed(value: Any, rename: Callable[[str], str], depth: int = 4) -> Any:
    """Return a value with renamed fields, down to ``depth`` levels.

    The fields of a scaling policy are at level 4.
    """
    if not depth:
        return value
    if isinstance(value, Mapping):
        return {rename(name): _renamed(one, rename, depth - 1) for name, one in value.items() if one is not None}
    return [_renamed(one, rename, depth - 1) for one in value] if isinstance(value, list | tuple) else value


def _internal(behavior: View) -> Document:
    """Return a behavior with the field names of upstream's internal type, such as ``ScaleUp``."""
    found: Document = _renamed(behavior, lambda name: name[:1].upper() + name[1:])
    return found


def _external(behavior: Any) -> Document | None:
    """Return the behavior of an annotation with the field names of the API.

    Return None if it is not an object.
    """
    if not isinstance(behavior, dict):
        return None
    found: Document = _renamed(behavior, lambda name: re.sub("^.", lambda first: first[0].lower(), name))
    return found
