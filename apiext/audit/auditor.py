"""The audit log of a server: its policy, backends and metrics."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from apiext.audit import policy
from apiext.audit.counters import Counters
from apiext.audit.events import Event
from apiext.audit.policy import Policy, PolicyError, Verdict
from apiext.config import AuditConfig, ConfigError
from apiext.meta.requestinfo import RequestInfo

if TYPE_CHECKING:
    from apiext.audit.files import LogFile, ProcessLock
    from apiext.webhooks.client import Client
    from apiext.webhooks.remote import Remote


class Backend(Protocol):
    """A destination of events; ``strict`` is true in mode blocking-strict."""

    strict: bool

    def start(self, group: asyncio.TaskGroup) -> None:
        """Start the backend's tasks."""

    def put(self, event: Event) -> asyncio.Future[bool] | None:
        """Accept an event.

        If the request must wait, return a future, else None. The result of the future is True if the event is recorded,
        else False.
        """

    async def stop(self) -> None:
        """Send the remaining events."""


class Auditor:
    """Finds the audit level of each request in the policy, and sends events to all backends."""

    def __init__(self, rules: Policy, backends: Sequence[Backend], counters: Counters, client: "Client") -> None:
        self.counters = counters
        self._client = client
        self._policy = rules
        self._backends = backends

    def start(self, group: asyncio.TaskGroup) -> None:
        """Start the backends."""
        for backend in self._backends:
            backend.start(group)

    def verdict(self, info: RequestInfo, namespace: str, user: str | None, groups: Sequence[str]) -> Verdict:
        """Return the audit level and stages of a request, and count the request."""
        found = self._policy.verdict(info, namespace, user, groups)
        self.counters.of_level[found.level].value += 1
        return found

    async def record(self, event: Event) -> bool:
        """Send an event to all backends, and wait.

        Return False if a backend in mode blocking-strict failed.
        """
        success = True
        for strict, waiting in self._put(event):
            sent = await waiting
            success = success and (sent or not strict)
        return success

    def record_later(self, event: Event) -> None:
        """Send an event to all backends, without waiting."""
        self._put(event)

    async def stop(self) -> None:
        """Send the remaining events, and close the backends."""
        for backend in self._backends:
            await backend.stop()
        await self._client.close()

    def _put(self, event: Event) -> list[tuple[bool, asyncio.Future[bool]]]:
        if event.stage in event.verdict.omitted:
            return []
        self.counters.sent.value += 1
        found = []
        for backend in self._backends:
            waiting = backend.put(event)
            if waiting is not None:
                found.append((backend.strict, waiting))
        return found


def build(config: AuditConfig, client: "Client", warn: policy.Warn) -> Auditor | None:
    """Return the audit log, None if no policy or no backend is configured.

    Raise ConfigError and OSError.
    """
    if not config.policy_file:
        if config.log_path or config.webhook_file:
            warn("the server audits no request without --audit-policy-file")
        return None
    from apiext.audit.files import Output, ProcessLock
    from apiext.audit.log import Log
    from apiext.audit.webhook import Webhook

    rules = _policy(config.policy_file, warn)
    counters = Counters()
    backends: list[Backend] = []
    if config.log_path:
        lock = ProcessLock(Path(config.shared_lock)) if config.shared_lock else None
        destination = Output(lock) if config.log_path == "-" else _file(config, lock)
        backends.append(Log(destination, config.log_format, config.log, counters))
    if config.webhook_file:
        backends.append(Webhook(_remote(config.webhook_file), client, config, counters))
    if not backends:
        warn("--audit-policy-file has no effect without --audit-log-path or --audit-webhook-config-file")
        return None
    return Auditor(rules, backends, counters, client)


def _policy(path: str, warn: policy.Warn) -> Policy:
    try:
        rules, notes = policy.load(Path(path).read_bytes())
    except OSError as error:
        raise ConfigError(f'loading audit policy file: failed to read file path "{path}": {error.strerror}') from error
    except PolicyError as error:
        raise ConfigError(f"loading audit policy file: {error}: from file {path}") from error
    for note in notes:
        warn(f"--audit-policy-file {path}: {note}")
    return rules


def _file(config: AuditConfig, lock: "ProcessLock | None") -> "LogFile":
    from apiext.audit.files import MEGABYTE, LogFile, Rotation
    from apiext.audit.threads import Background

    rotation = Rotation(config.max_megabytes * MEGABYTE, config.max_backups, config.max_age, config.compress)
    try:
        return LogFile(Path(config.log_path), rotation, background=Background(), lock=lock)
    except OSError as error:
        raise ConfigError(f"--audit-log-path {config.log_path}: {error.strerror or error}") from error


def _remote(path: str) -> "Remote":
    from apiext.webhooks.remote import remote_of

    try:
        return remote_of(Path(path))
    except ValueError as error:
        text = str(error).removeprefix(f"{path}: ")
        raise ConfigError(f"--audit-webhook-config-file {path}: {text}") from error
