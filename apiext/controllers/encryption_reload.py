"""The reload of the encryption configuration after its file has changed.

Flag: --encryption-provider-config-automatic-reload.
"""

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence

from apiext.controllers import limits
from apiext.kms import metrics
from apiext.kms.provider import Provider, faults_of, start_all, stop_all
from apiext.storage import encryption_config
from apiext.storage.ciphers import OPERATIONS, SECONDS
from apiext.storage.encryption import Encryptions
from apiext.storage.encryption_config import ConfigurationError, Loaded
from apiext.telemetry import Family, HistogramFamily

# Seconds between two checks of inode, time and size of the configuration file.
ENCRYPTION_CHECK_EVERY = 1.0
# After this number of checks, the file is read even if inode, time and size are unchanged, as upstream does after
# EncryptionConfigFileChangePollDuration.
ENCRYPTION_CHECKS = 60

log = logging.getLogger(__name__)

_SERVER = "apiserver_id_hash"
RELOADS = Family(
    "apiserver_encryption_config_controller_automatic_reloads_total",
    "counter",
    "Number of times that a changed encryption configuration was read again, by success.",
    ("status", _SERVER),
)
RELOADED = Family(
    "apiserver_encryption_config_controller_automatic_reload_last_timestamp_seconds",
    "gauge",
    "Time of the last reload of the encryption configuration, by success.",
    ("status", _SERVER),
)
INFO = Family(
    "apiserver_encryption_config_controller_last_config_info",
    "gauge",
    "The hash of the encryption configuration in use.",
    (_SERVER, "hash"),
)
FAMILIES: tuple[Family | HistogramFamily, ...] = (OPERATIONS, SECONDS, RELOADS, RELOADED, INFO, *metrics.FAMILIES)
"""The metric families of encryption at rest."""
_NO_IDENTITY = ""  # the value of apiserver_id_hash, since this server has no identity


def record_in_use(loaded: Loaded) -> None:
    """Publish the hash of the configuration in use as a metric."""
    INFO.clear()
    INFO.slot(_NO_IDENTITY, loaded.hash).value = 1


StartStore = Callable[[asyncio.TaskGroup], Awaitable[None]]
"""Starts the store; the tasks of the store run in the task group."""


class EncryptionReload:
    """The encryption configuration in use, and its KMS providers.

    After ``start`` with ``follow_file``, an instance checks the file every second. If the file becomes invalid, the
    last valid configuration stays in use, and a later check reads the file again.
    """

    def __init__(self, path: str, loaded: Loaded, use: Callable[[Encryptions], None]) -> None:
        """``loaded`` is the configuration at the start; ``use`` switches the store to a new one."""
        record_in_use(loaded)
        self._path = path
        self._loaded = loaded
        self._use = use
        self._follows_file = False
        self._stamp: object = None
        self._group: asyncio.TaskGroup | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._retired: list[Provider] = []

    async def start(self, group: asyncio.TaskGroup, store: StartStore, *, follow_file: bool) -> None:
        """Start the KMS providers, the store and, if ``follow_file``, the checks of the file.

        The start continues if the call of a plug-in fails.
        """
        self._group, self._follows_file = group, follow_file
        await start_all(self._loaded.services, group)
        await store(group)
        if follow_file:
            self._spawn(self._run())

    async def stop(self) -> None:
        """Stop all checks of the file and all KMS providers."""
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await stop_all([*self._loaded.services, *self._retired])

    @property
    def uses_plugins(self) -> bool:
        """True if the current or a later configuration may have plug-ins.

        If it is true, the server needs health checks for plug-ins.
        """
        return self._follows_file or bool(self._loaded.services)

    def fault(self) -> str:
        """Return the errors of plug-ins for the health check ``kms-providers``.

        Return "" if there are none.
        """
        return faults_of(self._loaded.services)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        assert self._group is not None
        task = self._group.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self) -> None:
        checks = 0
        while True:
            await asyncio.sleep(ENCRYPTION_CHECK_EVERY)
            checks = (checks + 1) % ENCRYPTION_CHECKS
            stamp = await asyncio.to_thread(_stamp_of, self._path)
            if stamp != self._stamp or not checks:
                self._stamp = stamp
                await self.reload_if_changed()

    async def reload_if_changed(self) -> None:
        """Switch to the configuration in the file if its content has changed.

        If the new configuration is invalid, or its plug-ins do not become healthy in time, log the error and keep the
        configuration in use.
        """
        try:
            raw = await asyncio.to_thread(encryption_config.read, self._path)
            if encryption_config.hash_of(raw) == self._loaded.hash:
                return
            loaded = encryption_config.loaded(raw, self._path)
            await self._start_providers(loaded.services)
        except ConfigurationError as error:
            log.error("error processing encryption config file %s: %s", self._path, error)  # noqa: TRY400 - the message is complete
            _count("failure")
            return
        self._use(loaded.encryptions)
        before, self._loaded = self._loaded, loaded
        if before.services:
            self._spawn(self._retire(before.services))
        record_in_use(loaded)
        _count("success")

    async def _start_providers(self, services: Sequence[Provider]) -> None:
        """Start the providers of a new configuration.

        If they do not become healthy in time, raise ConfigurationError.
        """
        if not services:
            return
        assert self._group is not None
        try:
            async with asyncio.timeout(max(limits.KMS_RELOAD, 2 * sum(service.timeout for service in services))):
                await start_all(services, self._group)
                await asyncio.gather(*(service.wait_until_healthy() for service in services))
        except TimeoutError as error:
            fault, self._stamp = faults_of(services), None  # None, so that the next check reads the file again
            await stop_all(services)
            raise ConfigurationError(
                f"health check for new transformers failed, polling error context deadline exceeded: {fault}"
            ) from error
        except BaseException:
            await stop_all(services)
            raise

    async def _retire(self, services: Sequence[Provider]) -> None:
        """Stop replaced providers after a time in which all their requests have ended or timed out."""
        self._retired += services
        await asyncio.sleep(2 * sum(service.timeout for service in services))
        await stop_all(services)
        self._retired = [service for service in self._retired if service not in services]


def _count(status: str) -> None:
    RELOADS.slot(status, _NO_IDENTITY).value += 1
    RELOADED.slot(status, _NO_IDENTITY).value = round(time.time(), 3)


def _stamp_of(path: str) -> object:
    """Return inode, time and size of a file, or of the target of a link.

    Return None if the system reports an error.
    """
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
