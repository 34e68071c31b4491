"""Reads the encryption configuration again when its file changes (--encryption-provider-config-automatic-reload)."""

import asyncio
import logging
import os
import time
from collections.abc import Callable

from apiext import limits
from apiext.storage import sealing_config
from apiext.storage.ciphers import OPERATIONS, SECONDS
from apiext.storage.sealing import Sealings
from apiext.storage.sealing_config import ConfigurationError, Loaded
from apiext.telemetry import Family, HistogramFamily

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
FAMILIES: tuple[Family | HistogramFamily, ...] = (OPERATIONS, SECONDS, RELOADS, RELOADED, INFO)
"""What is counted of encryption at rest."""
_NOBODY = ""  # servers have no identity here


def tell(loaded: Loaded) -> None:
    """Show which configuration is in use."""
    INFO.clear()
    INFO.slot(_NOBODY, loaded.hash).value = 1


class Resealing:
    """Looks at the file every second; one that cannot be used leaves the last one in use, and is tried again."""

    def __init__(self, path: str, loaded: Loaded, use: Callable[[Sealings], None]) -> None:
        """``loaded`` is what the file said at the start, PLAIN if there is none."""
        if loaded.hash:
            tell(loaded)
        self._path = path
        self._hash = loaded.hash
        self._use = use
        self._seen: object = None
        self._task: asyncio.Task[None] | None = None

    def start(self, group: asyncio.TaskGroup) -> None:
        """Look from now on."""
        self._task = group.create_task(self._run())

    async def stop(self) -> None:
        """Look no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        looks = 0
        while True:
            await asyncio.sleep(limits.ENCRYPTION_LOOK_EVERY)
            looks = (looks + 1) % limits.ENCRYPTION_LOOKS
            seen = await asyncio.to_thread(_stamp, self._path)
            if seen != self._seen or not looks:
                self._seen = seen
                await self.look()

    async def look(self) -> None:
        """Use what the file says if that is new."""
        try:
            raw = await asyncio.to_thread(sealing_config.read, self._path)
            if sealing_config.hash_of(raw) == self._hash:
                return
            loaded = sealing_config.loaded(raw, self._path)
        except ConfigurationError as error:
            log.error("error processing encryption config file %s: %s", self._path, error)  # noqa: TRY400 - says it all
            _count("failure")
            return
        self._use(loaded.sealings)
        self._hash = loaded.hash
        tell(loaded)
        _count("success")


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
