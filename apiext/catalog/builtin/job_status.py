"""Validation of the status of jobs.

A controller other than the job controller may write this status (``spec.managedBy``). Most rules apply only to fields
that a write changes. So a write of other fields succeeds even if the stored status violates these rules.
"""

from collections.abc import Iterator

from apiext.catalog.builtin.jobs import count_indexes, index_interval
from apiext.catalog.builtin.pod_rules import at_least_zero
from apiext.crd.conditions import find, is_true
from apiext.documents.document import View
from apiext.documents.equality import same
from apiext.documents.go_json import go_json
from apiext.meta import time
from apiext.meta.fields import INVALID, Errors, FieldError, duplicate, invalid, invalid_omit, required

_COUNTS = ("active", "succeeded", "failed", "ready", "terminating")
_PODS = ("succeeded", "failed")
_PLAIN = ("active", "completedIndexes")  # an absent value of these fields equals their zero value
_CONDITIONS, _COMPLETION = "status.conditions", "status.completionTime"
_COMPLETE, _FAILED, _TARGET, _MET = "Complete", "Failed", "FailureTarget", "SuccessCriteriaMet"
_PERMANENT = (_FAILED, _COMPLETE, _TARGET)


class _Write:
    """One write of a status: the new and the stored job, and the fields that the write changes."""

    def __init__(self, new: View, old: View) -> None:
        self.new, self.old = new, old
        self.spec: View = new.get("spec") or {}
        self.status: View = new.get("status") or {}
        self.before: View = old.get("status") or {}

    def changes(self, *names: str) -> bool:
        """Return whether the write changes one of these fields of the status."""
        return any(not same(_value(self.status, name), _value(self.before, name)) for name in names)

    def turns(self, *kinds: str) -> bool:
        """Return whether one of these conditions becomes true, or is no longer true."""
        return any(is_true(self.new, kind) is not is_true(self.old, kind) for kind in kinds)

    def has(self, kind: str) -> bool:
        """Return whether the condition is true in the new status."""
        return is_true(self.new, kind)

    @property
    def finished(self) -> bool:
        """Return whether the new status is that of a finished job."""
        return self.has(_COMPLETE) or self.has(_FAILED)

    @property
    def finishes(self) -> bool:
        """Return whether the job becomes finished, or is no longer finished."""
        return self.finished is not (is_true(self.old, _COMPLETE) or is_true(self.old, _FAILED))

    @property
    def indexed(self) -> bool:
        """Return whether each pod of the job has an index."""
        return bool(self.spec.get("completionMode") == "Indexed")


def validate_job_status(new: View, old: View | None) -> list[FieldError]:
    """Return the validation errors of the status of a job."""
    write = _Write(new, old if old is not None else new)
    errors = Errors()
    for name in _COUNTS:
        errors += at_least_zero(write.status.get(name), f"status.{name}")
    errors += _uncounted(write.status.get("uncountedTerminatedPods") or {})
    for check in (_ends, _finished, _indexes, _pods, _conditions, _kept):
        errors += check(write)
    return errors


def _value(status: View, name: str) -> object:
    value = status.get(name)
    return value or None if name in _PLAIN else value


def _uncounted(pods: View) -> Iterator[FieldError]:
    seen = set[str]()
    for name in _PODS:
        for index, uid in enumerate(pods.get(name) or ()):
            path = f"status.uncountedTerminatedPods.{name}[{index}]"
            if not uid:
                yield invalid(path, uid, "must not be empty")
            elif uid in seen:
                yield duplicate(path, uid)
            seen.add(uid)


def _ends(write: _Write) -> Iterator[FieldError]:
    """Yield the errors of the conditions and the times of a completed or failed job."""
    complete = write.has(_COMPLETE)
    began, ended = write.status.get("startTime"), write.status.get("completionTime")
    of_time = write.turns(_COMPLETE) or write.changes("completionTime")
    if write.turns(_COMPLETE, _FAILED) and complete and write.has(_FAILED):
        yield invalid_omit(_CONDITIONS, "cannot set Complete=True and Failed=true conditions")
    if write.turns(_COMPLETE, _TARGET) and complete and write.has(_TARGET):
        yield invalid_omit(_CONDITIONS, "cannot set Complete=True and FailureTarget=true conditions")
    if of_time and ended is not None and not complete:
        yield invalid(_COMPLETION, ended, "cannot set completionTime when there is no Complete=True condition")
    if of_time and ended is None and complete:
        yield required(_COMPLETION, "completionTime is required for Complete jobs")
    if write.changes("startTime", "completionTime") and began and ended and time.parse(ended) < time.parse(began):
        yield invalid(_COMPLETION, ended, "must be equal to or after `startTime`")
    if (write.turns(_FAILED) or write.changes("failedIndexes")) and write.has(_FAILED) and not write.has(_TARGET):
        text = "cannot set Failed=True condition without the FailureTarget=true condition"
        yield invalid_omit(_CONDITIONS, text)
    if write.turns(_COMPLETE, _MET) and complete and not write.has(_MET):
        text = "cannot set Complete=True condition without the SuccessCriteriaMet=true condition"
        yield invalid_omit(_CONDITIONS, text)


def _finished(write: _Write) -> Iterator[FieldError]:
    """Yield the errors of a finished job that has active or uncounted pods, or no startTime."""
    status, active = write.status, write.status.get("active") or 0
    if not write.finished:
        return
    if (write.finishes or write.changes("active")) and active > 0:
        yield invalid("status.active", active, "active>0 is invalid for finished job")
    empty = write.spec.get("suspend") is True and write.spec.get("completions") == 0
    if (write.finishes or write.changes("startTime")) and not empty and status.get("startTime") is None:
        yield required("status.startTime", "startTime is required for finished job")
    uncounted = status.get("uncountedTerminatedPods") or {}
    if (write.finishes or write.changes("uncountedTerminatedPods")) and any(uncounted.get(name) for name in _PODS):
        # upstream prints the fields of its internal type
        shown = go_json({"Succeeded": uncounted.get("succeeded"), "Failed": uncounted.get("failed")})
        body = f"Invalid value: {shown}: must be empty for finished job"
        yield FieldError(INVALID, "status.uncountedTerminatedPods", body)


def _indexes(write: _Write) -> Iterator[FieldError]:
    """Yield the errors of the lists of completed and failed indexes."""
    completions, limit = write.spec.get("completions"), write.spec.get("backoffLimitPerIndex")
    completed, failed = write.status.get("completedIndexes") or "", write.status.get("failedIndexes")
    if write.changes("completedIndexes") and completions is not None:
        yield from _malformed("completedIndexes", completed, completions)
    if write.changes("failedIndexes") and completions is not None and limit is not None and failed is not None:
        yield from _malformed("failedIndexes", failed, completions)
    if write.changes("completedIndexes") and completed and not write.indexed:
        text = "cannot set non-empty completedIndexes when non-indexed completion mode"
        yield invalid("status.completedIndexes", completed, text)
    if write.changes("failedIndexes") and limit is None and failed is not None:
        text = "cannot set non-null failedIndexes when backoffLimitPerIndex is null"
        yield invalid("status.failedIndexes", failed, text)
    if write.changes("completedIndexes", "failedIndexes") and completions is not None and failed is not None:
        common = _common_index(completed, failed, completions)
        if common is not None:
            text = f"failedIndexes and completedIndexes overlap at index: {common}"
            yield invalid("status.failedIndexes", failed, text)


def _pods(write: _Write) -> Iterator[FieldError]:
    terminating, ready = write.status.get("terminating"), write.status.get("ready")
    if (write.finishes or write.changes("terminating")) and (terminating or 0) > 0 and write.finished:
        yield invalid("status.terminating", terminating, "terminating>0 is invalid for finished job")
    if write.changes("ready", "active") and ready is not None and ready > (write.status.get("active") or 0):
        yield invalid("status.ready", ready, "cannot set more ready pods than active")


def _conditions(write: _Write) -> Iterator[FieldError]:
    if write.has(_MET):
        for kind in (_FAILED, _TARGET):
            if write.has(kind):
                yield invalid_omit(_CONDITIONS, f"cannot set SuccessCriteriaMet=True and {kind}=true conditions")
    elif write.spec.get("successPolicy") is not None and write.has(_COMPLETE):
        text = "cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True"
        yield invalid_omit(_CONDITIONS, text)


def _kept(write: _Write) -> Iterator[FieldError]:
    """Yield the errors of a write that removes true conditions, lowers counts or changes times."""
    status, before = write.status, write.before
    for kind in _PERMANENT:
        if is_true(write.old, kind) and not write.has(kind):
            yield invalid_omit(_CONDITIONS, f"cannot disable the terminal {kind}=True condition")
    if (status.get("failed") or 0) < (before.get("failed") or 0):
        yield invalid("status.failed", status.get("failed") or 0, "cannot decrease the failed counter")
    # an indexed job whose parallelism is its number of completions can be scaled down
    elastic = write.indexed and write.spec.get("completions") == write.spec.get("parallelism")
    if not elastic and (status.get("succeeded") or 0) < (before.get("succeeded") or 0):
        yield invalid("status.succeeded", status.get("succeeded") or 0, "cannot decrease the succeeded counter")
    ended, was = status.get("completionTime"), before.get("completionTime")
    if ended is not None and was is not None and ended != was:
        yield invalid(_COMPLETION, ended, "field is immutable")
    began, was = status.get("startTime"), before.get("startTime")
    if was is not None and began != was and write.spec.get("suspend") is not True and not _resumes(write):
        yield invalid("status.startTime", began, "field is immutable for unsuspended job once set")
    if is_true(write.old, _MET) and not write.has(_MET):
        yield invalid_omit(_CONDITIONS, "cannot disable the SuccessCriteriaMet=True condition")
    if is_true(write.old, _COMPLETE) and not is_true(write.old, _MET) and write.has(_MET):
        text = "cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions"
        yield invalid_omit(_CONDITIONS, text)


def _resumes(write: _Write) -> bool:
    suspended = find(write.status.get("conditions"), "Suspended") or {}
    return is_true(write.old, "Suspended") and suspended.get("status") == "False"


def _malformed(name: str, text: str, completions: int) -> Iterator[FieldError]:
    try:
        count_indexes(text, completions)
    except ValueError as error:
        yield invalid(f"status.{name}", text, f"error parsing {name}: {error}")


def _common_index(completed: str, failed: str, completions: int) -> int | None:
    """Return an index in both lists, or None.

    Skip malformed intervals, which have errors of their own.
    """
    done, broken = _intervals(completed, completions), _intervals(failed, completions)
    while done and broken:
        (first, last), (begin, end) = done[0], broken[0]
        if first <= end and begin <= last:
            return max(first, begin)
        (done if first <= begin else broken).pop(0)
    return None


def _intervals(text: str, completions: int) -> list[tuple[int, int]]:
    found = []
    for part in text.split(",") if text else ():
        try:
            found.append(index_interval(part, completions))
        except ValueError:
            continue
    return found
