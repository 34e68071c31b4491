"""The audit flags: upstream's defaults, and the settings for values."""

from __future__ import annotations

import pytest

from apiext.audit import flags
from apiext.config import AuditConfig, AuditDelivery, ConfigError

pytestmark = pytest.mark.rows("AUD-001")

DEFAULTS = {name: default for name, _, default, _ in flags.FLAGS}


def test_the_defaults_are_upstreams() -> None:
    assert flags.read(DEFAULTS) == AuditConfig(
        webhook=AuditDelivery(
            mode="batch", max_batch=400, max_wait=30.0, throttled=True, throttle_qps=10.0, throttle_burst=15
        )
    )
    log = flags.read(DEFAULTS).log
    assert (log.mode, log.buffer_size, log.max_batch, log.throttled) == ("blocking", 10_000, 1, False)
    assert (log.max_event_bytes, log.max_batch_bytes) == (102_400, 10_485_760)


def test_flags_set_the_audit_config() -> None:
    given = {
        "audit-log-path": "-", "audit-log-format": "legacy", "audit-log-maxage": "1", "audit-log-maxbackup": "2",
        "audit-log-maxsize": "3", "audit-log-compress": "true", "audit-log-mode": "batch",
        "audit-webhook-initial-backoff": "1m30s", "audit-webhook-batch-throttle-enable": "false",
    }  # fmt: skip
    found = flags.read({**DEFAULTS, **given})
    assert (found.log_path, found.log_format, found.compress) == ("-", "legacy", True)
    assert (found.max_age, found.max_backups, found.max_megabytes) == (1, 2, 3)
    assert (found.log.mode, found.initial_backoff, found.webhook.throttled) == ("batch", 90.0, False)


def test_unused_flags_are_not_validated() -> None:
    flags.read({**DEFAULTS, "audit-log-mode": "nope", "audit-webhook-mode": "nope", "audit-log-maxsize": "-1"})
    flags.read({**DEFAULTS, "audit-log-path": "x", "audit-log-batch-buffer-size": "0"})  # no batches


@pytest.mark.parametrize(
    ("flag", "value", "then"),
    [
        ("audit-log-maxage", "x", "--audit-log-maxage x: expected a number"),
        ("audit-log-maxage", "-1", "--audit-log-maxage -1 can't be a negative number"),
        ("audit-log-compress", "maybe", "--audit-log-compress maybe: expected true or false"),
        ("audit-webhook-initial-backoff", "soon", "--audit-webhook-initial-backoff soon: expected a duration"),
        ("audit-webhook-batch-throttle-qps", "0", "webhook throttle QPS 0, must be a positive number"),
        ("audit-webhook-batch-max-size", "-5", "webhook max batch size -5, must be a positive number"),
        ("audit-log-truncate-max-batch-size", "5", "must be greater than max event size"),
        ("audit-webhook-version", "v1", "allowed versions are"),
    ],
)
def test_invalid_flag_values_are_refused(flag: str, value: str, then: str) -> None:
    with pytest.raises(ConfigError, match=then):
        flags.read({**DEFAULTS, "audit-log-path": "x", "audit-webhook-config-file": "y", flag: value})
