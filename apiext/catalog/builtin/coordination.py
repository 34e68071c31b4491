"""Validation of leases; a row of go_types/types/coordination.yaml names this function."""

from apiext.documents.document import View
from apiext.meta.fields import FieldError, forbidden


def validate_lease(new: View, old: View | None) -> list[FieldError]:
    """Return an error if a lease has a preferred holder without a strategy.

    The row has all other rules of leases. ``old`` is None on create.
    """
    spec = new.get("spec") or {}
    if spec.get("preferredHolder") and not spec.get("strategy"):
        return [forbidden("spec.preferredHolder", "may only be specified when `strategy` is defined")]
    return []
