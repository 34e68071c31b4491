"""Preparation and validation of leases (named by rows of types/*.yaml)."""

from apiext.documents.document import Document, View
from apiext.meta.fields import FieldError, forbidden


def prepare_lease(new: Document, old: View | None) -> Document:
    """Drop the fields of coordinated leader election, a feature gate that is off by default upstream."""
    spec, before = new.get("spec") or {}, (old or {}).get("spec") or {}
    for name in ("strategy", "preferredHolder"):
        if name not in before:
            spec.pop(name, None)
    return new


def validate_lease(new: View, old: View | None) -> list[FieldError]:
    """Return the validation errors of a lease that rules cannot express; old is None on create."""
    spec = new.get("spec") or {}
    if spec.get("preferredHolder") and not spec.get("strategy"):
        return [forbidden("spec.preferredHolder", "may only be specified when `strategy` is defined")]
    return []
