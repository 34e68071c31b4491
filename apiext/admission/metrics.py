"""Metrics of admission under upstream's names (ADM-021)."""

from collections.abc import Callable, Iterable, Sequence

from apiext.telemetry import Distribution, Family, HistogramFamily

_STEP_SECONDS = (0.005, 0.025, 0.1, 0.5, 1.0, 2.5)
_WEBHOOK_SECONDS = (*_STEP_SECONDS, 10.0, 25.0)
_CONDITION_SECONDS = (0.001, 0.005, 0.01, 0.025, 0.1, 0.2, 0.25)
_PREFIX = "apiserver_admission_"
_MAX_CODE = 600  # higher codes are counted as this code

CALLING_ERROR, INTERNAL_ERROR, NO_ERROR = "calling_webhook_error", "apiserver_internal_error", "no_error"


class Metrics:
    """The metric families of admission, one instance for each server.

    The label ``type`` is "admit" or "validating" in metrics of webhooks, "admit" or "validate" in metrics of
    plug-ins, and "validate" in metrics of the match conditions of policies.
    """

    def __init__(self) -> None:
        self._steps = HistogramFamily(
            f"{_PREFIX}step_admission_duration_seconds",
            "Admission sub-step latency histogram in seconds, broken out for each operation and step type.",
            ("type", "operation", "rejected"),
            _STEP_SECONDS,
        )
        self._plugins = HistogramFamily(
            f"{_PREFIX}controller_admission_duration_seconds",
            "Admission controller latency histogram in seconds, by name, operation and type, of plug-ins that apply.",
            ("name", "type", "operation", "rejected"),
            _STEP_SECONDS,
        )
        self._webhooks = HistogramFamily(
            f"{_PREFIX}webhook_admission_duration_seconds",
            "Admission webhook latency histogram in seconds, by name, operation and type.",
            ("name", "type", "operation", "rejected"),
            _WEBHOOK_SECONDS,
        )
        self._conditions = HistogramFamily(
            f"{_PREFIX}match_condition_evaluation_seconds",
            "Admission match condition evaluation time in seconds, by name, kind, type and operation.",
            ("name", "kind", "type", "operation"),
            _CONDITION_SECONDS,
        )
        self._requests = _counter(
            "webhook_request_total", "Admission webhook requests.", "name", "type", "operation", "code", "rejected"
        )
        self._rejections = _counter(
            "webhook_rejection_count",
            "Writes that an admission webhook rejected; error_type is no_error for a denial, else the failure.",
            "name", "type", "operation", "error_type", "rejection_code",
        )  # fmt: skip
        self._open = _counter(
            "webhook_fail_open_count",
            "Failed calls of admission webhooks that their failurePolicy ignored.",
            "name",
            "type",
        )
        self._configured: dict[str, Callable[[], Iterable[str]]] = {}
        for family in (self._webhooks, self._rejections, self._open, self._requests):
            family.lasting = self._lasting
        kinds = ("name", "kind", "type", "operation")
        self._exclusions = _counter(
            "match_condition_exclusions_total",
            "Webhooks and policies that were skipped because a match condition was false.",
            *kinds,
        )
        self._faults = _counter(
            "match_condition_evaluation_errors_total", "Match conditions whose evaluation failed.", *kinds
        )

    def follow(self, type: str, names: Callable[[], Iterable[str]]) -> None:
        """From now on, delete the metrics of a webhook of this type after its removal.

        ``names`` returns the names of the configured webhooks. Upstream never deletes these metrics.
        """
        self._configured[type] = names

    def _lasting(self) -> Callable[[Sequence[str]], bool]:
        configured = {(name, type) for type, names in self._configured.items() for name in names()}
        return lambda labels: (labels[0], labels[1]) in configured or labels[1] not in self._configured

    @property
    def families(self) -> list[Family | HistogramFamily]:
        """All families, for the response to a scrape."""
        return [
            self._steps, self._plugins, self._webhooks, self._rejections, self._open, self._requests,
            self._conditions, self._exclusions, self._faults,
        ]  # fmt: skip

    def step(self, type: str, operation: str, rejected: bool, seconds: float) -> None:
        """Observe the duration of one phase (mutating or validating) of the whole chain."""
        self._steps.slot(type, operation, _TRUTH[rejected]).observe(seconds)

    def plugin(self, name: str, type: str, operation: str, rejected: bool, seconds: float) -> None:
        """Observe the duration of one call of a plug-in."""
        self._plugins.slot(name, type, operation, _TRUTH[rejected]).observe(seconds)

    def passed(self, names: Sequence[str], type: str, operation: str, *, whole: bool) -> list[Distribution]:
        """Return the distribution of the durations of allowed writes, for each plug-in in a phase.

        With ``whole``, the distribution of the whole phase comes first.
        """
        steps = [self._steps.slot(type, operation, _TRUTH[False])] if whole else []
        return steps + [self._plugins.slot(name, type, operation, _TRUTH[False]) for name in names]

    def webhook(self, name: str, type: str, operation: str, code: int, rejected: bool, seconds: float) -> None:
        """Count one call of a webhook.

        ``code`` is 200 for an allowed write, 0 for an internal error, else the code of the denial or failure.
        """
        truth = _TRUTH[rejected]
        self._requests.slot(name, type, operation, str(min(code, _MAX_CODE)), truth).value += 1
        self._webhooks.observe(seconds, name, type, operation, truth)

    def rejection(self, name: str, type: str, operation: str, error: str, code: int) -> None:
        """Count one failed write: by a denial, a failed call of a webhook, or an internal error."""
        self._rejections.slot(name, type, operation, error, str(min(code, _MAX_CODE))).add(1)

    def failed_open(self, name: str, type: str) -> None:
        """Count one failed call of a webhook whose failurePolicy is Ignore."""
        self._open.slot(name, type).add(1)

    def conditions(self, labels: tuple[str, str, str, str], seconds: float, *, excluded: bool, faults: int) -> None:
        """Observe an evaluation of the match conditions of a webhook or policy.

        ``labels`` are name, kind, type and operation. ``excluded`` is true if a condition was false. ``faults`` is the
        number of conditions that failed with an error.
        """
        self._conditions.slot(*labels).observe(seconds)
        if excluded:
            self._exclusions.slot(*labels).add(1)
        if faults:
            self._faults.slot(*labels).add(faults)


def _counter(name: str, text: str, *labels: str) -> Family:
    return Family(_PREFIX + name, "counter", text, labels)


_TRUTH = {False: "false", True: "true"}
