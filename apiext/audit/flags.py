"""The audit flags of kube-apiserver: their defaults, and what is wrong with their values."""

from collections.abc import Callable, Mapping
from typing import TypeVar

from apiext.audit.policy import API_VERSION
from apiext.config import AuditConfig, AuditDelivery, ConfigError
from apiext.meta.time import parse_duration

T = TypeVar("T")

BATCH, BLOCKING, STRICT = MODES = ("batch", "blocking", "blocking-strict")
LEGACY, JSON = FORMATS = ("legacy", "json")

_SWITCH = "BOOL"
_DELIVERY = (  # flag, help, metavar, default for the log, default for the webhook
    ("mode", f"how events are told: {', '.join(MODES)}", "MODE", BLOCKING, BATCH),
    ("batch-buffer-size", "events that wait at most in batch mode; more are dropped", "N", "10000", "10000"),
    ("batch-max-size", "events told at a time in batch mode", "N", "1", "400"),
    ("batch-max-wait", "time after which a smaller batch is told", "DURATION", "0s", "30s"),
    ("batch-throttle-enable", "bound the batches per second", _SWITCH, "false", "true"),
    ("batch-throttle-qps", "batches per second", "N", "0", "10"),
    ("batch-throttle-burst", "batches at once after a pause", "N", "0", "15"),
    ("truncate-enabled", "cut large events and batches", _SWITCH, "false", "false"),
    ("truncate-max-event-size", "bytes of an event from which it loses its objects", "N", "102400", "102400"),
    ("truncate-max-batch-size", "bytes of a batch from which it is told in parts", "N", "10485760", "10485760"),
    ("version", "version of the events", "VERSION", API_VERSION, API_VERSION),
)
FLAGS: tuple[tuple[str, str, str, str], ...] = (
    ("audit-policy-file", "audit policy: which requests are told of; none: no audit", "", "FILE"),
    ("audit-log-path", "audit log, - for standard output", "", "FILE"),
    ("audit-log-format", f"form of its lines: {', '.join(FORMATS)}", JSON, "FORM"),
    ("audit-log-maxage", "days that old audit logs are kept, 0 for any age", "366", "N"),
    ("audit-log-maxbackup", "old audit logs that are kept, 0 for any number", "100", "N"),
    ("audit-log-maxsize", "megabytes of an audit log before it is rotated, 0 for no end", "100", "N"),
    ("audit-log-compress", "compress old audit logs", "false", _SWITCH),
    *((f"audit-log-{name}", f"{text} (log)", default, metavar) for name, text, metavar, default, _ in _DELIVERY),
    ("audit-webhook-config-file", "kubeconfig of the webhook that is told of events", "", "FILE"),
    ("audit-webhook-initial-backoff", "time before a failed call is repeated", "10s", "DURATION"),
    *(
        (f"audit-webhook-{name}", f"{text} (webhook)", default, metavar)
        for name, text, metavar, _, default in _DELIVERY
    ),
)
"""Name, help, default and metavar of each."""

SWITCHES = frozenset(name for name, _, _, metavar in FLAGS if metavar == _SWITCH)
CHOICES = {"audit-log-format": FORMATS} | {name: MODES for name, _, _, metavar in FLAGS if metavar == "MODE"}
"""The values that a flag can have."""


def read(values: Mapping[str, str]) -> AuditConfig:
    """Return what the flags say; raises ConfigError with upstream's words."""
    config = AuditConfig(
        values["audit-policy-file"],
        values["audit-log-path"],
        values["audit-log-format"],
        _number(values, "audit-log-maxage", int),
        _number(values, "audit-log-maxbackup", int),
        _number(values, "audit-log-maxsize", int),
        _truth(values, "audit-log-compress"),
        _delivery(values, "log"),
        values["audit-webhook-config-file"],
        _duration(values, "audit-webhook-initial-backoff"),
        _delivery(values, "webhook"),
    )
    if config.log_path:
        _validate(values, config.log, "log")
        _validate_log(config)
    if config.webhook_file:
        _validate(values, config.webhook, "webhook")
    return config


def _delivery(values: Mapping[str, str], place: str) -> AuditDelivery:
    flag = f"audit-{place}"
    return AuditDelivery(
        values[f"{flag}-mode"],
        _number(values, f"{flag}-batch-buffer-size", int),
        _number(values, f"{flag}-batch-max-size", int),
        _duration(values, f"{flag}-batch-max-wait"),
        _truth(values, f"{flag}-batch-throttle-enable"),
        _number(values, f"{flag}-batch-throttle-qps", float),
        _number(values, f"{flag}-batch-throttle-burst", int),
        _truth(values, f"{flag}-truncate-enabled"),
        _number(values, f"{flag}-truncate-max-event-size", int),
        _number(values, f"{flag}-truncate-max-batch-size", int),
    )


def _validate(values: Mapping[str, str], found: AuditDelivery, place: str) -> None:
    if found.mode not in MODES:
        raise ConfigError(f'invalid audit {place} mode {found.mode}, allowed modes are "{",".join(MODES)}"')
    if found.mode == BATCH:
        wanted: list[tuple[str, float]] = [("buffer size", found.buffer_size), ("max batch size", found.max_batch)]
        if found.throttled:
            wanted += [("throttle QPS", found.throttle_qps), ("throttle burst", found.throttle_burst)]
        for name, number in wanted:
            if number <= 0:
                raise ConfigError(f"invalid audit batch {place} {name} {number:g}, must be a positive number")
    if found.max_event_bytes <= 0:
        text = f"max event size {found.max_event_bytes}, must be a positive number"
        raise ConfigError(f"invalid audit truncate {place} {text}")
    if found.max_batch_bytes < found.max_event_bytes:
        text = f"max batch size {found.max_batch_bytes}, must be greater than max event size ({found.max_event_bytes})"
        raise ConfigError(f"invalid audit truncate {place} {text}")
    if values[f"audit-{place}-version"] != API_VERSION:
        raise ConfigError(f'--audit-{place}-version: invalid group version, allowed versions are ["{API_VERSION}"]')


def _validate_log(config: AuditConfig) -> None:
    if config.log_format not in FORMATS:
        text = f'invalid audit log format {config.log_format}, allowed formats are "{",".join(FORMATS)}"'
        raise ConfigError(text)
    limits = (("maxage", config.max_age), ("maxbackup", config.max_backups), ("maxsize", config.max_megabytes))
    for name, number in limits:
        if number < 0:
            raise ConfigError(f"--audit-log-{name} {number} can't be a negative number")


def _number(values: Mapping[str, str], flag: str, kind: Callable[[str], T]) -> T:
    try:
        return kind(values[flag])
    except ValueError as error:
        raise ConfigError(f"--{flag} {values[flag]}: expected a number") from error


def _duration(values: Mapping[str, str], flag: str) -> float:
    try:
        return parse_duration(values[flag])
    except ValueError as error:
        raise ConfigError(f"--{flag} {values[flag]}: expected a duration such as 90s or 1m30s") from error


_TRUTHS = {"true": True, "1": True, "t": True, "false": False, "0": False, "f": False, "": False}


def _truth(values: Mapping[str, str], flag: str) -> bool:
    found = _TRUTHS.get(values[flag].lower())
    if found is None:
        raise ConfigError(f"--{flag} {values[flag]}: expected true or false")
    return found
