"""Validation of persistent volumes and storage classes.

Upstream: apis/core/validation and apis/storage/validation.
"""

import posixpath
from collections.abc import Iterator, Sequence
from typing import Any

from apiext.catalog.builtin.claims import access_mode_errors
from apiext.catalog.builtin.node_selectors import node_selector_errors
from apiext.catalog.builtin.volume_sources import VOLUME_SOURCES, volume_source_errors
from apiext.documents.document import View
from apiext.documents.equality import same
from apiext.go_types.quantities import value_of
from apiext.meta import syntax
from apiext.meta.fields import (
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

_RECLAIMS = ("Delete", "Recycle", "Retain")
_MODES = ("Block", "Filesystem")
_INLINE = "may not be specified in the context of inline volumes"
_IMMUTABLE = "field is immutable"


def validate_volume(new: View, old: View | None) -> list[FieldError]:
    """Return the validation errors of a persistent volume."""
    spec: View = new.get("spec") or {}
    errors = Errors(volume_errors(spec, "spec", name=(new.get("metadata") or {}).get("name") or ""))
    if old is not None:
        errors += _changes(spec, old.get("spec") or {})
    return errors


def volume_errors(spec: View, path: str, *, name: str = "", inline: bool = False) -> Iterator[FieldError]:
    """Yield the validation errors of the spec of a volume.

    ``inline`` is true for the inlineVolumeSpec of a volume attachment.
    """
    if inline:
        for field in ("claimRef", "capacity"):
            if spec.get(field) or (field == "claimRef" and spec.get(field) is not None):
                yield forbidden(child(path, field), _INLINE)
        if spec.get("csi") is None:
            yield required(child(path, "csi"), "has to be specified in the context of inline volumes")
    modes, at = spec.get("accessModes") or (), child(path, "accessModes")
    if not modes:
        yield required(at)
    yield from access_mode_errors(modes, at)
    if not inline:
        yield from _capacity(spec, child(path, "capacity"))
    reclaim, at = spec.get("persistentVolumeReclaimPolicy"), child(path, "persistentVolumeReclaimPolicy")
    if reclaim and inline and reclaim != "Retain":
        yield forbidden(at, "may only be Retain in the context of inline volumes")
    elif reclaim and not inline and reclaim not in _RECLAIMS:
        yield not_supported(at, reclaim, _RECLAIMS)
    affinity, at = spec.get("nodeAffinity"), child(path, "nodeAffinity")
    if affinity is not None and inline:
        yield forbidden(at, _INLINE)
    elif affinity is not None and affinity.get("required") is None:
        yield required(child(at, "required"), "must specify required node constraints")
    elif affinity is not None:
        yield from node_selector_errors(affinity["required"], child(at, "required"))
    yield from volume_source_errors(spec, path, name)
    if spec.get("local") is not None and affinity is None:
        yield required(at, "Local volume requires node affinity")
    host = (spec.get("hostPath") or {}).get("path")
    if host and posixpath.normpath(host) in ("/", "//") and reclaim == "Recycle":
        text = "may not be 'recycle' for a hostPath mount of '/'"
        yield forbidden(child(path, "persistentVolumeReclaimPolicy"), text)
    yield from _classes(spec, path, inline=inline)


def _capacity(spec: View, path: str) -> Iterator[FieldError]:
    capacity = spec.get("capacity") or {}
    if not capacity:
        yield required(path)
    if list(capacity) != ["storage"]:
        yield not_supported(path, spec.get("capacity"), ("storage",))
    for name, quantity in capacity.items():
        if value_of(quantity) <= -1:
            yield invalid(item(path, name), int(value_of(quantity)), "must be a valid resource quantity")
        if value_of(quantity) <= 0:
            yield invalid(item(path, name), quantity, "must be greater than zero")


def _classes(spec: View, path: str, *, inline: bool) -> Iterator[FieldError]:
    name, at = spec.get("storageClassName"), child(path, "storageClassName")
    if name and inline:
        yield forbidden(at, _INLINE)
    elif name:
        yield from (invalid(at, name, fault) for fault in syntax.dns1123_subdomain(name))
    mode, at = spec.get("volumeMode"), child(path, "volumeMode")
    if mode is not None and inline:
        if mode != "Filesystem":
            yield forbidden(at, "may not specify volumeMode other than Filesystem in the context of inline volumes")
    elif mode is not None and mode not in _MODES:
        yield not_supported(at, mode, _MODES)
    name, at = spec.get("volumeAttributesClassName"), child(path, "volumeAttributesClassName")
    if name is None or inline:
        return
    if not name:
        yield required(at, "an empty string is disallowed")
    yield from (invalid(at, name, fault) for fault in (syntax.dns1123_subdomain(name) if name else ()))
    if spec.get("csi") is None:
        yield required(child(path, "csi"), "has to be specified when using volumeAttributesClassName")


def _changes(spec: View, before: View) -> Iterator[FieldError]:
    """Yield the validation errors of an update of a volume."""
    sources, was = _sources(spec), _sources(before)
    if not same(*_fixed_sources(sources, was)):
        yield forbidden("spec.persistentvolumesource", "spec.persistentvolumesource is immutable after creation")
    if not same(spec.get("volumeMode"), before.get("volumeMode")):
        yield invalid("volumeMode", spec.get("volumeMode"), _IMMUTABLE)
    affinity, last = spec.get("nodeAffinity"), before.get("nodeAffinity")
    if last is not None and not same(_with_new_labels(affinity), _with_new_labels(last)):
        yield invalid("nodeAffinity", affinity, f"{_IMMUTABLE}, except for updating from beta label to GA")
    if before.get("volumeAttributesClassName") is not None and spec.get("volumeAttributesClassName") is None:
        yield forbidden("spec.volumeAttributesClassName", "update from non-nil value to nil is forbidden")


def _sources(spec: View) -> dict[str, Any]:
    return {name: spec[name] for name in VOLUME_SOURCES if spec.get(name) is not None}


def _fixed_sources(new: View, old: View) -> tuple[View, View]:
    """Return new and old source for comparison.

    An update may add controllerExpandSecretRef to a csi source. So this function removes the field from the new source
    if the old source lacks it.
    """
    secret, csi, before = "controllerExpandSecretRef", new.get("csi"), old.get("csi")
    if csi is not None and before is not None and before.get(secret) is None:
        new = {**new, "csi": {name: value for name, value in csi.items() if name != secret}}
    return new, old


_NEW_LABELS = {
    "failure-domain.beta.kubernetes.io/zone": "topology.kubernetes.io/zone",
    "failure-domain.beta.kubernetes.io/region": "topology.kubernetes.io/region",
    "beta.kubernetes.io/os": "kubernetes.io/os",
    "beta.kubernetes.io/arch": "kubernetes.io/arch",
    "beta.kubernetes.io/instance-type": "node.kubernetes.io/instance-type",
}


def _with_new_labels(value: Any) -> Any:
    """Return a node affinity in which the deprecated label names are replaced by the new names."""
    if isinstance(value, list):
        return [_with_new_labels(one) for one in value]
    if not isinstance(value, dict):
        return value
    found = {name: _with_new_labels(below) for name, below in value.items()}
    if isinstance(found.get("key"), str):
        found["key"] = _NEW_LABELS.get(found["key"], found["key"])
    return found


# --- classes ---

_BINDINGS = ("Immediate", "WaitForFirstConsumer")
_MAX_PARAMETERS, _MAX_PARAMETER_BYTES = 512, 256 * 1024


def validate_class(new: View, old: View | None) -> list[FieldError]:
    """Return the validation errors of a storage class."""
    errors = Errors()
    name = new.get("provisioner") or ""
    lowered = syntax.lower(name)
    errors += (invalid("provisioner", lowered, fault) for fault in syntax.qualified_name(lowered) if name)
    errors += _parameters(new.get("parameters") or {})
    if new.get("reclaimPolicy") not in (None, "", "Delete", "Retain"):
        errors.append(not_supported("reclaimPolicy", new.get("reclaimPolicy"), ("Delete", "Retain")))
    mode = new.get("volumeBindingMode")
    if mode is None:
        errors.append(required("volumeBindingMode"))
    elif mode not in _BINDINGS:
        errors.append(not_supported("volumeBindingMode", mode, _BINDINGS))
    errors += _topologies(new.get("allowedTopologies") or ())
    return errors


def _parameters(parameters: View) -> Iterator[FieldError]:
    if len(parameters) > _MAX_PARAMETERS:
        yield too_long("parameters", _MAX_PARAMETERS)
        return
    size = 0
    for key, value in parameters.items():
        if not key:
            yield invalid("parameters", key, "field can not be empty.")
        size += len(key.encode()) + len(value.encode())
    if size > _MAX_PARAMETER_BYTES:
        yield too_long("parameters", _MAX_PARAMETER_BYTES)


def _topologies(terms: Sequence[View]) -> Iterator[FieldError]:
    seen: list[dict[str, set[str]]] = [{}] if terms else []  # upstream reports an empty term as a duplicate
    for index, term in enumerate(terms):
        path = item("allowedTopologies", index)
        found: dict[str, set[str]] = {}
        for place, one in enumerate(term.get("matchLabelExpressions") or ()):
            at, key, values = item(child(path, "matchLabelExpressions"), place), one.get("key") or "", one.get("values")
            if not values:
                yield required(child(at, "values"))
            for number, value in enumerate(values or ()):
                if value in (values or ())[:number]:
                    yield duplicate(item(child(at, "values"), number), value)
            yield from (invalid(child(at, "key"), key, fault) for fault in syntax.qualified_name(key))
            if key in found:
                yield duplicate(child(at, "key"), key)
            found[key] = set(values or ())
        if found in seen:
            yield duplicate(child(path, "matchLabelExpressions"), "")
        seen.append(found)
