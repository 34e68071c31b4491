"""The audit flags of kube-apiserver: defaults, and validation of their values."""

from collections.abc import Callable, Mapping
from typing import TypeVar

from apiext.audit.policy import API_VERSION
from apiext.config import AuditConfig, AuditDelivery, ConfigError
from apiext.meta.time import parse_duration

T = TypeVar("T")

BATCH, BLOCKING, STRICT = MODES = ("batch", "blocking", "blocking-strict")
LEGACY, JSON = FORMATS = ("legacy", "json")

_SWITCH = "BOOL"
_DELIVERY = (  # (flag, help, metavar, default for the log, default for the webhook)
    ("mode", f"when requests wait for their events: {', '.join(MODES)}", "MODE", BLOCKING, BATCH),
    ("batch-buffer-size", "size of the buffer in batch mode; further events are dropped", "N", "10000", "10000"),
    ("batch-max-size", "largest number of events of a batch", "N", "1", "400"),
    ("batch-max-wait", "longest wait for a batch to fill", "DURATION", "0s", "30s"),
    ("batch-throttle-enable", "limit the batches per second", _SWITCH, "false", "true"),
    ("batch-throttle-qps", "limit of batches per second", "N", "0", "10"),
    ("batch-throttle-burst", "batches sent at once after a pause", "N", "0", "15"),
    ("truncate-enabled", "truncate large events, and split large batches", _SWITCH, "false", "false"),
    ("truncate-max-event-size", "size in bytes from which an event loses its objects", "N", "102400", "102400"),
    ("truncate-max-batch-size", "size in bytes from which a batch is split", "N", "10485760", "10485760"),
    ("version", "version of the events", "VERSION", API_VERSION, API_VERSION),
)
FLAGS: tuple[tuple[str, str, str, str], ...] = (
    ("audit-policy-file", "audit policy: the level of each request; empty: no audit log", "", "FILE"),
    ("audit-log-path", "audit log file, - for standard output", "", "FILE"),
    ("audit-log-format", f"format of the audit log: {', '.join(FORMATS)}", JSON, "FORM"),
    ("audit-log-maxage", "days for which old audit logs are kept, 0 for no limit", "366", "N"),
    ("audit-log-maxbackup", "number of old audit logs that are kept, 0 for no limit", "100", "N"),
    ("audit-log-maxsize", "size of an audit log in megabytes at which it is rotated, 0 for no limit", "100", "N"),
    ("audit-log-compress", "compress old audit logs", "false", _SWITCH),
    *((f"audit-log-{name}", f"{text} (log)", default, metavar) for name, text, metavar, default, _ in _DELIVERY),
    ("audit-webhook-config-file", "kubeconfig of the webhook that gets the events", "", "FILE"),
    ("audit-webhook-initial-backoff", "time before the first retry of a failed call", "10s", "DURATION"),
    *(
        (f"audit-webhook-{name}", f"{text} (webhook)", default, metavar)
        for name, text, metavar, _, default in _DELIVERY
    ),
)
"""(name, help, default, metavar) of each flag."""

SWITCHES = frozenset(name for name, _, _, metavar in FLAGS if metavar == _SWITCH)
CHOICES = {"audit-log-format": FORMATS} | {name: MODES for name, _, _, metavar in FLAGS if metavar == "MODE"}
"""Flag → its possible values."""


def read(values: Mapping[str, str]) -> AuditConfig:
    """Return the configuration of the flags; raise ConfigError for an invalid value."""
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


def _delivery(values: Mapping[str, str], backend: str) -> AuditDelivery:
    flag = f"audit-{backend}"
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


def _validate(values: Mapping[str, str], found: AuditDelivery, backend: str) -> None:
    if found.mode not in MODES:
        raise ConfigError(f'invalid audit {backend} mode {found.mode}, allowed modes are "{",".join(MODES)}"')
    if found.mode == BATCH:
        wanted: list[tuple[str, float]] = [("buffer size", found.buffer_size), ("max batch size", found.max_batch)]
        if found.throttled:
            wanted += [("throttle QPS", found.throttle_qps), ("throttle burst", found.throttle_burst)]
        for name, number in wanted:
            if number <= 0:
                raise ConfigError(f"invalid audit batch {backend} {name} {number:g}, must be a positive number")
    if found.max_event_bytes <= 0:
        text = f"max event size {found.max_event_bytes}, must be a positive number"
        raise ConfigError(f"invalid audit truncate {backend} {text}")
    if found.max_batch_bytes < found.max_event_bytes:
        text = f"max batch size {found.max_batch_bytes}, must be greater than max event size ({found.max_event_bytes})"
        raise ConfigError(f"invalid audit truncate {backend} {text}")
    if values[f"audit-{backend}-version"] != API_VERSION:
        raise ConfigError(f'--audit-{backend}-version: invalid group version, allowed versions are ["{API_VERSION}"]')


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
