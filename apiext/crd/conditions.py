"""Find, set and remove the conditions of a definition, with their transition times.

See CND-010.
"""

from collections.abc import Sequence

from apiext.documents.document import Document, View


def find(conditions: Sequence[View] | None, kind: str) -> View | None:
    """Return the condition of a type, or None."""
    return next((item for item in conditions or () if item.get("type") == kind), None)


def is_true(document: View, kind: str) -> bool:
    """Return whether an object has a condition of this type with the status True."""
    found = find((document.get("status") or {}).get("conditions"), kind)
    return found is not None and found.get("status") == "True"


def condition(kind: str, status: str, reason: str, message: str) -> Document:
    """Return a condition without its transition time; status is True, False or Unknown."""
    return {"type": kind, "status": status, "reason": reason, "message": message}


def with_condition(conditions: Sequence[View] | None, new: View, now: str) -> list[View]:
    """Return the conditions with ``new`` in place of the condition of its type (CND-010).

    Without such a condition, append ``new``. Fields of the replaced condition that ``new`` lacks stay. The transition
    time becomes ``now`` for an appended condition, for a new status, and if the replaced condition has no transition
    time.
    """
    found = list(conditions or ())
    for index, old in enumerate(found):
        if old.get("type") != new["type"]:
            continue
        kept = old.get("lastTransitionTime") if old.get("status") == new["status"] else None
        found[index] = {**old, **new, "lastTransitionTime": kept or now}
        return found
    return [*found, {**new, "lastTransitionTime": now}]


def without_condition(conditions: Sequence[View] | None, kind: str) -> list[View]:
    """Return the conditions without the condition of a type."""
    return [item for item in conditions or () if item.get("type") != kind]


def same_condition(old: View | None, new: View) -> bool:
    """Return whether two conditions have the same type, status, reason and message.

    Return False if ``old`` is None.
    """
    if old is None:
        return False
    return all((old.get(name) or "") == (new.get(name) or "") for name in ("type", "status", "reason", "message"))


def with_status(document: View, **changed: object) -> Document:
    """Return a copy of the definition with new values for fields of its status."""
    return {**document, "status": {**(document.get("status") or {}), **changed}}
