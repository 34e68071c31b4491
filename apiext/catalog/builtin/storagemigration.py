"""Validation of storage version migrations; a row of go_types/types/storagemigration.yaml names the functions."""

import re
from collections.abc import Iterator, Sequence

from apiext.crd.conditions import is_true
from apiext.documents.document import View
from apiext.documents.go_json import go_json
from apiext.meta.fields import INVALID, FieldError, child, duplicate, invalid, item, not_supported, required, too_long
from apiext.meta.syntax import dns1035_label, dns1123_subdomain, qualified_name

LONGEST_REASON = 1024
LONGEST_MESSAGE = 32 * 1024
# in the order of the fields in the Go type
_FIELDS = ("type", "status", "observedGeneration", "lastTransitionTime", "reason", "message")
_STATUSES = ("False", "True", "Unknown")
_REASON = re.compile(r"[A-Za-z](?:[A-Za-z0-9_,:]*[A-Za-z0-9_])?")
_REASON_FAULT = (
    "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric "
    "characters or '_,:', and must end with an alphanumeric character or '_' (e.g. 'my_name',  or 'MY_NAME',  or "
    "'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for validation is "
    "'[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')"
)
_REVISION = re.compile("[1-9][0-9]*")


def validate_migration(new: View, old: View | None) -> list[FieldError]:
    """Return the validation errors of a migration; ``old`` is None on create."""
    named: View = (new.get("spec") or {}).get("resource") or {}
    group, resource = named.get("group") or "", named.get("resource") or ""
    path, errors = "spec.resource", []
    if not resource:
        errors.append(required(child(path, "resource"), "resource is required to be set"))
    elif faults := dns1035_label(resource):
        errors.append(invalid(child(path, "resource"), resource, ",".join(faults)))
    if group and (faults := dns1123_subdomain(group)):
        errors.append(invalid(child(path, "group"), group, ",".join(faults)))
    if old is not None and new.get("spec") != old.get("spec"):
        shown = {"Resource": {"group": group, "resource": resource}}  # as upstream prints its internal type
        errors.append(invalid("spec", shown, "field is immutable"))
    return errors


def validate_migration_status(new: View, old: View | None) -> list[FieldError]:
    """Return the validation errors of a migration's status."""
    status, before = new.get("status") or {}, (old or {}).get("status") or {}
    conditions, revision = status.get("conditions"), status.get("resourceVersion") or ""
    path, errors = "status.resourceVersion", []
    if revision and _REVISION.fullmatch(revision) is None:
        errors.append(invalid(path, revision, f"resource version is not well formed: {revision}"))
    errors += _condition_errors(conditions or (), "status.conditions")
    if before.get("resourceVersion") and before["resourceVersion"] != revision:
        errors.append(invalid(path, revision, "field is immutable"))
    faults = []
    if is_true(new, "Succeeded") and is_true(new, "Failed"):
        faults.append("Both success and failed conditions cannot be true at the same time")
    for kind, name in (("Succeeded", "Success"), ("Failed", "Failed")):
        if old is not None and is_true(old, kind) and not is_true(new, kind):
            faults.append(f"{name} condition cannot be set to false once it is true")
    shown = go_json(conditions and [{name: one[name] for name in _FIELDS if name in one} for one in conditions])
    return errors + [FieldError(INVALID, "status.conditions", f"Invalid value: {shown}: {fault}") for fault in faults]


def _condition_errors(conditions: Sequence[View], path: str) -> Iterator[FieldError]:
    seen: set[str] = set()
    for index, one in enumerate(conditions):
        at, kind, reason = item(path, index), one.get("type") or "", one.get("reason") or ""
        if kind in seen:
            yield duplicate(at, kind)
        seen.add(kind)
        if not kind:
            yield required(child(at, "type"), "is required")
        else:
            yield from (invalid(child(at, "type"), kind, fault) for fault in qualified_name(kind))
        if not one.get("status"):
            yield required(child(at, "status"))
        elif one["status"] not in _STATUSES:
            yield not_supported(child(at, "status"), one["status"], _STATUSES)
        if (one.get("observedGeneration") or 0) < 0:
            text = "must be greater than or equal to zero"
            yield invalid(child(at, "observedGeneration"), one["observedGeneration"], text)
        if not one.get("lastTransitionTime"):
            yield required(child(at, "lastTransitionTime"))
        if not reason:
            yield required(child(at, "reason"))
        elif _REASON.fullmatch(reason) is None:
            yield invalid(child(at, "reason"), reason, _REASON_FAULT)
        if len(reason.encode()) > LONGEST_REASON:
            yield too_long(child(at, "reason"), LONGEST_REASON)
        if len((one.get("message") or "").encode()) > LONGEST_MESSAGE:
            yield too_long(child(at, "message"), LONGEST_MESSAGE)
