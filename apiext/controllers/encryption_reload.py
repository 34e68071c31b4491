"""Reads the encryption configuration again when its file changes (--encryption-provider-config-automatic-reload)."""

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

# Seconds between looks at the file of the encryption configuration.
ENCRYPTION_LOOK_EVERY = 1.0
# Looks of which one reads that file in any case (upstream: EncryptionConfigFileChangePollDuration).
ENCRYPTION_LOOKS = 60

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
"""The metrics of encryption at rest."""
_NOBODY = ""  # servers have no identity here


def tell(loaded: Loaded) -> None:
    """Show which configuration is in use."""
    INFO.clear()
    INFO.slot(_NOBODY, loaded.hash).value = 1


Start = Callable[[asyncio.TaskGroup], Awaitable[None]]
"""Starts what reads and writes values."""


class EncryptionReload:
    """The configuration in use, and its KMS providers.

    Reads the file every second, if enabled; an unusable one leaves the last one in use, and is retried.
    """

    def __init__(self, path: str, loaded: Loaded, use: Callable[[Encryptions], None]) -> None:
        """``loaded`` is the configuration that the file had at the start."""
        tell(loaded)
        self._path = path
        self._loaded = loaded
        self._use = use
        self._looking = False
        self._seen: object = None
        self._group: asyncio.TaskGroup | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._retired: list[Provider] = []

    async def start(self, group: asyncio.TaskGroup, store: Start, *, looking: bool) -> None:
        """Call each plug-in once, start the store, and follow the file if enabled.

        A failed plug-in does not stop the start.
        """
        self._group, self._looking = group, looking
        await start_all(self._loaded.services, group)
        await store(group)
        if looking:
            self._spawn(self._run())

    async def stop(self) -> None:
        """Stop reading the file and calling plug-ins."""
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await stop_all([*self._loaded.services, *self._retired])

    @property
    def asks_plugins(self) -> bool:
        """Report whether a plug-in of the configuration in use, or of a later one, must be healthy."""
        return self._looking or bool(self._loaded.services)

    def fault(self) -> str:
        """Return the errors of plug-ins, as ``kms-providers`` shows them."""
        return faults_of(self._loaded.services)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        assert self._group is not None
        task = self._group.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self) -> None:
        looks = 0
        while True:
            await asyncio.sleep(ENCRYPTION_LOOK_EVERY)
            looks = (looks + 1) % ENCRYPTION_LOOKS
            seen = await asyncio.to_thread(_stamp, self._path)
            if seen != self._seen or not looks:
                self._seen = seen
                await self.look()

    async def look(self) -> None:
        """Switch to the configuration in the file if it has changed."""
        try:
            raw = await asyncio.to_thread(encryption_config.read, self._path)
            if encryption_config.hash_of(raw) == self._loaded.hash:
                return
            loaded = encryption_config.loaded(raw, self._path)
            await self._begin(loaded.services)
        except ConfigurationError as error:
            log.error("error processing encryption config file %s: %s", self._path, error)  # noqa: TRY400 - says it all
            _count("failure")
            return
        self._use(loaded.encryptions)
        before, self._loaded = self._loaded, loaded
        if before.services:
            self._spawn(self._retire(before.services))
        tell(loaded)
        _count("success")

    async def _begin(self, services: Sequence[Provider]) -> None:
        """Start the providers of a new configuration; raises ConfigurationError unless all become well in time."""
        if not services:
            return
        assert self._group is not None
        try:
            async with asyncio.timeout(max(limits.KMS_RELOAD, 2 * sum(service.timeout for service in services))):
                await start_all(services, self._group)
                await asyncio.gather(*(service.wait_until_healthy() for service in services))
        except TimeoutError as error:
            fault, self._seen = faults_of(services), None  # it may be well soon
            await stop_all(services)
            raise ConfigurationError(
                f"health check for new transformers failed, polling error context deadline exceeded: {fault}"
            ) from error
        except BaseException:
            await stop_all(services)
            raise

    async def _retire(self, services: Sequence[Provider]) -> None:
        """Stop providers that no request waits for."""
        self._retired += services
        await asyncio.sleep(2 * sum(service.timeout for service in services))
        await stop_all(services)
        self._retired = [service for service in self._retired if service not in services]


def _count(status: str) -> None:
    RELOADS.slot(status, _NOBODY).value += 1
    RELOADED.slot(status, _NOBODY).value = round(time.time(), 3)


def _stamp(path: str) -> object:
    """Return what changes with a file, also with the one that a link leads to."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size
