"""Validation of leases (named by rows of types/*.yaml)."""

from apiext.documents.document import View
from apiext.meta.fields import FieldError, forbidden


def validate_lease(new: View, old: View | None) -> list[FieldError]:
    """Return the validation errors of a lease that rules cannot express; old is None on create."""
    spec = new.get("spec") or {}
    if spec.get("preferredHolder") and not spec.get("strategy"):
        return [forbidden("spec.preferredHolder", "may only be specified when `strategy` is defined")]
    return []
