"""Validation of jobs and cron jobs (upstream: apis/batch/validation)."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from apiext.catalog.builtin.network_rules import path_errors
from apiext.catalog.builtin.pod_rules import at_least_zero, template_errors
from apiext.catalog.builtin.requirements import selector_errors
from apiext.catalog.builtin.schedules import schedule_error, zone_errors
from apiext.documents.document import View
from apiext.documents.equality import same
from apiext.meta import syntax
from apiext.meta.fields import (
    Errors,
    FieldError,
    Named,
    child,
    duplicate,
    invalid,
    invalid_omit,
    item,
    not_supported,
    required,
    too_long,
    too_many,
)
from apiext.meta.selectors import LabelSelector, SelectorError
from apiext.text.quotes import go_quote

_IMMUTABLE = "field is immutable"
_COUNTS = (
    "parallelism",
    "completions",
    "activeDeadlineSeconds",
    "backoffLimit",
    "ttlSecondsAfterFinished",
    "backoffLimitPerIndex",
    "maxFailedIndexes",
)
_MAX_MANAGER = 63
_MAX_PARALLEL = _MAX_FAILED = _MANY = 100_000
_MAX_OF_MANY = 10_000
_MAX_RULES, _MAX_CODES, _MAX_PATTERNS = 20, 255, 20
_MAX_INDEXES = 64 * 1024
_INDEX_DIGITS = 19  # digits of the largest signed 64-bit integer
_ACTIONS = ("Count", "FailIndex", "FailJob", "Ignore")
_OPERATORS = ("In", "NotIn")
_STATUSES = ("False", "True", "Unknown")
_MAX_CRON_NAME = 52
_CONCURRENCIES = ("Allow", "Forbid", "Replace")


def _valid(values: Sequence[str]) -> str:
    listed = " ".join(f'"{value}"' for value in values)
    return f"valid values: [{listed}]"


# --- jobs ---


def job_errors(spec: View, path: str) -> Iterator[FieldError]:
    """Yield the validation errors of the spec of a job, except those of its selector."""
    for name in _COUNTS:
        yield from at_least_zero(spec.get(name), child(path, name))
        if name == "maxFailedIndexes" and spec.get(name) is not None and spec.get("backoffLimitPerIndex") is None:
            yield required(child(path, "backoffLimitPerIndex"), "when maxFailedIndexes is specified")
    manager, at = spec.get("managedBy"), child(path, "managedBy")
    if manager is not None:
        yield from path_errors(at, manager)
        if len(manager.encode()) > _MAX_MANAGER:
            yield too_long(at, _MAX_MANAGER)
    yield from _mode(spec, path)
    policy = spec.get("podFailurePolicy")
    if policy is not None:
        yield from _failure_policy(spec, policy, child(path, "podFailurePolicy.rules"))
    success, at = spec.get("successPolicy"), child(path, "successPolicy")
    if success is not None and spec.get("completionMode") != "Indexed":
        yield invalid(at, success, "requires indexed completion mode")
    elif success is not None:
        yield from _success_policy(spec, success, child(at, "rules"))
    replacement, at = spec.get("podReplacementPolicy"), child(path, "podReplacementPolicy")
    supported_values = ("Failed", "TerminatingOrFailed") if policy is None else ("Failed",)
    if replacement is not None and replacement not in supported_values:
        yield not_supported(at, replacement, supported_values)
    template: View = spec.get("template") or {}
    yield from template_errors(template, child(path, "template"))
    restart, at = (template.get("spec") or {}).get("restartPolicy"), child(path, "template.spec.restartPolicy")
    if restart in (None, "", "Always"):
        yield required(at, 'valid values: "OnFailure", "Never"')
    elif restart not in ("OnFailure", "Never"):
        yield not_supported(at, restart, ("OnFailure", "Never"))
    elif policy is not None and restart != "Never":
        yield invalid(at, Named(restart), 'only "Never" is supported when podFailurePolicy is specified')


def _mode(spec: View, path: str) -> Iterator[FieldError]:
    mode, completions, parallelism = spec.get("completionMode"), spec.get("completions"), spec.get("parallelism")
    failed = spec.get("maxFailedIndexes")
    at_failed, at_parallelism = child(path, "maxFailedIndexes"), child(path, "parallelism")
    if mode not in (None, "NonIndexed", "Indexed"):
        yield not_supported(child(path, "completionMode"), mode, ("NonIndexed", "Indexed"))
    if mode in (None, "NonIndexed"):
        for name in ("backoffLimitPerIndex", "maxFailedIndexes"):
            if spec.get(name) is not None:
                yield invalid(child(path, name), spec[name], "requires indexed completion mode")
    if mode != "Indexed":
        return
    if completions is None:
        yield required(child(path, "completions"), "when completion mode is Indexed")
    if parallelism is not None and parallelism > _MAX_PARALLEL:
        text = f"must be less than or equal to {_MAX_PARALLEL} when completion mode is Indexed"
        yield invalid(at_parallelism, parallelism, text)
    if completions is not None and failed is not None and failed > completions:
        yield invalid(at_failed, failed, "must be less than or equal to completions")
    if failed is not None and failed > _MAX_FAILED:
        yield invalid(at_failed, failed, f"must be less than or equal to {_MAX_FAILED}")
    if completions is None or completions <= _MANY or spec.get("backoffLimitPerIndex") is None:
        return
    text = (
        f"must be less than or equal to {_MAX_OF_MANY} when completions are above {_MANY} and used with backoff limit"
        " per index"
    )
    if failed is None:
        yield required(at_failed, f"must be specified when completions is above {_MANY}")
    if parallelism is not None and parallelism > _MAX_OF_MANY:
        yield invalid(at_parallelism, parallelism, text)
    if failed is not None and failed > _MAX_OF_MANY:
        yield invalid(at_failed, failed, text)


def _failure_policy(spec: View, policy: View, path: str) -> Iterator[FieldError]:
    rules = policy.get("rules") or ()
    if len(rules) > _MAX_RULES:
        yield too_many(path, len(rules), _MAX_RULES)
    pods = (spec.get("template") or {}).get("spec") or {}
    names = {one.get("name") or "" for field in ("containers", "initContainers") for one in pods.get(field) or ()}
    for index, rule in enumerate(rules):
        at, action = item(path, index), rule.get("action") or ""
        codes, conditions = rule.get("onExitCodes"), rule.get("onPodConditions") or ()
        if not action:
            yield required(child(at, "action"), _valid(_ACTIONS))
        elif action == "FailIndex" and spec.get("backoffLimitPerIndex") is None:
            yield invalid(child(at, "action"), Named(action), "requires the backoffLimitPerIndex to be set")
        elif action not in _ACTIONS:
            yield not_supported(child(at, "action"), action, _ACTIONS)
        if codes is not None:
            yield from _exit_codes(codes, names, child(at, "onExitCodes"))
        yield from _conditions(conditions, child(at, "onPodConditions"))
        if codes is not None and conditions:
            yield invalid_omit(at, "specifying both OnExitCodes and OnPodConditions is not supported")
        if codes is None and not conditions:
            yield invalid_omit(at, "specifying one of OnExitCodes and OnPodConditions is required")


def _exit_codes(codes: View, names: set[str], path: str) -> Iterator[FieldError]:
    operator, container, values = codes.get("operator") or "", codes.get("containerName"), codes.get("values") or []
    if not operator:
        yield required(child(path, "operator"), _valid(_OPERATORS))
    elif operator not in _OPERATORS:
        yield not_supported(child(path, "operator"), operator, _OPERATORS)
    if container is not None and container not in names:
        text = "must be one of the container or initContainer names in the pod template"
        yield invalid(child(path, "containerName"), container, text)
    at = child(path, "values")
    if not values:
        yield invalid(at, codes.get("values"), "at least one value is required")
    elif len(values) > _MAX_CODES:
        yield too_many(at, len(values), _MAX_CODES)
    seen: set[int] = set()
    for index, value in enumerate(values):
        if operator == "In" and value == 0:
            yield invalid(item(at, index), value, "must not be 0 for the In operator")
        if value in seen:
            yield duplicate(item(at, index), value)
        seen.add(value)
    if any(values[index] > value for index, value in enumerate(values[1:])):
        yield invalid(at, values, "must be ordered")


def _conditions(conditions: Sequence[View], path: str) -> Iterator[FieldError]:
    if len(conditions) > _MAX_PATTERNS:
        yield too_many(path, len(conditions), _MAX_PATTERNS)
    for index, one in enumerate(conditions):
        at, kind, status = item(path, index), one.get("type") or "", one.get("status") or ""
        yield from (invalid(child(at, "type"), kind, fault) for fault in syntax.qualified_name(kind))
        if not status:
            yield required(child(at, "status"), _valid(_STATUSES))
        elif status not in _STATUSES:
            yield not_supported(child(at, "status"), status, _STATUSES)


def _success_policy(spec: View, policy: View, path: str) -> Iterator[FieldError]:
    rules, completions = policy.get("rules") or (), spec.get("completions") or 0
    if not rules:
        yield required(path, "at least one rules must be specified when the successPolicy is specified")
    if len(rules) > _MAX_RULES:
        yield too_many(path, len(rules), _MAX_RULES)
    for index, rule in enumerate(rules):
        at, count, indexes = item(path, index), rule.get("succeededCount"), rule.get("succeededIndexes")
        if count is None and indexes is None:
            yield required(at, "at least one of succeededCount or succeededIndexes must be specified")
        total = 0
        if indexes is not None:
            if len(indexes) > _MAX_INDEXES:
                yield too_long(child(at, "succeededIndexes"), _MAX_INDEXES)
            try:
                total = count_indexes(indexes, completions)
            except ValueError as error:
                text = f"error parsing succeededIndexes: {error}"
                yield invalid(child(at, "succeededIndexes"), indexes, text)
        if count is None:
            continue
        at = child(at, "succeededCount")
        yield from at_least_zero(count, at)
        text = "must be less than or equal to {} (the number of {})"
        if count > completions:
            yield invalid(at, count, text.format(completions, "specified completions"))
        if indexes is not None and count > total:
            yield invalid(at, count, text.format(total, "indexes in the specified succeededIndexes field"))


def count_indexes(text: str, completions: int) -> int:
    """Return the number of indexes in a text such as ``1,3-5``.

    Raises ValueError with upstream's text for an invalid form, order or index.
    """
    last, total = -1, 0
    for part in text.split(",") if text else ():
        first, end = index_interval(part, completions)
        if total and last >= first:
            raise ValueError(f"non-increasing order, previous: {last}, current: {first}")
        total += end - first + 1
        last = end
    return total


def index_interval(part: str, completions: int) -> tuple[int, int]:
    """Return the first and the last index of ``3`` or ``3-5``.

    Raise ValueError with upstream's text.
    """
    limits = part.split("-")
    if len(limits) > 2:
        raise ValueError(
            f"the fragment {go_quote(part)} violates the requirement that an index interval can have at most two parts"
            " separated by '-'"
        )
    first, end = (_index(one, completions) for one in (limits[0], limits[-1]))
    if len(limits) > 1 and first >= end:
        raise ValueError(f"non-increasing order, previous: {first}, current: {end}")
    return first, end


def _index(text: str, completions: int) -> int:
    digits = text.removeprefix("+")
    decimal = digits.isascii() and digits.isdecimal() and len(digits.lstrip("0")) <= _INDEX_DIGITS
    if not decimal or int(digits) >= 2**63:
        raise ValueError(f"cannot convert string to integer for index: {go_quote(text)}")
    if int(digits) >= completions:
        raise ValueError(f"too large index: {go_quote(text)}")
    return int(digits)


def validate_job(new: View, old: View | None) -> list[FieldError]:
    """Return the validation errors of a job."""
    spec: View = new.get("spec") or {}
    errors = Errors(_generated_selector(new) if old is None else ())
    errors += job_errors(spec, "spec")
    selector = spec.get("selector")
    labels = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
    mismatch = invalid("spec.template.metadata.labels", labels or None, "`selector` does not match template `labels`")
    if selector is None:
        errors += (required("spec.selector"), mismatch)
    else:
        errors += selector_errors(selector, "spec.selector")
        try:
            if not LabelSelector.from_document(selector).matches(labels):
                errors.append(mismatch)
        except SelectorError:
            pass  # the validation of the selector reports the error
    if old is not None:
        errors += _changes(spec, old)
    errors += _pod_names(new)
    return errors


_OLD_UID, _OLD_NAME = "controller-uid", "job-name"
_UID, _NAME = "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name"


def _generated_selector(new: View) -> Iterator[FieldError]:
    """Yield the errors of a generated selector and its labels.

    With manualSelector, yield nothing, since the client may choose selector and labels.
    """
    spec, metadata = new.get("spec") or {}, new.get("metadata") or {}
    selector = spec.get("selector")
    if spec.get("manualSelector") or selector is None:
        return
    uid, name = metadata.get("uid") or "", metadata.get("name") or ""
    labels: Mapping[str, str] = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
    for key, value in ((_OLD_UID, uid), (_OLD_NAME, name), (_UID, uid), (_NAME, name)):
        at = f"spec.template.metadata.labels[{key}]"
        if key not in labels:
            yield required(at, f"must be '{value}'")
        elif labels[key] != value:
            yield invalid(at, labels, f"must be '{value}'")
    try:
        if not LabelSelector.from_document(selector).matches({_UID: uid, _NAME: name, _OLD_UID: uid, _OLD_NAME: name}):
            yield invalid("spec.selector", selector, "`selector` not auto-generated")
    except SelectorError:
        pass  # the validation of the selector reports the error


def _pod_names(new: View) -> Iterator[FieldError]:
    spec, name = new.get("spec") or {}, (new.get("metadata") or {}).get("name") or ""
    completions = spec.get("completions") or 0
    last = f"{name}-{completions - 1}"
    if spec.get("completionMode") == "Indexed" and completions > 0 and syntax.dns1123_label(last):
        text = f"will not able to create pod with invalid DNS label: {last}"
        yield invalid("metadata.name", name, text)


def _changes(spec: View, old: View) -> Iterator[FieldError]:
    before: View = old.get("spec") or {}
    completions, was = spec.get("completions"), before.get("completions")
    if spec.get("completionMode") != "Indexed":
        if completions != was:
            yield invalid("spec.completions", completions, _IMMUTABLE)
    elif completions != was and completions is not None and completions != spec.get("parallelism"):
        yield invalid("spec.completions", completions, "can only be modified in tandem with spec.parallelism")
    if not same(spec.get("selector"), before.get("selector")):
        yield invalid("spec.selector", spec.get("selector"), _IMMUTABLE)
    yield from _template_changes(spec, old)
    for name in ("completionMode", "podFailurePolicy", "backoffLimitPerIndex", "managedBy", "successPolicy"):
        if not same(spec.get(name), before.get(name)):
            yield invalid(f"spec.{name}", spec.get(name), _IMMUTABLE)


def _template_changes(spec: View, old: View) -> Iterator[FieldError]:
    """Yield the error of a changed template.

    If ``_may_change_template`` is true for the stored job, an update may change the scheduling, the resources, the
    labels and the annotations of its pods.
    """
    template, last = spec.get("template") or {}, (old.get("spec") or {}).get("template") or {}
    suspended, free = bool((old.get("spec") or {}).get("suspend")), _may_change_template(old)
    if free:
        template, last = _without_scheduling(template), _without_scheduling(last)
    if suspended and free:
        pods, before = _without_resources(template.get("spec") or {}), _without_resources(last.get("spec") or {})
        if not same(pods, before):
            yield invalid("spec.template.spec", (spec.get("template") or {}).get("spec"), _IMMUTABLE)
    elif not same(template, last):
        yield invalid("spec.template", spec.get("template"), _IMMUTABLE)


def _may_change_template(job: View) -> bool:
    """Return whether an update may change the template of a stored job.

    The job must be suspended and have no active pods. It must never have started, or have a true condition Suspended.
    """
    spec, status = job.get("spec") or {}, job.get("status") or {}
    if not spec.get("suspend") or status.get("active"):
        return False
    conditions = status.get("conditions") or ()
    return status.get("startTime") is None or any(
        one.get("type") == "Suspended" and one.get("status") == "True" for one in conditions
    )


_SCHEDULING = ("nodeSelector", "tolerations", "schedulingGates", "affinity")


def _without_scheduling(template: View) -> View:
    spec: View = template.get("spec") or {}
    affinity = {name: one for name, one in (spec.get("affinity") or {}).items() if name != "nodeAffinity"}
    rest = {name: one for name, one in spec.items() if name not in _SCHEDULING}
    metadata = {
        name: one
        for name, one in (template.get("metadata") or {}).items()
        if name not in ("annotations", "labels", "creationTimestamp")
    }
    return {"metadata": metadata, "spec": {**rest, "affinity": affinity}}


def _without_resources(spec: View) -> dict[str, Any]:
    found = dict(spec)
    for field in ("containers", "initContainers"):
        found[field] = [
            {name: one for name, one in container.items() if name != "resources"} for container in spec.get(field) or ()
        ]
    return found


# --- cron jobs ---


def validate_cron_job(new: View, old: View | None) -> list[FieldError]:
    """Return the validation errors of a cron job."""
    spec: View = new.get("spec") or {}
    before: View | None = None if old is None else old.get("spec") or {}
    errors = Errors(_schedule(spec, before))
    errors += at_least_zero(spec.get("startingDeadlineSeconds"), "spec.startingDeadlineSeconds")
    zone = spec.get("timeZone")
    if zone is not None and (before is None or before.get("timeZone") != zone):
        errors += (invalid("spec.timeZone", zone, fault) for fault in zone_errors(zone))
    policy = spec.get("concurrencyPolicy")
    if not policy:
        errors.append(required("spec.concurrencyPolicy"))
    elif policy not in _CONCURRENCIES:
        errors.append(not_supported("spec.concurrencyPolicy", policy, _CONCURRENCIES))
    job = (spec.get("jobTemplate") or {}).get("spec") or {}
    errors += job_errors(job, "spec.jobTemplate.spec")
    if job.get("selector") is not None:
        text = "`selector` will be auto-generated"
        errors.append(invalid("spec.jobTemplate.spec.selector", job["selector"], text))
    if job.get("manualSelector"):
        errors.append(not_supported("spec.jobTemplate.spec.manualSelector", True, ("nil", "false")))
    for name in ("successfulJobsHistoryLimit", "failedJobsHistoryLimit"):
        errors += at_least_zero(spec.get(name), f"spec.{name}")
    name = (new.get("metadata") or {}).get("name") or ""
    if old is None and len(name) > _MAX_CRON_NAME:
        errors.append(invalid("metadata.name", name, f"must be no more than {_MAX_CRON_NAME} characters"))
    if not spec.get("schedule"):
        errors.append(required("spec.schedule"))
    return errors


def _schedule(spec: View, before: View | None) -> Iterator[FieldError]:
    schedule, path = spec.get("schedule") or "", "spec.schedule"
    if not schedule:
        return  # upstream reports a missing schedule after all other errors
    error = schedule_error(schedule)
    if error:
        yield invalid(path, schedule, error)
    if "TZ" not in schedule:
        return
    if "TZ" not in ((before or {}).get("schedule") or ""):
        yield invalid(path, schedule, "cannot use TZ or CRON_TZ in schedule, use timeZone field instead")
    elif spec.get("timeZone") is not None:
        yield invalid(path, schedule, "cannot use both timeZone field and TZ or CRON_TZ in schedule")
