"""Validation of PersistentVolumeClaims (upstream: apis/core/validation)."""

from collections.abc import Iterator, Sequence

from apiext.catalog.builtin.requirements import selector_errors
from apiext.documents.document import View
from apiext.documents.equality import same
from apiext.go_types.quantities import value_of
from apiext.meta import syntax
from apiext.meta.fields import Errors, FieldError, child, forbidden, invalid, not_supported, required

_MODES = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
_ALONE = "ReadWriteOncePod"
_VOLUME_MODES = ("Block", "Filesystem")
_IMMUTABLE = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"


def validate_claim(new: View, old: View | None) -> list[FieldError]:
    """Return the validation errors of a claim."""
    spec: View = new.get("spec") or {}
    errors = Errors(claim_errors(spec, "spec", groups=old is None or not _has_group(old.get("spec") or {})))
    if old is not None:
        errors += _changes(new, old)
    return errors


def claim_errors(spec: View, path: str, *, groups: bool = True, template: bool = False) -> Iterator[FieldError]:
    """Yield the validation errors of the spec of a claim.

    If ``groups`` is true, validate the API groups of data sources. If ``template`` is true, the spec is that of the
    template of a claim, and the namespace of its dataSourceRef is validated. A new claim itself has no such namespace:
    as upstream, the server drops a dataSourceRef with a namespace before the validation (workloads.py).
    """
    modes = spec.get("accessModes") or ()
    if not modes:
        yield required(child(path, "accessModes"), "at least 1 access mode is required")
    yield from selector_errors(spec.get("selector"), child(path, "selector"))
    yield from access_mode_errors(modes, child(path, "accessModes"))
    requests, at = (spec.get("resources") or {}).get("requests") or {}, child(path, "resources[storage]")
    if "storage" not in requests:
        yield required(at)
    elif value_of(requests["storage"]) <= 0:
        yield invalid(at, requests["storage"], "must be greater than zero")
    name = spec.get("storageClassName")
    if name:
        yield from (invalid(child(path, "storageClassName"), name, fault) for fault in syntax.dns1123_subdomain(name))
    mode = spec.get("volumeMode")
    if mode is not None and mode not in _VOLUME_MODES:
        yield not_supported(child(path, "volumeMode"), mode, _VOLUME_MODES)
    source, reference = spec.get("dataSource"), spec.get("dataSourceRef")
    for field, value in (("dataSource", source), ("dataSourceRef", reference)):
        if value is not None:
            yield from _data_source(value, child(path, field), groups=groups)
    namespace = (reference or {}).get("namespace") if template else None
    if namespace:
        at = child(path, "dataSourceRef.namespace")
        yield from (invalid(at, namespace, fault) for fault in syntax.dns1123_label(namespace))
        if source is not None:
            yield invalid(path, {}, "may not be specified when dataSourceRef.namespace is specified")
    elif source is not None and reference is not None and _differ(source, reference):
        yield invalid(path, {}, "must match dataSourceRef")
    name = spec.get("volumeAttributesClassName")
    if name:
        at = child(path, "volumeAttributesClassName")
        yield from (invalid(at, name, fault) for fault in syntax.dns1123_subdomain(name))


def _differ(source: View, reference: View) -> bool:
    return any(source.get(field) != reference.get(field) for field in ("apiGroup", "kind", "name"))


def access_mode_errors(modes: Sequence[str], path: str) -> Iterator[FieldError]:
    """Yield the validation errors of the access modes of a claim or a volume."""
    yield from (not_supported(path, mode, _MODES) for mode in modes if mode not in _MODES)
    if _ALONE in modes and any(mode in _MODES and mode != _ALONE for mode in modes):
        yield forbidden(path, "may not use ReadWriteOncePod with other access modes")


def _data_source(source: View, path: str, *, groups: bool) -> Iterator[FieldError]:
    for field in ("name", "kind"):
        if not source.get(field):
            yield required(child(path, field))
    group, kind = source.get("apiGroup") or "", source.get("kind") or ""
    if not group and kind != "PersistentVolumeClaim":
        yield invalid(path, kind, "must be 'PersistentVolumeClaim' when referencing the default apiGroup")
    if group and groups:
        yield from (invalid(child(path, "apiGroup"), group, fault) for fault in syntax.dns1123_subdomain(group))


def _has_group(spec: View) -> bool:
    return any((spec.get(field) or {}).get("apiGroup") is not None for field in ("dataSource", "dataSourceRef"))


def _changes(new: View, old: View) -> Iterator[FieldError]:
    """Yield the validation errors of an update of a claim.

    A bound claim may request another VolumeAttributesClass and more storage. It may request less storage than before if
    the new request still exceeds its capacity.
    """
    spec, before = new.get("spec") or {}, old.get("spec") or {}
    status = new.get("status") or {}
    free = {
        "volumeName": not before.get("volumeName"),
        "storageClassName": before.get("storageClassName") is None and spec.get("storageClassName") is not None,
    }
    fixed: View = {name: value for name, value in spec.items() if not free.get(name)}
    was: View = {name: value for name, value in before.items() if name != "volumeName" or before.get("volumeName")}
    if status.get("phase") == "Bound":
        fixed, was = _without_growth(fixed), _without_growth(was)
    if not same(fixed, was):
        yield forbidden("spec", _IMMUTABLE)
    size, last = (value_of(_size(one) or "0") for one in (spec, before))
    granted = value_of(((old.get("status") or {}).get("capacity") or {}).get("storage") or "0")
    if size < last and size <= granted:
        yield forbidden("spec.resources.requests.storage", "field can not be less than status.capacity")
    if not same(spec.get("volumeMode"), before.get("volumeMode")):
        yield invalid("volumeMode", spec.get("volumeMode"), "field is immutable")
    name = spec.get("volumeAttributesClassName")
    current = (old.get("status") or {}).get("currentVolumeAttributesClassName")
    if not same(name, before.get("volumeAttributesClassName")) and current is not None and not name:
        what = "nil" if name is None else "empty string"
        text = f"update to {what} is forbidden when status.currentVolumeAttributesClassName is not nil"
        yield forbidden("spec.volumeAttributesClassName", text)


def _size(spec: View) -> str | None:
    found: str | None = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    return found


def _without_growth(spec: View) -> View:
    resources = spec.get("resources") or {}
    requests = {name: value for name, value in (resources.get("requests") or {}).items() if name != "storage"}
    rest = {name: value for name, value in spec.items() if name not in ("resources", "volumeAttributesClassName")}
    return {**rest, "resources": {**resources, "requests": requests}}
