"""Metrics of calls of conversion webhooks, with upstream's names (VER-013)."""

from apiext.telemetry import Family, HistogramFamily

_PER_DEFINITION = tuple(0.001 * 2**power for power in range(15))
_CALLS = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 45.0, 60.0)


class Metrics:
    """The metric families of conversions, for the registry."""

    def __init__(self) -> None:
        self._definitions = HistogramFamily(
            "apiserver_crd_conversion_webhook_duration_seconds",
            "CRD webhook conversion duration in seconds",
            ("crd_name", "from_version", "to_version", "succeeded"),
            _PER_DEFINITION,
        )
        self._requests = Family(
            "apiserver_conversion_webhook_request_total",
            "counter",
            "Counter for conversion webhook requests with success/failure and failure error type",
            ("result", "failure_type"),
        )
        self._seconds = HistogramFamily(
            "apiserver_conversion_webhook_duration_seconds",
            "Conversion webhook request latency",
            ("result", "failure_type"),
            _CALLS,
        )

    @property
    def families(self) -> tuple[Family | HistogramFamily, ...]:
        """All metric families of conversions."""
        return self._definitions, self._requests, self._seconds

    def observe(self, definition: str, versions: tuple[str, str], seconds: float, failure: str = "") -> None:
        """Count a call of a webhook.

        ``versions`` is the pair (from, to). ``failure`` is "" for a success.
        """
        self._definitions.slot(definition, *versions, "false" if failure else "true").observe(seconds)
        result = "failure" if failure else "success"
        self._requests.slot(result, failure).value += 1
        self._seconds.slot(result, failure).observe(seconds)
