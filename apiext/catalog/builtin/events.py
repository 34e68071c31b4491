"""Validation of events in both versions, and functions for the cells of their Tables.

The files go_types/types/*.yaml contain the names of these functions. All functions except validate_core and validate_v1
accept events of both versions: ``_get`` finds a field of core/v1 also by its name in events.k8s.io/v1.
"""

from collections.abc import Mapping
from typing import Any

from apiext.catalog import limits
from apiext.documents.document import View
from apiext.documents.go_json import NUMBER, TEXT, Render, go_json, optional, struct
from apiext.meta.fields import INVALID, FieldError, go_value, invalid, required
from apiext.meta.syntax import dns1123_subdomain, qualified_name
from apiext.meta.time import ZERO_TIME

_NEW: Mapping[str, str] = {
    "involvedObject": "regarding",
    "message": "note",
    "reportingComponent": "reportingController",
    "source": "deprecatedSource",
    "firstTimestamp": "deprecatedFirstTimestamp",
    "lastTimestamp": "deprecatedLastTimestamp",
    "count": "deprecatedCount",
}
"""Field of core/v1 → field of events.k8s.io/v1, for fields with different names."""
_ELSEWHERE = "does not match event.namespace"
_ANYWHERE = ("default", "kube-system")
_SUPERSEDED = ("firstTimestamp", "lastTimestamp", "count", "source")
_PATHS = {"reportingComponent": "reportingController"}  # field of core/v1 → field of upstream's internal type
_FROZEN = (
    "involvedObject", "reason", "message", "source", "firstTimestamp", "lastTimestamp", "count", "type",
    "eventTime", "action", "related", "reportingComponent", "reportingInstance",
)  # fmt: skip
"""Immutable fields, in the order in which upstream reports them."""


def _get(document: View, name: str) -> Any:
    found = document.get(name)
    return found if found is not None else document.get(_NEW.get(name, name))


# --- validation ---


def validate_core(new: View, old: View | None) -> list[FieldError]:
    """Return the validation errors of a core/v1 event; ``old`` is None on create."""
    return _common(new, "reportingComponent")


def validate_v1(new: View, old: View | None) -> list[FieldError]:
    """Return the validation errors of an events.k8s.io/v1 event; ``old`` is None on create."""
    errors = _common(new, "reportingController")
    if old is None or new.get("series") != old.get("series"):
        errors += _series(new.get("series"))
    if old is not None:
        return errors + _changed(new, old)
    if not new.get("eventTime"):
        errors.append(required("eventTime"))
    if new.get("type") not in ("Normal", "Warning"):
        errors.append(invalid("type", "", f"has invalid value: {new.get('type', '')}"))
    return errors + [invalid(name, "", "needs to be unset") for name in _SUPERSEDED if _get(new, name)]


def _series(series: View | None) -> list[FieldError]:
    if series is None:
        return []
    errors = [] if series.get("count", 0) > 1 else [invalid("series.count", "", "should be at least 2")]
    return errors if series.get("lastObservedTime") else [*errors, required("series.lastObservedTime")]


def _changed(new: View, old: View) -> list[FieldError]:
    return [
        FieldError(INVALID, _PATHS.get(name, name), f"Invalid value: {_shown(new, name)}: field is immutable")
        for name in _FROZEN
        if (_get(new, name) or "") != (_get(old, name) or "")
    ]


def _shown(document: View, name: str) -> str:
    """Return the value of a field as upstream prints it from its internal type."""
    value = _get(document, name)
    if name in _INTERNAL:
        return go_json(_INTERNAL[name](value))
    return go_value(("" if value is None else value) if name in _TEXTS else value)


_REFERENCE = struct(
    ("Kind", "kind", TEXT),
    ("Namespace", "namespace", TEXT),
    ("Name", "name", TEXT),
    ("UID", "uid", TEXT),
    ("APIVersion", "apiVersion", TEXT),
    ("ResourceVersion", "resourceVersion", TEXT),
    ("FieldPath", "fieldPath", TEXT),
)
_SOURCE = struct(("Component", "component", TEXT), ("Host", "host", TEXT))
_INTERNAL: Mapping[str, Render] = {
    "involvedObject": _REFERENCE,
    "related": optional(_REFERENCE),
    "source": _SOURCE,
    "count": NUMBER,
}
_TEXTS = frozenset(("reason", "message", "type", "action", "reportingComponent", "reportingInstance"))


def _common(new: View, controller_field: str) -> list[FieldError]:
    namespace = (new.get("metadata") or {}).get("namespace", "")
    about = (_get(new, "involvedObject") or {}).get("namespace", "")
    errors: list[FieldError] = []
    if not new.get("eventTime"):
        if about != namespace and (about or namespace not in ("", "default")):
            errors.append(invalid("involvedObject.namespace", about, _ELSEWHERE))
    else:
        if not about and namespace not in _ANYWHERE:
            errors.append(invalid("involvedObject.namespace", about, _ELSEWHERE))
        errors += _reporter(new, controller_field)
    return errors + [invalid("namespace", namespace, fault) for fault in dns1123_subdomain(namespace)]


def _reporter(new: View, controller_field: str) -> list[FieldError]:
    controller = _get(new, "reportingComponent") or ""
    errors = [] if controller else [required(controller_field)]
    errors += [invalid(controller_field, controller, fault) for fault in qualified_name(controller)]
    for name in ("reportingInstance", "action", "reason"):
        value = new.get(name) or ""
        if not value:
            errors.append(required(name))
        errors += _at_most(name, value, limits.MAX_EVENT_WORD)
    return errors + _at_most("message", _get(new, "message") or "", limits.MAX_EVENT_NOTE)


def _at_most(name: str, value: str, limit: int) -> list[FieldError]:
    return [invalid(name, "", f"can have at most {limit} characters")] if len(value.encode()) > limit else []


# --- cells ---


def first_seen(document: View) -> str:
    """Return the time of the first occurrence of the event; the Table shows it as an age."""
    return _get(document, "firstTimestamp") or document.get("eventTime") or ZERO_TIME


def last_seen(document: View) -> str:
    """Return the time of the last occurrence of the event; the Table shows it as an age."""
    series = document.get("series")
    if series:
        return series.get("lastObservedTime") or ZERO_TIME
    return _get(document, "lastTimestamp") or first_seen(document)


def count(document: View) -> int:
    """Return the number of occurrences of the event."""
    series = document.get("series")
    return int(series.get("count", 0)) if series else int(_get(document, "count") or 1)


def target(document: View) -> str:
    """Return the involved object: ``pod/name``."""
    about = _get(document, "involvedObject") or {}
    kind = str(about.get("kind", "")).lower()
    return f"{kind}/{about['name']}" if about.get("name") else kind


def part(document: View) -> str:
    """Return the field path of the involved object."""
    return str((_get(document, "involvedObject") or {}).get("fieldPath", ""))


def source(document: View) -> str:
    """Return the reporting component and its host: ``kubelet, node-1``."""
    given = _get(document, "source") or {}
    component = given.get("component") or _get(document, "reportingComponent") or ""
    host = given.get("host") or document.get("reportingInstance") or ""
    return f"{component}, {host}" if host else str(component)


def message(document: View) -> str:
    """Return the message of the event."""
    return str(_get(document, "message") or "").strip()
