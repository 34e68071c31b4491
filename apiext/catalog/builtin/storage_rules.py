"""Validation of CSI drivers, CSI nodes, storage capacities and volume attachments.

Upstream: apis/storage.
"""

from collections.abc import Iterator, Sequence

from apiext.catalog.builtin.persistent_volumes import volume_errors
from apiext.catalog.builtin.requirements import selector_errors
from apiext.catalog.builtin.volume_sources import driver_errors
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

_LONGEST_NODE = 256
_LEAST_SECONDS, _MOST_SECONDS = 600, 2**32
_LEAST_PERIOD = 10
_GROUP_POLICIES = ("File", "None", "ReadWriteOnceWithFSType")
_MODES = ("Persistent", "Ephemeral")
_MAX_ATTACHER = 63
_IMMUTABLE = "field is immutable"
_ONE_SOURCE = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"


def validate_attachment(new: View, old: View | None) -> list[FieldError]:
    """Return the validation errors of a volume attachment."""
    spec = new.get("spec") or {}
    attacher: str = spec.get("attacher") or ""
    errors = Errors(driver_errors(attacher, "spec.attacher") if old is not None else ())
    source, path = spec.get("source") or {}, "spec.source"
    name, inline = source.get("persistentVolumeName"), source.get("inlineVolumeSpec")
    if name is None and inline is None:
        errors.append(required(path, _ONE_SOURCE))
    elif name is not None and inline is not None:
        errors.append(forbidden(path, _ONE_SOURCE))
    elif name == "":
        errors.append(required(child(path, "persistentVolumeName"), "must specify non empty persistentVolumeName"))
    elif inline is not None:
        errors += volume_errors(inline, child(path, "inlineVolumeSpec"), inline=True)
    node = spec.get("nodeName") or ""
    errors += (invalid("spec.nodeName", node, fault) for fault in syntax.dns1123_subdomain(node))
    if name is not None:
        at = child(path, "persistentVolumeName")
        errors += (invalid(at, name, fault) for fault in syntax.dns1123_subdomain(name))
    if old is None:
        errors += _attacher(attacher)
    elif not same(spec, old.get("spec") or {}):
        errors.append(invalid("spec", None, _IMMUTABLE))
    return errors


def _attacher(name: str) -> Iterator[FieldError]:
    """Yield the validation errors of the driver of a new attachment."""
    if not name:
        yield required("spec.attacher")
        return
    yield from (invalid("spec.attacher", name, fault) for fault in syntax.long_name_caseless(name))
    if len(name) > _MAX_ATTACHER:
        yield too_long("spec.attacher", _MAX_ATTACHER, "character")


def validate_driver(new: View, old: View | None) -> list[FieldError]:
    """Return the validation errors of a CSI driver."""
    spec = new.get("spec") or {}
    errors = Errors()
    policy = spec.get("fsGroupPolicy")
    if policy is not None and policy not in _GROUP_POLICIES:
        errors.append(not_supported("spec.fsGroupPolicy", policy, _GROUP_POLICIES))
    errors += _tokens(spec.get("tokenRequests") or ())
    for mode in spec.get("volumeLifecycleModes") or ():
        if mode not in _MODES:
            errors.append(not_supported("spec.volumeLifecycleModes", mode, _MODES))
    period = spec.get("nodeAllocatableUpdatePeriodSeconds")
    if period is not None and period < _LEAST_PERIOD:
        text = f"must be greater than or equal to {_LEAST_PERIOD} seconds"
        errors.append(invalid("spec.nodeAllocatableUpdatePeriodSeconds", period, text))
    in_secrets = spec.get("serviceAccountTokenInSecrets")
    if in_secrets is not None and not spec.get("tokenRequests"):
        text = "serviceAccountTokenInSecrets is set but no tokenRequests are specified"
        errors.append(invalid("spec.serviceAccountTokenInSecrets", in_secrets, text))
    if old is not None:
        before = old.get("spec") or {}
        for field, shown in (("attachRequired", "attachedRequired"), ("volumeLifecycleModes", "volumeLifecycleModes")):
            if not same(spec.get(field), before.get(field)):
                errors.append(invalid(f"spec.{shown}", spec.get(field), _IMMUTABLE))
    return errors


def _tokens(requests: Sequence[View]) -> Iterator[FieldError]:
    seen: set[str] = set()
    for index, one in enumerate(requests):
        path, audience, seconds = (
            item("spec.tokenRequests", index),
            one.get("audience") or "",
            one.get("expirationSeconds"),
        )
        if audience in seen:
            yield duplicate(child(path, "audience"), audience)
            continue
        seen.add(audience)
        if seconds is not None and seconds < _LEAST_SECONDS:
            yield invalid(child(path, "expirationSeconds"), seconds, "may not specify a duration less than 10 minutes")
        if seconds is not None and seconds > _MOST_SECONDS:
            yield invalid(
                child(path, "expirationSeconds"), seconds, "may not specify a duration larger than 2^32 seconds"
            )


def validate_node(new: View, old: View | None) -> list[FieldError]:
    """Return the validation errors of a CSI node."""
    errors = Errors()
    names: set[str] = set()
    for index, driver in enumerate((new.get("spec") or {}).get("drivers") or ()):
        path, name, node = item("spec.drivers", index), driver.get("name") or "", driver.get("nodeID") or ""
        errors += driver_errors(name, child(path, "name"))
        if not node:
            errors.append(required(child(path, "nodeID")))
        if len(node) > _LONGEST_NODE:
            errors.append(invalid(child(path, "nodeID"), node, f"must be {_LONGEST_NODE} characters or less"))
        count = (driver.get("allocatable") or {}).get("count")
        if count is not None and count < 0:
            errors.append(invalid(child(path, "allocatable.count"), count, "must be greater than or equal to 0"))
        if name in names:
            errors.append(duplicate(child(path, "name"), name))
        names.add(name)
        keys: set[str] = set()
        for key in driver.get("topologyKeys") or ():
            if not key:
                errors.append(required(path))
            if key in keys:
                errors.append(duplicate(path, key))
            keys.add(key)
            errors += (invalid(path, key, fault) for fault in syntax.qualified_name(key))
    return errors


def validate_capacity(new: View, old: View | None) -> list[FieldError]:
    """Return the validation errors of a CSIStorageCapacity."""
    errors = Errors(selector_errors(new.get("nodeTopology"), "nodeTopology"))
    name: str = new.get("storageClassName") or ""
    errors += (invalid("storageClassName", name, fault) for fault in syntax.dns1123_subdomain(name))
    size = new.get("capacity")
    if size is not None and value_of(size) < 0:
        errors.append(invalid("capacity", size, "must be greater than or equal to 0"))
    if old is not None:
        changed = (field for field in ("nodeTopology", "storageClassName") if not same(new.get(field), old.get(field)))
        errors += (invalid(field, new.get(field), _IMMUTABLE) for field in changed)
    return errors
