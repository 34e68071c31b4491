"""Open the store; wait for another server that still has the file open."""

import asyncio
import fcntl
from collections.abc import Callable
from pathlib import Path

from apiext.embedded import limits
from apiext.embedded.faults import StoreInUse
from apiext.embedded.memory import MemoryBackend
from apiext.embedded.sqlite import SqliteBackend, lock_of
from apiext.embedded.store import Measured, Store

POLL = 0.02  # seconds between attempts to lock the file


async def open_store(
    path: Path | None, quota: int, measured: Measured, warn: Callable[[str], None], give_up: Callable[[], bool]
) -> Store:
    """Open a store in a file, or in memory (None).

    Raise StoreFault, or OSError if the disk is full. If another server has the file open, try again for
    limits.LOCK_PATIENCE seconds, or until ``give_up()`` returns True; then raise StoreInUse.
    """
    until = asyncio.get_running_loop().time() + limits.LOCK_PATIENCE
    warned = False
    while True:
        store = Store(MemoryBackend() if path is None else SqliteBackend(path), quota, measured)
        try:
            await store.open()
        except StoreInUse as used:
            if asyncio.get_running_loop().time() > until or give_up():
                raise
            if not warned:
                warned = True
                warn(f"{used}; waiting {limits.LOCK_PATIENCE:g}s for its end")
            await asyncio.sleep(POLL)
        else:
            return store


def holder(path: Path) -> int | None:
    """Return the id of the process that has the file of a store open.

    Return None if no process has it open, or if the id is unknown.
    """
    try:
        with lock_of(path).open("rb") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return int(lock.read(32))
    except (OSError, ValueError):
        pass
    return None
