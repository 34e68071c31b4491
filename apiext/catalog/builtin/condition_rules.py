"""Validation of metav1.Condition, which several kinds have in their status."""

import re
from collections.abc import Iterator, Sequence

from apiext.documents.document import View
from apiext.meta.fields import FieldError, child, duplicate, invalid, item, not_supported, required, too_long
from apiext.meta.syntax import qualified_name

LONGEST_REASON = 1024
LONGEST_MESSAGE = 32 * 1024
_STATUSES = ("False", "True", "Unknown")
_REASON = re.compile(r"[A-Za-z](?:[A-Za-z0-9_,:]*[A-Za-z0-9_])?")
_REASON_FAULT = (
    "a condition reason must start with alphabetic character, optionally followed by a string of alphanumeric "
    "characters or '_,:', and must end with an alphanumeric character or '_' (e.g. 'my_name',  or 'MY_NAME',  or "
    "'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for validation is "
    "'[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')"
)


def condition_errors(conditions: Sequence[View], path: str) -> Iterator[FieldError]:
    """Yield the validation errors of a list of metav1.Condition."""
    seen: set[str] = set()
    for index, condition in enumerate(conditions):
        at, kind, reason = item(path, index), condition.get("type") or "", condition.get("reason") or ""
        if kind in seen:
            yield duplicate(at, kind)
        seen.add(kind)
        if not kind:
            yield required(child(at, "type"), "is required")
        else:
            yield from (invalid(child(at, "type"), kind, fault) for fault in qualified_name(kind))
        if not condition.get("status"):
            yield required(child(at, "status"))
        elif condition["status"] not in _STATUSES:
            yield not_supported(child(at, "status"), condition["status"], _STATUSES)
        if (condition.get("observedGeneration") or 0) < 0:
            text = "must be greater than or equal to zero"
            yield invalid(child(at, "observedGeneration"), condition["observedGeneration"], text)
        if not condition.get("lastTransitionTime"):
            yield required(child(at, "lastTransitionTime"))
        if not reason:
            yield required(child(at, "reason"))
        elif _REASON.fullmatch(reason) is None:
            yield invalid(child(at, "reason"), reason, _REASON_FAULT)
        if len(reason.encode()) > LONGEST_REASON:
            yield too_long(child(at, "reason"), LONGEST_REASON)
        if len((condition.get("message") or "").encode()) > LONGEST_MESSAGE:
            yield too_long(child(at, "message"), LONGEST_MESSAGE)
