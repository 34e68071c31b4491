"""Validation of storage version migrations.

The row of this kind in go_types/types/storagemigration.yaml refers to this module.
"""

import re

from apiext.catalog.builtin.condition_rules import condition_errors
from apiext.crd.conditions import is_true
from apiext.documents.document import View
from apiext.documents.go_json import go_json
from apiext.meta.fields import INVALID, FieldError, child, invalid, required
from apiext.meta.syntax import dns1035_label, dns1123_subdomain

# the fields of a condition, in the order of upstream's Go type
_FIELDS = ("type", "status", "observedGeneration", "lastTransitionTime", "reason", "message")
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
    errors += condition_errors(conditions or (), "status.conditions")
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
