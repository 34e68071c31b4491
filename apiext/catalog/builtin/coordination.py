"""What a lease must be (named by the rows of kinds.yaml)."""

from apiext.documents.document import Document, View
from apiext.meta.fields import FieldError, forbidden, invalid


def prepare_lease(new: Document, old: View | None) -> Document:
    """Drop what coordinated leader election would need: it is off, upstream too."""
    spec, before = new.get("spec") or {}, (old or {}).get("spec") or {}
    for name in ("strategy", "preferredHolder"):
        if name not in before:
            spec.pop(name, None)
    return new


def validate_lease(new: View, old: View | None) -> list[FieldError]:
    """Return the faults of a lease; old is None on create."""
    spec = new.get("spec") or {}
    errors: list[FieldError] = []
    seconds, transitions = spec.get("leaseDurationSeconds"), spec.get("leaseTransitions")
    if seconds is not None and seconds <= 0:
        errors.append(invalid("spec.leaseDurationSeconds", seconds, "must be greater than 0"))
    if transitions is not None and transitions < 0:
        errors.append(invalid("spec.leaseTransitions", transitions, "must be greater than or equal to 0"))
    if spec.get("preferredHolder") and not spec.get("strategy"):
        errors.append(forbidden("spec.preferredHolder", "may only be specified when `strategy` is defined"))
    return errors
