"""Metrics of the audit log: events, levels and errors (upstream: audit/metrics.go)."""

import logging
import time

from apiext.audit.policy import LEVELS
from apiext.telemetry import Family

# Minimum seconds between two log lines about the lost events of one plug-in.
AUDIT_LOG_EVERY = 5.0

log = logging.getLogger(__name__)


class Counters:
    """Metric families of the audit log; ``lost`` also logs lost events."""

    def __init__(self) -> None:
        self.events = Family(
            "apiserver_audit_event_total", "counter", "Counter of audit events generated and sent to the audit backend."
        )
        self.errors = Family(
            "apiserver_audit_error_total",
            "counter",
            "Counter of audit events that failed to be audited properly. Plugin identifies the plugin affected by the "
            "error.",
            ("plugin",),
        )
        self.levels = Family(
            "apiserver_audit_level_total",
            "counter",
            "Counter of policy levels for audit events (1 per request).",
            ("level",),
        )
        self.rejected = Family(
            "apiserver_audit_requests_rejected_total",
            "counter",
            "Counter of apiserver requests rejected due to an error in audit logging backend.",
        )
        self.of_level = [self.levels.slot(name) for name in LEVELS]
        self.sent = self.events.slot()
        self.refused = self.rejected.slot()
        self._logged: dict[str, tuple[float, int]] = {}  # plug-in → (time of the last log line, lost events since)

    @property
    def families(self) -> tuple[Family, ...]:
        """All metric families."""
        return (self.events, self.errors, self.levels, self.rejected)

    def lost(self, plugin: str, count: int, why: object) -> None:
        """Count lost events; log at most one line for each plug-in in AUDIT_LOG_EVERY seconds."""
        self.errors.slot(plugin).value += count
        last, silent = self._logged.get(plugin, (0.0, 0))
        now = time.monotonic()
        if last and now - last < AUDIT_LOG_EVERY:
            self._logged[plugin] = (last, silent + count)
            return
        self._logged[plugin] = (now, 0)
        more = f" ({silent} since the last line)" if silent else ""
        log.error("audit plugin %s lost %d events%s: %s", plugin, count, more, why)
